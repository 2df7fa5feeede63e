#include "operator/core/rooms.h"

#include <algorithm>
#include <utility>

#include "operator/core/placement_words.h"
#include "operator/core/topology_sources.h"

namespace muster::core {

ResourceAmounts amounts_of(const api::Resources& resources) {
  ResourceAmounts amounts{{"cpu", resources.cpu_millis}, {"memory", resources.memory_bytes}};
  if (resources.gpus > 0) amounts[resources.gpu_resource] += resources.gpus;
  amounts["pods"] = 1;
  return amounts;
}

std::int64_t workers_that_fit(const ResourceAmounts& free, const api::Resources& per_worker) {
  std::int64_t fit = kManyWorkers;
  for (const auto& [name, amount] : amounts_of(per_worker)) {
    if (amount <= 0) continue;
    const auto found = free.find(name);
    if (found == free.end()) {
      if (name == "pods") continue;
      return 0;
    }
    fit = std::min(fit, std::max<std::int64_t>(0, found->second / amount));
  }
  return fit;
}

void Rooms::add_nodes(const ClusterSnapshot& cluster) {
  topology_ = cluster.topology;
  for (const api::Node* node : cluster.nodes) rooms_.push_back({node, node->allocatable});
  std::sort(rooms_.begin(), rooms_.end(), [](const NodeRoom& a, const NodeRoom& b) {
    return a.node->meta.name < b.node->meta.name;
  });
}

Rooms::Rooms(const ClusterSnapshot& cluster) {
  add_nodes(cluster);
  running_ = cluster.running;
  waiting_ = cluster.gangs;
  for (const api::Pod* pod : cluster.pods) {
    if (pod->ended()) continue;
    take(pod->node_name.empty() ? pod->required_node : pod->node_name, pod->requests);
  }
  for (const auto& assumed : cluster.assumed) take(assumed.node, assumed.requests);
}

Rooms Rooms::without_pods(const ClusterSnapshot& cluster) {
  Rooms rooms;
  rooms.add_nodes(cluster);
  return rooms;
}

NodeRoom* Rooms::find(const std::string& node) {
  const auto found = std::lower_bound(rooms_.begin(), rooms_.end(), node,
                                      [](const NodeRoom& room, const std::string& wanted) {
                                        return room.node->meta.name < wanted;
                                      });
  return found == rooms_.end() || found->node->meta.name != node ? nullptr : &*found;
}

void Rooms::change(NodeRoom& room, const api::Resources& resources, std::int64_t workers) {
  const ResourceAmounts amounts = amounts_of(resources);
  for (const auto& [name, amount] : amounts) {
    const auto found = room.free.find(name);
    if (found != room.free.end()) found->second += amount * workers;
  }
  const int node = inventory_ ? inventory_->index_of(room.node->meta.name) : -1;
  if (node < 0) return;
  if (workers < 0) {
    inventory_->take(node, amounts);
  } else {
    inventory_->give_back(node, amounts);
  }
}

void Rooms::take(const std::string& node, const api::Resources& resources) {
  if (NodeRoom* room = find(node)) change(*room, resources, -1);
}

void Rooms::give_back(const std::string& node, const api::Resources& resources) {
  if (NodeRoom* room = find(node)) change(*room, resources, 1);
}

bool Rooms::knows(const std::string& level) {
  read_tree();
  return inventory_ && (names_host(level) || !inventory_->topology().levels_named(level).empty());
}

bool Rooms::knows_network() {
  read_topology_once();
  if (!topology_) return false;
  const auto& domains = topology_->domains;
  const bool knows =
      domains.size() > 1 && std::any_of(domains.begin() + 1, domains.end(),
                                        [](const Domain& one) { return one.nodes > 1; });
  if (knows) read_tree();
  return knows;
}

std::vector<int> Rooms::distances_from(const std::set<std::string>& nodes) {
  std::vector<int> distances(rooms_.size(), 0);
  if (nodes.empty() || !knows_network()) return distances;
  const Topology& topology = inventory_->topology();
  std::set<int> around;  // the domains of these nodes
  for (const std::string& name : nodes) {
    const int node = inventory_->index_of(name);
    int at = node < 0 ? -1 : topology.leaf_of_node[as_index(node)];
    while (at >= 0 && around.insert(at).second) at = topology.domains[as_index(at)].parent;
  }
  around.insert(0);
  for (std::size_t i = 0; i < rooms_.size(); ++i) {
    const int node = inventory_->index_of(rooms_[i].node->meta.name);
    int at = node < 0 ? 0 : topology.leaf_of_node[as_index(node)];
    while (!around.contains(at)) at = topology.domains[as_index(at)].parent;
    distances[i] = topology.domains[as_index(at)].height;
  }
  return distances;
}

SendingGang Rooms::on_hosts(const RunningGang& gang) const {
  std::map<int, int> pods_on;
  for (const std::string& name : gang.nodes) {
    const int node = inventory_->index_of(name);
    if (node >= 0) ++pods_on[node];
  }
  SendingGang sending{gang.job, {}, gang.step};
  for (const auto& [node, pods] : pods_on) sending.hosts.push_back({node, pods});
  return sending;
}

const Traffic* Rooms::traffic() {
  if (!traffic_) {
    std::vector<SendingGang> sending;
    for (const RunningGang& gang : running_) sending.push_back(on_hosts(gang));
    for (const RunningGang& gang : started_) sending.push_back(on_hosts(gang));
    traffic_.emplace(inventory_->topology(), sending);
  }
  return traffic_->empty() ? nullptr : &*traffic_;
}

std::pair<const UsualSizes*, std::int64_t> Rooms::usual_sizes(const api::Resources& per_worker) {
  const bool by_gpu = per_worker.gpus > 0;
  const auto size_of = [&](const api::Resources& one) {
    return by_gpu ? one.gpus : one.gpus > 0 ? 0 : one.cpu_millis;
  };
  std::optional<UsualSizes>& sizes = by_gpu ? gpu_sizes_ : cpu_sizes_;
  if (!sizes) {
    std::vector<std::int64_t> all;
    const auto add = [&](const api::Resources& one, std::size_t pods) {
      const std::int64_t size = size_of(one) * static_cast<std::int64_t>(pods);
      if (size > 0) all.push_back(size);
    };
    for (const RunningGang& gang : running_) add(gang.per_worker, gang.nodes.size());
    for (const WaitingGang& gang : waiting_) {
      if (gang.wish.slots.empty()) add(gang.per_worker, static_cast<std::size_t>(gang.count));
    }
    sizes.emplace(std::move(all));
  }
  return {&*sizes, std::max<std::int64_t>(1, size_of(per_worker))};
}

void Rooms::start(const WaitingGang& gang, const std::vector<std::string>& nodes) {
  started_.push_back({gang.job, nodes, gang.step});
  if (traffic_) traffic_->add(on_hosts(started_.back()));
}

std::string Rooms::passed_over() const {
  return inventory_ ? passed_over_text(inventory_->topology()) : "";
}

std::set<std::string> Rooms::beside(const std::set<std::string>& nodes,
                                    const std::string& level) const {
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

std::vector<std::string> Rooms::domains_of(const std::vector<std::string>& nodes) const {
  std::vector<std::string> paths;
  const Topology& topology = inventory_->topology();
  for (const std::string& name : nodes) {
    const int node = inventory_->index_of(name);
    paths.push_back(node < 0 ? "" : topology.path_of(topology.leaf_of_node[as_index(node)]));
  }
  return paths;
}

std::vector<const api::Node*> Rooms::nodes() const {
  std::vector<const api::Node*> nodes;
  for (const NodeRoom& room : rooms_) nodes.push_back(room.node);
  return nodes;
}

void Rooms::read_topology_once() {
  if (std::exchange(was_read_, true) || topology_) return;
  auto read = read_topology(nodes());
  if (read) topology_ = std::make_shared<const Topology>(std::move(read).value());
}

void Rooms::read_tree() {
  read_topology_once();
  if (inventory_ || !topology_) return;
  inventory_.emplace(topology_, nodes());
  for (const NodeRoom& room : rooms_) {
    ResourceAmounts taken = room.node->allocatable;
    for (auto& [name, amount] : taken) amount -= room.free.at(name);
    const int node = inventory_->index_of(room.node->meta.name);
    if (node >= 0) inventory_->take(node, taken);
  }
}

}  // namespace muster::core
