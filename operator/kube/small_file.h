// Small files that come from outside: certificates, tokens, kubeconfigs.
#pragma once

#include <cstddef>
#include <string>

#include "common/result.h"

namespace muster::kube {

inline constexpr std::size_t kSmallFileBytesMax = std::size_t{1} << 20;

/// The whole file, between 1 byte and 1 MiB. Errors: kInvalid with the path and what is wrong with
/// it. Blocks: on the disk; a pipe or device is refused.
Result<std::string> read_small_file(const std::string& path);

}  // namespace muster::kube
