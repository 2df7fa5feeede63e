// exp, log and pow in double precision from additions, multiplications, divisions and fma alone, so
// that their bits depend on no library and no machine. pow carries its logarithm in two doubles.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/cpu/log_f64.h"
#include "kernels/ops.h"

namespace muster::kernels::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLog2E = 0x1.71547652b82fep+0;
constexpr double kRoundMagic = 0x1.8p52;

/// A value and what rounding took from it.
struct Two {
  double high;
  double low;
};

/// a + b exactly; |a| >= |b| or a = 0.
Two fast_sum(double a, double b) {
  const double high = a + b;
  return {high, b - (high - a)};
}

Two product(double a, double b) {
  const double high = a * b;
  return {high, std::fma(a, b, -high)};
}

double power_of_two(std::int64_t exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// exp(x + low) for -746 <= x <= 711 and |low| far below an ulp of 1. Taylor polynomial of degree
/// 13 for |r| <= 0.347: off by 2^-57. The power of two is applied in two halves, so that results
/// below the normal range are rounded once.
double exp_two(double x, double low) {
  const double n = std::fma(x, kLog2E, kRoundMagic) - kRoundMagic;
  const double high = std::fma(-n, f64::kLn2High, x);
  const double middle = n * f64::kLn2Middle;
  const double r = high - middle;
  const double rest = std::fma(-n, f64::kLn2Low, ((high - r) - middle) + low);
  double q = 1.0 / 6227020800.0;
  for (const double c :
       {1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0, 1.0 / 362880.0, 1.0 / 40320.0,
        1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5}) {
    q = std::fma(q, r, c);
  }
  // exp(r + rest) = exp(r) + rest exp(r), the last from what is known of exp(r) - 1.
  const double grown = std::fma(rest, std::fma(r * r, q, r), rest);
  const double value = 1.0 + (r + std::fma(r * r, q, grown));
  const auto exponent = static_cast<std::int64_t>(n);
  const std::int64_t half = exponent >> 1;
  return (value * power_of_two(half)) * power_of_two(exponent - half);
}

/// log(x) to about 2^-65 of its value: 2 atanh(s) with s = (m - 1) / (m + 1).
Two log_two(double x) {
  const auto [m, k] = f64::split(x);
  const double f = m - 1.0;
  const Two u = fast_sum(m > 1.0 ? m : 1.0, m > 1.0 ? 1.0 : m);
  const double s = f / u.high;
  const double s_low = (std::fma(-s, u.high, f) - s * u.low) / u.high;
  Two z = product(s, s);
  z.low = std::fma(2.0 * s, s_low, z.low);
  // t = z / 3 + z^2 / 5 + ..., the first term in two doubles.
  constexpr double kThirdLow = 0x1.5555555555555p-56;
  const Two q = fast_sum(1.0 / 3.0, z.high * f64::atanh_tail(z.high, 5));
  const double q_low = q.low + kThirdLow;
  Two t = product(z.high, q.high);
  t.low += std::fma(z.high, q_low, z.low * q.high);
  Two tail = product(2.0 * s, t.high);
  tail.low += std::fma(2.0 * s, t.low, 2.0 * s_low * t.high);
  Two log_m = fast_sum(2.0 * s, tail.high);
  log_m.low += tail.low + 2.0 * s_low;
  const Two high = fast_sum(k * f64::kLn2High, log_m.high);
  const double low = high.low + (log_m.low + std::fma(k, f64::kLn2Low, k * f64::kLn2Middle));
  return fast_sum(high.high, low);
}

enum class Kind { kFraction, kOdd, kEven };

Kind kind_of(double y) {
  const double size = y < 0.0 ? -y : y;
  if (size >= 0x1p53) return Kind::kEven;
  const auto whole = static_cast<std::int64_t>(size);
  if (static_cast<double>(whole) != size) return Kind::kFraction;
  return (whole & 1) != 0 ? Kind::kOdd : Kind::kEven;
}

/// x^y for x > 0, either possibly infinite, x not 1, y not 0, no NaN.
double pow_positive(double x, double y) {
  if (x == 0.0 || x == kInfinity || y == kInfinity || y == -kInfinity) {
    return (x > 1.0) == (y > 0.0) ? kInfinity : 0.0;
  }
  const Two log_x = log_two(x);
  const Two p = product(y, log_x.high);
  if (p.high > 711.0) return kInfinity;
  if (p.high < -746.0) return 0.0;
  return exp_two(p.high, std::fma(y, log_x.low, p.low));
}

}  // namespace

double exp_f64(double x) {
  if (!(x == x)) return x + x;
  if (x > 711.0) return kInfinity;
  if (x < -746.0) return 0.0;
  return exp_two(x, 0.0);
}

double log_f64(double x) { return log_one(x); }

double pow_f64(double x, double y) {
  if (x == 1.0 || y == 0.0) return 1.0;
  if (!(x == x) || !(y == y)) return x + y;
  const bool negative = std::bit_cast<std::int64_t>(x) < 0;
  const double size = negative ? -x : x;
  const Kind kind = kind_of(y);
  if (negative && kind == Kind::kFraction && size != 0.0 && size != kInfinity) return kNaN;
  const double value = size == 1.0 ? 1.0 : pow_positive(size, y);
  return negative && kind == Kind::kOdd ? -value : value;
}

}  // namespace muster::kernels::cpu
