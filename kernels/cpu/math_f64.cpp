// exp, log and pow in double precision from additions, multiplications, divisions and fma alone, so
// that their bits depend on no library and no machine. pow carries its logarithm in two doubles.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/ops.h"

namespace muster::kernels::cpu {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kLog2E = 0x1.71547652b82fep+0;
/// ln 2 in three parts; an exponent times one of the first two is exact.
constexpr double kLn2High = 0x1.62e42fefa2000p-1;
constexpr double kLn2Middle = 0x1.9ef35793c6000p-41;
constexpr double kLn2Low = 0x1.673007e5ed5e8p-81;
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
  const double high = std::fma(-n, kLn2High, x);
  const double middle = n * kLn2Middle;
  const double r = high - middle;
  const double rest = std::fma(-n, kLn2Low, ((high - r) - middle) + low);
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

/// x = mantissa 2^exponent with sqrt(1/2) <= mantissa < sqrt(2), about. x positive and finite.
struct Split {
  double mantissa;
  double exponent;
};

Split split(double x) {
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
double atanh_tail(double z, int first) {
  double q = 1.0 / 27.0;
  for (int odd = 25; odd >= first; odd -= 2) q = std::fma(q, z, 1.0 / static_cast<double>(odd));
  return q;
}

/// log(x) to about 2^-65 of its value: 2 atanh(s) with s = (m - 1) / (m + 1).
Two log_two(double x) {
  const auto [m, k] = split(x);
  const double f = m - 1.0;
  const Two u = fast_sum(m > 1.0 ? m : 1.0, m > 1.0 ? 1.0 : m);
  const double s = f / u.high;
  const double s_low = (std::fma(-s, u.high, f) - s * u.low) / u.high;
  Two z = product(s, s);
  z.low = std::fma(2.0 * s, s_low, z.low);
  // t = z / 3 + z^2 / 5 + ..., the first term in two doubles.
  constexpr double kThirdLow = 0x1.5555555555555p-56;
  const Two q = fast_sum(1.0 / 3.0, z.high * atanh_tail(z.high, 5));
  const double q_low = q.low + kThirdLow;
  Two t = product(z.high, q.high);
  t.low += std::fma(z.high, q_low, z.low * q.high);
  Two tail = product(2.0 * s, t.high);
  tail.low += std::fma(2.0 * s, t.low, 2.0 * s_low * t.high);
  Two log_m = fast_sum(2.0 * s, tail.high);
  log_m.low += tail.low + 2.0 * s_low;
  const Two high = fast_sum(k * kLn2High, log_m.high);
  const double low = high.low + (log_m.low + std::fma(k, kLn2Low, k * kLn2Middle));
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

double log_f64(double x) {
  if (!(x == x)) return x + x;
  if (x < 0.0) return kNaN;
  if (x == 0.0) return -kInfinity;
  if (x == kInfinity) return x;
  const auto [m, k] = split(x);
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  // log m = 2 s + s r with r = 2 (z / 3 + z^2 / 5 + ...), and 2 s = f - s f, which keeps the
  // rounding of s away from the leading term.
  const double r = 2.0 * z * atanh_tail(z, 3);
  return std::fma(k, kLn2High, f - (s * (f - r) - k * (kLn2Middle + kLn2Low)));
}

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
