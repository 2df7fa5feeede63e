// Products of bfloat16 operands by NEON. The processor can flush results below the least normal
// number, but judges them before it rounds: what rounds up to that number is gone, too. It says
// when it has flushed anything, and such a tile is computed once more with each step looked at.
// (ARM's own instructions for bfloat16 round elsewhere and cannot give these bits.)
#if defined(__aarch64__)
#include <arm_neon.h>

#include <bit>

#include "kernels/cpu/bfloat16.h"

#define MUSTER_TARGET
#define MUSTER_INLINE __attribute__((always_inline)) inline

namespace muster::kernels::cpu {
namespace {

using V = float32x4_t;
using I = uint32x4_t;
constexpr std::size_t kVector = 4;
constexpr std::size_t kTileRows = 8;
constexpr std::size_t kVectorsMax = 2;

MUSTER_INLINE V zero() { return vdupq_n_f32(0.0F); }
MUSTER_INLINE V load(const float* from) { return vld1q_f32(from); }
MUSTER_INLINE void store(V value, float* to) { vst1q_f32(to, value); }
MUSTER_INLINE I words(const Pair* from) { return vld1q_u32(from); }
MUSTER_INLINE V all(Pair bits) { return vdupq_n_f32(std::bit_cast<float>(bits)); }
MUSTER_INLINE V high(I pairs) {
  return vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xFFFF0000U)));
}
MUSTER_INLINE V low(I pairs) { return vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16)); }
MUSTER_INLINE V fused(V a, V b, V sum) { return vfmaq_f32(sum, a, b); }

#include "kernels/cpu/bfloat16_fused-inl.h"

constexpr std::uint64_t kFlushToZero = 1U << 24;  // of FPCR
constexpr std::uint64_t kUnderflow = 1U << 3;     // of FPSR, where it stays once it is set

std::uint64_t control() {
  std::uint64_t value;
  asm volatile("mrs %0, fpcr" : "=r"(value)::"memory");
  return value;
}
void set_control(std::uint64_t value) { asm volatile("msr fpcr, %0" ::"r"(value) : "memory"); }
std::uint64_t status() {
  std::uint64_t value;
  asm volatile("mrs %0, fpsr" : "=r"(value)::"memory");
  return value;
}
void set_status(std::uint64_t value) { asm volatile("msr fpsr, %0" ::"r"(value) : "memory"); }

/// bfloat16_step in each lane.
MUSTER_INLINE V exact_step(V a, V b, V acc) {
  const V least = vdupq_n_f32(0x1p-126F);
  const V sum = fused(a, b, acc);
  const I near = vcleq_f32(vabsq_f32(sum), least);
  if (vmaxvq_u32(near) == 0) return sum;
  const V scaled =
      fused(vmulq_n_f32(a, 0x1p32F), vmulq_n_f32(b, 0x1p32F), vmulq_n_f32(acc, 0x1p64F));
  const I stays = vandq_u32(vceqq_f32(vabsq_f32(sum), least),
                            vcgeq_f32(vabsq_f32(scaled), vdupq_n_f32(0x1p-62F)));
  const I sign = vandq_u32(vreinterpretq_u32_f32(sum), vdupq_n_u32(0x80000000U));
  return vbslq_f32(vbicq_u32(near, stays), vreinterpretq_f32_u32(sign), sum);
}

/// The tile that begins with `start` where it goes on, by exact steps alone.
template <std::size_t kWidth, bool kByRows>
void sum_exactly(const PairTile& tile, const float* start) {
  for (std::size_t i = 0; i < kTileRows; ++i) {
    const std::size_t row = i < tile.rows ? i : tile.rows - 1;
    for (std::size_t j = 0; j < kWidth; ++j) {
      V sum = tile.goes_on ? load(start + (i * kWidth + j) * kVector) : zero();
      for (std::size_t p = 0; p < tile.pairs; ++p) {
        const P a =
            left(kByRows ? tile.a + row * tile.a_stride + p : tile.a + p * tile.a_stride + i,
                 tile.a_low);
        const P b = right(tile.b + (p * kWidth + j) * kVector);
        sum = exact_step(a.low, b.low, exact_step(a.high, b.high, sum));
      }
      store(sum, tile.sums + i * tile.sums_stride + j * kVector);
    }
  }
}

template <std::size_t kWidth, bool kByRows>
void flushed(const PairTile& tile) {
  float start[kTileRows * kWidth * kVector];
  if (tile.goes_on) {
    for (std::size_t i = 0; i < kTileRows; ++i) {
      for (std::size_t j = 0; j < kWidth * kVector; j += kVector) {
        store(load(tile.sums + i * tile.sums_stride + j), start + i * kWidth * kVector + j);
      }
    }
  }
  const std::uint64_t before = status();
  if ((before & kUnderflow) != 0) set_status(before & ~kUnderflow);
  const std::uint64_t mode = control();
  set_control(mode | kFlushToZero);
  sum_tile<kWidth, kByRows>(tile);
  set_control(mode);
  if ((status() & kUnderflow) != 0) sum_exactly<kWidth, kByRows>(tile, start);
}

/// round_bfloat16 of four floats, each in the low half of its lane.
MUSTER_INLINE I rounded(const float* from) {
  const I value = vreinterpretq_u32_f32(vld1q_f32(from));
  const I magnitude = vandq_u32(value, vdupq_n_u32(0x7FFFFFFFU));
  const I top = vshrq_n_u32(value, 16);
  const I odd = vandq_u32(top, vdupq_n_u32(1));
  const I near = vshrq_n_u32(vaddq_u32(vaddq_u32(value, vdupq_n_u32(0x7FFFU)), odd), 16);
  const I nan = vcgtq_u32(magnitude, vdupq_n_u32(0x7F800000U));
  const I tiny = vcltq_u32(magnitude, vdupq_n_u32(0x00800000U));
  const I result = vbslq_u32(nan, vorrq_u32(top, vdupq_n_u32(0x40U)), near);
  return vbslq_u32(tiny, vandq_u32(top, vdupq_n_u32(0x8000U)), result);
}

void pack_along(const float* from, std::size_t steps, Pair fill, Pair* out) {
  std::size_t k = 0;
  for (; k + 2 * kVector <= steps; k += 2 * kVector) {
    const I first = rounded(from + k), second = rounded(from + k + kVector);
    const I evens = vuzp1q_u32(first, second), odds = vuzp2q_u32(first, second);
    vst1q_u32(out + k / 2, vorrq_u32(vshlq_n_u32(evens, 16), odds));
  }
  kScalarPairs.pack_along(from + k, steps - k, fill, out + k / 2);
}

void pack_across(const float* first, const float* second, std::size_t n, Pair fill, Pair* out) {
  std::size_t j = 0;
  for (; j + kVector <= n; j += kVector) {
    const I later = second != nullptr ? rounded(second + j) : vdupq_n_u32(fill);
    vst1q_u32(out + j, vorrq_u32(vshlq_n_u32(rounded(first + j), 16), later));
  }
  kScalarPairs.pack_across(first + j, second != nullptr ? second + j : nullptr, n - j, fill,
                           out + j);
}

}  // namespace

const PairTable kNeonPairs = {kTileRows,
                              kVector,
                              kVectorsMax,
                              kLeftWords,
                              {flushed<1, true>, flushed<2, true>, nullptr},
                              {flushed<1, false>, flushed<2, false>, nullptr},
                              pack_along,
                              pack_across};

}  // namespace muster::kernels::cpu
#endif
