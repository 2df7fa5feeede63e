// What the files of this directory share; not for others.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/ops.h"

namespace muster::kernels::cuda {

struct Context::Impl {
  cudaStream_t stream = nullptr;
  cudaError_t first_error = cudaSuccess;

  void note(cudaError_t error) {
    if (first_error == cudaSuccess) first_error = error;
  }
};

}  // namespace muster::kernels::cuda
