// The trainer where it looks whether all members still have the same state, and what it does when
// they have not: it goes back to the newest checkpoint, because what was trained since the bit
// flipped is wrong on all. A checkpoint is compared before it is written, hence right.
#include <algorithm>
#include <string>
#include <utility>

#include "common/contract.h"
#include "common/log.h"
#include "worker/engine/agreement.h"
#include "worker/engine/trainer.h"

namespace muster::engine {
namespace {

/// Steps between two comparisons where no checkpoint asks for one. A comparison reads the whole
/// state once and costs a round trip, so that so many steps cost less than 1 % of the smallest
/// model's (docs/benchmarks.md).
constexpr std::int64_t kCompareEverySteps = 64;
/// How often nobody can be found guilty until it is not a flipped bit any more.
constexpr int kReturnsMax = 3;

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

Error bad_memory(std::int64_t step, const std::string& what) {
  return Error(ErrorCode::kCorrupt, "step " + std::to_string(step) + ": " + what)
      .with_exit_code(contract::exit_code::kMemory);
}

}  // namespace

bool Trainer::is_comparison_due(const Standing& standing) const {
  return is_checkpoint_due(standing) ||
         (standing.settled_step < standing.step && standing.step % kCompareEverySteps == 0);
}

CopySums Trainer::copy_sums() const {
  const OptimizerState& state = optimizer_->state();
  if (!is_sharded()) return {bit_sum(parameters_, state, hooks_.on_alive)};
  BitSum shared;
  shared.add(parameters_, hooks_.on_alive);
  for (const auto& scalar : state.scalars) shared.add(scalar.value);
  CopySums sums{shared.value()};
  for (const Stretch& stretch : stretches_of(shape_.parameters(), keeping_.kept)) {
    const auto& keepers = stretch.keepers;
    const bool is_kept = std::find(keepers.begin(), keepers.end(), rank()) != keepers.end();
    BitSum sum;
    for (std::size_t b = 0; is_kept && b < state.buffers.size(); ++b) {
      const std::span<const float> values = state.buffers[b].values;
      sum.add(values.subspan(offset_of(state.room, stretch.range), stretch.range.size()),
              hooks_.on_alive);
    }
    sums.push_back(is_kept ? sum.value() : 0);
  }
  return sums;
}

/// The same on all processes, but that of a split model each knows of its own stage's copies alone
/// whose is wrong.
Result<CopyVerdict> Trainer::compare_copies() {
  const CopySums own = copy_sums();
  MUSTER_ASSIGN_OR_RETURN(const auto sums,
                          gather_sums(*communicator_, own, step_stamp(), deadline()));
  CopyVerdict verdict =
      judge_copies(sums, is_sharded() ? stretches_of(shape_.parameters(), keeping_.kept)
                                      : std::vector<Stretch>());
  if (verdict.are_alike && !is_sharded()) compared_ = {standing_.step, own[0]};
  if (!is_split()) return verdict;
  MUSTER_ASSIGN_OR_RETURN(const bool differ, any_in_group(!verdict.are_alike));
  verdict.are_alike = !differ;
  return verdict;
}

/// Whether training can go on with the state as it is. Where it cannot, all processes come to the
/// same end: who is found guilty ends, the others have no state any more.
Result<bool> Trainer::is_state_sound() {
  if (copies() == 1) return true;
  MUSTER_RETURN_IF_ERROR(at(point::kCompare));
  const auto verdict = compare_copies();
  if (!verdict) return peer_error(verdict.error().with("comparison of the state"));
  if (verdict->are_alike) {
    is_compared_ = true;
    return true;
  }
  // Nobody acts before all know of it: whoever did not would go on with what it has. Should
  // somebody be lost meanwhile, the others learn it from the lineage in the next greetings.
  if (const Status all_know = comm::barrier(all_processes(), step_stamp(), deadline()); !all_know) {
    log_info("a member was lost while copies were compared",
             {{"error", all_know.error().message()}});
  }
  MUSTER_RETURN_IF_ERROR(judge_state(*verdict));
  note_return("copies of the state differed: a bit had flipped in memory", standing_.step);
  drop_state(standing_.lineage + 1);
  return false;
}

/// Which processes end here, and how the others are told.
Status Trainer::judge_state(const CopyVerdict& verdict) {
  const std::int64_t step = standing_.step;
  if (!keeps_files()) {
    return bad_memory(step,
                      "the processes' copies of the training state differ: a bit has flipped in "
                      "memory, and this job keeps no checkpoint to go back to; use "
                      "spec.training.checkpoint");
  }
  // Who has joined since the last comparison may have been given the wrong copy.
  const bool is_known = is_compared_ && !is_sharded() && !verdict.wrong.empty();
  if (is_known &&
      std::find(verdict.wrong.begin(), verdict.wrong.end(), rank()) != verdict.wrong.end()) {
    return bad_memory(step,
                      "the training state of process " + std::to_string(rank()) +
                          " is not that of more than half of all: a bit has flipped in its memory");
  }
  if (!is_known && ++returns_ > kReturnsMax) {
    return bad_memory(step, "the processes' copies of the training state differ again after " +
                                std::to_string(kReturnsMax) +
                                " returns to a checkpoint: memory or a processor is faulty");
  }
  log_warning(
      "copies of the training state differ: a bit has flipped in memory; training goes on from the "
      "newest checkpoint",
      {{"step", step}, {"processes", is_known ? list_of(verdict.wrong) : "not known"}});
  return {};
}

/// A flipped bit may be what made training diverge. Then the copies differ, or all are ruined by
/// now and it will not happen again: steps that are made anew from a checkpoint have the same bits.
Result<Trainer::Outcome> Trainer::doubt(const Error& diverged) {
  // Who learns may have nothing to compare yet; if it happens again, it has.
  if (!has_learners()) {
    MUSTER_ASSIGN_OR_RETURN(const bool is_sound, is_state_sound());
    if (!is_sound) return Outcome::kStateLost;
  }
  if (!keeps_files() || !config_.rolls_back) return diverged;
  BitSum parameters;
  parameters.add(parameters_);
  const Divergence now{standing_.step, parameters.value()};
  if (std::exchange(diverged_, now) == now) return diverged_again(diverged);
  // What happens now here, now there, would keep training from its next checkpoint for ever.
  if (++returns_ > kReturnsMax) {
    return bad_memory(now.step, "training diverges from other bits each time, after " +
                                    std::to_string(kReturnsMax) +
                                    " returns to a checkpoint: memory or a processor is faulty");
  }
  const std::string what = diverged.message().substr(0, diverged.message().find(';'));
  log_warning(
      "training has diverged; whether it does so again is seen by going on from the newest "
      "checkpoint",
      {{"step", now.step}, {"error", what}});
  note_return("training had diverged: " + what, now.step);
  drop_state(standing_.lineage + 1);
  return Outcome::kStateLost;
}

Error Trainer::diverged_again(const Error& diverged) const {
  const std::int64_t from = standing_.restored_step;
  return Error(diverged.code(),
               diverged.message() +
                   "; it came again with the same bits after training had gone "
                   "back to " +
                   (from < 0 ? "its start" : "the checkpoint of step " + std::to_string(from)) +
                   ", so it is the training and not a fault of memory or of a device")
      .with_exit_code(diverged.exit_code());
}

/// For the one that tells of it when training goes on.
void Trainer::note_return(std::string why, std::int64_t step) {
  returned_ = std::move(why);
  returned_from_ = step;
}

/// Nothing of the state is to be used or handed on, nor what was recorded since the checkpoint.
void Trainer::drop_state(std::int64_t lineage) {
  has_state_ = is_whole_ = is_compared_ = is_learning_ = false;
  compared_ = {};
  logged_.reset();
  newer_.clear();
  forget_standing(lineage);
  sums_->forget();
  forget_record();
}

/// Without a state nothing is known of its steps.
void Trainer::forget_standing(std::int64_t lineage) {
  standing_ = Standing();
  standing_.lineage = lineage;
}

}  // namespace muster::engine
