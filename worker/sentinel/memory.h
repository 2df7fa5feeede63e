// What memory and how many processors a process may have, and whether the kernel ended one for want
// of memory, as the control group says.
#pragma once

#include <cstdint>
#include <string>

namespace muster::sentinel {

/// Kills for want of memory in this process' control group, -1 where that is not counted. `root` is
/// put before every path, for tests.
std::int64_t count_memory_kills(const std::string& root = "");

/// Bytes that this process and all others of its control group may have together: the least limit
/// of the group and those it is in, at most the machine's memory. -1 where nothing tells.
std::int64_t memory_limit(const std::string& root = "");

/// Processors that all of its control group may use together: the least quota of the group and
/// those it is in. -1 where there is none.
double processor_limit(const std::string& root = "");

}  // namespace muster::sentinel
