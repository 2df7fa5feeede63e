// Placement held against all placements there are, on clusters small enough to list them.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "common/rng.h"
#include "operator/core/placement.h"
#include "tests/test_main.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

constexpr std::size_t kShapesOfNetwork = 5;

/// The kinds of network that are measured, with at most 14 hosts.
Topology small_network(std::size_t kind, Rng& rng) {
  const auto number = [&](std::uint64_t least, std::uint64_t most) {
    return static_cast<int>(least + rng.below(most - least + 1));
  };
  TopologyInput input;
  if (kind == 0) {  // Lingjun: few large switches over leaves of uneven size
    input = tree_of({"psw", "asw"});
    input.levels[0].oversubscription = 2;
    for (int psw = 0; psw < 3; ++psw) {
      for (int asw = number(1, 2); asw > 0; --asw) {
        add_hosts(input, {"p" + std::to_string(psw), "a" + std::to_string(asw)}, number(1, 2));
      }
    }
  } else if (kind == 1) {  // fat tree, oversubscribed above the edge
    input = tree_of({"pod", "edge"});
    input.levels[0].oversubscription = number(1, 8);
    input.levels[1].oversubscription = number(1, 4);
    for (int pod = 0; pod < 2; ++pod) {
      for (int edge = 0; edge < 3; ++edge) {
        add_hosts(input, {"p" + std::to_string(pod), "e" + std::to_string(edge)}, 2);
      }
    }
  } else if (kind == 2) {  // rail: one wide level
    input = tree_of({"rail"});
    input.levels[0].oversubscription = number(1, 4);
    for (int rail = 0; rail < 3; ++rail)
      add_hosts(input, {"r" + std::to_string(rail)}, number(2, 4));
  } else if (kind == 3) {  // NVLink domains under a leaf, and hosts without
    input = tree_of({"leaf", "nvlink"});
    input.levels[1].is_fast = true;
    for (int leaf = 0; leaf < 2; ++leaf) {
      for (int domain = 0; domain < 2; ++domain) {
        add_hosts(input, {"l" + std::to_string(leaf), "d" + std::to_string(domain)}, 2);
      }
      add_hosts(input, {"l" + std::to_string(leaf)}, number(0, 2));
    }
  } else {  // blocks and sub-blocks in a zone, and a node of which nothing is known
    input = tree_of({"zone", "block", "subblock"});
    input.levels[0].is_area = true;
    input.levels[1].oversubscription = 3;
    for (int block = 0; block < 3; ++block) {
      for (int sub = number(1, 3); sub > 0; --sub) {
        add_hosts(input,
                  {"z" + std::to_string(block / 2), "b" + std::to_string(block),
                   "s" + std::to_string(sub)},
                  number(1, 2));
      }
    }
    while (input.nodes.size() > 13) input.nodes.pop_back();
    add_hosts(input, {}, 1);
  }
  return built(std::move(input));
}

/// What is left on hosts with 8 GPUs for pods with `gpus` each.
Room occupied(const Topology& topology, double occupancy, int gpus, Rng& rng) {
  std::vector<int> on_node;
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    int free = 8;
    for (int gpu = 0; gpu < 8; ++gpu) free -= rng.unit() < occupancy ? 1 : 0;
    on_node.push_back(free / gpus);
  }
  return room_of(topology, on_node);
}

int height_of(const Topology& topology, int domain) {
  return topology.domains[as_index(domain)].height;
}

/// What place_gang promises to be least, in its order.
using Rank = std::tuple<int, int, int>;

struct Judged {
  Rank rank;  ///< height, branches, leaves
  int domain = 0;
};

/// Counted on the placement itself. The lowest domain is that which was free to hold all.
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
  return {{height_of(topology, common), static_cast<int>(branches.size()),
           static_cast<int>(leaves.size())},
          common};
}

/// The prediction once more, domain by domain.
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

/// Pairs of a gang's pods over each link that others can be on.
std::map<int, double> flows_by_hand(const Topology& topology, const std::vector<HostShare>& hosts) {
  std::map<int, double> flows;
  const int common = judge(topology, hosts).domain;
  const int level = topology.domains[as_index(common)].level;
  if (hosts.size() < 2 || (level >= 0 && topology.levels[as_index(level)].is_fast)) return flows;
  std::map<int, int> inside;
  int pods = 0;
  for (const HostShare& host : hosts) {
    pods += host.pods;
    inside[static_cast<int>(topology.domains.size()) + host.node] = host.pods;
    for (int at = topology.leaf_of_node[as_index(host.node)]; at != common;
         at = topology.domains[as_index(at)].parent) {
      inside[at] += host.pods;
    }
  }
  for (const auto& [link, there] : inside) flows[link] = there * (pods - there);
  return flows;
}

/// What place_gang promises to be least after the rank, counted gang by gang and link by link.
class CostByHand {
 public:
  struct Costs {
    double exchange_seconds = 0, others = 0, all = 0;
  };

  CostByHand(const Topology& topology, const StepModel& alone, std::vector<SendingGang> others)
      : topology_(topology), alone_(alone), others_(std::move(others)) {
    std::erase_if(others_, [&](const SendingGang& gang) {
      return flows_by_hand(topology_, gang.hosts).empty();
    });
    for (const SendingGang& gang : others_) {
      Sender sender;
      sender.number = static_cast<int>(senders_.size());
      sender.flows = flows_by_hand(topology, gang.hosts);
      for (const HostShare& host : gang.hosts) sender.pods += host.pods;
      sender.bytes = gang.step.gradient_bytes / sender.pods;
      for (const HostShare& host : gang.hosts) {
        sender.local = std::max(
            sender.local, (host.pods - 1) * sender.bytes / topology.host.local_bytes_per_second);
      }
      sender.latency = alone.latency(judge(topology, gang.hosts).domain);
      sender.step = gang.step.step_seconds;
      sender.duty = std::min(1.0, gang.step.exchange_seconds / sender.step);
      if (sender.step == 0) {
        sender.duty = 0.5;
        sender.step = 4 * (sender.latency + exchange(sender, {}));
      }
      senders_.push_back(sender);
    }
  }

  Costs of(int common, const std::vector<HostShare>& hosts) const {
    Sender ours;
    for (const HostShare& host : hosts) ours.pods += host.pods;
    ours.flows = flows_by_hand(topology_, hosts);
    ours.bytes = alone_.work().gradient_bytes / ours.pods;
    Costs costs;
    costs.exchange_seconds = seconds_by_hand(topology_, alone_, common, hosts);
    if (!ours.flows.empty()) {
      const double load = exchange(ours, senders_);
      costs.exchange_seconds =
          std::max(costs.exchange_seconds, 2 * (alone_.latency(common) + load));
    }
    ours.step = alone_.work().compute_seconds + costs.exchange_seconds;
    ours.duty = costs.exchange_seconds / ours.step;
    std::vector<Sender> all = senders_;
    all.push_back(ours);
    for (const Sender& sender : senders_) {
      const double before = sender.latency + exchange(sender, senders_);
      const double after = sender.latency + exchange(sender, all);
      costs.others += sender.pods * sender.duty * (after / before - 1);
    }
    costs.all = ours.step * (1 + costs.others / ours.pods);
    return costs;
  }

 private:
  struct Sender {
    std::map<int, double> flows;
    int number = -1;
    int pods = 0;
    double bytes = 0, local = 0, latency = 0, step = 0, duty = 0;
  };

  double capacity(int link) const {
    const bool is_domain = link < static_cast<int>(topology_.domains.size());
    return is_domain ? alone_.uplink(link) : topology_.host.bytes_per_second;
  }

  /// Beside the others of `all`: the slowest link by what they leave, or by flows.
  double exchange(const Sender& one, const std::vector<Sender>& all) const {
    double slowest = one.local;
    for (const auto& [link, flows] : one.flows) {
      double used = 0, others = 0;
      for (const Sender& other : all) {
        const auto there = other.flows.find(link);
        if (other.number == one.number || there == other.flows.end()) continue;
        used += std::min(capacity(link), 2 * other.bytes * there->second / other.step);
        others += other.duty * there->second;
      }
      const double by_flows = one.bytes * (flows + others) / capacity(link);
      const double left = capacity(link) - used;
      slowest =
          std::max(slowest, left > 0 ? std::min(by_flows, one.bytes * flows / left) : by_flows);
    }
    return slowest;
  }

  const Topology& topology_;
  const StepModel& alone_;
  std::vector<SendingGang> others_;
  std::vector<Sender> senders_;
};

/// Every placement there is within the levels, and the best of them.
class EveryPlacement {
 public:
  /// By the lowest domain that holds all.
  using Cost = std::function<double(int common, const std::vector<HostShare>& hosts)>;
  EveryPlacement(const Topology& topology, const Room& room, int level, Cost cost)
      : topology_(topology), room_(room), level_(level), cost_(std::move(cost)) {}

  void run(int pods) { deal(0, pods); }
  bool any() const { return any_; }
  Rank rank() const { return rank_; }
  double seconds() const { return seconds_; }

  /// How many there are, to keep out of those with too many.
  static double count(const Room& room, int pods) {
    std::vector<double> ways(static_cast<std::size_t>(pods) + 1, 0);
    ways[0] = 1;
    for (const int fit : room.on_node) {
      for (std::size_t left = ways.size(); left-- > 0;) {
        for (std::size_t here = 1; here <= std::min<std::size_t>(left, as_index(fit)); ++here) {
          ways[left] += ways[left - here];
        }
      }
    }
    return ways.back();
  }

 private:
  void deal(std::size_t node, int left) {
    if (left == 0) return look();
    if (node == room_.on_node.size()) return;
    deal(node + 1, left);
    for (int here = 1; here <= std::min(left, room_.on_node[node]); ++here) {
      hosts_.push_back({static_cast<int>(node), here});
      deal(node + 1, left - here);
      hosts_.pop_back();
    }
  }

  void look() {
    const Judged judged = judge(topology_, hosts_);
    if (level_ >= 0) {
      int at = judged.domain;
      while (at >= 0 && topology_.domains[as_index(at)].level != level_) {
        at = topology_.domains[as_index(at)].parent;
      }
      if (at < 0) return;
    }
    if (any_ && judged.rank > rank_) return;
    const double seconds = cost_(judged.domain, hosts_);
    if (any_ && judged.rank == rank_ && seconds >= seconds_) return;
    any_ = true;
    rank_ = judged.rank;
    seconds_ = seconds;
  }

  const Topology& topology_;
  const Room& room_;
  int level_;
  Cost cost_;
  std::vector<HostShare> hosts_;
  bool any_ = false;
  Rank rank_;
  double seconds_ = 0;
};

void check_holds(const Topology& topology, const Room& room, const PlacementWish& wish,
                 const Placement& placement) {
  int pods = 0, last = -1;
  for (const HostShare& host : placement.hosts) {
    CHECK(host.node > last);
    last = host.node;
    CHECK(host.pods > 0);
    CHECK(host.pods <= room.on_node[as_index(host.node)]);
    pods += host.pods;
  }
  CHECK(pods == wish.pods);
  CHECK(placement.node_of_slot(topology).size() == as_index(wish.pods));
  if (wish.required.empty()) return;
  const std::vector<int> levels = topology.levels_named(wish.required);
  int domain = judge(topology, placement.hosts).domain;
  while (domain >= 0 && topology.domains[as_index(domain)].level != levels[0]) {
    domain = topology.domains[as_index(domain)].parent;
  }
  CHECK(domain >= 0);
}

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

}  // namespace

TEST_CASE("held against every placement there is: the fewest leaf domains, and the shortest step") {
  Rng rng(test::seed());
  std::vector<double> gaps;
  int refused = 0;
  for (int round = 0; round < 130; ++round) {
    for (std::size_t kind = 0; kind < kShapesOfNetwork; ++kind) {
      for (const double occupancy : {0.5, 0.7, 0.85}) {
        const Topology topology = small_network(kind, rng);
        REQUIRE(topology.nodes.size() <= 14);
        const int gpus = 1 << rng.below(3);
        const Room room = occupied(topology, occupancy, gpus, rng);
        PlacementWish wish;
        wish.work.gradient_bytes = rng.below(2) == 0 ? 1e9 : 1e5;
        const int most = rng.below(5) == 0 ? 14 : std::min(14, room.in_domain[0]);
        wish.pods = 2 + static_cast<int>(rng.below(as_index(std::max(1, most - 1))));
        const int level = static_cast<int>(rng.below(topology.levels.size() + 1)) - 1;
        if (level >= 0) wish.required = topology.levels[as_index(level)].name;
        while (wish.pods > 2 && EveryPlacement::count(room, wish.pods) > 20'000) --wish.pods;
        const StepModel model(topology, wish.work);
        EveryPlacement every(topology, room, level,
                             [&](int common, const std::vector<HostShare>& hosts) {
                               return seconds_by_hand(topology, model, common, hosts);
                             });
        every.run(wish.pods);
        const auto verdict = place_gang(topology, room, wish);
        REQUIRE(verdict.placement.has_value() == every.any());
        if (!verdict.placement) {
          ++refused;
          CHECK_FALSE(verdict.why_not.empty());
          continue;
        }
        const Placement& placement = *verdict.placement;
        check_holds(topology, room, wish, placement);
        const Judged judged = judge(topology, placement.hosts);
        CHECK(judged.rank == every.rank());
        CHECK(judged.domain == placement.domain);
        CHECK(placement.leaves == std::get<2>(judged.rank));
        CHECK(placement.branches == std::get<1>(judged.rank));
        const double seconds = seconds_by_hand(topology, model, judged.domain, placement.hosts);
        CHECK(placement.time.exchange_seconds == doctest::Approx(seconds).epsilon(1e-9));
        CHECK(seconds >= every.seconds() * (1 - 1e-9));
        gaps.push_back(seconds / every.seconds() - 1);
      }
    }
  }
  const auto late = std::count_if(gaps.begin(), gaps.end(), [](double gap) { return gap > 1e-6; });
  MESSAGE("placements ", gaps.size(), ", refused ", refused, ", not the shortest ", late,
          ", gap p50 ", quantile(gaps, 0.5), ", p95 ", quantile(gaps, 0.95), ", max ",
          quantile(gaps, 1));
  CHECK(gaps.size() >= 1000);
  CHECK(refused > 50);
  CHECK(quantile(gaps, 0.95) <= 0.01);
}

namespace {

/// Gangs that run there already, some of which have told nothing of their steps.
std::vector<SendingGang> running_on(const Topology& topology, Rng& rng) {
  std::vector<SendingGang> gangs;
  for (std::size_t i = 1 + rng.below(4); i > 0; --i) {
    SendingGang gang{{"ns", "g" + std::to_string(i)}, {}, {}};
    for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
      if (rng.below(3) == 0) {
        gang.hosts.push_back({static_cast<int>(node), 1 + static_cast<int>(rng.below(4))});
      }
    }
    gang.step.gradient_bytes = rng.below(2) == 0 ? 1e9 : 4e9;
    if (rng.below(4) > 0) {
      gang.step.step_seconds = 0.05 + rng.unit();
      gang.step.exchange_seconds = gang.step.step_seconds * rng.unit();
    }
    if (!gang.hosts.empty()) gangs.push_back(std::move(gang));
  }
  return gangs;
}

}  // namespace

TEST_CASE("beside other gangs, held against every placement there is: what it costs all of them") {
  Rng rng(test::seed() + 3);
  std::vector<double> gaps, unheeded;
  int moved = 0, slows_others = 0;
  for (int round = 0; round < 130; ++round) {
    for (std::size_t kind = 0; kind < kShapesOfNetwork; ++kind) {
      for (const double occupancy : {0.5, 0.7, 0.85}) {
        const Topology topology = small_network(kind, rng);
        const Room room = occupied(topology, occupancy, 1 << rng.below(3), rng);
        PlacementWish wish;
        wish.work.gradient_bytes = rng.below(2) == 0 ? 1e9 : 1e5;
        wish.work.compute_seconds = rng.below(2) == 0 ? 0.1 : 0;
        wish.pods = 2 + static_cast<int>(
                            rng.below(as_index(std::max(1, std::min(14, room.in_domain[0]) - 1))));
        const int level = static_cast<int>(rng.below(topology.levels.size() + 1)) - 1;
        if (level >= 0) wish.required = topology.levels[as_index(level)].name;
        while (wish.pods > 2 && EveryPlacement::count(room, wish.pods) > 5'000) --wish.pods;
        std::vector<SendingGang> others = running_on(topology, rng);
        const StepModel alone(topology, wish.work);
        const CostByHand cost(topology, alone, others);
        EveryPlacement every(topology, room, level,
                             [&](int common, const std::vector<HostShare>& hosts) {
                               return cost.of(common, hosts).all;
                             });
        every.run(wish.pods);
        const Traffic traffic(topology, others);
        const auto verdict = place_gang(topology, room, wish, &traffic);
        REQUIRE(verdict.placement.has_value() == every.any());
        if (!verdict.placement) continue;
        const Placement& placement = *verdict.placement;
        check_holds(topology, room, wish, placement);
        const Judged judged = judge(topology, placement.hosts);
        CHECK(judged.rank == every.rank());
        const auto costs = cost.of(judged.domain, placement.hosts);
        CHECK(placement.time.exchange_seconds ==
              doctest::Approx(costs.exchange_seconds).epsilon(1e-9));
        CHECK(placement.slowdown.workers == doctest::Approx(costs.others).epsilon(1e-6));
        CHECK(costs.all >= every.seconds() * (1 - 1e-9));
        gaps.push_back(costs.all / every.seconds() - 1);
        slows_others += costs.others > 0 ? 1 : 0;
        const auto blind = place_gang(topology, room, wish);
        const Judged blindly = judge(topology, blind.placement->hosts);
        CHECK(blindly.rank == judged.rank);
        const double blind_cost = cost.of(blindly.domain, blind.placement->hosts).all;
        CHECK(blind_cost >= costs.all * (1 - 1e-9));
        unheeded.push_back(blind_cost / every.seconds() - 1);
        moved += placement.avoided_link >= 0 ? 1 : 0;
        CHECK((placement.avoided_link >= 0) == (placement.hosts != blind.placement->hosts));
        std::reverse(others.begin(), others.end());
        const Traffic turned(topology, others);
        CHECK(place_gang(topology, room, wish, &turned).placement->why == placement.why);
      }
    }
  }
  const auto late = std::count_if(gaps.begin(), gaps.end(), [](double gap) { return gap > 1e-6; });
  MESSAGE("placements ", gaps.size(), ", elsewhere for others ", moved, ", others slowed ",
          slows_others, ", not the best ", late, ", gap p50 ", quantile(gaps, 0.5), ", p95 ",
          quantile(gaps, 0.95), ", max ", quantile(gaps, 1), "; without heed p50 ",
          quantile(unheeded, 0.5), ", p95 ", quantile(unheeded, 0.95));
  CHECK(gaps.size() >= 1000);
  CHECK(moved > 100);
  CHECK(slows_others > 100);
  CHECK(quantile(gaps, 0.95) <= 0.01);
}

TEST_CASE(
    "over random clusters: all or nothing, within capacity, the same for any order of nodes") {
  Rng rng(test::seed() + 1);
  int placed = 0;
  for (int round = 0; round < 300; ++round) {
    TopologyInput input = tree_of({"zone", "block", "rack"});
    input.levels[0].is_area = true;
    input.levels[2].oversubscription = 1 + static_cast<double>(rng.below(6));
    for (std::size_t i = rng.below(60); i > 0; --i) {
      std::vector<std::string> path;
      for (const std::uint64_t most : {2U, 4U, 5U}) {
        if (rng.below(20) == 0) break;
        path.push_back("x" + std::to_string(rng.below(most)));
      }
      add_hosts(input, path, 1);
    }
    std::map<std::string, int> fit;
    for (const NodePath& node : input.nodes) fit[node.node] = static_cast<int>(rng.below(9));
    const auto room = [&](const Topology& topology) {
      std::vector<int> on_node;
      for (const std::string& node : topology.nodes) on_node.push_back(fit.at(node));
      return room_of(topology, on_node);
    };
    PlacementWish wish;
    wish.pods = 1 + static_cast<int>(rng.below(80));
    wish.tries = 1 + static_cast<int>(rng.below(300));
    const std::string level = input.levels[rng.below(3)].name;
    if (rng.below(3) == 0) wish.required = level;
    if (wish.required.empty() && rng.below(2) == 0) wish.preferred = level;
    const Topology topology = built(input);
    const auto verdict = place_gang(topology, room(topology), wish);
    CHECK(verdict.placement.has_value() == verdict.why_not.empty());
    if (verdict.placement) {
      ++placed;
      check_holds(topology, room(topology), wish, *verdict.placement);
    } else if (wish.required.empty()) {
      CHECK(room(topology).in_domain[0] < wish.pods);
    }
    for (std::size_t i = input.nodes.size(); i > 1; --i) {
      std::swap(input.nodes[i - 1], input.nodes[rng.below(i)]);
    }
    const Topology turned = built(input);
    const auto again = place_gang(turned, room(turned), wish);
    CHECK(again.why_not == verdict.why_not);
    REQUIRE(again.placement.has_value() == verdict.placement.has_value());
    if (again.placement) {
      CHECK(again.placement->hosts == verdict.placement->hosts);
      CHECK(again.placement->why == verdict.placement->why);
    }
  }
  CHECK(placed > 100);
}

TEST_CASE("over many leaves: as few as any choice of branches would take") {
  Rng rng(test::seed() + 2);
  int spanning = 0;
  for (int round = 0; round < 200; ++round) {
    TopologyInput input = tree_of({"block", "rack"});
    const std::size_t blocks = 2 + rng.below(7);
    std::vector<std::vector<int>> rooms(blocks);
    for (std::size_t block = 0; block < blocks; ++block) {
      for (std::size_t rack = 1 + rng.below(12); rack > 0; --rack) {
        rooms[block].push_back(static_cast<int>(rng.below(17)));
        add_hosts(input,
                  {"b" + std::to_string(block), "r" + std::to_string(100 + rooms[block].size())},
                  1);
      }
    }
    const Topology topology = built(std::move(input));
    std::vector<int> on_node;
    for (const auto& block : rooms) on_node.insert(on_node.end(), block.begin(), block.end());
    PlacementWish wish;
    wish.pods = 1 + static_cast<int>(rng.below(200));
    const auto verdict = place_gang(topology, room_of(topology, on_node), wish);
    // Every set of blocks: the smallest that holds all, and of these the fewest racks.
    int fewest_blocks = 1000, fewest_racks = 1000;
    for (std::size_t set = 1; set < (std::size_t{1} << blocks); ++set) {
      std::vector<int> racks;
      int count = 0;
      for (std::size_t block = 0; block < blocks; ++block) {
        if ((set >> block & 1) == 0) continue;
        racks.insert(racks.end(), rooms[block].begin(), rooms[block].end());
        ++count;
      }
      std::sort(racks.begin(), racks.end(), std::greater<>());
      int held = 0, used = 0;
      while (held < wish.pods && used < static_cast<int>(racks.size())) {
        held += racks[static_cast<std::size_t>(used++)];
      }
      if (held < wish.pods) continue;
      if (std::pair(count, used) < std::pair(fewest_blocks, fewest_racks)) {
        fewest_blocks = count;
        fewest_racks = used;
      }
    }
    CHECK(verdict.placement.has_value() == (fewest_blocks < 1000));
    if (!verdict.placement) continue;
    const auto [height, branches, leaves] = judge(topology, verdict.placement->hosts).rank;
    CHECK(leaves == fewest_racks);
    if (fewest_blocks == 1) continue;
    ++spanning;
    CHECK(height == 2);
    CHECK(branches == fewest_blocks);
  }
  CHECK(spanning > 50);
}
