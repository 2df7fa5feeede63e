// What a dropout makes of one value, of a layer or of attention's weights; the same on every
// device.
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

/// Weights of attention take half a word each: those of a position begin a block.
inline constexpr std::size_t kWeightsOfBlock = 8;

/// The block where the weights of position i of a head begin.
constexpr std::uint64_t first_weights(const cpu::WeightDrop& by, std::size_t T, std::size_t head,
                                      std::size_t i) {
  const std::uint64_t blocks = (T + kWeightsOfBlock - 1) / kWeightsOfBlock;
  return ((by.first_head + head) * T + i) * blocks;
}

constexpr std::array<std::uint32_t, 4> weight_words(const cpu::WeightDrop& by, std::size_t row,
                                                    std::uint64_t block) {
  return philox4x32(by.key,
                    {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                     by.first_row + static_cast<std::uint32_t>(row), kDropoutStream});
}

/// Of weight n of a block, below kWeightsOfBlock.
constexpr bool weight_stays(const cpu::WeightDrop& by, const std::array<std::uint32_t, 4>& words,
                            std::size_t n) {
  const std::uint32_t half = words[n / 2] >> (n % 2 * 16) & 0xFFFFu;
  return !(static_cast<float>(half) * 0x1p-16F < by.share);
}

/// A weight, or its gradient.
constexpr float dropped_weight(const cpu::WeightDrop& by, bool stays, float value) {
  return stays ? value * by.scale : 0.0F;
}

}  // namespace muster::kernels
