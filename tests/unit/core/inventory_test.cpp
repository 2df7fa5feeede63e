#include "operator/core/inventory.h"

#include <doctest/doctest.h>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

struct Stock {
  std::vector<api::Node> nodes;
  Topology topology;

  Inventory inventory() const {
    std::vector<const api::Node*> pointers;
    for (const auto& node : nodes) pointers.push_back(&node);
    return Inventory(std::make_shared<const Topology>(topology), pointers);
  }
};

/// Two racks of as many hosts: 8 processors, 32 bytes, 4 GPUs each.
Stock two_racks(int hosts) {
  Stock stock;
  TopologyInput input = tree_of({"rack"});
  add_hosts(input, {"r1"}, hosts);
  add_hosts(input, {"r2"}, hosts);
  for (const NodePath& path : input.nodes) {
    api::Node& node = stock.nodes.emplace_back();
    node.meta.name = path.node;
    node.meta.labels = {{"example.com/rack", path.steps[0].value}, {"disk", "ssd"}};
    node.ready = true;
    node.allocatable = {{"cpu", 8000}, {"memory", 32}, {"nvidia.com/gpu", 4}};
  }
  stock.topology = built(std::move(input));
  return stock;
}

Stock four_hosts() { return two_racks(2); }

PodShape asks(ResourceAmounts requests) {
  PodShape shape;
  shape.requests = std::move(requests);
  shape.requests["pods"] = 1;
  return shape;
}

using Counts = std::vector<int>;

}  // namespace

TEST_CASE("the scarcest resource says how many pods fit") {
  const Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  CHECK(inventory.room(asks({{"cpu", 1000}, {"memory", 10}})).on_node == Counts{3, 3, 3, 3});
  CHECK(inventory.room(asks({{"cpu", 1000}, {"nvidia.com/gpu", 2}})).in_domain == Counts{8, 4, 4});
  CHECK(inventory.room(asks({{"amd.com/gpu", 1}})).in_domain[0] == 0);
  // A node that does not say how many pods it takes, takes any number; we count up to a bound.
  CHECK(inventory.room(asks({})).on_node[0] == kMaxPodsCounted);
  CHECK(inventory.room(asks({{"memory", 33}})).in_domain[0] == 0);
}

TEST_CASE("large amounts are divided exactly") {
  Stock stock = four_hosts();
  const std::int64_t amount = (std::int64_t{1} << 40) + 1;
  for (std::int64_t off = -1; off <= 1; ++off) {
    stock.nodes[0].allocatable["memory"] = amount * 1000 + off;
    stock.nodes[1].allocatable["memory"] = (std::int64_t{1} << 62) + off;
    Inventory inventory = stock.inventory();
    CHECK(inventory.room(asks({{"memory", amount}})).on_node[0] == (off < 0 ? 999 : 1000));
    CHECK(inventory.room(asks({{"memory", std::int64_t{1} << 61}})).on_node[1] ==
          (off < 0 ? 1 : 2));
  }
}

TEST_CASE("amounts that are just enough, and those that just are not") {
  Stock stock = four_hosts();
  for (std::int64_t amount = 1; amount < 400; ++amount) {
    const std::int64_t times = 1 + amount * 37 % 4000;
    for (std::size_t i = 0; i < 3; ++i) {
      stock.nodes[i].allocatable["memory"] = amount * times + static_cast<std::int64_t>(i) - 1;
    }
    const Room room = stock.inventory().count(asks({{"memory", amount}}));
    const int many = static_cast<int>(times);
    CHECK(room.on_node[0] == many - 1);
    CHECK(room.on_node[1] == many);
    CHECK(room.on_node[2] == (amount == 1 ? many + 1 : many));
  }
}

TEST_CASE("pods take and give back, in their domains too") {
  const Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  const PodShape shape = asks({{"nvidia.com/gpu", 1}});
  CHECK(inventory.room(shape).in_domain == Counts{16, 8, 8});
  inventory.take(0, {{"nvidia.com/gpu", 3}, {"pods", 1}});
  CHECK(inventory.room(shape).in_domain == Counts{13, 5, 8});
  inventory.take(0, {{"nvidia.com/gpu", 3}, {"foreign", 7}});  // more than there is
  CHECK(inventory.room(shape).in_domain == Counts{12, 4, 8});
  CHECK(inventory.free_on(0).at("nvidia.com/gpu") == 0);
  inventory.give_back(0, {{"nvidia.com/gpu", 3}});
  CHECK(inventory.room(shape).in_domain == Counts{13, 5, 8});
}

TEST_CASE("nodes that a pod may not stand on do not count, and are told apart") {
  Stock stock = four_hosts();
  stock.nodes[0].ready = false;
  stock.nodes[1].unschedulable = true;
  stock.nodes[2].taints = {{"team", "a", "NoSchedule"}, {"soft", "", "PreferNoSchedule"}};
  Inventory inventory = stock.inventory();
  PodShape shape = asks({{"nvidia.com/gpu", 4}});
  CHECK(inventory.room(shape).on_node == Counts{0, 0, 0, 1});
  CHECK(inventory.room(shape).refused == std::array<int, kNodeRefusals>{1, 1, 1, 1, 0, 0, 0});
  shape.tolerations = {{"team", "Equal", "a", ""}};
  CHECK(inventory.room(shape).on_node == Counts{0, 0, 1, 1});
  shape.tolerations = {{"", "Exists", "", ""}};
  CHECK(inventory.room(shape).on_node == Counts{0, 1, 1, 1});
  shape.node_selector = {{"disk", "ssd"}, {"example.com/rack", "r1"}};
  CHECK(inventory.room(shape).on_node == Counts{0, 1, 0, 0});
  shape.node_selector = {{"disk", "tape"}};
  CHECK(inventory.room(shape).in_domain[0] == 0);
  shape.node_selector = {};
  shape.only_nodes = std::set<std::string>{"n00001", "n00003"};
  shape.avoid_nodes = {"n00003"};
  CHECK(inventory.room(shape).on_node == Counts{0, 1, 0, 0});
  CHECK(inventory.room(shape).refused == std::array<int, kNodeRefusals>{1, 1, 0, 0, 0, 1, 1});
}

TEST_CASE("where all nodes are of one kind they are all refused, or none") {
  Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  PodShape shape = asks({{"nvidia.com/gpu", 2}});
  CHECK(inventory.room(shape).in_domain == Counts{8, 4, 4});
  CHECK(inventory.room(shape).refused[0] == 4);
  CHECK(inventory.room(shape).refusal == std::vector<NodeRefusal>(4, NodeRefusal::kNone));
  shape.node_selector = {{"disk", "tape"}};
  CHECK(inventory.room(shape).in_domain == Counts{0, 0, 0});
  CHECK(inventory.room(shape).on_node == Counts{0, 0, 0, 0});
  CHECK(inventory.room(shape).refused == std::array<int, kNodeRefusals>{0, 0, 0, 0, 4});
  CHECK(inventory.room(shape).refusal == std::vector<NodeRefusal>(4, NodeRefusal::kSelector));
  // Of two kinds that it may stand on both.
  shape.node_selector.clear();
  stock.nodes[1].meta.labels["disk"] = "tape";
  REQUIRE(inventory.update(stock.nodes[1]) == Inventory::Update::kDone);
  CHECK(inventory.count(shape).in_domain == Counts{8, 4, 4});
  shape.node_selector = {{"disk", "ssd"}};
  CHECK(inventory.room(shape).in_domain == Counts{6, 2, 4});
}

TEST_CASE("nodes that are left out by number count as those left out by name") {
  const Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  PodShape shape = asks({{"nvidia.com/gpu", 1}});
  CHECK(inventory.room(shape).on_node == Counts{4, 4, 4, 4});
  shape.closed_nodes = {false, true, true, false};
  CHECK(inventory.room(shape).on_node == Counts{4, 0, 0, 4});
  CHECK(inventory.room(shape).in_domain == Counts{8, 4, 4});
  CHECK(inventory.room(shape).refused == std::array<int, kNodeRefusals>{2, 0, 0, 0, 0, 0, 2});
  inventory.take(1, {{"nvidia.com/gpu", 1}});
  inventory.take(3, {{"nvidia.com/gpu", 1}});
  CHECK(inventory.room(shape).on_node == Counts{4, 0, 0, 3});
  // Where each node is judged by itself, too.
  shape.avoid_nodes = {"n00003"};
  CHECK(inventory.room(shape).on_node == Counts{4, 0, 0, 0});
  CHECK(inventory.room(shape).refused == std::array<int, kNodeRefusals>{1, 0, 0, 0, 0, 0, 3});
}

TEST_CASE("a node changes where it stands; one that moves asks for a new inventory") {
  Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  const PodShape shape = asks({{"nvidia.com/gpu", 1}});
  inventory.take(0, {{"nvidia.com/gpu", 1}});
  CHECK(inventory.room(shape).in_domain == Counts{15, 7, 8});
  stock.nodes[0].allocatable["nvidia.com/gpu"] = 2;  // two GPUs broke
  CHECK(inventory.update(stock.nodes[0]) == Inventory::Update::kDone);
  CHECK(inventory.room(shape).in_domain == Counts{13, 5, 8});
  stock.nodes[0].ready = false;
  CHECK(inventory.update(stock.nodes[0]) == Inventory::Update::kDone);
  CHECK(inventory.room(shape).in_domain == Counts{12, 4, 8});
  CHECK(inventory.room(shape) == inventory.count(shape));
  stock.nodes[0].meta.labels["example.com/rack"] = "r2";
  CHECK(inventory.update(stock.nodes[0]) == Inventory::Update::kRefused);
  stock.nodes[0].meta.labels.erase("example.com/rack");
  CHECK(inventory.update(stock.nodes[0]) == Inventory::Update::kRefused);
  stock.nodes[0].meta.name = "stranger";
  CHECK(inventory.update(stock.nodes[0]) == Inventory::Update::kRefused);
  CHECK(inventory.room(shape).in_domain == Counts{12, 4, 8});
}

TEST_CASE("a label of which every node has a value of its own selects all the same") {
  Stock stock;
  TopologyInput input = tree_of({"rack"});
  add_hosts(input, {"r1"}, 100);
  for (const NodePath& path : input.nodes) {
    api::Node& node = stock.nodes.emplace_back();
    node.meta.name = path.node;
    node.meta.labels = {{"example.com/rack", "r1"}, {"serial", "s-" + path.node}};
    node.ready = true;
    node.allocatable = {{"cpu", 1000}};
  }
  stock.topology = built(std::move(input));
  Inventory inventory = stock.inventory();
  PodShape shape = asks({{"cpu", 1000}});
  shape.node_selector = {{"serial", "s-n00042"}};
  CHECK(inventory.room(shape).in_domain[0] == 1);
  CHECK(inventory.room(shape).on_node[42] == 1);
  PodShape by_expression = asks({{"cpu", 1000}});
  by_expression.node_terms = {
      {{{"example.com/rack", "In", {"r1"}}, {"serial", "In", {"s-n00042", "s-n00043"}}}, {}}};
  CHECK(inventory.room(by_expression).in_domain[0] == 2);
  stock.nodes[42].meta.labels["serial"] = "other";
  CHECK(inventory.update(stock.nodes[42]) == Inventory::Update::kDone);
  CHECK(inventory.room(shape).in_domain[0] == 0);
  CHECK(inventory.room(by_expression).in_domain[0] == 1);
}

TEST_CASE("labels that change without end ask for a new inventory in the end") {
  Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  int updates = 0;
  while (updates < 100'000) {
    stock.nodes[0].meta.labels["clock"] = std::to_string(updates);
    if (inventory.update(stock.nodes[0]) != Inventory::Update::kDone) break;
    ++updates;
  }
  CHECK(updates > 1000);
  CHECK(updates < 2000);
}

TEST_CASE("what is tried is undone, on all nodes and for all shapes") {
  const Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  const PodShape shape = asks({{"nvidia.com/gpu", 1}});
  inventory.take(1, {{"nvidia.com/gpu", 1}});
  CHECK(inventory.room(shape).on_node == Counts{4, 3, 4, 4});
  {
    const Inventory::Trial trial(inventory);
    inventory.take(0, {{"nvidia.com/gpu", 1}}, 4);
    inventory.give_back(1, {{"nvidia.com/gpu", 1}});
    CHECK(inventory.room(shape).on_node == Counts{0, 4, 4, 4});
    inventory.take(0, {{"nvidia.com/gpu", 1}});  // more than there is
    inventory.empty();
    CHECK(inventory.room(shape).on_node == Counts{4, 4, 4, 4});
  }
  CHECK(inventory.room(shape).on_node == Counts{4, 3, 4, 4});
  CHECK(inventory.room(shape) == inventory.count(shape));
  const Inventory::Trial again(inventory);
  inventory.take(1, {{"nvidia.com/gpu", 3}});
  CHECK(inventory.room(shape).on_node == Counts{4, 0, 4, 4});
}

TEST_CASE("emptied, all shapes hear of it") {
  const Stock stock = two_racks(20);
  Inventory inventory = stock.inventory();
  const PodShape shape = asks({{"nvidia.com/gpu", 1}});
  inventory.take(7, {{"nvidia.com/gpu", 3}});
  CHECK(inventory.room(shape).in_domain == Counts{157, 77, 80});
  inventory.empty();
  CHECK(inventory.room(shape).in_domain == Counts{160, 80, 80});
}

TEST_CASE("what a copy takes is not taken here") {
  const Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  const PodShape shape = asks({{"nvidia.com/gpu", 1}});
  inventory.take(1, {{"nvidia.com/gpu", 3}});
  Inventory copy(inventory);
  copy.take(0, {{"nvidia.com/gpu", 4}});
  inventory.take(3, {{"nvidia.com/gpu", 2}});
  CHECK(copy.room(shape).on_node == Counts{0, 1, 4, 4});
  CHECK(inventory.room(shape).on_node == Counts{4, 1, 4, 2});
}

TEST_CASE("a node that says nothing new changes nothing") {
  Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  stock.nodes[1].meta.resource_version = "2";
  CHECK(inventory.update(stock.nodes[1]) == Inventory::Update::kNothing);
  stock.nodes[1].meta.labels["disk"] = "tape";
  CHECK_FALSE(inventory.has_labels_of(stock.nodes[1]));
  CHECK(inventory.update(stock.nodes[1]) == Inventory::Update::kDone);
  CHECK(inventory.has_labels_of(stock.nodes[1]));
  CHECK(inventory.update(stock.nodes[1]) == Inventory::Update::kNothing);
  // What pods took of it until now nobody has counted.
  stock.nodes[1].allocatable["example.com/new"] = 1;
  CHECK(inventory.update(stock.nodes[1]) == Inventory::Update::kRefused);
}

TEST_CASE("how many pods are free on each node, whoever may stand there") {
  Stock stock = four_hosts();
  stock.nodes[2].ready = false;
  stock.nodes[3].allocatable.erase("nvidia.com/gpu");
  Inventory inventory = stock.inventory();
  inventory.take(1, {{"nvidia.com/gpu", 7}});
  using Pods = std::vector<std::int64_t>;
  CHECK(inventory.pods_free({{"nvidia.com/gpu", 2}, {"pods", 1}}, 9) == Pods{2, 0, 2, 0});
  CHECK(inventory.pods_free({{"pods", 1}, {"cpu", 0}}, 9) == Pods{9, 9, 9, 9});
  CHECK(inventory.pods_free({{"amd.com/gpu", 1}}, 9) == Pods{0, 0, 0, 0});
  CHECK(inventory.free_of("nvidia.com/gpu")->at(1) == -3);
  CHECK(inventory.has(2, "nvidia.com/gpu"));
  CHECK_FALSE(inventory.has(3, "nvidia.com/gpu"));
}

TEST_CASE("two inventories differ in words") {
  Stock stock = four_hosts();
  Inventory one = stock.inventory(), other = stock.inventory();
  const PodShape shape = asks({{"cpu", 1000}});
  CHECK(one.room(shape).on_node[0] == 8);
  CHECK(one.difference_from(other).empty());
  other.take(2, {{"cpu", 1}});
  CHECK(one.difference_from(other) == "node n00002: cpu: 8000 free, and not 7999");
  one.take(2, {{"cpu", 1}});
  CHECK(one.difference_from(other).empty());
  stock.nodes[3].unschedulable = true;
  CHECK(other.update(stock.nodes[3]) == Inventory::Update::kDone);
  CHECK(one.difference_from(other) == "node n00003: who may stand on it");
}

TEST_CASE("over random events: what is kept is what would be counted") {
  Rng rng(test::seed());
  for (int round = 0; round < 40; ++round) {
    // Of many nodes those that changed are counted anew, of few all.
    const int nodes = round % 2 == 0 ? 4 : 40;
    Stock stock = two_racks(nodes / 2);
    Inventory inventory = stock.inventory();
    std::vector<PodShape> shapes;
    for (int i = 0; i < 6; ++i) {
      PodShape shape = asks({{"cpu", static_cast<std::int64_t>(1 + rng.below(3000))}});
      if (rng.below(2) == 0) shape.requests["nvidia.com/gpu"] = 1;
      if (rng.below(2) == 0) shape.tolerations = {{"team", "Exists", "", ""}};
      if (rng.below(3) == 0) shape.node_selector = {{"example.com/rack", "r2"}};
      if (rng.below(3) == 0) shape.avoid_nodes = {"n00002"};
      if (rng.below(3) == 0) {
        for (int one = 0; one < nodes; ++one) shape.closed_nodes.push_back(rng.below(2) == 0);
      }
      shapes.push_back(shape);
    }
    for (int event = 0; event < 60; ++event) {
      const auto node = rng.below(static_cast<std::uint64_t>(nodes));
      const ResourceAmounts amounts{{"cpu", static_cast<std::int64_t>(rng.below(4000))},
                                    {"nvidia.com/gpu", static_cast<std::int64_t>(rng.below(3))}};
      switch (rng.below(5)) {
        case 0:
          inventory.take(static_cast<int>(node), amounts);
          break;
        case 3: {
          const Inventory before(inventory);
          {
            const Inventory::Trial trial(inventory);
            for (std::uint64_t i = rng.below(6); i > 0; --i) {
              inventory.take(static_cast<int>(rng.below(static_cast<std::uint64_t>(nodes))),
                             amounts, 2);
              const PodShape& shape = shapes[rng.below(shapes.size())];
              CHECK(inventory.room(shape) == inventory.count(shape));
            }
          }
          CHECK(inventory.difference_from(before).empty());
          break;
        }
        case 1:
          inventory.give_back(static_cast<int>(node), amounts);
          break;
        case 2:
          stock.nodes[node].ready = rng.below(4) != 0;
          stock.nodes[node].taints.clear();
          if (rng.below(2) == 0) stock.nodes[node].taints = {{"team", "b", "NoExecute"}};
          stock.nodes[node].allocatable["cpu"] = static_cast<std::int64_t>(rng.below(9000));
          if (rng.below(3) == 0) stock.nodes[node].allocatable.erase("nvidia.com/gpu");
          if (rng.below(3) == 0) stock.nodes[node].allocatable["nvidia.com/gpu"] = 2;
          CHECK(inventory.update(stock.nodes[node]) != Inventory::Update::kRefused);
          break;
        default:
          break;
      }
      const PodShape& shape = shapes[rng.below(shapes.size())];
      CHECK(inventory.room(shape) == inventory.count(shape));
    }
    for (const PodShape& shape : shapes) CHECK(inventory.room(shape) == inventory.count(shape));
  }
}

TEST_CASE("shapes asked for long ago are forgotten, and counted again") {
  const Stock stock = four_hosts();
  Inventory inventory = stock.inventory();
  for (int i = 1; i <= 3 * static_cast<int>(kMaxShapes); ++i) {
    const PodShape shape = asks({{"cpu", i}});
    CHECK(inventory.room(shape) == inventory.count(shape));
    inventory.take(1, {{"cpu", 10}});
    CHECK(inventory.room(shape) == inventory.count(shape));
  }
  CHECK(inventory.room(asks({{"cpu", 1}})) == inventory.count(asks({{"cpu", 1}})));
}
