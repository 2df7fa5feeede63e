// dw = x^T dy and db, summed over logical ranks inside the register tile (no gradient per rank).
#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

/// Up to here a tile's columns of x are read in place; above, the strided lines of x would be
/// fetched again for each panel, and too many pages be open at once.
constexpr std::size_t kStepsInPlace = 128;
/// Floats of packed columns of x that one task holds: with a panel, a share of the second cache.
constexpr std::size_t kPackedRows = std::size_t{1} << 16;

struct Gradient {
  std::size_t ranks, steps, chain;  // chain: the steps of all ranks
  std::size_t rows, columns;        // of dw
  const float* x;
  const float* packed;  // panels of dy
  float* dw;
};

struct Range {
  std::size_t row_begin, row_end, panel_begin, panel_end;
};

/// The tiles of one range; columns of x that are packed lie in `packed_rows` one tile after
/// another.
void compute_range(const Gradient& gradient, const TileTable& tiles, const Panels& panels,
                   const Range& range, bool pack_all, const float* packed_rows) {
  for (std::size_t index = range.panel_begin; index < range.panel_end; ++index) {
    const Panel panel = panels[index];
    Tile tile{};
    tile.b = gradient.packed + panels.packed_size(index, gradient.chain);
    tile.b_stride = panel.vectors * tiles.lanes;
    tile.steps = gradient.steps;
    tile.ranks = gradient.ranks;
    tile.c_stride = gradient.columns;
    tile.columns = panel.columns;
    for (std::size_t row = range.row_begin; row < range.row_end; row += tiles.rows) {
      tile.rows = least(tiles.rows, range.row_end - row);
      if (pack_all) {
        tile.a = packed_rows + (row - range.row_begin) * gradient.chain;
        tile.a_stride = tiles.rows;
      } else if (tile.rows < tiles.rows) {
        tile.a = packed_rows;
        tile.a_stride = tiles.rows;
      } else {
        tile.a = gradient.x + row;
        tile.a_stride = gradient.rows;
      }
      tile.c = gradient.dw + row * gradient.columns + panel.first;
      tiles.by_columns[panel.vectors - 1](tile);
    }
  }
}

/// Copies a tile's columns of x side by side; +0 where x has no more.
void pack_rows(const Gradient& gradient, std::size_t tile_rows, std::size_t row, float* out) {
  const std::size_t rows = least(tile_rows, gradient.rows - row);
  const float* from = gradient.x + row;
  for (std::size_t step = 0; step < gradient.chain; ++step) {
    for (std::size_t i = 0; i < rows; ++i) out[i] = from[i];
    for (std::size_t i = rows; i < tile_rows; ++i) out[i] = 0.0F;
    from += gradient.rows;
    out += tile_rows;
  }
}

void compute_task(Context& context, std::size_t thread, const Gradient& gradient,
                  const TileTable& tiles, const Panels& panels, const Range& range) {
  const bool pack_all = gradient.chain > kStepsInPlace;
  const std::size_t tile_size = tiles.rows * gradient.chain;
  const std::size_t rows = range.row_end - range.row_begin;
  const std::size_t count = pack_all ? (rows + tiles.rows - 1) / tiles.rows : 1;
  float* packed = thread_scratch(context, thread).reserve(count * tile_size);
  if (pack_all) {
    for (std::size_t tile = 0; tile < count; ++tile) {
      pack_rows(gradient, tiles.rows, range.row_begin + tile * tiles.rows,
                packed + tile * tile_size);
    }
  } else if (rows % tiles.rows != 0) {
    pack_rows(gradient, tiles.rows, range.row_end - rows % tiles.rows, packed);
  }
  compute_range(gradient, tiles, panels, range, pack_all, packed);
}

void compute_weights(Context& context, const Gradient& gradient, const TileTable& tiles,
                     const Panels& panels) {
  const auto threads = static_cast<std::size_t>(context.threads());
  const std::size_t chain = gradient.chain == 0 ? 1 : gradient.chain;
  std::size_t rows_task = kPackedRows / chain / tiles.rows * tiles.rows;
  if (rows_task == 0) rows_task = tiles.rows;
  if (threads > 1) {
    rows_task =
        least(rows_task, round_up((gradient.rows + threads * 4 - 1) / (threads * 4), tiles.rows));
  }
  const std::size_t tasks = (gradient.rows + rows_task - 1) / rows_task;
  parallel_for(context, tasks, [&](std::size_t index, std::size_t thread) {
    const std::size_t row = index * rows_task;
    compute_task(context, thread, gradient, tiles, panels,
                 {row, least(gradient.rows, row + rows_task), 0, panels.count()});
  });
}

}  // namespace

void linear_backward_weights(Context& context, std::size_t ranks, std::size_t rows, std::size_t N,
                             std::size_t K, const float* x, const float* dy, float* dw, float* db) {
  if (ranks == 0 || (ranks & (ranks - 1)) != 0) fail("logical ranks must be a power of two");
  if (N == 0) return;
  const TileTable& table = tiles();
  const Panels panels(N, table);
  const std::size_t chain = ranks * rows;
  float* packed = shared_scratch(context).reserve(panels.packed_size(panels.count(), chain));
  parallel_for(context, panels.count(), [&](std::size_t index, std::size_t) {
    const Panel panel = panels[index];
    table.pack(dy + panel.first, N, chain, panel.columns, panel.vectors * table.lanes,
               packed + panels.packed_size(index, chain));
    if (db != nullptr) {
      vectors().bias_gradient(ranks, rows, N, panel.columns, dy + panel.first, db + panel.first);
    }
  });
  compute_weights(context, {ranks, rows, chain, K, N, x, packed, dw}, table, panels);
}

}  // namespace muster::kernels::cpu
