// Products of matrices inside attention, made of the register tiles of table.h: what its two
// passes share. Rows of scores are held for some positions at a time, so that memory grows with T
// and not with its square. A weight of position i exists for j <= i only: where a tile lies on that
// border, the steps in which all its rows take part go through the tile, the rest through a
// Triangle; nothing is ever padded.
#pragma once

#include <cstddef>

#include "kernels/cpu/layer_table.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/table.h"
#include "kernels/on_device.h"

namespace muster::kernels::cpu {

/// Positions whose scores are held at once: whole tiles of every target.
inline constexpr std::size_t kScoreRows = 48;

/// Rows of one head of one sequence, or where they go.
template <typename Value>
struct Rows {
  Value* at;
  std::size_t stride;
  MUSTER_ON_DEVICE Value* operator[](std::size_t i) const { return at + i * stride; }
};

/// The three parts of a head's qkv, for the values or their gradients.
template <typename Value>
struct Head {
  MUSTER_ON_DEVICE Head(const AttentionShape& shape, std::size_t index, Value* qkv) {
    const std::size_t C = shape.heads * shape.D;
    Value* own = qkv + index / shape.heads * shape.T * 3 * C + index % shape.heads * shape.D;
    query = {own, 3 * C};
    key = {own + C, 3 * C};
    value = {own + 2 * C, 3 * C};
  }
  Rows<Value> query, key, value;
};

/// A head's part of y or its gradient.
template <typename Value>
MUSTER_ON_DEVICE Rows<Value> output_of(const AttentionShape& shape, std::size_t index, Value* y) {
  const std::size_t C = shape.heads * shape.D;
  return {y + index / shape.heads * shape.T * C + index % shape.heads * shape.D, C};
}

/// The right side of a product: steps x columns, in panels as the tiles read them.
struct Packed {
  Panels panels;
  std::size_t steps;
  const float* data;
  const float* panel(std::size_t index) const { return data + panels.packed_size(index, steps); }
};

/// T rows of D values as they are, or as columns; out holds as much as the sizes below say.
Packed pack_rows(const AttentionShape& shape, Rows<const float> from, float* out);
Packed pack_columns(const AttentionShape& shape, Rows<const float> from, float* out);
std::size_t packed_rows_size(const AttentionShape& shape);
std::size_t packed_columns_size(const AttentionShape& shape);

/// Rows [begin, end) of a matrix of scores or weights, of which row i has i + 1 values.
struct ScoreBlock {
  std::size_t begin, end;
  std::size_t stride;
  float* at;
  float* operator[](std::size_t i) const { return at + (i - begin) * stride; }
};

/// Between rows of a block: behind the last of T values lies what a whole tile may read.
std::size_t score_stride(const AttentionShape& shape);

/// out[i][j] = the chain over d of fma(left[i][d], right[d][j], acc) for j <= i; some values behind
/// are written, too.
void multiply_scores(Rows<const float> left, const Packed& right, const ScoreBlock& out);

/// Of the weights of position i of a head: the scale where one stays, +0 where it is dropped.
/// Shape: factors (factors_size()), of which i + 1 count.
void draw_factors(const AttentionShape& shape, const WeightDrop& drop, std::size_t index,
                  std::size_t i, float* factors);
std::size_t factors_size(const AttentionShape& shape);

/// to[i] = the chain over j <= i of fma(weights[i][j], right[j], acc), for the block's rows.
void weigh_rows(const ScoreBlock& weights, const Packed& right, Rows<float> to);

/// Chains over all i >= j, block by block. The slots hold what is unfinished.
struct ColumnSums {
  const Packed& right;
  Rows<float> to;
  float* slots;  ///< column_slots_size() floats
};

std::size_t column_slots_size(const AttentionShape& shape);

/// to[j] = the chain over i >= j of fma(weights[i][j], right[i], acc): the steps of this block, and
/// after the last block the result. Blocks come in ascending order.
void weigh_columns(const ScoreBlock& weights, const ColumnSums& sums);

/// Where the parts of a thread's scratch memory begin, each on a cache line.
struct Layout {
  std::size_t size = 0;
  std::size_t take(std::size_t floats) {
    const std::size_t at = size;
    size += round_up(floats, 16);
    return at;
  }
};

}  // namespace muster::kernels::cpu
