// What a dropout makes of one value; the same on every device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/philox.h"
#include "kernels/ops.h"

namespace muster::kernels {

/// Of the job's random numbers those for dropout (common/rng.h).
inline constexpr std::uint32_t kDropoutStream = 3;

/// The words of columns 4 x block to 4 x block + 3 of one row.
constexpr std::array<std::uint32_t, 4> drop_words(const cpu::Drop& by, std::size_t row,
                                                  std::size_t block) {
  const std::uint64_t at = block;
  return philox4x32(by.key, {static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32),
                             by.first_row + static_cast<std::uint32_t>(row), kDropoutStream});
}

constexpr float dropped(const cpu::Drop& by, std::uint32_t word, float value) {
  const float unit = static_cast<float>(word >> 8) * 0x1.0p-24F;
  return unit < by.share ? 0.0F : value * by.scale;
}

}  // namespace muster::kernels
