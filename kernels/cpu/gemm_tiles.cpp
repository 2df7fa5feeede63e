// Register tiles of a matrix product for each instruction set (Tile in table.h).
//
// The accumulators are named variables, not arrays: compilers keep arrays of vectors in memory.
// MUSTER_EACH_ROW(X) writes X for every row a tile may have; `if constexpr` drops what it has not.
#include "kernels/cpu/table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm_tiles.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/simd-inl.h"

#if HWY_TARGET != HWY_SCALAR
#ifndef MUSTER_EACH_ROW
#define MUSTER_EACH_ROW(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
// Statement of one row and one vector, kept when the tile has both.
#define MUSTER_CELL(i, j, statement)                                             \
  if constexpr ((i) < kTileRows && (j) < kWidth) {                               \
    V& sum = c##i##_##j;                                                         \
    constexpr std::size_t kAt = (i) * kWidth + (j);                              \
    constexpr std::size_t kRow = i, kColumn = kVector * (j);                     \
    static_cast<void>(kAt), static_cast<void>(kRow), static_cast<void>(kColumn); \
    statement;                                                                   \
  }
#define MUSTER_ROW(i, statement) \
  MUSTER_CELL(i, 0, statement) MUSTER_CELL(i, 1, statement) MUSTER_CELL(i, 2, statement)
#define MUSTER_STEP(i)                                         \
  if constexpr ((i) < kTileRows) {                             \
    const V x = all(MUSTER_A(i));                              \
    c##i##_0 = fma(x, b0, c##i##_0);                           \
    if constexpr (kWidth > 1) c##i##_1 = fma(x, b1, c##i##_1); \
    if constexpr (kWidth > 2) c##i##_2 = fma(x, b2, c##i##_2); \
  }
#define MUSTER_COPY                                          \
  if constexpr (kCopies) {                                   \
    __builtin_prefetch(b + kStepsAhead * b_stride);          \
    store(b0, copy);                                         \
    if constexpr (kWidth > 1) store(b1, copy + kVector);     \
    if constexpr (kWidth > 2) store(b2, copy + 2 * kVector); \
    copy += kWidth * kVector;                                \
  }
#define MUSTER_DECLARE(i)                                    \
  V c##i##_0 = zero(), c##i##_1 = zero(), c##i##_2 = zero(); \
  static_cast<void>(c##i##_0), static_cast<void>(c##i##_1), static_cast<void>(c##i##_2);
#define MUSTER_ZERO(i) MUSTER_ROW(i, sum = zero())
#define MUSTER_SPILL(i) MUSTER_ROW(i, store(sum, spill + kAt * kVector))
#define MUSTER_FILL(i) MUSTER_ROW(i, sum = load(spill + kAt * kVector))
#define MUSTER_MERGE(i) MUSTER_ROW(i, sum = add(load(spill + kAt * kVector), sum))
#define MUSTER_RESUME(i) MUSTER_ROW(i, sum = load(tile.from + kAt * kVector))
#define MUSTER_MERGE_LEFT(i) MUSTER_ROW(i, sum = add(load(left + kAt * kVector), sum))
#define MUSTER_KEEP(i) MUSTER_ROW(i, store(sum, tile.to + kAt * kVector))
#define MUSTER_LOAD(i) MUSTER_ROW(i, sum = load(tile.c + kRow * tile.c_stride + kColumn))
#define MUSTER_BIAS(i) MUSTER_ROW(i, sum = add(sum, load(tile.bias + kColumn)))
#define MUSTER_RELU(i) MUSTER_ROW(i, sum = where_positive(sum, sum))
#define MUSTER_MASK(i) \
  MUSTER_ROW(i, sum = where_positive(load(tile.mask + kRow * tile.c_stride + kColumn), sum))
#define MUSTER_STORE(i) MUSTER_ROW(i, store(sum, tile.c + kRow * tile.c_stride + kColumn))
#endif

HWY_BEFORE_NAMESPACE();
namespace muster::kernels::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3
constexpr std::size_t kTileRows = 8;
constexpr std::size_t kVectorsMax = 3;
#elif HWY_TARGET == HWY_AVX2
constexpr std::size_t kTileRows = 6;
constexpr std::size_t kVectorsMax = 2;
#else
constexpr std::size_t kTileRows = 8;
constexpr std::size_t kVectorsMax = 2;
#endif

/// Rows of a wide matrix lie further apart than the machine looks ahead by itself.
constexpr std::size_t kStepsAhead = 12;

/// The edge of a matrix: C to buffer, where what C has not is +0.
template <std::size_t kWidth>
HWY_NOINLINE void load_edge(const Tile& tile, float* buffer) {
  for (std::size_t i = 0; i < kTileRows; ++i) {
    for (std::size_t j = 0; j < kWidth * kVector; ++j) {
      const bool inside = i < tile.rows && j < tile.columns;
      buffer[i * kWidth * kVector + j] = inside ? tile.c[i * tile.c_stride + j] : 0.0F;
    }
  }
}

/// The edge of a matrix: buffer to C with bias, activation and mask.
template <std::size_t kWidth>
HWY_NOINLINE void store_edge(const Tile& tile, const float* buffer) {
  for (std::size_t i = 0; i < tile.rows; ++i) {
    for (std::size_t j = 0; j < tile.columns; j += kVector) {
      const std::size_t at = i * tile.c_stride + j;
      const M mask = first(tile.columns - j < kVector ? tile.columns - j : kVector);
      V value = load(buffer + i * kWidth * kVector + j);
      if (tile.bias != nullptr) value = add(value, load_first(mask, tile.bias + j));
      if (tile.relu) value = where_positive(value, value);
      if (tile.mask != nullptr) value = where_positive(load_first(mask, tile.mask + at), value);
      store_first(mask, value, tile.c + at);
    }
  }
}

/// Asks for the lines of the next tile's outputs, which would else stall its first sums.
template <std::size_t kWidth>
HWY_INLINE void fetch_next(const Tile& tile) {
  if (tile.next == nullptr) return;
  for (std::size_t i = 0; i < kTileRows; ++i) {
    const float* row = tile.next + i * tile.next_stride;
    for (std::size_t j = 0; j < kWidth * kVector; j += 16) __builtin_prefetch(row + j, 1);
  }
}

/// Asks for this tile's share of what is packed next, into the second cache: the first is full.
HWY_INLINE void fetch_ahead(const Tile& tile) {
  for (std::size_t i = 0; i < tile.ahead_rows; ++i) {
    const float* row = tile.ahead + i * tile.ahead_stride;
    for (std::size_t j = 0; j < tile.ahead_floats; j += 16) __builtin_prefetch(row + j, 0, 2);
    __builtin_prefetch(row + tile.ahead_floats - 1, 0, 2);
  }
}

/// A by rows: rows past the edge repeat the last one, and their results are dropped.
template <std::size_t kWidth, bool kCopies>
void sum_by_rows(const Tile& tile) {
  const std::size_t last = tile.rows - 1;
#define MUSTER_POINTER(i)                                                              \
  const float* HWY_RESTRICT a##i = tile.a + ((i) < last ? (i) : last) * tile.a_stride; \
  static_cast<void>(a##i);
  MUSTER_EACH_ROW(MUSTER_POINTER)
  MUSTER_EACH_ROW(MUSTER_DECLARE)
  HWY_ALIGN float spill[kTileRows * kWidth * kVector];
  const bool whole = tile.rows == kTileRows && tile.columns == kWidth * kVector;
  fetch_next<kWidth>(tile);
  fetch_ahead(tile);
  if (tile.reload) {
    if (whole) {
      MUSTER_EACH_ROW(MUSTER_LOAD)
    } else {
      load_edge<kWidth>(tile, spill);
      MUSTER_EACH_ROW(MUSTER_FILL)
    }
  }
  const float* HWY_RESTRICT b = tile.b;
  float* HWY_RESTRICT copy = tile.b_copy;
  static_cast<void>(copy);
  const std::size_t steps = tile.steps;
  const std::size_t b_stride = tile.b_stride;
  for (std::size_t k = 0; k < steps; ++k) {
    const V b0 = load(b);
    const V b1 = kWidth > 1 ? load(b + kVector) : b0;
    const V b2 = kWidth > 2 ? load(b + 2 * kVector) : b0;
#define MUSTER_A(i) a##i[k]
    MUSTER_EACH_ROW(MUSTER_STEP)
    MUSTER_COPY
#undef MUSTER_A
    b += b_stride;
  }
  if (whole) {
    if (tile.bias != nullptr) {
      MUSTER_EACH_ROW(MUSTER_BIAS)
    }
    if (tile.relu) {
      MUSTER_EACH_ROW(MUSTER_RELU)
    }
    if (tile.mask != nullptr) {
      MUSTER_EACH_ROW(MUSTER_MASK)
    }
    MUSTER_EACH_ROW(MUSTER_STORE)
  } else {
    MUSTER_EACH_ROW(MUSTER_SPILL)
    store_edge<kWidth>(tile, spill);
  }
}

/// A by columns, with the logical ranks' chains summed on the tree: the stack holds the complete
/// subtrees to the left, as many as the rank's number has bits set.
template <std::size_t kWidth, bool kCopies>
void sum_by_columns(const Tile& tile) {
  MUSTER_EACH_ROW(MUSTER_DECLARE)
  constexpr std::size_t kCells = kTileRows * kWidth * kVector;
  HWY_ALIGN float stack[kTreeDepthMax * kCells];
  float* HWY_RESTRICT spill = stack;
  const float* HWY_RESTRICT a = tile.a;
  const float* HWY_RESTRICT b = tile.b;
  float* HWY_RESTRICT copy = tile.b_copy;
  static_cast<void>(copy);
  const std::size_t steps = tile.steps;
  const std::size_t a_stride = tile.a_stride;
  const std::size_t b_stride = tile.b_stride;
  const bool whole = tile.rows == kTileRows && tile.columns == kWidth * kVector;
  fetch_next<kWidth>(tile);
  fetch_ahead(tile);
  if (tile.from != nullptr) {
    MUSTER_EACH_ROW(MUSTER_RESUME)
  } else if (tile.reload && whole) {
    MUSTER_EACH_ROW(MUSTER_LOAD)
  } else if (tile.reload) {
    load_edge<kWidth>(tile, spill);
    MUSTER_EACH_ROW(MUSTER_FILL)
  }
  for (std::size_t rank = 0; rank < tile.ranks; ++rank) {
    if (rank != 0) {
      MUSTER_EACH_ROW(MUSTER_SPILL)
      spill += kCells;
      MUSTER_EACH_ROW(MUSTER_ZERO)
    }
    for (std::size_t k = 0; k < steps; ++k) {
      const V b0 = load(b);
      const V b1 = kWidth > 1 ? load(b + kVector) : b0;
      const V b2 = kWidth > 2 ? load(b + 2 * kVector) : b0;
#define MUSTER_A(i) a[i]
      MUSTER_EACH_ROW(MUSTER_STEP)
      MUSTER_COPY
#undef MUSTER_A
      a += a_stride;
      b += b_stride;
    }
    for (std::size_t bits = rank; (bits & 1) != 0; bits >>= 1) {
      spill -= kCells;
      MUSTER_EACH_ROW(MUSTER_MERGE)
    }
  }
  const float* left = tile.left;
  for (std::size_t i = 0; i < tile.lefts; ++i) {
    MUSTER_EACH_ROW(MUSTER_MERGE_LEFT)
    left -= tile.left_stride;
  }
  if (tile.to != nullptr) {
    MUSTER_EACH_ROW(MUSTER_KEEP)
  } else if (whole) {
    MUSTER_EACH_ROW(MUSTER_STORE)
  } else {
    MUSTER_EACH_ROW(MUSTER_SPILL)
    store_edge<kWidth>(tile, spill);
  }
}

template <std::size_t kWidth>
void by_rows(const Tile& tile) {
  tile.b_copy == nullptr ? sum_by_rows<kWidth, false>(tile) : sum_by_rows<kWidth, true>(tile);
}

template <std::size_t kWidth>
void by_columns(const Tile& tile) {
  tile.b_copy == nullptr ? sum_by_columns<kWidth, false>(tile) : sum_by_columns<kWidth, true>(tile);
}

void pack(const float* b, std::size_t stride, std::size_t steps, std::size_t columns,
          std::size_t width, float* out) {
  const std::size_t whole = columns / kVector * kVector;
  const M rest = first(columns - whole);
  for (std::size_t k = 0; k < steps; ++k) {
    std::size_t j = 0;
    for (std::size_t ahead = 0; ahead < columns; ahead += 16) {
      __builtin_prefetch(b + kStepsAhead * stride + ahead);
    }
    for (; j < whole; j += kVector) store(load(b + j), out + j);
    if (whole != columns) {
      store(load_first(rest, b + j), out + j);
      j += kVector;
    }
    for (; j < width; j += kVector) store(zero(), out + j);
    b += stride;
    out += width;
  }
}

using Four = hn::FixedTag<float, 4>;
using V4 = hn::Vec<Four>;

/// Four rows of four become four columns.
HWY_INLINE void transpose_four(const float* b, std::size_t stride, float* out, std::size_t width) {
  const Four d;
  const V4 r0 = hn::LoadU(d, b);
  const V4 r1 = hn::LoadU(d, b + stride);
  const V4 r2 = hn::LoadU(d, b + 2 * stride);
  const V4 r3 = hn::LoadU(d, b + 3 * stride);
  const V4 l02 = hn::InterleaveLower(d, r0, r2);
  const V4 l13 = hn::InterleaveLower(d, r1, r3);
  const V4 u02 = hn::InterleaveUpper(d, r0, r2);
  const V4 u13 = hn::InterleaveUpper(d, r1, r3);
  hn::StoreU(hn::InterleaveLower(d, l02, l13), d, out);
  hn::StoreU(hn::InterleaveUpper(d, l02, l13), d, out + width);
  hn::StoreU(hn::InterleaveLower(d, u02, u13), d, out + 2 * width);
  hn::StoreU(hn::InterleaveUpper(d, u02, u13), d, out + 3 * width);
}

void pack_transposed_block(const float* b, std::size_t stride, std::size_t steps,
                           std::size_t columns, std::size_t width, float* out) {
  std::size_t j = 0;
  for (; j + 4 <= columns; j += 4) {
    std::size_t k = 0;
    for (; k + 4 <= steps; k += 4) {
      transpose_four(b + j * stride + k, stride, out + k * width + j, width);
    }
    for (; k < steps; ++k) {
      for (std::size_t i = j; i < j + 4; ++i) out[k * width + i] = b[i * stride + k];
    }
  }
  for (; j < width; ++j) {
    for (std::size_t k = 0; k < steps; ++k) {
      out[k * width + j] = j < columns ? b[j * stride + k] : 0.0F;
    }
  }
}

void pack_transposed(const float* b, std::size_t stride, std::size_t steps, std::size_t columns,
                     std::size_t width, float* out) {
  // Steps in pieces whose output stays in the first cache while four columns at a time fill it.
  constexpr std::size_t kPiece = 64;
  for (std::size_t k = 0; k < steps; k += kPiece) {
    const std::size_t piece = steps - k < kPiece ? steps - k : kPiece;
    pack_transposed_block(b + k, stride, piece, columns, width, out + k * width);
  }
}

static_assert(kTileRows == 4 || kTileRows == 6 || kTileRows == 8,
              "linear_weights.cpp copies these");

template <std::size_t kWidth>
constexpr TileFunction rows_function() {
  if constexpr (kWidth <= kVectorsMax) return by_rows<kWidth>;
  return nullptr;
}

template <std::size_t kWidth>
constexpr TileFunction columns_function() {
  if constexpr (kWidth <= kVectorsMax) return by_columns<kWidth>;
  return nullptr;
}

}  // namespace

extern const TileTable kTiles;
const TileTable kTiles = {kTileRows,
                          kVector,
                          kVectorsMax,
                          {rows_function<1>(), rows_function<2>(), rows_function<3>()},
                          {columns_function<1>(), columns_function<2>(), columns_function<3>()},
                          pack,
                          pack_transposed};

}  // namespace muster::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace muster::kernels::cpu {

const TileTable* tiles_of(Target target) {
  switch (target) {
    case Target::kScalar:
      return &kScalarTiles;
#if HWY_TARGETS & HWY_AVX2
    case Target::kAvx2:
      return &N_AVX2::kTiles;
#endif
#if HWY_TARGETS & HWY_AVX3
    case Target::kAvx512:
      return &N_AVX3::kTiles;
#endif
#if HWY_TARGETS & HWY_NEON
    case Target::kNeon:
      return &N_NEON::kTiles;
#endif
    default:
      return nullptr;
  }
}

}  // namespace muster::kernels::cpu
#endif
