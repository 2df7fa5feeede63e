#include "tests/unit/engine/exchange_bytes.h"

#include <algorithm>
#include <vector>

#include "common/check.h"
#include "worker/engine/hosts.h"
#include "worker/engine/sharded_exchange.h"

namespace muster::test {
namespace {

using engine::Assignment;
using engine::ElementRange;
using engine::HostNode;
using engine::Reduction;

/// Of what somebody owns, the floats that go to all: of the gradient where all make all updates, of
/// the tail, and squares.
std::size_t floats_for_all(const Reduction& reduction, ElementRange owned) {
  const std::size_t trained = reduction.trained;
  const auto squares = [&](std::size_t at) { return engine::blocks_of(std::min(at, trained)); };
  std::size_t floats = engine::intersection(owned, {trained, SIZE_MAX}).size();
  if (!reduction.keeping) floats += engine::intersection(owned, {0, trained}).size();
  if (reduction.is_measured) floats += squares(owned.end) - squares(owned.begin);
  return floats;
}

/// Of what somebody owns, the floats that `rank` makes the update of.
std::size_t floats_updated(const Reduction& reduction, int rank, ElementRange owned) {
  const ElementRange trained = engine::intersection(owned, {0, reduction.trained});
  if (trained.size() == 0) return 0;
  const auto& kept = reduction.keeping->kept[static_cast<std::size_t>(rank)];
  return engine::size_of(engine::within(kept, trained));
}

/// Node sums that `rank` sends for what `owner` adds up of a bucket.
std::size_t nodes_sent(const Reduction& reduction, const std::vector<HostNode>& nodes, int rank,
                       int owner, std::size_t bucket) {
  std::size_t sent = 0;
  for (const HostNode& node : nodes) {
    const bool is_made = node.is_made() && !reduction.hosts.are_together(owner, node.holders[0]);
    const bool is_maker = is_made && node.maker(engine::turn_of(owner, bucket)) == rank;
    // Who does not make it gives its parts to who does.
    sent += is_maker ? 1
                     : static_cast<std::size_t>(
                           std::ranges::count(node.parts, rank, &engine::HeldNode::process));
  }
  return sent;
}

}  // namespace

std::uint64_t expected_bytes(const Assignment& assignment, int rank, const Reduction& reduction) {
  const engine::Hosts& on = reduction.hosts;
  const std::vector<HostNode> nodes = engine::host_nodes(assignment, on);
  const std::size_t others_beside = on.beside(rank).size() - 1;
  const auto hosts = static_cast<std::size_t>(on.count(assignment.processes()));
  std::uint64_t floats = 0;
  for (std::size_t bucket = 0; bucket < reduction.ownership.buckets().count(); ++bucket) {
    const ElementRange own = reduction.ownership.of(bucket, rank);
    floats += (others_beside + hosts - 1) * floats_for_all(reduction, own);
    for (int peer = 0; peer < assignment.processes(); ++peer) {
      if (peer == rank) continue;
      const ElementRange theirs = reduction.ownership.of(bucket, peer);
      floats += nodes_sent(reduction, nodes, rank, peer, bucket) * theirs.size();
      if (reduction.keeping) floats += floats_updated(reduction, peer, own);
      const bool gives_on =
          !on.are_together(rank, peer) && on.first_of(rank, engine::turn_of(peer, bucket)) == rank;
      if (gives_on) floats += others_beside * floats_for_all(reduction, theirs);
    }
  }
  return sizeof(float) * floats;
}

std::uint64_t expected_step_bytes(const Assignment& assignment, int rank,
                                  const Reduction& reduction) {
  MUSTER_CHECK(reduction.keeping.has_value());
  std::uint64_t bytes = expected_bytes(assignment, rank, reduction);
  bytes += static_cast<std::uint64_t>(assignment.processes() - 1);
  for (const auto& one : engine::plan_gifts({*reduction.keeping, reduction.hosts}, rank).all) {
    if (one.from == rank) bytes += one.range.size() * sizeof(float);
  }
  return bytes;
}

}  // namespace muster::test
