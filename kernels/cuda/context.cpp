#include "kernels/cuda/context.h"

namespace muster::kernels::cuda {

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

Context::Context(int device) : impl_(std::make_unique<Impl>()) {
  impl_->note(cudaSetDevice(device));
  if (impl_->first_error == cudaSuccess) {
    impl_->note(cudaStreamCreateWithFlags(&impl_->stream, cudaStreamNonBlocking));
  }
}

// Nobody is left to tell of an error here; outputs that matter were fetched after finish().
Context::~Context() {
  if (impl_->stream != nullptr) static_cast<void>(cudaStreamDestroy(impl_->stream));
}

const char* Context::finish() {
  if (impl_->first_error == cudaSuccess) impl_->note(cudaStreamSynchronize(impl_->stream));
  return impl_->first_error == cudaSuccess ? nullptr : cudaGetErrorString(impl_->first_error);
}

void* Context::allocate(std::size_t bytes) {
  void* memory = nullptr;
  if (impl_->first_error != cudaSuccess) return nullptr;
  impl_->note(cudaMallocAsync(&memory, bytes, impl_->stream));
  return memory;
}

void Context::release(void* memory) {
  if (memory != nullptr) impl_->note(cudaFreeAsync(memory, impl_->stream));
}

void Context::copy_to_device(void* device, const void* host, std::size_t bytes) {
  if (impl_->first_error != cudaSuccess) return;
  impl_->note(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, impl_->stream));
  impl_->note(cudaStreamSynchronize(impl_->stream));
}

void Context::copy_to_host(void* host, const void* device, std::size_t bytes) {
  if (impl_->first_error != cudaSuccess) return;
  impl_->note(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, impl_->stream));
  impl_->note(cudaStreamSynchronize(impl_->stream));
}

}  // namespace muster::kernels::cuda
