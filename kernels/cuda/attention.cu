#include <cmath>

#include "kernels/cuda/attention_tiles.h"

namespace muster::kernels::cuda {

using namespace attention_tiles;

namespace {

struct Outputs {
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
      const float other = __shfl_xor_sync(0xFFFFFFFFU, own[r], static_cast<int>(half));
      own[r] = other > own[r] ? other : own[r];
    }
    if (tile_lane() == 0) greatest[tile_row() + r] = __fadd_rn(own[r], 0.0F);
  }
  __syncwarp();
}

/// Scores become e, and these are summed. Shape: greatest and total (kTile).
__device__ void make_exponentials(std::size_t begin, const float* greatest, Four* scores,
                                  float* total) {
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
    put(part, scores + from * kFours);
  }
  const float sum = sums.finish();
  if (tile_lane() < kTileRows) total[tile_row() + tile_lane()] = sum;
}

/// Scratch: weights_size() for each block.
__global__ void __launch_bounds__(kTileThreads)
    attention_kernel(cpu::AttentionShape shape, const float* qkv, float scale, Outputs out,
                     std::size_t scratch_size, Four* scratch) {
  __shared__ Panels panels;
  __shared__ float greatest[kTile], total[kTile];
  Four* const weights = scratch + blockIdx.x * scratch_size;
  const std::size_t tiles = tiles_of(shape.T);
  for (std::size_t n = blockIdx.x; n < shape.rows * shape.heads * tiles; n += gridDim.x) {
    const std::size_t index = n / tiles, begin = (tiles - 1 - n % tiles) * kTile;
    const cpu::Head<const float> head(shape, index, qkv);
    make_scores(shape, head, begin, scale, panels, weights, greatest);
    make_exponentials(begin, greatest, weights, total);
    __syncthreads();
    if (threadIdx.x < kTile && begin + threadIdx.x < shape.T) {
      out.greatest[index * shape.T + begin + threadIdx.x] = greatest[threadIdx.x];
      out.total[index * shape.T + begin + threadIdx.x] = total[threadIdx.x];
    }
    const auto probability = [&](std::size_t at) {
      Four four = weights[at];
      const float* const z = total + at % kFours * 4;
      for (unsigned i = 0; i < 4; ++i) four.at[i] = __fdiv_rn(four.at[i], z[i]);
      return four;
    };
    weigh_rows(shape, begin, probability, head.value, cpu::output_of(shape, index, out.y), panels);
  }
}

}  // namespace

void attention(Context& context, const cpu::AttentionShape& shape, const float* qkv, float scale,
               float* y, float* greatest, float* total) {
  if (shape.rows * shape.heads * shape.T * shape.D == 0) return;
  const std::size_t each = weights_size(shape);
  const unsigned blocks = blocks_with_scratch(shape, each);
  float* const memory = scratch(context, blocks * each * 4);
  launch(context, blocks, kTileThreads, attention_kernel, shape, qkv, scale,
         Outputs{y, greatest, total}, each, reinterpret_cast<Four*>(memory));
}

}  // namespace muster::kernels::cuda
