#include "kernels/cuda/context.h"

#include <cstdlib>

namespace muster::kernels::cuda {

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());  // no operation's
  return 0;
}

Context::Context(int device, Products products)
    : kernels::Context(products), impl_(std::make_unique<Impl>()) {
  // What others have left on this thread is not this context's.
  static_cast<void>(cudaGetLastError());
  int capability = 0;
  impl_->note(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device));
  if (capability < kCapability) impl_->note(cudaErrorNoKernelImageForDevice);
  if (impl_->first_error == cudaSuccess) impl_->note(cudaSetDevice(device));
  if (impl_->first_error == cudaSuccess) {
    impl_->note(cudaStreamCreateWithFlags(&impl_->stream, cudaStreamNonBlocking));
  }
}

// Nobody is left to tell of an error here; outputs that matter were fetched after finish().
Context::~Context() {
  if (impl_->scratch != nullptr) static_cast<void>(cudaFree(impl_->scratch));
  if (impl_->stream != nullptr) static_cast<void>(cudaStreamDestroy(impl_->stream));
}

const char* Context::finish() {
  if (impl_->first_error == cudaSuccess) impl_->note(cudaStreamSynchronize(impl_->stream));
  return impl_->first_error == cudaSuccess ? nullptr : cudaGetErrorString(impl_->first_error);
}

// Managed memory: pages go where they are used, and the host may fill in a batch's rows. What only
// the device uses stays on it.
void* Context::allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (impl_->first_error == cudaSuccess) {
    impl_->note(cudaMallocManaged(&memory, bytes > 0 ? bytes : 1, cudaMemAttachGlobal));
  }
  if (memory != nullptr && impl_->first_error == cudaSuccess) return memory;
  memory = std::malloc(bytes > 0 ? bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  impl_->of_host.insert(memory);
  return memory;
}

void Context::release(void* memory) {
  if (memory == nullptr) return;
  if (impl_->of_host.erase(memory) > 0) {
    std::free(memory);
  } else {
    impl_->note(cudaFree(memory));
  }
}

void Context::copy(void* to, const void* from, std::size_t bytes) {
  if (impl_->first_error != cudaSuccess || bytes == 0) return;
  impl_->note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, impl_->stream));
  impl_->note(cudaStreamSynchronize(impl_->stream));
}

float* scratch(Context& context, std::size_t count) {
  Context::Impl& impl = context.impl();
  const std::size_t bytes = count * sizeof(float);
  if (impl.first_error == cudaSuccess && bytes > impl.scratch_bytes) {
    // cudaFree waits for whoever uses it still.
    if (impl.scratch != nullptr) impl.note(cudaFree(impl.scratch));
    impl.scratch = nullptr;
    impl.scratch_bytes = 0;
    impl.note(cudaMalloc(&impl.scratch, bytes));
    if (impl.first_error == cudaSuccess) impl.scratch_bytes = bytes;
  }
  return impl.first_error == cudaSuccess ? static_cast<float*>(impl.scratch) : nullptr;
}

}  // namespace muster::kernels::cuda
