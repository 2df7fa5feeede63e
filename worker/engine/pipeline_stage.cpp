#include "worker/engine/pipeline_stage.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <utility>

#include "common/check.h"
#include "worker/engine/evaluation.h"
#include "worker/engine/tail.h"

namespace muster::engine {
namespace {

namespace cpu = kernels::cpu;

std::size_t ranks_most_of(const std::vector<ComputePass>& passes) {
  std::size_t most = 0;
  for (const ComputePass& pass : passes) most = std::max(most, ranks_of(pass));
  return most;
}

double in_seconds(nanoseconds time) { return std::chrono::duration<double>(time).count(); }

PipelineShape pipeline_of(const StagePlan& plan, const StageWork& work, std::size_t passes) {
  return {plan.size(), static_cast<int>(passes), work.pipelining, plan.is_tied};
}

TiedTable::Size table_size_of(const PipelineShape& pipeline, std::size_t ranks,
                              std::size_t rows_per_rank) {
  return {ranks * rows_per_rank, ranks, embedded_most(pipeline), tables_most(pipeline)};
}

/// What is under way, in the order in which it was begun. A stage waits for it as late as it can: a
/// backward pass takes longer than a forward pass, and its neighbours make the one while it makes
/// the other.
class Transfers {
 public:
  Transfers(const Clock& clock, milliseconds wait_max) : clock_(clock), wait_max_(wait_max) {}

  void add(int tick, std::unique_ptr<comm::Work> work) {
    work->proceed_alone();
    under_way_.emplace_back(tick, std::move(work));
  }

  Status wait_through(int tick) {
    const MonoTime began = clock_.mono_now();
    while (!under_way_.empty() && under_way_.front().first <= tick) {
      MUSTER_RETURN_IF_ERROR(under_way_.front().second->wait(clock_.mono_now() + wait_max_));
      under_way_.pop_front();
    }
    waited_ += clock_.mono_now() - began;
    return {};
  }
  nanoseconds waited() const { return waited_; }

 private:
  const Clock& clock_;
  const milliseconds wait_max_;
  nanoseconds waited_{};
  std::deque<std::pair<int, std::unique_ptr<comm::Work>>> under_way_;
};

}  // namespace

std::size_t pass_bytes(const StagePlan& plan, int place, const StageWork& work) {
  const auto passes = plan_passes(work.nodes, work.ranks_at_once);
  if (passes.empty()) return 0;
  const PipelineShape pipeline = pipeline_of(plan, work, passes.size());
  const std::size_t ranks = ranks_most_of(passes);
  const ModelShape& shape = plan.part(place);
  std::size_t bytes =
      static_cast<std::size_t>(alive_most(pipeline, place / plan.slices)) *
      Model::bytes(shape, ranks * work.rows_per_rank, work.activations, work.threads);
  if (!shape.tied_embedding()) return bytes + Model::table_bytes(shape, later_ranks_most(passes));
  return bytes + TiedTable::bytes(shape, table_size_of(pipeline, ranks, work.rows_per_rank));
}

PipelineStage::PipelineStage(const StagePlan& plan, int place, StageWork work,
                             cpu::Context& context)
    : plan_(plan),
      place_(place),
      work_(std::move(work)),
      context_(context),
      passes_(plan_passes(work_.nodes, work_.ranks_at_once)) {
  if (passes_.empty()) return;
  pipeline_ = pipeline_of(plan, work_, passes_.size());
  operations_ = pipeline_operations(pipeline_, stage());
  const std::size_t ranks = ranks_most_of(passes_);
  const auto alive = static_cast<std::size_t>(alive_most(pipeline_, stage()));
  models_.reserve(alive);
  for (std::size_t i = 0; i < alive; ++i) {
    models_.emplace_back(shape(), ranks * work_.rows_per_rank, context_, work_.activations);
  }
  if (!shape().tied_embedding()) return;
  table_.emplace(shape(), table_size_of(pipeline_, ranks, work_.rows_per_rank), context_);
}

/// Where the sum of a slot of a piece's stack is made.
std::span<float> PipelineStage::sum_in_slot(NodeSums& sums, const Piece& piece,
                                            unsigned slot) const {
  return slot == 0 ? sums.buffer(work_.sums[piece.node]) : sums.spare(slot - 1);
}

void PipelineStage::list_nodes(NodeSums& sums) {
  nodes_.clear();
  for (const ComputePass& pass : passes_) {
    auto& nodes = nodes_.emplace_back();
    std::size_t row = 0;
    for (const Piece& piece : pass) {
      const auto ranks = static_cast<std::size_t>(piece.ranks.size());
      nodes.push_back({row, ranks, sum_in_slot(sums, piece, piece.slot).data(),
                       static_cast<std::size_t>(piece.ranks.first)});
      row += ranks * work_.rows_per_rank;
    }
  }
}

Model::Batch PipelineStage::batch(const Step& step, int micro_batch) {
  const auto& nodes = nodes_[static_cast<std::size_t>(micro_batch)];
  Model::Batch batch{step.seed, step.done, work_.rows_per_rank, nodes};
  batch.team = team_;
  if (table_) batch.tables = table_->tables(micro_batch, batch.ranks());
  return batch;
}

Status PipelineStage::compute(const Step& step, std::span<const float> values, NodeSums& sums,
                              comm::Communicator& group, comm::Communicator& team,
                              const Clock& clock, milliseconds wait_max) {
  MUSTER_CHECK(group.size() == plan_.places() && group.rank() == place_);
  MUSTER_CHECK(team.size() == plan_.slices && team.rank() == place_ % plan_.slices);
  MUSTER_CHECK(sums.elements() == shape().values() + kTailSize);
  list_nodes(sums);
  for (Model& one : models_) one.use(values);
  const std::uint64_t stamp = static_cast<std::uint64_t>(step.done) + 1;
  TensorTeam together(team, clock, wait_max, stamp);
  team_ = &together;
  clock_ = &clock;
  spent_ = {};
  counts_ = {};
  gradient_sent_ = embedding_sent_ = -1;
  auto next = operations_.begin();
  const int ticks = passes_.empty() ? 0 : pipeline_ticks(pipeline_);
  Transfers transfers(clock, wait_max);
  for (int tick = 0; tick < ticks; ++tick) {
    sends_.clear();
    receives_.clear();
    for (; next != operations_.end() && next->tick == tick; ++next) {
      MUSTER_RETURN_IF_ERROR(transfers.wait_through(needed_through(*next)));
      MUSTER_RETURN_IF_ERROR(run(*next, step, values, sums));
    }
    // Also where there is nothing to transfer: groups have the same numbers on all stages.
    MUSTER_ASSIGN_OR_RETURN(auto work, group.start(stamp, comm::Memory::kHost, sends_, receives_));
    if (!sends_.empty() || !receives_.empty()) transfers.add(tick, std::move(work));
  }
  MUSTER_RETURN_IF_ERROR(transfers.wait_through(ticks));
  spent_.waiting = in_seconds(transfers.waited() + together.waited());
  spent_.in_turns = in_seconds(together.in_turns());
  const std::int64_t handed_on = counts_.handed_on_bytes;
  counts_ = together.counts();
  counts_.handed_on_bytes = handed_on;
  counts_.micro_batches = pipeline_.micro_batches;
  for (const std::size_t k : work_.sums) sums.set_computed(k);
  return {};
}

/// The tick whose transfers, and those of all before, must be over: they bring what the operation
/// takes, or send what it writes over.
int PipelineStage::needed_through(const PipelineOperation& operation) const {
  switch (operation.action) {
    case PipelineAction::kForward:
      return stage() > 0 || pipeline_.is_tied ? operation.tick - 1 : -1;
    case PipelineAction::kBackward:
      return is_last() ? gradient_sent_ : operation.tick - 1;
    case PipelineAction::kEmbed:
      return embedding_sent_;
    case PipelineAction::kFinishTable:
      return operation.tick - 1;
    default:
      return -1;
  }
}

Status PipelineStage::run(const PipelineOperation& operation, const Step& step,
                          std::span<const float> values, NodeSums& sums) {
  const int m = operation.micro_batch;
  if (step.on_alive) step.on_alive();
  switch (operation.action) {
    case PipelineAction::kForward:
      return forward(m, step);
    case PipelineAction::kBackward:
      return backward(m, step, sums);
    case PipelineAction::kEmbed: {
      MUSTER_RETURN_IF_ERROR(read(m, step));
      MUSTER_ASSIGN_OR_RETURN(embedded_, table_->embed(m, values, batch(step, m).rows(), *team_));
      return {};
    }
    case PipelineAction::kFinishTable:
      table_->finish(m, batch(step, m));
      merge(m, sums, {0, TiedTable::end_of(shape())});
      return {};
    default:
      list_transfer(operation);
      return {};
  }
}

/// The samples of a micro-batch, as far as this stage wants them.
Status PipelineStage::read(int micro_batch, const Step& step) {
  const MonoTime began = clock_->mono_now();
  const Status done = read_now(micro_batch, step);
  spent_.reading += in_seconds(clock_->mono_now() - began);
  return done;
}

Status PipelineStage::read_now(int micro_batch, const Step& step) {
  std::size_t row = 0;
  const bool reads_inputs = table_ || shape().is_begin();  // else the labels alone
  if (micro_batch == 0) samples_taken_ = {};
  const auto want_rest = [&] {
    if (reads_inputs) prefetch(step.data, step.loader, step.done, passes_, samples_taken_.count);
  };
  const auto take = [&](std::uint64_t index) {
    return set_row(micro_batch, row++, step.data, index);
  };
  for (const Piece& piece : passes_[static_cast<std::size_t>(micro_batch)]) {
    indices_.resize(static_cast<std::size_t>(piece.ranks.size()) * work_.rows_per_rank);
    step.loader.samples(step.done, piece.ranks, indices_);
    MUSTER_RETURN_IF_ERROR(data::take_samples(indices_, samples_taken_, want_rest, take));
    if (reads_inputs && is_first_slice() && step.on_batch) step.on_batch(piece.ranks, indices_);
  }
  const bool is_last_read = micro_batch + 1 == static_cast<int>(passes_.size());
  if (reads_inputs && is_last_read && !step.is_last) {
    prefetch(step.data, step.loader, step.done + 1, passes_);
  }
  return {};
}

Status PipelineStage::set_row(int micro_batch, std::size_t row, const data::Dataset& data,
                              std::size_t index) {
  if (table_) return table_->set_row(micro_batch, row, data, index);
  if (shape().is_begin()) return model(micro_batch).set_row(row, data, index);
  std::copy_n(data.labels_of(index), work_.targets,
              model(micro_batch).labels().data() + row * work_.targets);
  return {};
}

Status PipelineStage::forward(int micro_batch, const Step& step) {
  Model& own = model(micro_batch);
  if (table_) {
    std::ranges::copy(table_->labels(micro_batch), own.labels().begin());
  } else if (shape().is_begin() || shape().is_end()) {
    MUSTER_RETURN_IF_ERROR(read(micro_batch, step));
  }
  return own.forward(batch(step, micro_batch), step.between_layers);
}

Status PipelineStage::backward(int micro_batch, const Step& step, NodeSums& sums) {
  Model& own = model(micro_batch);
  const Model::Batch batch_of = batch(step, micro_batch);
  if (is_last()) own.losses_with_gradient(batch_of, step.loss_scale);
  put_losses(micro_batch);
  input_gradient_ = own.backward(batch_of);
  MUSTER_RETURN_IF_ERROR(team_->status());
  merge(micro_batch, sums, {table_ ? TiedTable::end_of(shape()) : 0, sums.elements()});
  return {};
}

/// Behind the values of each piece's sum.
void PipelineStage::put_losses(int micro_batch) {
  const Model& own = model(micro_batch);
  const std::size_t of_rank = work_.rows_per_rank * work_.targets;
  for (const Model::Node& node : nodes_[static_cast<std::size_t>(micro_batch)]) {
    LossSums losses;
    if (is_last() && is_first_slice()) {
      const std::size_t first = node.first_row * work_.targets, count = node.ranks * of_rank;
      losses = sum_losses(own.loss().subspan(first, count), own.correct().subspan(first, count),
                          of_rank);
    }
    const std::span tail(node.gradient + shape().values(), kTailSize);
    std::fill(tail.begin(), tail.end(), 0.0f);
    tail[kTailLoss] = losses.loss;
    tail[kTailCorrect] = losses.correct;
  }
}

/// Adds up the elements of `range` of the subtrees that a micro-batch completes.
void PipelineStage::merge(int micro_batch, NodeSums& sums, ElementRange range) {
  for (const Piece& piece : passes_[static_cast<std::size_t>(micro_batch)]) {
    for (unsigned slot = piece.slot; slot > piece.slot - piece.merges; --slot) {
      float* const left = sum_in_slot(sums, piece, slot - 1).data() + range.begin;
      cpu::add(context_, range.size(), left, sum_in_slot(sums, piece, slot).data() + range.begin,
               left);
    }
  }
}

void PipelineStage::list_transfer(const PipelineOperation& operation) {
  const int m = operation.micro_batch;
  const int peer = operation.peer * plan_.slices + place_ % plan_.slices;
  const auto& nodes = nodes_[static_cast<std::size_t>(m)];
  const std::size_t rows = nodes.back().first_row + nodes.back().ranks * work_.rows_per_rank;
  // The last stage puts nothing out but what it embeds, and is given no other gradient than of
  // that.
  const auto send = [&](std::span<const float> values) {
    sends_.push_back({peer, values.data(), values.size_bytes()});
  };
  const auto receive = [&](std::span<float> values, std::size_t columns) {
    receives_.push_back({peer, values.data(), rows * columns * sizeof(float)});
  };
  switch (operation.action) {
    case PipelineAction::kSendActivations:
      if (table_) embedding_sent_ = operation.tick;
      send(table_ ? embedded_ : model(m).output().first(rows * shape().output().size()));
      counts_.handed_on_bytes += static_cast<std::int64_t>(sends_.back().bytes);
      return;
    case PipelineAction::kReceiveActivations:
      receive(model(m).input(), shape().input().size());
      return;
    case PipelineAction::kSendGradient:
      gradient_sent_ = operation.tick;
      send(input_gradient_);
      return;
    default:
      if (table_) return receive(table_->gradient(), shape().tied_embedding()->out.size());
      receive(model(m).output_gradient(), shape().output().size());
  }
}

}  // namespace muster::engine
