// Who computes which logical ranks, and in which order their gradients are added. Pure functions of
// the number of logical ranks and of processes: every process computes them for itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/result.h"
#include "worker/data/loader.h"

namespace muster::engine {

using data::RankRange;

/// The complete subtrees of the binary tree over the logical ranks that make up `range`: the
/// fewest, in ascending order. Each is a power of two long and starts at a multiple of its length.
std::vector<RankRange> covers(RankRange range);

struct Assignment {
  int logical_ranks = 1;
  /// By process: complete subtrees, ascending; together every logical rank once. A process may have
  /// none: a hot spare, that follows and computes nothing.
  std::vector<std::vector<RankRange>> nodes;
  int processes() const { return static_cast<int>(nodes.size()); }
};

/// Divides L logical ranks among P processes, a contiguous range each: the longest range as short
/// as possible, then the fewest sum nodes over all processes (each node's gradient is sent), then
/// the lexicographically smallest lengths. Processes beyond L are spares.
/// Errors: kInvalid when L is no power of two.
Result<Assignment> assign(int logical_ranks, int processes);

/// The same where process p takes `most[p]` logical ranks at most (1 or more), and 1 at least: the
/// fewest sum nodes first. Nothing where together they cannot take all, or there are more processes
/// than logical ranks. L is a power of two.
std::optional<Assignment> assign_within(int logical_ranks, const std::vector<int>& most);

/// Who finishes a step that was begun under another membership: `held[p]` are the nodes that
/// process p has computed already and keeps (a node that two hold is the lower one's); what nobody
/// holds is cut into subtrees and dealt out, the most that anyone gets as little as possible.
Assignment repair(int logical_ranks, const std::vector<std::vector<RankRange>>& held);

/// Logical ranks of `nodes`.
int count_ranks(const std::vector<RankRange>& nodes);

/// A node of the sum and the process that holds it.
struct HeldNode {
  int process = 0;
  RankRange ranks;
};

/// All nodes of an assignment in ascending order of logical ranks.
std::vector<HeldNode> held_nodes(const Assignment& assignment);

/// One call of kernels' sum_nodes: the sum of `inputs` (indices into held_nodes) by `order` becomes
/// the value of node `inputs[0]`.
struct SumPass {
  std::vector<int> inputs;
  std::vector<std::int8_t> order;
};

/// The tree over `nodes`, which cover a complete subtree, as a rule all: usually one pass; more
/// where the nodes outnumber what one program can name. After the last pass its inputs[0] holds the
/// sum. No pass: one node.
std::vector<SumPass> sum_passes(const std::vector<HeldNode>& nodes);

}  // namespace muster::engine
