// Whether the copies of the state that different processes keep are still the same bits. A bit that
// flips in memory stays where it is, and through the gradients that are computed with it comes into
// all copies: neither the loss nor the transfers tell of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/engine/keeping.h"
#include "worker/engine/optimizer.h"

namespace muster::engine {

/// A sum over bits, made about as quickly as memory is read; order counts, and every NaN as
/// 0x7fc00000. Any other flipped bit changes it, and hardly any other difference does not. Not
/// against those who mean harm.
class BitSum {
 public:
  /// `on_alive` is called often; empty: nobody asks.
  void add(std::span<const float> values, const std::function<void()>& on_alive = nullptr);
  void add(double value);
  std::uint64_t value() const { return value_; }

 private:
  void mix(std::uint64_t word);
  std::uint64_t value_ = 0x6d75737465722031u;
};

/// Of all of a state that is in one place.
std::uint64_t bit_sum(std::span<const float> parameters, const OptimizerState& optimizer,
                      const std::function<void()>& on_alive = nullptr);

/// What a process says of the copies that it keeps: the sum of what all keep, then by stretch of
/// what is sharded the sum of that, 0 where it does not keep it.
using CopySums = std::vector<std::uint64_t>;

struct CopyVerdict {
  bool are_alike = true;
  /// Ranks whose copy of what all keep is not the one of more than half of all; empty where there
  /// is no such half, or where copies of shards differ: there are too few of them to tell.
  std::vector<int> wrong;
};

/// By rank, all of one length: 1, and 1 more for each of `stretches`.
CopyVerdict judge_copies(const std::vector<CopySums>& sums, const std::vector<Stretch>& stretches);

}  // namespace muster::engine
