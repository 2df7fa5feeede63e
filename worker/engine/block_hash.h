// The identity of parameters and optimiser state: SHA-256 over the SHA-256s of the blocks, so that
// owners of different blocks can compute it together.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "common/sha256.h"

namespace muster::engine {

/// SHA-256 of every block of 4,096 elements: little-endian bytes, the last block unpadded, every
/// NaN as 0x7fc00000. `on_alive` is called often: of a large model it takes seconds.
std::vector<Sha256Digest> block_digests(std::span<const float> values,
                                        const std::function<void()>& on_alive = nullptr);

/// SHA-256 over the concatenated digests.
Sha256Digest combine(std::span<const Sha256Digest> digests);

}  // namespace muster::engine
