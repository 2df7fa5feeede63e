// How long a step takes whose gradients have fewer blocks than there are members to add them up:
// who has been given all of them goes on with the next step, while owners still give them to
// others. So steps overlap, and by how much is followed message by message, in the order in which
// trainers send them (worker/comm/tcp_communicator: from the rank behind the own one on). Pure.
#pragma once

#include <optional>
#include <vector>

namespace muster::core {

/// Members on hosts of their own.
struct FewBlocks {
  std::vector<int> sums;  ///< by member, that it sends of each block; 0: a spare
  double bytes = 0;       ///< of all gradients
  double bytes_per_second = 0;
  double latency_seconds = 0;
  double compute_seconds = 0;  ///< between what a member is given and what it sends
};

/// From step to step. Absent: nobody is without a block, or it would take long to follow.
std::optional<double> few_blocks_seconds(const FewBlocks& work);

}  // namespace muster::core
