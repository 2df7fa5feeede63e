// Gangs whose pods are in groups that stay together: by hand, and held against all placements there
// are on clusters small enough to try them.
#include "operator/core/placement_groups.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

/// What a node says of where it stands; empty: nothing. A rack is one of its block.
struct GroupHost {
  std::string block, rack;
  int room = 0;
};

struct GroupWorld {
  std::vector<GroupHost> hosts;  ///< in the topology's order
  Topology topology;
  Room room;

  explicit GroupWorld(std::vector<GroupHost> all) {
    TopologyInput input = tree_of({"block", "rack"});
    for (const GroupHost& one : all) add_hosts(input, {one.block, one.rack}, 1);
    topology = built(std::move(input));
    std::vector<int> on_node;
    for (const std::string& name : topology.nodes) {
      hosts.push_back(all[std::stoul(name.substr(1))]);
      on_node.push_back(hosts.back().room);
    }
    room = room_of(topology, on_node);
  }

  /// What tells the places for a level apart.
  std::string place(const std::string& level, int node) const {
    const GroupHost& one = hosts[as_index(node)];
    if (level == "block" && !one.block.empty()) return one.block;
    if (level == "rack" && !one.rack.empty()) return one.block + "/" + one.rack;
    return "node " + std::to_string(node);
  }
};

GroupWish each(int size, const std::string& level) {
  return {size, level, true, "spec.topology.groups[0].required"};
}
GroupWish preferably(int size, const std::string& level) {
  return {size, level, false, "spec.topology.groups[0].preferred"};
}

PlacementWish wish_of(int pods, std::vector<GroupWish> groups) {
  PlacementWish wish;
  wish.pods = pods;
  wish.groups = std::move(groups);
  return wish;
}

PlacementVerdict placed(const GroupWorld& world, const PlacementWish& wish) {
  return place_gang(world.topology, world.room, wish);
}

/// Every way to put pods on nodes, but for the order of pods in a group and of groups that are
/// alike, until one is right.
class EveryGrouping {
 public:
  EveryGrouping(const GroupWorld& world, const PlacementWish& wish, const Domain& within)
      : world_(world), wish_(wish), within_(within), left_(world.room.on_node) {
    for (const GroupWish& one : wish.groups) places_.push_back(places_for(one.level));
    if (!wish.required.empty()) places_.push_back(places_for(wish.required));
  }

  bool is_any() { return deal(0); }

 private:
  bool deal(int pod) {
    if (pod == wish_.pods) return reaches_first();
    for (int node = lowest_for(pod); node < within_.first_node + within_.nodes; ++node) {
      if (left_[as_index(node)] == 0 || !may_stand(pod, node)) continue;
      --left_[as_index(node)];
      nodes_.push_back(node);
      const bool found = deal(pod + 1);
      nodes_.pop_back();
      ++left_[as_index(node)];
      if (found) return true;
    }
    return false;
  }

  int lowest_for(int pod) const {
    for (std::size_t i = wish_.groups.size(); i-- > 0;) {
      const int size = wish_.groups[i].size;
      if (pod % size == 0 && pod >= size) return nodes_[as_index(pod - size)];
      if (pod % size == 0) return within_.first_node;
    }
    return pod == 0 ? within_.first_node : nodes_.back();
  }

  std::vector<std::string> places_for(const std::string& level) const {
    std::vector<std::string> places;
    for (std::size_t i = 0; i < world_.hosts.size(); ++i) {
      places.push_back(world_.place(level, static_cast<int>(i)));
    }
    return places;
  }

  bool may_stand(int pod, int node) const {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const bool is_group = i < wish_.groups.size();
      const int first = is_group ? pod - pod % wish_.groups[i].size : 0;
      const std::string& here = places_[i][as_index(node)];
      if (!is_group && here.starts_with("node ")) return false;
      if (first < pod && places_[i][as_index(nodes_[as_index(first)])] != here) return false;
    }
    return true;
  }

  bool reaches_first() const {
    return wish_.first.empty() || std::any_of(nodes_.begin(), nodes_.end(), [&](int node) {
             return wish_.first[as_index(node)];
           });
  }

  const GroupWorld& world_;
  const PlacementWish& wish_;
  const Domain& within_;
  std::vector<std::vector<std::string>> places_;  ///< by groups, then for the gang, and by node
  std::vector<int> left_, nodes_;
};

/// The height of the lowest domain in which there is a placement.
std::optional<int> lowest_height(const GroupWorld& world, const PlacementWish& wish) {
  std::optional<int> lowest;
  for (const Domain& domain : world.topology.domains) {
    if (lowest && *lowest <= domain.height) continue;
    if (EveryGrouping(world, wish, domain).is_any()) lowest = domain.height;
  }
  return lowest;
}

GroupWorld random_world(Rng& rng) {
  std::vector<GroupHost> hosts;
  const std::size_t count = 2 + rng.below(5);
  for (std::size_t i = 0; i < count; ++i) {
    GroupHost& host = hosts.emplace_back();
    if (rng.below(8) != 0) host.block = "b" + std::to_string(rng.below(2));
    if (!host.block.empty() && rng.below(6) != 0) host.rack = "r" + std::to_string(rng.below(2));
    host.room = static_cast<int>(rng.below(5));
  }
  return GroupWorld(hosts);
}

PlacementWish random_wish(const GroupWorld& world, Rng& rng) {
  const auto level = [&] { return std::vector{"rack", "block", "host"}[rng.below(3)]; };
  PlacementWish wish;
  int size = 2 + static_cast<int>(rng.below(2));
  wish.groups.push_back(each(size, level()));
  if (rng.below(2) == 0) {
    size *= 1 + static_cast<int>(rng.below(2));
    wish.groups.push_back(each(size, level()));
  }
  wish.pods = size * (1 + static_cast<int>(rng.below(as_index(std::max(1, 8 / size)))));
  if (rng.below(4) == 0) wish.required = rng.below(2) == 0 ? "rack" : "block";
  if (rng.below(4) == 0) {
    for (std::size_t i = 0; i < world.hosts.size(); ++i) wish.first.push_back(rng.below(3) == 0);
  }
  return wish;
}

void check_groups(const GroupWorld& world, const PlacementWish& wish, const Placement& placement) {
  const std::vector<int> nodes = placement.nodes();
  REQUIRE(nodes.size() == as_index(wish.pods));
  CHECK(std::is_sorted(nodes.begin(), nodes.end()));
  for (const HostShare& host : placement.hosts) {
    CHECK(host.pods <= world.room.on_node[as_index(host.node)]);
  }
  for (const GroupWish& one : wish.groups) {
    for (int pod = 0; pod < wish.pods; ++pod) {
      const int first = nodes[as_index(pod - pod % one.size)];
      CHECK(world.place(one.level, nodes[as_index(pod)]) == world.place(one.level, first));
    }
  }
  if (!wish.required.empty()) {
    CHECK(world.place(wish.required, nodes.front()) == world.place(wish.required, nodes.back()));
  }
  CHECK(placement.keeps_groups == std::vector<bool>(wish.groups.size(), true));
}

}  // namespace

TEST_CASE(
    "held against every placement: groups are whole, in the lowest domain that holds them so") {
  Rng rng(test::seed());
  int found = 0, refused = 0;
  for (int round = 0; round < test::tries(1'200); ++round) {
    CAPTURE(round);
    const GroupWorld world = random_world(rng);
    const PlacementWish wish = random_wish(world, rng);
    const std::optional<int> height = lowest_height(world, wish);
    const PlacementVerdict verdict = placed(world, wish);
    REQUIRE(verdict.placement.has_value() == height.has_value());
    if (!height) {
      ++refused;
      CHECK_FALSE(verdict.why_not.empty());
      continue;
    }
    ++found;
    const Placement& placement = *verdict.placement;
    check_groups(world, wish, placement);
    CHECK(world.topology.domains[as_index(placement.domain)].height == *height);
    if (wish.first.empty()) continue;
    CHECK(std::any_of(placement.hosts.begin(), placement.hosts.end(),
                      [&](const HostShare& host) { return wish.first[as_index(host.node)]; }));
  }
  MESSAGE("placed ", found, ", refused ", refused);
  CHECK(found > test::tries(300));
  CHECK(refused > test::tries(200));
}

TEST_CASE("room that only parts of groups fit into is no room, and the sentence says so") {
  const GroupWorld world({{"b0", "r0", 3}, {"b0", "r1", 3}, {"b1", "r0", 2}});
  const auto six = placed(world, wish_of(6, {each(2, "rack")}));
  REQUIRE(six.placement);
  CHECK(six.placement->hosts == std::vector<HostShare>{{0, 2}, {1, 2}, {2, 2}});
  CHECK(six.placement->why.starts_with(
      "the cluster is the lowest domain with room for 6 in whole groups (8): 3 leaf domains"));
  CHECK(placed(world, wish_of(8, {each(2, "rack")})).why_not ==
        "needs room for 8, each 2 within one rack (spec.topology.groups[0].required); there is "
        "room for 6 so, and for all of them without these groups");
  PlacementWish in_block = wish_of(6, {each(2, "rack")});
  in_block.required = "block";
  CHECK(placed(world, in_block).why_not ==
        "needs room for 6 within one block, each 2 within one rack "
        "(spec.topology.groups[0].required); there is room for 4 so, and for all of them without "
        "these groups");
  // Where there is no room either way, groups are not to blame.
  CHECK(placed(world, wish_of(10, {each(2, "rack")})).why_not ==
        "needs room for 10; the whole cluster has room for 8");
}

TEST_CASE("of groups that are preferred the larger ones are given up first") {
  const GroupWorld world({{"b0", "r0", 3}, {"b0", "r1", 3}, {"b1", "r0", 3}, {"b1", "r1", 3}});
  using Kept = std::vector<bool>;
  const auto kept = [&](int pods, const std::vector<GroupWish>& groups) {
    const auto verdict = placed(world, wish_of(pods, groups));
    REQUIRE(verdict.placement);
    return verdict.placement->keeps_groups;
  };
  CHECK(kept(8, {preferably(2, "rack"), preferably(4, "block")}) == Kept{true, true});
  // A rack holds no four, so whoever wants them whole there is not heard.
  CHECK(kept(8, {preferably(2, "rack"), preferably(4, "rack")}) == Kept{true, false});
  // Nor four pairs three, but two blocks two threes each.
  CHECK(kept(12, {preferably(2, "rack"), preferably(6, "block")}) == Kept{false, true});
  CHECK(kept(12, {preferably(2, "rack"), preferably(4, "rack")}) == Kept{false, false});
  CHECK(kept(8, {each(2, "rack"), preferably(4, "rack")}) == Kept{true, false});
  CHECK(kept(8, {preferably(2, "row"), each(4, "block")}) == Kept{false, true});
  // Either can be kept, but not both.
  const GroupWorld either({{"b0", "r0", 3}, {"b0", "r1", 1}, {"b1", "r0", 2}});
  CHECK(placed(either, wish_of(4, {each(2, "rack")})).placement);
  CHECK(placed(either, wish_of(4, {each(4, "block")})).placement);
  CHECK(placed(either, wish_of(4, {preferably(2, "rack"), preferably(4, "block")}))
            .placement->keeps_groups == Kept{true, false});
  // The gang's own level comes after them.
  PlacementWish in_block = wish_of(6, {preferably(2, "rack")});
  in_block.preferred = "block";
  const auto verdict = placed(world, in_block);
  CHECK(verdict.placement->keeps_groups == Kept{true});
  CHECK_FALSE(verdict.placement->is_wish_kept);
  CHECK(verdict.placement->why.starts_with("no block has room for all; "));
}

TEST_CASE("of many nodes with a volume those with most room around them are tried") {
  std::vector<GroupHost> hosts;
  for (int i = 10; i < 40; ++i) hosts.push_back({"b0", "r" + std::to_string(i), 2});
  hosts[28].room = hosts[29].room = 6;
  const GroupWorld world(hosts);
  PlacementWish wish = wish_of(12, {each(2, "rack")});
  wish.first.assign(hosts.size(), true);
  const auto verdict = placed(world, wish);
  REQUIRE(verdict.placement);
  CHECK(verdict.placement->branches == 2);
}

TEST_CASE("a level that no node names is no place for groups") {
  const GroupWorld world({{"b0", "r0", 4}, {"b0", "r1", 4}});
  CHECK(placed(world, wish_of(4, {each(2, "row")})).why_not ==
        "spec.topology.groups[0].required is row, and no node says in which it stands; known are "
        "block, rack, host (topology from test)");
  CHECK(placed(world, wish_of(4, {each(2, "host")})).placement);
}

TEST_CASE("beside those who stand, and within a place") {
  const GroupWorld world(
      {{"b0", "r0", 1}, {"b0", "r1", 2}, {"b1", "r0", 2}, {"b1", "r0", 1}, {"b1", "r1", 1}});
  const auto nodes = [&](const PlacementWish& wish) {
    const auto verdict = place_groups(world.topology, world.room, wish, nullptr);
    return verdict.placement ? verdict.placement->nodes() : std::vector<int>{};
  };
  PlacementWish pair = wish_of(2, {each(2, "rack")});
  pair.near = 4;
  CHECK(nodes(pair) == std::vector<int>{2, 2});
  pair.near = 0;
  CHECK(nodes(pair) == std::vector<int>{1, 1});
  PlacementWish one = wish_of(1, {});
  one.near = 2;
  CHECK(nodes(one) == std::vector<int>{2});  // rather than on the tightest
  one.near = 0;
  one.place = world.topology.leaf_of_node[3];
  CHECK(nodes(one) == std::vector<int>{3});
  one.place = static_cast<int>(world.topology.domains.size()) + 4;
  CHECK(nodes(one) == std::vector<int>{4});
  one.pods = 2;
  CHECK(nodes(one).empty());
}
