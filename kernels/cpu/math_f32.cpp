// Single precision: exp has its own vector form (exp_f32.h); the others are computed in double and
// rounded once.
#include <bit>
#include <cstdint>

#include "kernels/cpu/exp_f32.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

/// With the sign of x; size >= 0.
float signed_like(float x, double size) {
  const auto sign = std::bit_cast<std::uint32_t>(x) & 0x80000000U;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(static_cast<float>(size)) | sign);
}

template <std::size_t n>
double polynomial(const double (&coefficients)[n], double x) {
  double value = coefficients[n - 1];
  for (std::size_t i = n - 1; i > 0; --i) value = std::fma(value, x, coefficients[i - 1]);
  return value;
}

// Chebyshev interpolations, rewritten in powers of the distance from the middle of their interval;
// each is within 2^-50 of erf. Below 1: erf(x) / x in x^2.
constexpr double kErf0[] = {0x1.ee51eb23cb7eap-1,   -0x1.1fd1629215291p-2,  0x1.454368017b06fp-4,
                            -0x1.2b902b7b011d0p-6,  0x1.c82aa249c3223p-9,   -0x1.26399238f32c3p-11,
                            0x1.4866390b67ce6p-14,  -0x1.429d6d2b4329ep-17, 0x1.1ad539dbf0e16p-20,
                            -0x1.c1daa88f3ac1ap-24, 0x1.43f6d0dee7032p-27};
constexpr double kErf1[] = {
    0x1.eea5557137adap-1,  0x1.e723726b824b3p-4,  -0x1.6d5a95d09eb83p-3,  0x1.1c2a02beb6104p-3,
    -0x1.6d5a95d4920b8p-5, -0x1.e72372685221dp-7, 0x1.3ca3d828b5753p-6,   -0x1.36d73b2e83ef0p-8,
    -0x1.35aeca7825affp-9, 0x1.c0383ebad4c2fp-10, -0x1.8530ed07e4b3ep-14, -0x1.0ad5c2d0064cfp-12,
    0x1.4361f20695e8ep-14, 0x1.2f4688f19689ep-16, -0x1.a77e9dd106903p-17, 0x1.34de7be035905p-22};
constexpr double kErf2[] = {
    0x1.ffcaa8f4c9beap-1,   0x1.1d83170fbf6e4p-9,   -0x1.64e3dcd3a4cffp-8, 0x1.119da0c46d88bp-7,
    -0x1.1a89b97ea3b53p-7,  0x1.90e812837e74bp-8,   -0x1.6ecdbe8ab46a0p-9, 0x1.1c610c476cacfp-11,
    0x1.1154b0e0462adp-12,  -0x1.067187e5144a7p-12, 0x1.4a92f027d6bfep-14, 0x1.58dd0075dcd00p-18,
    -0x1.daa425e761644p-17, 0x1.3a395e6a0ac6dp-18,  0x1.74635ffe39654p-22, -0x1.4d44bab47a9d1p-21};
constexpr double kErf3[] = {
    0x1.ffffe710d565ep-1,   0x1.6a597219a8b85p-18,  -0x1.3d0e43d70cf42p-16, 0x1.62ccea63ec5dap-15,
    -0x1.1c07720e3fe19p-14, 0x1.586bafc441994p-14,  -0x1.4615414a08ecfp-14, 0x1.e827fc58e8002p-15,
    -0x1.1f62d3ce576c5p-15, 0x1.0134fae85086ap-16,  -0x1.37811cd545801p-18, 0x1.dddb4d7805a03p-22,
    0x1.e0532ff397fe4p-22,  -0x1.459f5261ef7a8p-22, 0x1.67572b0a47f38p-24,  -0x1.eb4266f96455dp-30};

}  // namespace

float exp_f32(float x) { return exp_one(x); }

void exp_f32(const float* x, std::size_t n, float* out) { vectors().exp(x, n, out); }

float log_f32(float x) { return static_cast<float>(log_f64(static_cast<double>(x))); }

float tanh_f32(float x) {
  if (!(x == x)) return x + x;
  const double size = x < 0.0F ? -static_cast<double>(x) : static_cast<double>(x);
  if (size >= 10.0) return signed_like(x, 1.0);
  // The quotient below would lose as many digits as exp(2x) has zeros after its leading 1.
  if (size < 0x1p-10) return signed_like(x, size * (1.0 - size * size / 3.0));
  const double e = exp_f64(2.0 * size);
  return signed_like(x, (e - 1.0) / (e + 1.0));
}

float erf_f32(float x) {
  if (!(x == x)) return x + x;
  const double size = x < 0.0F ? -static_cast<double>(x) : static_cast<double>(x);
  if (size < 1.0) {
    const double value = size * polynomial(kErf0, size * size - 0.5);
    return signed_like(x, value < 0.0 ? -value : value);
  }
  if (size < 2.0) return signed_like(x, polynomial(kErf1, size - 1.5));
  if (size < 3.0) return signed_like(x, polynomial(kErf2, size - 2.5));
  if (size < 4.0) return signed_like(x, polynomial(kErf3, size - 3.5));
  return signed_like(x, 1.0);
}

}  // namespace muster::kernels::cpu
