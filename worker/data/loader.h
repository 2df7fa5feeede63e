// Which samples a logical rank reads at a step: a pure function of (seed, step, logical rank).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace muster::data {

struct LoaderOptions {
  std::uint64_t seed = 0;
  std::uint64_t samples = 0;  ///< of the training set; at least batch_size
  int logical_ranks = 1;
  int batch_size = 1;  ///< global; a multiple of logical_ranks
};

/// Logical ranks [first, last).
struct RankRange {
  int first = 0, last = 0;
  int size() const { return last - first; }
  bool operator==(const RankRange&) const = default;
};

/// Of samples that follow each other those behind the first `skipped`, and of these at most `most`.
struct SamplePart {
  std::size_t skipped = 0, most = std::numeric_limits<std::size_t>::max();
  bool operator==(const SamplePart&) const = default;
};

class Loader {
 public:
  explicit Loader(const LoaderOptions& options);

  /// The last batch of a pass that is not full is dropped.
  std::int64_t steps_per_epoch() const;
  int rows_per_rank() const { return options_.batch_size / options_.logical_ranks; }

  /// Fills `indices` with the samples of `ranks` at `step` (from 0, over all passes), rank by rank.
  /// Shape: indices (ranks.size() * rows_per_rank()).
  void samples(std::int64_t step, RankRange ranks, std::span<std::uint64_t> indices) const;

  /// Only a part of these, which takes no longer for what is left out.
  std::vector<std::uint64_t> samples(std::int64_t step, RankRange ranks, SamplePart part) const;

 private:
  std::size_t rows_of(RankRange ranks) const;
  void fill(std::int64_t step, std::int64_t first, std::span<std::uint64_t> indices) const;

  LoaderOptions options_;
};

}  // namespace muster::data
