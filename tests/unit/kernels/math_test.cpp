// The own math functions beside the C library's, which is itself within one unit in the last place
// for double and is used in long double or double for the narrower type.
#include <cstdio>
#include <functional>

#include "doctest/doctest.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Distance from the true value in units of the last place of the type at that value.
template <typename T, typename Wide>
double ulps(T value, Wide truth) {
  const auto nearest = static_cast<T>(truth);
  if (std::isinf(nearest) || std::isinf(value)) {
    // One step beyond the greatest finite value counts as that step.
    return nearest == value ? 0.0 : (std::isinf(nearest) && std::isinf(value) ? 1e9 : 1.0);
  }
  int exponent = 0;
  std::frexp(nearest, &exponent);
  const int lowest = std::numeric_limits<T>::min_exponent;
  const int digits = std::numeric_limits<T>::digits;
  const Wide unit = std::ldexp(Wide{1}, (exponent < lowest ? lowest : exponent) - digits);
  return static_cast<double>(std::fabs((static_cast<Wide>(value) - truth) / unit));
}

void check_f32(const char* name, float (*own)(float), double (*truth)(double), double low,
               double high) {
  Random random(seed());
  double worst = 0.0;
  for (int i = 0; i < 200000; ++i) {
    const auto x = static_cast<float>(low + (high - low) * random.unit());
    worst = std::max(worst, ulps(own(x), truth(static_cast<double>(x))));
  }
  std::printf("%s on [%g, %g]: %.3f ulp\n", name, low, high, worst);
  CHECK(worst < 2.0);
}

void check_f64(const char* name, double (*own)(double), long double (*truth)(long double),
               double low, double high) {
  Random random(seed());
  double worst = 0.0;
  for (int i = 0; i < 100000; ++i) {
    const double x = low + (high - low) * random.unit();
    worst = std::max(worst, ulps(own(x), truth(static_cast<long double>(x))));
  }
  std::printf("%s on [%g, %g]: %.3f ulp\n", name, low, high, worst);
  CHECK(worst < 2.0);
}

/// Bit patterns at random: all magnitudes, denormals among them.
template <typename Function>
void check_patterns(const char* name, Function worst_of) {
  Random random(seed() + 7);
  double worst = 0.0;
  for (int i = 0; i < 100000; ++i) {
    const auto x = std::bit_cast<double>(random.bits());
    if (std::isfinite(x)) worst = std::max(worst, worst_of(x));
  }
  std::printf("%s on random bit patterns: %.3f ulp\n", name, worst);
  CHECK(worst < 2.0);
}

TEST_CASE("single precision functions are within two units in the last place") {
  check_f32("exp_f32", [](float x) { return cpu::exp_f32(x); }, std::exp, -104.0, 89.0);
  check_f32("exp_f32", [](float x) { return cpu::exp_f32(x); }, std::exp, -1.0, 1.0);
  check_f32("log_f32", cpu::log_f32, std::log, 1e-45, 4.0);
  check_f32("log_f32", cpu::log_f32, std::log, 1e-40, 3e38);
}

TEST_CASE("double precision functions are within two units in the last place") {
  check_f64("log_f64", cpu::log_f64, std::log, 1e-300, 3.0);
  check_f64("log_f64", cpu::log_f64, std::log, 0.99, 1.01);
  check_f64("log_f64", cpu::log_f64, std::log, 1.0, 1e300);
  check_f64("cos_f64", cpu::cos_f64, std::cos, -7.0, 7.0);
  check_f64("cos_f64", cpu::cos_f64, std::cos, 1.57079, 1.5708);
  check_patterns("log_f64", [](double x) {
    x = std::fabs(x);
    return x == 0.0 ? 0.0 : ulps(cpu::log_f64(x), std::log(static_cast<long double>(x)));
  });
  check_patterns("cos_f64", [](double x) {
    return ulps(cpu::cos_f64(x), std::cos(static_cast<long double>(x)));
  });
}

TEST_CASE("special values are those of IEEE 754") {
  CHECK(cpu::exp_f32(-kInfinite) == 0.0F);
  CHECK(cpu::exp_f32(kInfinite) == kInfinite);
  CHECK(std::isnan(cpu::exp_f32(std::nanf(""))));
  CHECK(cpu::exp_f32(-0.0F) == 1.0F);
  CHECK(cpu::log_f32(0.0F) == -kInfinite);
  CHECK(std::isnan(cpu::log_f32(-1.0F)));
  CHECK(cpu::log_f64(-0.0) == -kInfinity);
  CHECK(cpu::log_f64(kInfinity) == kInfinity);
  CHECK(cpu::log_f64(1.0) == 0.0);
  CHECK(std::isnan(cpu::log_f64(-kInfinity)));
  CHECK(std::isnan(cpu::cos_f64(kNaN)));
  CHECK(cpu::cos_f64(0.0) == 1.0);
}

TEST_CASE("exp over an array has the bits of exp of each, on every target") {
  Random random(seed());
  for (const std::size_t n : {1, 5, 16, 17, 100, 100003}) {
    Guarded<float> x(n), out(n);
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = i % 3 == 0 ? std::bit_cast<float>(static_cast<std::uint32_t>(random.bits()))
                        : 200.0F * random.value();
    }
    for (const cpu::Target target : targets()) {
      const Forced forced(target);
      cpu::exp_f32(x.data(), n, out.data());
      std::size_t different = 0;
      for (std::size_t i = 0; i < n; ++i)
        different += same_bits(out[i], cpu::exp_f32(x[i])) ? 0 : 1;
      CAPTURE(std::string(cpu::name_of(target)));
      CHECK(different == 0);
      CHECK(out.untouched());
    }
  }
}

/// FNV-1a over the bytes of a value.
template <typename T>
void mix(std::uint64_t& hash, T value) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001B3ULL;
}

TEST_CASE("the bits of the math functions are the same for every compiler and machine") {
  Random random(42);
  std::uint64_t singles = 0xCBF29CE484222325ULL, doubles = singles;
  for (int i = 0; i < 20000; ++i) {
    const float x = 12.0F * random.value();
    const double y = 1e4 * (random.unit() - 0.5);
    mix(singles, cpu::exp_f32(8.0F * x));
    mix(singles, cpu::log_f32(std::fabs(x)));
    mix(doubles, cpu::log_f64(std::fabs(y)));
    mix(doubles, cpu::cos_f64(y));
  }
  CHECK(singles == 17518404733553086353ULL);
  CHECK(doubles == 12474509310611034371ULL);
}

}  // namespace
}  // namespace muster::test
