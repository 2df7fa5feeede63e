#include <bit>

#include "kernels/cuda/product.h"

namespace muster::kernels::cuda {
namespace {

/// Blocks that occupy all processors, twice each.
constexpr std::size_t kBlocksEnough = 264;

/// The sum over some logical ranks that make a complete subtree: one group.
struct Weights {
  Factor x, dy;
  std::size_t rows;   // of a logical rank
  std::size_t ranks;  // of a group
  float* out;         // group after group
  bool fours;         // out holds them
  float* memory;      // from `waiting` on: each block's sums that wait for their right neighbour
  std::size_t waiting;
  std::size_t depth;  // how many may wait
};

__device__ Factor from_row(Factor factor, std::size_t row) {
  factor.data += row * factor.stride;
  return factor;
}

/// A block computes one tile of one group, rank after rank. What waits lies as in a binary counter.
/// With kGoesOn the chains of the only rank begin with what out holds.
template <unsigned kSide, bool kGoesOn, Products kProducts>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<kSide>) weights_kernel(Weights weights) {
  constexpr std::size_t kCells = std::size_t{kThreads} * kSide * kSide;
  const std::size_t group = blockIdx.y, block = group * gridDim.x + blockIdx.x;
  const std::size_t columns = weights.dy.count;
  float* const out = weights.out + group * weights.x.count * columns;
  std::size_t top = weights.waiting + block * weights.depth * kCells + threadIdx.x;
  const auto waiting = [&](unsigned i, unsigned j) -> float& {
    return weights.memory[top + (i * kSide + j) * kThreads];
  };
  Tile<kSide> tile(weights.x.count, columns);
  tile.each([&](unsigned i, unsigned j) {
    const bool goes_on = kGoesOn && tile.has(i, j);
    tile.sums[i][j] = goes_on ? out[tile.row(i) * columns + tile.column(j)] : 0.0F;
  });
  for (std::size_t rank = 0;;) {
    const std::size_t first = (group * weights.ranks + rank) * weights.rows;
    tile.template go_on<kProducts, false, false>(from_row(weights.x, first),
                                                 from_row(weights.dy, first), weights.rows);
    for (std::size_t bits = rank; (bits & 1) != 0; bits >>= 1) {
      top -= kCells;
      tile.each([&](unsigned i, unsigned j) {
        tile.sums[i][j] = __fadd_rn(waiting(i, j), tile.sums[i][j]);
      });
    }
    if (++rank == weights.ranks) break;
    tile.each([&](unsigned i, unsigned j) {
      waiting(i, j) = tile.sums[i][j];
      tile.sums[i][j] = 0.0F;
    });
    top += kCells;
  }
  tile.store(out, weights.fours, [](float sum, std::size_t, std::size_t) { return sum; });
}

/// Of bias_kernel's blocks. All threads fetch, so that many loads are under way.
constexpr unsigned kBiasColumns = 32, kBiasRows = 128;

/// sums[rank, column]: the chain over the rows of a rank, for some columns of one rank.
__global__ void bias_kernel(std::size_t rows, std::size_t N, const float* dy, float* sums) {
  __shared__ float values[kBiasRows][kBiasColumns];
  const std::size_t across = (N + kBiasColumns - 1) / kBiasColumns, rank = blockIdx.x / across;
  const unsigned lane = threadIdx.x % kBiasColumns;
  const std::size_t column = blockIdx.x % across * kBiasColumns + lane;
  const bool sums_up = threadIdx.x < kBiasColumns;
  float sum = 0.0F;
  for (std::size_t first = 0; first < rows; first += kBiasRows) {
#pragma unroll
    for (unsigned i = 0; i < kBiasRows; i += kThreads / kBiasColumns) {
      const unsigned row = i + threadIdx.x / kBiasColumns;
      // Adding -0 changes no sum's bits.
      const bool is_inside = first + row < rows && column < N;
      values[row][lane] = is_inside ? dy[(rank * rows + first + row) * N + column] : -0.0F;
    }
    __syncthreads();
    if (sums_up) {
#pragma unroll
      for (unsigned i = 0; i < kBiasRows; ++i) sum = __fadd_rn(sum, values[i][lane]);
    }
    __syncthreads();
  }
  if (sums_up && column < N) sums[rank * N + column] = sum;
}

void bias_gradient(Context& context, std::size_t ranks, std::size_t rows, std::size_t N,
                   const float* dy, float* db) {
  float* const sums = scratch(context, ranks * N);
  const std::size_t blocks = ranks * ((N + kBiasColumns - 1) / kBiasColumns);
  launch(context, static_cast<unsigned>(blocks), kThreads, bias_kernel, rows, N, dy, sums);
  sum_ranks(context, ranks, N, sums, db);
}

// A rank's chain cannot be divided, but ranks can: into no more groups than keep the device busy,
// because each takes memory of the size of dw.
template <bool kGoesOn>
void weights_gradient(Context& context, std::size_t ranks, std::size_t rows, std::size_t N,
                      std::size_t K, const float* x, const float* dy, float* dw) {
  if (N == 0 || K == 0) return;
  const unsigned side = choose_side(K, N, ranks);
  const std::size_t tiles = tiles_of(K, N, side);
  std::size_t groups = 1;
  while (groups < ranks && groups * tiles < kBlocksEnough) groups *= 2;
  const std::size_t of_groups = groups == 1 ? 0 : groups * K * N;
  const std::size_t of_group = ranks / groups;
  const auto depth = static_cast<std::size_t>(std::countr_zero(of_group));
  const std::size_t cells = std::size_t{kThreads} * side * side;
  float* const memory = scratch(context, of_groups + groups * tiles * depth * cells);
  float* const out = groups == 1 ? dw : memory;
  const dim3 blocks(static_cast<unsigned>(tiles), static_cast<unsigned>(groups));
  const Weights weights{Factor(x, K, K),     Factor(dy, N, N), rows,      of_group, out,
                        holds_fours(out, N), memory,           of_groups, depth};
  with_constants(side, context.products(), [&](auto of_tile, auto products) {
    launch(context, blocks, kThreads, weights_kernel<of_tile(), kGoesOn, products()>, weights);
  });
  if (groups > 1) sum_ranks(context, groups, K * N, out, dw);
}

}  // namespace

void linear_backward_weights(Context& context, std::size_t ranks, std::size_t rows, std::size_t N,
                             std::size_t K, const float* x, const float* dy, float* dw, float* db) {
  if (N == 0) return;
  if (db != nullptr) bias_gradient(context, ranks, rows, N, dy, db);
  weights_gradient<false>(context, ranks, rows, N, K, x, dy, dw);
}

void linear_backward_weights_further(Context& context, std::size_t rows, std::size_t N,
                                     std::size_t K, const float* x, const float* dy, float* dw) {
  if (rows == 0) return;
  weights_gradient<true>(context, 1, rows, N, K, x, dy, dw);
}

}  // namespace muster::kernels::cuda
