// Plain references of the kernels, buffers that end at an unreadable page, and comparison by bits.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "tests/test_main.h"

namespace muster::test {

namespace cpu = kernels::cpu;

/// splitmix64: small, and the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return bits() % n; }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  float value() { return static_cast<float>(2.0 * unit() - 1.0); }
  /// Now and then a value that breaks careless code.
  float wild() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    constexpr float kSpecial[] = {0.0F,      -0.0F,      1e-42F,
                                  -1e-45F,   3e38F,      -3e38F,
                                  kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                                  1e-38F};
    return below(40) == 0 ? kSpecial[below(10)] : value();
  }

 private:
  std::uint64_t state_;
};

/// n values whose last is followed by memory that must not be touched; the start is aligned to 4
/// bytes only. The bytes before the first are checked by untouched().
template <typename T>
class Guarded {
 public:
  explicit Guarded(std::size_t n) : n_(n) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = (n * sizeof(T) + kMargin + page - 1) / page * page;
    size_ = bytes + page;
    memory_ = static_cast<std::byte*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(memory_ + bytes, page, PROT_NONE);
    std::memset(memory_, 0x5A, bytes);
    data_ = memory_ + bytes - n * sizeof(T);
  }
  ~Guarded() { munmap(memory_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  T* data() { return std::bit_cast<T*>(data_); }
  T& operator[](std::size_t i) { return data()[i]; }
  std::size_t size() const { return n_; }
  bool untouched() const {
    for (const std::byte* at = data_ - kMargin; at < data_; ++at) {
      if (*at != std::byte{0x5A}) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kMargin = 256;
  std::size_t n_;
  std::size_t size_;
  std::byte* memory_;
  std::byte* data_;
};

/// Values below 1, or with wild ones among them.
inline void fill(Guarded<float>& buffer, Random& random, bool wild = false) {
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    buffer[i] = wild ? random.wild() : random.value();
  }
}

using Floats = std::vector<float>;

inline bool same_bits(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

template <typename A, typename B>
std::size_t mismatches(A&& a, B&& b, std::size_t n) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < n; ++i) count += same_bits(a[i], b[i]) ? 0 : 1;
  return count;
}

inline std::vector<cpu::Target> targets() {
  std::vector<cpu::Target> found;
  for (const cpu::Target target :
       {cpu::Target::kScalar, cpu::Target::kAvx2, cpu::Target::kAvx512, cpu::Target::kNeon}) {
    if (cpu::has_target(target)) found.push_back(target);
  }
  return found;
}

/// Forces a target for one scope.
class Forced {
 public:
  explicit Forced(cpu::Target target) : before_(cpu::best_target()) { cpu::force_target(target); }
  ~Forced() { cpu::force_target(before_); }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;

 private:
  cpu::Target before_;
};

/// Left subtree: the largest power of two below n.
inline float tree(const float* values, std::size_t n) {
  if (n == 0) return 0.0F;
  if (n == 1) return values[0];
  const std::size_t left = std::bit_floor(n - 1);
  return tree(values, left) + tree(values + left, n - left);
}

/// The reduction rule of kernels/ops.h, word by word.
inline float reference_sum(const float* values, std::size_t n) {
  Floats blocks;
  for (std::size_t first = 0; first < n; first += 4096) {
    float lanes[16] = {};
    for (std::size_t i = first; i < n && i < first + 4096; ++i) {
      lanes[(i - first) % 16] += values[i];
    }
    for (std::size_t half : {8, 4, 2, 1}) {
      for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    }
    blocks.push_back(lanes[0]);
  }
  return tree(blocks.data(), blocks.size());
}

}  // namespace muster::test
