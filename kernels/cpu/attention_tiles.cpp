#include "kernels/cpu/attention_tiles.h"

#include "kernels/dropout.h"

namespace muster::kernels::cpu {
namespace {

/// Floats of the widest tile.
std::size_t cells_of(const TileTable& table) {
  return table.rows * table.lanes * table.vectors_max;
}

/// One panel of the right side.
struct Part {
  Panel panel;
  std::size_t width;
  const float* b;
};

Part part_of(const TileTable& table, const Packed& right, std::size_t index) {
  const Panel panel = right.panels[index];
  return {panel, panel.vectors * table.lanes, right.panel(index)};
}

/// Rows of weigh_rows from i on: the steps that all take, then those up to each row's own.
void weigh_row_tile(const TileTable& table, const LayerTable& layers, const ScoreBlock& weights,
                    const Part& part, std::size_t i, Rows<float> to) {
  Tile tile{};
  tile.rows = least(table.rows, weights.end - i);
  tile.columns = part.panel.columns;
  tile.a = weights[i];
  tile.a_stride = weights.stride;
  tile.b = part.b;
  tile.b_stride = part.width;
  tile.steps = i + 1;
  tile.c = to[i] + part.panel.first;
  tile.c_stride = to.stride;
  table.by_rows[part.panel.vectors - 1](tile);
  layers.triangle({tile.a + tile.steps, weights.stride, 1, part.b + tile.steps * part.width,
                   part.width, tile.c, to.stride, tile.rows, tile.columns, true});
}

/// Rows of weigh_columns from j on: where they begin within the block, each from its own step.
void weigh_column_tile(const TileTable& table, const LayerTable& layers, const ScoreBlock& weights,
                       const ColumnSums& sums, const Part& part, std::size_t j, float* slot) {
  const std::size_t T = sums.right.steps;
  const std::size_t rows = least(table.rows, T - j);
  std::size_t step = weights.begin;
  if (j >= weights.begin) {
    for (std::size_t i = 0; i < cells_of(table); ++i) slot[i] = 0.0F;
    layers.triangle({weights[j] + j, 1, weights.stride, part.b + j * part.width, part.width, slot,
                     part.width, rows, part.width, false});
    step = j + rows;
  }
  const bool last = weights.end == T;
  if (step == weights.end && !last) return;
  Tile tile{};
  tile.rows = rows;
  tile.columns = part.panel.columns;
  tile.ranks = 1;
  tile.steps = weights.end - step;
  tile.a = weights[step] + j;
  tile.a_stride = weights.stride;
  tile.b = part.b + step * part.width;
  tile.b_stride = part.width;
  tile.from = slot;
  tile.to = last ? nullptr : slot;
  tile.c = sums.to[j] + part.panel.first;
  tile.c_stride = sums.to.stride;
  table.by_columns[part.panel.vectors - 1](tile);
}

}  // namespace

Packed pack_rows(const AttentionShape& shape, Rows<const float> from, float* out) {
  const TileTable& table = tiles();
  const Packed packed{Panels(shape.D, table), shape.T, out};
  for (std::size_t index = 0; index < packed.panels.count(); ++index) {
    const Panel panel = packed.panels[index];
    table.pack(from.at + panel.first, from.stride, shape.T, panel.columns,
               panel.vectors * table.lanes, out + packed.panels.packed_size(index, shape.T));
  }
  return packed;
}

Packed pack_columns(const AttentionShape& shape, Rows<const float> from, float* out) {
  const TileTable& table = tiles();
  const Packed packed{Panels(shape.T, table), shape.D, out};
  for (std::size_t index = 0; index < packed.panels.count(); ++index) {
    const Panel panel = packed.panels[index];
    table.pack_transposed(from[panel.first], from.stride, shape.D, panel.columns,
                          panel.vectors * table.lanes,
                          out + packed.panels.packed_size(index, shape.D));
  }
  return packed;
}

std::size_t packed_rows_size(const AttentionShape& shape) {
  return round_up(shape.D, tiles().lanes) * shape.T;
}

std::size_t packed_columns_size(const AttentionShape& shape) {
  return round_up(shape.T, tiles().lanes) * shape.D;
}

std::size_t score_stride(const AttentionShape& shape) {
  // One line more, so that rows of a power of two do not share their sets of the caches.
  return round_up(shape.T, tiles().rows) + 16;
}

void multiply_scores(Rows<const float> left, const Packed& right, const ScoreBlock& out) {
  const TileTable& table = tiles();
  Tile tile{};
  tile.steps = right.steps;
  tile.a_stride = left.stride;
  tile.c_stride = out.stride;
  for (std::size_t index = 0; index < right.panels.count(); ++index) {
    const Part part = part_of(table, right, index);
    if (part.panel.first >= out.end) return;
    tile.b = part.b;
    tile.b_stride = part.width;
    for (std::size_t i = out.begin; i < out.end; i += table.rows) {
      tile.rows = least(table.rows, out.end - i);
      if (part.panel.first >= i + tile.rows) continue;
      tile.columns = least(part.panel.columns, i + tile.rows - part.panel.first);
      tile.a = left[i];
      tile.c = out[i] + part.panel.first;
      table.by_rows[(tile.columns - 1) / table.lanes](tile);
    }
  }
}

void draw_factors(const AttentionShape& shape, const WeightDrop& drop, std::size_t index,
                  std::size_t i, float* factors) {
  const std::uint64_t block = first_weights(drop, shape.T, index % shape.heads, i);
  layers().kept(drop, index / shape.heads, block, i + 1, factors);
}

std::size_t factors_size(const AttentionShape& shape) { return round_up(shape.T, kKeptAtOnce); }

void weigh_rows(const ScoreBlock& weights, const Packed& right, Rows<float> to) {
  const TileTable& table = tiles();
  for (std::size_t index = 0; index < right.panels.count(); ++index) {
    const Part part = part_of(table, right, index);
    for (std::size_t i = weights.begin; i < weights.end; i += table.rows) {
      weigh_row_tile(table, layers(), weights, part, i, to);
    }
  }
}

std::size_t column_slots_size(const AttentionShape& shape) {
  const TileTable& table = tiles();
  const std::size_t row_tiles = (shape.T + table.rows - 1) / table.rows;
  return row_tiles * Panels(shape.D, table).count() * cells_of(table);
}

void weigh_columns(const ScoreBlock& weights, const ColumnSums& sums) {
  const TileTable& table = tiles();
  const std::size_t panels = sums.right.panels.count();
  float* slot = sums.slots;
  for (std::size_t j = 0; j < weights.end; j += table.rows) {
    for (std::size_t index = 0; index < panels; ++index) {
      weigh_column_tile(table, layers(), weights, sums, part_of(table, sums.right, index), j, slot);
      slot += cells_of(table);
    }
  }
}

}  // namespace muster::kernels::cpu
