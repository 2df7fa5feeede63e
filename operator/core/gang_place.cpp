#include "operator/core/gang_place.h"

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <set>
#include <tuple>

#include "operator/core/copies.h"
#include "operator/core/large_workers.h"
#include "operator/core/mesh_order.h"
#include "operator/core/node_terms.h"
#include "operator/core/placement.h"
#include "operator/core/placement_groups.h"
#include "operator/core/placement_words.h"
#include "operator/core/slot_groups.h"
#include "operator/core/text.h"
#include "operator/core/topology_sources.h"

namespace muster::core {
namespace {

constexpr std::size_t kMaxNodesInText = 3;
constexpr std::size_t kMaxTaintBytes = 128;

/// Nodes are left out by NodeRefusal, or because the others of the gang are elsewhere.
constexpr std::size_t kElsewhere = kNodeRefusals, kRefusals = kNodeRefusals + 1;

bool keeps_out(const api::Node::Taint& taint, const WaitingGang& gang) {
  return taint.is_hard() && !tolerates_taint(gang.tolerations, taint);
}

/// The first that keeps the gang's pods out; nullptr: none does.
const api::Node::Taint* taint_against(const api::Node& node, const WaitingGang& gang) {
  const auto found = std::find_if(node.taints.begin(), node.taints.end(),
                                  [&](const auto& taint) { return keeps_out(taint, gang); });
  return found == node.taints.end() ? nullptr : &*found;
}

bool is_tainted_for_good(const api::Node& node, const WaitingGang& gang) {
  return std::any_of(node.taints.begin(), node.taints.end(), [&](const auto& taint) {
    return !is_for_a_while(taint) && keeps_out(taint, gang);
  });
}

std::string selecting_fields(const WaitingGang& gang) {
  if (gang.node_terms.empty()) return "spec.worker.nodeSelector";
  return gang.node_selector.empty() ? "spec.worker.affinity"
                                    : "spec.worker.nodeSelector and affinity";
}

bool is_selected(const api::Node& node, const WaitingGang& gang) {
  const auto is_its = [&](const auto& wanted) {
    const auto label = node.meta.labels.find(wanted.first);
    return label != node.meta.labels.end() && label->second == wanted.second;
  };
  return std::all_of(gang.node_selector.begin(), gang.node_selector.end(), is_its) &&
         (gang.node_terms.empty() || selects(gang.node_terms, node));
}

std::string free_text(const ResourceAmounts& all, const api::Resources& per_worker) {
  std::string text;
  for (const auto& [name, amount] : amounts_of(per_worker)) {
    const auto found = all.find(name);
    const std::int64_t free = found == all.end() ? 0 : found->second;
    if (name == "pods" && free > 0) continue;
    if (!text.empty()) text += ", ";
    text += name + " " + amount_text(name, free);
  }
  return text;
}

struct NodeOffer {
  int node = 0;
  int by_name = 0;  ///< how many come before it
  std::int64_t fit = 0;
  int distance = 0;        ///< to the nodes where the gang stands already
  bool is_beside = false;  ///< it is one of these
  int burden = 0;          ///< PcieUse::burden of what it would take of the gang
};

/// What nodes offer to a gang.
struct Offers {
  std::vector<NodeOffer> candidates;
  std::int64_t total = 0;  ///< workers that fit on them, kManyWorkers at most
  std::array<int, kRefusals> refused{};
  /// One that refuses it by a taint, with room for it if there is any; -1: none does.
  int tainted = -1;
};

}  // namespace

bool is_closed_to(const WaitingGang& gang, const api::Node& node) {
  return !is_selected(node, gang) || is_tainted_for_good(node, gang);
}

namespace {

/// Where no node could ever hold a worker, occupied or not: how the job gets one that is made for
/// it. Nothing of gangs that this would not help: they need places, or to be with others.
std::string about_new_nodes(const WaitingGang& gang, const Inventory& inventory) {
  if (!gang.nodes_may_come || !gang.wish.slots.empty() || !gang.required_level.empty()) return "";
  std::vector<std::pair<int, std::int64_t>> needs;
  for (const auto& [resource, amount] : amounts_of(gang.per_worker)) {
    if (amount > 0) needs.emplace_back(inventory.resource_index(resource), amount);
  }
  const auto& nodes = inventory.by_name();
  const bool any = std::any_of(nodes.begin(), nodes.end(), [&](int node) {
    const bool is_large_enough = std::all_of(needs.begin(), needs.end(), [&](const auto& need) {
      return inventory.amount_on(node, need.first).offered >= need.second;
    });
    return is_large_enough && !is_closed_to(gang, inventory.node(node));
  });
  return any ? "" : "; where nodes come on demand: spec.scheduling: Unplaced";
}

/// The key of the taint that keeps the gang off a node; empty for none.
std::string taint_text(const WaitingGang& gang, const Inventory& inventory, int node) {
  if (node < 0) return "";
  return head_of(taint_against(inventory.node(node), gang)->key, kMaxTaintBytes);
}

std::string needs_text(const WaitingGang& gang, int workers) {
  return "needs " + std::to_string(workers) + " x " + resources_text(gang.per_worker);
}

std::string why_not(const WaitingGang& gang, const Inventory& inventory, const Offers& offers) {
  const auto& candidates = offers.candidates;
  const auto& refused = offers.refused;
  std::string text = needs_text(gang, gang.min);
  if (gang.min < gang.count) text += " at least (" + std::to_string(gang.count) + " wished for)";
  text += "; room for " + std::to_string(offers.total);
  std::size_t shown = 0;
  for (const auto& candidate : candidates) {
    if (shown++ == kMaxNodesInText) break;
    text += "; node " + inventory.node(candidate.node).meta.name + " has " +
            free_text(inventory.free_on(candidate.node), gang.per_worker) + " free";
  }
  if (candidates.size() > kMaxNodesInText) {
    text += "; " + std::to_string(candidates.size() - kMaxNodesInText) + " more nodes have less";
  }
  const std::string& of_one_node = gang.volumes.one_node;
  const std::array<std::string, kRefusals> why{
      "",
      "not ready",
      "cordoned",
      "tainted, e.g. " + taint_text(gang, inventory, offers.tainted) + " (spec.worker.tolerations)",
      "not selected (" + selecting_fields(gang) + ")",
      "without its volumes (spec.worker.volumes)",
      "refused a pod of this job a moment ago",
      "being emptied",
      "not where the others are" + (of_one_node.empty() ? "" : ", and " + of_one_node)};
  for (std::size_t i = 1; i < kRefusals; ++i) {
    if (refused[i] > 0) text += "; " + std::to_string(refused[i]) + " x " + why[i];
  }
  if (candidates.empty() && refused == std::array<int, kRefusals>{}) text += "; there is no node";
  return text + about_new_nodes(gang, inventory);
}

/// Of a gang for which there is room, but none where its checkpoint's volume is.
std::string why_no_first(const WaitingGang& gang) {
  std::string nodes;
  std::size_t shown = 0;
  for (const std::string& node : *gang.volumes.first_slot) {
    if (shown++ == kMaxNodesInText) break;
    nodes += (nodes.empty() ? "" : ", ") + node;
  }
  return "needs " + resources_text(gang.per_worker) +
         " for slot 0 on a node that reaches the volume of its checkpoint (" + nodes +
         "), and there is no room now";
}

/// Of a gang that must stand within one domain, and fits no single node.
std::string why_not_together(const WaitingGang& gang, const Rooms& rooms, std::int64_t most) {
  const std::string note = rooms.passed_over();
  std::string text = "spec.topology.required is " + gang.required_level +
                     ", and no node says in which it stands, so all workers must fit one "
                     "node; use preferred, or leave topology out";
  if (!note.empty()) text += " (" + note + ")";
  if (gang.unplaced) return text + ", or scheduling: Placed";
  return text + ". Needs " + std::to_string(gang.min) + " x " + resources_text(gang.per_worker) +
         " on a node; room for " + std::to_string(most);
}

/// Slots that join a gang: nodes where it stands already come first, then the nearest to them. Of
/// those that do not suffice only the ones that are named are sorted.
void sort_candidates(std::vector<NodeOffer>& candidates, bool do_suffice) {
  const auto is_better = [](const NodeOffer& a, const NodeOffer& b) {
    const bool a_beside = a.fit > 0 && a.is_beside;
    const bool b_beside = b.fit > 0 && b.is_beside;
    if (a_beside != b_beside) return a_beside;
    if ((a.fit > 0) != (b.fit > 0)) return a.fit > 0;
    if (a.distance != b.distance) return a.distance < b.distance;
    // All workers of a gang are alike, so taking the roomiest nodes first uses the fewest.
    if (a.fit != b.fit) return a.fit > b.fit;
    if (a.burden != b.burden) return a.burden < b.burden;
    return a.by_name < b.by_name;
  };
  const std::size_t sorted =
      do_suffice ? candidates.size() : std::min(candidates.size(), kMaxNodesInText);
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(sorted),
                    candidates.end(), is_better);
}

PodShape shape_of(const WaitingGang& gang) {
  PodShape shape;
  shape.requests = amounts_of(gang.per_worker);
  shape.node_selector = gang.node_selector;
  shape.node_terms = gang.node_terms;
  shape.tolerations = gang.tolerations;
  shape.only_nodes = gang.volumes.every_slot;
  shape.avoid_nodes = gang.avoid;
  return shape;
}

/// The lowest domain that holds all pods and this node, within the required level; -1 = none.
int lowest_around(const Topology& topology, const Room& room, const PlacementWish& wish, int node) {
  const auto fit = room.on_node[as_index(node)];
  const int leaf = topology.leaf_of_node[as_index(node)];
  if (names_host(wish.required)) return fit >= wish.pods ? leaf : -1;
  const std::vector<int> levels = topology.levels_named(wish.required);
  int lowest = fit > 0 ? leaf : -1;
  while (lowest >= 0 && room.in_domain[as_index(lowest)] < wish.pods) {
    lowest = topology.domains[as_index(lowest)].parent;
  }
  bool is_within = wish.required.empty();
  for (int d = lowest; d >= 0; d = topology.domains[as_index(d)].parent) {
    const int level = topology.domains[as_index(d)].level;
    is_within = is_within || std::find(levels.begin(), levels.end(), level) != levels.end();
  }
  return is_within ? lowest : -1;
}

bool reaches_first(const WaitingGang& gang, const Topology& topology, const Placement& placement) {
  return std::any_of(placement.hosts.begin(), placement.hosts.end(), [&](const HostShare& host) {
    return gang.volumes.first_slot.allows(topology.nodes[as_index(host.node)]);
  });
}

std::vector<GroupWish> group_wishes(const std::vector<SlotGroups>& groups, int pods) {
  std::vector<GroupWish> wishes;
  for (const SlotGroups& one : groups) {
    wishes.push_back({one.size(pods), one.level, one.is_required, one.field});
  }
  return wishes;
}

/// By node, whether slot 0 can mount the volume of its checkpoint there; empty: anywhere.
std::vector<bool> first_nodes(const WaitingGang& gang, const Inventory& inventory) {
  if (!gang.volumes.first_slot) return {};
  std::vector<bool> nodes(inventory.size(), false);
  for (const std::string& name : *gang.volumes.first_slot) {
    const int node = inventory.index_of(name);
    if (node >= 0) nodes[as_index(node)] = true;
  }
  return nodes;
}

/// place_gang with one pod at least where slot 0 can mount the volume of its checkpoint: if need
/// be, around a node that reaches it. None on nodes that are `closed`.
PlacementVerdict place_with_first(const WaitingGang& gang, Rooms& rooms, PlacementWish wish,
                                  const std::vector<bool>& closed) {
  Inventory& inventory = rooms.inventory();
  const Topology& topology = inventory.topology();
  const Traffic* traffic = rooms.traffic();
  wish.work = work_of(gang.step, wish.pods, topology.host);
  std::tie(wish.usual, wish.pod_size) = rooms.usual_sizes(gang.per_worker);
  const PcieUse pcie(inventory, gang.per_worker);
  wish.pcie = &pcie;
  wish.gpus = rooms.gpus_of(gang.per_worker);
  PodShape shape = shape_of(gang);
  shape.closed_nodes = closed;
  const Room& room = inventory.room(shape);
  wish.groups = group_wishes(gang.groups, wish.pods);
  if (!wish.groups.empty()) wish.first = first_nodes(gang, inventory);
  PlacementVerdict verdict = place_gang(topology, room, wish, traffic);
  if (!verdict.placement && !std::exchange(wish.first, {}).empty()) {
    const bool fits = place_gang(topology, room, wish, traffic).placement.has_value();
    if (fits) verdict.why_not = why_no_first(gang);
  }
  if (!verdict.placement || reaches_first(gang, topology, *verdict.placement)) return verdict;
  wish.groups.clear();  // none could be kept
  int first = -1, around = -1;
  for (const std::string& name : *gang.volumes.first_slot) {
    const int node = inventory.index_of(name);
    const int domain = node < 0 ? -1 : lowest_around(topology, room, wish, node);
    if (domain < 0) continue;
    const auto height = [&](int one) { return topology.domains[as_index(one)].height; };
    if (around >= 0 && height(domain) >= height(around)) continue;
    first = node;
    around = domain;
  }
  if (first < 0) return {std::nullopt, why_no_first(gang)};
  std::set<std::string> inside;
  const Domain& domain = topology.domains[as_index(around)];
  for (int node = domain.first_node; node < domain.first_node + domain.nodes; ++node) {
    const std::string& name = topology.nodes[as_index(node)];
    const bool is_beside = !names_host(wish.required) || node == first;
    if (is_beside && gang.volumes.every_slot.allows(name)) inside.insert(name);
  }
  shape.only_nodes = std::move(inside);
  verdict = place_gang(topology, inventory.room(shape), wish, traffic);
  if (!verdict.placement || reaches_first(gang, topology, *verdict.placement)) return verdict;
  auto& hosts = verdict.placement->hosts;
  if (--hosts.back().pods == 0) hosts.pop_back();
  hosts.push_back({first, 1});
  std::sort(hosts.begin(), hosts.end(),
            [](const HostShare& a, const HostShare& b) { return a.node < b.node; });
  return verdict;
}

/// Of nodes group by group: slot 0 is where the volume of its checkpoint can be mounted, so the
/// group that stands there comes first, and within it that node. One of them at least reaches it.
void put_first(const WaitingGang& gang, const std::vector<GroupWish>& groups,
               const Topology& topology, std::vector<int>& nodes) {
  const auto reaches = [&](int node) {
    return gang.volumes.first_slot.allows(topology.nodes[as_index(node)]);
  };
  auto first = std::find_if(nodes.begin(), nodes.end(), reaches) - nodes.begin();
  for (std::size_t i = groups.size(); i-- > 0;) {
    const std::ptrdiff_t size = groups[i].size;
    const std::ptrdiff_t begin = first - first % size;
    if (begin == 0) continue;
    std::swap_ranges(nodes.begin(), nodes.begin() + size, nodes.begin() + begin);
    first -= begin;
  }
  std::iter_swap(nodes.begin(), nodes.begin() + first);
}

/// The gang's nodes by slot, each of these groups within its place.
std::vector<int> nodes_by_group(const WaitingGang& gang, const std::vector<SlotGroups>& groups,
                                std::vector<int> nodes, const Topology& topology) {
  const int slots = static_cast<int>(nodes.size());
  put_first(gang, group_wishes(groups, slots), topology, nodes);
  const std::vector<int> order = slots_by_group(groups, slots);
  std::vector<int> by_slot(nodes.size());
  for (std::size_t i = 0; i < nodes.size(); ++i) by_slot[as_index(order[i])] = nodes[i];
  return by_slot;
}

/// Those of the gang's groups that the placement keeps.
std::vector<SlotGroups> kept_groups(const WaitingGang& gang, const Placement& placement) {
  std::vector<SlotGroups> kept;
  for (std::size_t i = 0; i < placement.keeps_groups.size(); ++i) {
    if (placement.keeps_groups[i]) kept.push_back(gang.groups[i]);
  }
  return kept;
}

/// The gang's nodes by slot, along the tree; a split model's in the order in which it sends for the
/// shortest time. Slot 0 is where the volume of its checkpoint can be mounted.
std::vector<int> nodes_by_slot(const WaitingGang& gang, const Placement& placement, Rooms& rooms,
                               std::string& why) {
  const Topology& topology = rooms.inventory().topology();
  std::vector<int> nodes = placement.nodes();
  const std::vector<SlotGroups> groups = kept_groups(gang, placement);
  if (!groups.empty()) return nodes_by_group(gang, groups, std::move(nodes), topology);
  if (gang.mesh) {
    const Traffic* traffic = rooms.traffic();
    const StepModel model(topology, {}, traffic == nullptr ? nullptr : &traffic->uses());
    if (order_mesh(model, *gang.mesh, nodes) == MeshOrder::kStagesTogether) {
      why +=
          "; workers with the same stage are beside each other, for they send more to each other";
    }
  }
  const auto first = std::find_if(nodes.begin(), nodes.end(), [&](int node) {
    return gang.volumes.first_slot.allows(topology.nodes[as_index(node)]);
  });
  if (gang.mesh) {
    std::iter_swap(nodes.begin(), first);  // all others keep their neighbours
  } else {
    std::rotate(nodes.begin(), first, nodes.end());
  }
  return nodes;
}

/// Whom the gang meets below PCIe switches of these hosts, and where it sends between NUMA nodes;
/// before its room is taken.
std::string why_shared(const WaitingGang& gang, Rooms& rooms, const std::vector<HostShare>& hosts) {
  const api::Resources& per_worker = gang.per_worker;
  return PcieUse(rooms.inventory(), per_worker).why(hosts, [&](int node) {
    return rooms.gpus_by_job(node, per_worker.gpu_resource);
  });
}

/// By slot the numbers of its nodes; -1: it has none.
std::vector<int> numbers_of(const std::vector<std::string>& nodes, const Inventory& inventory) {
  std::vector<int> numbers;
  for (const std::string& name : nodes) {
    numbers.push_back(name.empty() ? -1 : inventory.index_of(name));
  }
  return numbers;
}

void tell_groups(const WaitingGang& gang, const Inventory& inventory, GangPlacement& placed) {
  if (gang.groups.empty()) return;
  const std::vector<int> nodes = numbers_of(placed.node_of_slot, inventory);
  placed.why +=
      (placed.why.empty() ? "" : "; ") + groups_text(gang.groups, inventory.topology(), nodes);
}

/// As many workers as fit, up to the wish and down to the least, along the tree; none on nodes that
/// are `closed`.
GangVerdict place_along_tree(const WaitingGang& gang, Rooms& rooms,
                             const std::vector<bool>& closed) {
  PlacementWish wish;
  wish.required = gang.required_level;
  wish.preferred = gang.preferred_level;
  if (names_host(gang.required_level)) wish.one_host_for = gang.volumes.one_node;
  wish.pods = gang.min;
  PlacementVerdict best = place_with_first(gang, rooms, wish, closed);
  if (!best.placement) {
    return {std::nullopt, needs_text(gang, gang.min) + ": " + best.why_not +
                              about_new_nodes(gang, rooms.inventory())};
  }
  // What fits falls with the number, so halving finds the most; mostly all fit.
  const int least = gang.min / gang.together, most = gang.count / gang.together;
  for (int low = least, high = most, tried = most; low < high;) {
    wish.pods = tried * gang.together;
    PlacementVerdict more = place_with_first(gang, rooms, wish, closed);
    if (more.placement) {
      low = tried;
      best = std::move(more);
    } else {
      high = tried - 1;
    }
    tried = low + (high - low + 1) / 2;
  }
  GangPlacement placed;
  placed.why = best.placement->why;
  const std::vector<int> nodes = nodes_by_slot(gang, *best.placement, rooms, placed.why);
  placed.node_of_slot.reserve(nodes.size());
  for (const int node : nodes) {
    placed.node_of_slot.push_back(rooms.inventory().topology().nodes[as_index(node)]);
  }
  tell_groups(gang, rooms.inventory(), placed);
  const std::string shared = why_shared(gang, rooms, best.placement->hosts);
  if (!shared.empty()) placed.why += "; " + shared;
  if (!wish.one_host_for.empty()) placed.why += "; all on one node: " + wish.one_host_for;
  placed.domain_of_slot = rooms.domains_of(nodes);
  rooms.take(best.placement->hosts, gang.per_worker);
  return {std::move(placed), ""};
}

/// What caps leave of the tree, which counts whole nodes.
struct WholeNodes {
  std::vector<bool> closed;  ///< by node: the gang may not take all it could there
  std::int64_t room = 0;     ///< on the others it has no more, whoever may stand there
};

WholeNodes whole_nodes(const api::Resources& per_worker, int count, const Rooms& rooms,
                       const NodeCaps& caps) {
  const std::vector<std::int64_t> fits = rooms.fits(per_worker);
  WholeNodes whole{std::vector<bool>(caps.size(), false)};
  for (std::size_t i = 0; i < caps.size(); ++i) {
    if (caps[i] < std::min<std::int64_t>(fits[i], count)) {
      whole.closed[i] = true;
    } else {
      whole.room += fits[i];
    }
  }
  return whole;
}

/// nullptr: none of its groups must be whole.
const SlotGroups* required_groups(const WaitingGang& gang) {
  const auto found = std::find_if(gang.groups.begin(), gang.groups.end(),
                                  [](const SlotGroups& one) { return one.is_required; });
  return found == gang.groups.end() ? nullptr : &*found;
}

/// Of a gang that asks for topology, where anything is known of it, the verdict; of one that does
/// not, its place where the network is known and the tree has one. Where it may have a part of some
/// nodes the tree does not know all that is there, so that what is only preferred has no verdict.
std::optional<GangVerdict> place_by_topology(const WaitingGang& gang, Rooms& rooms,
                                             const NodeCaps* caps, bool is_known) {
  const bool prefers = !gang.preferred_level.empty();
  const bool has_groups = !gang.groups.empty() && (is_known || gang.required_level.empty());
  const bool asks = is_known || has_groups || (prefers && rooms.knows("host"));
  const bool is_free = gang.required_level.empty() && !prefers && gang.count > 1;
  if (!asks && !(is_free && rooms.knows_network())) return std::nullopt;
  const bool must = !gang.required_level.empty() || required_groups(gang) != nullptr;
  const bool is_final = asks && (caps == nullptr || must);
  WholeNodes whole;
  if (caps != nullptr) whole = whole_nodes(gang.per_worker, gang.count, rooms, *caps);
  // Where room is kept on most nodes there is mostly nothing to look for.
  if (caps != nullptr && !is_final && whole.room < gang.min) return std::nullopt;
  GangVerdict verdict = place_along_tree(gang, rooms, whole.closed);
  if (!is_final && !verdict.placement) return std::nullopt;
  return verdict;
}

/// From `at` on, the roomiest first: of those that hold all of the rest the tightest comes next, if
/// it can be one where no PCIe switch is shared and no NUMA node left. That uses as few nodes, and
/// leaves the roomy ones to gangs that need them.
void put_tightest_next(std::vector<NodeOffer>& candidates, std::size_t at, std::int64_t workers) {
  const auto begin = candidates.begin() + static_cast<std::ptrdiff_t>(at);
  const auto end = std::find_if(begin, candidates.end(),
                                [&](const NodeOffer& one) { return one.fit < workers; });
  if (end == begin) return;
  const auto best = std::min_element(begin, end, [](const NodeOffer& a, const NodeOffer& b) {
    return std::tie(a.burden, a.fit) < std::tie(b.burden, b.fit);
  });
  std::rotate(begin, best, best + 1);
}

/// Of two nodes that refuse the gang by a taint the one that tells more: it has room, or else the
/// first.
void note_tainted(Offers& offers, int node, const Inventory& inventory,
                  const NumberedAmounts& needs, bool& has_room) {
  if (offers.tainted >= 0 && has_room) return;
  has_room = inventory.pods_free_on(node, needs, 1) > 0;
  if (offers.tainted < 0 || has_room) offers.tainted = node;
}

/// The best first; where they do not suffice, the first few of them. `within`, where there are any,
/// are the only nodes that count.
Offers offers_to(const WaitingGang& gang, Rooms& rooms, const NodeCaps* caps,
                 const std::set<std::string>& within) {
  Offers offers;
  Inventory& inventory = rooms.inventory();
  const std::vector<int> distances = rooms.distances_from(gang.wish.beside);
  const Room& room = inventory.room(shape_of(gang));
  const NumberedAmounts needs = inventory.needs(amounts_of(gang.per_worker));
  const PcieUse pcie(inventory, gang.per_worker);
  bool has_taint_room = false;
  int by_name = 0;
  for (const int index : inventory.by_name()) {
    const std::string& name = inventory.topology().nodes[as_index(index)];
    const NodeRefusal refusal = room.refusal[as_index(index)];
    if (!within.empty() && !within.contains(name)) {
      ++offers.refused[kElsewhere];
      continue;
    }
    if (refusal != NodeRefusal::kNone) {
      ++offers.refused[static_cast<std::size_t>(refusal)];
      if (refusal == NodeRefusal::kTainted) {
        note_tainted(offers, index, inventory, needs, has_taint_room);
      }
      continue;
    }
    std::int64_t fit = room.on_node[as_index(index)];
    if (fit >= kMaxPodsCounted) fit = inventory.pods_free_on(index, needs, kManyWorkers);
    if (caps != nullptr) fit = std::min(fit, (*caps)[as_index(index)]);
    offers.total = std::min<std::int64_t>(kManyWorkers, offers.total + fit);
    const bool is_beside = !gang.wish.beside.empty() && gang.wish.beside.contains(name);
    const int here = static_cast<int>(std::min<std::int64_t>(fit, gang.count));
    offers.candidates.push_back({index, by_name++, fit, distances[as_index(index)], is_beside,
                                 here > 0 ? pcie.burden(index, here) : 0});
  }
  sort_candidates(offers.candidates, offers.total >= gang.min);
  return offers;
}

/// What a gang on so many nodes hears of the network between them, where nothing tells of it.
std::string why_guessed(const Rooms& rooms, std::size_t hosts) {
  const bool is_guess = rooms.inventory().topology().confidence == Confidence::kLow;
  if (hosts <= 1 || !is_guess || rooms.knows_network()) return "";
  return "no topology is known, so the network between its nodes is a guess (confidence low)";
}

/// So many workers, as many on each of the nodes as fit there.
GangPlacement deal_out(const WaitingGang& gang, Rooms& rooms, std::vector<NodeOffer> candidates,
                       std::int64_t workers) {
  GangPlacement placement;
  std::vector<HostShare> hosts;
  // Those that join go where the others are nearest; where slot 0 goes may be given, too.
  const bool is_free = gang.wish.slots.empty() && !gang.volumes.first_slot;
  for (std::size_t at = 0; at < candidates.size() && workers > 0; ++at) {
    if (is_free) put_tightest_next(candidates, at, workers);
    const NodeOffer& candidate = candidates[at];
    const std::int64_t here = std::min(candidate.fit, workers);
    if (here == 0) continue;
    workers -= here;
    hosts.push_back({candidate.node, static_cast<int>(here)});
    placement.node_of_slot.insert(placement.node_of_slot.end(), static_cast<std::size_t>(here),
                                  rooms.inventory().node(candidate.node).meta.name);
  }
  // Those that join a gang would meet its own pods, which count as others'.
  if (gang.wish.slots.empty()) {
    const std::string shared = why_shared(gang, rooms, hosts);
    placement.why = why_guessed(rooms, hosts.size());
    if (!shared.empty()) placement.why += (placement.why.empty() ? "" : "; ") + shared;
  }
  rooms.take(hosts, gang.per_worker);
  return placement;
}

/// Whether anything is known of where the nodes stand that such a gang would want to know.
bool tells_domains(const WaitingGang& gang, const Rooms& rooms) {
  const bool is_known = !gang.required_level.empty() && rooms.knows(gang.required_level);
  return is_known || rooms.knows_network() ||
         (!gang.preferred_level.empty() && rooms.knows("host"));
}

/// Slots that join a gang whose groups stay together. Each goes where the others of its groups
/// stand; those of a group in which nobody stands go together, as near to the gang as there is
/// room.
class GroupJoin {
 public:
  GroupJoin(const WaitingGang& gang, Rooms& rooms, const NodeCaps* caps)
      : gang_(gang),
        rooms_(rooms),
        inventory_(rooms.inventory()),
        topology_(inventory_.topology()),
        all_{"spec.topology.required", "gang", gang.required_level, true, INT_MAX} {
    if (caps != nullptr) caps_ = *caps;
    for (const auto& [slot, name] : gang.stands) {
      if (const int node = inventory_.index_of(name); node >= 0) nodes_.emplace(slot, node);
    }
    for (const SlotGroups& one : gang.groups) {
      if (one.is_required || topology_.knows(one.level)) groups_.push_back(one);
    }
  }

  GangVerdict run() {
    const std::vector<int>& slots = gang_.wish.slots;
    const Room& room = inventory_.room(shape_of(gang_));
    if (room.in_domain[0] < gang_.min) {
      PlacementWish least;
      least.pods = gang_.min;
      return {std::nullopt,
              needs_text(gang_, gang_.min) + ": " + why_not_here(topology_, room, least)};
    }
    const std::uint64_t before = inventory_.version();
    std::size_t placed = 0;
    while (placed < slots.size() && (nodes_.contains(slots[placed]) || place_unit(slots[placed]))) {
      ++placed;
    }
    placed = std::min(placed, static_cast<std::size_t>(gang_.count));
    placed -= placed % as_index(gang_.together);
    if (placed < as_index(gang_.min)) placed = 0;
    GangPlacement placement;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto found = nodes_.find(slots[i]);
      if (found == nodes_.end()) continue;
      const std::string& name = topology_.nodes[as_index(found->second)];
      if (i < placed) {
        placement.node_of_slot.push_back(name);
      } else {
        rooms_.give_back(name, gang_.per_worker);
      }
    }
    if (placed == 0) {
      rooms_.keep_refusals_since(before);
      return {std::nullopt, why_not_};
    }
    placement.domain_of_slot = rooms_.domains_of(placement.node_of_slot);
    return {std::move(placement), ""};
  }

 private:
  /// Where some stand; -1: nobody does.
  int node_beside(const SlotGroups& groups, int slot) const {
    const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& one) {
      return groups.group_of(one.first) == groups.group_of(slot);
    });
    return found == nodes_.end() ? -1 : found->second;
  }

  int nodes_in(int place) const {
    const bool is_domain = place < static_cast<int>(topology_.domains.size());
    return is_domain ? topology_.domains[as_index(place)].nodes : 1;
  }

  /// With all groups that can be kept, or else without the larger ones that need not be.
  bool place_unit(int slot) {
    std::vector<SlotGroups> groups = groups_;
    while (!place_unit(slot, groups)) {
      const auto last = std::find_if(groups.rbegin(), groups.rend(),
                                     [](const SlotGroups& one) { return !one.is_required; });
      if (last == groups.rend()) return false;
      groups.erase(std::next(last).base());
    }
    return true;
  }

  /// With those of its group that have no place either.
  std::vector<int> unit_of(int slot, const SlotGroups& groups) const {
    std::vector<int> unit;
    for (const int one : gang_.wish.slots) {
      const bool is_with = groups.group_of(one) == groups.group_of(slot);
      if (is_with && !nodes_.contains(one)) unit.push_back(one);
    }
    return unit;
  }

  /// The slot stands with those of its groups, and of the gang, that stand: in the narrowest of
  /// their places. Which that is; nullptr: anywhere.
  const SlotGroups* limit(PlacementWish& wish, int slot,
                          const std::vector<SlotGroups>& groups) const {
    const SlotGroups* beside = nullptr;
    const auto narrow = [&](const SlotGroups& one) {
      const int node = one.level.empty() ? -1 : node_beside(one, slot);
      if (node < 0) return;
      const int place = LevelPlaces(topology_, one.level).of(node);
      if (beside != nullptr && nodes_in(place) >= nodes_in(wish.place)) return;
      beside = &one;
      wish.place = place;
      wish.near = node;
    };
    std::for_each(groups.begin(), groups.end(), narrow);
    narrow(all_);
    if (nodes_.empty()) wish.required = gang_.required_level;
    if (beside == nullptr && !nodes_.empty()) wish.near = nodes_.begin()->second;
    return beside;
  }

  bool place_unit(int slot, const std::vector<SlotGroups>& groups) {
    std::size_t empty = 0;  // so many kinds of groups have nobody who stands with it
    while (empty < groups.size() && node_beside(groups[empty], slot) < 0) ++empty;
    std::vector<int> unit = empty > 0 ? unit_of(slot, groups[empty - 1]) : std::vector{slot};
    // Where some of them come later, smaller groups come one by one.
    while (empty > 1 && !are_whole_copies(unit, groups[empty - 2].each)) {
      unit = unit_of(slot, groups[--empty - 1]);
    }
    const bool has_first = unit.front() == 0;
    PlacementWish wish;
    wish.pods = static_cast<int>(unit.size());
    wish.work = work_of(gang_.step, wish.pods, topology_.host);
    wish.groups = group_wishes(groups, wish.pods);
    wish.groups.resize(empty);
    for (GroupWish& one : wish.groups) one.is_required = true;
    if (empty > 0) wish.groups.back().size = wish.pods;
    if (has_first) wish.first = first_nodes(gang_, inventory_);
    const SlotGroups* beside = limit(wish, slot, groups);
    PodShape shape = shape_of(gang_);
    if (caps_) {
      shape.closed_nodes = whole_nodes(gang_.per_worker, wish.pods, rooms_, *caps_).closed;
    }
    const PlacementVerdict verdict =
        place_groups(topology_, inventory_.room(shape), wish, rooms_.traffic());
    if (!verdict.placement || (has_first && !reaches_first(gang_, topology_, *verdict.placement))) {
      why_not_ = why_no_unit(wish, beside, verdict);
      return false;
    }
    std::vector<int> nodes = verdict.placement->nodes();
    if (has_first) put_first(gang_, wish.groups, topology_, nodes);
    for (std::size_t i = 0; i < unit.size(); ++i) {
      nodes_[unit[i]] = nodes[i];
      if (caps_) --(*caps_)[as_index(nodes[i])];
    }
    rooms_.take(verdict.placement->hosts, gang_.per_worker);
    return true;
  }

  std::string why_no_unit(const PlacementWish& wish, const SlotGroups* beside,
                          const PlacementVerdict& verdict) const {
    const std::string needs = needs_text(gang_, wish.pods);
    if (beside != nullptr) {
      return needs + " beside the others of its " + beside->of + ", within one " + beside->level +
             " (" + beside->field + "), and there is no room now";
    }
    return wish.first.empty() ? needs + ": " + verdict.why_not : why_no_first(gang_);
  }

  const WaitingGang& gang_;
  Rooms& rooms_;
  Inventory& inventory_;
  const Topology& topology_;
  std::optional<NodeCaps> caps_;
  const SlotGroups all_;
  std::vector<SlotGroups> groups_;  ///< that can be kept
  std::map<int, int> nodes_;        ///< by slot, of those that stand and those that have a place
  std::string why_not_;
};

GangVerdict place_as_asked(const WaitingGang& gang, Rooms& rooms, const NodeCaps* caps) {
  const bool joins = !gang.wish.slots.empty();
  const bool together =
      !gang.required_level.empty() && (gang.count > 1 || !gang.wish.beside.empty());
  if (gang.unplaced && together) return {std::nullopt, why_not_together(gang, rooms, 0)};
  if (const SlotGroups* required = required_groups(gang); gang.unplaced && required != nullptr) {
    return {std::nullopt, required->field + " needs scheduling: Placed, to know where pods go"};
  }
  if (gang.unplaced) {
    return {GangPlacement{std::vector<std::string>(static_cast<std::size_t>(gang.count))}, ""};
  }
  if (joins && !gang.groups.empty()) return GroupJoin(gang, rooms, caps).run();
  const bool is_known = !gang.required_level.empty() && rooms.knows(gang.required_level);
  if (auto decided = joins ? std::nullopt : place_by_topology(gang, rooms, caps, is_known)) {
    return *std::move(decided);
  }
  // Where the level is not known, one node alone is known to be one domain; and there is none to
  // join where nobody stands.
  const bool on_one_node = together && (!is_known || gang.wish.beside.empty());
  std::set<std::string> beside = gang.wish.beside;
  if (together && is_known) beside = rooms.beside(beside, gang.required_level);
  const Inventory& inventory = rooms.inventory();
  Offers offers = offers_to(gang, rooms, caps, together ? beside : std::set<std::string>());
  auto& candidates = offers.candidates;
  std::int64_t& total = offers.total;
  if (total < gang.min) return {std::nullopt, why_not(gang, inventory, offers)};
  // Slot 0 mounts the checkpoint's volume, so the roomiest node that reaches it comes first.
  const bool has_first = !joins || gang.wish.slots.front() == 0;
  const auto first = std::find_if(candidates.begin(), candidates.end(), [&](const NodeOffer& one) {
    return one.fit > 0 &&
           (!has_first || gang.volumes.first_slot.allows(inventory.node(one.node).meta.name));
  });
  if (first == candidates.end()) return {std::nullopt, why_no_first(gang)};
  std::rotate(candidates.begin(), first, first + 1);
  if (on_one_node) {
    // The roomiest that slot 0 can be on; smaller ones hold no more.
    total = candidates.front().fit;
    if (total < gang.min) return {std::nullopt, why_not_together(gang, rooms, total)};
  }
  std::int64_t workers = std::min<std::int64_t>(gang.count, total);
  workers -= workers % gang.together;
  GangPlacement placement = deal_out(gang, rooms, std::move(candidates), workers);
  tell_groups(gang, inventory, placement);
  if (tells_domains(gang, rooms)) {
    placement.domain_of_slot = rooms.domains_of(placement.node_of_slot);
  }
  return {std::move(placement), ""};
}

GangVerdict place_anew(const WaitingGang& gang, Rooms& rooms, const NodeCaps* caps) {
  const bool is_alone = gang.count == 1 && gang.wish.beside.empty();
  if (gang.volumes.one_node.empty() || gang.unplaced || is_alone) {
    return place_as_asked(gang, rooms, caps);
  }
  // One host is within any level that the job may ask for.
  WaitingGang together = gang;
  together.required_level = "host";
  together.preferred_level.clear();
  together.groups.clear();
  return place_as_asked(together, rooms, caps);
}

/// By slot the node where it stood, as far as there is room for it there now; empty for the others.
std::vector<std::string> places_still_free(const WaitingGang& gang, Rooms& rooms,
                                           const NodeCaps* caps) {
  std::vector<std::string> kept(static_cast<std::size_t>(gang.count));
  const Room& room = rooms.inventory().room(shape_of(gang));
  std::map<int, std::int64_t> left;
  for (std::size_t slot = 0; slot < std::min(kept.size(), gang.stood.size()); ++slot) {
    const std::string& name = gang.stood[slot];
    const int node = name.empty() ? -1 : rooms.inventory().index_of(name);
    if (node < 0 || (slot == 0 && !gang.volumes.first_slot.allows(name))) continue;
    const auto [fit, is_new] = left.try_emplace(node, room.on_node[as_index(node)]);
    if (is_new && caps != nullptr) fit->second = std::min(fit->second, (*caps)[as_index(node)]);
    if (fit->second > 0) kept[slot] = name;
    --fit->second;
  }
  return kept;
}

/// Whether all of these nodes lie in one domain of the level; of no level they always do.
bool are_within(const std::string& level, const Rooms& rooms, const std::set<std::string>& nodes) {
  if (level.empty() || nodes.size() <= 1) return true;
  if (!rooms.knows(level)) return false;
  const std::set<std::string> around = rooms.beside({*nodes.begin()}, level);
  return std::includes(around.begin(), around.end(), nodes.begin(), nodes.end());
}

/// Whether those that have nodes break no group that must be whole.
bool are_groups_whole(const WaitingGang& gang, const Inventory& inventory,
                      const std::vector<std::string>& node_of_slot) {
  if (gang.groups.empty()) return true;
  const std::vector<int> nodes = numbers_of(node_of_slot, inventory);
  return std::all_of(gang.groups.begin(), gang.groups.end(), [&](const SlotGroups& one) {
    const WholeGroups found = whole_groups(one, inventory.topology(), nodes);
    return !one.is_required || found.whole == found.all;
  });
}

/// Of a gang that starts again whoever has room where it stood stays, and only the others move, as
/// near to these as there is room and within the required level. Nothing: none can stay, or the
/// others have no place beside them, so that all have to move.
///
/// Until it gets its places, all in one pass or none, it holds nothing: where it stood is a wish,
/// which whoever comes before it may have taken. So of two gangs that start again at once none
/// holds what the other lacks; one of them gets what both want, and the other moves or waits.
std::optional<GangVerdict> place_where_it_stood(const WaitingGang& gang, Rooms& rooms,
                                                const NodeCaps* caps) {
  GangPlacement placed{places_still_free(gang, rooms, caps)};
  WaitingGang moved = gang;
  NodeCaps left_of_caps = caps == nullptr ? NodeCaps() : *caps;
  Inventory& inventory = rooms.inventory();
  for (std::size_t slot = 0; slot < placed.node_of_slot.size(); ++slot) {
    const std::string& node = placed.node_of_slot[slot];
    if (node.empty()) {
      moved.wish.slots.push_back(static_cast<int>(slot));
      continue;
    }
    moved.wish.beside.insert(node);
    if (!gang.groups.empty()) moved.stands.emplace(static_cast<int>(slot), node);
    if (caps != nullptr) --left_of_caps[as_index(inventory.index_of(node))];
  }
  const std::size_t moving = moved.wish.slots.size(), all = placed.node_of_slot.size();
  if (moving == all) return std::nullopt;
  if (!are_within(gang.required_level, rooms, moved.wish.beside)) return std::nullopt;
  if (!are_groups_whole(gang, inventory, placed.node_of_slot)) return std::nullopt;
  const std::uint64_t before = inventory.version();
  const GangPlacement staying = placed;
  for (const std::string& node : staying.node_of_slot) rooms.take(node, gang.per_worker);
  if (moving > 0) {
    moved.count = moved.min = static_cast<int>(moving);
    moved.together = 1;
    const GangVerdict found =
        place_as_asked(moved, rooms, caps == nullptr ? nullptr : &left_of_caps);
    if (!found.placement) {
      rooms.give_back(staying, gang.per_worker);
      rooms.keep_refusals_since(before);
      return std::nullopt;
    }
    for (std::size_t i = 0; i < moving; ++i) {
      const auto slot = static_cast<std::size_t>(moved.wish.slots[i]);
      placed.node_of_slot[slot] = found.placement->node_of_slot[i];
    }
  }
  if (tells_domains(gang, rooms)) placed.domain_of_slot = rooms.domains_of(placed.node_of_slot);
  placed.why =
      std::to_string(all - moving) + " of " + std::to_string(all) + " stay where they were";
  tell_groups(gang, inventory, placed);
  const std::set<std::string> hosts(placed.node_of_slot.begin(), placed.node_of_slot.end());
  const std::string guessed = why_guessed(rooms, hosts.size());
  if (!guessed.empty()) placed.why += "; " + guessed;
  return GangVerdict{std::move(placed), ""};
}

/// All of the gang anew, within one domain of the level that it prefers. Nothing: none has room.
std::optional<GangVerdict> place_all_as_preferred(const WaitingGang& gang, Rooms& rooms,
                                                  const NodeCaps* caps) {
  WaitingGang all = gang;
  all.min = all.count;
  const std::uint64_t before = rooms.inventory().version();
  GangVerdict found = place_anew(all, rooms, caps);
  if (!found.placement) return std::nullopt;
  const std::vector<std::string>& nodes = found.placement->node_of_slot;
  if (are_within(gang.preferred_level, rooms, {nodes.begin(), nodes.end()})) return found;
  rooms.give_back(*found.placement, gang.per_worker);
  rooms.keep_refusals_since(before);
  return std::nullopt;
}

/// A gang that starts again. The level that it prefers comes before its old nodes: only where no
/// domain of that level has room for all of it do those stay who can, wherever the others go.
/// Nothing: it has nowhere to stay, and is placed like any other.
std::optional<GangVerdict> place_again(const WaitingGang& gang, Rooms& rooms,
                                       const NodeCaps* caps) {
  if (gang.stood.empty() || gang.unplaced || !gang.wish.slots.empty()) return std::nullopt;
  if (!gang.volumes.one_node.empty()) return std::nullopt;  // none of them moves alone
  const std::string& level = gang.preferred_level;
  if (!level.empty() && gang.required_level.empty() && rooms.knows(level)) {
    WaitingGang within = gang;
    within.required_level = level;
    within.preferred_level.clear();
    if (auto stays = place_where_it_stood(within, rooms, caps)) return stays;
    if (auto moves = place_all_as_preferred(gang, rooms, caps)) return moves;
  }
  return place_where_it_stood(gang, rooms, caps);
}

}  // namespace

GangVerdict place(const WaitingGang& gang, Rooms& rooms, const NodeCaps* caps) {
  if (!gang.volumes.why_not.empty()) return {std::nullopt, gang.volumes.why_not, {}, true};
  if (const GangVerdict* refusal = rooms.refusal_of(gang, caps)) return *refusal;
  if (auto again = place_again(gang, rooms, caps)) return *std::move(again);
  GangVerdict verdict = place_anew(gang, rooms, caps);
  if (!verdict.placement) {
    rooms.keep_refusal(gang, caps, verdict);
  } else if (gang.largest > 1 && gang.groups.empty()) {
    place_large(gang, *verdict.placement, rooms, caps, place_anew);
  }
  return verdict;
}

}  // namespace muster::core
