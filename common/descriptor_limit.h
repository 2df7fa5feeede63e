// How many descriptors a process may have open. The soft limit is 1,024 almost everywhere for the
// sake of select(), which no part of Muster calls.
#pragma once

#include <sys/resource.h>

#include <cstdint>

namespace muster {

/// Raises the soft limit of this process, and of those that it starts, to the hard one; how many it
/// may have open then. What a limit refuses stays as it was. `found`: what it was.
std::uint64_t raise_descriptor_limit(rlimit* found = nullptr);

}  // namespace muster
