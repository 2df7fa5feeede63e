#include "operator/core/reconcile.h"

#include <algorithm>

#include "common/contract.h"
#include "operator/core/end_policy.h"
#include "operator/core/gang_view.h"
#include "operator/core/progress.h"
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

void requeue(Plan& plan, seconds after) {
  after = std::max(after, seconds(1));
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

/// Leftovers that still hold capacity, or files: whoever comes next waits for them, but not for a
/// pod whose node cannot end it any more.
bool must_wait_for(const api::Pod& pod, const JobSnapshot& snapshot) {
  if (snapshot.gone_nodes.contains(pod.node_name)) return false;
  if (!pod.meta.deletion_time) return true;
  return snapshot.now < *pod.meta.deletion_time + words::kOverdue;
}

/// Deletes leftovers; true while the next attempt has to wait for one of them.
bool clear_stale(Plan& plan, const JobSnapshot& snapshot, const GangView& gang) {
  bool wait = false;
  for (const api::Pod* pod : gang.stale) {
    delete_pod(plan, *pod);
    if (!must_wait_for(*pod, snapshot)) continue;
    wait = true;
    if (!pod->meta.deletion_time) continue;
    const auto left = *pod->meta.deletion_time + words::kOverdue - snapshot.now;
    requeue(plan, std::chrono::ceil<seconds>(left));
  }
  return wait;
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
  Plan plan = nothing("ended");
  for (const api::Pod* pod : gang.owned) delete_pod(plan, *pod);
  const auto& ttl = job.spec.ttl_seconds_after_finished;
  if (!ttl || !job.status.completion_time) return plan;
  const std::int64_t bounded = std::clamp<std::int64_t>(*ttl, 0, 1LL << 31);
  const auto due = *job.status.completion_time + seconds(bounded);
  if (snapshot.now < due) {
    requeue(plan, std::chrono::ceil<seconds>(due - snapshot.now));
    return plan;
  }
  plan.actions.push_back(DeleteJob{job.meta.key(), job.meta.uid});
  plan.reason = "spec.ttlSecondsAfterFinished have passed";
  return plan;
}

Plan refuse_spec(const JobSnapshot& snapshot) {
  const api::TrainingJob& job = snapshot.job;
  api::TrainingJobStatus status = job.status;
  std::string message = snapshot.spec_verdict.error().message();
  // An operator that no longer understands a running job's spec is no reason to end the job.
  const bool started = !status.placement.empty();
  if (started) {
    message += "; the gang is left as it is until the spec is repaired";
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

Plan suspend(const JobSnapshot& snapshot, const GangView& gang) {
  const api::TrainingJob& job = snapshot.job;
  api::TrainingJobStatus status = job.status;
  const std::string asked = "spec.suspend is true";
  if (const auto* report = newest_report(snapshot, gang)) take_report(status, *report, snapshot);
  if (!status.placement.empty() || status.start_time || status.restart_at) {
    // The members become leftovers by this decision, so how they end is no failure.
    status.placement.clear();
    status.start_time.reset();
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
    return plan;
  }
  if (const auto at = snapshot.reports.find(0); at != snapshot.reports.end()) {
    // The last word of a worker that left: its checkpoint. The placement that could prove the
    // attempt is gone, the epoch still does.
    if (at->second.attempt == job.status.membership_epoch - 1) {
      take_report(status, at->second, snapshot);
    }
  }
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
  text += " on ";
  std::size_t shown = 0;
  for (const auto& [node, count] : per_node) {
    if (shown == 4) {
      text += " and " + std::to_string(per_node.size() - shown) + " more";
      break;
    }
    if (shown++ > 0) text += ", ";
    text += node + " (" + std::to_string(count) + ")";
  }
  return text;
}

Plan place_gang(const JobSnapshot& snapshot, const GangPlacement& placed) {
  const api::TrainingJob& job = snapshot.job;
  api::TrainingJobStatus status = job.status;
  status.membership_epoch = next_epoch(status);
  status.placement.clear();
  // Attempts never repeat, for any slot, through restarts, suspension and lost nodes.
  const int attempt = static_cast<int>(status.membership_epoch - 1);
  int slot = 0;
  for (const auto& node : placed.node_of_slot)
    status.placement.push_back({slot++, attempt, node, ""});
  status.target_workers = slot;
  status.replicas = 0;
  status.workers = workers_text(0, slot);
  status.selector = api::pod_selector(job);
  if (!status.start_time) status.start_time = whole_seconds(snapshot.now);
  if (job.spec.training) status.contract = contract::kNumericsContract;
  const bool resumed = status.is_true(std::string(words::kSuspended));
  const bool restarting = status.is_true(std::string(words::kRestarting));
  status.phase = restarting ? words::kPhaseRestarting : words::kPhasePending;
  const std::string message = placement_text(placed.node_of_slot);
  set_condition(status, snapshot,
                {words::kAdmitted, true, contract::reason::kGangScheduled, message});
  set_condition(status, snapshot,
                {words::kSuspended, false, contract::reason::kResumed, "spec.suspend is false"});
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
  const bool resumed = status.is_true(std::string(words::kSuspended));
  status.phase = words::kPhaseWaiting;
  set_condition(status, snapshot, {words::kAdmitted, false, reason, message, true});
  set_condition(status, snapshot,
                {words::kSuspended, false, contract::reason::kResumed, "spec.suspend is false"});
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
  const auto& at = snapshot.job.status.restart_at;
  if (!at || *at <= snapshot.now) return std::nullopt;
  return std::chrono::ceil<seconds>(*at - snapshot.now);
}

Plan admit(const JobSnapshot& snapshot, const GangView& gang) {
  Plan plan = nothing("waiting for a place");
  if (clear_stale(plan, snapshot, gang)) {
    plan.reason = "waiting for the last attempt's pods to go";
    return plan;
  }
  if (const auto wait = until_restart(snapshot)) {
    requeue(plan, *wait);
    plan.reason = "restart back-off";
    return plan;
  }
  if (snapshot.create_failure) {
    append(plan, say_waiting(snapshot, snapshot.create_failure->reason,
                             snapshot.create_failure->message));
    return plan;
  }
  if (!snapshot.gang) return plan;
  Plan next = snapshot.gang->placement
                  ? place_gang(snapshot, *snapshot.gang->placement)
                  : say_waiting(snapshot, contract::reason::kGangWaiting, snapshot.gang->why_not);
  // A decision is written alone; leftovers that nobody waits for are cleared in the next pass.
  if (next.pass == Pass::kDecision) return next;
  plan.reason = next.reason;
  append(plan, std::move(next));
  return plan;
}

// ---- A placed gang

/// A part of the gang must not hold capacity that the rest cannot get: everything goes back.
Plan give_back(const JobSnapshot& snapshot) {
  api::TrainingJobStatus status = snapshot.job.status;
  const CreateFailure& failure = *snapshot.create_failure;
  status.placement.clear();
  status.replicas = 0;
  status.workers = workers_text(0, status.target_workers);
  status.phase = words::kPhaseWaiting;
  set_condition(status, snapshot, {words::kAdmitted, false, failure.reason, failure.message, true});
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  add_event(plan, snapshot, "Warning", contract::reason::kGangWaiting, failure.message);
  plan.reason = failure.message;
  return plan;
}

Plan start_members(const JobSnapshot& snapshot, const GangView& gang) {
  Plan plan = nothing("starting the gang");
  const api::TrainingJob& job = snapshot.job;
  const bool none = gang.count(MemberState::kMissing) == static_cast<int>(gang.members.size());
  if (none && !job.spec.training) plan.actions.push_back(CreateService{api::make_service(job)});
  for (const auto& member : gang.members) {
    if (member.state != MemberState::kMissing) continue;
    plan.actions.push_back(CreatePod{api::make_pod(job, member.placement, snapshot.pod_options)});
  }
  return plan;
}

std::string pending_text(const GangView& gang) {
  for (const auto& member : gang.members) {
    if (member.state != MemberState::kPending || member.pod->reason.empty()) continue;
    return "worker " + std::to_string(member.placement.slot) +
           " waits: " + head_of(member.pod->reason, 128) + " " + head_of(member.pod->message, 512);
  }
  return "";
}

void observe_running(api::TrainingJobStatus& status, const JobSnapshot& snapshot,
                     const GangView& gang) {
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
    if (!first->image_id.empty()) status.image_digest = head_of(first->image_id, 512);
    const std::string message = std::to_string(target) + " of " + std::to_string(target) +
                                (target == 1 ? " worker runs" : " workers run");
    set_condition(status, snapshot, {words::kRunning, true, words::kGangRunning, message});
    set_condition(status, snapshot, {words::kRestarting, false, words::kGangRunning, message});
    return;
  }
  const std::string waiting = pending_text(gang);
  if (waiting.empty()) return;
  status.phase = words::kPhaseWaiting;
  // Said even if it never ran: this is where a user looks for the reason.
  set_condition(status, snapshot, {words::kRunning, false, words::kWaitingForPods, waiting, true});
}

Plan observe(const JobSnapshot& snapshot, const GangView& gang) {
  api::TrainingJobStatus status = snapshot.job.status;
  observe_running(status, snapshot, gang);
  const bool state_changed = !(status == snapshot.job.status);
  const auto* report = newest_report(snapshot, gang);
  if (report == nullptr) return write_status(snapshot, std::move(status), Pass::kObservation);
  api::TrainingJobStatus with_report = status;
  take_report(with_report, *report, snapshot);
  if (with_report == status) return write_status(snapshot, std::move(status), Pass::kObservation);
  const auto& last = snapshot.job.status.progress;
  const bool recent = last && last->updated_at &&
                      snapshot.now - *last->updated_at < words::kProgressInterval &&
                      snapshot.now >= *last->updated_at;
  if (!recent || state_changed) {
    return write_status(snapshot, std::move(with_report),
                        state_changed ? Pass::kObservation : Pass::kProgress);
  }
  Plan plan = write_status(snapshot, std::move(status), Pass::kObservation);
  requeue(plan,
          std::chrono::ceil<seconds>(*last->updated_at + words::kProgressInterval - snapshot.now));
  return plan;
}

Plan run(const JobSnapshot& snapshot, const GangView& gang) {
  if (snapshot.create_failure && gang.count(MemberState::kMissing) > 0) {
    return give_back(snapshot);
  }
  Plan plan = nothing("running");
  const bool wait = clear_stale(plan, snapshot, gang);
  if (const auto left = until_deadline(snapshot)) requeue(plan, *left);
  if (gang.count(MemberState::kMissing) > 0) {
    if (wait) {
      plan.reason = "waiting for the last attempt's pods to go";
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
  append(plan, observe(snapshot, gang));
  return plan;
}

}  // namespace

bool wants_placement(const JobSnapshot& snapshot) {
  const api::TrainingJob& job = snapshot.job;
  if (job.meta.deletion_time || job.spec.managed_by != contract::kManagedBy) return false;
  if (!snapshot.spec_verdict || job.status.finished() || job.spec.suspend) return false;
  if (snapshot.create_failure || until_restart(snapshot)) return false;
  const GangView gang = view_gang(snapshot);
  if (!gang.members.empty()) return false;
  return !gang.job_is_old &&
         std::none_of(gang.stale.begin(), gang.stale.end(),
                      [&](const auto* pod) { return must_wait_for(*pod, snapshot); });
}

Plan reconcile(const JobSnapshot& snapshot) {
  const api::TrainingJob& job = snapshot.job;
  if (job.meta.deletion_time) return nothing("being deleted; its pods go with it");
  if (job.spec.managed_by != contract::kManagedBy) return nothing("managed by another controller");
  const GangView gang = view_gang(snapshot);
  if (gang.job_is_old) return nothing("pods of a later attempt are there; waiting for the job");
  if (job.status.finished()) return reconcile_finished(snapshot, gang);
  if (!snapshot.spec_verdict) return refuse_spec(snapshot);
  if (auto plan = decide_success(snapshot, gang)) return *plan;
  if (job.spec.suspend) return suspend(snapshot, gang);
  if (auto plan = decide_deadline(snapshot, gang)) return *plan;
  if (auto plan = decide_failure(snapshot, gang)) return *plan;
  if (gang.members.empty()) return admit(snapshot, gang);
  return run(snapshot, gang);
}

}  // namespace muster::core
