// One stage of a pipeline: its part of the gradients of a step, while the other stages of the same
// copy of the model compute theirs. Micro-batches are the passes in which a process that is not
// split computes its nodes (engine/passes), so the sums are the same bits.
//
// Transfers are waited for in the tick that has them: nothing is computed meanwhile.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/split.h"
#include "worker/comm/communicator.h"
#include "worker/data/dataset.h"
#include "worker/data/loader.h"
#include "worker/data/read_ahead.h"
#include "worker/engine/model.h"
#include "worker/engine/node_sums.h"
#include "worker/engine/passes.h"
#include "worker/engine/pipeline_schedule.h"
#include "worker/engine/stage_plan.h"
#include "worker/engine/tied_table.h"

namespace muster::engine {

/// The same for all processes with one copy of the model.
struct StageWork {
  std::vector<RankRange> nodes;  ///< of the sum, that this copy computes
  int ranks_at_once = 1;         ///< logical ranks of a micro-batch, at most
  std::size_t rows_per_rank = 1;
  std::size_t targets = 1;  ///< labels of a sample
  Pipelining pipelining = Pipelining::kOneForwardOneBackward;
  Activations activations = Activations::kKept;
  std::vector<std::size_t> sums{};  ///< by node: its number among the sums
  int threads = 1;                  ///< that compute
};

/// Bytes that a process takes for its passes, beside values and gradients.
std::size_t pass_bytes(const StagePlan& plan, int place, const StageWork& work);

/// Threads: one.
class PipelineStage {
 public:
  /// `plan` and `context` outlive it.
  PipelineStage(const StagePlan& plan, int place, StageWork work, kernels::cpu::Context& context);

  /// A step, as all stages see it.
  struct Step {
    std::uint64_t seed = 0;
    std::int64_t done = 0;      ///< steps before
    bool is_last = false;       ///< none comes after it
    float loss_scale = 1;       ///< of every label's gradient
    const data::Dataset& data;  ///< read by the first stage and by the last
    const data::Loader& loader;
    /// Told by a process of the first stage, or where the last one embeds of that: what is read.
    std::function<void(data::RankRange ranks, std::span<const std::uint64_t> samples)> on_batch;
    std::function<void()> on_alive;               ///< called often; empty: nobody asks
    std::function<Status()> between_layers = {};  ///< of a forward pass, as Model::forward
  };
  /// Computes the nodes of the work, which `sums` holds. Behind the process's values come what the
  /// first one of the last stage knows of the losses (tail.h), and 0 on all others. `group`: all
  /// with one copy, by place; `team`: those of them that have the same stage.
  /// Blocks: until `wait_max` on a neighbour, for each transfer.  Errors: as comm::Work::wait and
  /// data::read_sample; transfers may be under way then.
  Status compute(const Step& step, std::span<const float> values, NodeSums& sums,
                 comm::Communicator& group, comm::Communicator& team, const Clock& clock,
                 milliseconds wait_max);

  /// Seconds of the last compute() that were none of its own work, or went by with reading.
  struct Spent {
    double waiting = 0, reading = 0, in_turns = 0;
  };
  const Spent& spent() const { return spent_; }
  /// Of the last compute(), but for the parameters.
  const PartCounts& counts() const { return counts_; }

 private:
  Model& model(int micro_batch) {
    return models_[static_cast<std::size_t>(micro_batch) % models_.size()];
  }
  const ModelShape& shape() const { return plan_.part(place_); }
  int stage() const { return place_ / plan_.slices; }
  bool is_last() const { return stage() + 1 == plan_.size(); }
  /// Of those who do the same in parallel, the one that speaks for all.
  bool is_first_slice() const { return place_ % plan_.slices == 0; }
  Model::Batch batch(const Step& step, int micro_batch);
  void list_nodes(NodeSums& sums);
  int needed_through(const PipelineOperation& operation) const;
  Status run(const PipelineOperation& operation, const Step& step, std::span<const float> values,
             NodeSums& sums);
  Status forward(int micro_batch, const Step& step);
  Status backward(int micro_batch, const Step& step, NodeSums& sums);
  void put_losses(int micro_batch);
  Status read(int micro_batch, const Step& step);
  Status read_now(int micro_batch, const Step& step);
  Status set_row(int micro_batch, std::size_t row, const data::Dataset& data, std::size_t index);
  std::span<float> sum_in_slot(NodeSums& sums, const Piece& piece, unsigned slot) const;
  void merge(int micro_batch, NodeSums& sums, ElementRange range);
  void list_transfer(const PipelineOperation& operation);

  const StagePlan& plan_;
  const int place_;
  const StageWork work_;
  kernels::cpu::Context& context_;
  std::vector<ComputePass> passes_;  ///< the micro-batches
  PipelineShape pipeline_;
  std::vector<PipelineOperation> operations_;
  std::vector<Model> models_;  ///< as many as micro-batches are alive
  std::optional<TiedTable> table_;
  std::vector<std::vector<Model::Node>> nodes_;  ///< by micro-batch
  std::vector<std::uint64_t> indices_;           ///< the samples of a piece
  data::TakenSamples samples_taken_;             ///< of the step under way
  std::span<const float> embedded_, input_gradient_;
  Spent spent_;
  PartCounts counts_;
  int gradient_sent_ = -1, embedding_sent_ = -1;  ///< ticks in which those were, last
  const Clock* clock_ = nullptr;                  ///< likewise
  TensorTeam* team_ = nullptr;                    ///< of the step under way
  std::vector<comm::SendBuffer> sends_;           ///< of the tick under way
  std::vector<comm::ReceiveBuffer> receives_;
};

}  // namespace muster::engine
