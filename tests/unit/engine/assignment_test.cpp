#include "worker/engine/assignment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/engine/lengths.h"

using namespace muster;
using namespace muster::engine;
using test::lengths_of;

namespace {

/// Complete subtrees of `range` below [first, first + length), by going down the tree.
int nodes_below(RankRange range, int first, int length) {
  if (range.last <= first || range.first >= first + length) return 0;
  if (range.first <= first && range.last >= first + length) return 1;
  return nodes_below(range, first, length / 2) + nodes_below(range, first + length / 2, length / 2);
}

/// (longest, nodes, lengths): what assign minimises, in this order.
using Cost = std::tuple<int, int, std::vector<int>>;

Cost cost_of(const std::vector<int>& lengths, int logical_ranks) {
  int first = 0;
  int nodes = 0;
  for (const int length : lengths) {
    nodes += nodes_below({first, first + length}, 0, logical_ranks);
    first += length;
  }
  return {*std::max_element(lengths.begin(), lengths.end()), nodes, lengths};
}

/// The lengths of all divisions of 16 logical ranks.
std::vector<std::vector<int>> divisions_of_16() {
  std::vector<std::vector<int>> divisions;
  for (unsigned cuts = 0; cuts < 1u << 15; ++cuts) {
    std::vector<int> lengths{1};
    for (int rank = 1; rank < 16; ++rank) {
      if ((cuts >> (rank - 1) & 1u) != 0) {
        lengths.push_back(1);
      } else {
        ++lengths.back();
      }
    }
    divisions.push_back(std::move(lengths));
  }
  return divisions;
}

/// The sum of a tree as text: "(0+1)" and so on, which shows order and grouping.
std::string tree_text(int first, int length) {
  if (length == 1) return std::to_string(first);
  return "(" + tree_text(first, length / 2) + "+" + tree_text(first + length / 2, length / 2) + ")";
}

std::string run_passes(const std::vector<HeldNode>& nodes) {
  std::vector<std::string> values;
  for (const HeldNode& node : nodes) {
    values.push_back(tree_text(node.ranks.first, node.ranks.size()));
  }
  std::size_t result = 0;
  for (const SumPass& pass : sum_passes(nodes)) {
    std::vector<std::string> stack;
    for (const std::int8_t entry : pass.order) {
      if (entry >= 0) {
        const int node = pass.inputs.at(static_cast<std::size_t>(entry));
        stack.push_back(values.at(static_cast<std::size_t>(node)));
        continue;
      }
      REQUIRE(stack.size() >= 2);
      const std::string right = stack.back();
      stack.pop_back();
      stack.back() = "(" + stack.back() + "+" + right + ")";
      CHECK(stack.size() <= 64);
    }
    REQUIRE(stack.size() == 1);
    result = static_cast<std::size_t>(pass.inputs.at(0));
    values.at(result) = stack.back();
  }
  return values.at(result);
}

}  // namespace

TEST_CASE("an assignment of 16 logical ranks is the best of all possible ones") {
  std::map<int, Cost> best;
  for (const auto& lengths : divisions_of_16()) {
    const Cost cost = cost_of(lengths, 16);
    const auto found = best.try_emplace(static_cast<int>(lengths.size()), cost).first;
    found->second = std::min(found->second, cost);
  }
  REQUIRE(best.size() == 16);
  for (const auto& [processes, cost] : best) {
    CAPTURE(processes);
    CHECK(lengths_of(*assign(16, processes)) == std::get<2>(cost));
  }
}

TEST_CASE("where each process has a limit, an assignment has the fewest nodes of those within") {
  const auto divisions = divisions_of_16();
  for (const std::vector<int>& most : std::vector<std::vector<int>>{{16},
                                                                    {12, 4},
                                                                    {3, 13},
                                                                    {8, 8, 2},
                                                                    {7, 7, 2},
                                                                    {1, 20, 1},
                                                                    {5, 5, 5, 5},
                                                                    {1, 2, 3, 4, 6},
                                                                    {9, 3, 9, 1}}) {
    std::optional<std::pair<int, std::vector<int>>> best;
    for (const auto& lengths : divisions) {
      if (lengths.size() != most.size()) continue;
      if (!std::ranges::equal(lengths, most, std::less_equal())) continue;
      const auto cost = std::make_pair(std::get<1>(cost_of(lengths, 16)), lengths);
      best = best ? std::min(*best, cost) : cost;
    }
    REQUIRE(best.has_value());
    CHECK(lengths_of(*assign_within(16, most)) == best->second);
  }
  CHECK_FALSE(assign_within(16, {}).has_value());
  CHECK_FALSE(assign_within(16, {7, 8}).has_value());
  CHECK_FALSE(assign_within(2, {1, 1, 1}).has_value());
}

TEST_CASE("every assignment covers all logical ranks once, and its nodes are complete subtrees") {
  for (const int logical_ranks : {1, 2, 4, 8, 16, 32, 64, 128, 256, 1024}) {
    for (int processes = 1; processes <= std::min(logical_ranks, 70); ++processes) {
      const auto assignment = assign(logical_ranks, processes);
      REQUIRE(assignment.has_value());
      REQUIRE(assignment->processes() == processes);
      int next = 0;
      for (const HeldNode& node : held_nodes(*assignment)) {
        CHECK(node.ranks.first == next);
        CHECK(node.ranks.first % node.ranks.size() == 0);
        CHECK((node.ranks.size() & (node.ranks.size() - 1)) == 0);
        next = node.ranks.last;
      }
      CHECK(next == logical_ranks);
    }
  }
}

TEST_CASE("processes beyond the logical ranks are spares; odd numbers of ranks are refused") {
  const auto spare = assign(4, 6);
  REQUIRE(spare.has_value());
  CHECK(lengths_of(*spare) == std::vector<int>{1, 1, 1, 1, 0, 0});
  CHECK_FALSE(assign(16, 0).has_value());
  CHECK_FALSE(assign(12, 2).has_value());
  CHECK_FALSE(assign(8192, 2).has_value());
}

TEST_CASE("whoever holds the nodes, the sum is the same tree") {
  for (const int logical_ranks : {1, 2, 8, 16, 64}) {
    for (int processes = 1; processes <= logical_ranks; ++processes) {
      CHECK(run_passes(held_nodes(*assign(logical_ranks, processes))) ==
            tree_text(0, logical_ranks));
    }
  }
}

TEST_CASE("more nodes than one program can name are summed in several passes") {
  const auto nodes = held_nodes(*assign(512, 300));
  CHECK(nodes.size() > 127);
  CHECK(sum_passes(nodes).size() > 1);
  CHECK(run_passes(nodes) == tree_text(0, 512));
}

namespace {

/// The even assignment of `processes`, without the nodes of those in `dead` (a bit each).
std::vector<std::vector<RankRange>> survivors(int logical_ranks, int processes, unsigned dead) {
  std::vector<std::vector<RankRange>> held;
  const Assignment all = *assign(logical_ranks, processes);
  for (int p = 0; p < processes; ++p) {
    if ((dead >> p & 1u) == 0) held.push_back(all.nodes[static_cast<std::size_t>(p)]);
  }
  return held;
}

}  // namespace

TEST_CASE("a repaired step keeps what survivors hold and deals out the rest evenly") {
  for (const int logical_ranks : {8, 16, 64}) {
    for (int processes = 2; processes <= 8; ++processes) {
      for (unsigned dead = 1; dead + 1 < 1u << processes; ++dead) {
        const auto held = survivors(logical_ranks, processes, dead);
        const Assignment repaired = repair(logical_ranks, held);
        REQUIRE(repaired.processes() == static_cast<int>(held.size()));
        int lost = logical_ranks;
        for (const auto& nodes : held) lost -= count_ranks(nodes);
        const auto sharing = static_cast<int>(held.size());
        int most = 0;
        for (std::size_t p = 0; p < held.size(); ++p) {
          const auto& nodes = repaired.nodes[p];
          for (const RankRange& node : held[p]) {
            CHECK(std::find(nodes.begin(), nodes.end(), node) != nodes.end());
          }
          most = std::max(most, count_ranks(nodes) - count_ranks(held[p]));
        }
        // Pieces are subtrees: at worst one piece more than the even share.
        CHECK(most < 2 * ((lost + sharing - 1) / sharing));
        CHECK(run_passes(held_nodes(repaired)) == tree_text(0, logical_ranks));
      }
    }
  }
}

TEST_CASE("what two processes hold is the lower one's, and a node inside another is dropped") {
  const Assignment repaired = repair(8, {{{0, 2}}, {{0, 4}, {4, 6}}, {}});
  CHECK(repaired.nodes[0] == std::vector<RankRange>{{0, 2}, {2, 4}});
  CHECK(repaired.nodes[1] == std::vector<RankRange>{{4, 6}, {6, 8}});
  CHECK(repaired.nodes[2].empty());
}
