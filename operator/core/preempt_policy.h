// A gang gives way to another, or stops because its queue's budget is spent: all of it leaves, with
// a checkpoint where it can save one, and it waits for its turn again with the age it has. For
// whom, and why this one, is decided in queue_reclaim.
#pragma once

#include <optional>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// The members become leftovers by this decision, so how they end is no failure. Absent where
/// nothing is asked for, or the gang has nothing to give.
std::optional<Plan> decide_preemption(const JobSnapshot& snapshot, const GangView& gang);

}  // namespace muster::core
