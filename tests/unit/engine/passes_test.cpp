// Which logical ranks are computed together, and what is added to what.
#include "worker/engine/passes.h"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

using namespace muster::engine;

namespace {

/// What lies in the slots of a node's stack, as the sums written out.
std::string name_of(RankRange ranks) {
  if (ranks.size() == 1) return std::to_string(ranks.first);
  const int middle = ranks.first + ranks.size() / 2;
  return "(" + name_of({ranks.first, middle}) + "+" + name_of({middle, ranks.last}) + ")";
}

std::map<std::size_t, std::string> sums_of(const std::vector<ComputePass>& passes) {
  std::map<std::size_t, std::vector<std::string>> stacks;
  for (const ComputePass& pass : passes) {
    for (const Piece& piece : pass) {
      auto& stack = stacks[piece.node];
      REQUIRE(stack.size() == piece.slot);
      stack.push_back(name_of(piece.ranks));
      for (unsigned merge = 0; merge < piece.merges; ++merge) {
        REQUIRE(stack.size() >= 2);
        const std::string right = stack.back();
        stack.pop_back();
        stack.back() = "(" + stack.back() + "+" + right + ")";
      }
    }
  }
  std::map<std::size_t, std::string> sums;
  for (const auto& [node, stack] : stacks) {
    REQUIRE(stack.size() == 1);
    sums[node] = stack[0];
  }
  return sums;
}

}  // namespace

TEST_CASE("what fits is computed in one pass") {
  const auto passes = plan_passes({{0, 4}, {4, 5}}, 5);
  CHECK(passes == std::vector<ComputePass>{{{0, {0, 4}}, {1, {4, 5}}}});
  CHECK(plan_passes({}, 1).empty());
}

TEST_CASE("small nodes share a pass, a large one is cut into equal subtrees") {
  const auto passes = plan_passes({{3, 4}, {4, 8}, {8, 10}, {10, 11}}, 3);
  CHECK(passes == std::vector<ComputePass>{{{0, {3, 4}}},
                                           {{1, {4, 6}, 0, 0}},
                                           {{1, {6, 8}, 1, 1}},
                                           {{2, {8, 10}}, {3, {10, 11}}}});
}

TEST_CASE("the rest of a step is what its passes have not taken yet, and of that the next part") {
  const auto passes = plan_passes({{3, 4}, {4, 8}, {8, 10}}, 2);
  REQUIRE(passes.size() == 4);
  using Rest = std::vector<RestOfPiece>;
  const RestOfPiece second{{4, 6}, {0, 10}}, third{{6, 8}, {0, 10}}, fourth{{8, 10}, {0, 10}};
  CHECK(rest_of(passes, 5, {}) == Rest{{{3, 4}, {0, 5}}, second, third, fourth});
  CHECK(rest_of(passes, 5, {4}) == Rest{{{3, 4}, {4, 1}}, second, third, fourth});
  CHECK(rest_of(passes, 5, {5}) == Rest{second, third, fourth});
  CHECK(rest_of(passes, 5, {5 + 10 + 7}) == Rest{{{6, 8}, {7, 3}}, fourth});
  CHECK(rest_of(passes, 5, {34}) == Rest{{{8, 10}, {9, 1}}});
  CHECK(rest_of(passes, 5, {35}).empty());
  CHECK(rest_of(passes, 5, {7, 6}) == Rest{{{4, 6}, {2, 6}}});
  CHECK(rest_of(passes, 5, {4, 12}) == Rest{{{3, 4}, {4, 1}}, second, {{6, 8}, {0, 1}}});
}

TEST_CASE("whatever fits a pass, the pieces are added along the tree over the logical ranks") {
  for (int ranks = 1; ranks <= 64; ranks *= 2) {
    for (int processes = 1; processes <= std::min(ranks, 9); ++processes) {
      const auto assignment = assign(ranks, processes);
      REQUIRE(assignment.has_value());
      for (const auto& nodes : assignment->nodes) {
        for (int most = 1; most <= ranks; ++most) {
          CAPTURE(ranks);
          CAPTURE(processes);
          CAPTURE(most);
          const auto passes = plan_passes(nodes, most);
          const auto sums = sums_of(passes);
          REQUIRE(sums.size() == nodes.size());
          for (std::size_t k = 0; k < nodes.size(); ++k) CHECK(sums.at(k) == name_of(nodes[k]));
          for (const ComputePass& pass : passes) {
            CHECK(ranks_of(pass) <= static_cast<std::size_t>(most));
          }
        }
      }
    }
  }
}
