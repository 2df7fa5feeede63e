// Batch normalisation with the statistics of each logical rank by itself. A sum over rows is made
// of its blocks of kBlockElements rows, each by one block of threads, and then the tree over those.
#include <array>
#include <bit>
#include <cmath>

#include "kernels/cpu/table.h"
#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {
namespace {

/// Channels of one block of threads.
constexpr unsigned kChannels = 32;
constexpr unsigned kLanes = cpu::kLanes;
/// Rows for which a thread keeps a channel's statistics.
constexpr std::size_t kRowsOfThread = 8;

struct BatchShape {
  std::size_t ranks, rows, C;
  __host__ __device__ std::size_t blocks() const {  ///< of the rows of one rank
    return (rows + kBlockElements - 1) / kBlockElements;
  }
  __host__ __device__ std::size_t groups() const { return (C + kChannels - 1) / kChannels; }
};

/// What is summed over rows: k values made of element `at`, whose rank and channel have the
/// statistics `own`.
struct PlainTerm {
  const float* x;
  __device__ std::array<float, 1> operator()(std::size_t at, std::size_t) const { return {x[at]}; }
};

struct SquareTerm {
  const float* x;
  const float* mean;
  __device__ std::array<float, 1> operator()(std::size_t at, std::size_t own) const {
    const float off = x[at] - mean[own];
    return {off * off};
  }
};

struct GradientTerms {
  const float* x;
  const float* mean;
  const float* inverse;
  const float* dy;
  __device__ std::array<float, 2> operator()(std::size_t at, std::size_t own) const {
    return {dy[at], dy[at] * ((x[at] - mean[own]) * inverse[own])};
  }
};

/// sums[k][rank][block][c] = the lane tree of terms k. A thread has one lane of one channel; a warp
/// has neighbouring channels.
template <std::size_t kSums, typename Terms>
__global__ void block_sums_kernel(BatchShape shape, Terms terms, float* sums) {
  __shared__ float lanes[kSums][kLanes][kChannels];
  const std::size_t blocks = shape.ranks * shape.blocks();
  for (std::size_t task = blockIdx.x; task < blocks * shape.groups(); task += gridDim.x) {
    const std::size_t c = task % shape.groups() * kChannels + threadIdx.x;
    const std::size_t block = task / shape.groups();
    const std::size_t rank = block / shape.blocks();
    const std::size_t first = block % shape.blocks() * kBlockElements;
    const std::size_t end = std::min(shape.rows, first + kBlockElements);
    std::array<float, kSums> own = {};
    for (std::size_t i = first + threadIdx.y; i < end && c < shape.C; i += kLanes) {
      const auto more = terms((rank * shape.rows + i) * shape.C + c, rank * shape.C + c);
      for (std::size_t k = 0; k < kSums; ++k) own[k] = own[k] + more[k];
    }
    for (std::size_t k = 0; k < kSums; ++k) lanes[k][threadIdx.y][threadIdx.x] = own[k];
    __syncthreads();
    if (threadIdx.y < kSums && c < shape.C) {
      float of_sum[kLanes];
      for (unsigned j = 0; j < kLanes; ++j) of_sum[j] = lanes[threadIdx.y][j][threadIdx.x];
      sums[(threadIdx.y * blocks + block) * shape.C + c] = cpu::lane_tree(of_sum);
    }
    __syncthreads();
  }
}

/// The tree over `count` values that lie `stride` apart.
__device__ float tree_of(const float* values, std::size_t count, std::size_t stride) {
  cpu::TreeSum tree;
  for (std::size_t i = 0; i < count; ++i) tree.push(values[i * stride]);
  return tree.finish();
}

/// The sum of the rank and channel with the statistics `own`.
__device__ float sum_of(const BatchShape& shape, const float* sums, std::size_t own) {
  const std::size_t rank = own / shape.C;
  return tree_of(sums + rank * shape.blocks() * shape.C + own % shape.C, shape.blocks(), shape.C);
}

__device__ float inverse_of(float variance, float epsilon) {
  return 1.0F / std::sqrt(variance + epsilon);
}

__global__ void mean_kernel(BatchShape shape, const float* sums, float* mean) {
  const auto n = static_cast<float>(shape.rows);
  for (std::size_t i = thread_number(); i < shape.ranks * shape.C; i += threads_of_grid()) {
    mean[i] = sum_of(shape, sums, i) / n;
  }
}

__global__ void variance_kernel(BatchShape shape, const float* sums, float epsilon, float* inverse,
                                float* variance) {
  const auto n = static_cast<float>(shape.rows);
  const auto n_less_one = static_cast<float>(shape.rows - 1);
  for (std::size_t i = thread_number(); i < shape.ranks * shape.C; i += threads_of_grid()) {
    const float squares = sum_of(shape, sums, i);
    inverse[i] = inverse_of(squares / n, epsilon);
    variance[i] = squares / n_less_one;
  }
}

__global__ void weights_kernel(BatchShape shape, const float* sums, float* dgamma, float* dbeta) {
  const std::size_t blocks = shape.ranks * shape.blocks();
  for (std::size_t i = thread_number(); i < shape.ranks * shape.C; i += threads_of_grid()) {
    dbeta[i] = sum_of(shape, sums, i);
    dgamma[i] = sum_of(shape, sums + blocks * shape.C, i);
  }
}

__global__ void inverse_deviation_kernel(std::size_t n, const float* variance, float epsilon,
                                         float* out) {
  for (std::size_t i = thread_number(); i < n; i += threads_of_grid()) {
    out[i] = inverse_of(variance[i], epsilon);
  }
}

/// Calls function(own, c), which returns what to do with each element of that channel of a rank.
/// Grid and threads: those of launch_by_channel.
template <typename Function>
__device__ void for_each_channel(const BatchShape& shape, Function function) {
  const std::size_t x = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::size_t y = static_cast<std::size_t>(blockIdx.y) * blockDim.y + threadIdx.y;
  for (std::size_t rank = blockIdx.z; rank < shape.ranks; rank += gridDim.z) {
    for (std::size_t c = x; c < shape.C; c += std::size_t{gridDim.x} * blockDim.x) {
      const auto of_element = function(rank * shape.C + c, c);
      for (std::size_t i = y; i < shape.rows; i += std::size_t{gridDim.y} * blockDim.y) {
        of_element((rank * shape.rows + i) * shape.C + c);
      }
    }
  }
}

__global__ void batch_normalise_kernel(BatchShape shape, const float* x, cpu::Normalisation by,
                                       bool relu, float* y) {
  for_each_channel(shape, [&](std::size_t own, std::size_t c) {
    const float mean = by.mean[own], inverse = by.inverse[own];
    const float gamma = by.gamma[c], beta = by.beta[c];
    return [=](std::size_t i) {
      const float value = ((x[i] - mean) * inverse) * gamma + beta;
      y[i] = relu && !(value > 0.0F) ? 0.0F : value;
    };
  });
}

__global__ void batch_gradient_kernel(BatchShape shape, const float* x, cpu::Normalisation by,
                                      const float* dy, const float* dgamma, const float* dbeta,
                                      float* dx) {
  const auto n = static_cast<float>(shape.rows);
  for_each_channel(shape, [&](std::size_t own, std::size_t c) {
    const float mean = by.mean[own], inverse = by.inverse[own];
    const float beta_part = dbeta[own] / n, gamma_part = dgamma[own] / n;
    const float factor = by.gamma[c] * inverse;
    return [=](std::size_t i) {
      const float h = (x[i] - mean) * inverse;
      dx[i] = ((dy[i] - beta_part) - h * gamma_part) * factor;
    };
  });
}

__global__ void sum_ranks_kernel(std::size_t ranks, std::size_t n, const float* values,
                                 float* out) {
  for (std::size_t i = thread_number(); i < n; i += threads_of_grid()) {
    out[i] = tree_of(values + i, ranks, n);
  }
}

/// Returns the sums of blocks, in scratch memory.
template <std::size_t kSums, typename Terms>
const float* block_sums(Context& context, const BatchShape& shape, const Terms& terms) {
  const std::size_t blocks = shape.ranks * shape.blocks();
  float* const sums = scratch(context, kSums * blocks * shape.C);
  launch(context, blocks_for(blocks * shape.groups(), 1), dim3(kChannels, kLanes),
         block_sums_kernel<kSums, Terms>, shape, terms, sums);
  return sums;
}

/// A warp has neighbouring channels and, where these are few, several rows.
template <typename... Parameters, typename... Arguments>
void launch_by_channel(Context& context, const BatchShape& shape, void (*kernel)(Parameters...),
                       Arguments... arguments) {
  const auto width =
      static_cast<unsigned>(std::bit_ceil(std::min<std::size_t>(shape.C, kChannels)));
  const unsigned height = kThreads / width;
  const dim3 grid(blocks_for(shape.C, width), blocks_for(shape.rows, height * kRowsOfThread),
                  blocks_for(shape.ranks, 1));
  launch(context, grid, dim3(width, height), kernel, shape, arguments...);
}

}  // namespace

void batch_statistics(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                      const float* x, float epsilon, const cpu::BatchStatistics& statistics) {
  const BatchShape shape{ranks, rows, C};
  const unsigned blocks = blocks_for(ranks * C);
  const float* sums = block_sums<1>(context, shape, PlainTerm{x});
  launch(context, blocks, kThreads, mean_kernel, shape, sums, statistics.mean);
  sums = block_sums<1>(context, shape, SquareTerm{x, statistics.mean});
  launch(context, blocks, kThreads, variance_kernel, shape, sums, epsilon, statistics.inverse,
         statistics.variance);
}

void inverse_deviation(Context& context, std::size_t n, const float* variance, float epsilon,
                       float* out) {
  if (n == 0) return;
  launch(context, blocks_for(n), kThreads, inverse_deviation_kernel, n, variance, epsilon, out);
}

void batch_normalise(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                     const float* x, const cpu::Normalisation& by, Activation activation,
                     float* y) {
  launch_by_channel(context, {ranks, rows, C}, batch_normalise_kernel, x, by,
                    activation == Activation::kRelu, y);
}

void batch_normalise_backward(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                              const float* x, const cpu::Normalisation& by, const float* dy,
                              float* dgamma, float* dbeta, float* dx) {
  const BatchShape shape{ranks, rows, C};
  const float* const sums =
      block_sums<2>(context, shape, GradientTerms{x, by.mean, by.inverse, dy});
  launch(context, blocks_for(ranks * C), kThreads, weights_kernel, shape, sums, dgamma, dbeta);
  launch_by_channel(context, shape, batch_gradient_kernel, x, by, dy, dgamma, dbeta, dx);
}

void sum_ranks(Context& context, std::size_t ranks, std::size_t n, float* values, float* out) {
  if (n == 0) return;
  launch(context, blocks_for(n), kThreads, sum_ranks_kernel, ranks, n, values, out);
}

}  // namespace muster::kernels::cuda
