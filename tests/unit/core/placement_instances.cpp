#include "tests/unit/core/placement_instances.h"

#include <algorithm>
#include <string>

#include "common/check.h"
#include "tests/unit/core/trees.h"

namespace muster::test {

using namespace muster::core;

namespace {

constexpr int kGpusOfHost = 8;
constexpr double kMostListed = 6'000;

int number_of(Rng& rng, std::uint64_t least, std::uint64_t most) {
  return static_cast<int>(least + rng.below(most - least + 1));
}

/// Few large switches over leaves of uneven size, as in Alibaba's Lingjun.
TopologyInput lingjun(NetworkSize size, Rng& rng) {
  const bool is_large = size == NetworkSize::kLarge;
  TopologyInput input = tree_of({"psw", "asw"});
  input.levels[0].oversubscription = 2;
  for (int psw = 0; psw < 3; ++psw) {
    for (int asw = is_large ? 4 : number_of(rng, 1, 2); asw > 0; --asw) {
      add_hosts(input, {"p" + std::to_string(psw), "a" + std::to_string(asw)},
                is_large ? number_of(rng, 2, 5) : number_of(rng, 1, 2));
    }
  }
  return input;
}

/// Oversubscribed at and above the edge.
TopologyInput fat_tree(NetworkSize size, Rng& rng) {
  const bool is_large = size == NetworkSize::kLarge;
  TopologyInput input = tree_of({"pod", "edge"});
  input.levels[0].oversubscription = number_of(rng, 1, 8);
  input.levels[1].oversubscription = number_of(rng, 1, 4);
  for (int pod = 0; pod < (is_large ? 4 : 2); ++pod) {
    for (int edge = 0; edge < (is_large ? 4 : 3); ++edge) {
      add_hosts(input, {"p" + std::to_string(pod), "e" + std::to_string(edge)}, is_large ? 4 : 2);
    }
  }
  return input;
}

/// One wide level.
TopologyInput rails(NetworkSize size, Rng& rng) {
  const bool is_large = size == NetworkSize::kLarge;
  TopologyInput input = tree_of({"rail"});
  input.levels[0].oversubscription = number_of(rng, 1, 4);
  for (int rail = 0; rail < (is_large ? 4 : 3); ++rail) {
    add_hosts(input, {"r" + std::to_string(rail)},
              is_large ? number_of(rng, 12, 16) : number_of(rng, 2, 4));
  }
  return input;
}

/// NVLink domains under a leaf, and hosts without.
TopologyInput nvlink(NetworkSize size, Rng& rng) {
  const bool is_large = size == NetworkSize::kLarge;
  TopologyInput input = tree_of({"leaf", "nvlink"});
  input.levels[1].is_fast = true;
  for (int leaf = 0; leaf < (is_large ? 3 : 2); ++leaf) {
    for (int domain = 0; domain < 2; ++domain) {
      add_hosts(input, {"l" + std::to_string(leaf), "d" + std::to_string(domain)},
                is_large ? 9 : 2);
    }
    add_hosts(input, {"l" + std::to_string(leaf)}, number_of(rng, 0, 2));
  }
  return input;
}

/// Blocks and sub-blocks in zones, and a node of which nothing is known.
TopologyInput blocks(NetworkSize size, Rng& rng) {
  const bool is_large = size == NetworkSize::kLarge;
  TopologyInput input = tree_of({"zone", "block", "subblock"});
  input.levels[0].is_area = true;
  input.levels[1].oversubscription = 3;
  for (int block = 0; block < 3; ++block) {
    for (int sub = is_large ? number_of(rng, 3, 5) : number_of(rng, 1, 3); sub > 0; --sub) {
      add_hosts(
          input,
          {"z" + std::to_string(block / 2), "b" + std::to_string(block), "s" + std::to_string(sub)},
          is_large ? number_of(rng, 3, 5) : number_of(rng, 1, 2));
    }
  }
  const std::size_t most = is_large ? 63 : kMostHostsListed - 1;
  if (input.nodes.size() > most) input.nodes.resize(most);
  add_hosts(input, {}, 1);
  return input;
}

/// GPUs taken by host: one by one, or whole hosts.
std::vector<int> taken_gpus(std::size_t hosts, double occupancy, Rng& rng) {
  const bool is_whole = rng.below(2) == 0;
  std::vector<int> taken;
  for (std::size_t host = 0; host < hosts; ++host) {
    int gpus = 0;
    if (is_whole) {
      gpus = rng.unit() < occupancy ? kGpusOfHost : 0;
    } else {
      for (int gpu = 0; gpu < kGpusOfHost; ++gpu) gpus += rng.unit() < occupancy ? 1 : 0;
    }
    taken.push_back(gpus);
  }
  return taken;
}

/// Gangs of 2 to 16 pods on what is taken, along the tree or across it; three of four have told
/// what their steps are.
std::vector<SendingGang> residents_of(const std::vector<int>& taken, int gpus, Rng& rng) {
  std::vector<std::size_t> order(taken.size());
  for (std::size_t host = 0; host < order.size(); ++host) order[host] = host;
  if (rng.below(2) == 0) {
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  }
  std::vector<SendingGang> gangs;
  int missing = 0;
  for (const std::size_t host : order) {
    for (int pods = taken[host] / gpus; pods > 0;) {
      if (missing == 0) {
        missing = number_of(rng, 2, 16);
        SendingGang& gang = gangs.emplace_back();
        gang.job = {"ns", "g" + std::to_string(gangs.size())};
        gang.step.gradient_bytes = rng.below(2) == 0 ? 1e9 : 4e9;
        if (rng.below(4) > 0) {
          gang.step.step_seconds = 0.05 + rng.unit();
          gang.step.exchange_seconds = gang.step.step_seconds * rng.unit();
        }
      }
      const int here = std::min(pods, missing);
      gangs.back().hosts.push_back({static_cast<int>(host), here});
      pods -= here;
      missing -= here;
    }
  }
  for (SendingGang& gang : gangs) {
    std::sort(gang.hosts.begin(), gang.hosts.end(),
              [](const HostShare& a, const HostShare& b) { return a.node < b.node; });
  }
  return gangs;
}

}  // namespace

Topology random_network(std::size_t kind, NetworkSize size, Rng& rng) {
  constexpr std::array kMakers = {lingjun, fat_tree, rails, nvlink, blocks};
  static_assert(kMakers.size() == kNetworks.size());
  return built(kMakers[kind](size, rng));
}

Room occupied_room(const Topology& topology, double occupancy, int gpus, Rng& rng) {
  std::vector<int> on_node;
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    int free = kGpusOfHost;
    for (int gpu = 0; gpu < kGpusOfHost; ++gpu) free -= rng.unit() < occupancy ? 1 : 0;
    on_node.push_back(free / gpus);
  }
  return room_of(topology, on_node);
}

PlacementInstance random_instance(std::size_t kind, double occupancy, NetworkSize size, Rng& rng) {
  PlacementInstance one;
  one.topology = random_network(kind, size, rng);
  const int gpus = 1 << rng.below(3);
  const std::vector<int> taken = taken_gpus(one.topology.nodes.size(), occupancy, rng);
  std::vector<int> on_node;
  for (const int there : taken) on_node.push_back((kGpusOfHost - there) / gpus);
  one.room = room_of(one.topology, on_node);
  one.others = residents_of(taken, gpus, rng);
  for (const SendingGang& gang : one.others) {
    std::int64_t pods = 0;
    for (const HostShare& host : gang.hosts) pods += host.pods;
    one.usual.push_back(pods * gpus);
  }
  PlacementWish& wish = one.wish;
  wish.pod_size = gpus;
  constexpr std::array kBytes = {1e5, 1e8, 1e9, 4e9};
  constexpr std::array kCompute = {0.0, 0.1, 0.5};
  wish.work.gradient_bytes = kBytes[rng.below(kBytes.size())];
  wish.work.compute_seconds = kCompute[rng.below(kCompute.size())];
  const int most = std::min(size == NetworkSize::kLarge ? 64 : 24, one.room.in_domain[0]);
  wish.pods = number_of(rng, 2, static_cast<std::uint64_t>(std::max(2, most)));
  const std::string level = one.topology.levels[rng.below(one.topology.levels.size())].name;
  const std::uint64_t kept = rng.below(3);
  if (kept == 1) wish.required = level;
  if (kept == 2) wish.preferred = level;
  if (size == NetworkSize::kListed) {
    const EveryPlacement every(one.topology, one.room, {}, one.others);
    while (wish.pods > 2 && every.count(wish.pods) > kMostListed) --wish.pods;
  }
  return one;
}

std::vector<int> PlacementInstance::levels() const {
  const std::vector<int> named = topology.levels_named(wish.required + wish.preferred);
  if (wish.required.empty() && wish.preferred.empty()) return {};
  if (!wish.required.empty()) return named;
  for (std::size_t domain = 0; domain < topology.domains.size(); ++domain) {
    const bool has_room = room.in_domain[domain] >= wish.pods;
    if (has_room && lies_within(topology, static_cast<int>(domain), named)) return named;
  }
  return {};
}

PlacementVerdict PlacementInstance::placed() const {
  const UsualSizes sizes(usual);
  const Traffic traffic(topology, others);
  PlacementWish with_sizes = wish;
  with_sizes.usual = &sizes;
  return place_gang(topology, room, with_sizes, &traffic);
}

InstanceGoals::InstanceGoals(const PlacementInstance& instance)
    : instance_(instance),
      model_(instance.topology, instance.wish.work),
      cost_(instance.topology, model_, instance.others) {}

Goals InstanceGoals::of(const std::vector<HostShare>& hosts) const {
  const Judged judged = judge(instance_.topology, hosts);
  const RoomByHand room = room_by_hand(instance_.topology, instance_.room, hosts, instance_.usual,
                                       instance_.wish.pod_size);
  return {judged.rank, cost_.of(judged.domain, hosts).all, static_cast<int>(hosts.size()),
          room.lost, room.left};
}

std::optional<BestOfAll> InstanceGoals::best() const {
  std::optional<BestOfAll> best;
  EveryPlacement every(instance_.topology, instance_.room, instance_.levels(), instance_.others);
  every.run(instance_.wish.pods, [&](const Judged&, const std::vector<HostShare>& hosts) {
    const Goals goals = of(hosts);
    if (!best) best = {goals, goals.cost};
    best->least_cost = std::min(best->least_cost, goals.cost);
    if (compare_goals(goals, best->goals).is_better) best->goals = goals;
  });
  return best;
}

}  // namespace muster::test
