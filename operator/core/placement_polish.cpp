#include "operator/core/placement_polish.h"

#include <algorithm>
#include <map>
#include <utility>

namespace muster::core {
namespace {

bool is_before(const HostShare& a, const HostShare& b) { return a.node < b.node; }

std::vector<HostShare>::iterator place_of(std::vector<HostShare>& hosts, int node) {
  return std::lower_bound(hosts.begin(), hosts.end(), HostShare{node, 0}, is_before);
}

/// `pods` more on a node, or fewer; the order stays.
void add_pods(std::vector<HostShare>& hosts, int node, int pods) {
  const auto at = place_of(hosts, node);
  if (at == hosts.end() || at->node != node) {
    hosts.insert(at, {node, pods});
  } else if (at->pods + pods == 0) {
    hosts.erase(at);
  } else {
    at->pods += pods;
  }
}

}  // namespace

Polisher::Polisher(const Topology& topology, const Room& room, int domain)
    : topology_(topology), room_(room), domain_(domain) {}

void Polisher::improve(const std::vector<HostShare>& hosts, const Try& is_better) {
  hosts_ = hosts;
  try_ = &is_better;
  do {
    shift_pods();
    if (tried_ != Tried::kEnough) swap_leaves();
  } while (tried_ == Tried::kBetter);
}

void Polisher::look(std::vector<HostShare> hosts) {
  tried_ = (*try_)(hosts);
  if (tried_ == Tried::kBetter) hosts_ = std::move(hosts);
}

int Polisher::branch_of(int leaf) const {
  while (leaf != domain_ && topology_.domains[as_index(leaf)].parent != domain_) {
    leaf = topology_.domains[as_index(leaf)].parent;
  }
  return leaf;
}

/// Leaf domains that are used, and how many pods each has.
std::map<int, int> Polisher::used() const {
  std::map<int, int> pods;
  for (const HostShare& host : hosts_) pods[leaf_of(host)] += host.pods;
  return pods;
}

/// What is free still on nodes of the leaf domains that are used.
std::vector<HostShare> Polisher::spare(const std::map<int, int>& used) const {
  std::vector<HostShare> spare;
  for (const auto& [leaf, pods] : used) {
    const Domain& one = topology_.domains[as_index(leaf)];
    if (room_.in_domain[as_index(leaf)] == pods) continue;
    for (int node = one.first_node; node < one.first_node + one.nodes; ++node) {
      if (room_.on_node[as_index(node)] > 0) spare.push_back({node, room_.on_node[as_index(node)]});
    }
  }
  std::sort(spare.begin(), spare.end(), is_before);
  auto host = hosts_.begin();
  for (HostShare& one : spare) {
    while (host != hosts_.end() && host->node < one.node) ++host;
    if (host != hosts_.end() && host->node == one.node) one.pods -= host->pods;
  }
  std::erase_if(spare, [](const HostShare& one) { return one.pods == 0; });
  return spare;
}

/// From each host to every other one in the leaf domains that are used, until none helps.
void Polisher::shift_pods() {
  std::size_t at = 0;
  for (std::size_t in_vain = 0; in_vain < hosts_.size(); ++in_vain) {
    at = at + 1 < hosts_.size() ? at + 1 : 0;
    shift_from(hosts_[at]);
    if (tried_ == Tried::kEnough) return;
    if (tried_ == Tried::kBetter) in_vain = 0;
  }
}

/// All that can be, or one; ends with the first that helps.
void Polisher::shift_from(const HostShare from) {
  tried_ = Tried::kNoBetter;
  const std::map<int, int> leaves = used();
  const bool is_alone = leaves.at(leaf_of(from)) == from.pods;
  for (const HostShare& to : spare(leaves)) {
    if (to.node == from.node) continue;
    const bool empties = is_alone && leaf_of(to) != leaf_of(from);
    const int most = std::min(to.pods, from.pods - (empties ? 1 : 0));
    for (int pods = most; pods > 0; pods = pods > 1 ? 1 : 0) {
      std::vector<HostShare> changed = hosts_;
      add_pods(changed, from.node, -pods);
      add_pods(changed, to.node, pods);
      look(std::move(changed));
      if (tried_ != Tried::kNoBetter) return;
    }
  }
}

/// All pods of a leaf domain to one that is not used.
void Polisher::swap_leaves() {
  tried_ = Tried::kNoBetter;
  const std::map<int, int> leaves = used();
  std::map<int, int> leaves_of_branch;
  for (const auto& [leaf, pods] : leaves) ++leaves_of_branch[branch_of(leaf)];
  std::vector<int> others;
  const Domain& domain = topology_.domains[as_index(domain_)];
  for (int node = domain.first_node; node < domain.first_node + domain.nodes;) {
    const int leaf = topology_.leaf_of_node[as_index(node)];
    if (room_.in_domain[as_index(leaf)] > 0 && !leaves.contains(leaf)) others.push_back(leaf);
    node = topology_.domains[as_index(leaf)].first_node + topology_.domains[as_index(leaf)].nodes;
  }
  for (const auto& [leaf, pods] : leaves) {
    const int branch = branch_of(leaf);
    for (const int other : others) {
      // As many branches as before: one of them, unless the leaf was alone in its own.
      const bool is_new = !leaves_of_branch.contains(branch_of(other));
      const bool was_alone = leaves_of_branch.at(branch) == 1;
      if (is_new != was_alone && branch_of(other) != branch) continue;
      swap_leaf(leaf, other, pods);
      if (tried_ != Tried::kNoBetter) return;
    }
  }
}

/// What has no room there goes where it has, in the leaf domains that are used.
void Polisher::swap_leaf(int leaf, int other, int pods) {
  std::vector<HostShare> hosts = hosts_;
  std::erase_if(hosts, [&](const HostShare& host) { return leaf_of(host) == leaf; });
  const auto take = [&](std::vector<HostShare> rooms) {
    std::stable_sort(rooms.begin(), rooms.end(),
                     [](const HostShare& a, const HostShare& b) { return a.pods > b.pods; });
    for (const HostShare& room : rooms) {
      const int here = std::min(room.pods, pods);
      if (here == 0) return;
      add_pods(hosts, room.node, here);
      pods -= here;
    }
  };
  const Domain& one = topology_.domains[as_index(other)];
  std::vector<HostShare> rooms;
  for (int node = one.first_node; node < one.first_node + one.nodes; ++node) {
    rooms.push_back({node, room_.on_node[as_index(node)]});
  }
  take(std::move(rooms));
  if (pods > 0) {
    std::map<int, int> rest = used();
    rest.erase(leaf);
    take(spare(rest));
  }
  if (pods == 0) look(std::move(hosts));
}

}  // namespace muster::core
