#include <algorithm>

#include "kernels/cuda/context.h"

namespace muster::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kBlocksMax = 65535;

__global__ void sgd_momentum_kernel(std::size_t n, SgdStep step, const float* g, float* v,
                                    float* w) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    const float velocity = __fmaf_rn(step.momentum, v[i], __fmul_rn(step.gradient_scale, g[i]));
    v[i] = velocity;
    w[i] = __fmaf_rn(-step.learning_rate, velocity, w[i]);
  }
}

}  // namespace

void sgd_momentum(Context& context, std::size_t n, const SgdStep& step, const float* g, float* v,
                  float* w) {
  if (n == 0 || context.impl().first_error != cudaSuccess) return;
  const auto blocks = static_cast<unsigned>(std::min((n - 1) / kThreads + 1, kBlocksMax));
  sgd_momentum_kernel<<<blocks, kThreads, 0, context.impl().stream>>>(n, step, g, v, w);
  context.impl().note(cudaGetLastError());
}

}  // namespace muster::kernels::cuda
