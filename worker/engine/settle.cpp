// What is due between two steps and at the end: the record, evaluation, checkpoint, model. A
// membership may end in the middle of it; the next one does what is left, so everything here may be
// begun twice and is done once.
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "common/log.h"
#include "common/model_files.h"
#include "worker/engine/agreement.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/evaluation.h"
#include "worker/engine/files.h"
#include "worker/engine/in_pieces.h"
#include "worker/engine/memory_needs.h"
#include "worker/engine/on_files.h"
#include "worker/engine/sample.h"
#include "worker/engine/stage_evaluation.h"
#include "worker/engine/trainer.h"

namespace muster::engine {
namespace {

/// Tokens in the sample of a finished model, times those of its context; but at least and at most
/// so many as below.
constexpr std::size_t kSampleWork = 32'768;
constexpr std::size_t kLeastSample = 64, kMostSample = 512;
/// Least pause in which the owner tells the others that it still waits for the last checkpoint.
constexpr milliseconds kSaveLook{10};
/// In which a disk has answered whose lines the others need not keep.
constexpr milliseconds kRecordPatience{50};
/// Before that, a disk is slow and nobody is told.
constexpr seconds kRecordWaitsLong{1};
constexpr const char* kModelFiles = "write the model and what stands beside it";

/// A state, where each piece comes after `before`, whose error it has.
class WatchedSource final : public StateSource {
 public:
  WatchedSource(StateSource& source, std::function<Status()> before)
      : source_(source), before_(std::move(before)) {}
  Result<std::span<const float>> read(const StatePiece& piece) override {
    MUSTER_RETURN_IF_ERROR(before_());
    return source_.read(piece);
  }

 private:
  StateSource& source_;
  const std::function<Status()> before_;
};

/// Whether it is about what a process does with its files.
bool is_of_files(const Error& error) {
  return error.exit_code() == contract::exit_code::kDisk ||
         error.exit_code() == contract::exit_code::kCheckpoint;
}

bool are_finite(std::span<const float> values, const std::function<void()>& on_alive) {
  bool is_finite = true;
  in_pieces(values.size(), on_alive, [&](std::size_t begin, std::size_t end) {
    const auto piece = values.subspan(begin, end - begin);
    is_finite = is_finite &&
                std::all_of(piece.begin(), piece.end(), [](float v) { return std::isfinite(v); });
  });
  return is_finite;
}

/// `to` keeps its memory.
void copy_values(std::span<const float> from, const std::function<void()>& on_alive,
                 std::vector<float>& to) {
  to.clear();
  to.reserve(from.size());
  in_pieces(from.size(), on_alive, [&](std::size_t begin, std::size_t end) {
    const auto piece = from.subspan(begin, end - begin);
    to.insert(to.end(), piece.begin(), piece.end());
  });
}

void copy_state(const OptimizerState& from, const std::function<void()>& on_alive,
                OptimizerState& to) {
  to.buffers.resize(from.buffers.size());
  for (std::size_t i = 0; i < from.buffers.size(); ++i) {
    to.buffers[i].prefix = from.buffers[i].prefix;
    copy_values(from.buffers[i].values, on_alive, to.buffers[i].values);
  }
  to.scalars = from.scalars;
  to.held = from.held;
  to.room = from.room;
}

}  // namespace

/// A stop has little time: what is only looked at is left to whoever goes on (standing_of()).
bool Trainer::is_evaluation_due(const Standing& standing) const {
  const std::int64_t step = standing.step;
  if (standing.is_stopping != 0 && step != total_steps_) return false;
  const std::int64_t every_epochs = config_.evaluate_every_epochs * loader_->steps_per_epoch();
  const std::int64_t every_steps = config_.evaluate_every_steps;
  const bool is_time = step == total_steps_ || step % every_epochs == 0 ||
                       (every_steps > 0 && step % every_steps == 0);
  return is_time && config_.has_test && standing.settled_step < step &&
         standing.evaluated_step != step;
}

/// At the end a checkpoint is due also where it was left out before for want of an owner.
bool Trainer::is_checkpoint_due(const Standing& standing) const {
  const std::int64_t step = standing.step;
  const bool is_due = standing.settled_step < step && step % config_.checkpoint_every_steps == 0;
  return (is_due || is_end(standing)) && standing.checkpoint_step != step;
}

/// Whether anybody who learns would need the state itself before the next step.
bool Trainer::is_state_wanted(const EntryPlan& plan) const {
  const Standing& standing = plan.standing;
  if (is_end(standing) || is_evaluation_due(standing) || is_comparison_due(standing)) return true;
  // Who writes the record writes the parameters' hash; while the owner is away, all do.
  return keeps_files() &&
         (owner() < 0 || plan.source[static_cast<std::size_t>(owner())] != owner());
}

Status Trainer::settle() {
  MonoTime mark = clock_.mono_now();
  const auto lap = [&] {
    const MonoTime now = clock_.mono_now();
    return std::chrono::duration<double>(now - std::exchange(mark, now)).count();
  };
  if (is_recorder() && keeps_files()) {
    MUSTER_RETURN_IF_ERROR(record_step());
    report_.record_seconds = lap();
  } else {
    describe_step();
  }
  // At the end the state comes first: then nothing is lost, however long an evaluation takes.
  const bool saves_first = is_end(standing_);
  if (saves_first) MUSTER_RETURN_IF_ERROR(save_if_due(lap));
  if (is_evaluation_due(standing_)) {
    MUSTER_RETURN_IF_ERROR(evaluate_now());
    report_.evaluate_seconds = lap();
  }
  // Also of what is settled: who was to write it may have died since.
  if (is_recorder()) MUSTER_RETURN_IF_ERROR(record_evaluation());
  if (!saves_first) MUSTER_RETURN_IF_ERROR(save_if_due(lap));
  // A disk that is full ends this process, and the others train on.
  MUSTER_RETURN_IF_ERROR(saver_.result());
  standing_.settled_step = standing_.step;
  report_step();
  return {};
}

Status Trainer::save_if_due(const std::function<double()>& lap) {
  if (!is_checkpoint_due(standing_)) return {};
  MUSTER_RETURN_IF_ERROR(save());
  if (keeps_files()) report_.checkpoint_seconds = lap();
  return {};
}

void Trainer::report_step() {
  if (report_.step != standing_.step || reported_step_ >= standing_.step) return;
  reported_step_ = standing_.step;
  report_.total_steps = total_steps_;
  report_.loss = standing_.loss;
  report_.accuracy = standing_.accuracy;
  report_.samples = config_.batch_size;
  report_.sent_bytes = sent_before_ + communicator_->sent_bytes();
  report_.logical_rank_computations = computations_;
  report_.checkpoint_step = newest_checkpoint();
  if (report_.membership_epoch == view_.epoch) {
    report_.rank = view_.rank;
    if (is_split()) report_.arrivals = everyone_->take_arrivals();
    // With shards, nobody updates before all have what they need for it.
    // A stage waits for those beside it in every step.
    if (is_sharded() || (!is_split() && exchange_->owns_elements())) {
      report_.waited_seconds =
          waits_by_host(exchange_->hosts(), rank(), communicator_->waited_seconds());
    }
  }
  if (hooks_.on_step) hooks_.on_step(report_);
}

/// With the checkpoint of `step` just read. An evaluation that was due there may not have been
/// made, which the record tells: its line is missing behind that of the step.
Result<Standing> Trainer::standing_of(std::int64_t step) const {
  Standing standing;
  standing.step = standing.restored_step = standing.checkpoint_step = step;
  standing.settled_step = step - 1;
  bool is_left = is_evaluation_due(standing);
  if (is_left) {
    MUSTER_ASSIGN_OR_RETURN(is_left, lacks_evaluation(record_path(), step));
  }
  if (!is_left) standing.settled_step = step;
  return standing;
}

/// With the lines up to where `standing` is.
Status Trainer::open_record(const Standing& standing) {
  if (record_.is_open()) return {};
  const OnFiles files(hooks_, config_.checkpoint_path);
  MUSTER_RETURN_IF_ERROR(record_.open(
      record_path(), standing.step,
      {!hooks_.saves_in_place, hooks_.is_record_held, hooks_.on_record, hooks_.on_recorded}));
  // The line of the step that a run goes on from it has already, or nobody has it any more.
  const bool is_lost =
      standing.step == standing.restored_step && record_.last_step() < standing.step;
  if (is_lost) record_.skip_to(standing.step);
  recorded_step_ = record_.last_step();
  recorded_evaluation_ = is_lost ? standing.step : record_.last_evaluation();
  return {};
}

/// Who leaves while its disk gives no answer waits as for a checkpoint; whoever goes on has the
/// lines that are not written.
void Trainer::end_record() {
  const auto is_written = record_.wait(milliseconds(0));
  std::optional<OnFiles> files;
  if (is_written && !*is_written) files.emplace(hooks_, config_.checkpoint_path);
  record_.end();
}

/// The files are another process's of the same worker, which has come back. What this one would
/// add to a file that it has replaced nobody would find.
void Trainer::give_up_record() {
  if (!record_.is_open()) return;
  const OnFiles files(hooks_, config_.checkpoint_path);
  record_.give_up();
}

/// Its lines may be of steps that nobody has made.
void Trainer::forget_record() {
  std::optional<OnFiles> files;
  if (record_.is_open()) files.emplace(hooks_, config_.checkpoint_path);
  record_.close();
  recorded_step_ = recorded_evaluation_ = 0;
}

Status Trainer::share_record(const std::vector<Greeting>& greetings, const EntryPlan& plan) {
  if (!keeps_files()) return {};
  if (is_first_in_group()) MUSTER_RETURN_IF_ERROR(tell_lines(greetings, plan));
  return is_split() ? share_recorded() : Status();
}

/// Lines that others kept while the process with the files was away, or that its disk has not taken
/// yet. They go before the state: who has that has all lines of it, too, whoever dies.
Status Trainer::tell_lines(const std::vector<Greeting>& greetings, const EntryPlan& plan) {
  if (is_owner()) MUSTER_RETURN_IF_ERROR(open_record(plan.standing));
  const auto tellings = plan_telling(plan, greetings, owner());
  std::vector<std::string> texts;
  if (!tellings.empty()) {
    MUSTER_ASSIGN_OR_RETURN(
        texts, tell_records(*communicator_, greetings, tellings, kept_lines_, deadline()));
  }
  const bool is_given_state = plan.source[static_cast<std::size_t>(rank())] != rank();
  // What the owner has kept itself, while the files were another's.
  if (is_owner() && !is_given_state) texts.push_back(std::move(kept_lines_));
  kept_lines_.clear();
  if (is_given_state && !is_owner()) forget_record();
  // Without room for them the owner ends here, before the others hear that it has them and forget
  // what they have handed over.
  {
    const OnFiles files(hooks_, config_.checkpoint_path);
    MUSTER_RETURN_IF_ERROR(record_.merge(texts));
  }
  tell_missing_lines();
  // Nobody takes a state before its lines have arrived: who has sent them may be gone by now.
  if (!tellings.empty()) MUSTER_RETURN_IF_ERROR(comm::barrier(*communicator_, 0, deadline()));
  recorded_step_ = std::max(recorded_step_, record_.last_step());
  recorded_evaluation_ = std::max(recorded_evaluation_, record_.last_evaluation());
  return {};
}

void Trainer::tell_missing_lines() {
  const std::int64_t missing = record_.take_missing();
  if (missing == 0 || !is_owner()) return;
  log_warning("the record lacks steps: nobody could write it, or its disk has lost them",
              {{"steps", missing}, {"path", config_.checkpoint_path}});
}

/// What the line of the present step says, but for the hash. The report of the step is known until
/// the next one is begun.
void Trainer::describe_step() {
  const std::int64_t step = standing_.step;
  const bool is_reported = report_.step == step;
  if (line_.step == step && !is_reported) return;
  line_.step = step;
  line_.epoch = (step - 1) / loader_->steps_per_epoch();
  line_.samples = config_.batch_size;
  line_.workers = is_reported ? report_.members : copies() * config_.group_size();
  line_.loss = standing_.loss;
  line_.seconds = is_reported ? report_.step_seconds : 0;
}

Status Trainer::record_step() {
  const std::int64_t step = standing_.step;
  if (recorded_step_ >= step) return {};
  describe_step();
  RecordedStep line = line_;
  if (config_.hash_every_steps > 0 && step % config_.hash_every_steps == 0) {
    MUSTER_ASSIGN_OR_RETURN(const Sha256Digest digest, parameters_digest());
    line.sha256 = to_hex(digest);
  }
  recorded_step_ = step;
  if (!is_first_in_group()) return {};
  const OnFiles files(hooks_, config_.checkpoint_path);
  return record_.add(line);
}

/// Whether a death of this process would take no line along, as the others ask in each step: they
/// still stand at the step before and can make its line themselves. A line that cannot be written
/// ends the process here. A disk that gives no answer holds up one step, for a moment.
Result<bool> Trainer::is_record_written() {
  if (!keeps_files() || !is_owner()) return false;
  MUSTER_ASSIGN_OR_RETURN(const bool is_written,
                          record_.wait(record_waits_since_ ? milliseconds(0) : kRecordPatience));
  note_record_waits(!is_written);
  return is_written;
}

void Trainer::note_record_waits(bool waits) {
  if (waits && !record_waits_since_) record_waits_since_ = clock_.mono_now();
  if (!waits && !record_waits_since_) return;
  const nanoseconds waited = clock_.mono_now() - *record_waits_since_;
  if (!waits) record_waits_since_.reset();
  if (waits && waited >= kRecordWaitsLong && !std::exchange(is_record_wait_told_, true)) {
    log_warning("the record's disk gives no answer: all workers keep its lines meanwhile",
                {{"step", standing_.step}, {"path", config_.checkpoint_path}});
  } else if (!waits && std::exchange(is_record_wait_told_, false)) {
    log_info("the record's disk has answered", {{"step", standing_.step},
                                                {"seconds", seconds_of(waited)},
                                                {"path", config_.checkpoint_path}});
  }
  if (!waits) tell_missing_lines();
}

/// Whether the owner has not said with the step that was summed that it has written all lines.
bool Trainer::are_lines_to_keep() const {
  return keeps_files() && !is_recorder() && has_state_ && !(summed_tail()[kTailRecorded] > 0);
}

/// Before the state of a step is given up for that of the next: where the owner has not written its
/// lines yet, all others keep them, too.
Status Trainer::keep_record() {
  if (!keeps_files() || is_recorder() || !has_state_) return {};
  if (!are_lines_to_keep()) {
    record_.forget_lines();
    return {};
  }
  MUSTER_RETURN_IF_ERROR(record_step());
  return record_evaluation();
}

/// Of the whole model, by all threads: the others wait for whoever keeps the record. Of a split one
/// all stages of the copy make it together.
Result<Sha256Digest> Trainer::parameters_digest() {
  if (is_split()) {
    return hash_of_stages(stage_group(), context_, parameters_, meeting(step_stamp()));
  }
  return combine(block_digests(parameters_, context_));
}

Status Trainer::record_evaluation() {
  if (!is_first_in_group() || !keeps_files() || standing_.evaluated_step != standing_.step) {
    return {};
  }
  if (recorded_evaluation_ >= standing_.step) return {};
  recorded_evaluation_ = standing_.step;
  const OnFiles files(hooks_, config_.checkpoint_path);
  return record_.add(
      RecordedEvaluation{standing_.step, standing_.accuracy, standing_.evaluated_loss});
}

Status Trainer::evaluate_now() {
  MUSTER_RETURN_IF_ERROR(at(point::kEvaluate));
  stage_.reset();  // it takes as much memory again
  if (evaluating_.step != standing_.step || evaluating_.lineage != standing_.lineage) {
    evaluating_ = {standing_.step, standing_.lineage,
                   EvaluatedParts(static_cast<std::size_t>(config_.logical_ranks))};
  }
  const EvaluationLimits limits{clock_, long_wait(), [this]() -> Status {
                                  if (hooks_.on_alive) hooks_.on_alive();
                                  // That of the last step is made before all end, stop or not.
                                  if (is_last_step() || !membership_.is_stop_near()) return {};
                                  return Error(ErrorCode::kAborted, "a stop comes first");
                                }};
  const TestSet test(test_, static_cast<std::size_t>(config_.evaluate_samples_most));
  const auto result = is_split()
                          ? evaluate_stages({stage_group(), *team_, *communicator_, activations()},
                                            context_, parameters_, test, config_.logical_ranks,
                                            rows_evaluated(), step_stamp(), limits)
                          : evaluate(*model_, parameters_, test, evaluating_.parts, *communicator_,
                                     step_stamp(), limits);
  if (!result) return peer_error(result.error().with("evaluation"));
  standing_.accuracy = result->accuracy;
  standing_.evaluated_loss = result->loss;
  standing_.evaluated_step = standing_.step;
  return {};
}

/// What a state of the whole model takes from which checkpoints are written; 0 where they are
/// written in place, as the only one of a training, for which nothing waits.
std::size_t Trainer::copy_bytes() const {
  const bool is_once = config_.checkpoint_every_steps >= total_steps_;
  if (!keeps_files() || !is_owner() || is_once || hooks_.saves_in_place) return 0;
  const std::size_t moments = config_.adamw ? 2 : 1;
  return (whole_.values() + moments * whole_.parameters()) * sizeof(float);
}

/// On the process with the files.
Status Trainer::write_checkpoint(bool is_beside, const std::function<Status()>& write) {
  const OnFiles files(hooks_, config_.checkpoint_path);
  const auto sync_record = record_.sync();
  saver_.begin(standing_.step, is_beside, [this, write, sync_record, step = standing_.step] {
    if (hooks_.on_save) hooks_.on_save(step);
    // First, so that whoever goes on from the checkpoint finds the lines of its steps.
    Status saved = sync_record();
    if (saved) saved = write();
    if (hooks_.on_saved) hooks_.on_saved(step);
    return saved;
  });
  const Status result = saver_.result();
  // It may be another process that was lost over it; the next membership begins it anew.
  if (!is_beside && !result) saver_.forget();
  return result;
}

/// Pieces come in ascending order, each buffer's one after the other.
Status Trainer::read_copy(StateSource& source, Saver::Copy& copy) {
  const OptimizerState& own = optimizer_->state();
  copy.parameters.clear();
  copy.parameters.reserve(whole_.values());
  copy.optimizer.buffers.resize(own.buffers.size());
  for (std::size_t i = 0; i < own.buffers.size(); ++i) {
    copy.optimizer.buffers[i].prefix = own.buffers[i].prefix;
    copy.optimizer.buffers[i].values.clear();
    copy.optimizer.buffers[i].values.reserve(whole_.parameters());
  }
  copy.optimizer.scalars = own.scalars;
  copy.optimizer.held = copy.optimizer.room = {{0, whole_.parameters()}};
  for (const StatePiece& piece : state_pieces(whole_, own.buffers.size())) {
    MUSTER_ASSIGN_OR_RETURN(const auto values, source.read(piece));
    auto& to =
        piece.buffer == 0 ? copy.parameters : copy.optimizer.buffers[piece.buffer - 1].values;
    MUSTER_CHECK(to.size() == piece.range.begin);
    to.insert(to.end(), values.begin(), values.end());
    if (hooks_.on_alive) hooks_.on_alive();
  }
  return {};
}

/// What the state that this process has was found to have on all; nothing where it was not compared
/// since the last step.
std::optional<std::uint64_t> Trainer::agreed_sum() const {
  if (compared_.step == standing_.step) return compared_.sum;
  return std::nullopt;
}

/// On the process with the files: of what it has alone, or of what `source` reads.
Status Trainer::save_copy(StateSource* source) {
  Saver::Copy& copy = saver_.copy();
  const OptimizerState& own = optimizer_->state();
  if (source == nullptr) {
    copy_values(parameters_, hooks_.on_alive, copy.parameters);
    copy_state(own, hooks_.on_alive, copy.optimizer);
  } else {
    MUSTER_RETURN_IF_ERROR(read_copy(*source, copy));
  }
  const auto agreed = source == nullptr ? agreed_sum() : std::nullopt;
  // What nobody has agreed on is summed beside training, too.
  return write_checkpoint(true, [this, &copy, agreed, step = standing_.step] {
    SummedState state(copy.parameters, copy.optimizer, agreed);
    return store_->save(step, copy.optimizer, state);
  });
}

/// Likewise. `tells`: others wait, and are told of each piece.
Status Trainer::save_in_place(StateSource* source, bool tells) {
  return write_checkpoint(false, [&] {
    const OptimizerState& own = optimizer_->state();
    std::optional<SummedState> in_memory;
    if (source == nullptr) in_memory.emplace(parameters_, own, agreed_sum(), hooks_.on_alive);
    WatchedSource watched(source != nullptr ? *source : *in_memory,
                          [this, tells] { return before_piece(tells); });
    return store_->save(standing_.step, own, watched);
  });
}

/// All processes come to the same verdict.
Status Trainer::check_finite() {
  // ReLU turns NaN into 0, so that parameters may be lost while the loss still looks well.
  bool is_bad = !are_finite(parameters_, hooks_.on_alive);
  if (is_split()) {
    MUSTER_ASSIGN_OR_RETURN(is_bad, any_in_group(is_bad));
  }
  if (is_bad) return diverged(standing_.step, "a parameter is not finite");
  // A second moment that has overflown stops its parameter for good.
  bool is_lost = false;
  for (const auto& buffer : optimizer_->state().buffers) {
    is_lost = is_lost || !are_finite(buffer.values, hooks_.on_alive);
  }
  if (is_sharded()) {
    MUSTER_ASSIGN_OR_RETURN(const auto flags,
                            gather_flags(*communicator_, is_lost, step_stamp(), deadline()));
    is_lost = std::find(flags.begin(), flags.end(), 1) != flags.end();
  }
  if (is_split()) {
    MUSTER_ASSIGN_OR_RETURN(is_lost, any_in_group(is_lost));
  }
  if (is_lost) return diverged(standing_.step, "the optimiser's state is not finite");
  return {};
}

/// Of a checkpoint that is due while the one before is still being written none is made, nor one
/// that all would have to wait for while lines of the record wait for the disk, unless it is the
/// last: a disk that never answers would stop all for ever.
Status Trainer::save() {
  MUSTER_RETURN_IF_ERROR(check_finite());
  if (!keeps_files() || !can_write()) return {};
  MUSTER_RETURN_IF_ERROR(at(point::kCheckpoint));
  MUSTER_ASSIGN_OR_RETURN(const Saving saving, is_end(standing_) ? await_owner() : ask_owner());
  if (saving == Saving::kUnderWay) {
    if (is_owner()) {
      const bool is_record = !saves_beside_ && record_waits_since_;
      const MonoTime since = is_record ? *record_waits_since_ : save_begun_;
      log_warning(is_record ? "a checkpoint is left out: the record's disk gives no answer"
                            : "a checkpoint is left out: the one before is still being written",
                  {{"step", standing_.step},
                   {"writing", is_record ? recorded_step_ : saver_.step()},
                   {"seconds", seconds_of(clock_.mono_now() - since)},
                   {"path", config_.checkpoint_path}});
    }
    return {};
  }
  if (saving != Saving::kBegun) {
    MUSTER_RETURN_IF_ERROR(conclude_save());
    MUSTER_RETURN_IF_ERROR(begin_save());
  }
  saving_step_ = standing_.step;
  returns_ = 0;
  // In the next step nobody would wait so long for who is busy with a slow disk.
  if (!is_end(standing_) && saving != Saving::kDoneInPlace) return {};
  MUSTER_RETURN_IF_ERROR(await_owner());
  return conclude_save();
}

/// Between two memberships, of which the second has nobody who could save, whoever is asked to stop
/// next. An evaluation that is due is left to whoever goes on, as at a stop.
Status Trainer::save_before_leaving() {
  const bool is_of_many = is_sharded() || is_split();
  // Who has all of the state needs nobody for it, and nobody waits for its disk.
  if (!is_of_many && !is_owner()) return {};
  const Status saved = is_of_many ? save_with_others() : save_alone();
  compared_ = {};  // what it cannot save now it does not try again: it has little time
  if (saved || !is_owner() || !is_of_files(saved.error())) return saved;
  // It goes all the same: those who wait for its word see that, and go over without it.
  tell_unsaved(saved.error(), standing_.step);
  return {};
}

Status Trainer::save_with_others() {
  if (is_recorder()) MUSTER_RETURN_IF_ERROR(record_step());
  return save();
}

/// In place: for this process nothing comes after it.
Status Trainer::save_alone() {
  MUSTER_RETURN_IF_ERROR(record_step());
  if (const Status finite = check_finite(); !finite) {
    tell_unsaved(finite.error(), standing_.step);  // the others find it at their next checkpoint
    return {};
  }
  MUSTER_RETURN_IF_ERROR(at(point::kCheckpoint));
  await_save();
  standing_.checkpoint_step = newest_checkpoint();
  return save_in_place(nullptr, false);
}

/// A loss, or the others' stop, may have ended what all make before this process saves and leaves.
/// Nobody is connected with it any more, so it saves what they have all found alike before that.
Status Trainer::save_agreed() {
  if (!can_save_alone() || !membership_.is_leaving()) return {};
  if (!agreed_sum() || newest_checkpoint() >= standing_.step) return {};
  return save_before_leaving();
}

void Trainer::tell_unsaved(const Error& error, std::int64_t step) const {
  log_warning("the checkpoint before a planned leave was not written",
              {{"step", step}, {"error", error.message()}, {"path", config_.checkpoint_path}});
}

/// Those who have a part of the state take part, until it is read. Who does not write learns of an
/// error as of a death, or when it is agreed on.
Status Trainer::begin_save() {
  save_begun_ = told_at_ = clock_.mono_now();
  const auto write = [this](StateSource* source) {
    // Those who give shards hear of each piece anyway.
    return saves_beside_ && !is_end(standing_) ? save_copy(source)
                                               : save_in_place(source, !is_sharded());
  };
  if (is_sharded() || (is_split() && rank() == owner())) {
    return with_whole(true, [&](StateSource& source) { return write(&source); });
  }
  return is_owner() ? write(nullptr) : Status();
}

/// The owner waits for its disk as long as it has patience, and then tells the others, who have
/// time of their own for that.
Result<Trainer::Saving> Trainer::ask_owner() {
  Saving saving = Saving::kDone;
  if (is_owner() && saver_.step() == standing_.step && saving_step_ != standing_.step) {
    saving = Saving::kBegun;
  } else if (is_owner()) {
    const auto left = std::chrono::duration_cast<milliseconds>(save_begun_ + config_.save_patience -
                                                               clock_.mono_now());
    const milliseconds least{is_end(standing_) ? std::max(kSaveLook, config_.save_patience)
                                               : milliseconds(0)};
    const OnFiles files(hooks_, config_.checkpoint_path);
    if (!saver_.wait(std::max(least, left))) {
      saving = Saving::kUnderWay;
    } else if (!saves_beside_) {
      MUSTER_ASSIGN_OR_RETURN(const bool is_recorded, is_record_written());
      saving = is_recorded || is_end(standing_) ? Saving::kDoneInPlace : Saving::kUnderWay;
    }
  }
  MUSTER_RETURN_IF_ERROR(hear_owner(std::as_writable_bytes(std::span(&saving, 1))));
  return saving;
}

/// All agree on what became of the checkpoint that was begun last, now that it is known.
Status Trainer::conclude_save() {
  const Status own = is_owner() ? saver_.result() : Status();
  // Who has begun it in another membership is the only one who knows of it.
  if (saving_step_ < 0) return own;
  MUSTER_RETURN_IF_ERROR(follow_owner(own, "save the checkpoint", long_deadline()));
  standing_.checkpoint_step = std::exchange(saving_step_, -1);
  return {};
}

/// Until the one that was begun is written.
Result<Trainer::Saving> Trainer::await_owner() {
  Saving saving = Saving::kUnderWay;
  while (saving == Saving::kUnderWay) {
    MUSTER_ASSIGN_OR_RETURN(saving, ask_owner());
  }
  return saving;
}

/// Until nothing is being written any more.
void Trainer::await_save() {
  if (saver_.wait(milliseconds(0))) return;
  const OnFiles files(hooks_, config_.checkpoint_path);
  saver_.wait();
}

/// Once it is written.
void Trainer::forget_save() {
  await_save();
  saver_.forget();
}

/// As far as this process knows.
std::int64_t Trainer::newest_checkpoint() {
  return std::max(standing_.checkpoint_step, saver_.is_saved() ? saver_.step() : -1);
}

TrainingSummary Trainer::summary() {
  TrainingSummary summary;
  if (has_state_ || is_learning_) summary.step = standing_.step;
  summary.total_steps = total_steps_;
  summary.restored_step = standing_.restored_step;
  summary.checkpoint_step = newest_checkpoint();
  summary.loss = standing_.loss;
  summary.accuracy = standing_.accuracy;
  summary.model_parameters = static_cast<std::int64_t>(whole_.parameters());
  if (is_data_checked()) summary.data_sha256 = to_hex(data_digest_);
  summary.sent_bytes = sent_before_ + (communicator_ ? communicator_->sent_bytes() : 0);
  summary.logical_rank_computations = computations_;
  return summary;
}

/// Without a vocabulary nobody knows what other tokens than bytes stand for.
bool Trainer::writes_sample() const { return config_.gpt && (!train_.shards || vocabulary_); }

/// Tokens that a finished model writes.
std::size_t Trainer::sample_tokens() const {
  return std::clamp(kSampleWork / whole_.targets(), kLeastSample, kMostSample);
}

/// Each token takes a pass, of no more positions than the last one reads.
ModelShape Trainer::sample_shape() const {
  return whole_.first_positions(std::min(whole_.targets(), sample_tokens()));
}

/// What stands beside the model: what its inputs and classes are called, or, of a text, how to load
/// it and what it writes. Without `parameters` it writes nothing.
Status Trainer::describe_model(std::span<const float> parameters) {
  const auto keep = [&](std::string_view name, const std::string& text) -> Status {
    const std::string path = config_.checkpoint_path + "/" + std::string(name);
    // Another job may have left some.
    if (text.empty()) return remove_file(path);
    const auto written = write_file(path, text);
    return written ? Status() : Status(written.error());
  };
  if (!config_.gpt) {
    const auto lines = [](const Json& names) {
      return names.empty() ? std::string() : dump_json(names) + "\n";
    };
    MUSTER_RETURN_IF_ERROR(keep(contract::kClassesFile, lines(Json(train_.class_names))));
    MUSTER_RETURN_IF_ERROR(keep(contract::kInputsFile, lines(data::inputs_json(train_.columns))));
    return sync_directory(config_.checkpoint_path);
  }
  MUSTER_RETURN_IF_ERROR(keep(contract::kModelConfigFile, model_config()));
  const bpe::VocabularyFiles none;
  const bpe::VocabularyFiles& files = vocabulary_ ? vocabulary_->files() : none;
  MUSTER_RETURN_IF_ERROR(keep(contract::kVocabularyFile, files.tokens));
  MUSTER_RETURN_IF_ERROR(keep(contract::kMergesFile, files.merges));
  if (parameters.empty() || !writes_sample()) {
    MUSTER_RETURN_IF_ERROR(keep(contract::kSampleFile, ""));
    return sync_directory(config_.checkpoint_path);
  }
  SampleOptions options{config_.seed, sample_tokens()};
  if (vocabulary_) {
    const auto border = vocabulary_->find(bpe::kEndOfText);
    options.first = border ? *border : *vocabulary_->find("\n");
  }
  // What has computed steps is given up. A stage is by now: its room is that of the parameters.
  model_.reset();
  Model model(sample_shape(), 1, device(), Activations::kRecomputed);
  const auto between = [this]() -> Status {
    MUSTER_RETURN_IF_ERROR(at(point::kSample));
    return tell_under_way(false);
  };
  MUSTER_ASSIGN_OR_RETURN(const auto tokens, write_sample(model, parameters, options, between));
  MUSTER_RETURN_IF_ERROR(model.status());
  MUSTER_RETURN_IF_ERROR(
      keep(contract::kSampleFile,
           vocabulary_ ? vocabulary_->decode(tokens) : std::string(tokens.begin(), tokens.end())));
  return sync_directory(config_.checkpoint_path);
}

Status Trainer::finish() {
  const bool is_complete = is_last_step() && can_write();
  MUSTER_RETURN_IF_ERROR(at(point::kFinish));
  if (is_complete && config_.has_test && standing_.evaluated_step != standing_.step) {
    MUSTER_RETURN_IF_ERROR(evaluate_now());
    if (is_recorder()) MUSTER_RETURN_IF_ERROR(record_evaluation());
  }
  MUSTER_ASSIGN_OR_RETURN(const Sha256Digest digest, parameters_digest());
  MUSTER_RETURN_IF_ERROR(agree_equal(*communicator_, digest, "parameters after the last step",
                                     contract::exit_code::kInternal, long_deadline()));
  result_ = summary();
  result_.complete = is_complete;
  result_.model_sha256 = to_hex(digest);
  if (is_complete && keeps_files()) MUSTER_RETURN_IF_ERROR(leave_model(digest));
  result_.sent_bytes = sent_before_ + communicator_->sent_bytes();
  return {};
}

/// On the process with the files, while the others wait for what it does there, which may take
/// longer than anybody waits: where it is time, they hear that it gets on. `is_group_at_it`: its
/// own group gives it what it writes, and hears of that.
Status Trainer::tell_under_way(bool is_group_at_it) {
  const MonoTime now = clock_.mono_now();
  if (now - told_at_ < config_.save_patience) return {};
  told_at_ = now;
  Saving saving = Saving::kUnderWay;
  const auto says = std::as_writable_bytes(std::span(&saving, 1));
  if (!is_group_at_it) return hear_owner(says);
  return comm::broadcast(*communicator_, step_stamp(), owner(), says, long_deadline());
}

/// Before each piece of what is written meanwhile. Who is lost does not end that, as it may take
/// long to begin it anew: whatever is said next fails, too.
Status Trainer::before_piece(bool tells) {
  MUSTER_RETURN_IF_ERROR(at(point::kPiece));
  if (tells) static_cast<void>(tell_under_way(true));
  return {};
}

/// By all who have the copy of the process with the files.
Status Trainer::write_model() {
  const auto write = [this](StateSource& state) -> Status {
    const OnFiles files(hooks_, config_.checkpoint_path);
    MUSTER_RETURN_IF_ERROR(record_.sync()());
    WatchedSource watched(state, [this] { return before_piece(true); });
    MUSTER_ASSIGN_OR_RETURN(model_path_, store_->write_model(watched));
    return {};
  };
  if (is_split()) return with_whole(false, write);
  StateInMemory state(parameters_);
  return write(state);
}

/// Whether a process with a part of the model has memory for all of its values as well, and for a
/// pass through them.
bool Trainer::has_room_for_whole() const {
  if (config_.memory_bytes == 0) return true;
  MemoryNeeds needs = memory_needs(config_, *plan_, config_.place,
                                   memory_share(assignment_, rank()), ranks_at_once_);
  needs.activations =
      whole_.values() * sizeof(float) +
      Model::bytes(sample_shape(), 1, Activations::kRecomputed, std::max(1, config_.threads));
  if (needs.total() <= config_.memory_bytes) return true;
  log_warning("no sample is written: all of the model does not fit this process's memory",
              {{"needsBytes", static_cast<std::int64_t>(needs.total())},
               {"hasBytes", static_cast<std::int64_t>(config_.memory_bytes)}});
  return false;
}

/// Of a split model all is in the file alone. Who writes a sample reads it once for each token: in
/// memory it is there, and where it does not fit, the disk would give all of it each time.
Status Trainer::describe_whole() {
  const OnFiles files(hooks_, config_.checkpoint_path);
  if (!is_split()) return describe_model(parameters_);
  const auto on_alive = [this] { static_cast<void>(tell_under_way(false)); };
  MUSTER_ASSIGN_OR_RETURN(const SavedState whole, store_->read_model(on_alive));
  std::vector<float> parameters;
  if (writes_sample() && has_room_for_whole()) {
    // Whose room this is: a process with a part of the model has little for all of it.
    stage_.reset();
    saver_.give_up_copy();
    parameters.resize(whole.parameters.size());
    for (const StatePiece& piece : state_pieces(whole_, 0)) {
      const auto [first, size] = std::pair(piece.range.begin, piece.range.size());
      MUSTER_RETURN_IF_ERROR(whole.read(whole.parameters.subspan(first, size),
                                        std::span(parameters).subspan(first, size)));
      on_alive();
    }
  }
  return describe_model(parameters);
}

/// What is left of a training that is complete, whose parameters have this `digest`. The model is
/// there where this process has written it in an earlier membership.
Status Trainer::leave_model(const Sha256Digest& digest) {
  told_at_ = clock_.mono_now();
  auto is_written = static_cast<std::uint8_t>(model_written_ == digest ? 1 : 0);
  if (is_split() && rank() == owner()) {
    const auto says = std::as_writable_bytes(std::span(&is_written, 1));
    MUSTER_RETURN_IF_ERROR(comm::broadcast(*group_, step_stamp(), 0, says, long_deadline()));
  }
  Status own;
  if (rank() == owner() && is_written == 0) own = write_model();
  if (own && is_owner()) {
    model_written_ = digest;
    own = describe_whole();
  }
  result_.model_path = model_path_;
  Saving saving = Saving::kDone;
  do {
    // Of its own disk a process knows for itself, whoever was lost meanwhile.
    const Status heard = hear_owner(std::as_writable_bytes(std::span(&saving, 1)));
    if (!heard) return own ? heard : own;
  } while (saving == Saving::kUnderWay);
  return follow_owner(own, kModelFiles, long_deadline());
}

}  // namespace muster::engine
