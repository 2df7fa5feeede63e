#include "worker/engine/assignment.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>

using namespace muster;
using namespace muster::engine;

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

std::vector<int> lengths_of(const Assignment& assignment) {
  std::vector<int> lengths;
  for (const RankRange& range : assignment.ranges) lengths.push_back(range.size());
  return lengths;
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
  for (unsigned cuts = 0; cuts < 1u << 15; ++cuts) {
    std::vector<int> lengths{1};
    for (int rank = 1; rank < 16; ++rank) {
      if ((cuts >> (rank - 1) & 1u) != 0) {
        lengths.push_back(1);
      } else {
        ++lengths.back();
      }
    }
    const Cost cost = cost_of(lengths, 16);
    const auto found = best.find(static_cast<int>(lengths.size()));
    if (found == best.end()) {
      best.emplace(static_cast<int>(lengths.size()), cost);
    } else if (cost < found->second) {
      found->second = cost;
    }
  }
  REQUIRE(best.size() == 16);
  for (const auto& [processes, cost] : best) {
    CAPTURE(processes);
    CHECK(lengths_of(*assign(16, processes)) == std::get<2>(cost));
  }
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

TEST_CASE("more processes than logical ranks and odd numbers of them are refused") {
  CHECK_FALSE(assign(16, 17).has_value());
  CHECK_FALSE(assign(16, 0).has_value());
  CHECK_FALSE(assign(12, 2).has_value());
  CHECK_FALSE(assign(8192, 2).has_value());
  CHECK(assign(16, 17).error().message().find("17 processes cannot share 16 logical ranks") == 0);
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
