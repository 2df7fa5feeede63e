#include "operator/core/budget_policy.h"

#include "common/contract.h"

namespace muster::core {

std::optional<Action> budget_action(const JobSnapshot& snapshot) {
  const api::TrainingJob& job = snapshot.job;
  const bool is_ours = !job.meta.deletion_time && snapshot.spec_verdict.has_value() &&
                       job.spec.managed_by == contract::kManagedBy;
  const bool runs = !job.status.placement.empty() && !job.status.finished() && !job.spec.suspend;
  if (!is_ours || !runs || snapshot.budget_failed) return std::nullopt;
  const auto& worker = job.spec.worker;
  const int wanted = worker.min < worker.max ? worker.min : 0;
  // One that nobody here knows of and that is not wanted is not looked for: every job would cost a
  // question to each new operator.
  if (snapshot.budget.value_or(0) == wanted) return std::nullopt;
  const api::DisruptionBudget budget = api::make_disruption_budget(job);
  if (wanted == 0) return RemoveDisruptionBudget{budget.meta.key()};
  return SetDisruptionBudget{budget};
}

}  // namespace muster::core
