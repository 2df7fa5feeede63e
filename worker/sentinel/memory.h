// Whether the kernel ended a process for want of memory, as the control group counts it.
#pragma once

#include <cstdint>
#include <string>

namespace muster::sentinel {

/// Kills for want of memory in this process' control group, -1 where that is not counted. `root` is
/// put before every path, for tests.
std::int64_t count_memory_kills(const std::string& root = "");

}  // namespace muster::sentinel
