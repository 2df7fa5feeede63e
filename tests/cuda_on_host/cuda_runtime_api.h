// In place of the toolkit's header where kernels/cuda is compiled for the processor: what those
// files use of the language and of the runtime. Threads of a block are fibers of the one thread
// that launches, and run from one barrier to the next, in an order that is another one at each
// launch, so that who reads what is not written yet is found out. Blocks run one after another. The
// one device there is does nothing of what is put on a stream before the thread that put it there
// waits for that or a later part of it, so that who has not waited is found out, too. No clusters,
// no warps that diverge at a barrier.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __restrict__ __restrict
#define __launch_bounds__(...)
// As on a device what it holds at first is of no worth: what the last block has left there.
#define __shared__ static thread_local

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned width = 1, unsigned height = 1, unsigned depth = 1)
      : x(width), y(height), z(depth) {}
};

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;

inline thread_local dim3 gridDim, blockDim, blockIdx, threadIdx;

namespace on_host {

/// Puts on a stream that `body` is run as each thread of each block. A block of which some wait for
/// the others while those have ended ends the process.
void launch(cudaStream_t stream, dim3 blocks, dim3 threads, std::function<void()> body);
/// Until all threads of the block, or of the warp, are here.
void wait_for_block();
void wait_for_warp();
/// The place of a lane of this thread's warp, for one exchange between two waits.
std::uint64_t& place_of(unsigned lane);
unsigned lane();

template <typename Value>
Value exchanged(Value value, unsigned from) {
  static_assert(sizeof value <= sizeof(std::uint64_t));
  std::memcpy(&place_of(lane()), &value, sizeof value);
  wait_for_warp();
  std::memcpy(&value, &place_of(from % 32), sizeof value);
  wait_for_warp();
  return value;
}

}  // namespace on_host

inline void __syncthreads() { on_host::wait_for_block(); }
inline void __syncwarp(unsigned = 0xFFFFFFFFU) { on_host::wait_for_warp(); }
/// All lanes of the warp take part; `width` divides it into groups, as on a device.
template <typename Value>
Value __shfl_sync(unsigned, Value value, int from, int width = 32) {
  const unsigned first =
      on_host::lane() / static_cast<unsigned>(width) * static_cast<unsigned>(width);
  return on_host::exchanged(value,
                            first + static_cast<unsigned>(from) % static_cast<unsigned>(width));
}
template <typename Value>
Value __shfl_xor_sync(unsigned, Value value, int mask, int = 32) {
  return on_host::exchanged(value, on_host::lane() ^ static_cast<unsigned>(mask));
}

inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorNoKernelImageForDevice = 209,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotSupported = 801
};
enum cudaDeviceAttr { cudaDevAttrConcurrentManagedAccess = 89 };
struct cudaDeviceProp {
  char name[256];
  int major, minor;
};
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
struct cudaMemLocation {
  cudaMemLocationType type;
  int id;
};
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaMemAttachGlobal = 1;
inline constexpr unsigned cudaEventBlockingSync = 1, cudaEventDisableTiming = 2;

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** memory, std::size_t bytes);
cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned flags);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaMemPrefetchAsync(const void* memory, std::size_t bytes, cudaMemLocation to,
                                 unsigned flags, cudaStream_t stream);
cudaError_t cudaGetLastError();

namespace on_host {
/// A device fails at its next launch, and from then on, where the file exists that this variable
/// names: that of one process, which removes it.
inline constexpr const char* kFails = "CUDA_ON_HOST_FAILS";
/// Memory of the device that may still be allocated; for tests of what comes when none is left.
void set_memory_left(std::size_t bytes);
/// What the device says that it has; CUDA gives more all the same.
inline constexpr std::size_t kMemory = std::size_t{80} << 30;
void set_memory(std::size_t bytes);
/// What the device says that it is: its compute capability and its name. Where this variable is
/// set, as that has it.
inline constexpr const char* kDevice = "CUDA_ON_HOST_DEVICE";
inline constexpr const char* kProcessor = "9.0 a processor in the place of a GPU";
void set_device(const char* capability_and_name);
void set_managed_access(bool is_concurrent);
/// So many questions whether all is done find that it is not.
void set_not_ready(int queries);
/// Of counting the devices.
void set_driver_error(cudaError_t error);
/// That the device has set by itself, and that it was given before it touched them.
std::size_t bytes_set();
std::size_t bytes_prefetched();
/// Of all devices and threads, since the process began.
struct Traffic {
  std::size_t to_device = 0, to_host = 0;  ///< bytes copied
  std::size_t waits = 0;                   ///< for what was not done yet
};
Traffic traffic();
/// What this thread has put on streams and is not done: kernels, copies and the like.
std::size_t under_way();
}  // namespace on_host
