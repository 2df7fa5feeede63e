// How good a model is on the test set. What is taken of it is cut in L contiguous parts, one for
// each logical rank; sums go along the same tree as gradients, so the figure never depends on the
// processes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/engine/model.h"

namespace muster::engine {

struct Evaluation {
  double accuracy = 0;  ///< correct / labels
  float loss = 0;       ///< mean
};

/// What an evaluation has to keep to.
struct EvaluationLimits {
  const Clock& clock;
  milliseconds wait_max;  ///< for the others, once the own share is done
  /// Called before each pass, whose error ends the evaluation; empty: nobody asks.
  std::function<Status()> before_pass;
};

/// What is taken of a test set: all of it, or so many samples that stand evenly over it, because a
/// set may be sorted. The same in each evaluation.
class TestSet {
 public:
  /// `most`: 0 for all. `data` has samples, and outlives it.
  TestSet(const data::Dataset& data, std::size_t most);
  const data::Dataset& data() const { return data_; }
  std::size_t taken() const { return taken_; }
  std::size_t targets() const { return data_.targets; }
  /// Where the sample `number` of those taken stands in data().
  std::size_t index(std::size_t number) const {
    return number * (data_.count / taken_) + number * (data_.count % taken_) / taken_;
  }
  /// As data::prefetch, of [first, last) of those taken.
  void prefetch(std::size_t first, std::size_t last) const;

 private:
  const data::Dataset& data_;
  std::size_t taken_;
};

/// Samples [first, last) that logical rank `rank` of `logical_ranks` evaluates; may be empty.
struct SampleRange {
  std::size_t first = 0, last = 0;
};
SampleRange evaluated_samples(int rank, int logical_ranks, std::size_t samples);

/// Sum of L values along the complete binary tree: left half plus right half.
float tree_sum(std::span<const float> values);

/// Of the labels of logical ranks, one rank after the other, `of_rank` of each: within one a sum by
/// the kernels' rule, then the tree over them.
struct LossSums {
  float loss = 0, correct = 0;
};
LossSums sum_losses(std::span<const float> losses, std::span<const float> correct,
                    std::size_t of_rank);

/// What one of the L parts comes to.
struct PartSum {
  std::uint64_t correct = 0;
  float loss = 0;
  std::uint32_t unused = 0;  ///< no byte that crosses the wire is of unknown content
};
static_assert(sizeof(PartSum) == 16);

/// The parts [first, last) that process `rank` of `size` evaluates: an even share.
struct PartRange {
  int first = 0, last = 0;
};
PartRange evaluated_parts(int rank, int size, int logical_ranks);

/// From the own parts of `parts`, which are all that is taken: the sums of all. All processes
/// call it together.  Blocks and errors: as comm::all_gather.
Result<Evaluation> join_parts(std::vector<PartSum>& parts, const TestSet& test,
                              comm::Communicator& communicator, std::uint64_t step,
                              const EvaluationLimits& limits);

/// What a process has made of the parts of one evaluation, by number: it makes none twice, however
/// often the others are lost meanwhile.
using EvaluatedParts = std::vector<std::optional<PartSum>>;

/// All processes call it together; each takes an even share of the parts, whatever logical ranks it
/// trains, and makes of it what `made` lacks; that is of the same values and test set. Sends 16
/// bytes a part to each of the others. A large set takes longer than anybody may be silent:
/// `limits.before_pass` is called. Blocks: also on the other processes.  Errors: as
/// comm::Work::wait, Model::set_row and before_pass.
Result<Evaluation> evaluate(Model& model, std::span<const float> values, const TestSet& test,
                            EvaluatedParts& made, comm::Communicator& communicator,
                            std::uint64_t step, const EvaluationLimits& limits);

}  // namespace muster::engine
