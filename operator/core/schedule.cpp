#include "operator/core/schedule.h"

#include <algorithm>
#include <array>
#include <limits>

#include "operator/core/placement.h"
#include "operator/core/topology_sources.h"

namespace muster::core {
namespace {

using Amounts = std::map<std::string, std::int64_t>;

constexpr std::int64_t kMany = 1'000'000;
constexpr std::size_t kMaxNodesInText = 3;

Amounts amounts_of(const api::Resources& resources) {
  Amounts amounts{{"cpu", resources.cpu_millis}, {"memory", resources.memory_bytes}};
  if (resources.gpus > 0) amounts[resources.gpu_resource] += resources.gpus;
  amounts["pods"] = 1;
  return amounts;
}

struct NodeRoom {
  const api::Node* node = nullptr;
  Amounts free;
};

void take_from(NodeRoom& room, const api::Resources& resources) {
  for (const auto& [name, amount] : amounts_of(resources)) {
    const auto found = room.free.find(name);
    if (found != room.free.end()) found->second -= amount;
  }
}

/// How many workers fit. A node that does not say how many pods it takes, takes any number.
std::int64_t workers_that_fit(const NodeRoom& room, const api::Resources& per_worker) {
  std::int64_t fit = kMany;
  for (const auto& [name, amount] : amounts_of(per_worker)) {
    if (amount <= 0) continue;
    const auto found = room.free.find(name);
    if (found == room.free.end()) {
      if (name == "pods") continue;
      return 0;
    }
    fit = std::min(fit, std::max<std::int64_t>(0, found->second / amount));
  }
  return fit;
}

bool allows(const NodeLimit& limit, const std::string& node) {
  return !limit || limit->contains(node);
}

enum class Refusal { kNone, kNotReady, kCordoned, kTainted, kSelector, kVolume, kAvoided, kDomain };
constexpr std::size_t kRefusals = 8;

Refusal refusal_of(const api::Node& node, const WaitingGang& gang) {
  if (!node.ready) return Refusal::kNotReady;
  const api::Node::Taint cordon{"node.kubernetes.io/unschedulable", "", "NoSchedule"};
  if (node.unschedulable && !tolerates_taint(gang.tolerations, cordon)) return Refusal::kCordoned;
  for (const auto& taint : node.taints) {
    const bool keeps_out = taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    if (keeps_out && !tolerates_taint(gang.tolerations, taint)) return Refusal::kTainted;
  }
  for (const auto& [key, value] : gang.node_selector) {
    const auto found = node.meta.labels.find(key);
    if (found == node.meta.labels.end() || found->second != value) return Refusal::kSelector;
  }
  if (!allows(gang.volumes.every_slot, node.meta.name)) return Refusal::kVolume;
  return gang.avoid.contains(node.meta.name) ? Refusal::kAvoided : Refusal::kNone;
}

std::string cpu_text(std::int64_t millis) {
  if (millis % 1000 == 0) return std::to_string(millis / 1000);
  return std::to_string(millis) + "m";
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits{"Gi", "Mi", "Ki", ""};
  std::int64_t unit = std::int64_t{1} << 30;
  for (const char* name : kUnits) {
    if (bytes % unit == 0 || unit == 1) return std::to_string(bytes / unit) + name;
    unit >>= 10;
  }
  return std::to_string(bytes);
}

std::string free_text(const NodeRoom& room, const api::Resources& per_worker) {
  std::string text;
  for (const auto& [name, amount] : amounts_of(per_worker)) {
    const auto found = room.free.find(name);
    if (name == "pods" && found == room.free.end()) continue;
    const std::int64_t free =
        found == room.free.end() ? 0 : std::max<std::int64_t>(0, found->second);
    if (name == "pods" && free > 0) continue;
    if (!text.empty()) text += ", ";
    text += name + " ";
    text += name == "cpu"      ? cpu_text(free)
            : name == "memory" ? bytes_text(free)
                               : std::to_string(free);
  }
  return text;
}

struct Candidate {
  NodeRoom* room = nullptr;
  std::int64_t fit = 0;
};

std::string why_not(const WaitingGang& gang, const std::vector<Candidate>& candidates,
                    const std::array<int, kRefusals>& refused, std::int64_t total) {
  const bool only_min = gang.min < gang.count;
  std::string text = "needs " + std::to_string(gang.min) + " x " + resources_text(gang.per_worker);
  if (only_min) text += " at least (" + std::to_string(gang.count) + " wished for)";
  text += "; room for " + std::to_string(total);
  std::size_t shown = 0;
  for (const auto& candidate : candidates) {
    if (shown++ == kMaxNodesInText) break;
    text += "; node " + candidate.room->node->meta.name + " has " +
            free_text(*candidate.room, gang.per_worker) + " free";
  }
  if (candidates.size() > kMaxNodesInText) {
    text += "; " + std::to_string(candidates.size() - kMaxNodesInText) + " more nodes have less";
  }
  constexpr std::array<const char*, kRefusals> kWhy{"",
                                                    "not ready",
                                                    "cordoned",
                                                    "tainted (spec.worker.tolerations)",
                                                    "not selected (spec.worker.nodeSelector)",
                                                    "without its volumes (spec.worker.volumes)",
                                                    "refused a pod of this job a moment ago",
                                                    "not where the others are"};
  for (std::size_t i = 1; i < kRefusals; ++i) {
    if (refused[i] > 0) text += "; " + std::to_string(refused[i]) + " x " + kWhy[i];
  }
  if (candidates.empty() && refused == std::array<int, kRefusals>{}) text += "; there is no node";
  return text;
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
std::string why_not_together(const WaitingGang& gang, std::int64_t most) {
  const std::string text = "spec.topology.required is " + gang.required_level +
                           ", and no node says in which it stands, so all workers must fit one "
                           "node; use preferred, or leave topology out";
  if (gang.unplaced) return text + ", or scheduling: Placed";
  return text + ". Needs " + std::to_string(gang.min) + " x " + resources_text(gang.per_worker) +
         " on a node; room for " + std::to_string(most);
}

/// Slots that join a gang: roomy nodes where it stands already come first.
void sort_candidates(std::vector<Candidate>& candidates, const WaitingGang& gang) {
  std::stable_sort(candidates.begin(), candidates.end(), [&](const auto& a, const auto& b) {
    const bool a_beside = a.fit > 0 && gang.wish.beside.contains(a.room->node->meta.name);
    const bool b_beside = b.fit > 0 && gang.wish.beside.contains(b.room->node->meta.name);
    if (a_beside != b_beside) return a_beside;
    // All workers of a gang are alike, so taking the roomiest nodes first uses the fewest.
    return a.fit > b.fit;
  });
}

/// The cluster as a tree, made when the first gang asks for it.
class Network {
 public:
  explicit Network(std::vector<NodeRoom>& rooms) : rooms_(rooms) {}

  /// Whether any node says in which domain of that level it stands.
  bool knows(const std::string& level) {
    read();
    return inventory_ && (names_host(level) || !inventory_->topology().levels_named(level).empty());
  }
  Inventory& inventory() { return *inventory_; }

  void take(NodeRoom& room, const api::Resources& resources) {
    take_from(room, resources);
    if (!inventory_) return;
    const int node = inventory_->index_of(room.node->meta.name);
    if (node >= 0) inventory_->take(node, amounts_of(resources));
  }

  /// Nodes that stand in one domain of the level with one of these.
  std::set<std::string> beside(const std::set<std::string>& nodes, const std::string& level) {
    const Topology& topology = inventory_->topology();
    const std::vector<int> levels = topology.levels_named(level);
    std::set<std::string> found = nodes;
    for (const std::string& name : nodes) {
      const int node = inventory_->index_of(name);
      if (node < 0 || names_host(level)) continue;
      int at = topology.leaf_of_node[as_index(node)];
      while (at >= 0 && std::find(levels.begin(), levels.end(),
                                  topology.domains[as_index(at)].level) == levels.end()) {
        at = topology.domains[as_index(at)].parent;
      }
      if (at < 0) continue;
      const Domain& domain = topology.domains[as_index(at)];
      found.insert(topology.nodes.begin() + domain.first_node,
                   topology.nodes.begin() + domain.first_node + domain.nodes);
    }
    return found;
  }

  /// Domain paths of the nodes of slots.
  std::vector<std::string> domains_of(const std::vector<std::string>& nodes) const {
    std::vector<std::string> paths;
    const Topology& topology = inventory_->topology();
    for (const std::string& name : nodes) {
      const int node = inventory_->index_of(name);
      paths.push_back(node < 0 ? "" : topology.path_of(topology.leaf_of_node[as_index(node)]));
    }
    return paths;
  }

 private:
  void read() {
    if (was_read_) return;
    was_read_ = true;
    // What is free counts as what there is: pods are taken from it from now on.
    std::vector<api::Node> nodes;
    for (const NodeRoom& room : rooms_) {
      nodes.push_back(*room.node);
      nodes.back().allocatable = room.free;
    }
    std::vector<const api::Node*> pointers;
    for (const api::Node& node : nodes) pointers.push_back(&node);
    auto topology = read_topology(pointers);
    if (topology) inventory_.emplace(std::move(topology).value(), pointers);
  }

  std::vector<NodeRoom>& rooms_;
  bool was_read_ = false;
  std::optional<Inventory> inventory_;
};

PodShape shape_of(const WaitingGang& gang) {
  PodShape shape;
  shape.requests = amounts_of(gang.per_worker);
  shape.node_selector = gang.node_selector;
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
    return allows(gang.volumes.first_slot, topology.nodes[as_index(host.node)]);
  });
}

/// place_gang with one pod at least where slot 0 can mount the volume of its checkpoint: if need
/// be, around a node that reaches it.
PlacementVerdict place_with_first(const WaitingGang& gang, Inventory& inventory,
                                  const PlacementWish& wish) {
  const Topology& topology = inventory.topology();
  PodShape shape = shape_of(gang);
  const Room room = inventory.room(shape);
  PlacementVerdict verdict = place_gang(topology, room, wish);
  if (!verdict.placement || reaches_first(gang, topology, *verdict.placement)) return verdict;
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
    if (is_beside && allows(gang.volumes.every_slot, name)) inside.insert(name);
  }
  shape.only_nodes = std::move(inside);
  verdict = place_gang(topology, inventory.room(shape), wish);
  if (!verdict.placement || reaches_first(gang, topology, *verdict.placement)) return verdict;
  auto& hosts = verdict.placement->hosts;
  if (--hosts.back().pods == 0) hosts.pop_back();
  hosts.push_back({first, 1});
  std::sort(hosts.begin(), hosts.end(),
            [](const HostShare& a, const HostShare& b) { return a.node < b.node; });
  return verdict;
}

/// As many workers as fit, up to the wish and down to the least, along the tree.
GangVerdict place_along_tree(const WaitingGang& gang, std::vector<NodeRoom>& rooms,
                             Network& network) {
  PlacementWish wish;
  wish.required = gang.required_level;
  wish.preferred = gang.preferred_level;
  wish.pods = gang.min;
  PlacementVerdict best = place_with_first(gang, network.inventory(), wish);
  if (!best.placement) {
    return {std::nullopt, "needs " + std::to_string(gang.min) + " x " +
                              resources_text(gang.per_worker) + ": " + best.why_not};
  }
  // What fits falls with the number, so halving finds the most; mostly all fit.
  wish.pods = gang.count;
  for (int low = gang.min, high = gang.count; low < high;) {
    PlacementVerdict more = place_with_first(gang, network.inventory(), wish);
    if (more.placement) {
      low = wish.pods;
      best = std::move(more);
    } else {
      high = wish.pods - 1;
    }
    wish.pods = low + (high - low + 1) / 2;
  }
  GangPlacement placed;
  placed.node_of_slot = best.placement->node_of_slot(network.inventory().topology());
  placed.why = best.placement->why;
  const auto first =
      std::find_if(placed.node_of_slot.begin(), placed.node_of_slot.end(),
                   [&](const std::string& node) { return allows(gang.volumes.first_slot, node); });
  std::rotate(placed.node_of_slot.begin(), first, placed.node_of_slot.end());
  placed.domain_of_slot = network.domains_of(placed.node_of_slot);
  std::map<std::string, int> pods;
  for (const std::string& node : placed.node_of_slot) ++pods[node];
  for (NodeRoom& room : rooms) {
    for (int left = pods[room.node->meta.name]; left > 0; --left) {
      network.take(room, gang.per_worker);
    }
  }
  return {std::move(placed), ""};
}

GangVerdict place(const WaitingGang& gang, std::vector<NodeRoom>& rooms, Network& network) {
  if (!gang.volumes.why_not.empty()) return {std::nullopt, gang.volumes.why_not};
  const bool joins = !gang.wish.slots.empty();
  const bool together =
      !gang.required_level.empty() && (gang.count > 1 || !gang.wish.beside.empty());
  if (gang.unplaced && together) return {std::nullopt, why_not_together(gang, 0)};
  if (gang.unplaced) {
    return {GangPlacement{std::vector<std::string>(static_cast<std::size_t>(gang.count))}, ""};
  }
  const bool is_known = !gang.required_level.empty() && network.knows(gang.required_level);
  if (!joins && (is_known || (!gang.preferred_level.empty() && network.knows("host")))) {
    return place_along_tree(gang, rooms, network);
  }
  // Where the level is not known, one node alone is known to be one domain; and there is none to
  // join where nobody stands.
  const bool on_one_node = together && (!is_known || gang.wish.beside.empty());
  std::set<std::string> beside = gang.wish.beside;
  if (together && is_known) beside = network.beside(beside, gang.required_level);
  std::vector<Candidate> candidates;
  std::array<int, kRefusals> refused{};
  std::int64_t total = 0;
  for (auto& room : rooms) {
    const bool elsewhere = together && !beside.empty() && !beside.contains(room.node->meta.name);
    const Refusal refusal = elsewhere ? Refusal::kDomain : refusal_of(*room.node, gang);
    if (refusal != Refusal::kNone) {
      ++refused[static_cast<std::size_t>(refusal)];
      continue;
    }
    const std::int64_t fit = workers_that_fit(room, gang.per_worker);
    total = std::min<std::int64_t>(kMany, total + fit);
    candidates.push_back({&room, fit});
  }
  sort_candidates(candidates, gang);
  if (total < gang.min) return {std::nullopt, why_not(gang, candidates, refused, total)};
  // Slot 0 mounts the checkpoint's volume, so the roomiest node that reaches it comes first.
  const bool has_first = !joins || gang.wish.slots.front() == 0;
  const auto first = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& one) {
    return one.fit > 0 &&
           (!has_first || allows(gang.volumes.first_slot, one.room->node->meta.name));
  });
  if (first == candidates.end()) return {std::nullopt, why_no_first(gang)};
  std::rotate(candidates.begin(), first, first + 1);
  if (on_one_node) {
    // The roomiest that slot 0 can be on; smaller ones hold no more.
    total = candidates.front().fit;
    if (total < gang.min) return {std::nullopt, why_not_together(gang, total)};
  }
  const auto workers = std::min<std::int64_t>(gang.count, total);
  GangPlacement placement;
  for (const auto& candidate : candidates) {
    for (std::int64_t i = 0; i < candidate.fit; ++i) {
      if (static_cast<std::int64_t>(placement.node_of_slot.size()) == workers) break;
      placement.node_of_slot.push_back(candidate.room->node->meta.name);
      network.take(*candidate.room, gang.per_worker);
    }
  }
  if (is_known || (!gang.preferred_level.empty() && network.knows("host"))) {
    placement.domain_of_slot = network.domains_of(placement.node_of_slot);
  }
  return {std::move(placement), ""};
}

std::vector<NodeRoom> rooms_of(const ClusterSnapshot& cluster) {
  std::vector<NodeRoom> rooms;
  for (const api::Node* node : cluster.nodes) rooms.push_back({node, node->allocatable});
  std::sort(rooms.begin(), rooms.end(), [](const NodeRoom& a, const NodeRoom& b) {
    return a.node->meta.name < b.node->meta.name;
  });
  const auto room_of = [&](const std::string& name) {
    const auto found = std::lower_bound(rooms.begin(), rooms.end(), name,
                                        [](const NodeRoom& room, const std::string& wanted) {
                                          return room.node->meta.name < wanted;
                                        });
    return found == rooms.end() || found->node->meta.name != name ? nullptr : &*found;
  };
  for (const api::Pod* pod : cluster.pods) {
    if (pod->ended()) continue;
    const auto& node = pod->node_name.empty() ? pod->required_node : pod->node_name;
    if (NodeRoom* room = room_of(node)) take_from(*room, pod->requests);
  }
  for (const auto& assumed : cluster.assumed) {
    if (NodeRoom* room = room_of(assumed.node)) take_from(*room, assumed.requests);
  }
  return rooms;
}

}  // namespace

std::string resources_text(const api::Resources& resources) {
  std::string text =
      "{cpu " + cpu_text(resources.cpu_millis) + ", memory " + bytes_text(resources.memory_bytes);
  if (resources.gpus > 0) {
    text += ", " + resources.gpu_resource + " " + std::to_string(resources.gpus);
  }
  return text + "}";
}

std::map<api::ObjectKey, GangVerdict> schedule(const ClusterSnapshot& cluster) {
  std::vector<NodeRoom> rooms = rooms_of(cluster);
  Network network(rooms);
  std::map<api::ObjectKey, GangVerdict> verdicts;
  for (const bool grows : {false, true}) {
    for (const auto& gang : cluster.gangs) {
      if (gang.wish.only_grows != grows) continue;
      GangVerdict verdict = place(gang, rooms, network);
      verdict.slots = gang.wish.slots;
      verdicts.insert_or_assign(gang.job, std::move(verdict));
    }
  }
  return verdicts;
}

WaitingGang gang_of(const api::TrainingJob& job, const PlaceWish& wish) {
  WaitingGang gang;
  gang.job = job.meta.key();
  gang.uid = job.meta.uid;
  // Clamped, because schedule must be total on whatever it is given.
  gang.count = std::clamp(job.spec.worker.count, 1, 4096);
  gang.min = std::clamp(job.spec.worker.min, 1, gang.count);
  if (!wish.slots.empty()) {
    gang.count = static_cast<int>(wish.slots.size());
    gang.min = 1;
    gang.wish = wish;
  }
  gang.per_worker = job.spec.worker.resources;
  gang.unplaced = job.spec.scheduling == "Unplaced";
  gang.required_level = job.spec.topology_required;
  gang.preferred_level = job.spec.topology_preferred;
  const Json& fields = job.spec.worker.pod_fields;
  if (!fields.is_object()) return gang;
  const auto text = [](const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  if (const auto selector = fields.find("nodeSelector");
      selector != fields.end() && selector->is_object()) {
    for (const auto& [key, value] : selector->items()) {
      if (value.is_string()) gang.node_selector[key] = value.get<std::string>();
    }
  }
  if (const auto list = fields.find("tolerations"); list != fields.end() && list->is_array()) {
    for (const Json& item : *list) {
      if (!item.is_object()) continue;
      NodeToleration toleration{text(item, "key"), text(item, "operator"), text(item, "value"),
                                text(item, "effect")};
      if (toleration.op.empty()) toleration.op = "Equal";
      gang.tolerations.push_back(std::move(toleration));
    }
  }
  return gang;
}

}  // namespace muster::core
