// What the jobs of a queue cost together, and its budget. Pure.
//
// Kept is what was spent until a moment and what an hour has cost since (status.budget of the
// queue). So neither a job that is deleted nor an operator that is away changes what is counted;
// written it is when the rate changes. Where budgets are spent the queue's jobs stop (queue_pass).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/api/training_queue.h"
#include "operator/core/queue.h"

namespace muster::core {

/// When the period began that `now` lies in; the epoch for kForever.
WallTime period_start(api::BudgetPeriod period, WallTime now);
/// When the next one begins; absent for kForever.
std::optional<WallTime> next_period(api::BudgetPeriod period, WallTime now);

/// `before`, if any, with the time until `now` counted; of a new period, or in another currency,
/// from its beginning.
api::QueueSpending spending_until(const api::QueueBudget& budget,
                                  const std::optional<api::QueueSpending>& before, WallTime now);

/// Whether nothing is left of it. `spending` is of its period.
bool is_spent(const api::QueueBudget& budget, const api::QueueSpending& spending);

/// The queue as it is at `now`: of a spent budget it says so.
Queue queue_at(Queue queue, const api::TrainingQueue& object, WallTime now);

/// What its status shall say of the budget: as before while there is no news.
std::optional<api::QueueSpending> queue_spending(const api::TrainingQueue& object,
                                                 const std::vector<QueueHolder>& holders,
                                                 WallTime now);

/// When time alone makes news of the budget; absent when it does not.
std::optional<seconds> until_spending_news(const api::TrainingQueue& object, WallTime now);

}  // namespace muster::core
