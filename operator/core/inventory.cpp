#include "operator/core/inventory.h"

#include <algorithm>

namespace muster::core {
namespace {

constexpr std::int64_t kAbsent = -1;
constexpr std::int64_t kAnyNumber = std::int64_t{1} << 40;
constexpr const char* kPods = "pods";
constexpr std::size_t kMaxSpareClasses = 1024;

int quotient(std::int64_t free, std::int64_t amount) {
  if (free < amount) return 0;
  return static_cast<int>(std::min<std::int64_t>(free / amount, kMaxPodsCounted));
}

/// Lowers each count to how many times the amount is free there.
void lower_to(std::vector<int>& counts, const std::vector<std::int64_t>& free,
              std::int64_t amount) {
  constexpr std::int64_t kExact = std::int64_t{1} << 40;
  if (amount > kExact) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      counts[i] = std::min(counts[i], quotient(free[i], amount));
    }
    return;
  }
  // All is below 2^53 here, so a product in double is off by one at most: half the time of
  // dividing.
  const std::int64_t most = amount * kMaxPodsCounted;
  const double part = 1.0 / static_cast<double>(amount);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::int64_t here = std::clamp<std::int64_t>(free[i], 0, most);
    std::int64_t pods = static_cast<std::int64_t>(static_cast<double>(here) * part);
    const std::int64_t rest = here - pods * amount;
    pods += (rest >= amount ? 1 : 0) - (rest < 0 ? 1 : 0);
    counts[i] = std::min(counts[i], static_cast<int>(pods));
  }
}

}  // namespace

bool tolerates_taint(const std::vector<NodeToleration>& tolerations,
                     const api::Node::Taint& taint) {
  return std::any_of(tolerations.begin(), tolerations.end(), [&](const NodeToleration& one) {
    if (!one.effect.empty() && one.effect != taint.effect) return false;
    if (one.op == "Exists") return one.key.empty() || one.key == taint.key;
    return one.key == taint.key && one.value == taint.value;
  });
}

Inventory::Inventory(std::shared_ptr<const Topology> topology,
                     const std::vector<const api::Node*>& nodes)
    : topology_(std::move(topology)) {
  place_keys_.insert("kubernetes.io/hostname");
  for (const TopologyLevel& level : topology_->levels) place_keys_.insert(level.key);
  const std::size_t count = topology_->nodes.size();
  for (std::size_t i = 0; i < count; ++i) {
    index_.emplace(topology_->nodes[i], static_cast<int>(i));
  }
  class_of_node_.assign(count, 0);
  own_labels_.resize(count);
  // Known from the start, because the pods of a gang ask for it: no later than the node.
  column(kPods);
  // A node that is in the tree and was not given has nothing.
  const api::Node nothing;
  std::vector<const api::Node*> by_index(count, &nothing);
  for (const api::Node* node : nodes) {
    const int index = index_of(node->meta.name);
    if (index >= 0) by_index[as_index(index)] = node;
  }
  find_own_keys(by_index);
  for (std::size_t i = 0; i < count; ++i) set_node(i, *by_index[i]);
}

/// A label with a value for every node (an instance's number) would make each a class of its own.
void Inventory::find_own_keys(const std::vector<const api::Node*>& nodes) {
  constexpr std::size_t kFewest = 64;
  own_keys_ = place_keys_;
  std::map<std::string_view, std::set<std::string_view>> values;
  for (const api::Node* node : nodes) {
    for (const auto& [key, value] : node->meta.labels) values[key].insert(value);
  }
  for (const auto& [key, different] : values) {
    if (different.size() >= kFewest && different.size() > nodes.size() / 2) {
      own_keys_.insert(std::string(key));
    }
  }
}

int Inventory::index_of(const std::string& node) const {
  const auto found = index_.find(node);
  return found == index_.end() ? -1 : found->second;
}

Inventory::Column& Inventory::column(const std::string& resource) {
  const auto [entry, is_new] = columns_.try_emplace(resource);
  if (is_new) {
    entry->second.capacity.assign(topology_->nodes.size(), kAbsent);
    entry->second.free.assign(topology_->nodes.size(), 0);
  }
  return entry->second;
}

void Inventory::set_node(std::size_t index, const api::Node& node) {
  for (const auto& [resource, amount] : node.allocatable) column(resource);
  for (auto& [resource, column] : columns_) {
    const auto found = node.allocatable.find(resource);
    // A node that does not say how many pods it takes, takes any number.
    const std::int64_t capacity = found != node.allocatable.end() ? found->second
                                  : resource == kPods             ? kAnyNumber
                                                                  : kAbsent;
    const std::int64_t before = std::max<std::int64_t>(column.capacity[index], 0);
    column.free[index] += std::max<std::int64_t>(capacity, 0) - before;
    column.capacity[index] = capacity;
  }
  NodeClass made{node.ready, node.unschedulable, {}, {}};
  for (const auto& taint : node.taints) {
    made.taints.push_back({taint.key, taint.value, taint.effect});
  }
  own_labels_[index].clear();
  for (const auto& [key, value] : node.meta.labels) {
    (is_own(key) ? own_labels_[index] : made.labels)[key] = value;
  }
  const auto [entry, is_new] =
      class_index_.try_emplace(std::move(made), static_cast<int>(classes_.size()));
  if (is_new) classes_.push_back(&entry->first);
  class_of_node_[index] = entry->second;
}

bool Inventory::update(const api::Node& node) {
  const int index = index_of(node.meta.name);
  if (index < 0) return false;
  for (const std::string& key : place_keys_) {
    const auto now = node.meta.labels.find(key);
    const auto before = own_labels_[as_index(index)].find(key);
    const bool is_there = now != node.meta.labels.end();
    const bool was_there = before != own_labels_[as_index(index)].end();
    if (is_there != was_there || (is_there && now->second != before->second)) return false;
  }
  // Classes are kept for as long as the inventory lives; labels that change all the time end it.
  if (classes_.size() > 2 * topology_->nodes.size() + kMaxSpareClasses) return false;
  for (Tracked& tracked : tracked_) {
    --tracked.room.refused[static_cast<std::size_t>(refusal_of(tracked, index))];
  }
  set_node(as_index(index), node);
  for (Tracked& tracked : tracked_) {
    prepare(tracked);
    ++tracked.room.refused[static_cast<std::size_t>(refusal_of(tracked, index))];
  }
  recount(index);
  return true;
}

void Inventory::change(int node, const ResourceAmounts& amounts, int sign) {
  for (const auto& [resource, amount] : amounts) {
    const auto found = columns_.find(resource);
    if (found != columns_.end()) found->second.free[as_index(node)] += sign * amount;
  }
  recount(node);
}

void Inventory::recount(int node) {
  for (Tracked& tracked : tracked_) {
    const int now = refusal_of(tracked, node) == NodeRefusal::kNone ? fits(tracked, node) : 0;
    const int change = now - tracked.room.on_node[as_index(node)];
    tracked.room.on_node[as_index(node)] = now;
    if (change == 0) continue;
    for (int d = topology_->leaf_of_node[as_index(node)]; d >= 0;
         d = topology_->domains[as_index(d)].parent) {
      tracked.room.in_domain[as_index(d)] += change;
    }
  }
}

NodeRefusal Inventory::refusal_of(const NodeClass& one, const PodShape& shape) const {
  if (!one.ready) return NodeRefusal::kNotReady;
  const api::Node::Taint cordon{"node.kubernetes.io/unschedulable", "", "NoSchedule"};
  if (one.unschedulable && !tolerates_taint(shape.tolerations, cordon)) {
    return NodeRefusal::kCordoned;
  }
  for (const auto& [key, value, effect] : one.taints) {
    const bool keeps_out = effect == "NoSchedule" || effect == "NoExecute";
    if (keeps_out && !tolerates_taint(shape.tolerations, {key, value, effect})) {
      return NodeRefusal::kTainted;
    }
  }
  for (const auto& [key, value] : shape.node_selector) {
    if (is_own(key)) continue;  // told apart by node
    const auto found = one.labels.find(key);
    if (found == one.labels.end() || found->second != value) return NodeRefusal::kSelector;
  }
  return NodeRefusal::kNone;
}

NodeRefusal Inventory::refusal_of(const Tracked& tracked, int node) const {
  const NodeRefusal by_class = tracked.by_class[as_index(class_of_node_[as_index(node)])];
  if (by_class != NodeRefusal::kNone) return by_class;
  const PodShape& shape = tracked.shape;
  for (const auto& [key, value] : shape.node_selector) {
    if (!is_own(key)) continue;
    const auto found = own_labels_[as_index(node)].find(key);
    if (found == own_labels_[as_index(node)].end() || found->second != value) {
      return NodeRefusal::kSelector;
    }
  }
  const std::string& name = topology_->nodes[as_index(node)];
  if (shape.only_nodes && !shape.only_nodes->contains(name)) return NodeRefusal::kLimited;
  const bool is_avoided = !shape.avoid_nodes.empty() && shape.avoid_nodes.contains(name);
  return is_avoided ? NodeRefusal::kAvoided : NodeRefusal::kNone;
}

int Inventory::fits(const Tracked& tracked, int node) const {
  int pods = kMaxPodsCounted;
  for (const auto& [column, amount] : tracked.needs) {
    if (column == nullptr) return 0;
    pods = std::min(pods, quotient(column->free[as_index(node)], amount));
    if (pods == 0) return 0;
  }
  return pods;
}

void Inventory::prepare(Tracked& tracked) const {
  tracked.needs.clear();
  for (const auto& [resource, amount] : tracked.shape.requests) {
    if (amount <= 0) continue;
    const auto found = columns_.find(resource);
    // A resource that no node has: nothing fits.
    tracked.needs.emplace_back(found == columns_.end() ? nullptr : &found->second, amount);
  }
  while (tracked.by_class.size() < classes_.size()) {
    tracked.by_class.push_back(refusal_of(*classes_[tracked.by_class.size()], tracked.shape));
  }
}

void Inventory::fill(Tracked& tracked) const {
  prepare(tracked);
  Room& room = tracked.room;
  room.on_node.assign(topology_->nodes.size(), kMaxPodsCounted);
  room.in_domain.assign(topology_->domains.size(), 0);
  room.refused = {};
  // One array after the other: ten thousand nodes are counted anew for every new shape.
  for (const auto& [column, amount] : tracked.needs) {
    if (column == nullptr) {
      std::fill(room.on_node.begin(), room.on_node.end(), 0);
    } else {
      lower_to(room.on_node, column->free, amount);
    }
  }
  const PodShape& shape = tracked.shape;
  const bool is_by_class = !shape.only_nodes && shape.avoid_nodes.empty() &&
                           std::none_of(shape.node_selector.begin(), shape.node_selector.end(),
                                        [&](const auto& one) { return is_own(one.first); });
  for (std::size_t i = 0; i < topology_->nodes.size(); ++i) {
    const NodeRefusal refusal = is_by_class ? tracked.by_class[as_index(class_of_node_[i])]
                                            : refusal_of(tracked, static_cast<int>(i));
    ++room.refused[static_cast<std::size_t>(refusal)];
    if (refusal != NodeRefusal::kNone) room.on_node[i] = 0;
    room.in_domain[as_index(topology_->leaf_of_node[i])] += room.on_node[i];
  }
  for (std::size_t d = topology_->domains.size(); d-- > 1;) {
    room.in_domain[as_index(topology_->domains[d].parent)] += room.in_domain[d];
  }
}

const Room& Inventory::room(const PodShape& shape) {
  const auto found = std::find_if(tracked_.begin(), tracked_.end(),
                                  [&](const Tracked& one) { return one.shape == shape; });
  if (found != tracked_.end()) {
    tracked_.splice(tracked_.begin(), tracked_, found);
    return tracked_.front().room;
  }
  if (tracked_.size() == kMaxShapes) tracked_.pop_back();
  tracked_.push_front({shape, {}, {}, {}});
  fill(tracked_.front());
  return tracked_.front().room;
}

Room Inventory::count(const PodShape& shape) const {
  Tracked tracked{shape, {}, {}, {}};
  fill(tracked);
  return std::move(tracked.room);
}

ResourceAmounts Inventory::free_on(int node) const {
  ResourceAmounts amounts;
  for (const auto& [resource, column] : columns_) {
    if (column.capacity[as_index(node)] == kAbsent) continue;
    amounts[resource] = std::max<std::int64_t>(0, column.free[as_index(node)]);
  }
  return amounts;
}

}  // namespace muster::core
