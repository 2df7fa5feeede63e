// Whole files into memory, with a bound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/result.h"

namespace muster::data {

/// The bytes of a regular file of at most `max_bytes`.
/// Errors: kNotFound, kIo (with strerror), kTooLarge; each names the path.  Blocks: on the disk.
Result<std::vector<std::uint8_t>> read_file(const std::string& path, std::size_t max_bytes);

}  // namespace muster::data
