#include "operator/core/replace_policy.h"

#include <algorithm>
#include <climits>

#include "common/contract.h"
#include "common/messages.h"
#include "operator/core/end_policy.h"
#include "operator/core/facts.h"
#include "operator/core/kueue_policy.h"
#include "operator/core/preparing.h"
#include "operator/core/status_edit.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

struct GiveBack {
  std::string_view reason;
  std::string message;
  std::string_view event = contract::reason::kGangWaiting;
  /// It starts again by a wish that can be had, and does not wait for anything.
  bool is_restart = false;
  /// Single nodes are no good: the others' workers are to stay where they are.
  bool is_of_nodes = false;
};

/// Whether a worker may have run since status.startTime. A gang that starts again has run before.
bool may_have_run(const api::TrainingJobStatus& status, const GangView& gang) {
  if (status.is_true(std::string(words::kRunning))) return true;
  if (status.is_true(std::string(words::kRestarting))) return true;
  return std::any_of(gang.members.begin(), gang.members.end(), [](const Member& member) {
    return member.state != MemberState::kMissing && member.state != MemberState::kPending;
  });
}

/// The members become leftovers by this decision; a new place is given when they are gone.
Plan give_back(const JobSnapshot& snapshot, const GangView& gang, api::TrainingJobStatus status,
               const GiveBack& why) {
  if (!may_have_run(snapshot.job.status, gang)) status.start_time.reset();
  if (why.is_of_nodes) {
    give_up_places(status);
  } else {
    status.placement.clear();
  }
  status.replicas = 0;
  status.workers = workers_text(0, status.target_workers);
  status.phase = why.is_restart ? words::kPhaseRestarting : words::kPhaseWaiting;
  set_condition(status, snapshot, {words::kRunning, false, why.reason, why.message});
  if (why.is_restart) {
    set_condition(status, snapshot, {words::kRestarting, true, why.reason, why.message});
  }
  set_condition(status, snapshot, {words::kAdmitted, false, why.reason, why.message, true});
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  add_event(plan, snapshot, why.is_restart ? "Normal" : "Warning", why.event, why.message);
  plan.reason = why.message;
  return plan;
}

/// Only a pod that we tied to a node can be better off elsewhere; one that the cluster's scheduler
/// may put anywhere waits for it.
bool is_refused(const Member& member) {
  return member.state == MemberState::kPending && !member.placement.node.empty() &&
         is_unbound(*member.pod);
}

}  // namespace

std::optional<seconds> until_unbound(const JobSnapshot& snapshot, const GangView& gang) {
  std::optional<seconds> least;
  for (const auto& member : gang.members) {
    if (!is_refused(member)) continue;
    const seconds left = words::kUnboundMost - lasted(snapshot, facts::unbound(*member.pod));
    least = std::min(least.value_or(left), left);
  }
  return least;
}

std::optional<Plan> decide_beyond_size(const JobSnapshot& snapshot, const GangView& gang) {
  const bool has_some =
      std::any_of(gang.members.begin(), gang.members.end(), [&](const Member& member) {
        return member.state == MemberState::kMissing &&
               !may_have_pod(snapshot.job, member.placement);
      });
  if (!has_some) return std::nullopt;
  return give_back(snapshot, gang, snapshot.job.status,
                   {contract::reason::kGangWaiting,
                    "status.placement names workers beyond spec.worker.max, or attempts that were "
                    "never given out; the gang is placed anew"});
}

std::optional<Plan> decide_give_back(const JobSnapshot& snapshot, const GangView& gang) {
  if (snapshot.create_failure && gang.count(MemberState::kMissing) > 0) {
    return give_back(snapshot, gang, snapshot.job.status,
                     {snapshot.create_failure->reason, snapshot.create_failure->message});
  }
  std::map<std::string, int> avoid;
  std::string message;
  for (const auto& member : gang.members) {
    if (!is_refused(member)) continue;
    if (lasted(snapshot, facts::unbound(*member.pod)) < words::kUnboundMost) continue;
    leave_out(avoid, member.placement.node, member.placement.attempt);
    if (!message.empty()) continue;
    message = "worker " + std::to_string(member.placement.slot) + " was not let onto node " +
              member.placement.node + " in " + std::to_string(words::kUnboundMost.count()) +
              " s (" + head_of(member.pod->reason, 128) + ": " + head_of(member.pod->message, 512) +
              "); another place is looked for";
  }
  std::string_view reason = contract::reason::kGangWaiting;
  if (avoid.empty()) {
    auto late = not_started(snapshot, gang);
    if (!late) return std::nullopt;
    reason = words::kNotStarted;
    message = std::move(late->message);
    avoid = std::move(late->nodes);
  }
  GiveBack why{reason, message};
  why.is_of_nodes = true;
  Plan plan = give_back(snapshot, gang, snapshot.job.status, why);
  plan.avoid = std::move(avoid);
  return plan;
}

Plan decide_let_go(const JobSnapshot& snapshot, const GangView& gang, const LetGo& why) {
  return give_back(snapshot, gang, snapshot.job.status, {words::kHalfBound, why.message});
}

std::optional<Plan> decide_resize(const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  // A gang that got fewer places than it wished for is not resized until the wish changes; other
  // changes of its spec are none of the wish.
  const int wish = std::min(job.spec.worker.count, kMaxWorkers);
  const bool changed = job.status.start_count > 0
                           ? wish != job.status.start_count
                           : job.meta.generation > job.status.observed_generation;
  const bool elastic = !job.spec.training && job.spec.worker.min < job.spec.worker.max;
  const int size = static_cast<int>(gang.members.size());
  if (!changed || !elastic || size == 0 || size == job.spec.worker.count) return std::nullopt;
  if (gang.count(MemberState::kSucceeded) > 0) return std::nullopt;
  api::TrainingJobStatus status = job.status;
  status.resizes = std::min(status.resizes, INT_MAX - 1) + 1;
  const std::string message = "spec.worker.count is " + std::to_string(job.spec.worker.count) +
                              " now; the gang of " + std::to_string(size) +
                              " starts again in that size (resize " +
                              std::to_string(status.resizes) + ")";
  return give_back(snapshot, gang, std::move(status),
                   {words::kResizing, message, contract::reason::kResized, true});
}

namespace {

/// The first of those that a worker says would fit, that splits the model further, and that the
/// workers there may be can have.
std::optional<Split> split_for(const api::TrainingJob& job, std::string_view sentence) {
  const int now = api::split_of(job).processes();
  for (const Split& split : read_needs_split(sentence)) {
    if (split.processes() > now && api::check_divides(job.spec.worker, split, "")) return split;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Plan> decide_split(const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  if (!job.spec.training || job.spec.training->parallelism_mode != "Auto") return std::nullopt;
  for (const auto& member : gang.members) {
    if (member.state != MemberState::kFailed) continue;
    const Failure failure = read_failure(member, snapshot);
    const bool is_engine = failure.facts.container.empty();
    if (!is_engine || failure.facts.exit_code != contract::exit_code::kNeedsSplit) continue;
    const auto split = split_for(job, failure.facts.log_tail);
    if (!split) continue;
    api::TrainingJobStatus status = job.status;
    status.split = *split;
    const std::string message =
        sentence_of(failure) +
        "; the gang starts again with each copy of the model split between " +
        std::to_string(split->processes()) + " processes (tensor " + std::to_string(split->tensor) +
        ", pipeline " + std::to_string(split->pipeline) + ")";
    return give_back(snapshot, gang, std::move(status),
                     {contract::reason::kModelSplit, message, contract::reason::kModelSplit, true});
  }
  return std::nullopt;
}

std::string resize_text(const JobSnapshot& snapshot, const GangView& gang) {
  const int wish = snapshot.job.spec.worker.count;
  if (wish == static_cast<int>(gang.members.size())) return "";
  // The engine's workers join and leave while the others train, but where Kueue holds the size.
  if (snapshot.job.spec.training && !is_in_kueue(snapshot.job)) return "";
  return "; spec.worker.count is " + std::to_string(wish) +
         ", which takes effect at the next start";
}

Plan await_or_supersede(const JobSnapshot& snapshot, const GangView& gang) {
  Plan plan;
  plan.reason = "pods of a later attempt are there; waiting for the job";
  const seconds left = words::kOldMost - lasted(snapshot, facts::job_is_old());
  if (left.count() > 0) {
    plan.requeue_after = left;
    return plan;
  }
  const std::string message =
      "the job's status says less than its pods show; they are superseded by a new attempt";
  api::TrainingJobStatus status = snapshot.job.status;
  status.membership_epoch = std::max<std::int64_t>(status.membership_epoch, gang.newest_attempt);
  status.membership_epoch = next_epoch(status);
  status.placement.clear();
  status.replicas = 0;
  status.phase = words::kPhaseWaiting;
  set_condition(status, snapshot, {words::kRunning, false, words::kStatusLost, message});
  set_condition(status, snapshot, {words::kAdmitted, false, words::kStatusLost, message, true});
  plan = write_status(snapshot, std::move(status), Pass::kDecision);
  add_event(plan, snapshot, "Warning", contract::reason::kRestarting, message);
  plan.reason = message;
  return plan;
}

}  // namespace muster::core
