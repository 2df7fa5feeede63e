// The operations of the engine on a GPU: the same names, arguments and numerics contract as
// muster::kernels::cpu (kernels/ops.h), whose results are the truth in tests. A stream takes the
// place of threads; all pointers are device memory.
#pragma once

#include <cstddef>
#include <memory>

#include "kernels/ops.h"

namespace muster::kernels::cuda {

/// Devices that can be used; 0 without a driver.
int device_count();

/// One stream of one device, and the first error of what was put on it.
/// Threads: one. Blocks: operations do not; they run in the order of the calls.
class Context {
 public:
  explicit Context(int device = 0);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Until everything put on the stream is done. Returns nullptr, or the first error's text: then
  /// all outputs since the last call are undefined. Blocks: yes.
  const char* finish();

  /// Device memory, or nullptr (finish() then tells why).
  void* allocate(std::size_t bytes);
  void release(void* memory);
  /// Copies in stream order. Blocks: until the host's buffer may be used again.
  void copy_to_device(void* device, const void* host, std::size_t bytes);
  void copy_to_host(void* host, const void* device, std::size_t bytes);

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

/// x = gradient_scale g; v = fma(momentum, v, x); w = fma(-learning_rate, v, w).  Shape: all (n).
void sgd_momentum(Context& context, std::size_t n, const SgdStep& step, const float* g, float* v,
                  float* w);

}  // namespace muster::kernels::cuda
