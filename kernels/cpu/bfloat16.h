// What products of bfloat16 operands are made of (Products::kBfloat16 in ops.h).
//
// An operand's steps lie in pairs: the earlier one in the high half of a 32-bit word, because
// that is the order in which processors with such an instruction add the two products. Where a
// chain has an odd number of steps, the last pair is filled with -0 times +0, which changes no sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/bfloat16_step.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

using Pair = std::uint32_t;

/// What the missing half of a last pair holds: the left operand -0, the right one +0.
inline constexpr Pair kLeftFill = 0x8000;
inline constexpr Pair kRightFill = 0;

/// Sums of a tile, each one chain over `pairs`: every step is fma(a, b, acc) with results below the
/// least normal number flushed to zero of their sign, judged after rounding as x86 does.
struct PairTile {
  const Pair* a;  // by rows: row i at a + i * a_stride; by columns: pair p at a + p * a_stride
  std::size_t a_stride;
  std::size_t a_low;  // of two words: from the first to the second
  std::size_t rows;   // by rows: those that may be read, 1 or more; by columns all may be
  const Pair* b;      // pair p at b + p * vectors * lanes
  std::size_t pairs;
  float* sums;  // table rows of vectors * lanes floats, all written
  std::size_t sums_stride;
  bool goes_on;  // the chains go on from what sums holds, else from +0
};

using PairTileFunction = void (*)(const PairTile&);

struct PairTable {
  std::size_t rows;
  std::size_t lanes;
  std::size_t vectors_max;
  /// Words of a pair of the left operand: one that holds both steps, or a float for each, which
  /// saves each tile from taking it apart.
  std::size_t left_words;
  PairTileFunction by_rows[3];  // [vectors - 1]
  PairTileFunction by_columns[3];
  /// out[p] = the pair of from[2p] and from[2p + 1]; an odd last one beside `fill`.
  void (*pack_along)(const float* from, std::size_t steps, Pair fill, Pair* out);
  /// out[j] = the pair of first[j] and second[j] for j < n, or of first[j] and `fill` where second
  /// is nullptr.
  void (*pack_across)(const float* first, const float* second, std::size_t n, Pair fill, Pair* out);
};

/// The fastest of runnable_pairs(), or the one forced.
const PairTable& pairs();
/// Those that this machine can run of the forced or best target (ops.h), the fastest first. All
/// give the same bits.
std::span<const PairTable* const> runnable_pairs();
/// For tests: one of runnable_pairs(), until nullptr is.
void force_pairs(const PairTable* table);

extern const PairTable kScalarPairs;
#if defined(__x86_64__)
extern const PairTable kAvx2Pairs;
/// By two fused multiply-adds a pair; rounded as AVX2 does, or by AVX512-BF16's conversions.
extern const PairTable kAvx512Pairs, kAvx512ConvertedPairs;
/// By AVX512-BF16's one instruction a pair.
extern const PairTable kAvx512DotPairs;

namespace avx2 {
void pack_along(const float* from, std::size_t steps, Pair fill, Pair* out);
void pack_across(const float* first, const float* second, std::size_t n, Pair fill, Pair* out);
}  // namespace avx2
namespace avx512bf16 {
void pack_along(const float* from, std::size_t steps, Pair fill, Pair* out);
void pack_across(const float* first, const float* second, std::size_t n, Pair fill, Pair* out);
}  // namespace avx512bf16
#elif defined(__aarch64__)
extern const PairTable kNeonPairs;
#endif

}  // namespace muster::kernels::cpu
