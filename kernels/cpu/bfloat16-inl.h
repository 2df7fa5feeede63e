// Register tiles of bfloat16 products for one instruction set. Included by a file that has
// defined, all with MUSTER_TARGET and in its anonymous namespace: V (floats), P (a pair
// as it enters a step), kVector, kTileRows, kVectorsMax, zero, load, store, left, right
// and step. The accumulators are named variables, as in gemm_tiles.cpp.
#pragma once

#define MUSTER_EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define MUSTER_CELL(i, j, statement)                                \
  if constexpr ((i) < kTileRows && (j) < kWidth) {                  \
    V& sum = c##i##_##j;                                            \
    float* at = tile.sums + (i) * tile.sums_stride + (j) * kVector; \
    statement;                                                      \
  }
#define MUSTER_ROW(i, statement) \
  MUSTER_CELL(i, 0, statement) MUSTER_CELL(i, 1, statement) MUSTER_CELL(i, 2, statement)
#define MUSTER_DECLARE(i)                                    \
  V c##i##_0 = zero(), c##i##_1 = zero(), c##i##_2 = zero(); \
  static_cast<void>(c##i##_0), static_cast<void>(c##i##_1), static_cast<void>(c##i##_2);
#define MUSTER_LOAD(i) MUSTER_ROW(i, sum = load(at))
#define MUSTER_STORE(i) MUSTER_ROW(i, store(sum, at))
#define MUSTER_POINTER(i)                                                                  \
  const Pair* a##i = tile.a + (kByRows ? ((i) < last ? (i) : last) * tile.a_stride : (i)); \
  static_cast<void>(a##i);
#define MUSTER_STEP(i)                                          \
  if constexpr ((i) < kTileRows) {                              \
    const P x = left(a##i + at, tile.a_low);                    \
    c##i##_0 = step(x, b0, c##i##_0);                           \
    if constexpr (kWidth > 1) c##i##_1 = step(x, b1, c##i##_1); \
    if constexpr (kWidth > 2) c##i##_2 = step(x, b2, c##i##_2); \
  }

template <std::size_t kWidth, bool kByRows>
MUSTER_TARGET __attribute__((noinline)) void sum_tile(const PairTile& tile) {
  const std::size_t last = tile.rows - 1;
  static_cast<void>(last);
  MUSTER_EACH_ROW(MUSTER_POINTER)
  MUSTER_EACH_ROW(MUSTER_DECLARE)
  if (tile.goes_on) {
    MUSTER_EACH_ROW(MUSTER_LOAD)
  }
  const Pair* b = tile.b;
  const std::size_t a_step = kByRows ? 1 : tile.a_stride;
  const std::size_t end = tile.pairs * a_step;
  for (std::size_t at = 0; at != end; at += a_step) {
    const P b0 = right(b);
    const P b1 = kWidth > 1 ? right(b + kVector) : b0;
    const P b2 = kWidth > 2 ? right(b + 2 * kVector) : b0;
    MUSTER_EACH_ROW(MUSTER_STEP)
    b += kWidth * kVector;
  }
  MUSTER_EACH_ROW(MUSTER_STORE)
}
