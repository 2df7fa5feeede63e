// In which passes through the model a process computes its nodes of the sum, so that no pass has
// more logical ranks than fit its memory: gradients are accumulated along the same tree along which
// they are summed, which gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "worker/data/dataset.h"
#include "worker/data/loader.h"
#include "worker/engine/assignment.h"

namespace muster::engine {

/// A subtree of a node, or the whole node, that one pass computes. The pieces of a node are summed
/// in a stack, whose slot 0 is the node's own sum: the gradient of a piece goes to slot `slot`, and
/// then so many times the top of the stack is added to what lies below it.
struct Piece {
  std::size_t node = 0;  ///< index in the list
  RankRange ranks;
  unsigned slot = 0, merges = 0;
  bool operator==(const Piece&) const = default;
};

using ComputePass = std::vector<Piece>;

/// The passes of `nodes`, ascending and complete subtrees each. A pass has at most `ranks_most`
/// logical ranks: either several whole nodes, or one of the equal pieces of a node that has more;
/// then these are a power of two, and as many of them as the node needs follow each other. A node's
/// stack has at most log2(its ranks) slots beside slot 0. Requires: ranks_most >= 1.
std::vector<ComputePass> plan_passes(const std::vector<RankRange>& nodes, int ranks_most);

/// Logical ranks of a pass.
std::size_t ranks_of(const ComputePass& pass);
/// Of any of `passes` the most, but for the first one of each piece.
std::size_t later_ranks_most(const std::vector<ComputePass>& passes);

/// Of the samples of some logical ranks that follow each other those that are wanted.
struct RestOfPiece {
  RankRange ranks;
  data::SamplePart part;
  bool operator==(const RestOfPiece&) const = default;
};

/// A part of the samples that `passes` take.
std::vector<RestOfPiece> rest_of(const std::vector<ComputePass>& passes, std::size_t rows_per_rank,
                                 data::SamplePart part);

/// Has the samples of all passes of a step read, in their order, but for the first `taken`, and no
/// more of them than can be wanted at a time. Whoever takes a picture gives up those that were
/// wanted before it (data::ReadAhead): so those of a step are wanted before its first is taken
/// (data::take_samples), and those of the next step once its last is.  Threads: as reading.
void prefetch(const data::Dataset& samples, const data::Loader& loader, std::int64_t step,
              const std::vector<ComputePass>& passes, std::size_t taken = 0);

}  // namespace muster::engine
