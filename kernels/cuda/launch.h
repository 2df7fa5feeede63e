// How kernels are started. With MUSTER_CUDA_ON_HOST the processor computes them, thread after
// thread of a block (tests/cuda_on_host/cuda_runtime_api.h): the same source, so that its bits can
// be held against those of kernels/cpu where there is no GPU.
#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/cuda/context.h"

namespace muster::kernels::cuda {

inline constexpr unsigned kThreads = 256;
inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xFFFFFFFFU;  ///< its lanes
/// Of a grid; kernels stride over what is beyond.
inline constexpr std::size_t kBlocksMax = 65535;

/// Blocks of which one has `each` elements: with kThreads threads, one thread an element.
inline unsigned blocks_for(std::size_t elements, std::size_t each = kThreads) {
  return static_cast<unsigned>(
      std::clamp<std::size_t>((elements + each - 1) / each, 1, kBlocksMax));
}

/// Puts `kernel` on the context's stream; does nothing after an error. `threads`: of a block.
template <typename... Parameters, typename... Arguments>
void launch(Context& context, dim3 blocks, dim3 threads, void (*kernel)(Parameters...),
            Arguments... arguments) {
  Context::Impl& impl = context.impl();
  if (impl.first_error != cudaSuccess) return;
#ifdef MUSTER_CUDA_ON_HOST
  on_host::launch(impl.stream, blocks, threads,
                  [=] { kernel(static_cast<Parameters>(arguments)...); });
#else
  kernel<<<blocks, threads, 0, impl.stream>>>(static_cast<Parameters>(arguments)...);
#endif
  impl.note(cudaGetLastError());
}

#if defined(__CUDACC__) || defined(MUSTER_CUDA_ON_HOST)
/// Number of this thread in a grid of one dimension, and how many there are.
__device__ inline std::size_t thread_number() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t threads_of_grid() {
  return static_cast<std::size_t>(gridDim.x) * blockDim.x;
}
#endif

}  // namespace muster::kernels::cuda
