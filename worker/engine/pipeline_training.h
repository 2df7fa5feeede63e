// One process of a training whose model is split into the stages of a pipeline, and of which there
// may be several copies: what it keeps of the state, and the steps. The same bits as of a training
// that is not split, whatever the numbers of stages and copies.
//
// Parameters, gradients and the optimiser's state are of the own stage alone, and all of it: the
// copies of a stage sum its gradients and make the same update, as the processes of a training that
// is not split. Membership does not change here; who fails, fails for all.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "worker/comm/communicator.h"
#include "worker/engine/block_parts.h"
#include "worker/engine/exchange.h"
#include "worker/engine/optimizer.h"
#include "worker/engine/pipeline_stage.h"
#include "worker/engine/training.h"

namespace muster::engine {

/// Where a process stands. Both outlive it.
struct PipelinePlace {
  comm::Communicator& group;   ///< the stages of this copy of the model, by rank
  comm::Communicator& copies;  ///< those who have the same stage, by rank
};

/// The state of the whole model.
struct WholeState {
  std::vector<float> values;
  OptimizerState optimizer;
};

/// Threads: one. Every call but the plain getters is made by all processes together, and blocks on
/// them.  Errors: as comm::Work::wait; after one the object is of no use.
class PipelineTraining {
 public:
  /// Of the state before the first step. `config` outlives it; its memory_bytes, where they are
  /// known, are the same for all processes. Makes micro-batches that fit them where any do.
  PipelineTraining(const TrainingConfig& config, ModelShape whole, StagePlan plan,
                   PipelinePlace place, const Clock& clock);

  /// Makes the next step.  Errors, too: as data::read_sample; exit code kNumerics on all processes:
  /// loss or norm are not finite.
  Status step(const data::Dataset& data, const data::Loader& loader, std::int64_t total_steps);
  std::int64_t steps() const { return steps_; }
  int ranks_at_once() const { return ranks_at_once_; }  ///< logical ranks of a micro-batch, at most
  float loss() const { return loss_; }                  ///< mean over the batch of the last step
  float gradient_norm() const { return gradient_norm_; }  ///< before clipping; -1: not measured

  /// block_hash() of the whole model's values.
  Result<std::string> hash();
  /// For a checkpoint: the whole state on the first stage of the first copy, nothing on all others.
  Result<std::optional<WholeState>> collect();
  /// The other way round: `whole` is given on that process alone, and is of `steps` steps.
  Status deal(const WholeState* whole, std::int64_t steps);

  /// What this process keeps.
  const ModelShape& shape() const { return plan_.stages[stage()].shape; }
  std::span<const float> values() const { return values_; }

 private:
  std::size_t stage() const { return static_cast<std::size_t>(place_.group.rank()); }
  bool is_first() const { return place_.group.rank() == 0 && place_.copies.rank() == 0; }
  MonoTime deadline() const { return clock_.mono_now() + config_.peer_deadline; }
  std::uint64_t stamp() const { return static_cast<std::uint64_t>(steps_); }
  int choose_ranks(const Assignment& assignment, std::size_t rows_per_rank) const;
  Status share_loss(float batch_targets);
  Status measure();
  Status update(std::int64_t total_steps);
  using Buffers = std::vector<std::span<float>>;
  /// A stretch of one of a stage's buffers, and where it lies in the whole model's.
  struct Place {
    std::size_t buffer = 0, whole = 0, own = 0, size = 0;
  };
  Buffers own_buffers();
  std::vector<Place> places(std::size_t stage) const;

  const TrainingConfig& config_;
  const ModelShape whole_;
  const StagePlan plan_;
  PipelinePlace place_;
  const Clock& clock_;
  kernels::cpu::Context context_;
  std::vector<float> values_;  ///< of the stage
  Optimizer optimizer_;
  NodeSums sums_;
  std::optional<PipelineStage> computation_;
  std::vector<float> exchange_memory_;
  std::optional<GradientExchange> exchange_;
  int ranks_at_once_ = 1;
  std::int64_t steps_ = 0;
  float loss_ = 0, gradient_norm_ = -1, scale_ = 1;
};

}  // namespace muster::engine
