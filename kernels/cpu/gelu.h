// GELU: the constants and the scalar form, which is the one of a GPU, too. The vector form
// (vector_layers.cpp) does the same operations in the same order.
#pragma once

#include <cmath>

#include "kernels/cpu/exp_f32.h"

namespace muster::kernels::cpu {

inline constexpr float kGeluKappa = 0x1.988454p-1F;  // sqrt(2 / pi)
inline constexpr float kGeluCubic = 0.044715F;
inline constexpr float kGeluSlope = 3.0F * kGeluCubic;

/// tanh(kappa * (x + 0.044715 x^3)), s = x * x.
MUSTER_ON_DEVICE inline float gelu_tanh(float x, float s) {
  const float u = kGeluKappa * std::fma(kGeluCubic * s, x, x);
  const float e = exp_one(2.0F * u);
  return 1.0F - 2.0F / (e + 1.0F);
}

MUSTER_ON_DEVICE inline float gelu_one(float x) {
  const float t = gelu_tanh(x, x * x);
  const float h = 0.5F * x;
  return std::fma(h, t, h);
}

MUSTER_ON_DEVICE inline float gelu_slope_one(float x) {
  const float s = x * x;
  const float t = gelu_tanh(x, s);
  const float h = 0.5F * x;
  const float w = std::fma(-t, t, 1.0F);
  const float du = kGeluKappa * std::fma(kGeluSlope, s, 1.0F);
  return std::fma(h * w, du, std::fma(0.5F, t, 0.5F));
}

}  // namespace muster::kernels::cpu
