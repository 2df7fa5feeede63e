// Gangs of whole hosts on a network that exists, held against the fewest leaf domains there are.
// Counts alone: of time and of others' traffic nothing is said here.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "common/rng.h"
#include "operator/core/placement.h"
#include "tests/test_main.h"
#include "tests/unit/core/placement_exact.h"
#include "tests/unit/core/placement_instances.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

enum class Residents { kPacked, kScattered };

/// Of one large switch, how many leaves have 0 to 8 hosts.
using LeavesBySize = std::array<int, 9>;

/// Alibaba's Lingjun: 847 hosts below 119 leaves below three switches.
/// Source: data/topo.csv of github.com/alibaba/alibaba-lingjun-dataset-2023, counted.
constexpr std::array<LeavesBySize, 3> kLingjun = {{
    {0, 0, 0, 1, 0, 1, 3, 8, 35},
    {0, 0, 2, 0, 0, 1, 4, 7, 28},
    {0, 0, 1, 0, 2, 5, 8, 8, 5},
}};

Topology whole_lingjun() {
  TopologyInput input = tree_of({"psw", "asw"});
  for (std::size_t psw = 0; psw < kLingjun.size(); ++psw) {
    int leaves = 0;
    for (std::size_t hosts = 0; hosts < kLingjun[psw].size(); ++hosts) {
      for (int i = 0; i < kLingjun[psw][hosts]; ++i) {
        add_hosts(input, {"p" + std::to_string(psw), "a" + std::to_string(leaves++)},
                  static_cast<int>(hosts));
      }
    }
  }
  return built(std::move(input));
}

std::vector<int> children_of(const Topology& topology, int domain) {
  const Domain& parent = topology.domains[as_index(domain)];
  std::vector<int> children(as_index(parent.children));
  std::iota(children.begin(), children.end(), parent.first_child);
  return children;
}

template <typename T>
void shuffle(std::vector<T>& order, Rng& rng) {
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
}

/// Which hosts are free: so many are taken, leaf after leaf or wherever.
Room free_hosts(const Topology& topology, Residents residents, double occupancy, Rng& rng) {
  std::vector<int> order;
  if (residents == Residents::kScattered) {
    order.resize(topology.nodes.size());
    std::iota(order.begin(), order.end(), 0);
    shuffle(order, rng);
  } else {
    std::vector<Domain> leaves;
    for (const Domain& domain : topology.domains) {
      if (domain.height == 0) leaves.push_back(domain);
    }
    shuffle(leaves, rng);
    for (const Domain& leaf : leaves) {
      for (int i = 0; i < leaf.nodes; ++i) order.push_back(leaf.first_node + i);
    }
  }
  order.resize(
      static_cast<std::size_t>(std::lround(occupancy * static_cast<double>(order.size()))));
  std::vector<int> on_node(topology.nodes.size(), 1);
  for (const int taken : order) on_node[as_index(taken)] = 0;
  return room_of(topology, on_node);
}

/// Gangs of `hosts` pods, one a host, on what is free.
struct LingjunCase {
  const Topology& topology;
  const Room& room;
  int hosts = 0;

  int room_in(int domain) const { return room.in_domain[as_index(domain)]; }

  /// Below these switches: the largest first. They have room.
  int fewest_leaves(const std::vector<int>& switches) const {
    std::vector<int> free;
    for (const int psw : switches) {
      for (const int leaf : children_of(topology, psw)) free.push_back(room_in(leaf));
    }
    std::sort(free.begin(), free.end(), std::greater<>());
    std::size_t leaves = 0;
    for (int rest = hosts; rest > 0; ++leaves) rest -= free[leaves];
    return static_cast<int>(leaves);
  }

  /// As few switches as can be, and below these as few leaves: of each choice of switches.
  int least() const {
    const std::vector<int> all = children_of(topology, 0);
    auto best = std::pair(std::numeric_limits<int>::max(), 0);
    for (unsigned set = 1; set < 1U << all.size(); ++set) {
      std::vector<int> chosen;
      int free = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if ((set >> i & 1U) == 0) continue;
        chosen.push_back(all[i]);
        free += room_in(all[i]);
      }
      if (free >= hosts) best = std::min(best, {std::popcount(set), fewest_leaves(chosen)});
    }
    return best.second;
  }

  /// A model of Kueue's BestFit where a leaf is preferred, and none has room: the tightest switch
  /// that holds the rest, else the one with most room and on; below these the largest leaves.
  int by_best_fit() const {
    std::vector<int> open = children_of(topology, 0);
    std::sort(open.begin(), open.end(), [&](int a, int b) { return room_in(a) > room_in(b); });
    std::vector<int> chosen;
    for (int rest = hosts; rest > 0;) {
      auto pick = open.begin();
      for (auto it = open.begin(); it != open.end(); ++it) {
        if (room_in(*it) >= rest) pick = it;
      }
      rest -= room_in(*pick);
      chosen.push_back(*pick);
      open.erase(pick);
    }
    return fewest_leaves(chosen);
  }
};

struct LeafRatios {
  double sum = 0, worst = 0;
  int worse = 0, count = 0;

  void add(int leaves, int least) {
    const double ratio = static_cast<double>(leaves) / least;
    sum += ratio;
    worst = std::max(worst, ratio);
    worse += leaves > least ? 1 : 0;
    ++count;
  }
  std::string text() const {
    return std::to_string(worse) + " of " + std::to_string(count) + " worse, mean " +
           std::to_string(sum / count) + ", worst " + std::to_string(worst);
  }
};

}  // namespace

TEST_CASE("on Lingjun's network every gang has the fewest leaf domains there are") {
  const Topology topology = whole_lingjun();
  REQUIRE(topology.nodes.size() == 847);
  REQUIRE(topology.domains.size() == 1 + 3 + 119);
  Rng rng(test::seed() + 1080);
  LeafRatios all;
  for (const Residents residents : {Residents::kPacked, Residents::kScattered}) {
    for (const double occupancy : kOccupancies) {
      for (const int hosts : {16, 32, 64}) {
        LeafRatios ours, best_fit;
        for (int draw = 0; draw < tries(60); ++draw) {
          const Room room = free_hosts(topology, residents, occupancy, rng);
          const LingjunCase one{topology, room, hosts};
          PlacementWish wish;
          wish.pods = hosts;
          const auto placement = place_gang(topology, room, wish).placement;
          REQUIRE(placement.has_value());
          const auto [height, branches, leaves] = judge(topology, placement->hosts).rank;
          CHECK(leaves == one.least());
          CHECK(one.by_best_fit() >= one.least());
          ours.add(leaves, one.least());
          all.add(leaves, one.least());
          best_fit.add(one.by_best_fit(), one.least());
        }
        const std::string kind = residents == Residents::kPacked ? "packed " : "scattered ";
        MESSAGE(kind, occupancy, ", ", hosts, " hosts: ", ours.text(),
                "; by best fit: ", best_fit.text());
      }
    }
  }
  MESSAGE("all: ", all.text());
  CHECK(all.count == 18 * tries(60));
}
