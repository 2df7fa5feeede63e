// What every instruction set implements; everything above it is built once, for the plain machine.
//
// Two tables: tiles of a matrix product, and loops over vectors. A target's functions must give the
// same bits as the scalar ones (scalar_kernels.cpp), which say what each computes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/on_device.h"
#include "kernels/ops.h"

namespace muster::kernels::cpu {

/// Virtual lanes of a reduction (ops.h).
inline constexpr std::size_t kLanes = 16;
/// Upper bounds of the tile of any target, for buffers on the stack.
inline constexpr std::size_t kTileRowsMax = 8;
inline constexpr std::size_t kTileColumnsMax = 48;
/// Deepest stack of a sum tree: 2^32 inputs.
inline constexpr std::size_t kTreeDepthMax = 33;

/// One tile of C = A B: rows x columns outputs, each one chain over `steps`.
/// A by rows: row i begins at a + i * a_stride and step k is k floats on.
/// A by columns: step k begins at a + k * a_stride and row i is i floats on; all tile rows
/// readable. B: step k begins at b + k * b_stride; vectors * lanes floats are readable there.
struct Tile {
  const float* a;
  std::size_t a_stride;
  const float* b;
  std::size_t b_stride;
  float* b_copy;  // b is written here side by side as it is read: steps * width floats; or nullptr
  std::size_t steps;
  float* c;
  std::size_t c_stride;
  std::size_t rows;
  std::size_t columns;
  bool reload;        // the chains go on from what C holds, else from +0; by columns the only one
  const float* bias;  // added after the chain; or nullptr
  const float* mask;  // C is +0 where this is not > 0, same stride as C; or nullptr
  bool relu;          // after the bias
  // What the next tile reads or writes first, fetched meanwhile: its rows, next_stride apart; or
  // nullptr.
  const float* next;
  std::size_t next_stride;
  // What is packed after some tiles, of which each fetches a share: rows of ahead_floats floats,
  // ahead_stride apart.
  const float* ahead;
  std::size_t ahead_rows;
  std::size_t ahead_floats;
  std::size_t ahead_stride;
  // By columns only: `ranks` chains of `steps` steps, summed on the tree; then the sums of earlier
  // blocks that are its left neighbours. from, left and to hold a tile as rows * width floats.
  std::size_t ranks;
  const float* from;        // where the only chain goes on from, or nullptr: +0
  const float* left;        // the nearest left neighbour
  std::size_t left_stride;  // back to the next
  std::size_t lefts;        // how many
  float* to;                // an unfinished sum goes here; or nullptr: finished, to C
};

using TileFunction = void (*)(const Tile&);
/// out[k * width + j] = b[k * stride + j] for j < columns, +0 for columns <= j < width.
using PackFunction = void (*)(const float* b, std::size_t stride, std::size_t steps,
                              std::size_t columns, std::size_t width, float* out);

struct TileTable {
  std::size_t rows;         // of a tile
  std::size_t lanes;        // floats of a vector
  std::size_t vectors_max;  // widest tile, in vectors
  TileFunction by_rows[3];  // [vectors - 1]
  TileFunction by_columns[3];
  PackFunction pack;
  PackFunction pack_transposed;  // the same with b[j * stride + k]
};

struct VectorTable {
  /// Greatest element; NaNs are passed over. n >= 1.
  float (*row_max)(const float* values, std::size_t n);
  /// Sum by the reduction rule of exp_f32(values[i] - max), which also goes to out unless nullptr.
  float (*exp_sum)(const float* values, std::size_t n, float max, float* out);
  /// values[i] = (values[i] / sum) * scale.
  void (*divide_and_scale)(float* values, std::size_t n, float sum, float scale);
  void (*exp)(const float* x, std::size_t n, float* out);
  /// Lanes of one block: lanes[j] = the chain over values[i], i mod 16 = j, from +0.
  void (*block_lanes)(const float* values, std::size_t n, float* lanes);
  void (*add)(const float* a, const float* b, std::size_t n, float* out);
  void (*sgd_momentum)(std::size_t n, const SgdStep& step, const float* g, float* v, float* w);
  /// db[j] for j < columns: per rank one chain of additions over its rows, then the tree.
  void (*bias_gradient)(std::size_t ranks, std::size_t rows, std::size_t stride,
                        std::size_t columns, const float* dy, float* db);
  /// As block_lanes, each a chain of fma(value, value, acc).
  void (*square_lanes)(const float* values, std::size_t n, float* lanes);
  void (*adamw)(std::size_t n, const AdamwStep& step, const float* g, float* m, float* v, float* w);
};

const TileTable& tiles();
const VectorTable& vectors();

extern const TileTable kScalarTiles;
extern const VectorTable kScalarVectors;
/// nullptr when the target is not compiled in.
const TileTable* tiles_of(Target target);
const VectorTable* vectors_of(Target target);

/// 8-4-2-1.
MUSTER_ON_DEVICE inline float lane_tree(float* lanes) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) lanes[j] = lanes[j] + lanes[j + half];
  }
  return lanes[0];
}

/// The fixed binary tree over values that arrive from left to right: complete subtrees are merged
/// like the bits of a binary counter, and the rest from the right at the end.
struct TreeSum {
  float stack[kTreeDepthMax];
  std::size_t depth = 0;
  std::size_t count = 0;
  MUSTER_ON_DEVICE void push(float value) {
    for (std::size_t bits = count; (bits & 1) != 0; bits >>= 1) value = stack[--depth] + value;
    stack[depth++] = value;
    ++count;
  }
  MUSTER_ON_DEVICE float finish() {
    if (depth == 0) return 0.0F;
    float value = stack[--depth];
    while (depth > 0) value = stack[--depth] + value;
    return value;
  }
};

}  // namespace muster::kernels::cpu
