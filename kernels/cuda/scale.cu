#include "kernels/cuda/launch.h"

namespace muster::kernels::cuda {
namespace {

__global__ void scale_kernel(std::size_t n, float factor, float* values) {
  for (std::size_t i = thread_number(); i < n; i += threads_of_grid()) {
    values[i] = values[i] * factor;
  }
}

}  // namespace

void scale(Context& context, std::size_t n, float factor, float* values) {
  if (n == 0) return;
  launch(context, blocks_for(n), kThreads, scale_kernel, n, factor, values);
}

}  // namespace muster::kernels::cuda
