#include "worker/data/permutation.h"

#include "common/check.h"
#include "common/rng.h"

namespace muster::data {

Permutation::Permutation(std::uint64_t seed, std::uint32_t epoch, std::uint64_t n)
    : seed_(seed), n_(n), epoch_(epoch), half_bits_(1) {
  MUSTER_CHECK(n >= 1 && n <= kMostSamples);
  while (std::uint64_t{1} << (2 * half_bits_) < n) ++half_bits_;
}

std::uint64_t Permutation::once(std::uint64_t value) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t left = value >> half_bits_;
  std::uint64_t right = value & mask;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const std::uint32_t bits =
        random_bits(seed_, RngStream::kPermutation, epoch_, round << 32 | right);
    const std::uint64_t next = left ^ (bits >> (32 - half_bits_));
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::uint64_t Permutation::operator()(std::uint64_t position) const {
  MUSTER_CHECK(position < n_);
  // A bijection of the larger domain returns to a value below n after finitely many steps, because
  // the cycle it walks on started below n.
  std::uint64_t value = once(position);
  while (value >= n_) value = once(value);
  return value;
}

}  // namespace muster::data
