// From which sizes on gradients go another way. Trainers go by them, and the operator foretells by
// them how long a step takes and what it sends.
#pragma once

#include <cstddef>

namespace muster::exchange_sizes {

/// Values that one process adds up at a time. Kernels sum by the same number (kBlockElements).
inline constexpr std::size_t kBlockElements = 4096;
/// Least of the gradients that is sent at once while others are still computed, in blocks.
inline constexpr std::size_t kBucketBlocks = 256;
/// Gradients of so many blocks and more are added up by the processes of a host before they leave
/// it, and come to it once.
inline constexpr std::size_t kHostBlocks = 256;

}  // namespace muster::exchange_sizes
