// What the cases of this directory share: a GPU (or the processor in its place), buffers on it, and
// the comparison with kernels/cpu, bit by bit.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/rng.h"
#include "kernels/cuda/ops.h"
#include "kernels/ops.h"
#include "tests/test_main.h"

namespace muster::test {

using Floats = std::vector<float>;

/// What stands before and after every buffer; whoever writes there is found out.
inline constexpr float kGuard = -12345.5F;
inline constexpr std::size_t kGuards = 16;

/// n values between the guards, in memory of the device that the host reaches.
template <typename Value>
class Buffer {
 public:
  Buffer(kernels::cuda::Context& gpu, const std::vector<Value>& values)
      : gpu_(gpu), size_(values.size()) {
    static_assert(sizeof(Value) == sizeof(float));
    memory_ = static_cast<Value*>(gpu.allocate((size_ + 2 * kGuards) * sizeof(Value)));
    REQUIRE(gpu.finish() == nullptr);
    for (std::size_t i = 0; i < kGuards; ++i) {
      std::memcpy(memory_ + i, &kGuard, sizeof kGuard);
      std::memcpy(memory_ + kGuards + size_ + i, &kGuard, sizeof kGuard);
    }
    if (size_ > 0) std::memcpy(data(), values.data(), size_ * sizeof(Value));
  }
  ~Buffer() { gpu_.release(memory_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Value* data() { return memory_ + kGuards; }
  /// After all that was begun. Guards are checked.
  std::vector<Value> values() {
    const char* const error = gpu_.finish();
    REQUIRE_MESSAGE(error == nullptr, error);
    std::size_t broken = 0;
    for (std::size_t i = 0; i < kGuards; ++i) {
      broken += std::memcmp(memory_ + i, &kGuard, sizeof kGuard) != 0 ? 1 : 0;
      broken += std::memcmp(memory_ + kGuards + size_ + i, &kGuard, sizeof kGuard) != 0 ? 1 : 0;
    }
    CHECK_MESSAGE(broken == 0, "written beyond a buffer's ends");
    return {data(), data() + size_};
  }

 private:
  kernels::cuda::Context& gpu_;
  std::size_t size_;
  Value* memory_ = nullptr;
};

using DeviceFloats = Buffer<float>;
using DeviceInts = Buffer<std::int32_t>;

/// Values in (-1, 1), some of them zeros of either sign.
inline Floats some(Rng& rng, std::size_t n) {
  Floats values(n);
  for (float& value : values) {
    value = static_cast<float>(2 * rng.unit() - 1);
    if (rng.below(16) == 0) value = rng.below(2) == 0 ? 0.0F : -0.0F;
  }
  return values;
}

/// Any bits, so that denormals and values of all sizes come up, but no NaN.
inline Floats any_bits(Rng& rng, std::size_t n) {
  Floats values(n);
  for (float& value : values) {
    const auto bits = static_cast<std::uint32_t>(rng());
    std::memcpy(&value, &bits, sizeof value);
    if (value != value) value = 0.0F;
  }
  return values;
}

/// Elements with other bits; NaNs are all alike.
inline std::size_t different(const Floats& got, const Floats& expected) {
  REQUIRE(got.size() == expected.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool are_nan = got[i] != got[i] && expected[i] != expected[i];
    count += !are_nan && std::memcmp(&got[i], &expected[i], sizeof(float)) != 0 ? 1 : 0;
  }
  return count;
}

/// Whether there is a device; else says what was not tried.
bool has_gpu(const char* what);

}  // namespace muster::test
