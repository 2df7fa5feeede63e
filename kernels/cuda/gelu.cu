#include "kernels/cpu/gelu.h"

#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {
namespace {

__global__ void gelu_kernel(std::size_t n, const float* x, float* y) {
  for (std::size_t i = thread_number(); i < n; i += threads_of_grid()) y[i] = cpu::gelu_one(x[i]);
}

__global__ void gelu_backward_kernel(std::size_t n, const float* x, const float* dy, float* dx) {
  for (std::size_t i = thread_number(); i < n; i += threads_of_grid()) {
    dx[i] = dy[i] * cpu::gelu_slope_one(x[i]);
  }
}

}  // namespace

void gelu(Context& context, std::size_t n, const float* x, float* y) {
  if (n == 0) return;
  launch(context, blocks_for(n), kThreads, gelu_kernel, n, x, y);
}

void gelu_backward(Context& context, std::size_t n, const float* x, const float* dy, float* dx) {
  if (n == 0) return;
  launch(context, blocks_for(n), kThreads, gelu_backward_kernel, n, x, dy, dx);
}

}  // namespace muster::kernels::cuda
