// Two kernels: one has a tile of queries and goes through the keys, for r and dq; the other has a
// tile of keys and goes through the queries, for dk and dv. Both make p and dp again.
#include "kernels/cuda/attention_tiles.h"

namespace muster::kernels::cuda {

using namespace attention_tiles;

namespace {

struct Arguments {
  cpu::AttentionShape shape;
  const float* qkv;
  float scale;
  cpu::WeightDrop drop;
  const float *greatest, *total, *dy;
  float *r, *dqkv;  ///< r: as greatest
};

/// What the positions of a tile of queries have.
struct QueryValues {
  float greatest[kTile], total[kTile], r[kTile];
};

/// Values of the tile at `begin`; of positions that are not there those of the last. A barrier must
/// follow.
__device__ void load_values(const float* from, std::size_t begin, std::size_t T, float* values) {
  if (threadIdx.x < kTile) values[threadIdx.x] = from[std::min(begin + threadIdx.x, T - 1)];
}

__device__ float probability(float product, float scale, float greatest, float total) {
  return __fdiv_rn(cpu::exp_one(__fsub_rn(__fmul_rn(product, scale), greatest)), total);
}

__device__ float score_gradient(float p, float dp, float r, float scale) {
  return __fmul_rn(__fmul_rn(p, __fsub_rn(dp, r)), scale);
}

/// p and dp, as a dropout leaves it, of the tile's rows go to `weights` and `gradients`, r to
/// values.
template <bool kDrops>
__device__ void make_rows(const Arguments& of, std::size_t index, std::size_t begin, Panels& panels,
                          QueryValues& values, Four* weights, Four* gradients) {
  const cpu::Head<const float> head(of.shape, index, of.qkv);
  const cpu::Rows<const float> dy = cpu::output_of(of.shape, index, of.dy);
  load_values(of.greatest + index * of.shape.T, begin, of.shape.T, values.greatest);
  load_values(of.total + index * of.shape.T, begin, of.shape.T, values.total);
  cpu::TreeSum tree;
  RowSums sums(tree);
  for (std::size_t from = 0; from <= begin; from += kTile) {
    TilePart p = multiply_rows(of.shape, {head.query, begin}, {head.key, from}, panels);
    for (unsigned r = 0; r < kTileRows; ++r) {
      const unsigned row = tile_row() + r;
      for (float& value : p.at[r]) {
        value = probability(value, of.scale, values.greatest[row], values.total[row]);
      }
    }
    put(p, weights + from * kFours);
    TilePart dp = multiply_rows(of.shape, {dy, begin}, {head.value, from}, panels);
    if constexpr (kDrops) {
      keep(of.drop, kept_in_rows(of.shape, of.drop, index, begin, from), dp);
    }
    put(dp, gradients + from * kFours);
    for (unsigned r = 0; r < kTileRows; ++r) {
      for (unsigned k = 0; k < kTileColumns; ++k) {
        const bool is_there = from + tile_column(k) <= begin + tile_row() + r;
        p.at[r][k] = is_there ? __fmul_rn(p.at[r][k], dp.at[r][k]) : 0.0F;
      }
    }
    sums.add(p, from);
  }
  const float sum = sums.finish();
  if (tile_lane() < kTileRows) values.r[tile_row() + tile_lane()] = sum;
  __syncthreads();
}

/// Scratch: twice weights_size() for each block.
template <bool kDrops>
__global__ void __launch_bounds__(kTileThreads)
    query_kernel(Arguments of, std::size_t weights_size, Four* scratch) {
  __shared__ Panels panels;
  __shared__ QueryValues values;
  Four* const weights = scratch + blockIdx.x * 2 * weights_size;
  Four* const gradients = weights + weights_size;
  const std::size_t tiles = tiles_of(of.shape.T);
  for (std::size_t n = blockIdx.x; n < of.shape.rows * of.shape.heads * tiles; n += gridDim.x) {
    const std::size_t index = n / tiles, begin = (tiles - 1 - n % tiles) * kTile;
    make_rows<kDrops>(of, index, begin, panels, values, weights, gradients);
    if (threadIdx.x < kTile && begin + threadIdx.x < of.shape.T) {
      of.r[index * of.shape.T + begin + threadIdx.x] = values.r[threadIdx.x];
    }
    const auto gradient = [&](std::size_t at) {
      const Four p = weights[at];
      Four four = gradients[at];
      const float* const r = values.r + at % kFours * 4;
      for (unsigned i = 0; i < 4; ++i) {
        four.at[i] = score_gradient(p.at[i], four.at[i], r[i], of.scale);
      }
      return four;
    };
    weigh_rows(of.shape, begin, gradient, cpu::Head<const float>(of.shape, index, of.qkv).key,
               cpu::Head<float>(of.shape, index, of.dqkv).query, panels);
  }
}

/// A tile of keys, and the first of the tile of columns whose gradients are made.
struct KeyTile {
  std::size_t begin, column;
};

/// Weights of the queries of one tile (lines) and the tile's keys: chains go on for i >= j.
__device__ void weigh_columns(const cpu::AttentionShape& shape, const KeyTile& tile,
                              std::size_t from, const Line* weights, cpu::Rows<const float> right,
                              Panels& panels, TilePart& sums) {
  const std::size_t end = std::min(from + kTile, shape.T);
  for (std::size_t step = from; step < end; step += kSteps) {
    const unsigned steps = steps_at(step, end);
    load_columns(right, step, steps, tile.column, shape.D, panels.columns);
    __syncthreads();
    const auto offset = static_cast<unsigned>(step - from);
    if (from > tile.begin) {
      multiply(weights + offset, panels.columns, steps, sums);
    } else {
      const auto takes = [&](unsigned s, unsigned row) { return offset + s >= row; };
      multiply(weights + offset, panels.columns, steps, takes, sums);
    }
    __syncthreads();
  }
}

/// Chains of the tile's keys: all queries from them on.
template <bool kDrops>
__device__ void add_queries(const Arguments& of, std::size_t index, const KeyTile& tile,
                            Panels& panels, QueryValues& values, Line* weights, TilePart& dkey,
                            TilePart& dvalue) {
  const std::size_t T = of.shape.T;
  const cpu::Head<const float> head(of.shape, index, of.qkv);
  const cpu::Rows<const float> dy = cpu::output_of(of.shape, index, of.dy);
  for (std::size_t from = tile.begin; from < T; from += kTile) {
    load_values(of.greatest + index * T, from, T, values.greatest);
    load_values(of.total + index * T, from, T, values.total);
    load_values(of.r + index * T, from, T, values.r);
    TilePart p = multiply_rows(of.shape, {head.key, tile.begin}, {head.query, from}, panels);
    for (unsigned k = 0; k < kTileColumns; ++k) {
      const unsigned i = tile_column(k);
      for (unsigned r = 0; r < kTileRows; ++r) {
        p.at[r][k] = probability(p.at[r][k], of.scale, values.greatest[i], values.total[i]);
      }
    }
    KeptWeights kept;
    if constexpr (kDrops) kept = kept_in_columns(of.shape, of.drop, index, tile.begin, from);
    TilePart w = p;
    if constexpr (kDrops) keep(of.drop, kept, w);
    put_lines(w, weights);
    TilePart ds = multiply_rows(of.shape, {head.value, tile.begin}, {dy, from}, panels);
    if constexpr (kDrops) keep(of.drop, kept, ds);
    for (unsigned k = 0; k < kTileColumns; ++k) {
      for (unsigned r = 0; r < kTileRows; ++r) {
        const float mean = values.r[tile_column(k)];
        ds.at[r][k] = score_gradient(p.at[r][k], ds.at[r][k], mean, of.scale);
      }
    }
    weigh_columns(of.shape, tile, from, weights, dy, panels, dvalue);
    put_lines(ds, weights);
    weigh_columns(of.shape, tile, from, weights, head.query, panels, dkey);
  }
}

template <bool kDrops>
__global__ void __launch_bounds__(kTileThreads, 3) key_kernel(Arguments of) {
  __shared__ Panels panels;
  __shared__ QueryValues values;
  __shared__ Line weights[kTile];
  const std::size_t column_tiles = tiles_of(of.shape.D);
  const std::size_t tiles = tiles_of(of.shape.T) * column_tiles;
  for (std::size_t n = blockIdx.x; n < of.shape.rows * of.shape.heads * tiles; n += gridDim.x) {
    const std::size_t index = n / tiles;
    const KeyTile tile{n % tiles / column_tiles * kTile, n % column_tiles * kTile};
    TilePart dkey = {}, dvalue = {};
    add_queries<kDrops>(of, index, tile, panels, values, weights, dkey, dvalue);
    const cpu::Head<float> gradient(of.shape, index, of.dqkv);
    store(of.shape, dkey, tile.begin, tile.column, gradient.key);
    store(of.shape, dvalue, tile.begin, tile.column, gradient.value);
  }
}

}  // namespace

void attention_backward(Context& context, const cpu::AttentionShape& shape, const float* qkv,
                        float scale, const cpu::WeightDrop& drop, const float* greatest,
                        const float* total, const float* dy, float* dqkv) {
  const std::size_t heads = shape.rows * shape.heads;
  if (heads * shape.T * shape.D == 0) return;
  const std::size_t each = weights_size(shape);
  const unsigned blocks = blocks_with_scratch(shape, 2 * each);
  float* const memory = scratch(context, blocks * 2 * each * 4 + heads * shape.T);
  if (memory == nullptr) return;
  float* const r = memory + blocks * 2 * each * 4;
  const Arguments of{shape, qkv, scale, drop, greatest, total, dy, r, dqkv};
  const bool drops = drop.share > 0.0F;
  launch(context, blocks, kTileThreads, drops ? query_kernel<true> : query_kernel<false>, of, each,
         reinterpret_cast<Four*>(memory));
  const std::size_t tiles = heads * tiles_of(shape.T) * tiles_of(shape.D);
  launch(context, blocks_for(tiles, 1), kTileThreads, drops ? key_kernel<true> : key_kernel<false>,
         of);
}

}  // namespace muster::kernels::cuda
