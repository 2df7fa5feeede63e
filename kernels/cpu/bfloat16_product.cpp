// Products of matrices rounded to bfloat16. The right matrix is packed into panels of pairs that
// all threads share, of the left one each task packs what it multiplies.
#include "kernels/cpu/bfloat16.h"

#include <bit>
#include <cstring>

#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/rank_blocks.h"

namespace muster::kernels::cpu {
namespace {

/// Steps of a chain before the next tile takes its turn, so that a panel and the rows it meets stay
/// in the second cache.
constexpr std::size_t kStepsBlock = 1024;
/// Steps whose columns are turned into rows at once: what is read and written stays in the first
/// cache.
constexpr std::size_t kStepsTurned = 256;
/// Steps of the gradient of weights of which a panel lies packed.
constexpr std::size_t kStepsOfWeights = 2048;

std::size_t pairs_of(std::size_t steps) { return (steps + 1) / 2; }

Pair* reserve_pairs(Scratch& scratch, std::size_t count) {
  return reinterpret_cast<Pair*>(scratch.reserve(count));
}

/// Words side by side in packed pairs: those that are there, with +0 behind them; and how far apart
/// pairs lie.
struct Line {
  std::size_t columns, padded, stride;
};

/// Rows [steps) of values, `stride` apart, in pairs.
void pack_rows(const PairTable& table, const float* from, std::size_t stride, Range steps,
               const Line& line, Pair fill, Pair* out) {
  for (std::size_t k = steps.begin; k < steps.end; k += 2) {
    const float* first = from + k * stride;
    const float* second = k + 1 < steps.end ? first + stride : nullptr;
    table.pack_across(first, second, line.columns, fill, out);
    for (std::size_t j = line.columns; j < line.padded; ++j) out[j] = 0;
    out += line.stride;
  }
}

/// One word for both steps of each pair becomes a float for each (PairTable::left_words).
void take_apart(const Pair* pairs, std::size_t count, Pair* first, Pair* second) {
  for (std::size_t i = 0; i < count; ++i) {
    first[i] = pairs[i] & 0xFFFF0000U;
    second[i] = pairs[i] << 16;
  }
}

/// The same of a matrix that has a row for each column, `stride` apart.
void pack_columns(const PairTable& table, const float* from, std::size_t stride, std::size_t steps,
                  std::size_t columns, std::size_t width, Scratch& scratch, Pair* out) {
  Pair* rows = reserve_pairs(scratch, columns * kStepsTurned / 2);
  for (std::size_t k = 0; k < steps; k += kStepsTurned) {
    const std::size_t some = least(kStepsTurned, steps - k);
    const std::size_t pairs = pairs_of(some);
    for (std::size_t j = 0; j < columns; ++j) {
      table.pack_along(from + j * stride + k, some, kRightFill, rows + j * pairs);
    }
    tiles().pack_transposed(reinterpret_cast<const float*>(rows), pairs, pairs, columns, width,
                            reinterpret_cast<float*>(out + k / 2 * width));
  }
}

/// Where a tile's sums are made: in the matrix, or beside it where the tile is at its edge.
class Cells {
 public:
  Cells(const PairTable& table, float* at, std::size_t stride, std::size_t rows, const Panel& panel)
      : at_(at),
        stride_(stride),
        rows_(rows),
        columns_(panel.columns),
        width_(panel.vectors * table.lanes) {
    whole_ = rows == table.rows && columns_ == width_;
  }

  void sum(PairTileFunction function, PairTile& tile) {
    tile.sums = whole_ ? at_ : edge_;
    tile.sums_stride = whole_ ? stride_ : width_;
    if (!whole_ && tile.goes_on) copy_in(edge_);
    function(tile);
    if (!whole_) copy_out(edge_);
  }

  /// To and from rows of width floats side by side.
  void copy_in(float* to) const {
    for (std::size_t i = 0; i < rows_; ++i) {
      for (std::size_t j = 0; j < columns_; ++j) to[i * width_ + j] = at_[i * stride_ + j];
    }
  }
  void copy_out(const float* from) const {
    for (std::size_t i = 0; i < rows_; ++i) {
      for (std::size_t j = 0; j < columns_; ++j) at_[i * stride_ + j] = from[i * width_ + j];
    }
  }

 private:
  float* at_;
  std::size_t stride_;
  std::size_t rows_, columns_, width_;
  bool whole_;
  alignas(64) float edge_[kTileRowsMax * kTileColumnsMax];
};

/// Bias, activation and mask, once the chains are complete.
void finish(const Product& product, std::size_t row, std::size_t rows, const Panel& panel) {
  for (std::size_t i = row; i < row + rows; ++i) {
    const std::size_t at = i * product.columns + panel.first;
    float* c = product.c + at;
    if (product.bias != nullptr) {
      const float* bias = product.bias + panel.first;
      for (std::size_t j = 0; j < panel.columns; ++j) c[j] = c[j] + bias[j];
    }
    if (product.relu) {
      for (std::size_t j = 0; j < panel.columns; ++j) c[j] = c[j] > 0.0F ? c[j] : 0.0F;
    }
    if (product.mask != nullptr) {
      const float* mask = product.mask + at;
      for (std::size_t j = 0; j < panel.columns; ++j) c[j] = mask[j] > 0.0F ? c[j] : 0.0F;
    }
  }
}

/// Panels of the right matrix from the first of a group on, packed.
struct Packed {
  const Panels& panels;
  std::size_t first;
  Pair* data;
  std::size_t pairs;
  Pair* panel(std::size_t index) const {
    return data + (panels.packed_size(index, pairs) - panels.packed_size(first, pairs));
  }
};

void pack_panel(const PairTable& table, const Product& product, const Panel& panel,
                Scratch& scratch, Pair* out) {
  const std::size_t width = panel.vectors * table.lanes;
  if (product.transposed) {
    pack_columns(table, product.b + panel.first * product.b_stride, product.b_stride, product.steps,
                 panel.columns, width, scratch, out);
  } else {
    pack_rows(table, product.b + panel.first, product.b_stride, {0, product.steps},
              {panel.columns, width, width}, kRightFill, out);
  }
}

/// Steps of a row of the left matrix, the second words of its pairs behind all the first.
void pack_left_row(const PairTable& table, const float* from, std::size_t steps, Pair* out) {
  if (table.left_words == 1) return table.pack_along(from, steps, kLeftFill, out);
  Pair packed[kStepsBlock / 2];
  table.pack_along(from, steps, kLeftFill, packed);
  take_apart(packed, pairs_of(steps), out, out + pairs_of(steps));
}

/// Some steps of the rows of a share.
void compute_share(const PairTable& table, const Product& product, const Packed& right,
                   const Share& share, Range steps, Scratch& scratch) {
  const std::size_t pairs = pairs_of(steps.end - steps.begin);
  const std::size_t stride = pairs * table.left_words;
  Pair* left = reserve_pairs(scratch, (share.rows.end - share.rows.begin) * stride);
  for (std::size_t row = share.rows.begin; row < share.rows.end; ++row) {
    pack_left_row(table, product.a + row * product.a_stride + steps.begin, steps.end - steps.begin,
                  left + (row - share.rows.begin) * stride);
  }
  PairTile tile{};
  tile.a_stride = stride;
  tile.a_low = pairs;
  tile.pairs = pairs;
  tile.goes_on = product.goes_on || steps.begin != 0;
  for (std::size_t index = share.panels.begin; index < share.panels.end; ++index) {
    const Panel panel = right.panels[index];
    tile.b = right.panel(index) + steps.begin / 2 * panel.vectors * table.lanes;
    for (std::size_t row = share.rows.begin; row < share.rows.end; row += table.rows) {
      tile.a = left + (row - share.rows.begin) * stride;
      tile.rows = least(table.rows, share.rows.end - row);
      Cells cells(table, product.c + row * product.columns + panel.first, product.columns,
                  tile.rows, panel);
      cells.sum(table.by_rows[panel.vectors - 1], tile);
      if (steps.end == product.steps) finish(product, row, tile.rows, panel);
    }
  }
}

/// The pieces of the sum over rows and ranks, and where their pairs lie packed: a chain of an odd
/// number of steps takes a pair more than half of them.
class Pieces {
 public:
  explicit Pieces(const WeightsProduct& product)
      : blocks_(cut_ranks(product.ranks, product.rank_rows, kStepsOfWeights)),
        rank_rows_(product.rank_rows) {
    const std::size_t last = rank_rows_ - (blocks_.parts - 1) * blocks_.length;
    of_block_ = blocks_.ranks * ((blocks_.parts - 1) * pairs_of(blocks_.length) + pairs_of(last));
  }
  const Blocks& blocks() const { return blocks_; }
  std::size_t count() const { return blocks_.count * blocks_.parts; }
  std::size_t ranks() const { return blocks_.ranks; }
  Piece operator[](std::size_t index) const {
    return piece_of(blocks_, rank_rows_, index / blocks_.parts, index % blocks_.parts);
  }
  std::size_t pairs() const { return blocks_.count * of_block_; }
  std::size_t pairs_before(const Piece& piece) const {
    return piece.block * of_block_ + piece.part * pairs_of(blocks_.length);
  }
  /// Of one piece, at most.
  std::size_t pairs_max() const { return blocks_.ranks * pairs_of(blocks_.length); }

 private:
  Blocks blocks_;
  std::size_t rank_rows_;
  std::size_t of_block_;
};

/// Rows of dw whose columns of x lie packed, those of a tile side by side: a tile reads on, and not
/// a line here and there.
struct Left {
  std::size_t first;       // row
  std::size_t pair_words;  // of a tile
  std::size_t tile_words;
  const Pair* data;
};

/// One tile of dw: the chains of a piece's ranks, summed on the tree, and what lies to their left.
void sum_ranks_of_tile(const PairTable& table, PairTile tile, std::size_t ranks,
                       std::size_t vector_count, const Links& links, std::size_t slot_stride,
                       const Cells& cells) {
  const std::size_t width = vector_count * table.lanes;
  const std::size_t size = table.rows * width;
  alignas(64) float stack[kTreeDepthMax][kTileRowsMax * kTileColumnsMax];
  const VectorTable& loops = vectors();
  std::size_t depth = 0;
  const Pair* a = tile.a;
  const Pair* b = tile.b;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    float* sums = stack[depth];
    if (links.from != nullptr) std::memcpy(sums, links.from, size * sizeof(float));
    if (links.from == nullptr && tile.goes_on) cells.copy_in(sums);
    tile.sums = sums;
    tile.sums_stride = width;
    tile.a = a + rank * tile.pairs * tile.a_stride;
    tile.b = b + rank * tile.pairs * width;
    tile.goes_on = links.from != nullptr || tile.goes_on;
    table.by_columns[vector_count - 1](tile);
    for (std::size_t bits = rank; (bits & 1) != 0; bits >>= 1) {
      --depth;
      loops.add(stack[depth], stack[depth + 1], size, stack[depth]);
    }
    ++depth;
  }
  for (std::size_t i = 0; i < links.lefts; ++i) {
    loops.add(links.left - i * slot_stride, stack[0], size, stack[0]);
  }
  if (links.to != nullptr) {
    std::memcpy(links.to, stack[0], size * sizeof(float));
  } else {
    cells.copy_out(stack[0]);
  }
}

/// Columns of x that are packed at a time, so that all threads take part: whole tiles.
constexpr std::size_t kColumnsAtOnce = 256;
static_assert(kColumnsAtOnce % kTileRowsMax == 0);

/// Steps of columns of x for the tiles that hold them, `tile_words` apart.
void pack_left_columns(const PairTable& table, const float* from, std::size_t stride, Range steps,
                       std::size_t columns, std::size_t tile_words, Pair* out) {
  Pair packed[kColumnsAtOnce];
  const Line line{columns, round_up(columns, table.rows), kColumnsAtOnce};
  for (std::size_t k = steps.begin; k < steps.end; k += 2) {
    pack_rows(table, from, stride, {k, least(k + 2, steps.end)}, line, kLeftFill, packed);
    Pair* to = out;
    for (std::size_t i = 0; i < line.padded; i += table.rows, to += tile_words) {
      if (table.left_words == 1) {
        std::memcpy(to, packed + i, table.rows * sizeof(Pair));
      } else {
        take_apart(packed + i, table.rows, to, to + table.rows);
      }
    }
    out += table.rows * table.left_words;
  }
}

Left pack_left(Context& context, const PairTable& table, const WeightsProduct& product,
               const Pieces& pieces, Range rows) {
  const std::size_t columns = rows.end - rows.begin;
  const std::size_t pair_words = table.rows * table.left_words;
  const std::size_t tile_words = pieces.pairs() * pair_words;
  const std::size_t row_tiles = (columns + table.rows - 1) / table.rows;
  Pair* packed = reserve_pairs(shared_scratch(context), row_tiles * tile_words);
  const std::size_t cuts = (columns + kColumnsAtOnce - 1) / kColumnsAtOnce;
  parallel_for(context, pieces.count() * pieces.ranks() * cuts,
               [&](std::size_t index, std::size_t) {
                 const std::size_t column = index % cuts * kColumnsAtOnce;
                 const std::size_t rank = index / cuts % pieces.ranks();
                 const Piece piece = pieces[index / cuts / pieces.ranks()];
                 const std::size_t step = piece.step + rank * piece.steps;
                 const std::size_t pair = pieces.pairs_before(piece) + rank * pairs_of(piece.steps);
                 pack_left_columns(table, product.x + rows.begin + column, product.rows,
                                   {step, step + piece.steps},
                                   least(kColumnsAtOnce, columns - column), tile_words,
                                   packed + column / table.rows * tile_words + pair * pair_words);
               });
  return {rows.begin, pair_words, tile_words, packed};
}

/// Some rows of dw in one panel.
void compute_weights(const PairTable& table, const WeightsProduct& product, const Pieces& pieces,
                     const Left& left, Range rows, const Panel& panel, Scratch& scratch) {
  const std::size_t width = panel.vectors * table.lanes;
  const std::size_t row_tiles = (rows.end - rows.begin + table.rows - 1) / table.rows;
  const std::size_t packed_size = round_up(pieces.pairs_max() * width, 16);
  Slots slots{};
  slots.cells = table.rows * width;
  slots.stride = slots.cells * row_tiles;
  float* memory = scratch.reserve(packed_size + Slots::count(pieces.blocks()) * slots.stride);
  Pair* packed = reinterpret_cast<Pair*>(memory);
  slots.base = memory + packed_size;
  for (std::size_t index = 0; index < pieces.count(); ++index) {
    const Piece piece = pieces[index];
    PairTile tile{};
    tile.pairs = pairs_of(piece.steps);
    for (std::size_t rank = 0; rank < pieces.ranks(); ++rank) {
      const std::size_t step = piece.step + rank * piece.steps;
      pack_rows(table, product.dy + panel.first, product.columns, {step, step + piece.steps},
                {panel.columns, width, width}, kRightFill, packed + rank * tile.pairs * width);
    }
    tile.b = packed;
    tile.a_stride = left.pair_words;
    tile.a_low = table.rows;
    tile.goes_on = product.goes_on && piece.part == 0;
    for (std::size_t i = 0; i < row_tiles; ++i) {
      const std::size_t row = rows.begin + i * table.rows;
      tile.a = left.data + (row - left.first) / table.rows * left.tile_words +
               pieces.pairs_before(piece) * left.pair_words;
      tile.rows = table.rows;
      const Cells cells(table, product.dw + row * product.columns + panel.first, product.columns,
                        least(table.rows, rows.end - row), panel);
      const Links links = slots.links(pieces.blocks(), piece, i);
      sum_ranks_of_tile(table, tile, pieces.ranks(), panel.vectors, links, slots.stride, cells);
    }
  }
}

}  // namespace

void multiply_pairs(Context& context, const Product& product) {
  const PairTable& table = pairs();
  const Panels panels(product.columns, table);
  const std::size_t pairs = pairs_of(product.steps);
  const std::size_t panel_words = least(pairs, kPackedFloats) * table.lanes * table.vectors_max;
  const std::size_t fit = panel_words == 0 ? panels.count() : kPackedFloats / panel_words;
  const std::size_t at_once = fit == 0 ? 1 : fit;
  const StepBlocks blocks(product.steps, kStepsBlock);
  const std::size_t rows_max =
      rows_of_task(second_cache_floats() / 2,
                   pairs_of(least(product.steps, kStepsBlock)) * table.left_words, table.rows);
  for (std::size_t first = 0; first < panels.count(); first += at_once) {
    const Range group{first, least(panels.count(), first + at_once)};
    const std::size_t words =
        panels.packed_size(group.end, pairs) - panels.packed_size(group.begin, pairs);
    const Packed right{panels, first, reserve_pairs(shared_scratch(context), words), pairs};
    parallel_for(context, group.end - group.begin, [&](std::size_t i, std::size_t thread) {
      pack_panel(table, product, panels[first + i], thread_scratch(context, thread),
                 right.panel(first + i));
    });
    const Shares shares(static_cast<std::size_t>(context.threads()), product.rows, table.rows,
                        rows_max, group);
    parallel_for(context, shares.count(), [&](std::size_t index, std::size_t thread) {
      for (std::size_t block = 0; block < blocks.count(); ++block) {
        compute_share(table, product, right, shares[index], blocks.range(block),
                      thread_scratch(context, thread));
      }
    });
  }
}

void multiply_pairs(Context& context, const WeightsProduct& product) {
  const PairTable& table = pairs();
  const Panels panels(product.columns, table);
  const Pieces pieces(product);
  const std::size_t fit =
      kPackedFloats / (pieces.pairs() * table.left_words + 1) / table.rows * table.rows;
  const std::size_t rows_group = fit == 0 ? table.rows : fit;
  const auto threads = static_cast<std::size_t>(context.threads());
  const std::size_t cuts = threads == 1 ? 1 : (3 * threads + panels.count() - 1) / panels.count();
  for (std::size_t row = 0; row < product.rows; row += rows_group) {
    const Range rows{row, least(product.rows, row + rows_group)};
    const Left left = pack_left(context, table, product, pieces, rows);
    const std::size_t part = round_up((rows.end - rows.begin + cuts - 1) / cuts, table.rows);
    const std::size_t parts = (rows.end - rows.begin + part - 1) / part;
    parallel_for(context, panels.count() * parts, [&](std::size_t index, std::size_t thread) {
      const std::size_t begin = row + index % parts * part;
      compute_weights(table, product, pieces, left, {begin, least(rows.end, begin + part)},
                      panels[index / parts], thread_scratch(context, thread));
    });
  }
}

}  // namespace muster::kernels::cpu
