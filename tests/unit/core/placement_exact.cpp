#include "tests/unit/core/placement_exact.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace muster::test {

using namespace muster::core;

namespace {

constexpr double kRounding = 1e-9, kRoundingOfRoom = 1e-6;

/// Pairs of a gang's pods over each link that others can be on.
std::map<int, double> flows_by_hand(const Topology& topology, int common,
                                    const std::vector<HostShare>& hosts) {
  std::map<int, double> flows;
  const int level = topology.domains[as_index(common)].level;
  if (hosts.size() < 2 || (level >= 0 && topology.levels[as_index(level)].is_fast)) return flows;
  int pods = 0;
  for (const HostShare& host : hosts) {
    pods += host.pods;
    flows[static_cast<int>(topology.domains.size()) + host.node] = host.pods;
    for (int at = topology.leaf_of_node[as_index(host.node)]; at != common;
         at = topology.domains[as_index(at)].parent) {
      flows[at] += host.pods;
    }
  }
  for (auto& [link, there] : flows) there *= pods - there;
  return flows;
}

bool is_about(double one, double other, double slack) { return std::abs(one - other) <= slack; }

}  // namespace

Judged judge(const Topology& topology, const std::vector<HostShare>& hosts) {
  int common = topology.leaf_of_node[as_index(hosts.front().node)];
  std::set<int> leaves, branches;
  for (const HostShare& host : hosts) {
    const int leaf = topology.leaf_of_node[as_index(host.node)];
    leaves.insert(leaf);
    common = topology.common_domain(common, leaf);
  }
  for (int leaf : leaves) {
    while (leaf != common && topology.domains[as_index(leaf)].parent != common) {
      leaf = topology.domains[as_index(leaf)].parent;
    }
    branches.insert(leaf);
  }
  return {{topology.domains[as_index(common)].height, static_cast<int>(branches.size()),
           static_cast<int>(leaves.size())},
          common};
}

double seconds_by_hand(const Topology& topology, const StepModel& model, int common,
                       const std::vector<HostShare>& hosts) {
  int n = 0;
  for (const HostShare& host : hosts) n += host.pods;
  if (n == 1) return 0;
  double slowest = 0;
  const double part = model.work().gradient_bytes / n;
  for (const HostShare& host : hosts) {
    slowest = std::max(slowest, (host.pods - 1) * part / topology.host.local_bytes_per_second);
  }
  if (hosts.size() == 1) return 2 * (topology.host.local_latency_seconds + slowest);
  for (const HostShare& host : hosts) {
    slowest = std::max(slowest, host.pods * (n - host.pods) * part / model.host_rate(common));
  }
  for (std::size_t d = 0; d < topology.domains.size(); ++d) {
    int inside = 0, above = static_cast<int>(d);
    while (above >= 0 && above != common) above = topology.domains[as_index(above)].parent;
    if (above < 0 || static_cast<int>(d) == common) continue;
    const Domain& domain = topology.domains[d];
    for (const HostShare& host : hosts) {
      const bool is_in =
          host.node >= domain.first_node && host.node < domain.first_node + domain.nodes;
      inside += is_in ? host.pods : 0;
    }
    slowest = std::max(slowest, inside * (n - inside) * part / model.uplink(static_cast<int>(d)));
  }
  return 2 * (model.latency(common) + slowest);
}

bool lies_within(const Topology& topology, int domain, const std::vector<int>& levels) {
  if (levels.empty()) return true;
  for (int at = domain; at >= 0; at = topology.domains[as_index(at)].parent) {
    const int level = topology.domains[as_index(at)].level;
    if (level >= 0 && std::find(levels.begin(), levels.end(), level) != levels.end()) return true;
  }
  return false;
}

CostByHand::CostByHand(const Topology& topology, const StepModel& alone,
                       std::vector<SendingGang> others)
    : topology_(topology), alone_(alone) {
  for (const SendingGang& gang : others) {
    const int common = judge(topology, gang.hosts).domain;
    SenderByHand sender;
    sender.flows = flows_by_hand(topology, common, gang.hosts);
    if (sender.flows.empty()) continue;
    sender.number = static_cast<int>(senders_.size());
    for (const HostShare& host : gang.hosts) sender.pods += host.pods;
    sender.bytes = gang.step.gradient_bytes / sender.pods;
    for (const HostShare& host : gang.hosts) {
      sender.local = std::max(
          sender.local, (host.pods - 1) * sender.bytes / topology.host.local_bytes_per_second);
    }
    sender.latency = alone.latency(common);
    sender.step = gang.step.step_seconds;
    sender.duty = std::min(1.0, gang.step.exchange_seconds / sender.step);
    if (sender.step == 0) {
      sender.duty = 0.5;
      sender.step = 4 * (sender.latency + exchange(sender, {}));
    }
    senders_.push_back(std::move(sender));
  }
}

CostByHand::Costs CostByHand::of(int common, const std::vector<HostShare>& hosts) const {
  SenderByHand ours;
  for (const HostShare& host : hosts) ours.pods += host.pods;
  ours.flows = flows_by_hand(topology_, common, hosts);
  ours.bytes = alone_.work().gradient_bytes / ours.pods;
  Costs costs;
  costs.exchange_seconds = seconds_by_hand(topology_, alone_, common, hosts);
  if (!ours.flows.empty()) {
    const double load = exchange(ours, senders_);
    costs.exchange_seconds = std::max(costs.exchange_seconds, 2 * (alone_.latency(common) + load));
  }
  ours.step = alone_.work().compute_seconds + costs.exchange_seconds;
  ours.duty = costs.exchange_seconds / ours.step;
  std::vector<SenderByHand> all = senders_;
  all.push_back(ours);
  for (const SenderByHand& sender : senders_) {
    const double before = sender.latency + exchange(sender, senders_);
    const double after = sender.latency + exchange(sender, all);
    costs.others += sender.pods * sender.duty * (after / before - 1);
  }
  costs.all = ours.step * (1 + costs.others / ours.pods);
  return costs;
}

double CostByHand::capacity(int link) const {
  const bool is_domain = link < static_cast<int>(topology_.domains.size());
  return is_domain ? alone_.uplink(link) : topology_.host.bytes_per_second;
}

/// Beside the others of `all`: the slowest link by what they leave, or by flows.
double CostByHand::exchange(const SenderByHand& one, const std::vector<SenderByHand>& all) const {
  double slowest = one.local;
  for (const auto& [link, flows] : one.flows) {
    double used = 0, others = 0;
    for (const SenderByHand& other : all) {
      const auto there = other.flows.find(link);
      if (other.number == one.number || there == other.flows.end()) continue;
      used += std::min(capacity(link), 2 * other.bytes * there->second / other.step);
      others += other.duty * there->second;
    }
    const double by_flows = one.bytes * (flows + others) / capacity(link);
    const double left = capacity(link) - used;
    slowest = std::max(slowest, left > 0 ? std::min(by_flows, one.bytes * flows / left) : by_flows);
  }
  return slowest;
}

RoomByHand room_by_hand(const Topology& topology, const Room& room,
                        const std::vector<HostShare>& hosts, const std::vector<std::int64_t>& usual,
                        std::int64_t pod_size) {
  std::map<int, int> pods_in;
  for (const HostShare& host : hosts) {
    pods_in[topology.leaf_of_node[as_index(host.node)]] += host.pods;
  }
  const auto useless = [&](std::int64_t free) {
    double sum = 0;
    for (const std::int64_t size : usual) sum += size > free ? static_cast<double>(free) : 0;
    return usual.empty() ? 0 : sum / static_cast<double>(usual.size());
  };
  RoomByHand all;
  for (const auto& [leaf, pods] : pods_in) {
    const int free = room.in_domain[as_index(leaf)];
    all.left += free - pods;
    all.lost += (useless((free - pods) * pod_size) - useless(free * pod_size)) /
                static_cast<double>(pod_size);
  }
  return all;
}

Comparison compare_goals(const Goals& one, const Goals& other) {
  if (one.rank != other.rank) return {Goal::kRank, one.rank < other.rank};
  if (!is_about(one.cost, other.cost, kRounding * std::max(one.cost, other.cost))) {
    return {Goal::kCost, one.cost < other.cost};
  }
  if (one.hosts != other.hosts) return {Goal::kHosts, one.hosts < other.hosts};
  if (!is_about(one.lost, other.lost, kRoundingOfRoom)) {
    return {Goal::kLost, one.lost < other.lost};
  }
  if (one.left != other.left) return {Goal::kLeft, one.left < other.left};
  return {};
}

EveryPlacement::EveryPlacement(const Topology& topology, const Room& room, std::vector<int> levels,
                               const std::vector<SendingGang>& others)
    : topology_(topology), room_(room), levels_(std::move(levels)) {
  // Where a host stands, its room, and who sends from it how much.
  using Kind = std::tuple<int, int, std::vector<std::pair<std::size_t, int>>>;
  std::vector<Kind> kinds;
  for (std::size_t node = 0; node < room.on_node.size(); ++node) {
    kinds.emplace_back(topology.leaf_of_node[node], room.on_node[node],
                       std::vector<std::pair<std::size_t, int>>());
  }
  for (std::size_t gang = 0; gang < others.size(); ++gang) {
    for (const HostShare& host : others[gang].hosts) {
      std::get<2>(kinds[as_index(host.node)]).emplace_back(gang, host.pods);
    }
  }
  std::map<Kind, int> last;
  for (std::size_t node = 0; node < kinds.size(); ++node) {
    const auto [there, is_first] = last.emplace(kinds[node], -1);
    twin_.push_back(there->second);
    there->second = static_cast<int>(node);
  }
  dealt_.assign(kinds.size(), 0);
  rest_.assign(kinds.size() + 1, 0);
  for (std::size_t node = kinds.size(); node-- > 0;) {
    rest_[node] = rest_[node + 1] + room.on_node[node];
  }
}

double EveryPlacement::count(int pods) const {
  std::vector<std::vector<int>> kinds;
  std::vector<std::size_t> kind_of(twin_.size());
  for (std::size_t node = 0; node < twin_.size(); ++node) {
    kind_of[node] = twin_[node] < 0 ? kinds.size() : kind_of[as_index(twin_[node])];
    if (twin_[node] < 0) kinds.emplace_back();
    kinds[kind_of[node]].push_back(static_cast<int>(node));
  }
  std::vector<double> ways(as_index(pods) + 1, 0);
  ways[0] = 1;
  for (const std::vector<int>& hosts : kinds) {
    // Shares of one kind, in falling order: [hosts with a share][pods].
    const std::size_t most = hosts.size();
    std::vector<std::vector<double>> shares(most + 1, std::vector<double>(ways.size(), 0));
    shares[0][0] = 1;
    const std::size_t fit = as_index(room_.on_node[as_index(hosts.front())]);
    for (std::size_t share = 1; share <= std::min(fit, as_index(pods)); ++share) {
      for (std::size_t used = 1; used <= most; ++used) {
        for (std::size_t sum = share; sum < ways.size(); ++sum) {
          shares[used][sum] += shares[used - 1][sum - share];
        }
      }
    }
    std::vector<double> next(ways.size(), 0);
    for (std::size_t before = 0; before < ways.size(); ++before) {
      for (std::size_t here = 0; before + here < ways.size(); ++here) {
        for (const auto& of : shares) next[before + here] += ways[before] * of[here];
      }
    }
    ways = std::move(next);
  }
  return ways.back();
}

void EveryPlacement::run(int pods, const Listener& listener) { deal(0, pods, listener); }

void EveryPlacement::deal(std::size_t node, int left, const Listener& listener) {
  if (left == 0) {
    const Judged judged = judge(topology_, hosts_);
    if (lies_within(topology_, judged.domain, levels_)) listener(judged, hosts_);
    return;
  }
  if (left > rest_[node]) return;
  int most = std::min(left, room_.on_node[node]);
  if (twin_[node] >= 0) most = std::min(most, dealt_[as_index(twin_[node])]);
  for (int here = 0; here <= most; ++here) {
    dealt_[node] = here;
    if (here > 0) hosts_.push_back({static_cast<int>(node), here});
    deal(node + 1, left - here, listener);
    if (here > 0) hosts_.pop_back();
  }
  dealt_[node] = 0;
}

}  // namespace muster::test
