#include "operator/core/pcie_seats.h"

#include <algorithm>
#include <utility>

namespace muster::core {

PcieSeats::PcieSeats(const Inventory& inventory, int first_link)
    : inventory_(inventory),
      first_link_(first_link),
      next_link_(first_link),
      known_(inventory.size(), 0),
      host_of_node_(inventory.size(), -1) {}

/// As if only strangers stood there.
PcieSeats::Host PcieSeats::described(int node, const std::string& gpu_resource) const {
  Host host;
  const api::Node& object = inventory_.node(node);
  if (!object.pcie) return host;
  const auto all = static_cast<std::int64_t>(object.pcie->gpus.size());
  const auto [offered, free] = inventory_.amount_on(node, inventory_.resource_index(gpu_resource));
  if (offered == 0 || offered != all) return host;
  const std::vector<int> numa = api::numa_nodes_of_gpus(*object.pcie);
  const std::size_t switches = object.pcie->switches.size();
  host.switches = static_cast<int>(switches);
  if (numa.size() > 1) host.numa_nodes = static_cast<int>(numa.size());
  // Behind the switches, by NUMA node, what stands straight below root ports.
  std::vector<Group> groups(switches + std::max<std::size_t>(numa.size(), 1));
  for (std::size_t i = 0; i < switches; ++i) {
    groups[i].number = static_cast<int>(i);
    groups[i].bytes_per_second =
        static_cast<double>(object.pcie->switches[i].uplink_bytes_per_second);
  }
  for (const api::PcieDevice& gpu : object.pcie->gpus) {
    std::ptrdiff_t on = -1;
    if (!numa.empty()) {
      on = std::lower_bound(numa.begin(), numa.end(), *gpu.numa_node) - numa.begin();
    }
    const std::size_t alone = switches + static_cast<std::size_t>(std::max<std::ptrdiff_t>(on, 0));
    Group& group = groups[gpu.switch_index ? as_index(*gpu.switch_index) : alone];
    group.numa = static_cast<int>(on);
    ++group.gpus;
  }
  for (Group& group : groups) {
    group.free = group.gpus;
    if (group.gpus > 0) host.groups.push_back(group);
  }
  std::stable_sort(host.groups.begin(), host.groups.end(),
                   [](const Group& a, const Group& b) { return a.numa < b.numa; });
  const std::int64_t held = offered - free;
  seat(host, std::clamp<std::int64_t>(held - known_[as_index(node)], 0, all));
  host.groups = groups_;
  return host;
}

const PcieSeats::Host& PcieSeats::host(int node, const std::string& gpu_resource) const {
  if (!is_asked(node)) {
    Host made = described(node, gpu_resource);
    host_of_node_[as_index(node)] = static_cast<int>(hosts_.size());
    hosts_.push_back(std::move(made));
    if (listener_) listener_(node);
  }
  return hosts_[as_index(host_of_node_[as_index(node)])];
}

/// What is free in some groups, and which of them come first; -1: none.
struct PcieSeats::Choice {
  std::int64_t free = 0;
  int tightest = -1;  ///< of those that hold all that is wanted
  int largest = -1;

  void add(const std::vector<Group>& groups, int at, std::int64_t gpus) {
    const int here = groups[as_index(at)].free;
    if (here == 0) return;
    free += here;
    if (here >= gpus && (tightest < 0 || here < groups[as_index(tightest)].free)) tightest = at;
    if (largest < 0 || here > groups[as_index(largest)].free) largest = at;
  }
  /// The tightest that holds all comes first, else the roomiest.
  bool is_before(const Choice& other, std::int64_t gpus) const {
    const bool holds = free >= gpus;
    if (holds != (other.free >= gpus)) return holds;
    return holds ? free < other.free : free > other.free;
  }
};

/// Where the next of so many GPUs lie: together below the tightest switch where nobody is; else on
/// several of these; else where somebody is. Several are those of one NUMA node: of `near`, where
/// those before them lie, as long as it has any; else of the tightest that holds all; else of the
/// roomiest.
int PcieSeats::next_group(const std::vector<Group>& groups, std::int64_t gpus,
                          std::optional<int> near) {
  Choice own, shared, here, best, numa;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    const int at = static_cast<int>(i);
    (group.is_empty() ? own : shared).add(groups, at, gpus);
    if (group.is_empty()) numa.add(groups, at, gpus);
    if (i + 1 < groups.size() && groups[i + 1].numa == group.numa) continue;
    if (near == group.numa) here = numa;
    if (numa.is_before(best, gpus)) best = numa;
    numa = {};
  }
  if (own.free >= gpus) {
    if (here.largest >= 0) return here.tightest >= 0 ? here.tightest : here.largest;
    return own.tightest >= 0 ? own.tightest : best.largest;
  }
  if (shared.tightest >= 0) return shared.tightest;
  return own.largest >= 0 ? own.largest : shared.largest;
}

void PcieSeats::seat(const Host& host, std::int64_t gpus) const {
  seats_.clear();
  groups_ = host.groups;
  on_numa_.assign(as_index(host.numa_nodes), 0);
  std::optional<int> near;
  while (gpus > 0) {
    const int at = next_group(groups_, gpus, near);
    if (at < 0) break;
    Group& group = groups_[as_index(at)];
    const auto here = static_cast<int>(std::min<std::int64_t>(gpus, group.free));
    group.free -= here;
    gpus -= here;
    near = group.numa;
    if (host.numa_nodes > 0) on_numa_[as_index(group.numa)] += here;
    if (group.number < 0 || group.bytes_per_second <= 0) continue;
    seats_.push_back({here, group.bytes_per_second, group.number, host.link(group.number)});
  }
  const double rate = inventory_.topology().host.numa_bytes_per_second;
  for (int i = 0; i < host.numa_nodes; ++i) {
    const int number = host.switches + i, here = on_numa_[as_index(i)];
    if (here > 0) seats_.push_back({here, rate, number, host.link(number), true});
  }
}

const std::vector<PcieSeat>& PcieSeats::seats(int node, const std::string& gpu_resource,
                                              std::int64_t gpus) const {
  seat(host(node, gpu_resource), gpus);
  return seats_;
}

const std::vector<PcieSeat>& PcieSeats::take(int node, const std::string& gpu_resource,
                                             std::int64_t gpus) {
  (void)host(node, gpu_resource);
  Host& host = hosts_[as_index(host_of_node_[as_index(node)])];
  if (host.first_link < 0 && !host.groups.empty()) {
    host.first_link = next_link_;
    next_link_ += host.links();
    for (int number = 0; number < host.links(); ++number) places_.push_back({node, number});
  }
  seat(host, gpus);
  host.groups = groups_;
  return seats_;
}

int PcieSeats::link_of(int node, int number) const {
  const int index = host_of_node_[as_index(node)];
  return index < 0 ? -1 : hosts_[as_index(index)].link(number);
}

bool PcieSeats::is_switch(const Place& place) const {
  return as_index(place.number) < inventory_.node(place.node).pcie->switches.size();
}

std::string PcieSeats::text(const Place& place) const {
  const api::Node& node = inventory_.node(place.node);
  const std::vector<api::PcieSwitch>& switches = node.pcie->switches;
  const std::string of_host = " of host " + node.meta.name;
  if (is_switch(place)) return "PCIe switch " + switches[as_index(place.number)].address + of_host;
  const std::vector<int> numa = api::numa_nodes_of_gpus(*node.pcie);
  return "NUMA node " + std::to_string(numa[as_index(place.number) - switches.size()]) + of_host;
}

}  // namespace muster::core
