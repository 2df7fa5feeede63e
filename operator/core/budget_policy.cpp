#include "operator/core/budget_policy.h"

#include "common/contract.h"
#include "operator/core/drain_policy.h"

namespace muster::core {

std::optional<Action> budget_action(const JobSnapshot& snapshot) {
  const api::TrainingJob& job = snapshot.job;
  const bool is_ours = !job.meta.deletion_time && snapshot.spec_verdict.has_value() &&
                       job.spec.managed_by == contract::kManagedBy;
  if (!is_ours || snapshot.budget_failed) return std::nullopt;
  const auto& worker = job.spec.worker;
  const bool is_elastic = worker.min < worker.max;
  const bool has_ended = job.status.finished();
  const bool holds = !job.status.placement.empty() && !has_ended && !job.spec.suspend;
  const int wanted =
      is_elastic && holds ? worker.min + not_yet_members(snapshot, view_gang(snapshot)) : 0;
  // What a new operator cannot know of is asked for where a gang may have left it, as one has that
  // could be smaller before its spec was changed. Of all others it is not: every job that ever
  // ended would cost a question.
  const bool may_have_had = is_elastic || job.meta.generation > 1;
  const bool may_be_left = may_have_had && !has_ended && job.status.membership_epoch > 0;
  if (!snapshot.budget && wanted == 0 && !may_be_left) return std::nullopt;
  if (snapshot.budget == wanted) return std::nullopt;
  api::DisruptionBudget budget = api::make_disruption_budget(job);
  budget.min_available = wanted;
  if (wanted == 0) return RemoveDisruptionBudget{budget.meta.key()};
  return SetDisruptionBudget{budget};
}

}  // namespace muster::core
