// The seed of this test run; printed at the end when a test failed, so that it can be given again.
#pragma once
#include <cstdint>

namespace muster::test {

/// Seed from `--seed N` (default 1). Property tests derive everything random from it.
std::uint64_t seed();

}  // namespace muster::test
