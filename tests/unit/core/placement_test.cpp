#include "operator/core/placement.h"

#include <doctest/doctest.h>

#include "operator/core/step_time.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

PlacementWish gang_wish(int pods, const std::string& required = "",
                        const std::string& preferred = "") {
  PlacementWish wish;
  wish.pods = pods;
  wish.required = required;
  wish.preferred = preferred;
  return wish;
}

/// Two blocks of three racks of two hosts.
Topology two_blocks() {
  TopologyInput input = tree_of({"block", "rack"});
  for (const std::string block : {"b1", "b2"}) {
    for (const std::string rack : {"r1", "r2", "r3"}) add_hosts(input, {block, rack}, 2);
  }
  return built(std::move(input));
}

using Shares = std::vector<HostShare>;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a gang goes into the lowest domain that holds all of it, the tightest of them") {
  const Topology topology = two_blocks();
  //                                       b1: r1 r2 r3         b2: r1 r2 r3
  const Room room = room_of(topology, {1, 0, 2, 2, 1, 1, 2, 1, 4, 4, 0, 1});
  const auto pair = place_gang(topology, room, gang_wish(2));
  REQUIRE(pair.placement);
  CHECK(topology.path_of(pair.placement->domain) == "b2/r1");  // where one host takes both
  CHECK(pair.placement->leaves == 1);
  const auto three = place_gang(topology, room, gang_wish(3));
  CHECK(topology.path_of(three.placement->domain) == "b2/r2");
  const auto seven = place_gang(topology, room, gang_wish(7));
  CHECK(topology.path_of(seven.placement->domain) == "b2/r2");
  const auto eleven = place_gang(topology, room, gang_wish(11));
  CHECK(topology.path_of(eleven.placement->domain) == "b2");
  CHECK(eleven.placement->leaves == 2);
  const auto all = place_gang(topology, room, gang_wish(19));
  CHECK(all.placement->domain == 0);
  CHECK(all.placement->leaves == 6);
  CHECK(all.placement->branches == 2);
}

TEST_CASE("the fewest leaf domains, where a greedy choice of the branch takes more") {
  // Both blocks hold 8. The tighter one is the more scattered.
  TopologyInput input = tree_of({"block", "rack"});
  for (const std::string rack : {"r1", "r2", "r3", "r4"}) add_hosts(input, {"b1", rack}, 2);
  for (const std::string rack : {"r1", "r2", "r3"}) add_hosts(input, {"b2", rack}, 2);
  const Topology topology = built(std::move(input));
  const Room room = room_of(topology, {1, 1, 1, 1, 2, 1, 1, 1, 3, 2, 2, 2, 1, 1});
  const auto verdict = place_gang(topology, room, gang_wish(8));
  CHECK(topology.path_of(verdict.placement->domain) == "b2");
  CHECK(verdict.placement->leaves == 2);
}

TEST_CASE("several branches: the pair with the fewest leaves, not the roomiest pair") {
  // 20 need two blocks. The roomiest two are scattered over racks of 2; b3 and b4 hold 20 on two.
  TopologyInput input = tree_of({"block", "rack"});
  std::vector<int> on_node;
  for (const std::string block : {"b1", "b2"}) {
    for (int rack = 0; rack < 7; ++rack) {
      add_hosts(input, {block, "r" + std::to_string(rack)}, 1);
      on_node.push_back(2);
    }
  }
  for (const std::string block : {"b3", "b4"}) {
    add_hosts(input, {block, "r0"}, 1);
    on_node.push_back(10);
  }
  const Topology topology = built(std::move(input));
  const auto verdict = place_gang(topology, room_of(topology, on_node), gang_wish(20));
  CHECK(verdict.placement->branches == 2);
  CHECK(verdict.placement->leaves == 2);
  CHECK(verdict.placement->hosts == Shares{{14, 10}, {15, 10}});
}

TEST_CASE("slots follow the tree") {
  const Topology topology = two_blocks();
  const Room room = room_of(topology, {0, 0, 2, 2, 1, 2, 0, 0, 0, 0, 0, 0});
  const auto verdict = place_gang(topology, room, gang_wish(7));
  CHECK(verdict.placement->nodes() == std::vector<int>{2, 2, 3, 3, 4, 5, 5});
}

TEST_CASE("a required level is kept, or the sentence says what would fit") {
  const Topology topology = two_blocks();
  const Room room = room_of(topology, {1, 0, 2, 2, 1, 1, 0, 1, 2, 2, 0, 1});
  const auto fits = place_gang(topology, room, gang_wish(4, "rack"));
  CHECK(topology.path_of(fits.placement->domain) == "b1/r2");
  const auto five = place_gang(topology, room, gang_wish(5, "rack"));
  CHECK_FALSE(five.placement);
  CHECK(five.why_not ==
        "needs room for 5 within one rack; the roomiest, b1/r2, has room for 4; it would fit with "
        "required: block (b2 has room for 6); 4 would fit as they are");
  CHECK(topology.path_of(place_gang(topology, room, gang_wish(5, "block")).placement->domain) ==
        "b2");
  CHECK(place_gang(topology, room, gang_wish(8, "block")).why_not ==
        "needs room for 8 within one block; the roomiest, b1, has room for 7; it would fit without "
        "topology.required; 7 would fit as they are");
  CHECK(place_gang(topology, room, gang_wish(14, "block")).why_not ==
        "needs room for 14 within one block; the roomiest, b1, has room for 7; the whole cluster "
        "has room for 13; 7 would fit as they are");
  CHECK(place_gang(topology, room, gang_wish(14)).why_not ==
        "needs room for 14; the whole cluster has room for 13");
  CHECK(
      place_gang(topology, room, gang_wish(2, "row")).why_not ==
      "spec.topology.required is row, and no node says in which it stands; known are block, rack, "
      "host (topology from test)");
  const auto host = place_gang(topology, room, gang_wish(2, "host"));
  CHECK(host.placement->hosts == Shares{{2, 2}});
  CHECK(has(place_gang(topology, room, gang_wish(3, "host")).why_not,
            "within one host; the roomiest, n00002, has room for 2; it would fit with required: "
            "rack"));
  const Room none = room_of(topology, std::vector<int>(12, 0));
  CHECK(place_gang(topology, none, gang_wish(1, "rack")).why_not ==
        "needs room for 1 within one rack, and none has room for any; the whole cluster has room "
        "for 0");
}

TEST_CASE("a preferred level is a wish") {
  const Topology topology = two_blocks();
  const Room room = room_of(topology, {1, 0, 2, 2, 1, 1, 0, 1, 2, 2, 0, 1});
  CHECK(place_gang(topology, room, gang_wish(4, "", "rack")).placement->is_wish_kept);
  const auto five = place_gang(topology, room, gang_wish(5, "", "rack"));
  CHECK_FALSE(five.placement->is_wish_kept);
  CHECK(topology.path_of(five.placement->domain) == "b2");
  CHECK(has(five.placement->why,
            "no rack has room for all; block b2 is the lowest domain with "
            "room for 5 (6): 2 leaf domains, "));
  const auto row = place_gang(topology, room, gang_wish(2, "", "row"));
  CHECK_FALSE(row.placement->is_wish_kept);
  CHECK(has(row.placement->why, "spec.topology.preferred is row, and no node says"));
  CHECK(place_gang(topology, room, gang_wish(2, "", "host")).placement->is_wish_kept);
}

TEST_CASE("nodes of which nothing is known: as few of them as can be") {
  TopologyInput input = tree_of({});
  add_hosts(input, {}, 4);
  const Topology topology = built(std::move(input));
  const auto verdict = place_gang(topology, room_of(topology, {1, 3, 2, 8}), gang_wish(10));
  CHECK(verdict.placement->hosts == Shares{{2, 2}, {3, 8}});
  CHECK(place_gang(topology, room_of(topology, {1, 3, 2, 8}), gang_wish(3)).placement->hosts ==
        Shares{{1, 3}});
}

TEST_CASE("what cannot be asked for is refused, and a single pod needs no exchange") {
  const Topology topology = two_blocks();
  const Room room = room_of(topology, std::vector<int>(12, 1));
  for (const int pods : {0, -1, kMaxPodsCounted + 1}) {
    CHECK(place_gang(topology, room, gang_wish(pods)).why_not == "needs from 1 to 4096 pods");
  }
  const auto one = place_gang(topology, room, gang_wish(1));
  CHECK(one.placement->hosts.size() == 1);
  CHECK(one.placement->time.exchange_seconds == 0);
  const Topology empty = built(tree_of({"rack"}));
  CHECK(place_gang(empty, room_of(empty, {}), gang_wish(1)).why_not ==
        "needs room for 1; the whole cluster has room for 0");
}

TEST_CASE("the predicted step is what the links can carry") {
  TopologyInput input = tree_of({"block", "rack"});
  input.levels[0].latency_seconds = 40e-6;
  input.levels[1].oversubscription = 4;
  input.host.bytes_per_second = 10e9;
  add_hosts(input, {"b", "r1"}, 2);
  add_hosts(input, {"b", "r2"}, 2);
  const Topology topology = built(std::move(input));
  StepWork work;
  work.gradient_bytes = 8e9;
  work.compute_seconds = 1;
  const StepModel model(topology, work);
  // 4 pods, one a host: each rack sends 2 x 2 x 2 GB at 2 hosts x 10 GB/s / 4, each time.
  const StepTime spread = model.predict({{0, 1}, {1, 1}, {2, 1}, {3, 1}});
  CHECK(spread.exchange_seconds == doctest::Approx(2 * (40e-6 + 8e9 / 5e9)));
  CHECK(spread.step_seconds == doctest::Approx(1 + spread.exchange_seconds));
  CHECK(spread.bound_domain == topology.leaf_of_node[0]);
  // 3 + 1 in one rack: a card carries 3 x 1 x 2 GB.
  const StepTime uneven = model.predict({{0, 3}, {1, 1}});
  CHECK(uneven.bound_node == 0);
  CHECK(uneven.load_seconds == doctest::Approx(6e9 / 10e9));
  // On one host each of the pods sends 3 x 2 GB.
  const StepTime alone = model.predict({{0, 4}});
  CHECK(alone.load_seconds == doctest::Approx(6e9 / topology.host.local_bytes_per_second));
  CHECK(alone.bound_node == -1);
  work.overlap_seconds = 100;
  CHECK(StepModel(topology, work).predict({{0, 1}, {2, 1}}).step_seconds == doctest::Approx(1));
}

TEST_CASE("of two racks one is filled: an even split sends more through both uplinks") {
  TopologyInput input = tree_of({"block", "rack"});
  input.levels[1].oversubscription = 8;
  add_hosts(input, {"b", "r1"}, 10);
  add_hosts(input, {"b", "r2"}, 10);
  const Topology topology = built(std::move(input));
  const auto verdict =
      place_gang(topology, room_of(topology, std::vector<int>(20, 1)), gang_wish(12));
  int in_first = 0;
  for (const HostShare& host : verdict.placement->hosts) in_first += host.node < 10 ? 1 : 0;
  CHECK(std::max(in_first, 12 - in_first) == 10);
}

TEST_CASE("a rack with most of the pods may be full while its hosts are held to a bound") {
  TopologyInput input = tree_of({"block", "rack"});
  input.levels[1].oversubscription = 3;
  add_hosts(input, {"b", "r1"}, 3);
  add_hosts(input, {"b", "r2"}, 3);
  const Topology topology = built(std::move(input));
  const auto verdict = place_gang(topology, room_of(topology, {4, 4, 3, 4, 4, 0}), gang_wish(12));
  // A host with 3 of 12 sends 27 parts, one with 4 sends 32; the rack with 9 sends 27.
  CHECK(verdict.placement->hosts == Shares{{0, 3}, {1, 3}, {2, 3}, {3, 3}});
}

TEST_CASE("an exchange that is hidden behind computing takes as few hosts as can be") {
  TopologyInput input = tree_of({"rack"});
  add_hosts(input, {"r"}, 8);
  const Topology topology = built(std::move(input));
  const Room room = room_of(topology, std::vector<int>(8, 4));
  PlacementWish wish = gang_wish(8);
  CHECK(place_gang(topology, room, wish).placement->hosts.size() == 8);  // a card for each
  wish.work.overlap_seconds = 10;
  CHECK(place_gang(topology, room, wish).placement->hosts.size() == 2);
}

TEST_CASE("a search that is cut short still places, and says so") {
  const Topology topology = two_blocks();
  const Room room = room_of(topology, std::vector<int>(12, 3));
  PlacementWish wish = gang_wish(8);
  wish.tries = 1;
  const auto verdict = place_gang(topology, room, wish);
  REQUIRE(verdict.placement);
  CHECK(verdict.placement->is_search_cut);
  CHECK(has(verdict.placement->why, "the search was cut short"));
}

namespace {

/// A block of four racks of four hosts that have a quarter of their bandwidth out of the rack.
Topology four_racks() {
  TopologyInput input = tree_of({"block", "rack"});
  input.levels[1].oversubscription = 4;
  for (const std::string rack : {"r1", "r2", "r3", "r4"}) add_hosts(input, {"b", rack}, 4);
  return built(std::move(input));
}

}  // namespace

TEST_CASE("a second gang keeps off the uplink that the first one fills, and says so") {
  const Topology topology = four_racks();
  // Always sending, two hosts in each of the first two racks.
  const SendingGang first{{"ns", "a"}, {{0, 1}, {1, 1}, {4, 1}, {5, 1}}, {4e9, 1, 1}};
  const SendingGang second{{"ns", "b"}, {{2, 1}, {12, 1}}, {4e9, 1, 1}};
  std::vector<int> on_node(16, 1);
  for (const int taken : {0, 1, 2, 4, 5, 12}) on_node[as_index(taken)] = 0;
  on_node[3] = 2;  // r1, r2, r3 and r4 have room for 2, 2, 4 and 3
  on_node[8] = 0;
  on_node[9] = 0;  // and r3 for 2
  const Room room = room_of(topology, on_node);
  PlacementWish wish = gang_wish(4);
  wish.work.gradient_bytes = 4e9;
  const auto blind = place_gang(topology, room, wish);
  CHECK(blind.placement->leaves == 2);
  const Traffic traffic(topology, {first, second});
  const auto heeds = place_gang(topology, room, wish, &traffic);
  REQUIRE(heeds.placement);
  CHECK(heeds.placement->leaves == 2);
  for (const HostShare& host : heeds.placement->hosts) CHECK(host.node >= 8);  // neither r1 nor r2
  CHECK(has(heeds.placement->why, "; rather than on rack b/r1, whose uplink ns/a and ns/b use"));
  CHECK_FALSE(has(blind.placement->why, "rather"));
}

TEST_CASE("who has no choice shares a link, and hears what it costs itself and others") {
  const Topology topology = four_racks();
  const SendingGang first{{"ns", "a"}, {{0, 1}, {4, 1}}, {4e9, 1, 0.5}};
  std::vector<int> on_node(16, 0);
  for (const int free : {1, 2, 5, 6}) on_node[as_index(free)] = 1;
  PlacementWish wish = gang_wish(4);
  wish.work.gradient_bytes = 4e9;
  const Traffic traffic(topology, {first});
  const auto verdict = place_gang(topology, room_of(topology, on_node), wish, &traffic);
  CHECK_FALSE(has(verdict.placement->why, "rather"));
  CHECK(has(verdict.placement->why, " of the exchange are due to others' traffic; slows ns/a by "));
  CHECK(verdict.placement->time.exchange_seconds > verdict.placement->undisturbed_seconds);
  // Traffic that is not met changes nothing, not even the words.
  const SendingGang far{{"ns", "far"}, {{8, 1}, {12, 1}}, {4e9, 1, 0.5}};
  const Traffic elsewhere(topology, {far});
  CHECK(place_gang(topology, room_of(topology, on_node), wish, &elsewhere).placement->why ==
        place_gang(topology, room_of(topology, on_node), wish).placement->why);
}

TEST_CASE("a gang that others cannot slow still keeps off the link that they need") {
  const Topology topology = four_racks();
  // Our exchange is hidden behind computing; theirs is all of their step.
  const SendingGang first{{"ns", "a"}, {{0, 1}, {1, 1}, {4, 1}, {5, 1}}, {4e9, 1, 1}};
  std::vector<int> on_node(16, 1);
  for (const HostShare& host : first.hosts) on_node[as_index(host.node)] = 0;
  const Room room = room_of(topology, on_node);
  PlacementWish wish = gang_wish(6);
  wish.work = {4e9, 10, 100};
  const auto meets = [](const PlacementVerdict& verdict) {
    return verdict.placement->hosts.front().node < 8;  // in one of the first two racks
  };
  // Where nothing else is told, the last two fill the rest of a rack.
  CHECK(meets(place_gang(topology, room, wish)));
  const Traffic traffic(topology, {first});
  const auto heeds = place_gang(topology, room, wish, &traffic);
  CHECK_FALSE(meets(heeds));
  CHECK(heeds.placement->leaves == 2);
  CHECK(heeds.placement->slowdown.workers == 0);
  CHECK(has(heeds.placement->why, "; rather than on rack b/r"));
}

TEST_CASE("the sentence names three of those that use a link, and counts the others") {
  const Topology topology = four_racks();
  std::vector<SendingGang> many;
  for (const std::string name : {"a", "b", "c", "d", "e"}) {
    many.push_back({{"ns", name}, {{0, 1}, {4, 1}}, {4e9, 1, 1}});
  }
  std::vector<int> on_node(16, 0);
  for (const int free : {1, 2, 5, 6, 9, 10, 13, 14}) on_node[as_index(free)] = 1;
  PlacementWish wish = gang_wish(4);
  const Traffic traffic(topology, many);
  const auto verdict = place_gang(topology, room_of(topology, on_node), wish, &traffic);
  CHECK(has(verdict.placement->why, "whose uplink ns/a, ns/b, ns/c and 2 more use"));
}

TEST_CASE("room that is left is lost on gangs that are larger, by how often these come") {
  CHECK(UsualSizes().lost(5) == 0);
  const UsualSizes sizes({8, 2, 4, 4});
  CHECK(sizes.lost(0) == 0);
  CHECK(sizes.lost(1) == 1);
  CHECK(sizes.lost(3) == doctest::Approx(3 * 0.75));
  CHECK(sizes.lost(4) == doctest::Approx(4 * 0.25));
  CHECK(sizes.lost(8) == 0);
}

TEST_CASE("of places that are alike the one is taken that breaks up the least room") {
  TopologyInput input = tree_of({"block", "rack"});
  add_hosts(input, {"b", "r1"}, 1);
  add_hosts(input, {"b", "r2"}, 1);
  const Topology topology = built(std::move(input));
  const Room room = room_of(topology, {3, 4});
  PlacementWish wish = gang_wish(2);
  const auto tightest = place_gang(topology, room, wish);
  CHECK(tightest.placement->hosts == Shares{{0, 2}});
  CHECK_FALSE(has(tightest.placement->why, "breaks up"));
  // After the tightest, 1 is left, on which nobody can stand; after the other, 2 for another pair.
  const UsualSizes pairs({16, 16, 16});
  wish.usual = &pairs;
  wish.pod_size = 8;
  const auto spares = place_gang(topology, room, wish);
  CHECK(spares.placement->hosts == Shares{{1, 2}});
  CHECK(has(spares.placement->why, "; of places alike the one that breaks up the least room"));
  // Where four come, the rack with room for four is kept whole.
  const UsualSizes fours({32});
  wish.usual = &fours;
  CHECK(place_gang(topology, room, wish).placement->hosts == Shares{{0, 2}});
}

TEST_CASE("what bounds the exchange is told with how far its bandwidth is known") {
  TopologyInput input = tree_of({"rack"});
  add_hosts(input, {"r1"}, 2);
  add_hosts(input, {"r2"}, 2);
  input.levels[0].oversubscription = 4;
  const auto said = [&](const std::vector<int>& on_node) {
    const Topology topology = built(input);
    return place_gang(topology, room_of(topology, on_node), gang_wish(2)).placement->why;
  };
  const std::vector<int> one_rack{1, 1, 0, 0}, two_racks{1, 0, 1, 0};
  const std::string card = "bound by the link of host n00000 (bandwidth: confidence ";
  const std::string uplink = "bound by the uplink of rack r1 (bandwidth: confidence ";
  CHECK(has(said(one_rack), card + "low)"));
  CHECK(has(said(two_racks), uplink + "low)"));
  input.host.confidence = Confidence::kHigh;
  CHECK(has(said(one_rack), card + "high)"));
  CHECK(has(said(two_racks), uplink + "low)"));
  input.levels[0].confidence = Confidence::kHigh;
  CHECK(has(said(two_racks), uplink + "high)"));
  // NVLink's is from the table, whatever was told of cards.
  input.levels[0].is_fast = true;
  CHECK(has(said(one_rack), card + "low)"));
}
