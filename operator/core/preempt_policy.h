// A gang gives way to another, or stops because its queue's budget is spent: all of it leaves, with
// a checkpoint where it can save one, and it waits for its turn again with the age it has. For
// whom, and why this one, is decided in queue_reclaim.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// What a gang's job says when all of it leaves for `reason` and waits to be admitted anew: what
/// its members have come to, no places, and `why` in each condition.
api::TrainingJobStatus waiting_anew(const JobSnapshot& snapshot, const GangView& gang,
                                    std::string_view reason, const std::string& why);

/// The members become leftovers by this decision, so how they end is no failure. Absent where
/// nothing is asked for, or the gang has nothing to give.
std::optional<Plan> decide_preemption(const JobSnapshot& snapshot, const GangView& gang);

}  // namespace muster::core
