// The identity of parameters and optimiser state: SHA-256 over the SHA-256s of the blocks, so that
// owners of different blocks, and all threads of one, can compute it together.
#pragma once

#include <span>
#include <vector>

#include "common/sha256.h"
#include "kernels/ops.h"

namespace muster::engine {

/// SHA-256 of every block of 4,096 elements: little-endian bytes, the last block unpadded, every
/// NaN as 0x7fc00000.
std::vector<Sha256Digest> block_digests(std::span<const float> values);

/// The same by the threads of `context`, whose caller is seen to live meanwhile: of a large model
/// it takes seconds.
std::vector<Sha256Digest> block_digests(std::span<const float> values,
                                        kernels::cpu::Context& context);
/// The same of some blocks that need not lie side by side.
std::vector<Sha256Digest> block_digests(std::span<const std::span<const float>> blocks,
                                        kernels::cpu::Context& context);

/// SHA-256 over the concatenated digests.
Sha256Digest combine(std::span<const Sha256Digest> digests);

}  // namespace muster::engine
