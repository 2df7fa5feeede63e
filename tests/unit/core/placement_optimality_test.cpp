// How good the place is that a gang gets, beside others and with all goals: held against every
// placement there is. tests/bench/optimality_bench.cpp does it for more, and for larger clusters.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/test_main.h"
#include "tests/unit/core/placement_instances.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

struct CellOfGaps {
  std::vector<double> gaps;
  int all_goals = 0;

  double quantile(double part) {
    std::sort(gaps.begin(), gaps.end());
    return gaps[static_cast<std::size_t>(part * static_cast<double>(gaps.size() - 1))];
  }
};

}  // namespace

TEST_CASE("on any network, however full, 95 of 100 gangs stand as well as they can") {
  Rng rng(test::seed() + 4);
  int placed = 0, refused = 0;
  for (std::size_t kind = 0; kind < kNetworks.size(); ++kind) {
    for (const double occupancy : kOccupancies) {
      CellOfGaps cell;
      for (int round = 0; round < tries(150); ++round) {
        const PlacementInstance one = random_instance(kind, occupancy, NetworkSize::kListed, rng);
        REQUIRE(one.topology.nodes.size() <= kMostHostsListed);
        const InstanceGoals goals(one);
        const auto best = goals.best();
        const auto verdict = one.placed();
        REQUIRE(verdict.placement.has_value() == best.has_value());
        if (!best) {
          ++refused;
          continue;
        }
        ++placed;
        const Goals ours = goals.of(verdict.placement->hosts);
        const Comparison comparison = compare_goals(ours, best->goals);
        CHECK(!comparison.is_better);
        CHECK(ours.rank == best->goals.rank);
        CHECK(verdict.placement->time.step_seconds *
                  (1 + verdict.placement->slowdown.workers / one.wish.pods) ==
              doctest::Approx(ours.cost).epsilon(1e-9));
        cell.gaps.push_back(ours.cost / best->goals.cost - 1);
        cell.all_goals += comparison.first == Goal::kNone ? 1 : 0;
      }
      MESSAGE(std::string(kNetworks[kind]), ", ", occupancy, ": ", cell.gaps.size(),
              " placed, all goals best ", cell.all_goals, ", gap p50 ", cell.quantile(0.5),
              ", p95 ", cell.quantile(0.95), ", max ", cell.quantile(1));
      CHECK(cell.quantile(0.95) <= 0.01);
      CHECK(cell.all_goals >= 0.95 * static_cast<double>(cell.gaps.size()));
    }
  }
  MESSAGE(placed, " placed, ", refused, " refused");
  CHECK(placed >= tries(1000));
}
