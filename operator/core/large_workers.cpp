#include "operator/core/large_workers.h"

#include <algorithm>
#include <climits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/core/slot_groups.h"
#include "operator/core/topology.h"

namespace muster::core {
namespace {

constexpr std::size_t kMostLargeSizes = 8;

/// How far nodes are apart, the nearest first: not in one domain of the preferred level; not one
/// node; the height of the lowest domain around them; leaf domains.
using Apartness = std::tuple<bool, bool, int, std::size_t>;

Apartness apartness_of(const GangPlacement& placed, const WaitingGang& gang,
                       const Inventory& inventory) {
  const Topology& topology = inventory.topology();
  std::vector<int> nodes;
  for (const std::string& name : placed.node_of_slot) nodes.push_back(inventory.index_of(name));
  std::set<int> leaves;
  for (const int node : nodes) leaves.insert(topology.leaf_of_node[as_index(node)]);
  int around = *leaves.begin();
  for (const int leaf : leaves) around = topology.common_domain(around, leaf);
  const std::string& level = gang.preferred_level;
  const SlotGroups all{"", "", level, false, INT_MAX};
  const bool is_outside = !level.empty() && whole_groups(all, topology, nodes).whole == 0;
  const bool is_several = std::set<int>(nodes.begin(), nodes.end()).size() > 1;
  return {is_outside, is_several, topology.domains[as_index(around)].height, leaves.size()};
}

/// So many of the gang's workers may be one, the largest first: some node has room for as many, and
/// copies of a split model are made of whole ones, or they of whole copies.
std::vector<int> large_sizes(const WaitingGang& gang, const Rooms& rooms, const NodeCaps* caps) {
  std::vector<std::int64_t> fits = rooms.fits(gang.per_worker);
  std::int64_t most = 0;
  for (std::size_t node = 0; node < fits.size(); ++node) {
    most = std::max(most, caps == nullptr ? fits[node] : std::min(fits[node], (*caps)[node]));
  }
  most = std::min<std::int64_t>({most, gang.largest, gang.count});
  std::vector<int> sizes;
  for (int size = static_cast<int>(most); size > 1 && sizes.size() < kMostLargeSizes; --size) {
    const bool keeps_copies = gang.together % size == 0 || size % gang.together == 0;
    if (gang.count % size == 0 && keeps_copies) sizes.push_back(size);
  }
  return sizes;
}

/// The gang as if each so many of its workers were one.
WaitingGang in_large(const WaitingGang& gang, int size) {
  WaitingGang large = gang;
  large.count = large.min = gang.count / size;
  large.together = 1;  // all of them start or none
  api::WorkerSpec worker;
  worker.resources = gang.per_worker;
  large.per_worker = api::with_size(std::move(worker), size).resources;
  if (large.mesh) large.mesh->processes *= size;
  return large;
}

/// Whether the gang's workers fit there as they are, which take more of what is counted by pod.
bool do_fit_as_written(const WaitingGang& gang, const GangPlacement& placed,
                       const Inventory& inventory) {
  std::map<int, std::int64_t> wanted;
  for (const std::string& name : placed.node_of_slot) ++wanted[inventory.index_of(name)];
  const NumberedAmounts needs = inventory.needs(amounts_of(gang.per_worker));
  return std::all_of(wanted.begin(), wanted.end(), [&](const auto& one) {
    return inventory.pods_free_on(one.first, needs, one.second) >= one.second;
  });
}

/// By slot of the gang's own workers, where each so many of them stand on one node; none of it is
/// taken. Nothing: there is no room.
std::optional<GangPlacement> placed_in_large(const WaitingGang& gang, int size, Rooms& rooms,
                                             const NodeCaps* caps, PlaceAnew place_anew) {
  const WaitingGang large = in_large(gang, size);
  NodeCaps caps_of_large = caps == nullptr ? NodeCaps() : *caps;
  for (std::int64_t& cap : caps_of_large) cap /= size;
  GangVerdict verdict = place_anew(large, rooms, caps == nullptr ? nullptr : &caps_of_large);
  if (!verdict.placement) return std::nullopt;
  GangPlacement placed = *std::move(verdict.placement);
  rooms.give_back(placed, large.per_worker);
  std::vector<std::string> nodes;
  for (const std::string& node : placed.node_of_slot)
    nodes.insert(nodes.end(), as_index(size), node);
  placed.node_of_slot = std::move(nodes);
  std::vector<std::string>& domains = placed.domain_of_slot;
  if (!domains.empty()) domains = rooms.domains_of(placed.node_of_slot);
  if (!do_fit_as_written(gang, placed, rooms.inventory())) return std::nullopt;
  return placed;
}

}  // namespace

void place_large(const WaitingGang& gang, GangPlacement& placed, Rooms& rooms, const NodeCaps* caps,
                 PlaceAnew place_anew) {
  if (placed.node_of_slot.size() != as_index(gang.count)) return;
  rooms.give_back(placed, gang.per_worker);
  const Apartness least = apartness_of(placed, gang, rooms.inventory());
  for (const int size : large_sizes(gang, rooms, caps)) {
    auto large = placed_in_large(gang, size, rooms, caps, place_anew);
    if (!large || apartness_of(*large, gang, rooms.inventory()) > least) continue;
    placed = *std::move(large);
    break;
  }
  for (const std::string& node : placed.node_of_slot) rooms.take(node, gang.per_worker);
}

}  // namespace muster::core
