// How fast each trainer of a membership is, as it says itself and as those say who wait for it; and
// from all of that, who slows the gang and why. Pure: no IO, threads or clock.
//
// In every step all wait for the slowest. How long a trainer worked tells who is slow at computing
// or reading, but not whose network is: only those who wait for it see that. So each tells both.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace muster::sentinel {

using std::chrono::microseconds;

/// A verdict rests on at least so many steps and so much time of one membership: whoever is slow is
/// named within 20 steps, and a hiccup of the machine names nobody.
inline constexpr std::size_t kPaceSteps = 16;
inline constexpr microseconds kPaceTime{500'000};
/// Of those whom a trainer waits for, it tells the longest waits one by one; of parts: see
/// part_pace.h.
inline constexpr std::size_t kMostWaits = 4;
/// Of a rank, and of logical ranks; nothing above it is believed.
inline constexpr int kMostRank = 1 << 20;

struct Wait {
  int rank = 0;
  microseconds time{};  ///< in a step
  bool operator==(const Wait&) const = default;
};

/// One trainer over its newest steps. Times are those of a usual step: medians; of waits, and of
/// what a part of a model takes alone, what is reached in seven steps of eight, because only who is
/// late nearly always slows the gang.
struct Pace {
  std::int64_t epoch = 0;                   ///< of the view
  std::int64_t step = 0;                    ///< the newest one in it
  int rank = 0;                             ///< among the trainers of that view
  int logical_ranks = 0;                    ///< computed in a step; of parts: see part_pace.h
  microseconds whole{};                     ///< from the end of a step to the end of the next
  microseconds data{}, compute{}, files{};  ///< what it does alone
  microseconds starved{};                   ///< waiting for a processor, whatever it had to do
  /// False of those who own no block of the sum: they see a late one through others only.
  bool waits_for_all = false;
  microseconds usual_wait{};  ///< for whoever is not in `waits`; of parts: see part_pace.h
  std::vector<Wait> waits;    ///< at most kMostWaits, by rank; of parts: see part_pace.h
  bool operator==(const Pace&) const = default;
};

/// What has come from a peer over a network in a step, in large messages (comm/arrivals).
struct Arrival {
  double bytes = 0;
  double bytes_per_second = 0;  ///< of the fastest one; 0: it is not known
};

/// One finished step, as the trainer measured it.
struct StepSample {
  std::int64_t epoch = 0, step = 0;
  int rank = 0;
  std::int64_t logical_ranks = 0;
  bool is_of_part = false;  ///< the trainer has a part of the model (part_pace.h)
  double whole_seconds = 0, data_seconds = 0, communicate_seconds = 0, files_seconds = 0,
         starved_seconds = 0;
  /// By rank, summed over the steps of this membership; empty when it does not wait for all.
  std::span<const double> waited_seconds;
  std::vector<Arrival> arrivals;  ///< by rank; of a part alone
};

/// The newest steps of one trainer. Threads: one.
class PaceBook {
 public:
  void add(const StepSample& sample);
  /// Absent before there are enough steps of the present membership.
  std::optional<Pace> pace() const;

 private:
  std::vector<Wait> times_of_arrivals() const;

  struct Entry {
    StepSample sample;  ///< without waits
    std::vector<float> waited;
  };
  std::int64_t epoch_ = -1;
  std::deque<Entry> steps_;
  std::vector<double> waited_before_;
  double seconds_ = 0;  ///< of all in steps_
};

enum class Cause : std::uint8_t { kCompute, kData, kFiles, kNetwork };
/// contract::slow_cause.
std::string_view name_of(Cause cause);

/// What one trainer costs the gang in a usual step.
struct Slowness {
  microseconds delay{};  ///< how much longer the others wait for it than for each other
  int percent = 0;       ///< of the step without that delay
  Cause cause = Cause::kCompute;
};

/// By rank; `host_of[rank]`: any numbers, the same for those who are on one host. What a larger
/// share of logical ranks explains is nobody's slowness. Empty unless there are two trainers at
/// least, all of one epoch, each with its pace.
/// Those elsewhere may wait for a host as a whole, because it sends them what its trainers have
/// together (engine/hosts): who of it was late those beside it say.
/// Whose messages alone are late, and who waited itself for one for whom all wait twice as long,
/// was late for that one's sake as far as that explains it.
std::vector<Slowness> judge_paces(std::vector<Pace> paces, const std::vector<int>& host_of);

/// Whether one trainer is to be named. Once it was, it stays named until it is clearly even.
class SlowWatch {
 public:
  /// Whether it is to be named now, and was not before.
  bool take(const Slowness& slowness);
  bool is_slow() const { return is_slow_; }
  const Slowness& newest() const { return newest_; }

 private:
  bool is_slow_ = false;
  Slowness newest_;
};

}  // namespace muster::sentinel
