#include "operator/core/schedule.h"

#include <algorithm>
#include <array>
#include <limits>

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

void take(NodeRoom& room, const api::Resources& resources) {
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

bool tolerates(const std::vector<WaitingGang::Toleration>& tolerations,
               const api::Node::Taint& taint) {
  return std::any_of(tolerations.begin(), tolerations.end(), [&](const auto& toleration) {
    if (!toleration.effect.empty() && toleration.effect != taint.effect) return false;
    if (toleration.op == "Exists") return toleration.key.empty() || toleration.key == taint.key;
    return toleration.key == taint.key && toleration.value == taint.value;
  });
}

bool allows(const NodeLimit& limit, const std::string& node) {
  return !limit || limit->contains(node);
}

enum class Refusal { kNone, kNotReady, kCordoned, kTainted, kSelector, kVolume, kAvoided, kDomain };
constexpr std::size_t kRefusals = 8;

Refusal refusal_of(const api::Node& node, const WaitingGang& gang) {
  if (!node.ready) return Refusal::kNotReady;
  const api::Node::Taint cordon{"node.kubernetes.io/unschedulable", "", "NoSchedule"};
  if (node.unschedulable && !tolerates(gang.tolerations, cordon)) return Refusal::kCordoned;
  for (const auto& taint : node.taints) {
    const bool keeps_out = taint.effect == "NoSchedule" || taint.effect == "NoExecute";
    if (keeps_out && !tolerates(gang.tolerations, taint)) return Refusal::kTainted;
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

GangVerdict place(const WaitingGang& gang, std::vector<NodeRoom>& rooms) {
  if (!gang.volumes.why_not.empty()) return {std::nullopt, gang.volumes.why_not};
  const bool joins = !gang.wish.slots.empty();
  const bool together =
      !gang.required_level.empty() && (gang.count > 1 || !gang.wish.beside.empty());
  if (gang.unplaced && together) return {std::nullopt, why_not_together(gang, 0)};
  if (gang.unplaced) {
    return {GangPlacement{std::vector<std::string>(static_cast<std::size_t>(gang.count))}, ""};
  }
  std::vector<Candidate> candidates;
  std::array<int, kRefusals> refused{};
  std::int64_t total = 0;
  for (auto& room : rooms) {
    // One node alone is known to be one domain, and the others stand there.
    const bool elsewhere =
        together && !gang.wish.beside.empty() && !gang.wish.beside.contains(room.node->meta.name);
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
  if (together) {
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
      take(*candidate.room, gang.per_worker);
    }
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
    if (NodeRoom* room = room_of(node)) take(*room, pod->requests);
  }
  for (const auto& assumed : cluster.assumed) {
    if (NodeRoom* room = room_of(assumed.node)) take(*room, assumed.requests);
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
  std::map<api::ObjectKey, GangVerdict> verdicts;
  for (const bool grows : {false, true}) {
    for (const auto& gang : cluster.gangs) {
      if (gang.wish.only_grows != grows) continue;
      GangVerdict verdict = place(gang, rooms);
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
      WaitingGang::Toleration toleration{text(item, "key"), text(item, "operator"),
                                         text(item, "value"), text(item, "effect")};
      if (toleration.op.empty()) toleration.op = "Equal";
      gang.tolerations.push_back(std::move(toleration));
    }
  }
  return gang;
}

}  // namespace muster::core
