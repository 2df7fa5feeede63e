// What the files of this directory share; not for others.
#pragma once

#include <cuda_runtime_api.h>

#include <set>

#include "kernels/cuda/ops.h"

namespace muster::kernels::cuda {

struct Context::Impl {
  cudaStream_t stream = nullptr;
  cudaError_t first_error = cudaSuccess;
  /// Memory handed out that is not the device's, because it had none left.
  std::set<void*> of_host;
  /// Memory of one operation at a time; grows and never shrinks.
  void* scratch = nullptr;
  std::size_t scratch_bytes = 0;

  void note(cudaError_t error) {
    if (error == cudaSuccess) return;
    // The runtime keeps it for whoever asks next on this thread, which may be another context.
    static_cast<void>(cudaGetLastError());
    if (first_error == cudaSuccess) first_error = error;
  }
};

/// Memory of the device for the operation that asks, until the next one does; nullptr after an
/// error. Shape: (count).
float* scratch(Context& context, std::size_t count);

}  // namespace muster::kernels::cuda
