// What loops over vectors share, per target: exp, and how many vectors make the virtual lanes of a
// reduction. Included once for each by the files that have such loops.
#if defined(MUSTER_KERNELS_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_KERNELS_LOOPS_INL_H_
#undef MUSTER_KERNELS_LOOPS_INL_H_
#else
#define MUSTER_KERNELS_LOOPS_INL_H_
#endif

#include "kernels/cpu/exp_f32.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/table.h"

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace muster::kernels::cpu::HWY_NAMESPACE {

/// Vectors that hold the lanes of a reduction.
inline constexpr std::size_t kParts = kLanes / kVector;

HWY_INLINE std::size_t least(std::size_t a, std::size_t b) { return a < b ? a : b; }

/// exp_one() of every lane.
HWY_INLINE V exp_of(V x) {
  const hn::RebindToSigned<Floats> integers;
  V clamped = hn::IfThenElse(hn::Lt(x, all(kExpLow)), all(kExpLow), x);
  clamped = hn::IfThenElse(hn::Gt(clamped, all(kExpHigh)), all(kExpHigh), clamped);
  const V shifted = fma(clamped, all(kLog2E), all(kRoundMagic));
  const V minus_n = hn::Sub(all(kRoundMagic), shifted);
  V r = fma(minus_n, all(kLn2High), clamped);
  r = fma(minus_n, all(kLn2Low), r);
  V p = fma(all(kExpC7), r, all(kExpC6));
  p = fma(p, r, all(kExpC5));
  p = fma(p, r, all(kExpC4));
  p = fma(p, r, all(kExpC3));
  p = fma(p, r, all(kExpC2));
  p = fma(p, r, all(1.0F));
  p = fma(p, r, all(1.0F));
  const auto exponent = hn::Sub(hn::BitCast(integers, shifted), hn::Set(integers, kRoundMagicBits));
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(integers, 127);
  const auto scale1 = hn::ShiftLeft<23>(hn::Add(half, bias));
  const auto scale2 = hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias));
  const V result =
      hn::Mul(hn::Mul(p, hn::BitCast(Floats(), scale1)), hn::BitCast(Floats(), scale2));
  return hn::IfThenElse(hn::Eq(x, x), result, add(x, x));
}

}  // namespace muster::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
