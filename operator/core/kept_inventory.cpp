#include "operator/core/kept_inventory.h"

#include <utility>

namespace muster::core {

KeptInventory::News KeptInventory::take_node(const std::string& name, const api::Node* node) {
  if (node == nullptr) {
    if (nodes_.erase(name) == 0) return News::kNothing;
  } else if (!nodes_.insert_or_assign(name, node).second) {
    // Until it is made anew nobody knows what the node said before.
    if (why_old_) return News::kPlaces;
    const News news = inventory_->has_labels_of(*node) ? News::kRoom : News::kPlaces;
    const Inventory::Update update = inventory_->update(*node);
    if (update == Inventory::Update::kNothing) return News::kNothing;
    if (update == Inventory::Update::kRefused) why_old_ = Remade::kChanges;
    return news;
  }
  alone_.reset();
  if (!why_old_ || why_old_ == Remade::kChanges) why_old_ = Remade::kNodes;
  return News::kPlaces;
}

void KeptInventory::charge(const std::string& node, const api::PodRequests& requests,
                           std::int64_t pods) {
  if (why_old_) return;
  const int index = inventory_->index_of(node);
  if (index >= 0) inventory_->take(index, amounts_of(requests), pods);
}

void KeptInventory::charge(const Held& held, std::int64_t pods) {
  charge(held.taken.node, held.taken.requests, pods);
  if (why_old_ || !held.is_of_node) return;
  const int index = inventory_->index_of(held.taken.node);
  if (index >= 0) inventory_->set_aside(index, amounts_of(held.taken.requests), pods);
}

void KeptInventory::take_pod(const api::ObjectKey& key, const api::Pod* pod) {
  static const std::string kNowhere;
  const std::string& node = pod == nullptr ? kNowhere : node_of(*pod);
  const auto before = held_.find(key);
  if (before != held_.end()) {
    const Held& held = before->second;
    if (held.taken.node == node && held.taken.requests == pod->requests &&
        held.is_of_node == pod->is_of_node()) {
      return;
    }
    charge(held, -1);
    held_.erase(before);
  }
  if (node.empty()) return;
  const Held held{{node, pod->requests}, pod->is_of_node()};
  charge(held, 1);
  held_.emplace(key, held);
}

void KeptInventory::promise(const api::ObjectKey& job, std::vector<Assumed> promised) {
  if (const auto before = promised_.find(job); before != promised_.end()) {
    for (const Assumed& one : before->second) charge(one.node, one.requests, -1);
    promised_.erase(before);
  }
  if (promised.empty()) return;
  for (const Assumed& one : promised) charge(one.node, one.requests, 1);
  promised_.emplace(job, std::move(promised));
}

std::vector<const api::Node*> KeptInventory::nodes() const {
  std::vector<const api::Node*> nodes;
  for (const auto& [name, node] : nodes_) nodes.push_back(node);
  return nodes;
}

void KeptInventory::remake(std::shared_ptr<const Topology> topology) {
  inventory_.emplace(std::move(topology), nodes());
  why_old_.reset();
  for (const auto& [pod, held] : held_) charge(held, 1);
  for (const auto& [job, promised] : promised_) {
    for (const Assumed& one : promised) charge(one.node, one.requests, 1);
  }
}

KeptInventory::Asked KeptInventory::inventory(std::shared_ptr<const Topology> topology) {
  if (!topology) {
    if (!alone_) {
      std::set<std::string> names;
      for (const auto& [name, node] : nodes_) names.insert(name);
      alone_ = std::make_shared<const Topology>(lone_nodes(names));
    }
    topology = alone_;
  }
  std::optional<Remade> why = why_old_;
  if (!why && inventory_->shared_topology() != topology) why = Remade::kTopology;
  if (why) remake(std::move(topology));
  return {*inventory_, why};
}

}  // namespace muster::core
