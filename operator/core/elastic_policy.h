// Decisions about single workers of a gang that trains on: replaced, added, sent away. The gang's
// own decisions (start, restart, end) are in end_policy and replace_policy.
#pragma once

#include <optional>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// One write that gives new attempts and places to slots that need them, takes slots out that are
/// beyond spec.worker.count or that schedule takes back, and says so. Absent when there is nothing
/// to decide now. The gang is elastic.
std::optional<Plan> decide_elastic(const JobSnapshot& snapshot, const GangView& gang);

/// To how many workers the job can be asked to shrink now, so that those that stay train on and
/// nothing is computed anew; 0: it cannot.
int shrinks_to(const JobSnapshot& snapshot);

/// Until a slot's back-off, its leave or its refusal is over; absent without one.
std::optional<seconds> until_elastic(const JobSnapshot& snapshot, const GangView& gang);

/// Whether what schedule says about slots that need a place is awaited: it comes within the same
/// step, and status need not say in between that they are missing.
bool awaits_verdict(const JobSnapshot& snapshot, const GangView& gang);

/// News of the workers themselves about their membership, as events.
void tell_changes(Plan& plan, const JobSnapshot& snapshot);

}  // namespace muster::core
