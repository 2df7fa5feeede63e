// The seed of this test run; printed at the end when a test failed, so that it can be given again.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MUSTER_TEST_SANITIZED 1
#elif defined(__has_feature)  // clang's word for it
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MUSTER_TEST_SANITIZED 1
#endif
#endif

namespace muster::test {

/// Seed from `--seed N` (default 1). Property tests derive everything random from it.
std::uint64_t seed();

/// How many cases the longest property tests look at: `usual`, or what `--cases N` says (a night's
/// run has a million).
std::int64_t cases(std::int64_t usual);

/// How often a random case is tried, of how many it must then tell, or how many of `n` values are:
/// a quarter, but one at least, under sanitizers, which look at each access and take ten times as
/// long.
constexpr int tries(int n) {
#ifdef MUSTER_TEST_SANITIZED
  return n < 4 ? 1 : n / 4;
#else
  return n;
#endif
}

/// Those of `values` that are tried: the first tries(N).
template <typename T, std::size_t N>
constexpr std::span<const T, tries(N)> tried(const std::array<T, N>& values) {
  return std::span(values).template first<tries(N)>();
}

}  // namespace muster::test
