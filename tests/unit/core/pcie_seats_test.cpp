// Where GPUs of gangs are taken to lie below PCIe switches, and what their uplinks cost.
#include "operator/core/pcie_seats.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "common/rng.h"
#include "operator/core/placement.h"
#include "tests/test_main.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

const std::string kGpuName = "nvidia.com/gpu";
constexpr double kSwitchUplink = 16e9, kFastCard = 64e9;

api::PcieNode make_switches(const std::vector<int>& gpus, int alone = 0,
                            std::int64_t uplink = static_cast<std::int64_t>(kSwitchUplink)) {
  api::PcieNode pcie;
  for (const int count : gpus) {
    const int index = static_cast<int>(pcie.switches.size());
    pcie.switches.push_back({"0000:" + std::to_string(10 + index) + ":00.0", uplink});
    for (int i = 0; i < count; ++i) pcie.gpus.push_back({"", {}, index});
  }
  for (int i = 0; i < alone; ++i) pcie.gpus.push_back({"", {}, {}});
  return pcie;
}

/// The same with each switch, and GPUs `alone` of a number each, on these NUMA nodes.
api::PcieNode make_numa(const std::vector<std::pair<int, int>>& switches,
                        const std::vector<std::pair<int, int>>& alone = {}) {
  std::vector<int> gpus;
  for (const auto& [count, numa] : switches) gpus.push_back(count);
  // Faster than all that is told of else, so that it bounds nothing.
  api::PcieNode pcie = make_switches(gpus, 0, 100'000'000'000);
  for (api::PcieDevice& gpu : pcie.gpus)
    gpu.numa_node = switches[as_index(*gpu.switch_index)].second;
  for (const auto& [count, numa] : alone) {
    for (int i = 0; i < count; ++i) pcie.gpus.push_back({"", numa, {}});
  }
  return pcie;
}

/// A rack of hosts with cards that are faster than switches. Gangs that are there hold their GPUs.
struct SwitchRack {
  explicit SwitchRack(std::vector<std::optional<api::PcieNode>> known,
                      const std::vector<SendingGang>& gangs = {}) {
    TopologyInput input = tree_of({"rack"});
    input.host.bytes_per_second = kFastCard;
    input.host.local_bytes_per_second = 100e9;
    input.host.latency_seconds = input.host.local_latency_seconds = 1e-6;
    add_hosts(input, {"r1"}, static_cast<int>(known.size()));
    for (std::size_t i = 0; i < known.size(); ++i) {
      api::Node& node = nodes.emplace_back();
      node.meta.name = input.nodes[i].node;
      node.ready = true;
      node.allocatable = {
          {kGpuName, known[i] ? static_cast<std::int64_t>(known[i]->gpus.size()) : 8}};
      node.pcie = std::move(known[i]);
    }
    topology = std::make_shared<const Topology>(built(std::move(input)));
    std::vector<const api::Node*> pointers;
    for (const auto& node : nodes) pointers.push_back(&node);
    inventory.emplace(topology, pointers);
    for (const SendingGang& gang : gangs) {
      for (const HostShare& host : gang.hosts) hold(host.node, host.pods * gang.gpus_per_pod);
    }
    seats.emplace(*inventory, static_cast<int>(topology->domains.size() + topology->nodes.size()));
    traffic.emplace(*topology, gangs, &*seats);
  }

  void hold(int node, int gpus) { inventory->take(node, {{kGpuName, gpus}}); }
  /// GPUs by switch.
  std::map<int, int> seated(int node, int gpus) const {
    std::map<int, int> by_switch;
    for (const PcieSeat& seat : seats->seats(node, kGpuName, gpus))
      by_switch[seat.number] += seat.gpus;
    return by_switch;
  }
  StepTime predict(const std::vector<HostShare>& hosts, int gpus_per_pod, double bytes) const {
    const GangGpus gpus{&*seats, kGpuName, gpus_per_pod};
    StepWork work;
    work.gradient_bytes = bytes;
    return StepModel(*topology, work, &traffic->uses(), &gpus).predict(hosts);
  }

  std::vector<api::Node> nodes;
  std::shared_ptr<const Topology> topology;
  std::optional<Inventory> inventory;
  std::optional<PcieSeats> seats;
  std::optional<Traffic> traffic;
};

SendingGang gpu_gang(const std::string& name, std::vector<HostShare> hosts, int gpus_per_pod,
                     StepFacts step = {}) {
  return {{"ns", name}, std::move(hosts), step, gpus_per_pod, kGpuName};
}

using ByAt = std::map<int, int>;

}  // namespace

TEST_CASE("a gang has the tightest switch of its own, else several, else those of others") {
  SwitchRack rack(
      {make_switches({4, 2, 2}), make_switches({4, 4}), make_switches({4, 4}, 2), std::nullopt});
  CHECK(rack.seated(0, 2) == ByAt{{1, 2}});
  CHECK(rack.seated(0, 3) == ByAt{{0, 3}});
  CHECK(rack.seated(0, 6) == ByAt{{0, 4}, {1, 2}});
  CHECK(rack.seats->take(1, kGpuName, 1).size() == 1);
  CHECK(rack.seated(1, 3) == ByAt{{1, 3}});          // not beside the one, where it fits as well
  CHECK(rack.seated(1, 5) == ByAt{{0, 1}, {1, 4}});  // it cannot be helped
  CHECK(rack.seated(2, 2).empty());                  // straight below root ports
  CHECK(rack.seated(3, 2).empty());                  // nothing is known
  CHECK(rack.seats->seats(1, "amd.com/gpu", 2).size() == 1);  // the node's GPUs are of one kind
}

TEST_CASE("a gang of several switches stays on one NUMA node where it can, else on few") {
  const api::PcieNode two_by_two = make_numa({{2, 0}, {2, 0}, {2, 1}, {2, 1}});
  SwitchRack rack({two_by_two, two_by_two, make_numa({}, {{4, 0}, {4, 1}}), make_numa({{4, 2}})});
  CHECK(rack.seats->take(0, kGpuName, 2).size() == 2);  // the switch, and its NUMA node
  // Behind the switches 0 to 3 come the NUMA nodes as 4 and 5.
  CHECK(rack.seated(0, 4) == ByAt{{2, 2}, {3, 2}, {5, 4}});
  CHECK(rack.seated(0, 2) == ByAt{{1, 2}, {4, 2}});
  CHECK(rack.seated(1, 5) == ByAt{{0, 2}, {1, 2}, {2, 1}, {4, 4}, {5, 1}});
  // Straight below root ports.
  CHECK(rack.seated(2, 5) == ByAt{{0, 4}, {1, 1}});
  rack.seats->take(2, kGpuName, 3);
  CHECK(rack.seated(2, 3) == ByAt{{1, 3}});
  CHECK(rack.seats->text({0, 3}).starts_with("PCIe switch "));
  CHECK(rack.seats->text({0, 5}) == "NUMA node 1 of host n00000");
  // There is nothing to cross on a single one, nor where one GPU does not say where it is.
  CHECK(rack.seated(3, 4) == ByAt{{0, 4}});
  api::PcieNode partly = two_by_two;
  partly.gpus.back().numa_node.reset();
  CHECK(SwitchRack({partly}).seated(0, 5) == ByAt{{0, 2}, {1, 2}, {2, 1}});
}

TEST_CASE("a gang on an empty host is on as few NUMA nodes as hold it") {
  Rng rng(test::seed());
  for (int round = 0; round < 500; ++round) {
    std::vector<std::pair<int, int>> switches;
    std::vector<int> by_numa(2 + rng.below(3), 0);
    int all = 0;
    for (std::size_t numa = 0; numa < by_numa.size(); ++numa) {
      for (std::size_t i = 1 + rng.below(3); i > 0; --i) {
        switches.emplace_back(1 + static_cast<int>(rng.below(4)), static_cast<int>(numa));
        by_numa[numa] += switches.back().first;
        all += switches.back().first;
      }
    }
    const int gpus = 1 + static_cast<int>(rng.below(as_index(all)));
    SwitchRack rack({make_numa(switches)});
    int on = 0, seated = 0;
    for (const PcieSeat& seat : rack.seats->seats(0, kGpuName, gpus)) {
      if (!seat.is_numa) continue;
      ++on;
      seated += seat.gpus;
    }
    std::sort(by_numa.begin(), by_numa.end(), std::greater<>());
    int fewest = 0;
    for (int held = 0; held < gpus; ++fewest) held += by_numa[as_index(fewest)];
    CAPTURE(round);
    CHECK(on == fewest);
    CHECK(seated == gpus);
  }
}

TEST_CASE("what strangers hold is nobody's link, and not there to be had") {
  SwitchRack rack({make_switches({4, 4})}, {gpu_gang("a", {{0, 2}}, 1)});
  SwitchRack stranger({make_switches({4, 4})});
  stranger.hold(0, 4);
  CHECK(stranger.seated(0, 4).size() == 1);
  CHECK(stranger.seats->seats(0, kGpuName, 4).front().link == -1);
  CHECK(rack.seats->seats(0, kGpuName, 4).front().link >= 0);
}

TEST_CASE("the uplink of a switch bounds the exchange of a gang's own processes") {
  SwitchRack rack({make_switches({4, 4}), make_switches({4, 4})});
  const double bytes = 8e9;
  // All eight on one host: of each four 4 x 4 pairs go up, at 1 GB.
  const StepTime whole = rack.predict({{0, 8}}, 1, bytes);
  CHECK(whole.exchange_seconds == doctest::Approx(2 * (1e-6 + 16 * 1e9 / kSwitchUplink)));
  CHECK(whole.bound_node == 0);
  CHECK(whole.bound_switch >= 0);
  // Four below one switch send each other nothing over it.
  const StepTime four = rack.predict({{0, 4}}, 1, bytes);
  CHECK(four.exchange_seconds == doctest::Approx(2 * (1e-6 + 3 * 2e9 / 100e9)));
  CHECK(four.bound_switch == -1);
  // Two pods of four GPUs each: one below each switch. Of pods without GPUs nothing is known.
  CHECK(rack.predict({{0, 2}}, 4, bytes).exchange_seconds ==
        doctest::Approx(2 * (1e-6 + 4e9 / kSwitchUplink)));
  CHECK(rack.predict({{0, 2}}, 0, bytes).bound_switch == -1);
  // Across hosts: 4 x 4 pairs over the uplink, and the same over a card that is faster.
  const StepTime across = rack.predict({{0, 4}, {1, 4}}, 1, bytes);
  CHECK(across.exchange_seconds >= 2 * 16 * 1e9 / kSwitchUplink);
  CHECK(across.bound_switch >= 0);
}

TEST_CASE("the link between NUMA nodes bounds what a host's processes send each other") {
  const api::PcieNode sockets = make_numa({{4, 0}, {4, 1}});
  SwitchRack rack({sockets, sockets, make_numa({}, {{4, 0}, {4, 1}})});
  const double bytes = 8e9, numa_rate = rack.topology->host.numa_bytes_per_second;
  for (const int host : {0, 2}) {
    const StepTime whole = rack.predict({{host, 8}}, 1, bytes);
    CHECK(whole.exchange_seconds == doctest::Approx(2 * (1e-6 + 16 * 1e9 / numa_rate)));
    CHECK(whole.bound_node == host);
    CHECK_FALSE(rack.seats->is_switch({host, whole.bound_switch}));
  }
  CHECK(rack.predict({{0, 2}}, 4, bytes).exchange_seconds ==
        doctest::Approx(2 * (1e-6 + 4e9 / numa_rate)));
  // On one of them, or to another host, nothing goes over it.
  CHECK(rack.predict({{0, 4}}, 1, bytes).bound_switch == -1);
  CHECK(rack.predict({{0, 4}, {1, 4}}, 1, bytes).bound_switch == -1);
  const PcieSeat half{4, numa_rate, 2, -1, true};
  CHECK(flows_over(half, 1, 8, 16, {}) == 16);
  CHECK(flows_over(half, 8, 1, 2, {}) == 0);  // one pod, whose GPUs are on both
  HostLink linked;
  linked.local_bytes_per_second = 300e9;
  CHECK(flows_over(half, 1, 8, 16, linked) == 0);
}

TEST_CASE("gangs that meet on the link of a NUMA node slow each other") {
  // Of three with two GPUs each the first gang has one and a half, so the next one needs the rest.
  const api::PcieNode three = make_numa({}, {{2, 0}, {2, 1}, {2, 2}});
  SwitchRack rack({three, three}, {gpu_gang("a", {{0, 3}}, 1, {3e9, 1, 1})});
  const double bytes = 3e9, numa_rate = rack.topology->host.numa_bytes_per_second;
  CHECK(rack.predict({{1, 3}}, 1, bytes).exchange_seconds ==
        doctest::Approx(2 * (1e-6 + 2e9 / numa_rate)));
  const StepTime beside = rack.predict({{0, 3}}, 1, bytes);
  const double left = std::max(numa_rate - 2 * 2e9, numa_rate / 2);
  CHECK(beside.exchange_seconds == doctest::Approx(2 * (1e-6 + 2e9 / left)));
  const GangGpus gpus{&*rack.seats, kGpuName, 1};
  StepWork work;
  work.gradient_bytes = bytes;
  const StepModel model(*rack.topology, work, &rack.traffic->uses(), &gpus);
  const Slowdown slowed = rack.traffic->slowdown(model.crossings({{0, 3}}), bytes / 3, beside);
  REQUIRE(slowed.link >= 0);
  CHECK(rack.seats->text(rack.seats->place_of(slowed.link)) == "NUMA node 1 of host n00000");
}

TEST_CASE("a pair goes where one NUMA node has room for both, and says what bounds it otherwise") {
  const auto placed = [](const api::PcieNode& pcie, int held_on_second) {
    // On the first host one GPU is left on each NUMA node, on the second both on one.
    SwitchRack rack({pcie, pcie}, {gpu_gang("a", {{0, 3}}, 1), gpu_gang("b", {{0, 3}}, 1),
                                   gpu_gang("c", {{1, 6}}, 1)});
    rack.hold(1, held_on_second);
    PodShape shape;
    shape.requests = {{kGpuName, 1}};
    const Room room = rack.inventory->count(shape);
    PlacementWish wish;
    wish.pods = 2;
    wish.gpus = {&*rack.seats, kGpuName, 1};
    auto verdict = place_gang(*rack.topology, room, wish);
    REQUIRE(verdict.placement);
    REQUIRE(verdict.placement->hosts.size() == 1);
    return *verdict.placement;
  };
  const api::PcieNode sockets = make_numa({}, {{4, 0}, {4, 1}});
  CHECK(placed(make_switches({}, 8), 0).hosts.front().node == 0);
  CHECK(placed(sockets, 0).hosts.front().node == 1);
  const Placement crossing = placed(sockets, 2);
  CHECK(crossing.hosts.front().node == 0);
  CHECK(crossing.why.find("a step, bound by the link of NUMA node 0 of host n00000 (bandwidth: "
                          "confidence low)") != std::string::npos);
}

TEST_CASE("who shares a switch is slowed, and slows; who has one of its own is not and does not") {
  // Five GPUs of another: all of one switch, and one of the other. It sends all the time.
  const SendingGang other = gpu_gang("a", {{0, 5}}, 1, {5e9, 1, 1});
  SwitchRack rack({make_switches({4, 4}), make_switches({4, 4})}, {other});
  const double bytes = 3e9;
  const double apart = rack.predict({{1, 3}}, 1, bytes).exchange_seconds;
  // Three below one switch cross nothing, beside whomever.
  CHECK(rack.predict({{0, 3}}, 1, bytes).exchange_seconds == doctest::Approx(apart));
  // Three there and one elsewhere: 3 pairs up, beside 4 of the other: their share by flows.
  const StepTime shared = rack.predict({{0, 3}, {1, 1}}, 1, bytes);
  const double used = 2 * 4 * 1e9 / 1;
  const double rate = std::max(kSwitchUplink - used, kSwitchUplink * 3 / (3 + 4));
  CHECK(shared.exchange_seconds >= 2 * 3 * bytes / 4 / rate * (1 - 1e-6));
  CHECK(shared.bound_node == 0);
  const GangGpus gpus{&*rack.seats, kGpuName, 1};
  StepWork work;
  work.gradient_bytes = bytes;
  const StepModel model(*rack.topology, work, &rack.traffic->uses(), &gpus);
  const Slowdown slowed =
      rack.traffic->slowdown(model.crossings({{0, 3}, {1, 1}}), bytes / 4, shared);
  REQUIRE(slowed.most > 0.1);
  CHECK(rack.traffic->job(slowed.gang).name == "a");
  const auto place = rack.seats->place_of(slowed.link);
  CHECK(rack.seats->text(place).starts_with("PCIe switch 0000:1"));
  CHECK(rack.seats->text(place).ends_with(" of host n00000"));
  CHECK(rack.traffic->slowdown(model.crossings({{1, 3}}), bytes / 3, shared).workers == 0);
}

TEST_CASE("links of GPUs of their own, and NVLink between hosts, keep an exchange off PCIe") {
  SwitchRack rack({make_switches({4, 4})});
  Topology linked = *rack.topology;
  linked.host.local_bytes_per_second = 300e9;
  const GangGpus gpus{&*rack.seats, kGpuName, 1};
  CHECK(StepModel(linked, {}, nullptr, &gpus).predict({{0, 8}}).bound_switch == -1);
  Topology fast = *rack.topology;
  fast.levels[0].is_fast = true;
  CHECK(StepModel(fast, {}, nullptr, &gpus).predict({{0, 8}}).bound_switch == -1);
  CHECK(StepModel(*rack.topology, {}, nullptr, &gpus).predict({{0, 8}}).bound_switch >= 0);
}

namespace {

/// The exchange counted anew: each switch's uplink by the pairs over it and what others send there.
double switched_by_hand(const SwitchRack& rack, const std::vector<HostShare>& hosts, int per_pod,
                        double bytes, const std::vector<LinkUse>& uses) {
  double n = 0, slowest = 0;
  for (const HostShare& host : hosts) n += host.pods;
  if (n < 2) return 0;
  const auto rate = [&](int link, double flows, double all) {
    const LinkUse other = link < 0 ? LinkUse{} : uses[as_index(link)];
    const double by_flows = all * flows / (flows + other.flows);
    return std::max(all - other.bytes_per_second, by_flows);
  };
  for (const HostShare& host : hosts) {
    slowest = std::max(slowest, (host.pods - 1) * bytes / n / 100e9);
    const int card = static_cast<int>(rack.topology->domains.size()) + host.node;
    const double out = host.pods * (n - host.pods);
    if (out > 0) slowest = std::max(slowest, out * bytes / n / rate(card, out, kFastCard));
    for (const PcieSeat& seat : rack.seats->seats(host.node, kGpuName, host.pods * per_pod)) {
      const double part = 1.0 * seat.gpus / per_pod, up = part * (n - part);
      if (up > 0) slowest = std::max(slowest, up * bytes / n / rate(seat.link, up, kSwitchUplink));
    }
  }
  const StepModel model(*rack.topology, {});
  const double latency =
      hosts.size() == 1 ? 1e-6 : model.latency(rack.topology->leaf_of_node.front());
  return 2 * (latency + slowest);
}

void each_dealing(const std::vector<int>& room, int pods,
                  const std::function<void(const std::vector<HostShare>&)>& listener) {
  std::vector<HostShare> hosts;
  const std::function<void(std::size_t, int)> deal = [&](std::size_t node, int left) {
    if (left == 0) return listener(hosts);
    if (node == room.size()) return;
    for (int here = 0; here <= std::min(left, room[node]); ++here) {
      if (here > 0) hosts.push_back({static_cast<int>(node), here});
      deal(node + 1, left - here);
      if (here > 0) hosts.pop_back();
    }
  };
  deal(0, pods);
}

std::vector<SendingGang> random_gangs(std::size_t hosts, Rng& rng) {
  std::vector<SendingGang> gangs;
  std::vector<int> left(hosts, 8);
  for (std::size_t i = rng.below(4); i > 0; --i) {
    const int per_pod = 1 << rng.below(2);
    SendingGang one = gpu_gang("g" + std::to_string(i), {}, per_pod);
    for (std::size_t node = 0; node < hosts; ++node) {
      const int most = std::min(4, left[node] / per_pod);
      const int pods = most > 0 ? static_cast<int>(rng.below(as_index(most + 1))) : 0;
      if (pods == 0) continue;
      left[node] -= pods * per_pod;
      one.hosts.push_back({static_cast<int>(node), pods});
    }
    one.step.gradient_bytes = 4e9;
    if (rng.below(3) > 0) {
      one.step.step_seconds = 0.1 + rng.unit();
      one.step.exchange_seconds = one.step.step_seconds * rng.unit();
    }
    if (!one.hosts.empty()) gangs.push_back(std::move(one));
  }
  return gangs;
}

}  // namespace

TEST_CASE("below PCIe switches, held against every placement there is") {
  Rng rng(test::seed());
  std::vector<double> gaps;
  int bound = 0, beside = 0;
  for (int round = 0; round < 600; ++round) {
    const std::size_t count = 2 + rng.below(4);
    std::vector<std::optional<api::PcieNode>> known;
    for (std::size_t i = 0; i < count; ++i) {
      known.emplace_back(rng.below(5) == 0 ? make_switches({2, 2, 4}) : make_switches({4, 4}));
    }
    std::vector<SendingGang> gangs = random_gangs(count, rng);
    SwitchRack rack(known, gangs);
    const int per_pod = 1 << rng.below(2);
    PodShape shape;
    shape.requests = {{kGpuName, per_pod}};
    const Room room = rack.inventory->count(shape);
    if (room.in_domain[0] < 2) continue;
    PlacementWish wish;
    wish.pods = 2 + static_cast<int>(rng.below(as_index(std::min(10, room.in_domain[0]) - 1)));
    wish.work.gradient_bytes = 1e9;
    wish.work.compute_seconds = rng.below(2) == 0 ? 0.1 : 0;
    wish.gpus = {&*rack.seats, kGpuName, per_pod};
    const Traffic* others = rack.traffic->empty() ? nullptr : &*rack.traffic;
    const std::vector<LinkUse>& uses = rack.traffic->uses();
    const StepModel model(*rack.topology, wish.work, &uses, &wish.gpus);
    const auto cost_of = [&](const std::vector<HostShare>& hosts) {
      const double exchange =
          switched_by_hand(rack, hosts, per_pod, wish.work.gradient_bytes, uses);
      StepTime time{wish.work.compute_seconds + exchange, exchange};
      const Slowdown slowed = rack.traffic->slowdown(model.crossings(hosts),
                                                     wish.work.gradient_bytes / wish.pods, time);
      return time.step_seconds * (1 + slowed.workers / wish.pods);
    };
    double least = std::numeric_limits<double>::infinity();
    each_dealing(room.on_node, wish.pods,
                 [&](const auto& hosts) { least = std::min(least, cost_of(hosts)); });
    const auto verdict = place_gang(*rack.topology, room, wish, others);
    REQUIRE(verdict.placement);
    const Placement& placed = *verdict.placement;
    CHECK(placed.time.exchange_seconds ==
          doctest::Approx(switched_by_hand(rack, placed.hosts, per_pod, 1e9, uses)).epsilon(1e-9));
    const double cost = cost_of(placed.hosts);
    CHECK(cost >= least * (1 - 1e-9));
    gaps.push_back(cost / least - 1);
    bound += placed.time.bound_switch >= 0 ? 1 : 0;
    const bool says_so =
        placed.why.find("by the uplink of PCIe switch 0000:1") != std::string::npos;
    CHECK(says_so == (placed.time.bound_switch >= 0));
    beside += placed.avoided_link >= 0 ? 1 : 0;
    // The same for any order of the gangs.
    std::reverse(gangs.begin(), gangs.end());
    SwitchRack turned(known, gangs);
    wish.gpus.seats = &*turned.seats;
    const Traffic* others_turned = turned.traffic->empty() ? nullptr : &*turned.traffic;
    CHECK(place_gang(*turned.topology, room, wish, others_turned).placement->why == placed.why);
  }
  std::sort(gaps.begin(), gaps.end());
  MESSAGE("placements ", gaps.size(), ", bound by a switch ", bound, ", moved ", beside,
          ", not the best ",
          std::count_if(gaps.begin(), gaps.end(), [](double gap) { return gap > 1e-6; }), ", p95 ",
          gaps[gaps.size() * 95 / 100], ", max ", gaps.back());
  CHECK(bound > 50);
  CHECK(beside > 20);
  CHECK(gaps[gaps.size() * 95 / 100] <= 0.01);
}
