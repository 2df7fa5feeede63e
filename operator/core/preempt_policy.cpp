#include "operator/core/preempt_policy.h"

#include <algorithm>
#include <climits>

#include "common/contract.h"
#include "operator/core/progress.h"
#include "operator/core/status_edit.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

/// The schema's bound; a larger number would have every write of the status refused.
std::int64_t in_bounds(std::int64_t time) {
  return std::clamp<std::int64_t>(time, 0, (std::int64_t{1} << 53) - 1);
}

void count_preemption(api::TakenBack& taken, const TakeBack& take_back) {
  taken.preemptions = std::min(taken.preemptions, INT_MAX - 1) + 1;
  taken.lost_process_seconds =
      in_bounds(in_bounds(taken.lost_process_seconds) + in_bounds(take_back.lost_process_seconds));
  taken.preempted_for = take_back.job.text();
  taken.preempted_for_uid = take_back.job_uid;
}

}  // namespace

api::TrainingJobStatus waiting_anew(const JobSnapshot& snapshot, const GangView& gang,
                                    std::string_view reason, const std::string& why) {
  api::TrainingJobStatus status = snapshot.job.status;
  if (const auto* report = newest_report(snapshot, gang)) take_report(status, *report, snapshot);
  status.placement.clear();
  stop_clock(status, snapshot.now);
  status.restart_at.reset();
  status.replicas = 0;
  status.workers = workers_text(0, status.target_workers);
  status.phase = words::kPhaseWaiting;
  set_condition(status, snapshot, {words::kRunning, false, reason, why});
  set_condition(status, snapshot, {words::kRestarting, false, reason, why});
  set_condition(status, snapshot, {words::kAdmitted, false, reason, why, true});
  return status;
}

std::optional<Plan> decide_preemption(const JobSnapshot& snapshot, const GangView& gang) {
  const auto& take_back = snapshot.take_back;
  if (!take_back || take_back->workers > 0 || gang.members.empty()) return std::nullopt;
  const bool is_for_a_job = !take_back->job.name.empty();
  const auto reason = is_for_a_job ? contract::reason::kPreempted : contract::reason::kBudgetSpent;
  const std::string& why = take_back->why;
  api::TrainingJobStatus status = waiting_anew(snapshot, gang, reason, why);
  if (is_for_a_job) count_preemption(status.taken_back, *take_back);
  Plan plan = write_status(snapshot, std::move(status), Pass::kDecision);
  add_event(
      plan, snapshot, "Normal", reason,
      why + "; it starts again by itself when there is " + (is_for_a_job ? "room" : "budget"));
  plan.reason = "preempted: " + why;
  return plan;
}

}  // namespace muster::core
