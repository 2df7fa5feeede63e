// The few vector operations that kernels use, per target. Included once for each by the files that
// have vector code; nothing else may name Highway's arithmetic.
//
// Left out on purpose: Min and Max (they leave NaN and zero order to the target) and the estimates
// of reciprocals. Every multiply-add goes through fma(), fused on each target compiled here.
#if defined(MUSTER_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MUSTER_KERNELS_SIMD_INL_H_
#undef MUSTER_KERNELS_SIMD_INL_H_
#else
#define MUSTER_KERNELS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#if HWY_TARGET != HWY_SCALAR
HWY_BEFORE_NAMESPACE();
namespace muster::kernels::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
using Floats = hn::FixedTag<float, 16>;
#elif HWY_TARGET == HWY_AVX2
using Floats = hn::FixedTag<float, 8>;
#else
using Floats = hn::FixedTag<float, 4>;
#endif
using V = hn::Vec<Floats>;
using M = hn::Mask<Floats>;
inline constexpr std::size_t kVector = hn::MaxLanes(Floats());

HWY_INLINE V zero() { return hn::Zero(Floats()); }
HWY_INLINE V all(float value) { return hn::Set(Floats(), value); }
HWY_INLINE V load(const float* from) { return hn::LoadU(Floats(), from); }
HWY_INLINE void store(V value, float* to) { hn::StoreU(value, Floats(), to); }
/// a * b + c, rounded once.
HWY_INLINE V fma(V a, V b, V c) { return hn::MulAdd(a, b, c); }
HWY_INLINE V add(V a, V b) { return hn::Add(a, b); }
HWY_INLINE M first(std::size_t n) { return hn::FirstN(Floats(), n); }

#if HWY_TARGET == HWY_NEON
// The machine has no masked access to memory, and Highway's stand-ins read and write back the lanes
// outside the mask: they may lie behind a buffer's end, or belong to another thread.

/// Lanes outside the mask are +0 and their memory is not touched. The mask is of first().
HWY_INLINE V load_first(M mask, const float* from) {
  if (hn::AllTrue(Floats(), mask)) return load(from);
  float lanes[kVector] = {};
  for (std::size_t i = 0; i < hn::CountTrue(Floats(), mask); ++i) lanes[i] = from[i];
  return load(lanes);
}
HWY_INLINE void store_first(M mask, V value, float* to) {
  if (hn::AllTrue(Floats(), mask)) return store(value, to);
  float lanes[kVector];
  store(value, lanes);
  for (std::size_t i = 0; i < hn::CountTrue(Floats(), mask); ++i) to[i] = lanes[i];
}
#else
/// Lanes outside the mask are +0 and their memory is not touched.
HWY_INLINE V load_first(M mask, const float* from) { return hn::MaskedLoad(mask, Floats(), from); }
HWY_INLINE void store_first(M mask, V value, float* to) {
  hn::BlendedStore(value, mask, Floats(), to);
}
#endif

/// value where condition > 0, else +0.
HWY_INLINE V where_positive(V condition, V value) {
  return hn::IfThenElseZero(hn::Gt(condition, zero()), value);
}

}  // namespace muster::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
