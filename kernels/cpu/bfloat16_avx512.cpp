// Products of bfloat16 operands by AVX-512: where the processor has no instruction for them, or one
// that takes longer than two fused multiply-adds (Intel's, see runnable_pairs()).
#if defined(__x86_64__)
#include <immintrin.h>

#include <bit>

#include "kernels/cpu/bfloat16.h"

#define MUSTER_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")))
#define MUSTER_INLINE MUSTER_TARGET __attribute__((always_inline)) inline

namespace muster::kernels::cpu {
namespace {

using V = __m512;
using I = __m512i;
constexpr std::size_t kVector = 16;
constexpr std::size_t kTileRows = 8;
constexpr std::size_t kVectorsMax = 3;

MUSTER_INLINE V zero() { return _mm512_setzero_ps(); }
MUSTER_INLINE V load(const float* from) { return _mm512_loadu_ps(from); }
MUSTER_INLINE void store(V value, float* to) { _mm512_storeu_ps(to, value); }
MUSTER_INLINE I words(const Pair* from) { return _mm512_loadu_si512(from); }
MUSTER_INLINE V all(Pair bits) { return _mm512_set1_ps(std::bit_cast<float>(bits)); }
MUSTER_INLINE V high(I pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}
MUSTER_INLINE V low(I pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
MUSTER_INLINE V fused(V a, V b, V sum) { return _mm512_fmadd_ps(a, b, sum); }

#include "kernels/cpu/bfloat16_fused-inl.h"

constexpr PairTable packed_by(decltype(PairTable::pack_along) along,
                              decltype(PairTable::pack_across) across) {
  return {kTileRows,
          kVector,
          kVectorsMax,
          kLeftWords,
          {flushing<1, true>, flushing<2, true>, flushing<3, true>},
          {flushing<1, false>, flushing<2, false>, flushing<3, false>},
          along,
          across};
}

}  // namespace

const PairTable kAvx512Pairs = packed_by(avx2::pack_along, avx2::pack_across);
const PairTable kAvx512ConvertedPairs = packed_by(avx512bf16::pack_along, avx512bf16::pack_across);

}  // namespace muster::kernels::cpu
#endif
