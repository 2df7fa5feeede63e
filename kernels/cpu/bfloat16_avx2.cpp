// Products of bfloat16 operands by AVX2.
#if defined(__x86_64__)
#include <immintrin.h>

#include <bit>

#include "kernels/cpu/bfloat16.h"

#define MUSTER_TARGET __attribute__((target("avx2,fma")))
#define MUSTER_INLINE MUSTER_TARGET __attribute__((always_inline)) inline

namespace muster::kernels::cpu {
namespace {

using V = __m256;
using I = __m256i;
constexpr std::size_t kVector = 8;
constexpr std::size_t kTileRows = 4;
constexpr std::size_t kVectorsMax = 2;

MUSTER_INLINE V zero() { return _mm256_setzero_ps(); }
MUSTER_INLINE V load(const float* from) { return _mm256_loadu_ps(from); }
MUSTER_INLINE void store(V value, float* to) { _mm256_storeu_ps(to, value); }
MUSTER_INLINE I words(const Pair* from) {
  return _mm256_loadu_si256(reinterpret_cast<const I*>(from));
}
MUSTER_INLINE V all(Pair bits) { return _mm256_set1_ps(std::bit_cast<float>(bits)); }
MUSTER_INLINE V high(I pairs) {
  return _mm256_castsi256_ps(
      _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
}
MUSTER_INLINE V low(I pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
MUSTER_INLINE V fused(V a, V b, V sum) { return _mm256_fmadd_ps(a, b, sum); }
MUSTER_INLINE I bits(const float* from) { return _mm256_castps_si256(_mm256_loadu_ps(from)); }

#include "kernels/cpu/bfloat16_fused-inl.h"

/// round_bfloat16 of eight floats, each in the low half of its lane.
MUSTER_INLINE I rounded(I value) {
  const I magnitude = _mm256_and_si256(value, _mm256_set1_epi32(0x7FFFFFFF));
  const I top = _mm256_srli_epi32(value, 16);
  const I odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const I near = _mm256_add_epi32(_mm256_add_epi32(value, _mm256_set1_epi32(0x7FFF)), odd);
  const I nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  const I tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
  I result = _mm256_srli_epi32(near, 16);
  result = _mm256_blendv_epi8(result, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);
  return _mm256_blendv_epi8(result, _mm256_and_si256(top, _mm256_set1_epi32(0x8000)), tiny);
}

}  // namespace

MUSTER_TARGET void avx2::pack_along(const float* from, std::size_t steps, Pair fill, Pair* out) {
  const I evens = _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6);
  std::size_t k = 0;
  for (; k + kVector <= steps; k += kVector) {
    const I each = rounded(bits(from + k));
    // In every 64 bits: the second in the low half of its pair, the first in the high one.
    const I joined = _mm256_or_si256(_mm256_slli_epi64(each, 16), _mm256_srli_epi64(each, 32));
    const I packed = _mm256_permutevar8x32_epi32(joined, evens);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + k / 2), _mm256_castsi256_si128(packed));
  }
  kScalarPairs.pack_along(from + k, steps - k, fill, out + k / 2);
}

MUSTER_TARGET void avx2::pack_across(const float* first, const float* second, std::size_t n,
                                     Pair fill, Pair* out) {
  std::size_t j = 0;
  for (; j + kVector <= n; j += kVector) {
    const I low =
        second != nullptr ? rounded(bits(second + j)) : _mm256_set1_epi32(static_cast<int>(fill));
    const I pair = _mm256_or_si256(_mm256_slli_epi32(rounded(bits(first + j)), 16), low);
    _mm256_storeu_si256(reinterpret_cast<I*>(out + j), pair);
  }
  kScalarPairs.pack_across(first + j, second != nullptr ? second + j : nullptr, n - j, fill,
                           out + j);
}

const PairTable kAvx2Pairs = {kTileRows,
                              kVector,
                              kVectorsMax,
                              kLeftWords,
                              {flushing<1, true>, flushing<2, true>, nullptr},
                              {flushing<1, false>, flushing<2, false>, nullptr},
                              avx2::pack_along,
                              avx2::pack_across};

}  // namespace muster::kernels::cpu
#endif
