// Random numbers that are functions of a key and a counter, so that any worker can make any of them
// at any time and nothing about them has to be saved.
#pragma once

#include <cstdint>

#include "common/philox.h"

namespace muster {

/// What a stream of numbers is for; part of the counter, so that streams never meet. The values are
/// part of the numerics contract: append, never renumber.
enum class RngStream : std::uint32_t {
  kInit = 1,
  kPermutation = 2,
  kDropout = 3,
  kAugment = 4,
  kBackoff = 5,
  kSample = 6
};

/// Number `index` of stream (`key`, `stream`, `sub`): 32 uniform bits. Word index % 4 of the block
/// whose counter is {low and high half of index / 4, sub, stream}.
std::uint32_t random_bits(std::uint64_t key, RngStream stream, std::uint32_t sub,
                          std::uint64_t index);

/// The top 24 of random_bits as a float in [0, 1).
float random_unit(std::uint64_t key, RngStream stream, std::uint32_t sub, std::uint64_t index);

/// A sequential generator over one Philox key, for jitter and for tests. Meets the standard's
/// UniformRandomBitGenerator; std distributions stay forbidden in engine and data all the same.
class Rng {
 public:
  using result_type = std::uint64_t;
  explicit Rng(std::uint64_t seed) : key_(seed) {}
  static constexpr result_type min() { return 0; }
  static constexpr result_type max() { return ~result_type{0}; }
  result_type operator()();
  /// Uniform in [0, bound); bound > 0. Without bias (rejection).
  std::uint64_t below(std::uint64_t bound);
  /// Uniform in [0, 1), 53 bits.
  double unit();

 private:
  std::uint64_t key_;
  std::uint64_t index_ = 0;
};

}  // namespace muster
