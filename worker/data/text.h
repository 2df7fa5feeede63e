// A text as a dataset: each byte is predicted from those before it. No tokenizer, no encoding: any
// file of bytes will do, and any worker reads the same samples from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/result.h"
#include "worker/data/dataset.h"

namespace muster::data {

/// Most bytes of a text.
inline constexpr std::uint64_t kMaxTextBytes = std::uint64_t{4} << 30;

/// Reads the file at `path`, for training and for testing alike. Sample i is made of its bytes from
/// i * context to i * context + context: all but the last are the input, all but the first are the
/// labels. What is left at the end and makes no whole sample is not read by any. Requires
/// context >= 1. The text may take `most_memory`.
/// Errors: as load_dataset().  Blocks: on the disk.
Result<Dataset> load_text(const std::string& path, std::size_t context,
                          std::uint64_t most_memory = kAnyMemory);

}  // namespace muster::data
