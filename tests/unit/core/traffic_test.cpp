#include "operator/core/traffic.h"

#include <doctest/doctest.h>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

constexpr double kCard = 10e9;

/// A block of three racks of four hosts, with 10 GB/s a card and half of that out of a rack.
Topology three_racks() {
  TopologyInput input = tree_of({"block", "rack"});
  input.levels[0].latency_seconds = 1e-3;
  input.levels[1].latency_seconds = 1e-3;
  input.levels[1].oversubscription = 2;
  input.host.bytes_per_second = kCard;
  input.host.local_bytes_per_second = 1e15;
  for (const std::string rack : {"r1", "r2", "r3"}) add_hosts(input, {"b", rack}, 4);
  return built(std::move(input));
}

constexpr double kUplink = 4 * kCard / 2;

SendingGang gang(const std::string& name, std::vector<HostShare> hosts, StepFacts step = {}) {
  return {{"ns", name}, std::move(hosts), step};
}

/// Two pods in each of two racks: 4 pairs cross each uplink, 3 each card.
SendingGang across(const std::string& name, int first, int second, StepFacts step) {
  return gang(name, {{first, 1}, {first + 1, 1}, {second, 1}, {second + 1, 1}}, step);
}

int uplink_of(const Topology& topology, int node) { return topology.leaf_of_node[as_index(node)]; }

int card_of(const Topology& topology, int node) {
  return static_cast<int>(topology.domains.size()) + node;
}

double exchange(const Topology& topology, double bytes, const Traffic* traffic,
                const std::vector<HostShare>& hosts) {
  StepWork work;
  work.gradient_bytes = bytes;
  return StepModel(topology, work, traffic == nullptr ? nullptr : &traffic->uses())
      .predict(hosts)
      .exchange_seconds;
}

}  // namespace

TEST_CASE(
    "a gang uses each link that it crosses: its bytes over a step, its flows while it sends") {
  const Topology topology = three_racks();
  // 4 GB over 4 pods: 1 GB a flow, twice a step of 10 s, of which it sends for 2 s.
  const Traffic traffic(topology, {across("a", 0, 4, {4e9, 10, 2})});
  const LinkUse uplink = traffic.uses()[as_index(uplink_of(topology, 0))];
  CHECK(uplink.bytes_per_second == doctest::Approx(2 * 4 * 1e9 / 10));
  CHECK(uplink.flows == doctest::Approx(0.2 * 4));
  const LinkUse card = traffic.uses()[as_index(card_of(topology, 5))];
  CHECK(card.bytes_per_second == doctest::Approx(2 * 3 * 1e9 / 10));
  CHECK(card.flows == doctest::Approx(0.2 * 3));
  // Neither the third rack, nor a host beside the pods, nor the block, which holds all.
  CHECK_FALSE(traffic.is_used(uplink_of(topology, 8)));
  CHECK_FALSE(traffic.is_used(card_of(topology, 2)));
  CHECK_FALSE(traffic.is_used(topology.domains[as_index(uplink_of(topology, 0))].parent));
  CHECK(traffic.jobs_on(uplink_of(topology, 4)) == std::vector<api::ObjectKey>{{"ns", "a"}});
}

TEST_CASE("a gang takes no more of a link than it carries, whatever it tells of its steps") {
  const Topology topology = three_racks();
  // A step of a millisecond would take a thousand times what there is.
  const Traffic traffic(topology, {across("a", 0, 4, {4e9, 1e-3, 1e-3})});
  const auto uses = traffic.uses();
  CHECK(uses[as_index(uplink_of(topology, 0))].bytes_per_second == doctest::Approx(kUplink));
  CHECK(uses[as_index(card_of(topology, 5))].bytes_per_second == doctest::Approx(kCard));
}

TEST_CASE("of a gang that has told nothing half of the step is exchange") {
  const Topology topology = three_racks();
  const Traffic traffic(topology, {across("a", 0, 4, {4e9, 0, 0})});
  const LinkUse uplink = traffic.uses()[as_index(uplink_of(topology, 0))];
  CHECK(uplink.flows == doctest::Approx(0.5 * 4));
  // Its card sends 3 GB, which takes 0.3 s and is the longest; twice with 1 ms before each.
  CHECK(uplink.bytes_per_second == doctest::Approx(2 * 4e9 / (2 * 2 * (0.3 + 1e-3))));
}

TEST_CASE("who meets nobody on the network uses none of it") {
  TopologyInput input = tree_of({"rack", "nvlink"});
  input.levels[1].is_fast = true;
  add_hosts(input, {"r", "d1"}, 2);
  add_hosts(input, {"r", "d2"}, 2);
  const Topology topology = built(std::move(input));
  Traffic traffic(topology, {gang("host", {{0, 8}}), gang("nvlink", {{0, 1}, {1, 1}}),
                             gang("alone", {{0, 1}}), gang("nowhere", {})});
  for (std::size_t link = 0; link < traffic.uses().size(); ++link) {
    CHECK_FALSE(traffic.is_used(static_cast<int>(link)));
  }
  traffic.add(gang("far", {{0, 1}, {2, 1}}));
  CHECK(traffic.is_used(card_of(topology, 0)));
}

TEST_CASE("beside others a gang gets what they leave, and its share by flows at the least") {
  const Topology topology = three_racks();
  const std::vector<HostShare> ours{{2, 1}, {3, 1}, {6, 1}, {7, 1}};
  // Alone: 4 flows of 1 GB through 20 GB/s, and 3 through a card with 10: the card.
  CHECK(exchange(topology, 4e9, nullptr, ours) == doctest::Approx(2 * (1e-3 + 0.3)));
  // Others send 0.8 GB/s through the uplink: 19.2 are left, and the card is still slower.
  const Traffic light(topology, {across("a", 0, 4, {4e9, 10, 2})});
  CHECK(exchange(topology, 4e9, &light, ours) == doctest::Approx(2 * (1e-3 + 0.3)));
  // Three gangs of that kind send without pause all that the uplink carries: 4 of 16 flows.
  std::vector<SendingGang> many;
  for (const std::string name : {"a", "b", "c"}) {
    many.push_back(across(name, 0, 4, {4e9, 0.5, 0.5}));
  }
  const Traffic heavy(topology, many);
  CHECK(exchange(topology, 4e9, &heavy, ours) ==
        doctest::Approx(2 * (1e-3 + 4e9 / (kUplink * 4 / 16))));
  // Half of the time: they leave 20 - 16 = 4 GB/s, and by flows it is 20 * 4 / 7 of it.
  for (SendingGang& one : many) one.step = {4e9, 1.5, 0.375};
  const Traffic some(topology, many);
  CHECK(exchange(topology, 4e9, &some, ours) ==
        doctest::Approx(2 * (1e-3 + 4e9 / (kUplink * 4 / 7))));
}

TEST_CASE("what a gang would do to others is their own step grown, by worker") {
  const Topology topology = three_racks();
  // Alone it is bound by its cards, 0.3 s; its exchange is half of its step.
  const Traffic traffic(topology, {across("a", 0, 4, {4e9, 1.204, 0.602})});
  StepWork work;
  work.gradient_bytes = 12e9;
  const StepModel model(topology, work, &traffic.uses());
  const auto slowdown = [&](const std::vector<HostShare>& hosts) {
    const StepTime time = model.predict(hosts);
    int pods = 0;
    for (const HostShare& host : hosts) pods += host.pods;
    return traffic.slowdown(model.crossings(hosts), work.gradient_bytes / pods, time);
  };
  CHECK(slowdown({{2, 1}, {3, 1}}).workers == 0);    // within a rack, other cards
  CHECK(slowdown({{2, 1}, {10, 1}}).workers == 0);   // one flow of many through the uplink
  const Slowdown card = slowdown({{1, 1}, {2, 1}});  // one of its cards
  CHECK(card.gang == 0);
  CHECK(traffic.job(card.gang).name == "a");
  CHECK(card.link == card_of(topology, 1));
  // We send all the time, one flow beside its three: 3 GB at 7.5 GB/s take 0.4 s in place of 0.3.
  CHECK(card.most == doctest::Approx(0.5 * 0.1 / 0.301));
  CHECK(card.workers == doctest::Approx(4 * card.most));
  // The more gangs stand there the more are slowed.
  Traffic more(topology, {across("a", 0, 4, {4e9, 1.204, 0.602})});
  more.add(gang("b", {{1, 1}, {3, 1}}, {4e9, 1, 0.5}));
  const StepModel beside(topology, work, &more.uses());
  const std::vector<HostShare> hosts{{1, 1}, {2, 1}};
  CHECK(more.slowdown(beside.crossings(hosts), 6e9, beside.predict(hosts)).workers > card.workers);
}

TEST_CASE("for any order of the gangs the same bits") {
  const Topology topology = three_racks();
  Rng rng(test::seed());
  std::vector<SendingGang> gangs;
  for (int i = 0; i < 20; ++i) {
    std::vector<HostShare> hosts;
    for (int node = static_cast<int>(rng.below(3)); node < 12;
         node += 1 + static_cast<int>(rng.below(4))) {
      hosts.push_back({node, 1 + static_cast<int>(rng.below(3))});
    }
    gangs.push_back(gang("g" + std::to_string(i), hosts, {1e9 * rng.unit(), 1, rng.unit()}));
  }
  const std::vector<HostShare> ours{{1, 2}, {5, 1}, {9, 1}};
  const auto told = [&] {
    const Traffic traffic(topology, gangs);
    const StepModel model(topology, {}, &traffic.uses());
    const StepTime time = model.predict(ours);
    const Slowdown slowdown = traffic.slowdown(model.crossings(ours), 1e9, time);
    return std::tuple(time.exchange_seconds, slowdown.workers, slowdown.most, slowdown.link,
                      traffic.busy(0));
  };
  const auto first = told();
  CHECK(std::get<1>(first) > 0);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = gangs.size(); i > 1; --i) std::swap(gangs[i - 1], gangs[rng.below(i)]);
    CHECK(told() == first);
  }
}

TEST_CASE("whatever is told of a gang, nobody's share is less than by flows") {
  const Topology topology = three_racks();
  const std::vector<HostShare> ours{{2, 1}, {6, 1}};
  for (const StepFacts& facts : {StepFacts{1e30, 1e-9, 1e9}, StepFacts{1e30, 0, 5},
                                 StepFacts{0, 1, 1}, StepFacts{1, 1e-300, 0}, StepFacts{0, 0, 0}}) {
    const Traffic traffic(topology, {across("a", 0, 4, facts), across("b", 2, 6, facts)});
    const double seconds = exchange(topology, 1e9, &traffic, ours);
    CHECK(seconds >= exchange(topology, 1e9, nullptr, ours) * (1 - 1e-12));
    CHECK(seconds <= 2 * (1e-3 + 0.5 * (1 + 2 * 4) / kCard * 1e9));
    StepWork work;
    const StepModel model(topology, work, &traffic.uses());
    const Slowdown slowdown = traffic.slowdown(model.crossings(ours), 1e9, model.predict(ours));
    CHECK(slowdown.workers >= 0);
    CHECK(slowdown.workers < 1e6);
  }
}
