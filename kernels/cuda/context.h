// What the files of this directory share; not for others.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "kernels/cuda/ops.h"

namespace muster::kernels::cuda {

struct Context::Impl {
  DeviceFacts facts;
  cudaMemLocation place{};  ///< of the device's own memory
  cudaStream_t stream = nullptr;
  cudaStream_t copying = nullptr;  ///< to and from the host, beside the other one
  cudaEvent_t copied = nullptr;
  cudaError_t first_error = cudaSuccess;
  std::string words;  ///< of that error, where CUDA's do not say enough
  /// Memory handed out, and its bytes: the device's, and what is not because it had none left.
  std::map<void*, std::size_t> of_device, of_host;
  std::size_t held = 0;  ///< of the device
  std::size_t most = 0;
  /// In the stream after parts of a pass that may not be complete: `behind` of them, from number
  /// `oldest` on, in a ring. As many as hide the time from a part's end to the next one's launch.
  std::array<cudaEvent_t, 8> parts{};
  std::size_t oldest = 0, behind = 0;
  std::uint64_t ended = 0;  ///< parts, complete or not
  /// Memory of one operation at a time; grows and never shrinks.
  void* scratch = nullptr;
  std::size_t scratch_bytes = 0;

  void note(cudaError_t error) {
    if (error == cudaSuccess) return;
    // The runtime keeps it for whoever asks next on this thread, which may be another context.
    static_cast<void>(cudaGetLastError());
    if (first_error == cudaSuccess) first_error = error;
  }
  void refuse(cudaError_t error, std::string why) {
    if (first_error == cudaSuccess) words = std::move(why);
    note(error);
  }
  void open(const DeviceShare& share);
  /// `event` is one that nobody waits for.
  void await(cudaStream_t all_of, cudaEvent_t event);
  /// Blocks: until it is done, and not for what else is under way.
  void copy_beside(void* to, const void* from, std::size_t bytes);
  /// nullptr after an error.
  void* allocate_of_device(std::size_t bytes);
  void* allocate_of_host(std::size_t bytes);
};

/// Memory of the device for the operation that asks, until the next one does; nullptr after an
/// error. Shape: (count).
float* scratch(Context& context, std::size_t count);

}  // namespace muster::kernels::cuda
