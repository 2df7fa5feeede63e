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
  std::vector<Group> groups(object.pcie->switches.size() + 1);
  for (std::size_t i = 0; i + 1 < groups.size(); ++i) {
    groups[i].number = static_cast<int>(i);
    groups[i].bytes_per_second =
        static_cast<double>(object.pcie->switches[i].uplink_bytes_per_second);
  }
  for (const api::PcieDevice& gpu : object.pcie->gpus) {
    ++(gpu.switch_index ? groups[as_index(*gpu.switch_index)] : groups.back()).gpus;
  }
  for (Group& group : groups) {
    group.free = group.gpus;
    if (group.gpus > 0) host.groups.push_back(group);
  }
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

/// Where the next of so many GPUs lie: together below the tightest switch where nobody is; else on
/// several of these; else where somebody is.
int PcieSeats::next_group(const std::vector<Group>& groups, std::int64_t gpus) {
  int tightest = -1, largest = -1, tightest_shared = -1, largest_shared = -1;
  std::int64_t empty = 0;
  const auto less = [&](int a, int b) {
    return b < 0 || groups[as_index(a)].free < groups[as_index(b)].free;
  };
  const auto more = [&](int a, int b) {
    return b < 0 || groups[as_index(a)].free > groups[as_index(b)].free;
  };
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Group& group = groups[i];
    if (group.free == 0) continue;
    const int at = static_cast<int>(i);
    int& tight = group.is_empty() ? tightest : tightest_shared;
    int& large = group.is_empty() ? largest : largest_shared;
    if (group.is_empty()) empty += group.free;
    if (group.free >= gpus && less(at, tight)) tight = at;
    if (more(at, large)) large = at;
  }
  if (tightest >= 0) return tightest;
  if (empty >= gpus) return largest;
  if (tightest_shared >= 0) return tightest_shared;
  return largest >= 0 ? largest : largest_shared;
}

void PcieSeats::seat(const Host& host, std::int64_t gpus) const {
  seats_.clear();
  groups_ = host.groups;
  while (gpus > 0) {
    const int at = next_group(groups_, gpus);
    if (at < 0) return;
    Group& group = groups_[as_index(at)];
    const auto here = static_cast<int>(std::min<std::int64_t>(gpus, group.free));
    group.free -= here;
    gpus -= here;
    if (group.number < 0 || group.bytes_per_second <= 0) continue;
    const int link = host.first_link < 0 ? -1 : host.first_link + group.number;
    seats_.push_back({here, group.bytes_per_second, group.number, link});
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
    const int switches = static_cast<int>(inventory_.node(node).pcie->switches.size());
    host.first_link = next_link_;
    next_link_ += switches;
    for (int number = 0; number < switches; ++number) places_.push_back({node, number});
  }
  seat(host, gpus);
  host.groups = groups_;
  return seats_;
}

int PcieSeats::link_of(int node, int number) const {
  const int index = host_of_node_[as_index(node)];
  const int first = index < 0 ? -1 : hosts_[as_index(index)].first_link;
  return first < 0 ? -1 : first + number;
}

std::string PcieSeats::text(const Place& place) const {
  const api::Node& node = inventory_.node(place.node);
  return "PCIe switch " + node.pcie->switches[as_index(place.number)].address + " of host " +
         node.meta.name;
}

}  // namespace muster::core
