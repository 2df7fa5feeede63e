// Samples that take long to make, made on threads of their own before they are wanted.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "common/result.h"

namespace muster::data {

/// Who takes samples says beforehand which ones, in the order in which it will take them. What it
/// has passed over is forgotten, so that nothing is held that nobody comes for any more.
/// Threads: want() and take() are one caller's.
class ReadAhead {
 public:
  /// Makes a sample.  Shape: out (bytes).  Threads: any, several at once.
  using Make = std::function<Status(std::uint64_t index, std::span<std::uint8_t> out)>;
  struct Options {
    int threads = 1;        ///< that make samples, beside who takes them, or fewer
    std::size_t most = 1;   ///< samples that are made or being made, and not yet taken
    std::size_t bytes = 0;  ///< of one sample
  };

  /// Most samples that are wanted at a time; of more, the later ones are made by who takes them,
  /// unless they are wanted again once there is room.
  static constexpr std::size_t kMostWanted = std::size_t{1} << 18;

  ReadAhead(const Options& options, Make make);
  /// Blocks: until what is being made is made.
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// `indices` will be taken after all that are wanted already; those of them that are wanted keep
  /// their place.
  void want(std::span<const std::uint64_t> indices);

  /// A sample, also one that nobody wanted: what is not under way yet is made here.  Shape: out
  /// (bytes).  Errors: of `make`, or what was thrown on a thread that made it.  Blocks: as `make`
  /// does.
  Status take(std::uint64_t index, std::span<std::uint8_t> out);

 private:
  enum class Phase { kWanted, kBeingMade, kMade };
  struct Sample {
    Phase phase = Phase::kWanted;
    std::vector<std::uint8_t> bytes = {};
    Status status = {};
  };

  void work();
  void forget(std::uint64_t index);
  bool has_work() const { return !to_make_.empty() && held_ < options_.most; }

  const Options options_;
  const Make make_;
  std::mutex mutex_;
  std::condition_variable may_make_;         ///< there is work, or the end has come
  std::condition_variable is_made_;          ///< some sample is
  std::map<std::uint64_t, Sample> samples_;  ///< all that are wanted
  std::deque<std::uint64_t> order_;          ///< of samples_, each once
  std::deque<std::uint64_t> to_make_;  ///< also some that are forgotten, or made by who took them
  std::size_t held_ = 0;               ///< of samples_, those beyond Phase::kWanted
  bool is_over_ = false;
  std::vector<std::jthread> threads_;  ///< last: they use all else
};

/// Of the samples of a step, and how many of them can be wanted at a time.
struct TakenSamples {
  std::size_t count = 0, most_wanted = ReadAhead::kMostWanted;
};

/// The next samples of a step: `take(index)` of each. Before the first of all, and whenever half of
/// those are taken that can be wanted at a time, `want()` wants those that are not `taken` yet: so
/// none is made by who takes it because there was no room for it before.  Errors: of `take`.
template <typename Want, typename Take>
Status take_samples(std::span<const std::uint64_t> indices, TakenSamples& taken, const Want& want,
                    const Take& take) {
  for (const std::uint64_t index : indices) {
    if (taken.count % (taken.most_wanted / 2) == 0) want();
    ++taken.count;
    MUSTER_RETURN_IF_ERROR(take(index));
  }
  return {};
}

}  // namespace muster::data
