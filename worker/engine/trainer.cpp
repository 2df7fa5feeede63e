// The training loop: state and step, and what happens between steps.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "common/contract.h"
#include "worker/data/dataset.h"
#include "worker/data/loader.h"
#include "worker/engine/agreement.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/checkpoint.h"
#include "worker/engine/evaluation.h"
#include "worker/engine/exchange.h"
#include "worker/engine/files.h"
#include "worker/engine/float_environment.h"
#include "worker/engine/identity.h"
#include "worker/engine/mlp.h"
#include "worker/engine/record.h"
#include "worker/engine/training.h"

namespace muster::engine {
namespace {

namespace cpu = kernels::cpu;

/// Statistics that are summed with the gradients, behind the last parameter.
enum Tail : std::size_t { kTailLoss, kTailCorrect, kTailStop, kTailSize };

/// Rows of one forward pass of the evaluation, where the training has fewer.
constexpr std::size_t kEvaluationRows = 256;

/// The arithmetic that the numerics contract rests on: denormals kept, rounding to nearest even.
/// An object linked with -ffast-math breaks it for the whole process.
Status check_arithmetic() {
  volatile float denormal = 0x1p-140f;
  volatile float tie = 0x1.000002p0f;
  const bool keeps = denormal * 0.5f == 0x1p-141f;
  const bool rounds = 1.0f + 0x1p-24f * tie == 0x1.000002p0f && tie + 0x1p-24f == 0x1.000004p0f;
  if (keeps && rounds) return {};
  return Error(ErrorCode::kUnsupported,
               "the processor flushes denormals or does not round to nearest even; a library set "
               "it so, and this build cannot train by " +
                   std::string(contract::kNumericsContract))
      .with_exit_code(contract::exit_code::kCpuOrContract);
}

class Trainer {
 public:
  Trainer(const TrainingConfig& config, comm::Communicator& communicator, const Clock& clock,
          const TrainingHooks& hooks)
      : config_(config),
        communicator_(communicator),
        clock_(clock),
        hooks_(hooks),
        context_(std::max(1, config.threads)) {}

  Result<TrainingSummary> run() {
    MUSTER_RETURN_IF_ERROR(check_arithmetic());
    Status ready = load_data();
    if (ready) ready = prepare();
    MUSTER_RETURN_IF_ERROR(agree_all_well(communicator_, ready, "start", deadline()));
    MUSTER_RETURN_IF_ERROR(agree_equal(communicator_, configuration_digest(config_, shape()),
                                       "training specs", contract::exit_code::kInvalidSpec,
                                       deadline()));
    MUSTER_RETURN_IF_ERROR(agree_equal(communicator_, data_digest_, "training data",
                                       contract::exit_code::kData, deadline()));
    MUSTER_RETURN_IF_ERROR(restore());
    if (hooks_.on_start) hooks_.on_start(summary());
    bool stopped = false;
    while (step_ < total_steps_ && !stopped) {
      MUSTER_RETURN_IF_ERROR(train_step(stopped));
    }
    return finish(stopped && step_ < total_steps_);
  }

 private:
  bool first() const { return communicator_.rank() == 0; }
  MonoTime deadline() const { return clock_.mono_now() + config_.peer_deadline; }
  const MlpShape& shape() const { return shape_; }
  RankRange range() const {
    return assignment_.ranges[static_cast<std::size_t>(communicator_.rank())];
  }

  Status load_data();
  Status prepare();
  Status restore();
  Status restore_first();
  Status train_step(bool& stopped);
  void read_batch();
  void compute(bool stop_requested);
  Status between_steps(StepReport& report, bool stopped);
  void record_step(const StepReport& report);
  void remember(const Status& recorded);
  Status evaluate_now();
  Status save();
  Status save_first();
  Result<TrainingSummary> finish(bool stopped);
  TrainingSummary summary() const;

  const TrainingConfig& config_;
  comm::Communicator& communicator_;
  const Clock& clock_;
  const TrainingHooks& hooks_;
  cpu::Context context_;

  data::Dataset train_, test_;
  Sha256Digest data_digest_{};
  MlpShape shape_;
  Assignment assignment_;
  std::optional<data::Loader> loader_;
  std::optional<Mlp> model_;
  std::optional<GradientExchange> exchange_;
  std::optional<CheckpointStore> store_;
  Record record_;
  std::optional<Error> record_error_;  ///< told to all with the next checkpoint
  std::vector<float> parameters_, velocity_;
  std::vector<std::uint64_t> indices_;
  std::vector<float> rank_losses_, rank_correct_;
  std::vector<Mlp::Node> nodes_;

  std::int64_t step_ = 0, total_steps_ = 0;
  std::int64_t restored_step_ = -1, checkpoint_step_ = -1, evaluated_step_ = -1;
  std::uint64_t computations_ = 0;
  float loss_ = 0;
  double accuracy_ = -1;
};

Status Trainer::load_data() {
  const auto absolute = [&](const std::string& path) {
    return path.starts_with('/') ? path : config_.data_root + "/" + path;
  };
  MUSTER_ASSIGN_OR_RETURN(
      train_, data::load_dataset({absolute(config_.train.images), absolute(config_.train.labels)}));
  data_digest_ = data::hash_of(train_);
  if (config_.has_test) {
    MUSTER_ASSIGN_OR_RETURN(
        test_, data::load_test_dataset(
                   {absolute(config_.test.images), absolute(config_.test.labels)}, train_));
  }
  if (train_.count < static_cast<std::size_t>(config_.batch_size)) {
    return Error(ErrorCode::kInvalid,
                 "spec.training.batchSize: is " + std::to_string(config_.batch_size) + ", but " +
                     config_.train.images + " has only " + std::to_string(train_.count) +
                     " images; must be at most their number")
        .with_exit_code(contract::exit_code::kInvalidSpec);
  }
  return {};
}

Status Trainer::prepare() {
  auto assigned = assign(config_.logical_ranks, communicator_.size());
  if (!assigned) return assigned.error().with_exit_code(contract::exit_code::kInvalidSpec);
  assignment_ = std::move(*assigned);
  shape_.widths.push_back(train_.features);
  for (const int width : config_.mlp.hidden) {
    shape_.widths.push_back(static_cast<std::size_t>(width));
  }
  shape_.widths.push_back(static_cast<std::size_t>(train_.classes));
  loader_.emplace(
      data::LoaderOptions{config_.seed, train_.count, config_.logical_ranks, config_.batch_size});
  total_steps_ = config_.steps > 0 ? config_.steps : config_.epochs * loader_->steps_per_epoch();
  if ((total_steps_ - 1) / loader_->steps_per_epoch() > std::int64_t{UINT32_MAX}) {
    return Error(ErrorCode::kInvalid, "spec.training.steps: is more than 2^32 passes over the data")
        .with_exit_code(contract::exit_code::kInvalidSpec);
  }
  const auto rows_per_rank = static_cast<std::size_t>(loader_->rows_per_rank());
  const std::size_t rows = static_cast<std::size_t>(range().size()) * rows_per_rank;
  const std::size_t parameters = shape_.parameters();
  parameters_.resize(parameters);
  velocity_.assign(parameters, 0.0f);
  initialise(shape_, config_.seed, parameters_);
  model_.emplace(shape_, config_.has_test ? std::max(rows, kEvaluationRows) : rows, context_);
  exchange_.emplace(assignment_, communicator_.rank(), parameters + kTailSize);
  indices_.resize(rows);
  for (std::size_t k = 0; k < exchange_->nodes().size(); ++k) {
    const RankRange node = exchange_->nodes()[k];
    nodes_.push_back({static_cast<std::size_t>(node.first - range().first) * rows_per_rank,
                      static_cast<std::size_t>(node.size()), exchange_->buffer(k).data()});
  }
  rank_losses_.resize(static_cast<std::size_t>(range().size()));
  rank_correct_.resize(rank_losses_.size());
  if (!config_.checkpoint_path.empty() && first()) {
    store_.emplace(CheckpointOptions{config_.checkpoint_path, config_.checkpoint_keep, shape_,
                                     identity_of(config_, shape_, to_hex(data_digest_)),
                                     config_.job_uid});
  }
  return {};
}

Status Trainer::restore_first() {
  if (!store_) return {};
  MUSTER_RETURN_IF_ERROR(make_directories(config_.checkpoint_path));
  MUSTER_ASSIGN_OR_RETURN(const auto step, store_->load(parameters_, velocity_));
  if (step && *step > total_steps_) {
    return Error(ErrorCode::kConflict, config_.checkpoint_path +
                                           ": its newest checkpoint is of step " +
                                           std::to_string(*step) + ", but this job ends at step " +
                                           std::to_string(total_steps_) +
                                           "; use more epochs or steps, or another checkpoint path")
        .with_exit_code(contract::exit_code::kCheckpoint);
  }
  if (step) restored_step_ = checkpoint_step_ = step_ = *step;
  // A damaged checkpoint passed over may have left its values behind.
  if (!step) {
    initialise(shape_, config_.seed, parameters_);
    std::fill(velocity_.begin(), velocity_.end(), 0.0f);
  }
  return record_.open(config_.checkpoint_path + "/" + std::string(contract::kRecordFile), step_);
}

Status Trainer::restore() {
  const Status own = first() ? restore_first() : Status();
  MUSTER_RETURN_IF_ERROR(follow_first(communicator_, own, "restore the checkpoint", 0, deadline()));
  if (communicator_.size() == 1) return {};
  const auto share = [&](std::span<std::byte> bytes) -> Status {
    const Status sent = comm::broadcast(communicator_, 0, 0, bytes, deadline());
    return sent ? Status() : peer_error(sent.error());
  };
  MUSTER_RETURN_IF_ERROR(share(std::as_writable_bytes(std::span(&restored_step_, 1))));
  if (restored_step_ < 0) return {};
  checkpoint_step_ = step_ = restored_step_;
  MUSTER_RETURN_IF_ERROR(share(std::as_writable_bytes(std::span(parameters_))));
  return share(std::as_writable_bytes(std::span(velocity_)));
}

void Trainer::read_batch() {
  loader_->samples(step_, range(), indices_);
  const std::size_t features = train_.features;
  for (std::size_t row = 0; row < indices_.size(); ++row) {
    cpu::bytes_to_unit(train_.image(indices_[row]), features,
                       model_->input().data() + row * features);
    model_->labels()[row] = train_.labels[indices_[row]];
  }
}

void Trainer::compute(bool stop_requested) {
  const std::size_t rows = indices_.size();
  const auto rows_per_rank = static_cast<std::size_t>(loader_->rows_per_rank());
  model_->forward(parameters_, rows);
  model_->losses_with_gradient(rows, 1.0f / static_cast<float>(config_.batch_size));
  model_->backward(parameters_, rows, rows_per_rank, nodes_);
  for (std::size_t r = 0; r < rank_losses_.size(); ++r) {
    rank_losses_[r] = cpu::sum(model_->loss().data() + r * rows_per_rank, rows_per_rank);
    rank_correct_[r] = cpu::sum(model_->correct().data() + r * rows_per_rank, rows_per_rank);
  }
  for (std::size_t k = 0; k < nodes_.size(); ++k) {
    const std::size_t at = nodes_[k].first_row / rows_per_rank;
    const auto tail = exchange_->buffer(k).subspan(parameters_.size());
    tail[kTailLoss] = tree_sum(std::span(rank_losses_).subspan(at, nodes_[k].ranks));
    tail[kTailCorrect] = tree_sum(std::span(rank_correct_).subspan(at, nodes_[k].ranks));
    tail[kTailStop] = stop_requested && k == 0 ? 1.0f : 0.0f;
  }
  computations_ += static_cast<std::uint64_t>(range().size());
}

Status Trainer::train_step(bool& stopped) {
  const bool stop_requested = hooks_.stop != nullptr && hooks_.stop->load();
  const auto since = [](MonoTime& from, MonoTime to) {
    const double seconds = std::chrono::duration<double>(to - from).count();
    from = to;
    return seconds;
  };
  StepReport report;
  const MonoTime start = clock_.mono_now();
  MonoTime mark = start;
  report.epoch = step_ / loader_->steps_per_epoch();
  read_batch();
  report.data_seconds = since(mark, clock_.mono_now());
  compute(stop_requested);
  report.compute_seconds = since(mark, clock_.mono_now());
  const Status summed =
      exchange_->sum(communicator_, context_, static_cast<std::uint64_t>(step_ + 1), deadline());
  if (!summed) {
    return peer_error(summed.error().with("step " + std::to_string(step_ + 1)));
  }
  report.communicate_seconds = since(mark, clock_.mono_now());
  const auto tail = exchange_->total().subspan(parameters_.size());
  loss_ = tail[kTailLoss] / static_cast<float>(config_.batch_size);
  if (!std::isfinite(loss_)) {
    return Error(ErrorCode::kInvalid,
                 "step " + std::to_string(step_ + 1) + ": the loss is " + decimal(loss_) +
                     "; a smaller spec.training.optimizer.sgd.learningRate may help")
        .with_exit_code(contract::exit_code::kNumerics);
  }
  cpu::sgd_momentum(context_, parameters_.size(), config_.sgd.learning_rate, config_.sgd.momentum,
                    exchange_->total().data(), velocity_.data(), parameters_.data());
  report.update_seconds = since(mark, clock_.mono_now());
  ++step_;
  stopped = tail[kTailStop] > 0;
  report.step_seconds = std::chrono::duration<double>(mark - start).count();
  return between_steps(report, stopped);
}

Status Trainer::between_steps(StepReport& report, bool stopped) {
  report.step = step_;
  MonoTime mark = clock_.mono_now();
  const auto lap = [&] {
    const MonoTime now = clock_.mono_now();
    return std::chrono::duration<double>(now - std::exchange(mark, now)).count();
  };
  if (record_.is_open()) {
    record_step(report);
    report.record_seconds = lap();
  }
  const bool last = step_ == total_steps_;
  const std::int64_t every = config_.evaluate_every_epochs * loader_->steps_per_epoch();
  if (config_.has_test && (last || step_ % every == 0)) {
    MUSTER_RETURN_IF_ERROR(evaluate_now());
    report.evaluate_seconds = lap();
  }
  if (last || stopped || step_ % config_.checkpoint_every_steps == 0) {
    MUSTER_RETURN_IF_ERROR(save());
    if (!config_.checkpoint_path.empty()) report.checkpoint_seconds = lap();
  }
  report.total_steps = total_steps_;
  report.loss = loss_;
  report.accuracy = accuracy_;
  report.samples = config_.batch_size;
  report.sent_bytes = communicator_.sent_bytes();
  report.logical_rank_computations = computations_;
  report.checkpoint_step = checkpoint_step_;
  if (hooks_.on_step) hooks_.on_step(report);
  return {};
}

void Trainer::remember(const Status& recorded) {
  if (!recorded && !record_error_) record_error_ = recorded.error();
}

void Trainer::record_step(const StepReport& report) {
  if (!record_.is_open()) return;
  RecordedStep line{step_, report.epoch, config_.batch_size, communicator_.size(),
                    loss_, "",           report.step_seconds};
  if (config_.hash_every_steps > 0 && step_ % config_.hash_every_steps == 0) {
    line.sha256 = block_hash(parameters_);
  }
  remember(record_.add(line));
}

Status Trainer::evaluate_now() {
  auto result = evaluate(*model_, parameters_, test_, assignment_, communicator_,
                         static_cast<std::uint64_t>(step_), deadline());
  if (!result) return peer_error(result.error().with("evaluation"));
  accuracy_ = result->accuracy;
  evaluated_step_ = step_;
  // Of the step that a run goes on from, the record has it already.
  if (record_.is_open() && step_ != restored_step_) {
    remember(record_.add(RecordedEvaluation{step_, result->accuracy, result->loss}));
  }
  return {};
}

Status Trainer::save_first() {
  if (record_.is_open()) remember(record_.flush());
  if (record_error_) return *record_error_;
  return store_->save({step_, parameters_, velocity_});
}

Status Trainer::save() {
  // ReLU turns NaN into 0, so that parameters may be lost while the loss still looks well. All
  // processes hold the same parameters and come to the same verdict.
  const auto finite = [](float value) { return std::isfinite(value); };
  if (!std::all_of(parameters_.begin(), parameters_.end(), finite)) {
    return Error(ErrorCode::kInvalid, "step " + std::to_string(step_) +
                                          ": a parameter is not finite; a smaller "
                                          "spec.training.optimizer.sgd.learningRate may help")
        .with_exit_code(contract::exit_code::kNumerics);
  }
  if (config_.checkpoint_path.empty()) return {};
  const Status own = first() ? save_first() : Status();
  MUSTER_RETURN_IF_ERROR(follow_first(communicator_, own, "save the checkpoint",
                                      static_cast<std::uint64_t>(step_), deadline()));
  checkpoint_step_ = step_;
  return {};
}

TrainingSummary Trainer::summary() const {
  TrainingSummary summary;
  summary.step = step_;
  summary.total_steps = total_steps_;
  summary.restored_step = restored_step_;
  summary.loss = loss_;
  summary.accuracy = accuracy_;
  summary.model_parameters = static_cast<std::int64_t>(parameters_.size());
  summary.data_sha256 = to_hex(data_digest_);
  summary.sent_bytes = communicator_.sent_bytes();
  summary.logical_rank_computations = computations_;
  return summary;
}

Result<TrainingSummary> Trainer::finish(bool stopped) {
  if (!stopped && config_.has_test && evaluated_step_ != step_) {
    MUSTER_RETURN_IF_ERROR(evaluate_now());
  }
  const Sha256Digest digest = combine(block_digests(parameters_));
  MUSTER_RETURN_IF_ERROR(agree_equal(communicator_, digest, "parameters after the last step",
                                     contract::exit_code::kInternal, deadline()));
  TrainingSummary result = summary();
  result.complete = !stopped;
  result.model_sha256 = to_hex(digest);
  if (!stopped && !config_.checkpoint_path.empty()) {
    Status own;
    if (store_) {
      auto path = store_->write_model(parameters_);
      if (path) {
        result.model_path = *path;
      } else {
        own = path.error();
      }
    }
    MUSTER_RETURN_IF_ERROR(follow_first(communicator_, own, "write the model",
                                        static_cast<std::uint64_t>(step_), deadline()));
  }
  result.sent_bytes = communicator_.sent_bytes();
  return result;
}

}  // namespace

Result<TrainingSummary> run_training(const TrainingConfig& config, comm::Communicator& communicator,
                                     const Clock& clock, const TrainingHooks& hooks) {
  MUSTER_RETURN_IF_ERROR(check_float_environment());
  Trainer trainer(config, communicator, clock, hooks);
  return trainer.run();
}

}  // namespace muster::engine
