#include "operator/core/end_policy.h"

#include <algorithm>
#include <set>

#include "common/contract.h"
#include "operator/api/kueue.h"
#include "operator/core/copies.h"
#include "operator/core/drain_policy.h"
#include "operator/core/elastic.h"
#include "operator/core/facts.h"
#include "operator/core/kueue_policy.h"
#include "operator/core/members.h"
#include "operator/core/plan.h"
#include "operator/core/progress.h"
#include "operator/core/status_edit.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

namespace codes = contract::exit_code;

bool failed(const Member& member, const JobSnapshot& snapshot) {
  if (member.state == MemberState::kFailed || member.state == MemberState::kLost) return true;
  if (member.state != MemberState::kMissing) return false;
  // Once the whole gang ran, a pod that is not there was lost; before, it is only not made yet, and
  // so is one that was to join later and never did.
  const api::TrainingJobStatus& status = snapshot.job.status;
  const bool started = status.start_attempt < 0 || member.placement.attempt <= status.start_attempt;
  return is_member(snapshot, member) || (started && status.is_true(std::string(words::kRunning)));
}

const std::string& node_of(const Member& member) {
  const bool is_bound = member.pod != nullptr && !member.pod->node_name.empty();
  return is_bound ? member.pod->node_name : member.placement.node;
}

/// Taken away by the cluster. Of a plain deletion nothing tells more than that its node is being
/// emptied.
bool is_taken_away(const Member& member, const JobSnapshot& snapshot) {
  if (member.pod != nullptr && member.pod->is_disrupted) return true;
  const bool is_deleted = member.pod == nullptr || member.pod->meta.deletion_time.has_value();
  return is_deleted && snapshot.unschedulable_nodes.contains(node_of(member));
}

/// The kubelet had no room for it, or a device plugin no device: it ended without a container. Of a
/// pod that the cluster's scheduler has placed nobody could say where not to put it the next time.
/// A container that a webhook put before the worker fails wherever the pod is put: that counts.
bool is_turned_away(const Member& member, const JobSnapshot& snapshot) {
  if (member.pod == nullptr || member.placement.node.empty()) return false;
  const api::Pod& pod = *member.pod;
  return pod.phase == api::PodPhase::kFailed && !pod.termination && pod.image_id.empty() &&
         failed_init_container(pod) == nullptr && !is_taken_away(member, snapshot);
}

/// A worker on a node that is not ready is taken for lost with it as soon as the gang has to start
/// again anyway: its peers end first, and are not to blame.
bool is_on_bad_node(const Member& member, const JobSnapshot& snapshot) {
  const std::string& node = node_of(member);
  return snapshot.gone_nodes.contains(node) || snapshot.not_ready_nodes.contains(node);
}

bool has_ended(const Member& member) {
  return member.state == MemberState::kFailed || member.state == MemberState::kSucceeded;
}

/// The cause among those that failed: a verdict that nothing helps comes first, followers last, and
/// after them who was not among those that trained.
int rank_of(const Failure& failure) {
  if (failure.kept_out) return 4;
  if (failure.follower) return 3;
  if (!failure.retryable) return 0;
  return failure.node_lost || failure.disrupted || failure.turned_away ? 1 : 2;
}

std::vector<Failure> failures_of(const JobSnapshot& snapshot, const GangView& gang) {
  std::vector<Failure> failures;
  for (const auto& member : gang.members) {
    if (failed(member, snapshot)) failures.push_back(read_failure(member, snapshot));
  }
  if (failures.empty()) return failures;
  for (const auto& member : gang.members) {
    if (failed(member, snapshot) || has_ended(member)) continue;
    if (is_on_bad_node(member, snapshot)) failures.push_back(read_failure(member, snapshot));
  }
  std::stable_sort(failures.begin(), failures.end(),
                   [](const Failure& a, const Failure& b) { return rank_of(a) < rank_of(b); });
  return failures;
}

/// Followers alone are known: the one they followed is to end in a moment.
bool may_settle(const GangView& gang, const Failure& first) {
  return first.follower &&
         gang.count(MemberState::kRunning) + gang.count(MemberState::kPending) > 0;
}

void end_job(api::TrainingJobStatus& status, const JobSnapshot& snapshot) {
  status.completion_time = whole_seconds(snapshot.now);
  status.last_nodes.clear();
  status.restart_at.reset();
  status.replicas = 0;
  status.workers = workers_text(0, status.target_workers);
}

Plan fail(const JobSnapshot& snapshot, const GangView& gang, api::TrainingJobStatus status,
          std::string_view reason, const std::string& message) {
  if (const auto* report = newest_report(snapshot, gang)) take_report(status, *report, snapshot);
  end_job(status, snapshot);
  status.phase = words::kPhaseFailed;
  set_condition(status, snapshot, {words::kRunning, false, reason, message});
  set_condition(status, snapshot, {words::kRestarting, false, reason, message});
  set_condition(status, snapshot, {words::kFailed, true, reason, message});
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  add_event(plan, snapshot, "Warning", contract::reason::kFailed, message);
  plan.reason = message;
  return plan;
}

/// The pods whose absence was taken for a loss; the cache may only be late.
std::vector<api::ObjectKey> missing_pods(const JobSnapshot& snapshot, const GangView& gang) {
  std::vector<api::ObjectKey> keys;
  for (const auto& member : gang.members) {
    if (member.state != MemberState::kMissing) continue;
    keys.push_back({snapshot.job.meta.namespace_name,
                    api::pod_name(snapshot.job, member.placement.slot, member.placement.attempt)});
  }
  return keys;
}

void confirm(Plan& plan, const JobSnapshot& snapshot, const GangView& gang) {
  if (plan.actions.empty()) return;
  if (auto* patch = std::get_if<PatchStatus>(&plan.actions.front())) {
    patch->confirm_absent = missing_pods(snapshot, gang);
  }
}

std::string why_not_counted(const Failure& cause) {
  if (cause.node_lost) return "a node failed, not the program";
  if (cause.turned_away) return "it never ran, and its node is left out for a while";
  return cause.planned ? "it was asked to leave" : "the cluster took the worker away";
}

std::string restart_message(const JobSnapshot& snapshot, const Failure& cause, seconds backoff) {
  const std::string message =
      sentence_of(cause) + "; the gang starts again in " + std::to_string(backoff.count()) + " s (";
  if (!cause.counts()) return message + "not counted: " + why_not_counted(cause) + ")";
  return message + "restart " + std::to_string(snapshot.job.status.restarts + 1) + " of " +
         std::to_string(snapshot.job.spec.restart.max_restarts) + ")";
}

/// Nodes that the next start does without: they turned workers away, or the same worker has ended
/// there twice in a row before the gang ran. That may be the program's fault, so a node is only
/// blamed where there are others.
std::map<std::string, int> nodes_to_avoid(const JobSnapshot& snapshot, const GangView& gang,
                                          const Failure& cause) {
  std::map<std::string, int> nodes = nodes_that_turned_away(snapshot, gang);
  const auto& last = snapshot.job.status.failure;
  const bool has_run = snapshot.job.status.is_true(std::string(words::kRunning));
  const bool again = last && last->slot == cause.facts.slot && last->node == cause.facts.node;
  if (again && !has_run && cause.counts() && snapshot.ready_nodes > 1) {
    nodes.emplace(last->node, cause.facts.attempt);
  }
  nodes.erase("");
  return nodes;
}

/// Whether a gang can begin in the size it has, because it wishes for the same as at its last
/// start: it began with less, others have taken some of it back, or it has grown. By itself it
/// becomes what it wishes to be.
bool begins_as_it_is(const api::TrainingJob& job, const GangView& gang) {
  const int size = static_cast<int>(gang.members.size());
  const int wish = std::min(job.spec.worker.count, kMaxWorkers);
  const bool is_whole = size > 0 && size % workers_together(job) == 0 &&
                        gang.members.back().placement.slot == size - 1;
  return job.spec.training && job.status.start_count == wish && is_whole &&
         size >= least_to_start(job) && size <= most_workers(job);
}

/// The same places again, unless one of them is no good or another size is wished for.
bool keeps_places(const JobSnapshot& snapshot, const GangView& gang,
                  const std::map<std::string, int>& avoid) {
  const api::TrainingJob& job = snapshot.job;
  const bool has_all = static_cast<int>(gang.members.size()) == job.spec.worker.count;
  if (!has_all && !begins_as_it_is(job, gang)) return false;
  if (job.status.kueue_queue != api::kueue_queue_wanted(job)) return false;
  return std::none_of(gang.members.begin(), gang.members.end(), [&](const Member& member) {
    const std::string& node = member.placement.node;
    return snapshot.gone_nodes.contains(node) || snapshot.not_ready_nodes.contains(node) ||
           snapshot.unschedulable_nodes.contains(node) || avoid.contains(node);
  });
}

Plan restart(const JobSnapshot& snapshot, const GangView& gang, const Failure& cause) {
  const api::TrainingJob& job = snapshot.job;
  api::TrainingJobStatus status = job.status;
  const bool counts = cause.counts();
  const seconds backoff = restart_backoff(job.spec.restart, counts ? status.restarts : 0);
  const std::string message = restart_message(snapshot, cause, backoff);
  if (const auto* report = newest_report(snapshot, gang)) take_report(status, *report, snapshot);
  status.failure = cause.facts;
  if (counts) status.restarts += 1;
  // The gang waits for Kueue once more, and time spent waiting is none of its own.
  if (is_in_kueue(job)) stop_clock(status, snapshot.now);
  status.restart_at = whole_seconds(snapshot.now + seconds(1)) + backoff;
  // The epoch is the fence: whoever still runs of the old attempt belongs to no gang from here on.
  status.membership_epoch = next_epoch(snapshot, gang);
  status.witness.reset();
  std::map<std::string, int> avoid = nodes_to_avoid(snapshot, gang, cause);
  if (keeps_places(snapshot, gang, avoid)) {
    status.start_attempt = static_cast<int>(status.membership_epoch - 1);
    status.key_id = snapshot.key_id;
    // A gang that was still growing starts anew in the size it has.
    status.target_workers = static_cast<int>(status.placement.size());
    for (auto& placement : status.placement) {
      placement.attempt = status.start_attempt;
      placement.member = false;
      placement.replacements = 0;
      placement.checks_data = false;
      placement.ended = false;
    }
  } else {
    give_up_places(status);
    set_condition(status, snapshot,
                  {words::kAdmitted, false, contract::reason::kRestarting, message, true});
  }
  status.phase = words::kPhaseRestarting;
  status.replicas = 0;
  status.workers = workers_text(0, status.target_workers);
  set_condition(status, snapshot, {words::kRunning, false, words::kRestarting, message});
  set_condition(status, snapshot,
                {words::kRestarting, true, contract::reason::kRestarting, message});
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  add_event(plan, snapshot, "Warning", contract::reason::kWorkerLost, sentence_of(cause));
  add_event(plan, snapshot, "Warning", contract::reason::kRestarting, message);
  plan.avoid = std::move(avoid);
  plan.reason = message;
  return plan;
}

/// What slot 0 said at its end, where it has ended with 0 and named the model.
std::optional<ProgressReport> final_word(const GangView& gang) {
  if (gang.members.empty() || gang.members.front().state != MemberState::kSucceeded) {
    return std::nullopt;
  }
  auto word = last_word(gang);
  if (!word || word->membership_epoch <= 0 || word->model_sha256.empty()) return std::nullopt;
  const api::SlotPlacement& first = gang.members.front().placement;
  const bool is_of_all = word->attempt == first.attempt && first.slot == 0 &&
                         !word->members.empty() && word->members.front() == 0;
  return is_of_all ? std::move(word) : std::nullopt;
}

/// All whom slot 0 names as members of the last step have ended with 0, slot 0 itself among them.
bool has_final_members(const GangView& gang) {
  const auto word = final_word(gang);
  if (!word) return false;
  return std::all_of(word->members.begin(), word->members.end(), [&](int slot) {
    return std::any_of(gang.members.begin(), gang.members.end(), [&](const Member& member) {
      return member.placement.slot == slot && member.state == MemberState::kSucceeded;
    });
  });
}

/// Slot 0 has had the model for long enough. It may name whom the others let in with a view that
/// nobody entered any more, and who then waits for them.
bool has_left_behind(const JobSnapshot& snapshot, const GangView& gang) {
  return has_model(gang) && lasted(snapshot, facts::has_model()) >= words::kLeftBehindMost;
}

}  // namespace

std::map<std::string, int> nodes_that_turned_away(const JobSnapshot& snapshot,
                                                  const GangView& gang) {
  std::map<std::string, int> nodes;
  for (const auto& member : gang.members) {
    if (!is_turned_away(member, snapshot)) continue;
    leave_out(nodes, node_of(member), member.placement.attempt);
  }
  return nodes;
}

Failure read_failure(const Member& member, const JobSnapshot& snapshot) {
  const api::TrainingJob& job = snapshot.job;
  Failure failure;
  failure.facts = failure_of(member, job);
  failure.pod_lost = !has_ended(member);
  if (!has_ended(member) && is_on_bad_node(member, snapshot)) {
    failure.node_lost = true;
    failure.facts.reason = std::string(words::kNodeLost);
    failure.facts.log_tail.clear();
    return failure;
  }
  failure.disrupted = is_taken_away(member, snapshot);
  failure.turned_away = is_turned_away(member, snapshot);
  failure.by_foreign = !failure.facts.container.empty() &&
                       !api::has_init_container(job.spec.worker, failure.facts.container);
  const bool typed = job.spec.training.has_value() && member.state == MemberState::kFailed &&
                     member.pod->termination.has_value();
  if (!typed) return failure;
  failure.retryable = contract::is_retryable_exit_code(failure.facts.exit_code);
  failure.unfit = is_unfit(job, failure.facts);
  const int start = job.status.start_attempt;
  const bool is_joiner = start >= 0 && member.placement.attempt > start;
  failure.kept_out = failure.unfit && is_joiner && !is_member(snapshot, member);
  failure.follower = failure.facts.exit_code == codes::kPeerLost;
  failure.planned = failure.facts.exit_code == codes::kPlannedLeave;
  return failure;
}

bool is_unfit(const api::TrainingJob& job, const api::FailureStatus& facts) {
  const bool is_engine = job.spec.training.has_value() && facts.container.empty();
  return is_engine && (!contract::is_retryable_exit_code(facts.exit_code) ||
                       facts.exit_code == codes::kKeyRefused);
}

std::string sentence_of(const Failure& failure) {
  const auto& facts = failure.facts;
  std::string text =
      "worker " + std::to_string(facts.slot) + " (attempt " + std::to_string(facts.attempt) + ") ";
  if (!facts.node.empty()) text += "on node " + facts.node + " ";
  if (failure.node_lost) {
    text += "was lost: the node is gone or not ready";
  } else if (failure.turned_away) {
    text += "was not let in (" + facts.reason + ")";
  } else if (failure.planned) {
    text += "left as asked";
  } else if (failure.pod_lost) {
    text += "was lost: its pod was deleted";
    if (facts.reason != words::kWorkerLost) text += " (" + facts.reason + ")";
  } else {
    text += facts.container.empty() ? "ended" : "failed in init container " + facts.container;
    if (failure.by_foreign) text += ", which is none of the job's,";
    text += " with exit code " + std::to_string(facts.exit_code) + " (" + facts.reason + ")";
  }
  const std::string said = last_line(facts.log_tail, 256);
  return said.empty() ? text : text + ": " + said;
}

bool fails_job(const JobSnapshot& snapshot, const Member& member) {
  const Failure failure = read_failure(member, snapshot);
  // One that wants to be let in and cannot does not stop those who train.
  if (failure.unfit) return is_member(snapshot, member);
  if (is_spare(snapshot, member) && !is_member(snapshot, member)) return false;
  return snapshot.job.spec.restart.policy == "Never" && !failure.planned;
}

seconds restart_backoff(const api::RestartSpec& restart, int restarts_before) {
  const std::int64_t least = std::clamp<std::int64_t>(restart.backoff_seconds, 0, 86'400);
  const int doublings = std::clamp(restarts_before, 0, 20);
  return std::min(seconds(least << doublings), words::kBackoffMost);
}

bool has_model(const GangView& gang) { return final_word(gang).has_value(); }

std::optional<Plan> decide_success(const JobSnapshot& snapshot, const GangView& gang) {
  const bool is_whole = gang.all(MemberState::kSucceeded) || has_final_members(gang);
  if (!is_whole && !has_left_behind(snapshot, gang)) return std::nullopt;
  api::TrainingJobStatus status = snapshot.job.status;
  const std::string ended = std::to_string(gang.count(MemberState::kSucceeded));
  const std::string message =
      is_whole ? "every worker (" + ended + ") ended with 0"
               : "worker 0 ended with the model, " + ended + " of " +
                     std::to_string(gang.members.size()) + " workers with 0; the rest had " +
                     std::to_string(words::kLeftBehindMost.count()) + " s to follow";
  if (const auto final_report = last_word(gang)) {
    take_report(status, *final_report, snapshot);
  } else if (const auto* report = newest_report(snapshot, gang)) {
    take_report(status, *report, snapshot);
  }
  end_job(status, snapshot);
  status.failure.reset();
  status.phase = words::kPhaseComplete;
  set_condition(status, snapshot, {words::kRunning, false, contract::reason::kCompleted, message});
  set_condition(status, snapshot,
                {words::kRestarting, false, contract::reason::kCompleted, message});
  set_condition(status, snapshot, {words::kComplete, true, contract::reason::kCompleted, message});
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  add_event(plan, snapshot, "Normal", contract::reason::kCompleted, message);
  plan.reason = message;
  return plan;
}

std::optional<seconds> until_deadline(const JobSnapshot& snapshot) {
  const auto left = deadline_left(snapshot.job, snapshot.now);
  // It stands still while the gang waits, but what is over is over.
  const bool counts = snapshot.job.status.start_time || left == seconds(0);
  return counts ? left : std::nullopt;
}

std::optional<Plan> decide_deadline(const JobSnapshot& snapshot, const GangView& gang) {
  const auto left = until_deadline(snapshot);
  if (!left || left->count() > 0) return std::nullopt;
  std::string message = "spec.activeDeadlineSeconds (" +
                        std::to_string(*snapshot.job.spec.active_deadline_seconds) +
                        ") have passed since the start";
  if (const std::int64_t past = snapshot.job.status.past_active_seconds; past > 0) {
    message += ", " + std::to_string(past) + " s before it last gave its places up among them";
  }
  return fail(snapshot, gang, snapshot.job.status, words::kDeadlineExceeded, message);
}

bool is_settling(const JobSnapshot& snapshot, const GangView& gang) {
  const std::vector<Failure> failures = failures_of(snapshot, gang);
  return !failures.empty() && may_settle(gang, failures.front());
}

std::optional<Plan> decide_failure(const JobSnapshot& snapshot, const GangView& gang) {
  const std::vector<Failure> failures = failures_of(snapshot, gang);
  if (failures.empty()) return std::nullopt;
  const Failure& cause = failures.front();
  if (may_settle(gang, cause) &&
      lasted(snapshot, facts::settling(snapshot.job.status)) < words::kSettle) {
    Plan plan;
    plan.requeue_after = words::kSettle;
    plan.reason = "a worker lost its peer; waiting for the peer's own end";
    return plan;
  }
  const api::TrainingJob& job = snapshot.job;
  const api::RestartSpec& policy = job.spec.restart;
  api::TrainingJobStatus status = job.status;
  status.failure = cause.facts;
  std::string why;
  std::string_view reason = words::kWorkerFailed;
  if (!cause.retryable && !cause.kept_out) {
    reason = contract::reason_of_exit_code(cause.facts.exit_code);
    why = cause.facts.exit_code == codes::kNeedsSplit
              ? "not started again, because none of these divides worker.count, min and max times "
                "worker.processes"
              : "not started again, because that exit code says that it would not help";
  } else if (policy.policy == "Never") {
    why = "not started again, because spec.restart.policy is Never";
  } else if (cause.counts() && status.restarts >= policy.max_restarts) {
    reason = words::kRestartLimitReached;
    why = "not started again after " + std::to_string(status.restarts) +
          " restarts (spec.restart.maxRestarts)";
  }
  Plan plan;
  if (why.empty()) {
    plan = restart(snapshot, gang, cause);
  } else {
    plan = fail(snapshot, gang, std::move(status), reason, sentence_of(cause) + "; " + why);
    add_event(plan, snapshot, "Warning", contract::reason::kWorkerLost, sentence_of(cause));
  }
  confirm(plan, snapshot, gang);
  return plan;
}

}  // namespace muster::core
