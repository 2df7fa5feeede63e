#include "operator/core/reconcile.h"

#include <algorithm>

#include "common/contract.h"
#include "common/list_text.h"
#include "common/messages.h"
#include "operator/api/kueue.h"
#include "operator/core/budget_policy.h"
#include "operator/core/drain_policy.h"
#include "operator/core/elastic.h"
#include "operator/core/elastic_policy.h"
#include "operator/core/end_policy.h"
#include "operator/core/ended_workers.h"
#include "operator/core/facts.h"
#include "operator/core/gang_view.h"
#include "operator/core/half_bound.h"
#include "operator/core/kueue_policy.h"
#include "operator/core/members.h"
#include "operator/core/preempt_policy.h"
#include "operator/core/preparing.h"
#include "operator/core/progress.h"
#include "operator/core/queue_words.h"
#include "operator/core/replace_policy.h"
#include "operator/core/status_edit.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

Plan nothing(std::string reason) {
  Plan plan;
  plan.reason = std::move(reason);
  return plan;
}

/// Times in objects are anybody's: a pod may be deleted with a grace of 292 years, and a clock of
/// nanoseconds cannot add that to now.
void requeue(Plan& plan, seconds after) {
  after = std::clamp(after, seconds(1), words::kLookAgainMost);
  plan.requeue_after = plan.requeue_after ? std::min(*plan.requeue_after, after) : after;
}

void delete_pod(Plan& plan, const api::Pod& pod) {
  if (!pod.meta.deletion_time) plan.actions.push_back(DeletePod{pod.meta.key(), pod.meta.uid});
}

void append(Plan& plan, Plan more) {
  for (auto& action : more.actions) plan.actions.push_back(std::move(action));
  if (more.pass != Pass::kNone) plan.pass = more.pass;
  if (more.requeue_after) requeue(plan, *more.requeue_after);
}

/// Deletes leftovers; true while the next attempt has to wait for one of them.
bool clear_stale(Plan& plan, const JobSnapshot& snapshot, const GangView& gang) {
  bool wait = false;
  for (const api::Pod* pod : gang.stale) {
    delete_pod(plan, *pod);
    if (!must_wait_for(*pod, snapshot)) continue;
    wait = true;
    if (pod->meta.deletion_time) requeue(plan, until_overdue(*pod, snapshot));
  }
  return wait;
}

/// Who waits for pods that may not be deleted would wait without a word.
void say_undeleted(Plan& plan, const JobSnapshot& snapshot) {
  if (snapshot.deletion_refused.empty()) return;
  api::TrainingJobStatus status = snapshot.job.status;
  set_condition(status, snapshot,
                {words::kRunning, false, words::kWaitingForPods,
                 plan.reason + undeleted_text(snapshot), true});
  append(plan, write_status(snapshot, std::move(status), Pass::kObservation));
}

// ---- Ended jobs

bool is_repaired(const JobSnapshot& snapshot) {
  const auto* condition = snapshot.job.status.condition(std::string(words::kFailed));
  return snapshot.spec_verdict.has_value() && snapshot.job.status.membership_epoch == 0 &&
         condition != nullptr && condition->reason == contract::reason::kInvalidSpec;
}

/// A job refused for its spec never started; with a spec that can be right it is as good as new.
Plan take_back_refusal(const JobSnapshot& snapshot) {
  api::TrainingJobStatus status = snapshot.job.status;
  const std::string message = "the spec was repaired";
  set_condition(status, snapshot, {words::kFailed, false, words::kRepaired, message});
  set_condition(status, snapshot, {words::kAdmitted, false, words::kRepaired, message});
  status.completion_time.reset();
  status.phase = words::kPhasePending;
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  plan.reason = message;
  return plan;
}

Plan reconcile_finished(const JobSnapshot& snapshot, const GangView& gang) {
  if (is_repaired(snapshot)) return take_back_refusal(snapshot);
  const api::TrainingJob& job = snapshot.job;
  // The time to live may be changed afterwards; who waits for that to be seen looks here.
  Plan plan = write_status(snapshot, job.status, Pass::kObservation);
  plan.reason = "ended";
  for (const api::Pod* pod : gang.owned) {
    if (pod->meta.deletion_time) continue;
    const seconds left = words::kLingersMost - lasted(snapshot, facts::lingering(*pod));
    // Where only the phase lags behind, nothing runs any more, and deleting would take the log
    // away. What others have put into the pod may run for ever, and the node counts all of it.
    if (pod->termination && left.count() > 0) {
      requeue(plan, left);
      continue;
    }
    if (pod->termination) plan.reason = "ended; pods whose worker has ended run on: deleted";
    delete_pod(plan, *pod);
  }
  const auto& ttl = job.spec.ttl_seconds_after_finished;
  if (!ttl || !job.status.completion_time) return plan;
  const std::int64_t bounded = std::clamp<std::int64_t>(*ttl, 0, 1LL << 31);
  const auto due = *job.status.completion_time + seconds(bounded);
  if (snapshot.now < due) {
    requeue(plan, std::chrono::ceil<seconds>(due - snapshot.now));
    return plan;
  }
  // The job that this writes is another one than was read here.
  if (plan.pass != Pass::kNone) return plan;
  plan.actions.push_back(DeleteJob{job.meta.key(), job.meta.uid, job.meta.resource_version});
  plan.reason = "spec.ttlSecondsAfterFinished have passed";
  return plan;
}

Plan refuse_spec(const JobSnapshot& snapshot) {
  const api::TrainingJob& job = snapshot.job;
  api::TrainingJobStatus status = job.status;
  std::string message = snapshot.spec_verdict.error().message();
  // That a spec is no longer right is no reason to end a job that has trained.
  if (status.membership_epoch > 0) {
    message += "; no gang is started until the spec is repaired";
  } else {
    status.phase = words::kPhaseFailed;
    status.completion_time = whole_seconds(snapshot.now);
    set_condition(status, snapshot,
                  {words::kFailed, true, contract::reason::kInvalidSpec, message});
  }
  set_condition(status, snapshot,
                {words::kAdmitted, false, contract::reason::kInvalidSpec, message, true});
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  if (!plan.empty()) {
    add_event(plan, snapshot, "Warning", contract::reason::kInvalidSpec, message);
  }
  plan.reason = message;
  return plan;
}

// ---- Suspension

/// The last word of a worker that left: its checkpoint. The placement that could prove the attempt
/// is gone; it is one of those given out since the gang started.
void take_last_report(api::TrainingJobStatus& status, const JobSnapshot& snapshot) {
  const auto at = snapshot.reports.find(0);
  if (at == snapshot.reports.end()) return;
  const std::int64_t newest = snapshot.job.status.membership_epoch - 1;
  const std::int64_t start = snapshot.job.status.start_attempt;
  const std::int64_t first = start < 0 ? newest : start;
  if (at->second.attempt < first || at->second.attempt > newest) return;
  take_report(status, at->second, snapshot);
}

Plan suspend(const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  api::TrainingJobStatus status = job.status;
  const std::string asked = "spec.suspend is true";
  status.last_nodes.clear();
  if (const auto* report = newest_report(snapshot, gang)) take_report(status, *report, snapshot);
  if (!status.placement.empty() || status.start_time || status.restart_at ||
      status.past_active_seconds > 0) {
    // The members become leftovers by this decision, so how they end is no failure.
    status.placement.clear();
    status.start_time.reset();
    status.past_active_seconds = 0;
    status.restart_at.reset();
    status.replicas = 0;
    status.workers = workers_text(0, status.target_workers);
    set_condition(status, snapshot, {words::kRunning, false, words::kSuspending, asked});
    set_condition(status, snapshot, {words::kRestarting, false, words::kSuspending, asked});
    set_condition(status, snapshot, {words::kAdmitted, false, words::kSuspending, asked});
    Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
    plan.reason = "suspending";
    return plan;
  }
  Plan plan = nothing("suspended");
  if (clear_stale(plan, snapshot, gang)) {
    plan.reason = "waiting for the workers to leave";
    say_undeleted(plan, snapshot);
    return plan;
  }
  take_last_report(status, snapshot);
  set_condition(status, snapshot, {words::kRunning, false, words::kSuspending, asked});
  const bool news = !status.is_true(std::string(words::kSuspended));
  status.phase = words::kPhaseSuspended;
  status.workers = workers_text(0, status.target_workers);
  set_condition(status, snapshot, {words::kSuspended, true, contract::reason::kSuspended, asked});
  set_condition(status, snapshot,
                {words::kAdmitted, false, contract::reason::kSuspended, asked, true});
  Plan written = write_status(snapshot, std::move(status), Pass::kObservation);
  if (news && !written.empty()) {
    add_event(written, snapshot, "Normal", contract::reason::kSuspended, asked);
  }
  append(plan, std::move(written));
  return plan;
}

// ---- Admission

std::string placement_text(const std::vector<std::string>& nodes) {
  std::map<std::string, int> per_node;
  for (const auto& node : nodes) ++per_node[node];
  std::string text = std::to_string(nodes.size()) + (nodes.size() == 1 ? " worker" : " workers");
  if (per_node.size() == 1 && per_node.begin()->first.empty()) return text + ", unplaced";
  constexpr std::size_t kNamedMost = 4;
  return text + " on " + list_text(per_node, kNamedMost, [](const auto& one) {
           return one.first + " (" + std::to_string(one.second) + ")";
         });
}

/// Who waits for GPUs, or holds some, is told which workers train on them.
std::string with_gpus(const api::TrainingJob& job, std::string message) {
  const std::string about = api::about_gpus(job.spec);
  return about.empty() ? message : message + "; " + about;
}

Plan place_gang(const JobSnapshot& snapshot, const GangPlacement& placed) {
  const api::TrainingJob& job = snapshot.job;
  api::TrainingJobStatus status = job.status;
  status.membership_epoch = next_epoch(status);
  status.placement.clear();
  // Attempts never repeat, for any slot, through restarts, suspension and lost nodes.
  const int attempt = static_cast<int>(status.membership_epoch - 1);
  int slot = 0;
  for (const auto& node : placed.node_of_slot) {
    api::SlotPlacement place{slot, attempt, node,
                             domain_of(placed, static_cast<std::size_t>(slot))};
    if (!may_have_pod(job, place)) break;
    status.placement.push_back(std::move(place));
    ++slot;
  }
  status.last_nodes.clear();
  status.start_attempt = attempt;
  status.key_id = snapshot.key_id;
  status.worker_size = placed.worker_size;
  const int wish = api::with_size(job.spec.worker, placed.worker_size).count;
  status.start_count = std::min(wish, kMaxWorkers);
  status.witness.reset();
  status.target_workers = slot;
  status.replicas = 0;
  status.workers = workers_text(0, slot);
  status.selector = api::pod_selector(job);
  status.queue = snapshot.queue;
  status.went_ahead = placed.went_ahead;
  status.kueue_queue = api::kueue_queue_wanted(job);
  // Until Kueue admits it a gang has not started.
  const bool waits = !status.kueue_queue.empty();
  if (!status.start_time && !waits) status.start_time = whole_seconds(snapshot.now);
  if (job.spec.training) {
    status.contract = job.spec.training->precision == "BFloat16" ? contract::kBfloat16Contract
                                                                 : contract::kNumericsContract;
  }
  const bool resumed = status.is_true(std::string(words::kSuspended));
  const bool restarting = status.is_true(std::string(words::kRestarting));
  status.phase = restarting ? words::kPhaseRestarting : words::kPhasePending;
  std::string message = placement_text(placed.node_of_slot);
  if (!placed.why.empty()) message += "; " + placed.why;
  message = with_gpus(job, std::move(message));
  set_condition(status, snapshot,
                {words::kAdmitted, true, contract::reason::kGangScheduled, message});
  set_condition(status, snapshot,
                {words::kSuspended, false, contract::reason::kResumed, "spec.suspend is false"});
  // Why it was stopped is over.
  set_condition(status, snapshot,
                {words::kRunning, false, contract::reason::kGangScheduled,
                 "the gang has its places, and its workers start"});
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  if (resumed) {
    add_event(plan, snapshot, "Normal", contract::reason::kResumed, "spec.suspend is false");
  }
  add_event(plan, snapshot, "Normal", contract::reason::kGangScheduled, message);
  plan.reason = message;
  return plan;
}

Plan say_waiting(const JobSnapshot& snapshot, std::string_view reason, const std::string& message) {
  api::TrainingJobStatus status = snapshot.job.status;
  const auto* before = status.condition(std::string(words::kAdmitted));
  const bool news = before == nullptr || before->reason != reason;
  const bool only_words = !news && before->status == "False" && before->message != message &&
                          status.phase == words::kPhaseWaiting;
  if (only_words) {
    const seconds left = until_said_anew(snapshot, before->message, message);
    if (left.count() > 0) {
      Plan later = nothing(message);
      requeue(later, left);
      return later;
    }
  }
  const bool resumed = status.is_true(std::string(words::kSuspended));
  if (before != nullptr && (before->reason == contract::reason::kPreempted ||
                            before->reason == contract::reason::kBudgetSpent)) {
    take_last_report(status, snapshot);
  }
  status.phase = words::kPhaseWaiting;
  set_condition(status, snapshot, {words::kAdmitted, false, reason, message, true});
  set_condition(status, snapshot,
                {words::kSuspended, false, contract::reason::kResumed, "spec.suspend is false"});
  const auto* running = status.condition(std::string(words::kRunning));
  if (running != nullptr && running->reason == words::kSuspending) {
    set_condition(status, snapshot,
                  {words::kRunning, false, reason, "the gang waits for its places"});
  }
  Plan plan = write_status(snapshot, std::move(status), Pass::kObservation);
  if (resumed && !plan.empty()) {
    add_event(plan, snapshot, "Normal", contract::reason::kResumed, "spec.suspend is false");
  }
  if (news && !plan.empty()) {
    add_event(plan, snapshot, "Warning", contract::reason::kGangWaiting, message);
  }
  plan.reason = message;
  return plan;
}

std::optional<seconds> until_restart(const JobSnapshot& snapshot) {
  const api::TrainingJobStatus& status = snapshot.job.status;
  if (!status.restart_at || *status.restart_at <= snapshot.now) return std::nullopt;
  // Should the clock have been set back, the back-off still takes no longer than it was to take.
  const seconds whole =
      restart_backoff(snapshot.job.spec.restart, std::max(status.restarts, 1) - 1) + seconds(1);
  const seconds left = whole - lasted(snapshot, facts::backing_off(status));
  if (left.count() <= 0) return std::nullopt;
  return std::min(left, std::chrono::ceil<seconds>(*status.restart_at - snapshot.now));
}

Plan admit(const JobSnapshot& snapshot, const GangView& gang) {
  Plan plan = nothing("waiting for a place");
  if (const auto left = until_deadline(snapshot)) requeue(plan, *left);
  if (clear_stale(plan, snapshot, gang)) {
    plan.reason = "waiting for the last attempt's pods to go";
    if (!snapshot.deletion_refused.empty()) {
      append(plan, say_waiting(snapshot, contract::reason::kGangWaiting,
                               plan.reason + undeleted_text(snapshot)));
    }
    return plan;
  }
  if (const auto wait = until_restart(snapshot)) {
    requeue(plan, *wait);
    plan.reason = "restart back-off";
    return plan;
  }
  if (const auto wait = until_tried_again(snapshot)) {
    requeue(plan, *wait);
    plan.reason = "others may have what a part of the gang held";
    return plan;
  }
  if (snapshot.create_failure) {
    append(plan, say_waiting(snapshot, snapshot.create_failure->reason,
                             snapshot.create_failure->message));
    return plan;
  }
  if (const std::string why = why_deactivated(snapshot.job); !why.empty()) {
    plan.reason = why;
    return plan;
  }
  if (snapshot.claim_of) {
    // Of pods whose node is lost only time tells that they write no more.
    if (snapshot.claim_of->is_over) requeue(plan, words::kOverdue);
    append(plan, say_waiting(snapshot, words::kCheckpointInUse, in_use_text(*snapshot.claim_of)));
    return plan;
  }
  // What was found for slots that were to join is no place for a gang that starts.
  if (!snapshot.gang || !snapshot.gang->slots.empty()) return plan;
  const seconds left = words::kAppliedTogether - lasted(snapshot, facts::lacks_volumes());
  if (newly_lacks_volumes(snapshot) && left.count() > 0) {
    requeue(plan, left);
    plan.reason = snapshot.gang->why_not;
    return plan;
  }
  Plan next = snapshot.gang->placement
                  ? place_gang(snapshot, *snapshot.gang->placement)
                  : say_waiting(snapshot, contract::reason::kGangWaiting,
                                with_gpus(snapshot.job, snapshot.gang->why_not));
  // A decision is written alone; leftovers that nobody waits for are cleared in the next pass.
  if (next.pass == Pass::kDecision) return next;
  plan.reason = next.reason;
  append(plan, std::move(next));
  return plan;
}

// ---- A placed gang

/// No pod is planned elsewhere.
void create_pod(Plan& plan, const JobSnapshot& snapshot, const Member& member) {
  if (!may_have_pod(snapshot.job, member.placement)) return;
  plan.actions.push_back(
      CreatePod{api::make_pod(snapshot.job, member.placement, snapshot.pod_options)});
}

Plan start_members(const JobSnapshot& snapshot, const GangView& gang) {
  Plan plan = nothing("starting the gang");
  const api::TrainingJob& job = snapshot.job;
  const bool none = gang.count(MemberState::kMissing) == static_cast<int>(gang.members.size());
  if (none && !job.spec.training) plan.actions.push_back(CreateService{api::make_service(job)});
  if (none) {
    if (auto group = api::make_pod_group(job, snapshot.pod_options)) {
      plan.actions.push_back(CreatePodGroup{*std::move(group)});
    }
  }
  for (const auto& member : gang.members) {
    if (member.state == MemberState::kMissing) create_pod(plan, snapshot, member);
  }
  return plan;
}

/// What the first worker that says so waits for. A kubelet that cannot pull an image says so in two
/// ways in turn, which would be a write each time: what was said first is kept.
std::string pending_text(const JobSnapshot& snapshot, const GangView& gang,
                         const api::Condition* before) {
  for (const auto& member : gang.members) {
    if (member.state != MemberState::kPending || member.pod->reason.empty()) continue;
    const api::Pod& pod = *member.pod;
    std::string text = "worker " + std::to_string(member.placement.slot) + " waits: ";
    const bool image = pod.reason == "ErrImagePull" || pod.reason == "ImagePullBackOff";
    if (!image) return text + head_of(pod.reason, 128) + " " + head_of(pod.message, 512);
    text += "ImagePullBackOff ";
    const bool said = before != nullptr && before->reason == words::kWaitingForPods &&
                      before->message.starts_with(text);
    if (said) return before->message;
    return text + head_of(pod.message, 512) +
           "; to repair the image, set spec.suspend to true, change it once the job is suspended, "
           "and set it to false again";
  }
  return preparing_text(snapshot, gang, before);
}

/// Returns when to come back for words that are not written yet.
std::optional<seconds> observe_running(api::TrainingJobStatus& status, const JobSnapshot& snapshot,
                                       const GangView& gang) {
  const bool whole = gang.count(MemberState::kMissing) == 0 && !is_held_by_kueue(gang);
  if (is_in_kueue(snapshot.job) && whole && !status.start_time) {
    status.start_time = whole_seconds(snapshot.now);
  }
  if (trains_on(snapshot, gang)) {
    const auto* running = status.condition(std::string(words::kRunning));
    observe_members(status, snapshot, gang, restored_text(snapshot, gang, running));
    return std::nullopt;
  }
  // Who has ended with 0 counts as running until all have: workers end within moments of each
  // other, and every step of that would be a write.
  const int running = gang.count(MemberState::kRunning) + gang.count(MemberState::kSucceeded);
  const int target = static_cast<int>(gang.members.size());
  if (running == target) {
    status.phase = words::kPhaseRunning;
    status.replicas = target;
    status.workers = workers_text(target, target);
    status.restart_at.reset();
    const api::Pod* first = gang.members.front().pod;
    if (first != nullptr && !first->image_id.empty())
      status.image_digest = head_of(first->image_id, 512);
    const auto* before = status.condition(std::string(words::kRunning));
    const std::string message = std::to_string(target) + " of " + std::to_string(target) +
                                (target == 1 ? " worker runs" : " workers run") +
                                restored_text(snapshot, gang, before) + busy_text(snapshot, gang) +
                                undeleted_text(snapshot) + drain_text(snapshot, gang, before) +
                                resize_text(snapshot, gang);
    set_condition(status, snapshot, {words::kRunning, true, words::kGangRunning, message});
    set_condition(status, snapshot, {words::kRestarting, false, words::kGangRunning, message});
    return std::nullopt;
  }
  if (is_held_by_kueue(gang)) return say_held(status, snapshot);
  const std::string waiting =
      pending_text(snapshot, gang, status.condition(std::string(words::kRunning)));
  if (waiting.empty()) return std::nullopt;
  status.phase = words::kPhaseWaiting;
  // Said even if it never ran: this is where a user looks for the reason.
  set_condition(status, snapshot, {words::kRunning, false, words::kWaitingForPods, waiting, true});
  return std::nullopt;
}

/// Of workers that join one by one, and of words that change, each would be a write: it is said
/// when all that have a place are in, or with the next progress.
bool may_wait(const JobSnapshot& snapshot, const GangView& gang,
              const api::TrainingJobStatus& status) {
  const api::TrainingJobStatus& before = snapshot.job.status;
  if (status == before || !is_recent(snapshot)) return false;
  const bool all_in = status.replicas == static_cast<int>(gang.members.size());
  if (!all_in && status.replicas > before.replicas) return true;
  api::TrainingJobStatus same_words = status;
  for (auto& condition : same_words.conditions) {
    const auto* old = before.condition(condition.type);
    if (old != nullptr && old->status == condition.status) condition.message = old->message;
  }
  return same_words == before;
}

/// Says of a gang that has its places that its spec is refused, or no longer is.
void judge_spec(api::TrainingJobStatus& status, const JobSnapshot& snapshot) {
  if (!snapshot.spec_verdict) {
    const std::string& refusal = snapshot.spec_verdict.error().message();
    set_condition(status, snapshot,
                  {words::kAdmitted, true, contract::reason::kInvalidSpec,
                   refusal + "; the gang goes on, for it was admitted before"});
    return;
  }
  const auto* admitted = status.condition(std::string(words::kAdmitted));
  if (admitted == nullptr || admitted->reason != contract::reason::kInvalidSpec) return;
  set_condition(
      status, snapshot,
      {words::kAdmitted, true, contract::reason::kGangScheduled, "the spec is understood"});
}

/// Says of a gang that has its places that its queue is gone, for as long as it is.
void judge_queue(api::TrainingJobStatus& status, const JobSnapshot& snapshot) {
  const auto* admitted = status.condition(std::string(words::kAdmitted));
  if (admitted == nullptr || admitted->status != "True") return;
  const std::string reason = admitted->reason;
  std::string told = with_gone_queue(admitted->message, snapshot.gone_queue);
  if (told == admitted->message) return;
  set_condition(status, snapshot, {words::kAdmitted, true, reason, std::move(told)});
}

seconds until_progress(const JobSnapshot& snapshot) {
  return std::chrono::ceil<seconds>(*snapshot.job.status.progress->updated_at +
                                    words::kProgressInterval - snapshot.now);
}

Plan observe(const JobSnapshot& snapshot, const GangView& gang) {
  api::TrainingJobStatus status = snapshot.job.status;
  const bool trains = trains_on(snapshot, gang);
  // What schedule says comes within this step, and is written as a decision.
  if (trains && is_elastic(snapshot, gang) && awaits_verdict(snapshot, gang)) {
    return nothing("waiting for a place");
  }
  judge_spec(status, snapshot);
  judge_queue(status, snapshot);
  store_ends(status, snapshot, gang);
  const auto words_due = observe_running(status, snapshot, gang);
  if (trains && may_wait(snapshot, gang, status)) {
    Plan later = nothing("training");
    requeue(later, until_progress(snapshot));
    return later;
  }
  const bool state_changed = !(status == snapshot.job.status);
  const auto* report = newest_report(snapshot, gang);
  if (report == nullptr) {
    Plan plan = write_status(snapshot, std::move(status), Pass::kObservation);
    if (words_due) requeue(plan, *words_due);
    return plan;
  }
  api::TrainingJobStatus with_report = status;
  take_report(with_report, *report, snapshot);
  with_report.membership_epoch = newest_epoch(snapshot, gang);
  if (with_report == status) return write_status(snapshot, std::move(status), Pass::kObservation);
  if (!is_recent(snapshot) || state_changed) {
    return write_status(snapshot, std::move(with_report),
                        state_changed ? Pass::kObservation : Pass::kProgress);
  }
  Plan plan = write_status(snapshot, std::move(status), Pass::kObservation);
  requeue(plan, until_progress(snapshot));
  return plan;
}

/// What an observation writes; nullptr: nothing.
const PatchStatus* status_write_of(const Plan& plan) {
  return plan.actions.empty() ? nullptr : std::get_if<PatchStatus>(&plan.actions.front());
}

/// That training went on from a checkpoint is news in the write that says so first.
void tell_restored(Plan& plan, const JobSnapshot& snapshot) {
  const PatchStatus* patch = status_write_of(plan);
  if (patch == nullptr) return;
  const auto text_of = [](const api::TrainingJobStatus& status) {
    const auto* running = status.condition(std::string(words::kRunning));
    if (running == nullptr || running->status != "True") return std::string();
    const auto at = running->message.find(kRestored);
    return at == std::string::npos ? std::string() : running->message.substr(at + 2);
  };
  const std::string text = text_of(patch->status);
  if (text.empty() || !text_of(snapshot.job.status).empty()) return;
  add_event(plan, snapshot, "Normal", contract::reason::kCheckpointRestored, text);
}

/// That a gang goes on with a spec that is refused is news once.
void tell_refused(Plan& plan, const JobSnapshot& snapshot) {
  const PatchStatus* patch = status_write_of(plan);
  if (patch == nullptr) return;
  const auto is_told = [](const api::TrainingJobStatus& status) {
    const auto* admitted = status.condition(std::string(words::kAdmitted));
    return admitted != nullptr && admitted->reason == contract::reason::kInvalidSpec;
  };
  if (!is_told(patch->status) || is_told(snapshot.job.status)) return;
  add_event(plan, snapshot, "Warning", contract::reason::kInvalidSpec,
            patch->status.condition(std::string(words::kAdmitted))->message);
}

/// A checkpoint that outlives the pods is told with the write that shows it, once in so much time
/// on the clock: an event that is repeated costs two requests, and each checkpoint is in the
/// status.
void tell_saved(Plan& plan, const JobSnapshot& snapshot) {
  const PatchStatus* patch = status_write_of(plan);
  const auto& spec = snapshot.job.spec;
  if (patch == nullptr || !spec.training || !spec.training->checkpoint) return;
  const std::string& claim = spec.training->checkpoint->volume_claim_name;
  const auto& saved = patch->status.checkpoint;
  const auto& known = snapshot.job.status.checkpoint;
  if (claim.empty() || !saved || !saved->durable || !saved->time) return;
  if (known && known->step >= saved->step) return;
  const auto turn_of = [](WallTime time) {
    return time.time_since_epoch() / words::kSavedToldEach;
  };
  if (known && known->time && turn_of(*known->time) == turn_of(*saved->time)) return;
  add_event(plan, snapshot, "Normal", contract::reason::kCheckpointSaved,
            "checkpoints are complete on claim " + claim + "; status.checkpoint says the newest");
}

/// When a node that is not ready counts as lost.
void await_nodes(Plan& plan, const JobSnapshot& snapshot) {
  for (const auto& node : snapshot.not_ready_nodes) {
    const seconds left = words::kNodeLostAfter - lasted(snapshot, facts::not_ready(node));
    if (left.count() > 0) requeue(plan, left);
  }
}

/// Whether an earlier pod of the slot may still speak for it.
bool is_taken(const JobSnapshot& snapshot, const GangView& gang, int slot) {
  // Of more pods than its group has Kueue deletes the youngest, and counts all that have not ended.
  const bool is_counted = is_in_kueue(snapshot.job);
  return std::any_of(gang.stale.begin(), gang.stale.end(), [&](const api::Pod* pod) {
    return slot_of(*pod, snapshot.job) == slot && !pod->ended() &&
           (is_counted || (!pod->termination && must_wait_for(*pod, snapshot)));
  });
}

/// Pods of slots that were added or replaced, as soon as nobody of the same slot is left.
void create_joiners(Plan& plan, const JobSnapshot& snapshot, const GangView& gang) {
  if (const auto left = until_elastic(snapshot, gang)) requeue(plan, *left);
  if (snapshot.create_failure) return;
  for (const auto& member : gang.members) {
    const bool to_make = member.state == MemberState::kMissing &&
                         fate_of(snapshot, member) == Fate::kStays &&
                         !is_taken(snapshot, gang, member.placement.slot);
    if (to_make) create_pod(plan, snapshot, member);
  }
}

Plan run(const JobSnapshot& snapshot, const GangView& gang) {
  Plan plan = nothing("running");
  const bool wait = clear_stale(plan, snapshot, gang);
  if (const auto left = until_deadline(snapshot)) requeue(plan, *left);
  if (const auto left = until_unbound(snapshot, gang)) requeue(plan, *left);
  if (const auto left = until_preparing(snapshot, gang)) requeue(plan, *left);
  if (const auto left = until_not_started(snapshot, gang)) requeue(plan, *left);
  if (const auto left = until_let_go(snapshot, gang)) requeue(plan, *left);
  if (const auto left = until_ends_stored(snapshot, gang)) requeue(plan, *left);
  if (const auto left = until_spared(snapshot, gang)) requeue(plan, *left);
  await_nodes(plan, snapshot);
  if (is_elastic(snapshot, gang)) {
    create_joiners(plan, snapshot, gang);
  } else if (gang.count(MemberState::kMissing) > 0 && !is_ending(snapshot, gang)) {
    if (wait) {
      plan.reason = "waiting for the last attempt's pods to go";
      say_undeleted(plan, snapshot);
      return plan;
    }
    if (const auto backoff = until_restart(snapshot)) {
      requeue(plan, *backoff);
      plan.reason = "restart back-off";
      return plan;
    }
    Plan start = start_members(snapshot, gang);
    plan.reason = start.reason;
    append(plan, std::move(start));
  }
  Plan seen = observe(snapshot, gang);
  tell_restored(seen, snapshot);
  tell_refused(seen, snapshot);
  tell_saved(seen, snapshot);
  append(plan, std::move(seen));
  return plan;
}

}  // namespace

bool is_served(const JobSnapshot& snapshot) {
  const api::TrainingJobStatus& status = snapshot.job.status;
  return snapshot.spec_verdict ||
         (status.membership_epoch > 0 && !status.is_true(std::string(words::kSuspended)));
}

Status pods_verdict(const JobSnapshot& snapshot) {
  if (snapshot.pods_verdict) return *snapshot.pods_verdict;
  const Status& spec = snapshot.spec_verdict;
  if (!spec && api::is_about_pods(spec.error())) return spec;
  // Slot 0's stands for all: the others have an empty directory where it has the claim.
  const api::SlotPlacement placement{0, 0, "", ""};
  return api::check_restricted(api::make_pod(snapshot.job, placement, snapshot.pod_options),
                               snapshot.pod_options.host_network_namespaces);
}

std::optional<PlaceWish> wanted_places(const JobSnapshot& snapshot) {
  const api::TrainingJob& job = snapshot.job;
  if (job.meta.deletion_time || job.spec.managed_by != contract::kManagedBy) return std::nullopt;
  if (!is_served(snapshot) || job.status.finished() || job.spec.suspend) return std::nullopt;
  if (!why_deactivated(job).empty()) return std::nullopt;
  if (snapshot.create_failure || until_tried_again(snapshot)) return std::nullopt;
  const GangView gang = view_gang(snapshot);
  if (gang.job_is_old) return std::nullopt;
  const bool backs_off = until_restart(snapshot).has_value();
  PlaceWish wish;
  wish.uid = job.meta.uid;
  wish.generation = job.meta.generation;
  if (gang.members.empty()) {
    // Nobody can say how long that lasts: it stands in no line, and nothing is kept for it.
    if (snapshot.claim_of) return std::nullopt;
    const bool waits =
        backs_off || std::any_of(gang.stale.begin(), gang.stale.end(), [&](const api::Pod* pod) {
          return must_wait_for(*pod, snapshot);
        });
    // Nobody can say how long a pod stays that may not be deleted.
    wish.not_yet = waits && snapshot.deletion_refused.empty() &&
                   job.status.is_true(std::string(words::kRestarting));
    const bool stands_in_line = !waits || wish.not_yet;
    return stands_in_line && pods_verdict(snapshot) ? std::optional(wish) : std::nullopt;
  }
  if (backs_off || !is_elastic(snapshot, gang)) return std::nullopt;
  wish.slots = slots_to_place(snapshot, gang);
  if (wish.slots.empty() || !pods_verdict(snapshot)) return std::nullopt;
  wish.only_grows =
      std::none_of(gang.members.begin(), gang.members.end(), [&](const Member& member) {
        return std::binary_search(wish.slots.begin(), wish.slots.end(), member.placement.slot);
      });
  wish.is_beyond = wish.slots.front() >= wished_workers(job);
  for (const auto& member : gang.members) {
    const bool stays = fate_of(snapshot, member) == Fate::kStays;
    if (stays && !member.placement.node.empty()) wish.beside.insert(member.placement.node);
  }
  return wish;
}

namespace {

/// Whether a pod may be asked for now or after the next decision.
bool may_create(const JobSnapshot& snapshot, const GangView& gang) {
  if (gang.members.empty() || gang.count(MemberState::kMissing) > 0) return true;
  return is_elastic(snapshot, gang) && !slots_to_place(snapshot, gang).empty();
}

/// A job whose pods would not be restricted, or are refused with its spec: as if the API server had
/// refused them, and before anything is asked of it.
std::optional<JobSnapshot> with_refusal(const JobSnapshot& snapshot, const GangView& gang) {
  if (snapshot.create_failure || !may_create(snapshot, gang)) return std::nullopt;
  const Status meets = pods_verdict(snapshot);
  if (meets) return std::nullopt;
  JobSnapshot refused = snapshot;
  const Status& spec = snapshot.spec_verdict;
  const bool is_spec = !spec && api::is_about_pods(spec.error());
  refused.create_failure = CreateFailure{
      std::string(is_spec ? contract::reason::kInvalidSpec : words::kRefused),
      "its pods are not made: " + std::string(is_spec ? "" : "one ") + meets.error().message()};
  return refused;
}

Plan decide_gang(const JobSnapshot& snapshot, const GangView& gang) {
  if (auto plan = decide_deadline(snapshot, gang)) return *plan;
  if (auto plan = decide_kueue_stop(snapshot, gang)) return *plan;
  if (is_elastic(snapshot, gang)) {
    if (auto plan = decide_preemption(snapshot, gang)) return *plan;
    if (auto plan = decide_elastic(snapshot, gang)) return *plan;
    return run(snapshot, gang);
  }
  if (is_ending(snapshot, gang)) return run(snapshot, gang);
  // Before those that ask the API server for each pod that is missing.
  if (auto plan = decide_beyond_size(snapshot, gang)) return *plan;
  if (auto plan = decide_split(snapshot, gang)) return *plan;
  if (auto plan = decide_failure(snapshot, gang)) return *plan;
  if (gang.members.empty()) return admit(snapshot, gang);
  if (auto plan = decide_preemption(snapshot, gang)) return *plan;
  if (auto plan = decide_give_back(snapshot, gang)) return *plan;
  if (const auto part = let_go(snapshot, gang)) {
    const auto fits = static_cast<std::size_t>(part->fits);
    return fits == 0 ? decide_let_go(snapshot, gang, *part)
                     : place_gang(snapshot, {std::vector<std::string>(fits), {}, part->message});
  }
  if (auto plan = decide_resize(snapshot, gang)) return *plan;
  return run(snapshot, gang);
}

Plan decide(const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  if (job.meta.deletion_time) return nothing("being deleted; its pods go with it");
  if (job.spec.managed_by != contract::kManagedBy) return nothing("managed by another controller");
  const bool ended = job.status.finished();
  // Whoever has ended stays so: pods that it does not know of are removed like any other.
  const bool believe = ended && lasted(snapshot, facts::job_is_old()) >= words::kOldMost;
  if (gang.job_is_old && !believe) return await_or_supersede(snapshot, gang);
  if (ended) return reconcile_finished(snapshot, gang);
  if (!is_served(snapshot)) return refuse_spec(snapshot);
  if (auto plan = decide_success(snapshot, gang)) return *plan;
  if (job.spec.suspend) return suspend(snapshot, gang);
  if (const auto refused = with_refusal(snapshot, gang)) {
    return decide_gang(*refused, view_gang(*refused));
  }
  return decide_gang(snapshot, gang);
}

/// Alone and last, so that the job never waits for it.
void set_budget(Plan& plan, const JobSnapshot& snapshot) {
  auto action = budget_action(snapshot);
  if (!action) return;
  plan.actions.push_back(*std::move(action));
  plan.reason = "disruption budget";
}

/// By its Service the workers of a user's own program find each other, also those that come to look
/// long after the start.
void keep_service(Plan& plan, const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  const bool is_over = job.meta.deletion_time || job.status.finished() || job.spec.suspend;
  const bool is_ours = job.spec.managed_by == contract::kManagedBy && !job.spec.training;
  const bool lives = gang.count(MemberState::kRunning) + gang.count(MemberState::kPending) > 0;
  if (!snapshot.service_is_doubted || is_over || !is_ours || !lives) return;
  plan.actions.push_back(KeepService{api::make_service(job)});
  plan.reason = "looking after the Service";
}

}  // namespace

Plan reconcile(const JobSnapshot& snapshot) {
  const GangView gang = view_gang(snapshot);
  Plan plan = decide(snapshot, gang);
  if (!snapshot.job.status.finished() && has_model(gang)) {
    requeue(plan, words::kLeftBehindMost);
  }
  tell_drain(plan, snapshot);
  tell_changes(plan, snapshot);
  // Before another place is looked for, and not only by the decision that takes it.
  if (!snapshot.job.status.finished()) {
    for (const auto& [node, attempt] : nodes_that_turned_away(snapshot, gang)) {
      leave_out(plan.avoid, node, attempt);
    }
  }
  if (plan.empty()) set_budget(plan, snapshot);
  if (plan.empty()) keep_service(plan, snapshot, gang);
  return plan;
}

Plan without_progress(const JobSnapshot& snapshot, Plan plan) {
  // Of its events those are told again that are no news of what is written.
  std::erase_if(plan.actions, [](const Action& action) {
    return std::holds_alternative<PatchStatus>(action) || std::holds_alternative<EmitEvent>(action);
  });
  plan.pass = Pass::kNone;
  tell_changes(plan, snapshot);
  if (plan.empty()) set_budget(plan, snapshot);
  return plan;
}

}  // namespace muster::core
