#include "operator/core/rooms.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "operator/core/placement_words.h"
#include "operator/core/topology_sources.h"

namespace muster::core {

namespace {

/// More than any node has: what a pod asks for in vain is added up with what others do.
constexpr std::int64_t kMostOfPod = 1'000'000'000'000'000;
/// Kinds of gangs that wait in vain at a time; of more, each is looked at for itself.
constexpr std::size_t kRefusalsMost = 64;

/// Whether two gangs ask for the same, in all that says whether there is a place for them: what
/// else they are decides at most between places.
bool asks_alike(const WaitingGang& a, const WaitingGang& b) {
  const auto asked = [](const WaitingGang& gang) {
    return std::tie(gang.count, gang.min, gang.together, gang.per_worker, gang.node_selector,
                    gang.node_terms, gang.tolerations, gang.unplaced, gang.required_level,
                    gang.preferred_level, gang.wish, gang.volumes, gang.avoid, gang.nodes_may_come,
                    gang.stood, gang.groups, gang.stands);
  };
  return asked(a) == asked(b);
}

}  // namespace

ResourceAmounts amounts_of(const api::PodRequests& requests) {
  ResourceAmounts amounts = requests.devices;
  amounts["cpu"] = requests.cpu_millis;
  amounts["memory"] = requests.memory_bytes;
  amounts["pods"] = 1;
  if (requests.master_port) amounts[kMasterPortResource] = 1;
  for (auto& [resource, amount] : amounts) amount = std::min(amount, kMostOfPod);
  return amounts;
}

ResourceAmounts amounts_of(const api::Resources& resources) {
  return amounts_of(api::PodRequests(resources));
}

const std::string& node_of(const api::Pod& pod) {
  static const std::string kNowhere;
  if (pod.ended()) return kNowhere;
  if (!pod.node_name.empty()) return pod.node_name;
  // A stranger's may be pinned to where it will never fit.
  return pod.is_of_job() ? pod.required_node : kNowhere;
}

Inventory inventory_of(const ClusterSnapshot& cluster) {
  std::shared_ptr<const Topology> topology = cluster.topology;
  if (!topology) {
    auto read = read_topology(cluster.nodes);
    if (read) topology = std::make_shared<const Topology>(std::move(read).value());
  }
  if (!topology) {
    std::set<std::string> names;
    for (const api::Node* node : cluster.nodes) names.insert(node->meta.name);
    topology = std::make_shared<const Topology>(lone_nodes(names));
  }
  Inventory inventory(std::move(topology), cluster.nodes);
  const auto take = [&](const std::string& name, const api::PodRequests& requests,
                        bool is_of_node) {
    const int node = inventory.index_of(name);
    if (node < 0) return;
    if (is_of_node) inventory.set_aside(node, amounts_of(requests));
    inventory.take(node, amounts_of(requests));
  };
  for (const api::Pod* pod : cluster.pods) take(node_of(*pod), pod->requests, pod->is_of_node());
  for (const auto& assumed : cluster.assumed) take(assumed.node, assumed.requests, false);
  return inventory;
}

namespace {

/// Of one that runs, or has just been given these nodes.
template <typename Gang>
SendingGang sending_from(const Gang& gang, const std::vector<std::string>& nodes,
                         const Inventory& inventory) {
  SendingGang sending{gang.job,
                      {},
                      gang.step,
                      static_cast<int>(gang.per_worker.gpus),
                      gang.per_worker.gpu_resource,
                      gang.per_worker.cpu_millis,
                      nodes.size()};
  auto& hosts = sending.hosts;
  const std::string* before = nullptr;
  for (const std::string& name : nodes) {
    // Slots are mostly numbered node by node.
    if (before != nullptr && *before == name) {
      ++hosts.back().pods;
      continue;
    }
    const int node = inventory.index_of(name);
    if (node < 0) continue;
    before = &name;
    hosts.push_back({node, 1});
  }
  std::sort(hosts.begin(), hosts.end(),
            [](const HostShare& a, const HostShare& b) { return a.node < b.node; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < hosts.size(); ++i) {
    if (hosts[i].node == hosts[last].node) {
      hosts[last].pods += hosts[i].pods;
    } else {
      hosts[++last] = hosts[i];
    }
  }
  hosts.resize(hosts.empty() ? 0 : last + 1);
  return sending;
}

}  // namespace

SendingGang sending_gang(const RunningGang& gang, const Inventory& inventory) {
  return sending_from(gang, gang.nodes, inventory);
}

Rooms::Rooms(const ClusterSnapshot& cluster)
    : inventory_(cluster.inventory), waiting_(cluster.gangs) {
  if (inventory_ != nullptr) {
    trial_.emplace(*inventory_);
  } else {
    inventory_ = &own_.emplace(inventory_of(cluster));
  }
  if (cluster.sending) {
    sending_ = *cluster.sending;
  } else {
    for (const RunningGang& gang : cluster.running) {
      sending_.push_back(&own_sending_.emplace_back(sending_gang(gang, *inventory_)));
    }
  }
  running_ = sending_.size();
}

Rooms Rooms::at_best() const {
  Rooms rooms(*this);
  rooms.inventory_->count_closed_for_a_while();
  rooms.inventory_->empty();
  return rooms;
}

void Rooms::take(const std::vector<HostShare>& hosts, const api::Resources& per_pod) {
  const NumberedAmounts amounts = inventory_->numbered(amounts_of(per_pod));
  for (const HostShare& host : hosts) inventory_->take(host.node, amounts, host.pods);
}

void Rooms::take(const std::string& node, const api::Resources& resources) {
  const int index = inventory_->index_of(node);
  if (index >= 0) inventory_->take(index, amounts_of(resources));
}

void Rooms::give_back(const std::string& node, const api::Resources& resources) {
  const int index = inventory_->index_of(node);
  if (index >= 0) inventory_->give_back(index, amounts_of(resources));
}

void Rooms::give_back(const GangPlacement& placement, const api::Resources& per_worker) {
  for (const std::string& node : placement.node_of_slot) give_back(node, per_worker);
}

const GangVerdict* Rooms::refusal_of(const WaitingGang& gang, const NodeCaps* caps) const {
  if (refused_at_ != inventory_->version()) return nullptr;
  const auto found = std::find_if(refusals_.begin(), refusals_.end(), [&](const Refusal& one) {
    return asks_alike(one.gang, gang) && (caps == nullptr ? !one.caps : one.caps == *caps);
  });
  return found == refusals_.end() ? nullptr : &found->verdict;
}

void Rooms::keep_refusal(const WaitingGang& gang, const NodeCaps* caps,
                         const GangVerdict& verdict) {
  if (std::exchange(refused_at_, inventory_->version()) != inventory_->version()) refusals_.clear();
  if (refusals_.size() >= kRefusalsMost) return;
  refusals_.push_back({gang, caps == nullptr ? std::nullopt : std::optional(*caps), verdict});
}

bool Rooms::knows(const std::string& level) const { return inventory_->topology().knows(level); }

bool Rooms::knows_network() const {
  const auto& domains = inventory_->topology().domains;
  return domains.size() > 1 && std::any_of(domains.begin() + 1, domains.end(),
                                           [](const Domain& one) { return one.nodes > 1; });
}

std::vector<int> Rooms::distances_from(const std::set<std::string>& nodes) const {
  std::vector<int> distances(inventory_->size(), 0);
  if (nodes.empty() || !knows_network()) return distances;
  const Topology& topology = inventory_->topology();
  std::set<int> around;  // the domains of these nodes
  for (const std::string& name : nodes) {
    const int node = inventory_->index_of(name);
    int at = node < 0 ? -1 : topology.leaf_of_node[as_index(node)];
    while (at >= 0 && around.insert(at).second) at = topology.domains[as_index(at)].parent;
  }
  around.insert(0);
  for (std::size_t i = 0; i < distances.size(); ++i) {
    int at = topology.leaf_of_node[i];
    while (!around.contains(at)) at = topology.domains[as_index(at)].parent;
    distances[i] = topology.domains[as_index(at)].height;
  }
  return distances;
}

const std::vector<const SendingGang*>& Rooms::sending() {
  while (sending_.size() < running_ + started_.size()) {
    const Started& one = started_[sending_.size() - running_];
    sending_.push_back(
        &own_sending_.emplace_back(sending_from(*one.gang, *one.nodes, *inventory_)));
  }
  return sending_;
}

const Traffic* Rooms::traffic() {
  const Topology& topology = inventory_->topology();
  if (!seats_ && std::isfinite(inventory_->slowest_in_host())) {
    seats_.emplace(*inventory_, static_cast<int>(topology.domains.size() + topology.nodes.size()));
  }
  if (sending().empty()) return nullptr;
  if (!traffic_) {
    traffic_.emplace(topology, sending_, seats_ ? &*seats_ : nullptr);
  } else {
    for (std::size_t i = in_traffic_; i < sending_.size(); ++i) traffic_->add(*sending_[i]);
  }
  in_traffic_ = sending_.size();
  return traffic_->empty() ? nullptr : &*traffic_;
}

GangGpus Rooms::gpus_of(const api::Resources& per_worker) const {
  return {seats_ ? &*seats_ : nullptr, per_worker.gpu_resource, static_cast<int>(per_worker.gpus)};
}

std::pair<const UsualSizes*, std::int64_t> Rooms::usual_sizes(const api::Resources& per_worker) {
  const bool by_gpu = per_worker.gpus > 0;
  const auto size_of = [&](std::int64_t gpus, std::int64_t cpu_millis) {
    return by_gpu ? gpus : gpus > 0 ? 0 : cpu_millis;
  };
  std::optional<UsualSizes>& sizes = by_gpu ? gpu_sizes_ : cpu_sizes_;
  if (!sizes) {
    std::vector<std::int64_t> all;
    const auto add = [&](std::int64_t pod, std::size_t pods) {
      const std::int64_t size = pod * static_cast<std::int64_t>(pods);
      if (size > 0) all.push_back(size);
    };
    for (std::size_t i = 0; i < running_; ++i) {
      const SendingGang& gang = *sending_[i];
      if (gang.places > 1) add(size_of(gang.gpus_per_pod, gang.cpu_millis_per_pod), gang.places);
    }
    for (const WaitingGang& gang : waiting_) {
      if (!gang.wish.slots.empty()) continue;
      add(size_of(gang.per_worker.gpus, gang.per_worker.cpu_millis),
          static_cast<std::size_t>(gang.count));
    }
    sizes.emplace(std::move(all));
  }
  return {&*sizes, std::max<std::int64_t>(1, size_of(per_worker.gpus, per_worker.cpu_millis))};
}

GpusByJob Rooms::gpus_by_job(int node, const std::string& gpu_resource) {
  GpusByJob held;
  for (const SendingGang* gang : sending()) {
    if (gang->gpus_per_pod <= 0 || gang->gpu_resource != gpu_resource) continue;
    const auto host = std::ranges::lower_bound(gang->hosts, node, {}, &HostShare::node);
    if (host == gang->hosts.end() || host->node != node) continue;
    held[gang->job] += std::int64_t{host->pods} * gang->gpus_per_pod;
  }
  return held;
}

void Rooms::start(const WaitingGang& gang, const std::vector<std::string>& nodes) {
  started_.push_back({&gang, &nodes});
}

std::string Rooms::passed_over() const { return passed_over_text(inventory_->topology()); }

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
  std::vector<int> numbers;
  numbers.reserve(nodes.size());
  const std::string* before = nullptr;
  for (const std::string& name : nodes) {
    const bool is_same = before != nullptr && *before == name;
    numbers.push_back(is_same ? numbers.back() : inventory_->index_of(name));
    before = &name;
  }
  return domains_of(numbers);
}

std::vector<std::string> Rooms::domains_of(const std::vector<int>& nodes) const {
  std::vector<std::string> paths;
  paths.reserve(nodes.size());
  const Topology& topology = inventory_->topology();
  int leaf_before = -1;
  for (const int node : nodes) {
    const int leaf = node < 0 ? -1 : topology.leaf_of_node[as_index(node)];
    if (leaf >= 0 && leaf == leaf_before) {
      paths.push_back(paths.back());
      continue;
    }
    paths.push_back(leaf < 0 ? "" : topology.path_of(leaf));
    leaf_before = leaf;
  }
  return paths;
}

}  // namespace muster::core
