// Which samples a logical rank reads at a step: a pure function of (seed, step, logical rank).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

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

class Loader {
 public:
  explicit Loader(const LoaderOptions& options);

  /// The last batch of a pass that is not full is dropped.
  std::int64_t steps_per_epoch() const;
  int rows_per_rank() const { return options_.batch_size / options_.logical_ranks; }

  /// Fills `indices` with the samples of `ranks` at `step` (from 0, over all passes), rank by rank.
  /// Shape: indices (ranks.size() * rows_per_rank()).
  void samples(std::int64_t step, RankRange ranks, std::span<std::uint64_t> indices) const;

 private:
  LoaderOptions options_;
};

}  // namespace muster::data
