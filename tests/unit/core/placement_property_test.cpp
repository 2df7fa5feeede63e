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
#include "tests/unit/core/placement_instances.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

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
  CHECK(placement.nodes().size() == as_index(wish.pods));
  if (wish.required.empty()) return;
  const std::vector<int> levels = topology.levels_named(wish.required);
  int domain = judge(topology, placement.hosts).domain;
  while (domain >= 0 && topology.domains[as_index(domain)].level != levels[0]) {
    domain = topology.domains[as_index(domain)].parent;
  }
  CHECK(domain >= 0);
}

/// The best there is by rank, and then by what it takes.
struct LeastByRank {
  bool is_any = false;
  Rank rank;
  double seconds = 0;

  void take(const Rank& one, const std::function<double()>& cost) {
    if (is_any && one > rank) return;
    const double taken = cost();
    if (is_any && one == rank && taken >= seconds) return;
    is_any = true;
    rank = one;
    seconds = taken;
  }
};

std::vector<int> only(int level) {
  return level < 0 ? std::vector<int>{} : std::vector<int>{level};
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
    for (std::size_t kind = 0; kind < kNetworks.size(); ++kind) {
      for (const double occupancy : {0.5, 0.7, 0.85}) {
        const Topology topology = random_network(kind, NetworkSize::kListed, rng);
        REQUIRE(topology.nodes.size() <= 14);
        const int gpus = 1 << rng.below(3);
        const Room room = occupied_room(topology, occupancy, gpus, rng);
        PlacementWish wish;
        wish.work.gradient_bytes = rng.below(2) == 0 ? 1e9 : 1e5;
        const int most = rng.below(5) == 0 ? 14 : std::min(14, room.in_domain[0]);
        wish.pods = 2 + static_cast<int>(rng.below(as_index(std::max(1, most - 1))));
        const int level = static_cast<int>(rng.below(topology.levels.size() + 1)) - 1;
        if (level >= 0) wish.required = topology.levels[as_index(level)].name;
        EveryPlacement every(topology, room, only(level));
        while (wish.pods > 2 && every.count(wish.pods) > 10'000) --wish.pods;
        const StepModel model(topology, wish.work);
        LeastByRank least;
        every.run(wish.pods, [&](const Judged& judged, const std::vector<HostShare>& hosts) {
          least.take(judged.rank,
                     [&] { return seconds_by_hand(topology, model, judged.domain, hosts); });
        });
        const auto verdict = place_gang(topology, room, wish);
        REQUIRE(verdict.placement.has_value() == least.is_any);
        if (!verdict.placement) {
          ++refused;
          CHECK_FALSE(verdict.why_not.empty());
          continue;
        }
        const Placement& placement = *verdict.placement;
        check_holds(topology, room, wish, placement);
        const Judged judged = judge(topology, placement.hosts);
        CHECK(judged.rank == least.rank);
        CHECK(judged.domain == placement.domain);
        CHECK(placement.leaves == std::get<2>(judged.rank));
        CHECK(placement.branches == std::get<1>(judged.rank));
        const double seconds = seconds_by_hand(topology, model, judged.domain, placement.hosts);
        CHECK(placement.time.exchange_seconds == doctest::Approx(seconds).epsilon(1e-9));
        CHECK(seconds >= least.seconds * (1 - 1e-9));
        gaps.push_back(seconds / least.seconds - 1);
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
    for (std::size_t kind = 0; kind < kNetworks.size(); ++kind) {
      for (const double occupancy : {0.5, 0.7, 0.85}) {
        const Topology topology = random_network(kind, NetworkSize::kListed, rng);
        const Room room = occupied_room(topology, occupancy, 1 << rng.below(3), rng);
        PlacementWish wish;
        wish.work.gradient_bytes = rng.below(2) == 0 ? 1e9 : 1e5;
        wish.work.compute_seconds = rng.below(2) == 0 ? 0.1 : 0;
        wish.pods = 2 + static_cast<int>(
                            rng.below(as_index(std::max(1, std::min(14, room.in_domain[0]) - 1))));
        const int level = static_cast<int>(rng.below(topology.levels.size() + 1)) - 1;
        if (level >= 0) wish.required = topology.levels[as_index(level)].name;
        std::vector<SendingGang> others = running_on(topology, rng);
        EveryPlacement every(topology, room, only(level), others);
        while (wish.pods > 2 && every.count(wish.pods) > 5'000) --wish.pods;
        const StepModel alone(topology, wish.work);
        const CostByHand cost(topology, alone, others);
        LeastByRank least;
        every.run(wish.pods, [&](const Judged& judged, const std::vector<HostShare>& hosts) {
          least.take(judged.rank, [&] { return cost.of(judged.domain, hosts).all; });
        });
        const Traffic traffic(topology, others);
        const auto verdict = place_gang(topology, room, wish, &traffic);
        REQUIRE(verdict.placement.has_value() == least.is_any);
        if (!verdict.placement) continue;
        const Placement& placement = *verdict.placement;
        check_holds(topology, room, wish, placement);
        const Judged judged = judge(topology, placement.hosts);
        CHECK(judged.rank == least.rank);
        const auto costs = cost.of(judged.domain, placement.hosts);
        CHECK(placement.time.exchange_seconds ==
              doctest::Approx(costs.exchange_seconds).epsilon(1e-9));
        CHECK(placement.slowdown.workers == doctest::Approx(costs.others).epsilon(1e-6));
        CHECK(costs.all >= least.seconds * (1 - 1e-9));
        gaps.push_back(costs.all / least.seconds - 1);
        slows_others += costs.others > 0 ? 1 : 0;
        const auto blind = place_gang(topology, room, wish);
        const Judged blindly = judge(topology, blind.placement->hosts);
        CHECK(blindly.rank == judged.rank);
        const double blind_cost = cost.of(blindly.domain, blind.placement->hosts).all;
        CHECK(blind_cost >= costs.all * (1 - 1e-9));
        unheeded.push_back(blind_cost / least.seconds - 1);
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
