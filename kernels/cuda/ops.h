// The operations of the engine on a GPU: the same names, arguments and numerics contract as
// muster::kernels::cpu (kernels/ops.h), whose results are the truth in tests. A stream takes the
// place of threads; all pointers are memory of the context.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/operations.h"

namespace muster::kernels::cuda {

/// Of devices that kernels are compiled for, and later ones: Hopper's, major version.
inline constexpr int kCapability = 9;

/// Devices that there are; 0 without a driver.
int device_count();
/// Why there are none, in CUDA's words; nullptr where there are some.
const char* why_no_device();

/// A device, and how many processes share it and its memory.
struct DeviceShare {
  int device = 0;
  int processes = 1;
};

/// One stream of one device, one more for copies from and to the host beside it, and the first
/// error of what was put on them. Threads: one. Blocks: operations do not; they run in the order of
/// the calls.
class Context final : public kernels::Context {
 public:
  explicit Context(DeviceShare share = {}, Products products = Products::kFloat32);
  ~Context() override;

  const Operations& operations() const override;
  bool is_host() const override { return false; }
  DeviceFacts facts() const override;
  void* allocate(std::size_t bytes) override;
  void release(void* memory) override;
  /// A share of the device's memory but what CUDA itself and scratch of operations need, or what
  /// others had left of it when the context was made: CUDA would give more, and move it to and fro.
  /// Processes of one device may have different shares.
  std::size_t memory_most() const override;
  std::size_t memory_held() const;
  void zero(void* memory, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void put(void* to, const void* from, std::size_t bytes) override;
  std::uint64_t keep_pace() override;
  bool fetch(std::uint64_t part, void* to, const void* from, std::size_t bytes) override;
  const char* finish() override;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  void await_part();
  void await_all();

  std::unique_ptr<Impl> impl_;
};

// Each as kernels/ops.h has it.
#define MUSTER_DECLARATION(name) detail::OfContext<decltype(cpu::name)>::On<Context> name;
MUSTER_OPERATIONS(MUSTER_DECLARATION)
#undef MUSTER_DECLARATION

}  // namespace muster::kernels::cuda
