// cos in double precision over the whole range, from exact integer arithmetic, additions,
// multiplications and fma alone.
#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/ops.h"

namespace muster::kernels::cpu {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr double kQuarterPi = 0x1.921fb54442d18p-1;
constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
constexpr double kHalfPiLow = 0x1.1a62633145c07p-54;

/// The first 1,280 binary digits of 2 / pi.
constexpr std::uint64_t kTwoOverPi[20] = {
    0xA2F9836E4E441529, 0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484,
    0xE99C7026B45F7E41, 0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7, 0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, 0x56033046FC7B6BAB, 0xF0CFBC209AF4361D};

/// |x| = quadrant pi/2 + high + low with |high| <= pi/4.
struct Angle {
  unsigned quadrant;
  double high;
  double low;
};

/// 64 digits of 2/pi, the first `skip` digits after the point left out; before the point are zeros.
std::uint64_t digits(int skip) {
  if (skip < 0) return skip <= -64 ? 0 : kTwoOverPi[0] >> -skip;
  const int word = skip / 64;
  const int bit = skip % 64;
  if (bit == 0) return kTwoOverPi[word];
  return (kTwoOverPi[word] << bit) | (kTwoOverPi[word + 1] >> (64 - bit));
}

double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(exponent + 1023) << 52);
}

/// Payne and Hanek's reduction: of the product x * 2/pi only what is below 4 matters, so the digits
/// of 2/pi that make multiples of 4 are skipped and the product is exact to 2^-137.
Angle reduce(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const std::uint64_t mantissa = (bits & 0xFFFFFFFFFFFFFULL) | 0x10000000000000ULL;
  const int exponent = static_cast<int>(bits >> 52) - 1075;
  const int skip = exponent - 2;
  const Wide p0 = Wide{mantissa} * digits(skip + 128);
  const Wide p1 = Wide{mantissa} * digits(skip + 64) + static_cast<std::uint64_t>(p0 >> 64);
  const std::uint64_t top = mantissa * digits(skip) + static_cast<std::uint64_t>(p1 >> 64);
  const auto middle = static_cast<std::uint64_t>(p1);
  const auto bottom = static_cast<std::uint64_t>(p0);
  auto quadrant = static_cast<unsigned>(top >> 62);
  // The fraction of a quadrant as 128 digits, and its distance from the nearer end.
  Wide fraction = (Wide{top << 2 | middle >> 62} << 64) | (middle << 2 | bottom >> 62);
  Wide below = Wide{bottom << 2} << 64;
  const bool upper = (fraction >> 127) != 0;
  if (upper) {
    ++quadrant;
    below = ~below + 1;
    fraction = ~fraction + (below == 0 ? 1 : 0);
  }
  int zeros = 0;
  while ((fraction >> 127) == 0) {
    fraction = (fraction << 1) | (below >> 127);
    below <<= 1;
    ++zeros;
  }
  const auto high_digits = static_cast<std::uint64_t>(fraction >> 75);
  const auto low_digits = static_cast<std::uint64_t>(fraction >> 11);
  const double high = static_cast<double>(high_digits) * power_of_two(-53 - zeros);
  const double low = static_cast<double>(low_digits) * power_of_two(-117 - zeros);
  const double value = high * kHalfPiHigh;
  const double rest =
      std::fma(high, kHalfPiHigh, -value) + std::fma(high, kHalfPiLow, low * kHalfPiHigh);
  return {quadrant & 3, upper ? -value : value, upper ? -rest : rest};
}

/// Taylor polynomials for |x| <= pi/4, the next term below 2^-60 of the value.
double sin_small(double x, double low) {
  const double z = x * x;
  double p = 1.0 / 355687428096000.0;
  for (const double c : {-1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
                         1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0}) {
    p = std::fma(p, z, c);
  }
  return x + std::fma(z * x, p, low * std::fma(-0.5, z, 1.0));
}

double cos_small(double x, double low) {
  const double z = x * x;
  double q = 1.0 / -6402373705728000.0;
  for (const double c : {1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0,
                         -1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0}) {
    q = std::fma(q, z, c);
  }
  const double half = 0.5 * z;
  const double head = 1.0 - half;
  return head + (((1.0 - head) - half) + std::fma(z * z, q, -x * low));
}

double cos_of(const Angle& angle) {
  const unsigned quadrant = (angle.quadrant + 1) & 3;
  const double value =
      (quadrant & 1) != 0 ? cos_small(angle.high, angle.low) : sin_small(angle.high, angle.low);
  return (quadrant & 2) != 0 ? -value : value;
}

}  // namespace

double cos_f64(double x) {
  const double size = x < 0.0 ? -x : x;
  if (!(size <= 0x1.fffffffffffffp1023)) return x - x;
  return cos_of(size <= kQuarterPi ? Angle{0, size, 0.0} : reduce(size));
}

}  // namespace muster::kernels::cpu
