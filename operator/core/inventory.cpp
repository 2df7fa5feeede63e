#include "operator/core/inventory.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "operator/core/drain_taints.h"
#include "operator/core/node_terms.h"

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
  // Dividing in double takes two thirds of the time, and rounds up to no whole number below 2^53:
  // more than that is free only where it is enough for more pods than are counted. Mostly another
  // resource is scarcer, and a product says so.
  const auto each = static_cast<double>(amount);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] * amount <= free[i]) continue;
    const double pods = std::clamp<double>(static_cast<double>(free[i]) / each, 0, kMaxPodsCounted);
    counts[i] = std::min(counts[i], static_cast<int>(pods));
  }
}

bool is_closed(const PodShape& shape, std::size_t node) {
  return node < shape.closed_nodes.size() && shape.closed_nodes[node];
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

bool is_for_a_while(const api::Node::Taint& taint) {
  return taint.key.starts_with("node.kubernetes.io/") ||
         taint.key.starts_with("node.cloudprovider.kubernetes.io/");
}

Inventory::Inventory(std::shared_ptr<const Topology> topology,
                     const std::vector<const api::Node*>& nodes)
    : facts_(std::make_shared<Facts>()) {
  static const api::Node kNothing;
  Facts& facts = *facts_;
  facts.topology = std::move(topology);
  facts.place_keys.insert("kubernetes.io/hostname");
  for (const TopologyLevel& level : facts.topology->levels) facts.place_keys.insert(level.key);
  const std::size_t count = facts.topology->nodes.size();
  for (std::size_t i = 0; i < count; ++i) {
    facts.index.emplace(facts.topology->nodes[i], static_cast<int>(i));
  }
  facts.class_of_node.assign(count, 0);
  facts.own_labels.resize(count);
  // A node that is in the tree and was not given has nothing.
  facts.nodes.assign(count, &kNothing);
  for (const api::Node* node : nodes) {
    const int index = index_of(node->meta.name);
    if (index >= 0) facts.nodes[as_index(index)] = node;
  }
  // Known from the start, because the pods of a gang ask for them: no later than the node.
  add_resource(kPods);
  add_resource(kMasterPortResource);
  for (const api::Node* node : facts.nodes) {
    for (const auto& [resource, amount] : node->allocatable) add_resource(resource);
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (facts.nodes[i] != &kNothing) facts.by_name.push_back(static_cast<int>(i));
  }
  std::ranges::sort(facts.by_name, {}, [&](int i) -> const std::string& {
    return facts.topology->nodes[as_index(i)];
  });
  find_own_keys();
  for (std::size_t i = 0; i < count; ++i) set_node(static_cast<int>(i), *facts.nodes[i]);
}

Inventory::Inventory(const Inventory& other)
    : facts_(other.facts_), free_(other.free_), counts_closed_(other.counts_closed_) {}

/// A label with a value for every node (an instance's number) would make each a class of its own.
void Inventory::find_own_keys() {
  constexpr std::size_t kFewest = 64;
  facts_->own_keys = facts_->place_keys;
  std::map<std::string_view, std::set<std::string_view>> values;
  for (const api::Node* node : facts_->nodes) {
    for (const auto& [key, value] : node->meta.labels) values[key].insert(value);
  }
  for (const auto& [key, different] : values) {
    if (different.size() >= kFewest && different.size() > facts_->nodes.size() / 2) {
      facts_->own_keys.insert(std::string(key));
    }
  }
}

int Inventory::index_of(const std::string& node) const {
  const auto found = facts_->index.find(node);
  return found == facts_->index.end() ? -1 : found->second;
}

int Inventory::resource_index(const std::string& resource) const {
  const auto found = facts_->resources.find(resource);
  return found == facts_->resources.end() ? -1 : found->second;
}

void Inventory::add_resource(const std::string& resource) {
  const auto next = static_cast<int>(facts_->capacity.size());
  if (!facts_->resources.try_emplace(resource, next).second) return;
  facts_->capacity.emplace_back(size(), kAbsent);
  facts_->aside.emplace_back(size(), 0);
  free_.emplace_back(size(), 0);
}

// ---- Nodes

std::int64_t Inventory::capacity_of(const api::Node& node, const std::string& resource) const {
  if (resource == kMasterPortResource) return 1;
  const auto found = node.allocatable.find(resource);
  if (found != node.allocatable.end()) return found->second;
  // A node that does not say how many pods it takes, takes any number.
  return resource == kPods ? kAnyNumber : kAbsent;
}

Inventory::NodeClass Inventory::class_of(const api::Node& node) const {
  NodeClass made{node.ready, node.unschedulable, {}, {}};
  for (const auto& taint : node.taints) {
    made.taints.push_back({taint.key, taint.value, taint.effect});
  }
  for (const auto& [key, value] : node.meta.labels) {
    if (!is_own(key)) made.labels[key] = value;
  }
  return made;
}

std::map<std::string, std::string> Inventory::own_labels_of(const api::Node& node) const {
  std::map<std::string, std::string> labels;
  for (const auto& [key, value] : node.meta.labels) {
    if (is_own(key)) labels[key] = value;
  }
  return labels;
}

void Inventory::note_links_in(const api::Node& node) {
  if (!node.pcie) return;
  double& slowest = facts_->slowest_in_host;
  for (const api::PcieSwitch& one : node.pcie->switches) {
    if (one.uplink_bytes_per_second <= 0) continue;
    slowest = std::min(slowest, static_cast<double>(one.uplink_bytes_per_second));
  }
  if (api::numa_nodes_of_gpus(*node.pcie).size() > 1) {
    slowest = std::min(slowest, facts_->topology->host.numa_bytes_per_second);
  }
}

void Inventory::set_node(int index, const api::Node& node) {
  const std::size_t i = as_index(index);
  facts_->nodes[i] = &node;
  note_links_in(node);
  for (const auto& [resource, number] : facts_->resources) {
    const std::int64_t now = capacity_of(node, resource);
    std::int64_t& capacity = facts_->capacity[as_index(number)][i];
    free_[as_index(number)][i] +=
        std::max<std::int64_t>(now, 0) - std::max<std::int64_t>(capacity, 0);
    capacity = now;
  }
  facts_->own_labels[i] = own_labels_of(node);
  const auto [entry, is_new] =
      facts_->class_index.try_emplace(class_of(node), static_cast<int>(facts_->classes.size()));
  if (is_new) facts_->classes.push_back(&entry->first);
  facts_->class_of_node[i] = entry->second;
}

bool Inventory::may_update(int index, const api::Node& node) const {
  if (index < 0) return false;
  const auto& own = facts_->own_labels[as_index(index)];
  for (const std::string& key : facts_->place_keys) {
    const auto now = node.meta.labels.find(key);
    const auto before = own.find(key);
    const bool is_there = now != node.meta.labels.end();
    const bool was_there = before != own.end();
    if (is_there != was_there || (is_there && now->second != before->second)) return false;
  }
  // What pods took of a resource that no node had was not counted.
  for (const auto& [resource, amount] : node.allocatable) {
    if (resource_index(resource) < 0) return false;
  }
  // Classes are kept for as long as the inventory lives; labels that change all the time end it.
  return facts_->classes.size() <= 2 * size() + kMaxSpareClasses;
}

bool Inventory::is_as_it_was(int index, const api::Node& node) const {
  const std::size_t i = as_index(index);
  for (const auto& [resource, number] : facts_->resources) {
    if (facts_->capacity[as_index(number)][i] != capacity_of(node, resource)) return false;
  }
  return facts_->own_labels[i] == own_labels_of(node) &&
         *facts_->classes[as_index(facts_->class_of_node[i])] == class_of(node);
}

bool Inventory::has_labels_of(const api::Node& node) const {
  const int index = index_of(node.meta.name);
  if (index < 0) return false;
  const std::size_t i = as_index(index);
  const NodeClass& one = *facts_->classes[as_index(facts_->class_of_node[i])];
  return facts_->own_labels[i] == own_labels_of(node) && one.labels == class_of(node).labels;
}

Inventory::Update Inventory::update(const api::Node& node) {
  // Copies would see a part of it.
  MUSTER_CHECK(facts_.use_count() == 1 && !undo_.is_on);
  const int index = index_of(node.meta.name);
  if (!may_update(index, node)) return Update::kRefused;
  if (is_as_it_was(index, node)) {
    facts_->nodes[as_index(index)] = &node;
    note_links_in(node);
    return Update::kNothing;
  }
  for (Tracked& tracked : tracked_) {
    --tracked.room.refused[static_cast<std::size_t>(refusal_of(tracked, index))];
  }
  set_node(index, node);
  for (Tracked& tracked : tracked_) {
    prepare(tracked);
    const NodeRefusal refusal = refusal_of(tracked, index);
    ++tracked.room.refused[static_cast<std::size_t>(refusal)];
    tracked.room.refusal[as_index(index)] = refusal;
  }
  touch(index);
  return Update::kDone;
}

// ---- What is free

void Inventory::touch(int node) {
  ++version_;
  if (undo_.is_on && !undo_.is_kept[as_index(node)]) {
    undo_.is_kept[as_index(node)] = true;
    undo_.nodes.push_back(node);
    for (const auto& column : free_) undo_.free.push_back(column[as_index(node)]);
  }
  if (!changed_.empty() && changed_.back() == node && read_until_ < changes()) return;
  if (changed_.size() >= size()) {
    changes_before_ += changed_.size();
    changed_.clear();
  }
  changed_.push_back(node);
}

NumberedAmounts Inventory::numbered(const ResourceAmounts& amounts) const {
  NumberedAmounts numbered;
  for (const auto& [resource, amount] : amounts) {
    const int number = resource_index(resource);
    if (number >= 0) numbered.emplace_back(number, amount);
  }
  return numbered;
}

void Inventory::change(int node, const NumberedAmounts& amounts, std::int64_t pods) {
  touch(node);
  for (const auto& [number, amount] : amounts) {
    free_[as_index(number)][as_index(node)] += pods * amount;
  }
}

void Inventory::set_aside(int node, const ResourceAmounts& amounts, std::int64_t pods) {
  for (const auto& [number, amount] : numbered(amounts)) {
    facts_->aside[as_index(number)][as_index(node)] += pods * amount;
  }
}

void Inventory::empty() {
  for (std::size_t resource = 0; resource < free_.size(); ++resource) {
    for (std::size_t i = 0; i < size(); ++i) {
      const std::int64_t all =
          std::max<std::int64_t>(facts_->capacity[resource][i], 0) - facts_->aside[resource][i];
      if (free_[resource][i] == all) continue;
      touch(static_cast<int>(i));
      free_[resource][i] = all;
    }
  }
}

void Inventory::count_closed_for_a_while() {
  MUSTER_CHECK(tracked_.empty() && !undo_.is_on);
  counts_closed_ = true;
}

void Inventory::begin_trial() {
  MUSTER_CHECK(!undo_.is_on);
  undo_.is_on = true;
  undo_.is_kept.assign(size(), false);
}

void Inventory::undo_trial() {
  undo_.is_on = false;
  auto value = undo_.free.begin();
  for (const int node : undo_.nodes) {
    for (auto& column : free_) column[as_index(node)] = *value++;
    touch(node);
  }
  undo_.nodes.clear();
  undo_.free.clear();
}

// ---- Shapes of pods

void Inventory::recount(Tracked& tracked, int node) const {
  const int now = refusal_of(tracked, node) == NodeRefusal::kNone ? fits(tracked, node) : 0;
  const int change = now - tracked.room.on_node[as_index(node)];
  if (change == 0) return;
  tracked.room.on_node[as_index(node)] = now;
  for (int d = topology().leaf_of_node[as_index(node)]; d >= 0;
       d = topology().domains[as_index(d)].parent) {
    tracked.room.in_domain[as_index(d)] += change;
  }
}

void Inventory::catch_up(Tracked& tracked) {
  // Counting all goes column by column, at some eighth of the price for each node.
  constexpr std::size_t kCheaper = 8;
  const std::uint64_t now = changes();
  const bool is_known = tracked.seen >= changes_before_;
  if (is_known && (now - tracked.seen) * kCheaper <= size()) {
    for (std::size_t i = tracked.seen - changes_before_; i < changed_.size(); ++i) {
      recount(tracked, changed_[i]);
    }
  } else {
    fill(tracked);
  }
  tracked.seen = read_until_ = now;
}

NodeRefusal Inventory::refusal_of(const NodeClass& one, const PodShape& shape) const {
  if (!one.ready && !counts_closed_) return NodeRefusal::kNotReady;
  const api::Node::Taint cordon{"node.kubernetes.io/unschedulable", "", "NoSchedule"};
  if (one.unschedulable && !counts_closed_ && !tolerates_taint(shape.tolerations, cordon)) {
    return NodeRefusal::kCordoned;
  }
  for (const auto& [key, value, effect] : one.taints) {
    if (key == kUnreadTaint) {
      if (counts_closed_) continue;
      return NodeRefusal::kCordoned;
    }
    const api::Node::Taint taint{key, value, effect};
    const bool counts = counts_closed_ && is_for_a_while(taint);
    if (taint.is_hard() && !counts && !tolerates_taint(shape.tolerations, taint)) {
      return is_drain_taint(taint) ? NodeRefusal::kEmptied : NodeRefusal::kTainted;
    }
  }
  for (const auto& [key, value] : shape.node_selector) {
    if (is_own(key)) continue;  // told apart by node
    const auto found = one.labels.find(key);
    if (found == one.labels.end() || found->second != value) return NodeRefusal::kSelector;
  }
  if (shape.node_terms.empty() || are_of_node(shape.node_terms)) return NodeRefusal::kNone;
  return selects(shape.node_terms, "", label_in(one.labels)) ? NodeRefusal::kNone
                                                             : NodeRefusal::kSelector;
}

bool Inventory::are_of_node(const std::vector<api::NodeTerm>& terms) const {
  return std::any_of(terms.begin(), terms.end(), [&](const api::NodeTerm& term) {
    return !term.fields.empty() ||
           std::any_of(term.labels.begin(), term.labels.end(),
                       [&](const api::NodeRequirement& one) { return is_own(one.key); });
  });
}

bool Inventory::is_selected(const std::vector<api::NodeTerm>& terms, int node) const {
  const FindLabel own = label_in(facts_->own_labels[as_index(node)]);
  const FindLabel shared =
      label_in(facts_->classes[as_index(facts_->class_of_node[as_index(node)])]->labels);
  return selects(terms, topology().nodes[as_index(node)],
                 [&](const std::string& key) { return is_own(key) ? own(key) : shared(key); });
}

NodeRefusal Inventory::refusal_of(const Tracked& tracked, int node) const {
  const NodeRefusal by_class = tracked.by_class[as_index(facts_->class_of_node[as_index(node)])];
  if (by_class != NodeRefusal::kNone) return by_class;
  const PodShape& shape = tracked.shape;
  for (const auto& [key, value] : shape.node_selector) {
    if (!is_own(key)) continue;
    const auto found = facts_->own_labels[as_index(node)].find(key);
    if (found == facts_->own_labels[as_index(node)].end() || found->second != value) {
      return NodeRefusal::kSelector;
    }
  }
  if (are_of_node(shape.node_terms) && !is_selected(shape.node_terms, node)) {
    return NodeRefusal::kSelector;
  }
  const std::string& name = topology().nodes[as_index(node)];
  if (!shape.only_nodes.allows(name)) return NodeRefusal::kLimited;
  const bool is_avoided = is_closed(shape, as_index(node)) ||
                          (!shape.avoid_nodes.empty() && shape.avoid_nodes.contains(name));
  return is_avoided ? NodeRefusal::kAvoided : NodeRefusal::kNone;
}

int Inventory::fits(const Tracked& tracked, int node) const {
  int pods = kMaxPodsCounted;
  for (const auto& [resource, amount] : tracked.needs) {
    if (resource < 0) return 0;
    pods = std::min(pods, quotient(free_[as_index(resource)][as_index(node)], amount));
    if (pods == 0) return 0;
  }
  return pods;
}

void Inventory::prepare(Tracked& tracked) const {
  tracked.needs = needs(tracked.shape.requests);
  while (tracked.by_class.size() < facts_->classes.size()) {
    tracked.by_class.push_back(
        refusal_of(*facts_->classes[tracked.by_class.size()], tracked.shape));
  }
}

void Inventory::fill(Tracked& tracked) const {
  prepare(tracked);
  Room& room = tracked.room;
  room.on_node.assign(topology().nodes.size(), kMaxPodsCounted);
  room.in_domain.assign(topology().domains.size(), 0);
  // One array after the other: ten thousand nodes are counted anew for every new shape.
  for (const auto& [resource, amount] : tracked.needs) {
    if (resource < 0) {
      std::fill(room.on_node.begin(), room.on_node.end(), 0);
    } else {
      lower_to(room.on_node, free_[as_index(resource)], amount);
    }
  }
  refuse(tracked);
  // A leaf's nodes are one range, and parents stand before their children.
  const auto& domains = topology().domains;
  for (std::size_t d = domains.size(); d-- > 0;) {
    const Domain& one = domains[d];
    if (one.children == 0) {
      const auto first = room.on_node.begin() + one.first_node;
      room.in_domain[d] = std::accumulate(first, first + one.nodes, 0);
    }
    if (d > 0) room.in_domain[as_index(one.parent)] += room.in_domain[d];
  }
}

/// Why nodes do not count; none of these pods fits there.
void Inventory::refuse(Tracked& tracked) const {
  Room& room = tracked.room;
  const PodShape& shape = tracked.shape;
  const std::vector<NodeRefusal>& by_class = tracked.by_class;
  const bool is_by_class = !shape.only_nodes && shape.avoid_nodes.empty() &&
                           !are_of_node(shape.node_terms) &&
                           std::none_of(shape.node_selector.begin(), shape.node_selector.end(),
                                        [&](const auto& one) { return is_own(one.first); });
  const bool is_one_for_all =
      is_by_class && shape.closed_nodes.empty() && !by_class.empty() &&
      std::all_of(by_class.begin(), by_class.end(),
                  [&](NodeRefusal refusal) { return refusal == by_class.front(); });
  room.refused = {};
  if (is_one_for_all) {
    room.refusal.assign(size(), by_class.front());
    room.refused[static_cast<std::size_t>(by_class.front())] = static_cast<int>(size());
    if (by_class.front() != NodeRefusal::kNone) room.on_node.assign(size(), 0);
    return;
  }
  room.refusal.resize(size());
  for (std::size_t i = 0; i < size(); ++i) {
    NodeRefusal refusal = is_by_class ? by_class[as_index(facts_->class_of_node[i])]
                                      : refusal_of(tracked, static_cast<int>(i));
    if (refusal == NodeRefusal::kNone && is_closed(shape, i)) refusal = NodeRefusal::kAvoided;
    ++room.refused[static_cast<std::size_t>(refusal)];
    room.refusal[i] = refusal;
    if (refusal != NodeRefusal::kNone) room.on_node[i] = 0;
  }
}

const Room& Inventory::room(const PodShape& shape) {
  const auto found = std::find_if(tracked_.begin(), tracked_.end(),
                                  [&](const Tracked& one) { return one.shape == shape; });
  if (found != tracked_.end()) {
    tracked_.splice(tracked_.begin(), tracked_, found);
    catch_up(tracked_.front());
    return tracked_.front().room;
  }
  if (tracked_.size() == kMaxShapes) tracked_.pop_back();
  Tracked& made = tracked_.emplace_front();
  made.shape = shape;
  fill(made);
  made.seen = changes();
  read_until_ = made.seen;
  return made.room;
}

Room Inventory::count(const PodShape& shape) const {
  Tracked tracked;
  tracked.shape = shape;
  fill(tracked);
  return std::move(tracked.room);
}

// ---- What is asked

ResourceAmounts Inventory::free_on(int node) const {
  ResourceAmounts amounts;
  for (const auto& [resource, number] : facts_->resources) {
    if (facts_->capacity[as_index(number)][as_index(node)] == kAbsent) continue;
    amounts[resource] = std::max<std::int64_t>(0, free_[as_index(number)][as_index(node)]);
  }
  return amounts;
}

std::vector<std::int64_t> Inventory::pods_free(const ResourceAmounts& amounts,
                                               std::int64_t most) const {
  std::vector<std::int64_t> pods(size(), most);
  for (const auto& [resource, amount] : amounts) {
    if (amount <= 0) continue;
    const int number = resource_index(resource);
    if (number < 0) return std::vector<std::int64_t>(size(), 0);
    const std::vector<std::int64_t>& free = free_[as_index(number)];
    for (std::size_t i = 0; i < pods.size(); ++i) {
      pods[i] = free[i] < amount ? 0 : std::min(pods[i], free[i] / amount);
    }
  }
  return pods;
}

std::int64_t Inventory::pods_free_on(int node, const NumberedAmounts& needs,
                                     std::int64_t most) const {
  std::int64_t pods = most;
  for (const auto& [number, amount] : needs) {
    const std::int64_t free = number < 0 ? 0 : free_[as_index(number)][as_index(node)];
    pods = free < amount ? 0 : std::min(pods, free / amount);
  }
  return pods;
}

NumberedAmounts Inventory::needs(const ResourceAmounts& amounts) const {
  NumberedAmounts needs;
  for (const auto& [resource, amount] : amounts) {
    if (amount > 0) needs.emplace_back(resource_index(resource), amount);
  }
  return needs;
}

const std::vector<std::int64_t>* Inventory::free_of(const std::string& resource) const {
  const int number = resource_index(resource);
  return number < 0 ? nullptr : &free_[as_index(number)];
}

bool Inventory::has(int node, const std::string& resource) const {
  const int number = resource_index(resource);
  return number >= 0 && facts_->capacity[as_index(number)][as_index(node)] != kAbsent;
}

std::map<std::string, std::string> Inventory::labels_of(int node) const {
  std::map<std::string, std::string> labels = facts_->own_labels[as_index(node)];
  const NodeClass& one = *facts_->classes[as_index(facts_->class_of_node[as_index(node)])];
  labels.insert(one.labels.begin(), one.labels.end());
  return labels;
}

std::string Inventory::difference_at(int node, const Inventory& other) const {
  const std::size_t i = as_index(node);
  if (&this->node(node) != &other.node(node)) return "it is another object";
  if (labels_of(node) != other.labels_of(node)) return "its labels";
  NodeClass ours = *facts_->classes[as_index(facts_->class_of_node[i])];
  NodeClass theirs = *other.facts_->classes[as_index(other.facts_->class_of_node[i])];
  ours.labels = theirs.labels = {};
  if (ours != theirs) return "who may stand on it";
  std::set<std::string> names;
  for (const auto& [name, number] : facts_->resources) names.insert(name);
  for (const auto& [name, number] : other.facts_->resources) names.insert(name);
  for (const std::string& name : names) {
    if (has(node, name) != other.has(node, name)) return "whether it has " + name;
    if (!has(node, name)) continue;
    const auto aside = [&](const Inventory& of) {
      return of.facts_->aside[as_index(of.resource_index(name))][i];
    };
    if (aside(*this) != aside(other)) return name + ": what is set aside";
    const std::int64_t free = (*free_of(name))[i], wanted = (*other.free_of(name))[i];
    if (free == wanted) continue;
    return name + ": " + std::to_string(free) + " free, and not " + std::to_string(wanted);
  }
  return "";
}

std::string Inventory::difference_from(const Inventory& other) {
  if (topology() != other.topology()) return "the topology";
  if (by_name() != other.by_name()) return "the nodes";
  for (const int node : by_name()) {
    const std::string text = difference_at(node, other);
    if (!text.empty()) return "node " + this->node(node).meta.name + ": " + text;
  }
  for (Tracked& tracked : tracked_) {
    catch_up(tracked);
    if (tracked.room != other.count(tracked.shape)) return "how many pods of a shape fit";
  }
  return "";
}

}  // namespace muster::core
