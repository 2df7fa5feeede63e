// The evaluation of a model that is split: the same figures as of one that is not. Each copy takes
// an even share of the parts, and passes their samples from stage to stage: while one stage
// computes some, the next one computes those before them.
#pragma once

#include <span>

#include "worker/engine/evaluation.h"
#include "worker/engine/stage_state.h"

namespace muster::engine {

/// Where a process stands. Both outlive the call.
struct StageSeat {
  const StageGroup& group;
  comm::Communicator& team;    ///< those of the group that have the same stage
  comm::Communicator& copies;  ///< those who have the same place, by copy
  Activations activations = Activations::kKept;
};

/// All processes call it together. `rows`: samples that are passed on at once.  Shape: values
/// (process's values).
/// Blocks: also on the other processes.  Errors: as comm::Work::wait and data::read_sample.
Result<Evaluation> evaluate_stages(const StageSeat& seat, kernels::cpu::Context& context,
                                   std::span<const float> values, const TestSet& test,
                                   int logical_ranks, std::size_t rows, std::uint64_t step,
                                   const EvaluationLimits& limits);

}  // namespace muster::engine
