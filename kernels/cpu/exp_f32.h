// exp in single precision: the constants and the scalar form. The vector form (vector_kernels.cpp)
// does the same operations in the same order, so the two agree in every bit.
//
// exp(x) = 2^n exp(r), n = x / ln 2 rounded to nearest, |r| <= 0.347: the Taylor polynomial of
// degree 7 is off by less than 0.1 ulp there. 2^n is applied in two halves, so that results below
// the normal range are rounded once and those above it become infinite.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/on_device.h"

namespace muster::kernels::cpu {

inline constexpr float kExpLow = -104.0F;  // below: 0
inline constexpr float kExpHigh = 89.0F;   // above: infinity
inline constexpr float kLog2E = 0x1.715476p+0F;
inline constexpr float kLn2High = 0x1.62e43p-1F;
inline constexpr float kLn2Low = -0x1.05c610p-29F;
/// Adding it rounds to an integer, which then stands in the low bits of the sum.
inline constexpr float kRoundMagic = 0x1.8p23F;
inline constexpr std::int32_t kRoundMagicBits = 0x4B400000;
inline constexpr float kExpC7 = 1.0F / 5040.0F;
inline constexpr float kExpC6 = 1.0F / 720.0F;
inline constexpr float kExpC5 = 1.0F / 120.0F;
inline constexpr float kExpC4 = 1.0F / 24.0F;
inline constexpr float kExpC3 = 1.0F / 6.0F;
inline constexpr float kExpC2 = 0.5F;

MUSTER_ON_DEVICE inline float exp_one(float x) {
  if (!(x == x)) return x + x;
  float clamped = x < kExpLow ? kExpLow : x;
  clamped = clamped > kExpHigh ? kExpHigh : clamped;
  const float shifted = std::fma(clamped, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  float r = std::fma(-n, kLn2High, clamped);
  r = std::fma(-n, kLn2Low, r);
  float p = std::fma(kExpC7, r, kExpC6);
  p = std::fma(p, r, kExpC5);
  p = std::fma(p, r, kExpC4);
  p = std::fma(p, r, kExpC3);
  p = std::fma(p, r, kExpC2);
  p = std::fma(p, r, 1.0F);
  p = std::fma(p, r, 1.0F);
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - kRoundMagicBits;
  const std::int32_t half = exponent >> 1;
  const float scale1 = std::bit_cast<float>((half + 127) << 23);
  const float scale2 = std::bit_cast<float>((exponent - half + 127) << 23);
  return (p * scale1) * scale2;
}

}  // namespace muster::kernels::cpu
