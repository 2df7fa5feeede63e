#include <cmath>

#include "kernels/cuda/attention_tiles.h"

namespace muster::kernels::cuda {

using namespace attention_tiles;

namespace {

struct Arguments {
  cpu::AttentionShape shape;
  const float* qkv;
  float scale;
  cpu::WeightDrop drop;
  float *y, *greatest, *total;
};

/// Scaled scores of the tile's rows, and the greatest of each. Shape: greatest (kTile).
__device__ void make_scores(const cpu::AttentionShape& shape, const cpu::Head<const float>& head,
                            std::size_t begin, float scale, Panels& panels, Four* scores,
                            float* greatest) {
  float own[kTileRows];
  for (unsigned r = 0; r < kTileRows; ++r) own[r] = -HUGE_VALF;
  for (std::size_t from = 0; from <= begin; from += kTile) {
    TilePart score = multiply_rows(shape, {head.query, begin}, {head.key, from}, panels);
    for (unsigned r = 0; r < kTileRows; ++r) {
      for (unsigned k = 0; k < kTileColumns; ++k) {
        const float value = __fmul_rn(score.at[r][k], scale);
        score.at[r][k] = value;
        if (from + tile_column(k) > begin + tile_row() + r) continue;
        own[r] = value > own[r] ? value : own[r];
      }
    }
    put(score, scores + from * kFours);
  }
  for (unsigned r = 0; r < kTileRows; ++r) {
    for (unsigned half = kHalfWarp / 2; half > 0; half /= 2) {
      const float other = __shfl_xor_sync(kWholeWarp, own[r], static_cast<int>(half));
      own[r] = other > own[r] ? other : own[r];
    }
    if (tile_lane() == 0) greatest[tile_row() + r] = __fadd_rn(own[r], 0.0F);
  }
  __syncwarp();
}

/// In the place of e, which is never below 0, where a weight is dropped.
constexpr float kDropped = -1.0F;

/// Scores become e, and these are summed, those that are dropped, too. Shape: greatest and total
/// (kTile).
template <bool kDrops>
__device__ void make_exponentials(const Arguments& of, std::size_t index, std::size_t begin,
                                  const float* greatest, Four* scores, float* total) {
  cpu::TreeSum tree;
  RowSums sums(tree);
  for (std::size_t from = 0; from <= begin; from += kTile) {
    TilePart part = get(scores + from * kFours);
    for (unsigned r = 0; r < kTileRows; ++r) {
      for (unsigned k = 0; k < kTileColumns; ++k) {
        const bool is_there = from + tile_column(k) <= begin + tile_row() + r;
        const float below = __fsub_rn(part.at[r][k], greatest[tile_row() + r]);
        part.at[r][k] = is_there ? cpu::exp_one(below) : 0.0F;
      }
    }
    sums.add(part, from);
    if constexpr (kDrops) {
      const KeptWeights kept = kept_in_rows(of.shape, of.drop, index, begin, from);
      for (unsigned r = 0; r < kTileRows; ++r) {
        for (unsigned k = 0; k < kTileColumns; ++k) {
          if (!kept.has(r, k)) part.at[r][k] = kDropped;
        }
      }
    }
    put(part, scores + from * kFours);
  }
  const float sum = sums.finish();
  if (tile_lane() < kTileRows) total[tile_row() + tile_lane()] = sum;
}

template <bool kDrops>
__device__ float weight(const Arguments& of, float e, float total) {
  if (kDrops && e < 0.0F) return 0.0F;
  const float p = __fdiv_rn(e, total);
  return kDrops ? __fmul_rn(p, of.drop.scale) : p;
}

/// Scratch: weights_size() for each block.
template <bool kDrops>
__global__ void __launch_bounds__(kTileThreads)
    attention_kernel(Arguments of, std::size_t scratch_size, Four* scratch) {
  const cpu::AttentionShape& shape = of.shape;
  __shared__ Panels panels;
  __shared__ float greatest[kTile], total[kTile];
  Four* const weights = scratch + blockIdx.x * scratch_size;
  const std::size_t tiles = tiles_of(shape.T);
  for (std::size_t n = blockIdx.x; n < shape.rows * shape.heads * tiles; n += gridDim.x) {
    const std::size_t index = n / tiles, begin = (tiles - 1 - n % tiles) * kTile;
    const cpu::Head<const float> head(shape, index, of.qkv);
    make_scores(shape, head, begin, of.scale, panels, weights, greatest);
    make_exponentials<kDrops>(of, index, begin, greatest, weights, total);
    __syncthreads();
    if (threadIdx.x < kTile && begin + threadIdx.x < shape.T) {
      of.greatest[index * shape.T + begin + threadIdx.x] = greatest[threadIdx.x];
      of.total[index * shape.T + begin + threadIdx.x] = total[threadIdx.x];
    }
    const auto weight_at = [&](std::size_t at) {
      Four four = weights[at];
      const float* const z = total + at % kFours * 4;
      for (unsigned i = 0; i < 4; ++i) four.at[i] = weight<kDrops>(of, four.at[i], z[i]);
      return four;
    };
    weigh_rows(shape, begin, weight_at, head.value, cpu::output_of(shape, index, of.y), panels);
  }
}

}  // namespace

void attention(Context& context, const cpu::AttentionShape& shape, const float* qkv, float scale,
               const cpu::WeightDrop& drop, float* y, float* greatest, float* total) {
  if (shape.rows * shape.heads * shape.T * shape.D == 0) return;
  const std::size_t each = weights_size(shape);
  const unsigned blocks = blocks_with_scratch(shape, each);
  float* const memory = scratch(context, blocks * each * 4);
  // Two kernels, since one that may drop has more registers.
  const auto kernel = drop.share > 0.0F ? attention_kernel<true> : attention_kernel<false>;
  const Arguments of{shape, qkv, scale, drop, y, greatest, total};
  launch(context, blocks, kTileThreads, kernel, of, each, reinterpret_cast<Four*>(memory));
}

}  // namespace muster::kernels::cuda
