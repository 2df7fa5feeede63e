// dw = x^T dy and db, summed over logical ranks inside the register tile (no gradient per rank).
//
// The chain over all rows is cut into blocks, so that a panel of dy stays in the first cache.
#include <bit>
#include <cstring>

#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/rank_blocks.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

/// Columns of x are copied side by side first, or read in place: where few columns of dw share the
/// copying, and where tiles share lines evenly. There, a tile's lines of x stay in the second cache
/// until its neighbour wants their other half, so blocks may be long; with few columns, short,
/// within the first cache.
constexpr std::size_t kStepsCopied = 256;
constexpr std::size_t kStepsInPlace = 512;
constexpr std::size_t kStepsFewColumns = 128;
constexpr std::size_t kFewColumns = 96;
constexpr std::size_t kChainInPlaceMax = 1024;
/// Rows of x that lie a multiple of this apart share so few sets of the caches that they would
/// drive each other out.
constexpr std::size_t kUnluckyStride = 512;
constexpr std::size_t kChainUnluckyMax = 128;
constexpr std::size_t kLineFloats = 16;
/// Floats of x that are copied at once: with what they meet, a share of the last cache.
constexpr std::size_t kRowsFloats = std::size_t{1} << 20;

std::size_t in_place_max(std::size_t stride) {
  return stride % kUnluckyStride == 0 ? kChainUnluckyMax : kChainInPlaceMax;
}

struct Gradient {
  std::size_t chain;          // rows of all logical ranks
  std::size_t rank_rows;      // of one
  std::size_t rows, columns;  // of dw
  const float* x;
  const float* dy;
  float* dw;
  Blocks blocks;
  bool pack_rows;
  bool goes_on;  // the chains of the only logical rank begin with what dw holds
};

/// How many rows of dw are computed together.
std::size_t rows_at_once(std::size_t chain, const TileTable& tiles) {
  const std::size_t fit = kRowsFloats / (chain == 0 ? 1 : chain) / tiles.rows * tiles.rows;
  return fit == 0 ? tiles.rows : fit;
}

/// Rows of dw that are computed together, and the columns of x that are copied for them.
struct Work {
  const Gradient& gradient;
  const TileTable& tiles;
  std::size_t row_begin, row_end;
  const float* packed;
};

/// Tiles whose columns of x are copied in one pass: their lines and pages are the same.
constexpr std::size_t kTilesAtOnce = 2;

/// Copies the columns of `tiles` whole tiles, those of each side by side.
template <std::size_t kRows>
void copy_rows(const float* from, std::size_t stride, std::size_t steps, std::size_t tiles,
               float* out) {
  for (std::size_t step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < tiles; ++i) {
      std::memcpy(out + (i * steps + step) * kRows, from + i * kRows, kRows * sizeof(float));
    }
    from += stride;
  }
}

/// The columns of x that tiles need for some steps; +0 where x has no more.
void pack_tiles(const Gradient& gradient, std::size_t tile_rows, std::size_t row,
                std::size_t row_end, std::size_t step, std::size_t steps, float* out) {
  const std::size_t whole = (row_end - row) / tile_rows;
  const float* from = gradient.x + step * gradient.rows + row;
  if (tile_rows == 8) {
    copy_rows<8>(from, gradient.rows, steps, whole, out);
  } else if (tile_rows == 6) {
    copy_rows<6>(from, gradient.rows, steps, whole, out);
  } else {
    copy_rows<4>(from, gradient.rows, steps, whole, out);
  }
  const std::size_t rest = row_end - row - whole * tile_rows;
  if (rest == 0) return;
  from += whole * tile_rows;
  out += whole * tile_rows * steps;
  for (std::size_t k = 0; k < steps; ++k) {
    for (std::size_t i = 0; i < tile_rows; ++i) out[i] = i < rest ? from[i] : 0.0F;
    from += gradient.rows;
    out += tile_rows;
  }
}

/// Rows [row_begin, row_end) of dw, within those of work, in one panel.
struct Part {
  Panel panel;
  std::size_t row_begin, row_end;
};

void compute_piece(const Work& work, const Part& part, const Piece& piece, float* packed,
                   const Slots& slots, const Ahead& ahead) {
  const Gradient& gradient = work.gradient;
  const TileTable& tiles = work.tiles;
  Tile tile{};
  const std::size_t width = part.panel.vectors * tiles.lanes;
  tile.b = packed;
  tile.b_stride = width;
  const float* dy = gradient.dy + piece.step * gradient.columns + part.panel.first;
  if (part.panel.columns == width) {
    tile.b = dy;
    tile.b_stride = gradient.columns;
    tile.b_copy = packed;
  } else {
    tiles.pack(dy, gradient.columns, piece.steps * gradient.blocks.ranks, part.panel.columns, width,
               packed);
  }
  tile.steps = piece.steps;
  tile.ranks = gradient.blocks.ranks;
  tile.c_stride = gradient.columns;
  tile.next_stride = gradient.columns;
  tile.columns = part.panel.columns;
  const std::size_t packed_rows =
      gradient.pack_rows ? round_up(work.row_end - work.row_begin, tiles.rows) : tiles.rows;
  const std::size_t count = (part.row_end - part.row_begin + tiles.rows - 1) / tiles.rows;
  std::size_t index = 0;
  for (std::size_t row = part.row_begin; row < part.row_end; row += tiles.rows) {
    tile.rows = least(tiles.rows, part.row_end - row);
    if (gradient.pack_rows || tile.rows < tiles.rows) {
      const std::size_t first = gradient.pack_rows ? row - work.row_begin : 0;
      tile.a = work.packed + piece.step * packed_rows + first * piece.steps * tile.ranks;
      tile.a_stride = tiles.rows;
    } else {
      tile.a = gradient.x + piece.step * gradient.rows + row;
      tile.a_stride = gradient.rows;
    }
    tile.c = gradient.dw + row * gradient.columns + part.panel.first;
    const Links links = slots.links(gradient.blocks, piece, index);
    tile.from = links.from;
    tile.left = links.left;
    tile.left_stride = slots.stride;
    tile.lefts = links.lefts;
    tile.to = links.to;
    tile.reload = gradient.goes_on && piece.part == 0;
    ahead.share(index++, count, tile);
    const bool more = tile.to == nullptr && row + 2 * tiles.rows <= part.row_end;
    tile.next = more ? tile.c + tiles.rows * gradient.columns : nullptr;
    tiles.by_columns[part.panel.vectors - 1](tile);
    tile.b = packed;
    tile.b_stride = width;
    tile.b_copy = nullptr;
  }
}

/// What of dy is packed after `piece`: the next piece of its panel, or the first of the next panel.
Ahead packed_after(const Gradient& gradient, const Panel& panel, const Piece& piece) {
  const Blocks& blocks = gradient.blocks;
  std::size_t index = piece.block * blocks.parts + piece.part + 1;
  std::size_t column = panel.first;
  if (index == blocks.count * blocks.parts) {
    index = 0;
    column += panel.columns;
  }
  if (column == gradient.columns) return {};
  const Piece next =
      piece_of(blocks, gradient.rank_rows, index / blocks.parts, index % blocks.parts);
  return {gradient.dy + next.step * gradient.columns + column, next.steps * blocks.ranks,
          least(panel.columns, gradient.columns - column), gradient.columns};
}

/// Packs each block of the panel of dy, where it can while its first tile multiplies, and uses it
/// at once, while it is in the first cache.
void compute_part(const Work& work, const Part& part, Scratch& scratch) {
  const Gradient& gradient = work.gradient;
  const Blocks& blocks = gradient.blocks;
  const TileTable& tiles = work.tiles;
  const std::size_t width = part.panel.vectors * tiles.lanes;
  const std::size_t row_tiles = (part.row_end - part.row_begin + tiles.rows - 1) / tiles.rows;
  Slots slots{};
  slots.cells = tiles.rows * width;
  slots.stride = slots.cells * row_tiles;
  const std::size_t packed_size = round_up(blocks.ranks * blocks.length * width, 16);
  float* packed = scratch.reserve(packed_size + Slots::count(blocks) * slots.stride);
  slots.base = packed + packed_size;
  for (std::size_t block = 0; block < blocks.count; ++block) {
    for (std::size_t i = 0; i < blocks.parts; ++i) {
      const Piece piece = piece_of(blocks, gradient.rank_rows, block, i);
      const Ahead ahead = packed_after(gradient, part.panel, piece);
      compute_piece(work, part, piece, packed, slots, ahead);
    }
  }
}

/// Copies what tiles cannot read in place: all columns of x, or those of the last tile. Piece after
/// piece, in each tile after tile: what is read in a row lies in a row, and tiles do not lie a
/// power of two apart.
const float* pack_x(Context& context, const Gradient& gradient, const TileTable& tiles,
                    std::size_t row_begin, std::size_t row_end) {
  const std::size_t rest = (row_end - row_begin) % tiles.rows;
  if (!gradient.pack_rows) {
    if (rest == 0) return nullptr;
    float* packed = shared_scratch(context).reserve(tiles.rows * gradient.chain);
    pack_tiles(gradient, tiles.rows, row_end - rest, row_end, 0, gradient.chain, packed);
    return packed;
  }
  const std::size_t rows = round_up(row_end - row_begin, tiles.rows);
  const Blocks& blocks = gradient.blocks;
  float* packed = shared_scratch(context).reserve(rows * gradient.chain);
  const std::size_t at_once = kTilesAtOnce * tiles.rows;
  parallel_for(context, (rows + at_once - 1) / at_once, [&](std::size_t index, std::size_t) {
    const std::size_t row = row_begin + index * at_once;
    for (std::size_t i = 0; i < blocks.count * blocks.parts; ++i) {
      const Piece piece = piece_of(blocks, gradient.rank_rows, i / blocks.parts, i % blocks.parts);
      const std::size_t steps = piece.steps * blocks.ranks;
      pack_tiles(gradient, tiles.rows, row, least(row_end, row + at_once), piece.step, steps,
                 packed + piece.step * rows + index * at_once * steps);
    }
  });
  return packed;
}

/// Shares panels, and where these are few also rows, out to the threads.
void compute_rows(Context& context, const Work& work, const Panels& panels) {
  const auto threads = static_cast<std::size_t>(context.threads());
  const std::size_t rows = work.row_end - work.row_begin;
  std::size_t cuts = 1;
  if (threads > 1) cuts = (3 * threads + panels.count() - 1) / panels.count();
  const std::size_t rows_part = round_up((rows + cuts - 1) / cuts, work.tiles.rows);
  const std::size_t parts = (rows + rows_part - 1) / rows_part;
  parallel_for(context, panels.count() * parts, [&](std::size_t index, std::size_t thread) {
    const std::size_t row = work.row_begin + index % parts * rows_part;
    compute_part(work, {panels[index / parts], row, least(work.row_end, row + rows_part)},
                 thread_scratch(context, thread));
  });
}

void weights_gradient(Context& context, std::size_t ranks, std::size_t rows, std::size_t N,
                      std::size_t K, const float* x, const float* dy, float* dw, bool goes_on) {
  if (context.products() == Products::kBfloat16) {
    return multiply_pairs(context, WeightsProduct{ranks, rows, K, N, x, dy, dw, goes_on});
  }
  const TileTable& table = tiles();
  const Panels panels(N, table);
  const std::size_t chain = ranks * rows;
  const bool few_columns = N <= kFewColumns;
  const bool in_place = few_columns || (kLineFloats % table.rows == 0 && chain <= in_place_max(K));
  const std::size_t steps_max = few_columns ? kStepsFewColumns
                                : in_place  ? kStepsInPlace
                                            : kStepsCopied;
  const Blocks blocks = cut_ranks(ranks, rows, steps_max);
  const Gradient gradient{chain, rows, K, N, x, dy, dw, blocks, !in_place, goes_on};
  const std::size_t rows_group = rows_at_once(chain, table);
  for (std::size_t row = 0; row < K; row += rows_group) {
    const std::size_t end = least(K, row + rows_group);
    const float* packed = pack_x(context, gradient, table, row, end);
    compute_rows(context, {gradient, table, row, end, packed}, panels);
  }
}

}  // namespace

std::size_t weights_scratch_bytes(std::size_t M, std::size_t K) {
  const TileTable& table = tiles();
  return least(round_up(K, table.rows), rows_at_once(M, table)) * M * sizeof(float);
}

void linear_backward_weights(Context& context, std::size_t ranks, std::size_t rows, std::size_t N,
                             std::size_t K, const float* x, const float* dy, float* dw, float* db) {
  if (!std::has_single_bit(ranks)) fail("logical ranks must be a power of two");
  if (N == 0) return;
  if (db != nullptr) {
    const Panels panels(N, tiles());
    parallel_for(context, panels.count(), [&](std::size_t index, std::size_t) {
      const Panel panel = panels[index];
      vectors().bias_gradient(ranks, rows, N, panel.columns, dy + panel.first, db + panel.first);
    });
  }
  weights_gradient(context, ranks, rows, N, K, x, dy, dw, false);
}

void linear_backward_weights_further(Context& context, std::size_t rows, std::size_t N,
                                     std::size_t K, const float* x, const float* dy, float* dw) {
  if (N == 0 || rows == 0) return;
  weights_gradient(context, 1, rows, N, K, x, dy, dw, true);
}

}  // namespace muster::kernels::cpu
