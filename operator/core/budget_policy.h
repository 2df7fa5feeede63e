// The PodDisruptionBudget of an elastic job: drains and other evictions leave it spec.worker.min
// workers that train. Those who have come and do not train yet are added: Kubernetes counts their
// pods as soon as they are ready, and they hold nothing of the training yet.
#pragma once

#include <optional>

#include "operator/core/plan.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// What makes the budget say what it should; absent when it is known to. Only jobs with min below
/// max have one, while they have a gang: of a gang that cannot be smaller it would hold up every
/// drain for ever, and one without pods is what alerts call unhealthy.
std::optional<Action> budget_action(const JobSnapshot& snapshot);

}  // namespace muster::core
