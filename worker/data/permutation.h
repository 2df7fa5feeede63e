// The order of the samples in one pass over the data, as a function: nothing is stored or shuffled,
// so any worker knows any position at any time.
#pragma once

#include <cstdint>

namespace muster::data {

/// A keyed bijection of [0, n): a Feistel network over the least even number of bits that holds n
/// values, and cycle walking (apply it again while the value is not below n; fewer than 4 times on
/// average). Part of the numerics contract: docs/numerics.md.
/// Source: Black, Rogaway: Ciphers with Arbitrary Finite Domains (CT-RSA 2002).
class Permutation {
 public:
  static constexpr int kRounds = 6;
  static constexpr std::uint64_t kMostSamples = std::uint64_t{1} << 32;

  /// Requires 1 <= n <= kMostSamples.
  Permutation(std::uint64_t seed, std::uint32_t epoch, std::uint64_t n);
  std::uint64_t size() const { return n_; }
  /// Requires position < n.
  std::uint64_t operator()(std::uint64_t position) const;

 private:
  std::uint64_t once(std::uint64_t value) const;

  std::uint64_t seed_;
  std::uint64_t n_;
  std::uint32_t epoch_;
  int half_bits_;
};

}  // namespace muster::data
