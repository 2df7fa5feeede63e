// How many descriptors a process of a worker may have open: one for each peer, of several
// memberships at a time while they change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace muster::worker {

/// Why `limit` may not do for a trainer among so many processes: it is connected with all of them
/// in the present membership, in the next and in one that is just given up. Empty where it does.
std::string describe_few_descriptors(std::uint64_t limit, std::size_t processes);

}  // namespace muster::worker
