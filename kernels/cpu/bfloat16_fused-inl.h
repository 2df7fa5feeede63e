// Tiles of bfloat16 products by two fused multiply-adds a pair, for a processor whose mode flushes
// denormals. Included by a file that has defined, all with MUSTER_TARGET and in its anonymous
// namespace: V (floats), I (as many words), kVector, kTileRows, kVectorsMax, zero, load, store,
// words, all, high and low (the halves of each pair as floats) and fused.
#pragma once

/// The two halves of each pair as floats.
struct P {
  V high, low;
};
constexpr std::size_t kLeftWords = 2;

MUSTER_INLINE P left(const Pair* at, std::size_t to_low) { return {all(at[0]), all(at[to_low])}; }
MUSTER_INLINE P right(const Pair* from) {
  const I pairs = words(from);
  return {high(pairs), low(pairs)};
}
MUSTER_INLINE V step(P a, P b, V sum) { return fused(a.low, b.low, fused(a.high, b.high, sum)); }

#include "kernels/cpu/bfloat16-inl.h"

#if defined(__x86_64__)
/// With results and operands below the least normal number taken as zero.
template <std::size_t kWidth, bool kByRows>
MUSTER_TARGET void flushing(const PairTile& tile) {
  constexpr unsigned kFlushToZero = 0x8000, kDenormalsAreZero = 0x0040;
  const unsigned mode = _mm_getcsr();
  _mm_setcsr(mode | kFlushToZero | kDenormalsAreZero);
  sum_tile<kWidth, kByRows>(tile);
  _mm_setcsr(mode);
}
#endif
