// Where the slots of a split model go: by hand on two racks, and beside every order there is.
#include "operator/core/mesh_order.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "common/rng.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

/// Racks with so many hosts each; an uplink carries what one card does.
Topology racks(const std::vector<int>& hosts) {
  TopologyInput input = tree_of({"rack"});
  input.host.bytes_per_second = 1e6;
  const int most = *std::max_element(hosts.begin(), hosts.end());
  input.levels[0].oversubscription = most;
  for (std::size_t rack = 0; rack < hosts.size(); ++rack) {
    add_hosts(input, {"r" + std::to_string(rack)}, hosts[rack]);
  }
  return built(std::move(input));
}

std::vector<int> one_each(const Topology& topology) {
  std::vector<int> nodes(topology.nodes.size());
  std::iota(nodes.begin(), nodes.end(), 0);
  return nodes;
}

}  // namespace

TEST_CASE("the workers that send more to each other are beside each other") {
  const Topology topology = racks({2, 2});
  const StepModel model(topology, {});
  std::vector<int> nodes = one_each(topology);
  MeshWork work{2, 1, 8e6, 2e3};
  SUBCASE("large gradients: the two with a stage") {
    CHECK(order_mesh(model, work, nodes) == MeshOrder::kStagesTogether);
    CHECK(nodes == std::vector<int>{0, 2, 1, 3});
    // A card sends half of its stage's 4 MB twice; both copies hand on through a rack's uplink.
    CHECK(mesh_seconds(model, work, nodes) == doctest::Approx(4.0 + 2e3 / 1e6));
  }
  SUBCASE("large activations: the two with a copy") {
    work.gradient_bytes = 1e3;
    work.activation_bytes = 16e6;
    CHECK(order_mesh(model, work, nodes) == MeshOrder::kCopiesTogether);
    CHECK(nodes == one_each(topology));
    // Through an uplink half of each stage's 500 bytes go out twice; a card hands on half a batch.
    CHECK(mesh_seconds(model, work, nodes) == doctest::Approx(1e3 / 1e6 + 8.0));
  }
  SUBCASE("as much of both: copies") {
    work.gradient_bytes = work.activation_bytes = 0;
    CHECK(order_mesh(model, work, nodes) == MeshOrder::kCopiesTogether);
  }
}

TEST_CASE("processes of one worker need no link, and a ring has one more") {
  const Topology topology = racks({2, 2});
  const StepModel model(topology, {});
  std::vector<int> nodes = one_each(topology);
  CHECK(mesh_seconds(model, {2, 2, 0, 4e6}, nodes) == 0);
  CHECK(mesh_seconds(model, {4, 2, 0, 2e6}, nodes) == 1);
  CHECK(mesh_seconds(model, {4, 2, 0, 2e6, true}, nodes) == 2);
  CHECK(order_mesh(model, {4, 4, 1e6, 1e6}, nodes) == MeshOrder::kCopiesTogether);
  CHECK(nodes == one_each(topology));
}

TEST_CASE("workers with a part of a copy go with those who have the same part") {
  const Topology topology = racks({2, 2});
  const StepModel model(topology, {});
  std::vector<int> nodes = one_each(topology);
  CHECK(order_mesh(model, {4, 2, 8e6, 1}, nodes) == MeshOrder::kStagesTogether);
  CHECK(nodes == std::vector<int>{0, 2, 1, 3});
}

TEST_CASE("a worker with a stage of several copies sends its gradient once") {
  // Three copies of four stages in two workers: of each stage one worker has two and one has one.
  const Topology topology = racks({1, 1});
  const StepModel model(topology, {});
  // Of each stage's 3 MB a third goes out for each copy elsewhere, and a third for each own one.
  CHECK(mesh_seconds(model, {4, 6, 12e6, 0}, one_each(topology)) == doctest::Approx(12.0));
}

TEST_CASE("hardly any order of all is better") {
  struct Case {
    std::vector<int> hosts;
    int stages;
  };
  Rng rng(7);
  for (const auto& [hosts, stages] : std::vector<Case>{{{2, 2}, 2},
                                                       {{3, 3}, 2},
                                                       {{3, 3}, 3},
                                                       {{4, 2}, 2},
                                                       {{4, 2}, 3},
                                                       {{4, 4}, 2},
                                                       {{4, 4}, 4},
                                                       {{5, 3}, 2},
                                                       {{2, 2, 2}, 2},
                                                       {{2, 2, 2}, 3},
                                                       {{3, 3, 2}, 4}}) {
    CAPTURE(hosts);
    CAPTURE(stages);
    const Topology topology = racks(hosts);
    const StepModel model(topology, {});
    for (int i = 0; i < 3; ++i) {
      const MeshWork work{stages, 1, 1e6 * rng.unit(), 2e6 * rng.unit(), i == 0};
      std::vector<int> chosen = one_each(topology), order = chosen;
      order_mesh(model, work, chosen);
      double least = mesh_seconds(model, work, order);
      while (std::next_permutation(order.begin(), order.end())) {
        least = std::min(least, mesh_seconds(model, work, order));
      }
      const double ratio = mesh_seconds(model, work, chosen) / least;
      CHECK(ratio < 1.05);
    }
  }
}
