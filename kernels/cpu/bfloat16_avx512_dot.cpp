// Products of bfloat16 operands by the instruction for them (AVX512-BF16): for each float the
// product of the high halves is added first, then that of the low ones, each sum rounded to nearest
// even and flushed, whatever the mode of the processor (seen to agree with AVX2 in that mode bit by
// bit).
#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/bfloat16.h"

#define MUSTER_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx2,fma")))
#define MUSTER_INLINE MUSTER_TARGET __attribute__((always_inline)) inline

namespace muster::kernels::cpu {
namespace {

using V = __m512;
using I = __m512i;
using P = __m512bh;
constexpr std::size_t kVector = 16;
constexpr std::size_t kTileRows = 8;
constexpr std::size_t kVectorsMax = 3;
constexpr std::size_t kLeftWords = 1;

MUSTER_INLINE V zero() { return _mm512_setzero_ps(); }
MUSTER_INLINE V load(const float* from) { return _mm512_loadu_ps(from); }
MUSTER_INLINE void store(V value, float* to) { _mm512_storeu_ps(to, value); }
MUSTER_INLINE P left(const Pair* at, std::size_t /*to_low*/) {
  return __builtin_bit_cast(P, _mm512_set1_epi32(static_cast<int>(*at)));
}
MUSTER_INLINE P right(const Pair* from) { return __builtin_bit_cast(P, _mm512_loadu_si512(from)); }
MUSTER_INLINE V step(P a, P b, V sum) { return _mm512_dpbf16_ps(sum, a, b); }

#include "kernels/cpu/bfloat16-inl.h"

/// The bfloat16 of each float in the low half of its lane.
MUSTER_INLINE I rounded(__mmask16 some, const float* from) {
  const __m256bh each = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(some, from));
  return _mm512_cvtepu16_epi32(__builtin_bit_cast(__m256i, each));
}

}  // namespace

MUSTER_TARGET void avx512bf16::pack_along(const float* from, std::size_t steps, Pair fill,
                                          Pair* out) {
  std::size_t k = 0;
  for (; k + 2 * kVector <= steps; k += 2 * kVector) {
    const P packed = _mm512_cvtne2ps_pbh(load(from + k + kVector), load(from + k));
    _mm512_storeu_si512(out + k / 2, _mm512_rol_epi32(__builtin_bit_cast(I, packed), 16));
  }
  kScalarPairs.pack_along(from + k, steps - k, fill, out + k / 2);
}

MUSTER_TARGET void avx512bf16::pack_across(const float* first, const float* second, std::size_t n,
                                           Pair fill, Pair* out) {
  for (std::size_t j = 0; j < n; j += kVector) {
    const __mmask16 some = n - j >= kVector ? 0xFFFF : static_cast<__mmask16>((1U << (n - j)) - 1U);
    const I low =
        second != nullptr ? rounded(some, second + j) : _mm512_set1_epi32(static_cast<int>(fill));
    const I pair = _mm512_or_si512(_mm512_slli_epi32(rounded(some, first + j), 16), low);
    _mm512_mask_storeu_epi32(out + j, some, pair);
  }
}

const PairTable kAvx512DotPairs = {kTileRows,
                                   kVector,
                                   kVectorsMax,
                                   kLeftWords,
                                   {sum_tile<1, true>, sum_tile<2, true>, sum_tile<3, true>},
                                   {sum_tile<1, false>, sum_tile<2, false>, sum_tile<3, false>},
                                   avx512bf16::pack_along,
                                   avx512bf16::pack_across};

}  // namespace muster::kernels::cpu
#endif
