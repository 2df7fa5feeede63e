// The order of samples as docs/numerics.md has it, written a second time.
#pragma once

#include <cstdint>

#include "common/rng.h"

namespace muster::test {

/// Position `index` of the pass `epoch` over n samples.
inline std::uint64_t permuted(std::uint64_t seed, std::uint32_t epoch, std::uint64_t n,
                              std::uint64_t index) {
  int half = 1;
  while ((std::uint64_t{1} << 2 * half) < n) ++half;
  std::uint64_t value = index;
  do {
    std::uint64_t left = value >> half;
    std::uint64_t right = value & ((std::uint64_t{1} << half) - 1);
    for (std::uint64_t round = 0; round < 6; ++round) {
      const auto bits = random_bits(seed, RngStream::kPermutation, epoch, (round << 32) + right);
      const std::uint64_t old_right = right;
      right = left ^ bits >> (32 - half);
      left = old_right;
    }
    value = left << half | right;
  } while (value >= n);
  return value;
}

}  // namespace muster::test
