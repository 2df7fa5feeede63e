// Products of matrices inside attention, tile by tile: what its two passes share. A block of
// threads has a tile of 64 rows and 64 columns, a thread 8 rows and 4 columns of it. These columns
// lie 16 apart: they are the elements of one virtual lane of the reduction rule, so that half a
// warp sums its rows as they come.
//
// Both sides of a product go through shared memory as panels: a line holds one step of all rows or
// of all columns. Within a line columns are in the order in which threads take them (column_at).
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/exp_f32.h"
#include "kernels/cuda/four.h"
#include "kernels/cuda/row_sum.h"
#include "kernels/dropout.h"

namespace muster::kernels::cuda::attention_tiles {

inline constexpr unsigned kTile = 64;
/// Steps of a product that are in shared memory at once.
inline constexpr unsigned kSteps = 32;
inline constexpr unsigned kTileThreads = 128;
inline constexpr unsigned kTileRows = 8;     ///< of a thread
inline constexpr unsigned kTileColumns = 4;  ///< of a thread

/// What holds the values of a tile's rows or columns.
inline constexpr unsigned kFours = kTile / 4;
/// The last one is there so that lines begin in different banks.
using Line = Four[kFours + 1];

struct Panels {
  Line rows[kSteps];
  Line columns[kSteps];
};

/// What a thread has of a tile.
struct TilePart {
  float at[kTileRows][kTileColumns];
};

MUSTER_ON_DEVICE inline std::size_t tiles_of(std::size_t n) { return (n + kTile - 1) / kTile; }

/// Fours of scratch that a block needs for one weight of each row and position of its tile.
inline std::size_t weights_size(const cpu::AttentionShape& shape) {
  return tiles_of(shape.T) * kTile * kFours;
}

/// Blocks that each have `fours` of scratch and take tiles of all heads in turn: as many as a large
/// device runs at once, unless they would have too much memory.
inline unsigned blocks_with_scratch(const cpu::AttentionShape& shape, std::size_t fours) {
#ifdef MUSTER_CUDA_ON_HOST
  constexpr std::size_t kBlocks = 5;  // so that small tests have blocks with several tiles
#else
  constexpr std::size_t kBlocks = 528;
#endif
  constexpr std::size_t kMemory = std::size_t{1} << 25;  // in Fours: 512 MiB
  const std::size_t tiles = tiles_of(shape.T), all = shape.rows * shape.heads * tiles;
  std::size_t blocks = std::clamp<std::size_t>(kMemory / fours, 1, kBlocks);
  if (blocks >= all) return static_cast<unsigned>(all);
  // Later positions take longer: with one block less than a multiple of the tiles of a head, a
  // block has early and late ones in turn.
  if (blocks > tiles) blocks -= blocks % tiles + 1;
  return static_cast<unsigned>(blocks);
}

#if defined(__CUDACC__) || defined(MUSTER_CUDA_ON_HOST)

__device__ inline unsigned tile_lane() { return half_warp_lane(); }
/// The first of a thread's rows.
__device__ inline unsigned tile_row() { return threadIdx.x / kHalfWarp * kTileRows; }
__device__ inline unsigned tile_column(unsigned k) { return tile_lane() + k * kHalfWarp; }
/// The column at a place of a line.
__device__ inline unsigned column_at(unsigned place) {
  return place / kTileColumns + place % kTileColumns * kHalfWarp;
}

/// Of a thread's weights in a tile those that a dropout leaves: bit kTileColumns * r + k is that of
/// row r and column k.
class KeptWeights {
 public:
  __device__ bool has(unsigned r, unsigned k) const {
    return (bits_ >> (kTileColumns * r + k) & 1u) != 0;
  }
  __device__ void add(unsigned r, unsigned k, bool stays) {
    bits_ |= static_cast<std::uint32_t>(stays) << (kTileColumns * r + k);
  }

 private:
  std::uint32_t bits_ = 0;
};
static_assert(kTileRows * kTileColumns == 32 && kTileRows == kWeightsOfBlock);

/// The tile's rows are positions from `begin` on, its columns those that they meet, from `from` on.
/// A block of weights lies in one row with eight lanes, which draw four blocks each and hand on
/// what the others have of them. All of a warp call it.
__device__ inline KeptWeights kept_in_rows(const cpu::AttentionShape& shape,
                                           const cpu::WeightDrop& drop, std::size_t index,
                                           std::size_t begin, std::size_t from) {
  const unsigned place = tile_lane() % kWeightsOfBlock, first_lane = tile_lane() - place;
  // Of a lane: blocks of every second row, at the columns of one k.
  const unsigned own_k = place % kTileColumns, own_half = place / kTileColumns;
  const std::size_t column = from + first_lane + own_k * kHalfWarp;
  std::uint32_t drawn = 0;
  for (unsigned q = 0; q < kTileRows / 2; ++q) {
    const std::size_t row = begin + tile_row() + 2 * q + own_half;
    const std::uint64_t block =
        first_weights(drop, shape.T, index % shape.heads, row) + column / kWeightsOfBlock;
    const auto words = weight_words(drop, index / shape.heads, block);
    for (unsigned n = 0; n < kWeightsOfBlock; ++n) {
      drawn |= static_cast<std::uint32_t>(weight_stays(drop, words, n))
               << (q * kWeightsOfBlock + n);
    }
  }
  KeptWeights kept;
  for (unsigned half = 0; half < 2; ++half) {
    for (unsigned k = 0; k < kTileColumns; ++k) {
      const auto lane = static_cast<int>(first_lane + half * kTileColumns + k);
      const std::uint32_t blocks = __shfl_sync(kWholeWarp, drawn, lane, kHalfWarp);
      for (unsigned q = 0; q < kTileRows / 2; ++q) {
        kept.add(2 * q + half, k, (blocks >> (q * kWeightsOfBlock + place) & 1u) != 0);
      }
    }
  }
  return kept;
}

/// The other way round: the tile's columns are positions from `from` on, its rows those that they
/// meet, from `begin` on. A thread's rows are a block of weights.
__device__ inline KeptWeights kept_in_columns(const cpu::AttentionShape& shape,
                                              const cpu::WeightDrop& drop, std::size_t index,
                                              std::size_t begin, std::size_t from) {
  KeptWeights kept;
  for (unsigned k = 0; k < kTileColumns; ++k) {
    const std::uint64_t block =
        first_weights(drop, shape.T, index % shape.heads, from + tile_column(k)) +
        (begin + tile_row()) / kWeightsOfBlock;
    const auto words = weight_words(drop, index / shape.heads, block);
    for (unsigned r = 0; r < kTileRows; ++r) kept.add(r, k, weight_stays(drop, words, r));
  }
  return kept;
}

__device__ inline void keep(const cpu::WeightDrop& drop, const KeptWeights& kept, TilePart& part) {
  for (unsigned r = 0; r < kTileRows; ++r) {
    for (unsigned k = 0; k < kTileColumns; ++k) {
      part.at[r][k] = dropped_weight(drop, kept.has(r, k), part.at[r][k]);
    }
  }
}

/// Where a thread's Four of weights is: these lie by column, then by row.
__device__ inline std::size_t four_of(unsigned k, unsigned half) {
  return tile_column(k) * kFours + tile_row() / 4 + half;
}

/// The thread's part, of column k rows 4 * half and on.
__device__ inline Four four_in(const TilePart& part, unsigned k, unsigned half) {
  Four four;
  for (unsigned i = 0; i < 4; ++i) four.at[i] = part.at[half * 4 + i][k];
  return four;
}

/// The weights of a tile are at weights[four_of()].
__device__ inline void put(const TilePart& part, Four* weights) {
  for (unsigned k = 0; k < kTileColumns; ++k) {
    for (unsigned half = 0; half < 2; ++half) weights[four_of(k, half)] = four_in(part, k, half);
  }
}

/// lines[column] = the column's values.
__device__ inline void put_lines(const TilePart& part, Line* lines) {
  for (unsigned k = 0; k < kTileColumns; ++k) {
    for (unsigned half = 0; half < 2; ++half) {
      lines[tile_column(k)][tile_row() / 4 + half] = four_in(part, k, half);
    }
  }
}

__device__ inline TilePart get(const Four* weights) {
  TilePart part;
  for (unsigned k = 0; k < kTileColumns; ++k) {
    for (unsigned half = 0; half < 2; ++half) {
      const Four four = weights[four_of(k, half)];
      for (unsigned i = 0; i < 4; ++i) part.at[half * 4 + i][k] = four.at[i];
    }
  }
  return part;
}

/// Rows of a head from `begin` on, of which there are T of D values.
struct TileRows {
  cpu::Rows<const float> of;
  std::size_t begin;
};

/// lines[s] = value `step` + s of rows row_at(place) of the tile; where there is none, another one.
template <typename RowAt>
__device__ void load_transposed(const cpu::AttentionShape& shape, const TileRows& rows,
                                std::size_t step, RowAt row_at, Line* lines) {
  // A warp takes 8 steps of 4 places at once: these lie in different banks.
  const unsigned s = threadIdx.x / kWarp * 8 + threadIdx.x % 8, part = threadIdx.x / 8 % 4;
  const float* const value = rows.of[rows.begin] + std::min(step + s, shape.D - 1);
  const auto last = static_cast<unsigned>(std::min<std::size_t>(shape.T - rows.begin, kTile)) - 1;
  // A product of 32 bits each is one instruction.
  const auto stride = static_cast<unsigned>(rows.of.stride);
  for (unsigned four = 0; four < kFours; ++four) {
    const unsigned row = std::min(row_at(four * 4 + part), last);
    lines[s][four].at[part] = value[std::size_t{row} * stride];
  }
}

/// lines[s] = columns `first` and on of row `step` + s; where there is none, another one.
__device__ inline void load_columns(cpu::Rows<const float> from, std::size_t step, unsigned steps,
                                    std::size_t first, std::size_t columns, Line* lines) {
  constexpr unsigned kAtOnce = kTileThreads / kTile;
  const unsigned place = threadIdx.x % kTile;
  const float* const value = from[step] + std::min(first + column_at(place), columns - 1);
  const auto stride = static_cast<unsigned>(from.stride);
  for (unsigned begin = 0; begin < kSteps; begin += kAtOnce) {
    const unsigned s = begin + threadIdx.x / kTile;
    lines[s][place / 4].at[place % 4] = value[std::size_t{std::min(s, steps - 1)} * stride];
  }
}

/// One more of each chain for each of `steps` lines, where takes(s, row of the tile).
template <typename Takes>
__device__ void multiply(const Line* rows, const Line* columns, unsigned steps, Takes takes,
                         TilePart& sums) {
  const unsigned row = tile_row();
  for (unsigned s = 0; s < steps; ++s) {
    const Four a[2] = {rows[s][row / 4], rows[s][row / 4 + 1]};
    const Four b = columns[s][tile_lane()];
    for (unsigned r = 0; r < kTileRows; ++r) {
      if (!takes(s, row + r)) continue;
      for (unsigned k = 0; k < kTileColumns; ++k) {
        sums.at[r][k] = __fmaf_rn(a[r / 4].at[r % 4], b.at[k], sums.at[r][k]);
      }
    }
  }
}

__device__ inline void multiply(const Line* rows, const Line* columns, unsigned steps,
                                TilePart& sums) {
  multiply(rows, columns, steps, [](unsigned, unsigned) { return true; }, sums);
}

__device__ inline unsigned steps_at(std::size_t step, std::size_t end) {
  return static_cast<unsigned>(std::min<std::size_t>(end - step, kSteps));
}

/// The chains over d of fma(rows[i][d], columns[j][d], acc), i a row and j a column of the tile.
__device__ inline TilePart multiply_rows(const cpu::AttentionShape& shape, const TileRows& rows,
                                         const TileRows& columns, Panels& panels) {
  TilePart sums = {};
  for (std::size_t step = 0; step < shape.D; step += kSteps) {
    load_transposed(shape, rows, step, [](unsigned place) { return place; }, panels.rows);
    load_transposed(shape, columns, step, column_at, panels.columns);
    __syncthreads();
    multiply(panels.rows, panels.columns, steps_at(step, shape.D), sums);
    __syncthreads();
  }
  return sums;
}

/// to[i] of the tile at column `first`, where there are such.
__device__ inline void store(const cpu::AttentionShape& shape, const TilePart& part,
                             std::size_t begin, std::size_t first, cpu::Rows<float> to) {
  for (unsigned r = 0; r < kTileRows; ++r) {
    const std::size_t i = begin + tile_row() + r;
    for (unsigned k = 0; k < kTileColumns; ++k) {
      const std::size_t column = first + tile_column(k);
      if (i < shape.T && column < shape.D) to[i][column] = part.at[r][k];
    }
  }
}

/// to[i] = the chain over j <= i of fma(weight of i and j, right[j], acc), i a row of the tile at
/// `begin`; weight(n) is Four number n of the weights (four_of).
template <typename Weight>
__device__ void weigh_rows(const cpu::AttentionShape& shape, std::size_t begin, Weight weight,
                           cpu::Rows<const float> right, cpu::Rows<float> to, Panels& panels) {
  const std::size_t end = std::min(begin + kTile, shape.T);
  for (std::size_t first = 0; first < shape.D; first += kTile) {
    TilePart sums = {};
    for (std::size_t step = 0; step < end; step += kSteps) {
      const unsigned steps = steps_at(step, end);
      for (unsigned begun = 0; begun < kSteps * kFours; begun += kTileThreads) {
        const unsigned n = begun + threadIdx.x;
        if (n < steps * kFours) panels.rows[n / kFours][n % kFours] = weight(step * kFours + n);
      }
      load_columns(right, step, steps, first, shape.D, panels.columns);
      __syncthreads();
      if (step < begin) {
        multiply(panels.rows, panels.columns, steps, sums);
      } else {
        const auto offset = static_cast<unsigned>(step - begin);
        const auto takes = [&](unsigned s, unsigned row) { return offset + s <= row; };
        multiply(panels.rows, panels.columns, steps, takes, sums);
      }
      __syncthreads();
    }
    store(shape, sums, begin, first, to);
  }
}

/// Sums of the rows of a tile by the reduction rule, of terms that come tile by tile of columns.
class RowSums {
 public:
  /// `tree`: of the thread, over the blocks of one row. It is apart from the lanes, because these
  /// can be in registers.
  __device__ explicit RowSums(cpu::TreeSum& tree) : tree_(tree) {}
  /// `begin`: the first column, a multiple of kTile. Terms that are not there are +0, which changes
  /// no sum: none is ever -0. All of a warp call it.
  __device__ void add(const TilePart& terms, std::size_t begin) {
    for (unsigned r = 0; r < kTileRows; ++r) {
      for (unsigned k = 0; k < kTileColumns; ++k) lanes_[r] = lanes_[r] + terms.at[r][k];
    }
    is_open_ = (begin + kTile) % kBlockElements != 0;
    if (!is_open_) end_block();
  }
  /// Lane r has the sum of the thread's row r, for r < kTileRows. All of a warp call it.
  __device__ float finish() {
    if (is_open_) end_block();
    return tree_.finish();
  }

 private:
  __device__ void end_block() {
    float own = 0.0F;
    for (unsigned r = 0; r < kTileRows; ++r) {
      const float sum = half_warp_sum(lanes_[r]);
      own = tile_lane() == r ? sum : own;
      lanes_[r] = 0.0F;
    }
    tree_.push(own);
  }
  float lanes_[kTileRows] = {};
  bool is_open_ = false;
  cpu::TreeSum& tree_;
};

#endif

}  // namespace muster::kernels::cuda::attention_tiles
