// What one value and one step of a chain become where products are of bfloat16 (Products::kBfloat16
// in ops.h); the same on every device.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/on_device.h"

namespace muster::kernels::cpu {

/// To the nearest bfloat16, ties to even, denormals to zero of their sign, NaNs stay NaNs: the
/// upper half of a float's bits.
MUSTER_ON_DEVICE inline std::uint32_t round_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return (bits >> 16) | 0x40U;
  if (magnitude < 0x00800000U) return (bits >> 16) & 0x8000U;
  return (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
}

/// fma(a, b, acc), flushed. A rounded result equal to the least normal number may come from below:
/// there the same sum, 2^64 times as great, tells where it would lie with more exponents. Both
/// factors are below 2^26 then: neither overflows.
MUSTER_ON_DEVICE inline float bfloat16_step(float a, float b, float acc) {
  constexpr float kLeast = 0x1p-126F;
  const float sum = std::fma(a, b, acc);
  const float magnitude = std::fabs(sum);
  if (!(magnitude <= kLeast)) return sum;
  if (magnitude == kLeast &&
      std::fabs(std::fma(a * 0x1p32F, b * 0x1p32F, acc * 0x1p64F)) >= kLeast * 0x1p64F) {
    return sum;
  }
  return std::copysign(0.0F, sum);
}

}  // namespace muster::kernels::cpu
