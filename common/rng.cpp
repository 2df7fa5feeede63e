#include "common/rng.h"

#include "common/check.h"

namespace muster {

std::uint32_t random_bits(std::uint64_t key, RngStream stream, std::uint32_t sub,
                          std::uint64_t index) {
  const std::uint64_t block = index / 4;
  return philox4x32(
      key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), sub,
            static_cast<std::uint32_t>(stream)})[index % 4];
}

float random_unit(std::uint64_t key, RngStream stream, std::uint32_t sub, std::uint64_t index) {
  return static_cast<float>(random_bits(key, stream, sub, index) >> 8) * 0x1.0p-24f;
}

Rng::result_type Rng::operator()() {
  const std::uint64_t index = index_++;
  const auto block = philox4x32(
      key_, {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), 0, 0});
  return std::uint64_t{block[0]} | std::uint64_t{block[1]} << 32;
}

std::uint64_t Rng::below(std::uint64_t bound) {
  MUSTER_CHECK(bound > 0);
  const std::uint64_t limit = max() - max() % bound;
  for (;;) {
    const std::uint64_t bits = (*this)();
    if (bits < limit) return bits % bound;
  }
}

double Rng::unit() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }

}  // namespace muster
