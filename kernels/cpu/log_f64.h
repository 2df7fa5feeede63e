// log in double precision: the constants and the scalar form, from additions, multiplications,
// divisions and fma alone, so that its bits depend on no library and no machine.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/on_device.h"

namespace muster::kernels::cpu {
namespace f64 {

/// ln 2 in three parts; an exponent times one of the first two is exact.
inline constexpr double kLn2High = 0x1.62e42fefa2000p-1;
inline constexpr double kLn2Middle = 0x1.9ef35793c6000p-41;
inline constexpr double kLn2Low = 0x1.673007e5ed5e8p-81;

/// x = mantissa 2^exponent with sqrt(1/2) <= mantissa < sqrt(2), about. x positive and finite.
struct Split {
  double mantissa;
  double exponent;
};

MUSTER_ON_DEVICE inline Split split(double x) {
  double exponent = 0.0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54.0;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  auto biased = static_cast<std::int64_t>(bits >> 52);
  std::uint64_t fraction = bits & 0xFFFFFFFFFFFFFULL;
  if (fraction >= 0x6A09E667F3BCDULL) ++biased;  // at sqrt(2): halve
  const std::uint64_t top = fraction >= 0x6A09E667F3BCDULL ? 1022 : 1023;
  return {std::bit_cast<double>((top << 52) | fraction),
          exponent + static_cast<double>(biased - 1023)};
}

/// 1/(2i+first) sums: the tail of atanh(s)/s as a polynomial in z = s^2.
MUSTER_ON_DEVICE inline double atanh_tail(double z, int first) {
  double q = 1.0 / 27.0;
  for (int odd = 25; odd >= first; odd -= 2) q = std::fma(q, z, 1.0 / static_cast<double>(odd));
  return q;
}

}  // namespace f64

/// As log_f64 in ops.h.
MUSTER_ON_DEVICE inline double log_one(double x) {
  if (!(x == x)) return x + x;
  if (x < 0.0) return std::numeric_limits<double>::quiet_NaN();
  if (x == 0.0) return -std::numeric_limits<double>::infinity();
  if (x == std::numeric_limits<double>::infinity()) return x;
  const auto [m, k] = f64::split(x);
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  // log m = 2 s + s r with r = 2 (z / 3 + z^2 / 5 + ...), and 2 s = f - s f, which keeps the
  // rounding of s away from the leading term.
  const double r = 2.0 * z * f64::atanh_tail(z, 3);
  return std::fma(k, f64::kLn2High, f - (s * (f - r) - k * (f64::kLn2Middle + f64::kLn2Low)));
}

}  // namespace muster::kernels::cpu
