#include "worker/descriptor_limit.h"

namespace muster::worker {
namespace {

/// Connections with one peer that may be open at a time.
constexpr std::uint64_t kConnectionsOfPeer = 3;

}  // namespace

std::string describe_few_descriptors(std::uint64_t limit, std::size_t processes) {
  const std::uint64_t wanted = kConnectionsOfPeer * processes;
  if (wanted <= limit) return {};
  return "a trainer of " + std::to_string(processes) + " processes may want " +
         std::to_string(wanted) + " descriptors while workers come and go, and is allowed " +
         std::to_string(limit) +
         "; raise the hard limit of open files (LimitNOFILE of the node's " +
         "container runtime, ulimit -Hn)";
}

}  // namespace muster::worker
