// dw = x^T dy and db, summed over logical ranks inside the register tile (no gradient per rank).
//
// The chain over all rows is cut into blocks, so that a panel of dy stays in the first cache: a
// block is either some logical ranks that make a complete subtree of the sum, or a part of one
// rank's chain. What blocks leave for each other, unfinished chains and subtrees that wait for
// their right neighbour, lies in slots as in a binary counter: block g finds popcount(g) of them.
#include <bit>
#include <cstring>

#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

constexpr std::size_t kStepsBlock = 256;
/// With one or two panels a column of x is used so little that copying it would cost more; then,
/// and for blocks no longer than this, it is read in place, over few enough pages and lines.
constexpr std::size_t kStepsInPlace = 128;
constexpr std::size_t kPanelsInPlace = 2;
/// Floats of x of one task: a share of the second cache.
constexpr std::size_t kRowsFloats = std::size_t{1} << 17;

struct Blocks {
  std::size_t ranks;   // of one block
  std::size_t parts;   // of one rank's chain, when ranks is 1
  std::size_t length;  // of a part; the last may be shorter
  std::size_t count;   // not counting parts
};

Blocks cut(std::size_t ranks, std::size_t rows, std::size_t steps_max) {
  if (rows > steps_max) {
    const std::size_t parts = (rows + steps_max - 1) / steps_max;
    return {1, parts, (rows + parts - 1) / parts, ranks};
  }
  const std::size_t fit = rows == 0 ? ranks : std::bit_floor(steps_max / rows);
  const std::size_t in_block = least(ranks, fit);
  return {in_block, 1, rows, ranks / in_block};
}

struct Gradient {
  std::size_t chain;          // rows of all logical ranks
  std::size_t rank_rows;      // of one
  std::size_t rows, columns;  // of dw
  const float* x;
  float* dw;
  Blocks blocks;
  bool pack_rows;
};

/// Panels whose packed form lies at `packed`.
struct Group {
  std::size_t first, end;
  const float* packed;
};

/// One part of one block.
struct Piece {
  std::size_t block;
  std::size_t part;
  std::size_t step;   // its first
  std::size_t steps;  // of one rank
};

/// What tasks hold for each tile between blocks.
struct Slots {
  float* base;
  std::size_t stride;  // between slots
  std::size_t cells;   // of a tile
};

struct Work {
  const Gradient& gradient;
  const TileTable& tiles;
  const Panels& panels;
  Group group;
  std::size_t row_begin, row_end;
};

/// Copies kRows columns of x side by side.
template <std::size_t kRows>
void copy_rows(const float* from, std::size_t stride, std::size_t steps, float* out) {
  for (std::size_t step = 0; step < steps; ++step) {
    std::memcpy(out, from, kRows * sizeof(float));
    from += stride;
    out += kRows;
  }
}

/// The columns of x that a tile needs, side by side; +0 where x has no more.
void pack_tile(const Gradient& gradient, std::size_t tile_rows, std::size_t row, float* out) {
  const std::size_t rows = least(tile_rows, gradient.rows - row);
  const float* from = gradient.x + row;
  if (rows == 8 && tile_rows == 8) return copy_rows<8>(from, gradient.rows, gradient.chain, out);
  if (rows == 6 && tile_rows == 6) return copy_rows<6>(from, gradient.rows, gradient.chain, out);
  for (std::size_t k = 0; k < gradient.chain; ++k) {
    for (std::size_t i = 0; i < tile_rows; ++i) out[i] = i < rows ? from[i] : 0.0F;
    from += gradient.rows;
    out += tile_rows;
  }
}

/// Where the tile's sum begins, which sums join it and where it goes.
void link_slots(const Blocks& blocks, const Piece& piece, const Slots& slots, std::size_t index,
                Tile& tile) {
  const auto waiting = static_cast<std::size_t>(std::popcount(piece.block));
  float* top = slots.base + index * slots.cells + waiting * slots.stride;
  tile.from = piece.part != 0 ? top : nullptr;
  tile.to = top;
  tile.lefts = 0;
  if (piece.part + 1 != blocks.parts) return;
  tile.lefts = static_cast<std::size_t>(std::countr_one(piece.block));
  tile.left_stride = slots.stride;
  if (tile.lefts != 0) tile.left = top - slots.stride;
  tile.to = piece.block + 1 != blocks.count ? top - tile.lefts * slots.stride : nullptr;
}

void compute_piece(const Work& work, std::size_t index, const Piece& piece, const float* packed,
                   const Slots& slots) {
  const Gradient& gradient = work.gradient;
  const TileTable& tiles = work.tiles;
  const Panel panel = work.panels[index];
  const std::size_t width = panel.vectors * tiles.lanes;
  const std::size_t offset = work.panels.packed_size(index, gradient.chain) -
                             work.panels.packed_size(work.group.first, gradient.chain);
  Tile tile{};
  tile.b = work.group.packed + offset + piece.step * width;
  tile.b_stride = width;
  tile.steps = piece.steps;
  tile.ranks = gradient.blocks.ranks;
  tile.c_stride = gradient.columns;
  tile.next_stride = gradient.columns;
  tile.columns = panel.columns;
  std::size_t slot_index = 0;
  for (std::size_t row = work.row_begin; row < work.row_end; row += tiles.rows) {
    tile.rows = least(tiles.rows, work.row_end - row);
    if (gradient.pack_rows || tile.rows < tiles.rows) {
      const std::size_t first = gradient.pack_rows ? row - work.row_begin : 0;
      tile.a = packed + first * gradient.chain + piece.step * tiles.rows;
      tile.a_stride = tiles.rows;
    } else {
      tile.a = gradient.x + piece.step * gradient.rows + row;
      tile.a_stride = gradient.rows;
    }
    tile.c = gradient.dw + row * gradient.columns + panel.first;
    link_slots(gradient.blocks, piece, slots, slot_index++, tile);
    const bool more = tile.to == nullptr && row + 2 * tiles.rows <= work.row_end;
    tile.next = more ? tile.c + tiles.rows * gradient.columns : nullptr;
    tiles.by_columns[panel.vectors - 1](tile);
  }
}

void compute_panel(const Work& work, std::size_t index, const float* packed, const Slots& slots) {
  const Blocks& blocks = work.gradient.blocks;
  const std::size_t rank_rows = work.gradient.rank_rows;
  for (std::size_t block = 0; block < blocks.count; ++block) {
    for (std::size_t part = 0; part < blocks.parts; ++part) {
      const std::size_t offset = part * blocks.length;
      const Piece piece{block, part, block * blocks.ranks * rank_rows + offset,
                        least(blocks.length, rank_rows - offset)};
      compute_piece(work, index, piece, packed, slots);
    }
  }
}

/// Some rows of dw in one group of panels.
void compute_task(const Work& work, Scratch& scratch) {
  const Gradient& gradient = work.gradient;
  const Blocks& blocks = gradient.blocks;
  const std::size_t tile_rows = work.tiles.rows;
  const std::size_t rows = work.row_end - work.row_begin;
  const std::size_t row_tiles = (rows + tile_rows - 1) / tile_rows;
  const std::size_t packed_size =
      round_up((gradient.pack_rows ? row_tiles : 1) * tile_rows * gradient.chain, 16);
  const bool alone = blocks.count * blocks.parts == 1;
  const std::size_t slot_count = alone ? 0 : static_cast<std::size_t>(std::bit_width(blocks.count));
  Slots slots{};
  slots.cells = tile_rows * work.tiles.lanes * work.tiles.vectors_max;
  slots.stride = slots.cells * row_tiles;
  float* packed = scratch.reserve(packed_size + slot_count * slots.stride);
  slots.base = packed + packed_size;
  if (gradient.pack_rows) {
    for (std::size_t row = work.row_begin; row < work.row_end; row += tile_rows) {
      pack_tile(gradient, tile_rows, row, packed + (row - work.row_begin) * gradient.chain);
    }
  } else if (rows % tile_rows != 0) {
    pack_tile(gradient, tile_rows, work.row_end - rows % tile_rows, packed);
  }
  for (std::size_t index = work.group.first; index < work.group.end; ++index) {
    compute_panel(work, index, packed, slots);
  }
}

void compute_group(Context& context, const Gradient& gradient, const TileTable& tiles,
                   const Panels& panels, const Group& group) {
  const auto threads = static_cast<std::size_t>(context.threads());
  std::size_t rows_task = rows_of_task(kRowsFloats, gradient.chain, tiles);
  if (threads > 1) {
    const std::size_t share = (gradient.rows + threads * 4 - 1) / (threads * 4);
    rows_task = least(rows_task, round_up(share == 0 ? 1 : share, tiles.rows));
  }
  const std::size_t tasks = (gradient.rows + rows_task - 1) / rows_task;
  parallel_for(context, tasks, [&](std::size_t index, std::size_t thread) {
    const std::size_t row = index * rows_task;
    compute_task({gradient, tiles, panels, group, row, least(gradient.rows, row + rows_task)},
                 thread_scratch(context, thread));
  });
}

}  // namespace

void linear_backward_weights(Context& context, std::size_t ranks, std::size_t rows, std::size_t N,
                             std::size_t K, const float* x, const float* dy, float* dw, float* db) {
  if (!std::has_single_bit(ranks)) fail("logical ranks must be a power of two");
  if (N == 0) return;
  const TileTable& table = tiles();
  const Panels panels(N, table);
  const std::size_t chain = ranks * rows;
  const bool few_panels = panels.count() <= kPanelsInPlace;
  const Blocks blocks = cut(ranks, rows, few_panels ? kStepsInPlace : kStepsBlock);
  const bool in_place = few_panels || chain <= kStepsInPlace;
  const Gradient gradient{chain, rows, K, N, x, dw, blocks, !in_place};
  const std::size_t width = table.lanes * table.vectors_max;
  std::size_t panels_group = chain == 0 ? panels.count() : kPackedFloats / (chain * width);
  if (panels_group == 0) panels_group = 1;
  for (std::size_t first = 0; first < panels.count(); first += panels_group) {
    const std::size_t end = least(panels.count(), first + panels_group);
    const std::size_t offset = panels.packed_size(first, chain);
    float* packed = shared_scratch(context).reserve(panels.packed_size(end, chain) - offset);
    parallel_for(context, end - first, [&](std::size_t index, std::size_t) {
      const Panel panel = panels[first + index];
      table.pack(dy + panel.first, N, chain, panel.columns, panel.vectors * table.lanes,
                 packed + (panels.packed_size(first + index, chain) - offset));
      if (db != nullptr) {
        vectors().bias_gradient(ranks, rows, N, panel.columns, dy + panel.first, db + panel.first);
      }
    });
    compute_group(context, gradient, table, panels, {first, end, packed});
  }
}

}  // namespace muster::kernels::cpu
