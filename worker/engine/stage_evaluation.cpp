#include "worker/engine/stage_evaluation.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "kernels/running_sum.h"
#include "worker/engine/tied_table.h"

namespace muster::engine {
namespace {

/// Samples that go from stage to stage together; all of one part.
struct Chunk {
  std::size_t part = 0, first = 0, rows = 0;
};

std::vector<Chunk> chunks_of(PartRange own, int logical_ranks, std::size_t samples,
                             std::size_t rows) {
  std::vector<Chunk> chunks;
  for (int part = own.first; part < own.last; ++part) {
    const SampleRange of = evaluated_samples(part, logical_ranks, samples);
    for (std::size_t at = of.first; at < of.last; at += rows) {
      chunks.push_back({static_cast<std::size_t>(part), at, std::min(rows, of.last - at)});
    }
  }
  return chunks;
}

/// What one stage does for the chunks of its copy.
class StagePasser {
 public:
  StagePasser(const StageSeat& seat, kernels::cpu::Context& context, std::span<const float> values,
              const TestSet& test, std::size_t rows, TensorTeam& team)
      : group_(seat.group),
        team_(team),
        values_(values),
        test_(test),
        model_(group_.shape(), rows, context, seat.activations) {
    model_.use(values);
    if (!group_.shape().tied_embedding()) return;
    // What is embedded waits until it has come through all stages.
    table_.emplace(group_.shape(), TiedTable::Size{rows, 0, group_.plan.size() + 1, 0}, context);
  }

  /// All samples of `chunks`, whose sums come into `parts` on the last stage.
  Status pass(const std::vector<Chunk>& chunks, std::vector<PartSum>& parts, std::uint64_t stamp,
              const EvaluationLimits& limits);

 private:
  bool is_last() const { return stage() + 1 == group_.plan.size(); }
  int stage() const { return group_.stage(); }
  /// Of another stage, the process that has the same slice.
  int at_stage(int stage) const {
    const int slices = group_.plan.slices;
    return stage * slices + group_.place() % slices;
  }
  /// Before the first stage computes a chunk, a last one that embeds has a tick for it.
  int lead() const { return group_.plan.is_tied ? 1 : 0; }
  Status embed(int number, const Chunk& chunk);
  Status compute(int number, const Chunk& chunk);
  void sum(const Chunk& chunk, std::vector<PartSum>& parts);
  void list_transfers(const std::vector<Chunk>& chunks, int tick);

  const StageGroup& group_;
  TensorTeam& team_;
  const std::span<const float> values_;
  const TestSet& test_;
  Model model_;
  std::optional<TiedTable> table_;
  std::span<const float> embedded_;
  std::size_t part_ = 0;             ///< under way on the last stage
  kernels::cpu::RunningSum losses_;  ///< of it
  std::vector<comm::SendBuffer> sends_;
  std::vector<comm::ReceiveBuffer> receives_;
};

const Chunk* chunk_at(const std::vector<Chunk>& chunks, int number) {
  const bool is_one = number >= 0 && number < static_cast<int>(chunks.size());
  return is_one ? &chunks[static_cast<std::size_t>(number)] : nullptr;
}

Status StagePasser::pass(const std::vector<Chunk>& chunks, std::vector<PartSum>& parts,
                         std::uint64_t stamp, const EvaluationLimits& limits) {
  const int ticks =
      chunks.empty() ? 0 : static_cast<int>(chunks.size()) + group_.plan.size() + lead();
  for (int tick = 0; tick < ticks; ++tick) {
    MUSTER_RETURN_IF_ERROR(limits.before_pass ? limits.before_pass() : Status());
    if (const Chunk* chunk = table_ ? chunk_at(chunks, tick) : nullptr) {
      MUSTER_RETURN_IF_ERROR(embed(tick, *chunk));
    }
    const int number = tick - lead() - stage();
    if (const Chunk* chunk = chunk_at(chunks, number)) {
      MUSTER_RETURN_IF_ERROR(compute(number, *chunk));
      if (is_last()) sum(*chunk, parts);
    }
    list_transfers(chunks, tick);
    MUSTER_ASSIGN_OR_RETURN(const auto work,
                            group_.processes.start(stamp, comm::Memory::kHost, sends_, receives_));
    MUSTER_RETURN_IF_ERROR(work->wait(limits.clock.mono_now() + limits.wait_max));
  }
  return {};
}

/// For the first stage, which has no table of its own.
Status StagePasser::embed(int number, const Chunk& chunk) {
  for (std::size_t row = 0; row < chunk.rows; ++row) {
    MUSTER_RETURN_IF_ERROR(
        table_->set_row(number, row, test_.data(), test_.index(chunk.first + row)));
  }
  MUSTER_ASSIGN_OR_RETURN(embedded_, table_->embed(number, values_, chunk.rows, team_));
  return {};
}

Status StagePasser::compute(int number, const Chunk& chunk) {
  const std::size_t targets = test_.targets();
  if (group_.shape().is_begin()) test_.prefetch(chunk.first, chunk.first + chunk.rows);
  for (std::size_t row = 0; row < chunk.rows && !table_; ++row) {
    const std::size_t index = test_.index(chunk.first + row);
    if (group_.shape().is_begin()) {
      MUSTER_RETURN_IF_ERROR(model_.set_row(row, test_.data(), index));
    } else if (is_last()) {
      std::copy_n(test_.data().labels_of(index), targets, model_.labels().data() + row * targets);
    }
  }
  if (table_) {
    std::copy_n(table_->labels(number).begin(), chunk.rows * targets, model_.labels().begin());
  }
  model_.forward(chunk.rows, &team_);
  MUSTER_RETURN_IF_ERROR(team_.status());
  if (is_last()) model_.losses(chunk.rows, &team_);
  return team_.status();
}

void StagePasser::sum(const Chunk& chunk, std::vector<PartSum>& parts) {
  if (part_ != chunk.part) losses_ = {};
  part_ = chunk.part;
  const std::size_t count = chunk.rows * test_.targets();
  losses_.add(model_.loss().first(count));
  PartSum& part = parts[chunk.part];
  part.loss = losses_.value();
  for (const float correct : model_.correct().first(count)) part.correct += correct > 0 ? 1 : 0;
}

/// What was computed in this tick goes to who computes with it in the next one.
void StagePasser::list_transfers(const std::vector<Chunk>& chunks, int tick) {
  sends_.clear();
  receives_.clear();
  const std::size_t input = group_.shape().input().size(), output = group_.shape().output().size();
  const int number = tick - lead() - stage();
  const Chunk* const done = chunk_at(chunks, number);
  const Chunk* const next = chunk_at(chunks, number + 1);
  const Chunk* const begun = chunk_at(chunks, tick);
  if (table_ && begun != nullptr) {
    sends_.push_back({at_stage(0), embedded_.data(), embedded_.size_bytes()});
  }
  if (done != nullptr && !is_last()) {
    sends_.push_back(
        {at_stage(stage() + 1), model_.output().data(), done->rows * output * sizeof(float)});
  }
  const int from = at_stage(stage() > 0 ? stage() - 1 : group_.plan.size() - 1);
  if (next != nullptr && (stage() > 0 || group_.plan.is_tied)) {
    receives_.push_back({from, model_.input().data(), next->rows * input * sizeof(float)});
  }
}

}  // namespace

Result<Evaluation> evaluate_stages(const StageSeat& seat, kernels::cpu::Context& context,
                                   std::span<const float> values, const TestSet& test,
                                   int logical_ranks, std::size_t rows, std::uint64_t step,
                                   const EvaluationLimits& limits) {
  const PartRange own = evaluated_parts(seat.copies.rank(), seat.copies.size(), logical_ranks);
  std::vector<PartSum> parts(static_cast<std::size_t>(logical_ranks));
  TensorTeam team(seat.team, limits.clock, limits.wait_max, step);
  StagePasser passer(seat, context, values, test, rows, team);
  MUSTER_RETURN_IF_ERROR(
      passer.pass(chunks_of(own, logical_ranks, test.taken(), rows), parts, step, limits));
  // The last stages have the sums of all copies, and tell the others of their own.
  Evaluation all;
  comm::Communicator& group = seat.group.processes;
  if (group.rank() + 1 == group.size()) {
    MUSTER_ASSIGN_OR_RETURN(all, join_parts(parts, test, seat.copies, step, limits));
  }
  MUSTER_RETURN_IF_ERROR(comm::broadcast(group, step, group.size() - 1,
                                         std::as_writable_bytes(std::span(&all, 1)),
                                         limits.clock.mono_now() + limits.wait_max));
  return all;
}

}  // namespace muster::engine
