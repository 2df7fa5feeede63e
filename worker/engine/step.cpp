// One step: what is missing of the gradients is computed, they are summed, the state is updated.
#include <algorithm>
#include <cmath>
#include <utility>

#include "common/contract.h"
#include "common/log.h"
#include "worker/data/picture_files.h"
#include "worker/engine/agreement.h"
#include "worker/engine/evaluation.h"
#include "worker/engine/schedule.h"
#include "worker/engine/trainer.h"

namespace muster::engine {
namespace {

namespace cpu = kernels::cpu;

/// Labels of one forward pass of the evaluation, where the training has fewer.
constexpr std::size_t kEvaluationTargets = 256;
/// Of large pictures fewer, so that no model needs more for its tests than for its training.
constexpr std::size_t kEvaluationBytes = std::size_t{64} << 20;

/// Micro-batches for each stage of a pipeline: of p stages each stands still for p - 1 parts of
/// p - 1 + so many times p.
constexpr int kMicroBatchesOfStage = 4;

/// A view that is further ahead counts as so far ahead: the sum of the squares over as many members
/// as there may be stays a number that a float holds.
constexpr std::int64_t kAheadMax = 63;
static_assert(exchange_sizes::kBlockElements == kernels::kBlockElements);
static_assert(kAheadMax * kAheadMax * contract::kMaxLogicalRanks < std::int64_t{1} << 24);

double since(MonoTime& from, MonoTime to) {
  const double seconds = std::chrono::duration<double>(to - from).count();
  from = to;
  return seconds;
}

}  // namespace

void Trainer::set_assignment(const Assignment& assignment) {
  sums_->hold(assignment.nodes[static_cast<std::size_t>(rank())]);
  assignment_ = assignment;
  plan_exchange();
  members_computing_ = 0;
  for (const auto& nodes : assignment.nodes) members_computing_ += nodes.empty() ? 0 : 1;
  fit_passes();
}

/// Passes, and what computes them, for which there is memory beside what this process keeps now. Of
/// a split model all processes of a copy do this between the same steps.
void Trainer::fit_passes() {
  give_up_surplus(choose_passes(assignment_), assignment_);
  if (!is_split()) reserve_model(assignment_);
  stage_.reset();
}

/// Of the members, as the exchange is to know them: it is not worth the two more groups of
/// transfers where there is little to send. All find the same.
Hosts Trainer::hosts() const {
  if (!communicator_ || blocks_of(buckets_->elements()) < config_.host_blocks) return {};
  return Hosts(communicator_->hosts());
}

/// For the assignment, and those who keep what now.
void Trainer::plan_exchange() {
  std::vector<float*> buffers;
  for (std::size_t k = 0; k < sums_->count(); ++k) buffers.push_back(sums_->buffer(k).data());
  Reduction reduction{ownership(), shape_.parameters(),
                      config_.gradient_norm_max > 0 && !is_split()};
  if (is_sharded()) reduction.keeping = keeping_;
  reduction.hosts = hosts();
  if (is_sharded()) gifts_ = plan_gifts({keeping_, reduction.hosts}, rank());
  exchange_.emplace(assignment_, rank(), std::move(reduction), buffers, exchange_memory_);
  is_exchange_old_ = false;
  if (is_split() && config_.gradient_norm_max > 0) plan_squares();
}

/// Logical ranks of `own` that are computed at once at most, where there is the memory: as many as
/// the user says, who may leave it to us to keep the stages of a pipeline busy.
int Trainer::ranks_most(int own) const {
  const bool is_said = config_.micro_batch_size > 0;
  int most = std::max(1, own);
  if (is_said) most = std::min(most, config_.micro_batch_size / loader_->rows_per_rank());
  if (!is_said && config_.stages > 1) most /= kMicroBatchesOfStage * config_.stages;
  return std::max(1, most);
}

/// Evaluation goes over so many samples at once, or more where a pass has more. All stages find the
/// same number.
std::size_t Trainer::rows_evaluated() const {
  if (!config_.has_test) return 0;
  std::size_t rows = std::max<std::size_t>(1, kEvaluationTargets / train_.targets);
  constexpr int kOfAny = 1;  // threads: processes may have different numbers of them
  while (rows > 1 && Model::bytes(whole_, rows, activations(), kOfAny) > kEvaluationBytes) {
    rows /= 2;
  }
  return rows;
}

MemoryShare Trainer::memory_share(const Assignment& assignment, int rank) const {
  MemoryShare share{assignment,
                    rank,
                    rows_per_rank(),
                    rows_evaluated(),
                    train_.memory() + test_.memory(),
                    hosts(),
                    is_summed_by_speed_ ? weights_ : std::vector<std::uint8_t>()};
  // Who learns keeps nothing yet, and has its share in the next step.
  if (is_sharded() && is_any_leaving() && !is_learning_) share.kept = kept_parts();
  return share;
}

Result<MemoryShare> Trainer::even_share() const {
  const int copies = std::max(1, config_.processes / config_.group_size());
  MUSTER_ASSIGN_OR_RETURN(const Assignment even, assign(config_.logical_ranks, copies));
  return memory_share(even, 0);
}

/// Bytes that these may take while they are checked, those that are held among it: what is left
/// beside the model and the rest of the data. What passes need is taken when the first is made.
Result<std::uint64_t> Trainer::memory_for_check(const data::PictureFiles& pictures) const {
  if (config_.memory_bytes == 0) return data::kAnyMemory;
  MUSTER_ASSIGN_OR_RETURN(MemoryShare share, even_share());
  share.data_bytes = train_.memory_at_rest() + test_.memory_at_rest() - pictures.held_bytes();
  MemoryNeeds needs = plan_ ? memory_needs(config_, *plan_, config_.place, share, ranks_at_once_)
                            : memory_needs(config_, shape_, share, ranks_at_once_);
  if (!model_ && !stage_) needs.activations = 0;
  return config_.memory_bytes - std::min(config_.memory_bytes, needs.total());
}

/// Before anything is taken: whether a process that has its even share fits at all.
Status Trainer::check_memory() const {
  if (config_.memory_bytes == 0 && device_memory() == 0) return {};
  MUSTER_ASSIGN_OR_RETURN(const MemoryShare share, even_share());
  MUSTER_RETURN_IF_ERROR(check_device_memory(share));
  if (ranks_that_fit_all(share, 1)) return {};
  if (config_.may_be_split) {
    const std::vector<Split> fits = splits_that_fit(config_, whole_, share);
    if (!fits.empty()) {
      return Error(ErrorCode::kInvalid,
                   needs_split_sentence(
                       "spec.training.parallelism: " + what_it_needs(config_, whole_, share), fits))
          .with_exit_code(contract::exit_code::kNeedsSplit);
    }
  }
  return Error(ErrorCode::kInvalid,
               "spec.training.model: " + why_it_does_not_fit(config_, whole_, share))
      .with_exit_code(contract::exit_code::kInvalidSpec);
}

/// Of the GPU that computes passes; 0 where there is none, or nobody knows.
std::size_t Trainer::device_memory() const {
  return hooks_.device != nullptr && !is_split() ? hooks_.device->memory_most() : 0;
}

Status Trainer::check_device_memory(const MemoryShare& share) const {
  const std::size_t has = device_memory();
  if (has == 0) return {};
  const std::size_t needs = device_needs(config_, shape_, share, 1);
  if (needs <= has) return {};
  return Error(ErrorCode::kInvalid,
               "spec.training.model: a pass needs at least " + mebibytes(needs) +
                   " of the GPU's memory, of which this process may have " + mebibytes(has) +
                   " beside what others have; a smaller batchSize, or logicalRanks, or a GPU of "
                   "which more is free, may help")
      .with_exit_code(contract::exit_code::kDevice);
}

/// `most` logical ranks, or the first of its halves of which a pass fits the GPU; 1 where none
/// does.
int Trainer::ranks_on_device(const MemoryShare& share, int most) const {
  const std::size_t has = device_memory();
  if (has == 0) return most;
  const auto needs = [&](int ranks) { return device_needs(config_, shape_, share, ranks); };
  while (most > 1 && needs(most) > has) most /= 2;
  log_info("memory of the GPU is foreseen", {{"needsBytes", static_cast<std::int64_t>(needs(most))},
                                             {"hasBytes", static_cast<std::int64_t>(has)}});
  return most;
}

/// All stages of a copy have micro-batches of one size, so that the greatest of them fits.
std::optional<int> Trainer::ranks_that_fit_all(const MemoryShare& share, int most) const {
  return plan_ ? ranks_that_fit(config_, *plan_, share, most)
               : ranks_that_fit(config_, shape_, share, most);
}

/// More passes where there is too little memory for all at once, as when others are lost. The bytes
/// that this process needs then.
std::size_t Trainer::choose_passes(const Assignment& assignment) {
  const MemoryShare share = memory_share(assignment, rank());
  const int own = count_ranks(assignment.nodes[static_cast<std::size_t>(rank())]);
  const auto fit = ranks_that_fit_all(share, ranks_most(own));
  ranks_at_once_ = ranks_on_device(share, fit.value_or(1));
  const MemoryNeeds all = plan_
                              ? memory_needs(config_, *plan_, config_.place, share, ranks_at_once_)
                              : memory_needs(config_, shape_, share, ranks_at_once_);
  const std::size_t copy = copy_bytes();
  saves_beside_ =
      copy > 0 && (config_.memory_bytes == 0 || all.total() + copy <= config_.memory_bytes);
  const auto needs = static_cast<std::int64_t>(all.total() + (saves_beside_ ? copy : 0));
  const auto has = static_cast<std::int64_t>(config_.memory_bytes);
  if (!fit) {
    log_warning("not even one logical rank's samples fit this process's memory",
                {{"needsBytes", needs}, {"hasBytes", has}});
  } else {
    log_info("memory is foreseen", {{"needsBytes", needs},
                                    {"hasBytes", has},
                                    {"logicalRanksAtOnce", std::int64_t{ranks_at_once_}}});
  }
  return static_cast<std::size_t>(needs);
}

/// What earlier divisions have left behind is used again, unless there is no room for it beside
/// what this one `needs`: who was alone has taken more for a pass than who has others, and they
/// have left sums behind that those have now.
void Trainer::give_up_surplus(std::size_t needs, const Assignment& assignment) {
  if (!saves_beside_) saver_.give_up_copy();
  if (config_.memory_bytes == 0) return;
  const std::size_t rows = rows_of(memory_share(assignment, rank()), ranks_at_once_);
  std::size_t surplus = sums_->unused_bytes();
  const bool is_larger = model_ && model_->rows_max() > rows;
  if (is_larger) {
    const auto bytes = [&](std::size_t some) {
      return Model::bytes(shape_, some, activations(), context_.threads());
    };
    surplus += bytes(model_->rows_max());
    surplus -= rows > 0 ? bytes(rows) : 0;
  }
  if (needs + surplus <= config_.memory_bytes) return;
  sums_->give_up_unused();
  if (is_larger) model_.reset();
}

void Trainer::reserve_model(const Assignment& assignment) {
  const MemoryShare share = memory_share(assignment, rank());
  const std::size_t rows = rows_of(share, ranks_at_once_);
  // A spare computes nothing, and without a test set it evaluates nothing either.
  if (rows == 0) return;
  if (model_ && model_->rows_max() >= rows) {
    model_->forget_nodes();
    const std::size_t has = device_memory();
    if (has == 0) return;
    if (device_needs(config_, shape_, share, ranks_at_once_, model_->rows_max()) <= has) return;
  }
  // Much memory is not zero in a moment.
  if (hooks_.on_alive) hooks_.on_alive();
  model_.emplace(shape_, rows, device(), activations());
  if (hooks_.on_alive) hooks_.on_alive();
}

/// Who learns waits for what the others compute, and takes the memory meanwhile that it needs for
/// its share of the next step.
void Trainer::warm_up() {
  const auto even = assign(config_.logical_ranks, copies());
  choose_passes(*even);
  if (!is_split()) reserve_model(*even);
  sums_->hold(even->nodes[static_cast<std::size_t>(rank())]);
  sums_->hold({});
}

/// In which passes the nodes are computed that are missing.
void Trainer::list_missing() {
  missing_.clear();
  std::vector<RankRange> nodes;
  for (std::size_t k = 0; k < sums_->count(); ++k) {
    if (sums_->is_computed(k)) continue;
    missing_.push_back(k);
    nodes.push_back(sums_->node(k));
  }
  passes_ = plan_passes(nodes, ranks_at_once_);
}

/// Where the sum of a slot of a piece's stack is made.
std::span<float> Trainer::sum_in_slot(const Piece& piece, unsigned slot) {
  return slot == 0 ? sums_->buffer(missing_[piece.node]) : sums_->spare(slot - 1);
}

/// Which rows of a pass are whose, and what they are.
Status Trainer::read_batch(const ComputePass& pass) {
  const MonoTime start = clock_.mono_now();
  if (&pass == &passes_.front()) samples_taken_ = {};
  const auto want_rest = [&] {
    prefetch(train_, *loader_, standing_.step, passes_, samples_taken_.count);
  };
  pass_nodes_.clear();
  std::size_t row = 0;
  for (const Piece& piece : pass) {
    const auto ranks = static_cast<std::size_t>(piece.ranks.size());
    indices_.resize(ranks * rows_per_rank());
    loader_->samples(standing_.step, piece.ranks, indices_);
    std::size_t next = row;
    const auto set_row = [&](std::uint64_t index) {
      return model_->set_row(next++, train_, index);
    };
    MUSTER_RETURN_IF_ERROR(data::take_samples(indices_, samples_taken_, want_rest, set_row));
    if (hooks_.on_batch) hooks_.on_batch(standing_.step + 1, piece.ranks, indices_);
    pass_nodes_.push_back({row, ranks, sum_in_slot(piece, piece.slot).data(),
                           static_cast<std::size_t>(piece.ranks.first)});
    row += indices_.size();
  }
  const bool is_next_read = &pass == &passes_.back() && standing_.step + 1 < total_steps_;
  if (is_next_read) prefetch(train_, *loader_, standing_.step + 1, passes_);
  report_.data_seconds += std::chrono::duration<double>(clock_.mono_now() - start).count();
  return {};
}

/// The gradients of what is missing, pass by pass. They are on their way to their owners before all
/// of the last pass are there; what becomes of that is not known before sum_gradients(), so that
/// what is computed stays computed whoever dies meanwhile.
Status Trainer::compute() {
  if (is_split()) return compute_stage();
  if (!passes_.empty()) model_->use(parameters_);
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    MUSTER_RETURN_IF_ERROR(compute_pass(passes_[p], p + 1 == passes_.size()));
  }
  return passes_.empty() ? begin_sum() : Status();
}

Status Trainer::begin_sum() {
  MUSTER_RETURN_IF_ERROR(set_flags());
  exchange_->begin(*communicator_, context_, step_stamp() + 1,
                   [this](std::string_view point) { return at(point); });
  if (is_learning_) warm_up();
  return {};
}

Status Trainer::compute_pass(const ComputePass& pass, bool is_last) {
  MUSTER_RETURN_IF_ERROR(read_batch(pass));
  const Model::Batch batch{config_.seed, standing_.step, rows_per_rank(), pass_nodes_};
  MUSTER_RETURN_IF_ERROR(model_->forward(batch, when_at(point::kLayer)));
  MUSTER_RETURN_IF_ERROR(at(point::kForward));
  model_->losses_with_gradient(batch, 1.0f / batch_targets());
  MUSTER_RETURN_IF_ERROR(model_->status());
  for (const Model::Node& node : pass_nodes_) sum_losses(node);
  if (is_last) MUSTER_RETURN_IF_ERROR(begin_sum());
  std::size_t end = sums_->elements();
  model_->backward(batch, [&](std::size_t first) {
    for (const Piece& piece : pass) merge(piece, first, end);
    end = first;
    if (hooks_.on_alive) hooks_.on_alive();
    if (!is_last) return;
    const MonoTime start = clock_.mono_now();
    exchange_->advance(first, long_deadline());
    report_.communicate_seconds += std::chrono::duration<double>(clock_.mono_now() - start).count();
  });
  MUSTER_RETURN_IF_ERROR(model_->status());
  MUSTER_RETURN_IF_ERROR(at(point::kBackward));
  for (const Piece& piece : pass) {
    const std::size_t k = missing_[piece.node];
    if (piece.ranks.last == sums_->node(k).last) sums_->set_computed(k);
    computations_ += static_cast<std::uint64_t>(piece.ranks.size());
  }
  return {};
}

/// Adds up elements [first, end) of the subtrees that a piece completes.
void Trainer::merge(const Piece& piece, std::size_t first, std::size_t end) {
  for (unsigned slot = piece.slot; slot > piece.slot - piece.merges; --slot) {
    float* const left = sum_in_slot(piece, slot - 1).data() + first;
    cpu::add(context_, end - first, left, sum_in_slot(piece, slot).data() + first, left);
  }
}

/// Loss and hits of one of the nodes of a pass. What else rides behind the values is set later.
void Trainer::sum_losses(const Model::Node& node) {
  const std::size_t of_rank = rows_per_rank() * train_.targets;
  const std::size_t first = node.first_row * train_.targets, count = node.ranks * of_rank;
  const LossSums sums = engine::sum_losses(model_->loss().subspan(first, count),
                                           model_->correct().subspan(first, count), of_rank);
  const auto tail = std::span(node.gradient, sums_->elements()).subspan(shape_.values());
  std::fill(tail.begin(), tail.end(), 0.0f);
  tail[kTailLoss] = sums.loss;
  tail[kTailCorrect] = sums.correct;
}

/// What this process asks of all rides in its first node, each flag once; nodes that were computed
/// under an earlier membership may carry old ones.
Status Trainer::set_flags() {
  const bool stop = hooks_.stop != nullptr && hooks_.stop->load();
  MUSTER_ASSIGN_OR_RETURN(prepared_epoch_, membership_.prepared_epoch());
  MUSTER_ASSIGN_OR_RETURN(const bool is_recorded, is_record_written());
  // Who learns has no say yet; nobody goes on without it before it has learned.
  const std::int64_t newer = has_learners() ? 0 : prepared_epoch_ - view_.epoch;
  const auto ahead = static_cast<float>(std::clamp<std::int64_t>(newer, 0, kAheadMax));
  // All hear it in the same step: each by itself may have been told of another view since.
  const bool are_files_leaving =
      keeps_files() && owner() == rank() && prepared_epoch_ > 0 && !membership_.is_staying();
  // Before any view is without it: what ends the step that comes after that would leave nobody to
  // compare with.
  const bool are_files_asked = can_save_alone() && membership_.is_leaving();
  for (std::size_t k = 0; k < sums_->count(); ++k) {
    const auto tail = sums_->buffer(k).subspan(shape_.values());
    tail[kTailStop] = stop && k == 0 ? 1.0f : 0.0f;
    tail[kTailAhead] = k == 0 ? ahead : 0.0f;
    tail[kTailAheadSquared] = k == 0 ? ahead * ahead : 0.0f;
    tail[kTailRecorded] = is_recorded && k == 0 ? 1.0f : 0.0f;
    tail[kTailFilesLeave] = are_files_leaving && k == 0 ? 1.0f : 0.0f;
    tail[kTailFilesAsked] = are_files_asked && k == 0 ? 1.0f : 0.0f;
  }
  return {};
}

/// Whether all who compute are prepared for the same view. Numbers whose squares' mean is the
/// square of their mean are equal; the sums are of small whole numbers, hence exact. Not where the
/// copy with the files computes nothing, as in a step that a death has cut: it has had no say.
bool Trainer::is_flip_agreed() const {
  const bool has_files = keeps_files() && owner() >= 0;
  if (has_files && assignment_.nodes[static_cast<std::size_t>(owner())].empty()) return false;
  const auto tail = summed_tail();
  const auto sum = static_cast<double>(tail[kTailAhead]);
  const auto squares = static_cast<double>(tail[kTailAheadSquared]);
  return sum > 0 && squares * static_cast<double>(members_computing_) == sum * sum;
}

/// Makes the next step; whether all agree to enter another membership after it.
Result<bool> Trainer::train_step() {
  MUSTER_RETURN_IF_ERROR(at(point::kIdle));
  report_ = StepReport{};
  const MonoTime start = clock_.mono_now();
  MonoTime mark = start;
  list_missing();
  if (is_sharded()) MUSTER_RETURN_IF_ERROR(begin_copying());
  MUSTER_RETURN_IF_ERROR(compute());
  report_.compute_seconds =
      since(mark, clock_.mono_now()) - report_.data_seconds - report_.communicate_seconds;
  if (is_split()) report_.part_ranks = part_ranks();
  last_work_ = mark;
  MUSTER_RETURN_IF_ERROR(confirm_greetings());
  MUSTER_RETURN_IF_ERROR(sum_gradients());
  MUSTER_RETURN_IF_ERROR(complete_state());
  MUSTER_RETURN_IF_ERROR(complete_copying());
  std::ranges::copy(exchange_->tail().subspan(shape_.running()), tail_.begin());
  MUSTER_RETURN_IF_ERROR(is_split() ? share_sums() : keep_record());
  report_.communicate_seconds += since(mark, clock_.mono_now());
  MUSTER_RETURN_IF_ERROR(judge());
  MUSTER_RETURN_IF_ERROR(is_sharded() ? make_sharded_step(mark) : make_step(mark));
  report_.step_seconds = std::chrono::duration<double>(mark - start).count();
  last_work_ = mark;
  speeds_.add({report_.data_seconds + report_.compute_seconds, report_.communicate_seconds,
               report_.update_seconds},
              work().of(assignment_.nodes[static_cast<std::size_t>(rank())]));
  const auto tail = summed_tail();
  if (tail[kTailStop] > 0) standing_.is_stopping = 1;
  if (!is_flip_agreed()) return false;
  agreed_epoch_ = prepared_epoch_;
  return true;
}

/// Who has less to compute than others, or learns, waits for them.
Status Trainer::sum_gradients() {
  const Status summed = exchange_->finish(long_deadline());
  if (!summed) return summed.error().with("step " + std::to_string(standing_.step + 1));
  return {};
}

/// Makes the whole update.
Status Trainer::make_step(MonoTime& mark) {
  MUSTER_RETURN_IF_ERROR(at(point::kUpdate));
  optimizer_->set_learning_rate(learning_rate_at(config_, standing_.step, total_steps_));
  MUSTER_RETURN_IF_ERROR(optimizer_->update(context_, exchange_->gradients(), scale_,
                                            std::span(parameters_).first(shape_.parameters()),
                                            when_at(point::kHalfUpdated)));
  update_running(shape_, config_.logical_ranks, exchange_->tail(), parameters_);
  ++standing_.step;
  standing_.loss = summed_tail()[kTailLoss] / batch_targets();
  logged_.reset();
  sums_->forget();
  MUSTER_RETURN_IF_ERROR(commit());
  report_.update_seconds = since(mark, clock_.mono_now());
  return {};
}

Error Trainer::diverged(std::int64_t step, const std::string& what) const {
  return Error(ErrorCode::kInvalid, "step " + std::to_string(step) + ": " + what + "; a smaller " +
                                        learning_rate_field(config_) + " may help")
      .with_exit_code(contract::exit_code::kNumerics);
}

/// Whether the step that was summed can be made, and what its gradient is multiplied by. All
/// processes have the same sums and come to the same end.
Status Trainer::judge() {
  const float loss = summed_tail()[kTailLoss] / batch_targets();
  if (!std::isfinite(loss)) return diverged(standing_.step + 1, "the loss is " + decimal(loss));
  scale_ = 1;
  if (!(config_.gradient_norm_max > 0)) return {};
  const float norm = norm_of(is_split() ? block_squares_ : exchange_->block_squares());
  if (!std::isfinite(norm)) {
    return diverged(standing_.step + 1, "the norm of the gradient is " + decimal(norm));
  }
  report_.gradient_norm = norm;
  scale_ = clip_scale(norm, config_.gradient_norm_max);
  return {};
}

/// All of the state is of standing_.step now.
Status Trainer::commit() {
  report_.epoch = (standing_.step - 1) / loader_->steps_per_epoch();
  report_.step = standing_.step;
  report_.membership_epoch = view_.epoch;
  report_.members = copies() * config_.group_size();
  if (hooks_.on_state) hooks_.on_state(standing_.step, parameters_, optimizer_->state());
  return at(point::kUpdated);
}

}  // namespace muster::engine
