#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {
namespace {

__global__ void sgd_momentum_kernel(std::size_t n, SgdStep step, const float* g, float* v,
                                    float* w) {
  for (std::size_t i = thread_number(); i < n; i += threads_of_grid()) {
    const float velocity = __fmaf_rn(step.momentum, v[i], __fmul_rn(step.gradient_scale, g[i]));
    v[i] = velocity;
    w[i] = __fmaf_rn(-step.learning_rate, velocity, w[i]);
  }
}

}  // namespace

void sgd_momentum(Context& context, std::size_t n, const SgdStep& step, const float* g, float* v,
                  float* w) {
  if (n == 0) return;
  launch(context, blocks_for(n), kThreads, sgd_momentum_kernel, n, step, g, v, w);
}

}  // namespace muster::kernels::cuda
