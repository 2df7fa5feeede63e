// The plain path of products of bfloat16 operands, which says what the others compute; and the
// choice between them.
#include <atomic>
#include <bit>

#include "kernels/cpu/bfloat16.h"

namespace muster::kernels::cpu {
namespace {

constexpr std::size_t kRows = 4;
constexpr std::size_t kColumns = 8;

float high(Pair pair) { return std::bit_cast<float>(pair & 0xFFFF0000U); }
float low(Pair pair) { return std::bit_cast<float>(pair << 16); }

template <bool kByRows>
void sum_tile(const PairTile& tile) {
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::size_t row = i < tile.rows ? i : tile.rows - 1;
    for (std::size_t j = 0; j < kColumns; ++j) {
      float& out = tile.sums[i * tile.sums_stride + j];
      float sum = tile.goes_on ? out : 0.0F;
      for (std::size_t p = 0; p < tile.pairs; ++p) {
        const Pair a = kByRows ? tile.a[row * tile.a_stride + p] : tile.a[p * tile.a_stride + i];
        const Pair b = tile.b[p * kColumns + j];
        sum = bfloat16_step(high(a), high(b), sum);
        sum = bfloat16_step(low(a), low(b), sum);
      }
      out = sum;
    }
  }
}

void pack_along(const float* from, std::size_t steps, Pair fill, Pair* out) {
  for (std::size_t p = 0; p < steps / 2; ++p) {
    out[p] = round_bfloat16(from[2 * p]) << 16 | round_bfloat16(from[2 * p + 1]);
  }
  if (steps % 2 != 0) out[steps / 2] = round_bfloat16(from[steps - 1]) << 16 | fill;
}

void pack_across(const float* first, const float* second, std::size_t n, Pair fill, Pair* out) {
  for (std::size_t j = 0; j < n; ++j) {
    out[j] =
        round_bfloat16(first[j]) << 16 | (second != nullptr ? round_bfloat16(second[j]) : fill);
  }
}

std::atomic<const PairTable*>& forced() {
  static std::atomic<const PairTable*> table{nullptr};
  return table;
}

}  // namespace

const PairTable kScalarPairs = {kRows,
                                kColumns,
                                1,
                                1,
                                {sum_tile<true>, nullptr, nullptr},
                                {sum_tile<false>, nullptr, nullptr},
                                pack_along,
                                pack_across};

std::span<const PairTable* const> runnable_pairs() {
#if defined(__x86_64__)
  // Intel's processors take four times as long for the one instruction as for a fused multiply-add
  // (Emerald Rapids), AMD's as long as for one (Zen 4).
  static const PairTable* const multiply_adds[] = {&kAvx512ConvertedPairs, &kAvx512DotPairs,
                                                   &kAvx512Pairs};
  static const PairTable* const dots[] = {&kAvx512DotPairs, &kAvx512ConvertedPairs, &kAvx512Pairs};
  static const PairTable* const neither[] = {&kAvx512Pairs};
  static const PairTable* const avx2[] = {&kAvx2Pairs};
  if (best_target() == Target::kAvx512) {
    if (!__builtin_cpu_supports("avx512bf16")) return neither;
    if (__builtin_cpu_is("intel")) return multiply_adds;
    return dots;
  }
  if (best_target() == Target::kAvx2) return avx2;
#elif defined(__aarch64__)
  static const PairTable* const neon[] = {&kNeonPairs};
  if (best_target() == Target::kNeon) return neon;
#endif
  static const PairTable* const plain[] = {&kScalarPairs};
  return plain;
}

const PairTable& pairs() {
  const PairTable* const table = forced().load(std::memory_order_relaxed);
  return table != nullptr ? *table : *runnable_pairs().front();
}

void force_pairs(const PairTable* table) { forced().store(table, std::memory_order_relaxed); }

}  // namespace muster::kernels::cpu
