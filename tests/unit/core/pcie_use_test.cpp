#include "operator/core/pcie_use.h"

#include <doctest/doctest.h>

#include "operator/core/placement.h"
#include "operator/core/schedule.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

/// Switches with so many GPUs each, and GPUs straight below root ports beside them.
api::PcieNode switches_of(const std::vector<int>& gpus, int alone = 0) {
  api::PcieNode pcie;
  for (const int count : gpus) {
    const int index = static_cast<int>(pcie.switches.size());
    pcie.switches.push_back({"0000:" + std::to_string(10 + index) + ":00.0", 31'507'692'307});
    for (int i = 0; i < count; ++i) pcie.gpus.push_back({"", {}, index});
  }
  for (int i = 0; i < alone; ++i) pcie.gpus.push_back({"", {}, {}});
  return pcie;
}

/// Nodes of one rack by what is known of their switches, n00000 first; each offers what it has.
struct Rack {
  explicit Rack(std::vector<std::optional<api::PcieNode>> known, int gpus_unknown = 8) {
    TopologyInput input = tree_of({"rack"});
    add_hosts(input, {"r1"}, static_cast<int>(known.size()));
    for (std::size_t i = 0; i < known.size(); ++i) {
      api::Node& node = nodes.emplace_back();
      node.meta.name = input.nodes[i].node;
      node.ready = true;
      const auto gpus = known[i] ? static_cast<std::int64_t>(known[i]->gpus.size()) : gpus_unknown;
      node.allocatable = {{"cpu", 64'000}, {"memory", 1 << 30}, {"nvidia.com/gpu", gpus}};
      node.pcie = std::move(known[i]);
    }
    topology = std::make_shared<const Topology>(built(std::move(input)));
    inventory.emplace(topology, pointers());
  }

  std::vector<const api::Node*> pointers() const {
    std::vector<const api::Node*> all;
    for (const auto& node : nodes) all.push_back(&node);
    return all;
  }
  void hold(int node, int gpus) { inventory->take(node, {{"nvidia.com/gpu", gpus}}); }
  bool must_share(int node, int pods, int gpus_each) const {
    return PcieUse(*inventory, asking(gpus_each)).must_share(node, pods);
  }
  static api::Resources asking(int gpus) { return {0, 0, gpus, "nvidia.com/gpu"}; }

  std::vector<api::Node> nodes;
  std::shared_ptr<const Topology> topology;
  std::optional<Inventory> inventory;
};

}  // namespace

TEST_CASE("pods must share a switch when no choice of GPUs keeps them apart") {
  // What is held of two switches with four GPUs each, what is asked, and whether it is shared.
  struct Case {
    int held, asked;
    bool is_shared;
  };
  for (const auto& [held, asked, is_shared] :
       {Case{0, 8, false}, Case{1, 4, false}, Case{4, 4, false}, Case{5, 1, true}, Case{1, 5, true},
        Case{3, 5, true}, Case{4, 5, false}}) {  // the last does not fit
    Rack rack({switches_of({4, 4})});
    if (held > 0) rack.hold(0, held);
    CAPTURE(held);
    CHECK(rack.must_share(0, asked, 1) == is_shared);
    if (asked % 4 == 0) CHECK(rack.must_share(0, asked / 4, 4) == is_shared);
  }
}

TEST_CASE("switches of different sizes, and GPUs without one, are counted as they are") {
  Rack uneven({switches_of({4, 2, 2})});
  uneven.hold(0, 3);
  CHECK_FALSE(uneven.must_share(0, 4, 1));  // they on two and two, we on four
  uneven.hold(0, 2);
  CHECK_FALSE(uneven.must_share(0, 2, 1));
  CHECK(uneven.must_share(0, 3, 1));
  Rack direct({switches_of({}, 8)});
  direct.hold(0, 5);
  CHECK_FALSE(direct.must_share(0, 3, 1));
  Rack mixed({switches_of({4}, 1)});
  mixed.hold(0, 1);
  CHECK_FALSE(mixed.must_share(0, 4, 1));
  mixed.hold(0, 1);
  CHECK(mixed.must_share(0, 3, 1));
}

TEST_CASE("a gang's pods must send between NUMA nodes when none of these has so many GPUs") {
  api::PcieNode sockets = switches_of({4, 4});
  for (std::size_t i = 0; i < 8; ++i) sockets.gpus[i].numa_node = static_cast<int>(i / 4);
  Rack rack({sockets, sockets, switches_of({4, 4})});
  const auto must_cross = [&](int node, int pods, int gpus_each) {
    return PcieUse(*rack.inventory, Rack::asking(gpus_each)).must_cross(node, pods);
  };
  CHECK_FALSE(must_cross(0, 4, 1));
  CHECK(must_cross(0, 5, 1));
  CHECK(must_cross(0, 2, 4));
  CHECK_FALSE(must_cross(0, 1, 8));  // alone, it sends to nobody there
  CHECK_FALSE(must_cross(2, 8, 1));  // nothing is known
  CHECK_FALSE(must_cross(0, 9, 1));  // it does not fit
  const auto nobody = [](int) { return GpusByJob(); };
  const api::Resources one = Rack::asking(1);
  const PcieUse use(*rack.inventory, one);
  CHECK(use.burden(0, 6) == 1);
  CHECK(use.why({{0, 4}, {1, 4}}, nobody).empty());
  const std::string so =
      "on n00000 no NUMA node has 6 GPUs, so workers send to each other between NUMA nodes";
  CHECK(use.why({{0, 6}}, nobody) == so);
  CHECK(use.why({{0, 6}, {1, 7}}, nobody) == so + ", as on 1 host more");
  rack.hold(1, 2);
  CHECK(use.burden(1, 6) == 3);
  CHECK(use.burden(1, 3) == 0);
  const std::string both = use.why({{1, 6}}, nobody);
  CHECK(
      both.starts_with("on n00001 others hold 2 of 8 GPUs, so one of its 2 PCIe switches is "
                       "shared; on n00001 no NUMA"));
  // GPUs with links of their own do not send over PCIe at all.
  Topology linked = *rack.topology;
  linked.host.local_bytes_per_second = 300e9;
  const Inventory other(std::make_shared<const Topology>(linked), rack.pointers());
  CHECK_FALSE(PcieUse(other, one).must_cross(0, 6));
}

TEST_CASE("nothing is said where not all GPUs of a node are known") {
  Rack rack({std::nullopt, switches_of({4, 4})});
  rack.nodes[1].pcie->gpus.pop_back();
  for (const int node : {0, 1}) {
    rack.hold(node, 5);
    CHECK_FALSE(rack.must_share(node, 3, 1));
  }
  Rack other({switches_of({4, 4})});
  other.hold(0, 5);
  CHECK_FALSE(PcieUse(*other.inventory, {1000, 0, 0, ""}).must_share(0, 1));
  CHECK_FALSE(PcieUse(*other.inventory, {0, 0, 1, "amd.com/gpu"}).must_share(0, 1));
}

TEST_CASE("the sentence names hosts, switches and jobs, three hosts and three jobs at most") {
  Rack rack({switches_of({4, 4}), switches_of({4, 4}), switches_of({8}), switches_of({4, 4}),
             switches_of({4, 4}), switches_of({4, 4})});
  for (const int node : {0, 2, 3, 4, 5}) rack.hold(node, 5);
  const api::Resources one = Rack::asking(1);
  const PcieUse use(*rack.inventory, one);
  const auto nobody = [](int) { return GpusByJob(); };
  CHECK(use.why({{1, 8}}, nobody).empty());
  CHECK(use.why({{0, 1}, {1, 1}}, nobody) ==
        "on n00000 others hold 5 of 8 GPUs, so one of its 2 PCIe switches is shared");
  CHECK(use.why({{2, 1}}, nobody) ==
        "on n00002 others hold 5 of 8 GPUs, so its PCIe switch "
        "0000:10:00.0 (31.5 GB/s) is shared");
  const auto who = [&](GpusByJob jobs) {
    return use.why({{0, 1}}, [&](int node) { return node == 0 ? jobs : GpusByJob(); });
  };
  const std::string so = " 5 of 8 GPUs, so one of its 2 PCIe switches is shared";
  CHECK(who({{{"t", "a"}, 5}}) == "on n00000 t/a holds" + so);
  CHECK(who({{{"t", "a"}, 4}}) == "on n00000 t/a and others hold" + so);
  CHECK(who({{{"u", "a"}, 2}, {{"t", "b"}, 3}}) == "on n00000 t/b and u/a hold" + so);
  CHECK(
      who({{{"t", "a"}, 1}, {{"t", "b"}, 1}, {{"t", "c"}, 1}, {{"t", "d"}, 1}, {{"t", "e"}, 1}}) ==
      "on n00000 t/a, t/b, t/c and 2 more hold" + so);
  CHECK(who({{{"t", "a"}, 1}, {{"t", "b"}, 1}, {{"t", "c"}, 1}, {{"t", "d"}, 1}}) ==
        "on n00000 t/a, t/b, t/c, 1 more and others hold" + so);
  const std::string all = use.why({{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}}, nobody);
  CHECK(all.find("n00003") != std::string::npos);
  CHECK(all.find("n00004") == std::string::npos);
  CHECK(all.ends_with("; and so on 2 hosts more"));
}

TEST_CASE("a small gang goes where its switch is its own, not where it leaves the least over") {
  // Both have room; the first would be the tighter one.
  Rack rack({switches_of({4, 4}), switches_of({4, 4})});
  rack.hold(0, 5);
  rack.hold(1, 4);
  PodShape shape;
  const api::Resources one = Rack::asking(1);
  shape.requests = {{"nvidia.com/gpu", 1}, {"pods", 1}};
  PlacementWish wish;
  wish.pods = 2;
  const auto node_with = [&](const PcieUse* pcie) {
    wish.pcie = pcie;
    const Room room = rack.inventory->room(shape);
    const auto verdict = place_gang(*rack.topology, room, wish);
    REQUIRE(verdict.placement);
    REQUIRE(verdict.placement->hosts.size() == 1);
    return verdict.placement->hosts.front().node;
  };
  CHECK(node_with(nullptr) == 0);
  const PcieUse use(*rack.inventory, one);
  CHECK(node_with(&use) == 1);
}

TEST_CASE("without a network, too, a gang takes a node where it can stay on one NUMA node") {
  api::PcieNode sockets = switches_of({}, 8), one_socket = sockets;
  for (std::size_t i = 0; i < 8; ++i) sockets.gpus[i].numa_node = static_cast<int>(i / 4);
  for (api::PcieDevice& gpu : one_socket.gpus) gpu.numa_node = 0;
  const Rack rack({sockets, one_socket});
  WaitingGang gang;
  gang.job = {"ns", "j"};
  gang.count = gang.min = 6;
  gang.per_worker = Rack::asking(1);
  const auto placed = [&](const std::vector<const api::Node*>& nodes) {
    ClusterSnapshot snapshot;
    snapshot.nodes = nodes;
    snapshot.gangs = {gang};
    const auto verdicts = schedule(snapshot).verdicts;
    REQUIRE(verdicts.at(gang.job).placement);
    return *verdicts.at(gang.job).placement;
  };
  const GangPlacement stays = placed(rack.pointers());
  CHECK(stays.node_of_slot == std::vector<std::string>(6, "n00001"));
  CHECK(stays.why.empty());
  CHECK(placed({rack.pointers().front()}).why ==
        "on n00000 no NUMA node has 6 GPUs, so workers send to each other between NUMA nodes");
}
