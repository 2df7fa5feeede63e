// Decisions about single workers of a gang that trains on: replaced, added, sent away. The gang's
// own decisions (start, restart, end) are in end_policy and replace_policy.
#pragma once

#include <optional>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// One write that gives new attempts and places to slots that need them, takes slots beyond
/// spec.worker.count out, and says so. Absent when there is nothing to decide now. The gang is
/// elastic.
std::optional<Plan> decide_elastic(const JobSnapshot& snapshot, const GangView& gang);

/// Until a slot's back-off, its leave or its refusal is over; absent without one.
std::optional<seconds> until_elastic(const JobSnapshot& snapshot, const GangView& gang);

/// Whether what schedule says about slots that need a place is awaited: it comes within the same
/// step, and status need not say in between that they are missing.
bool awaits_verdict(const JobSnapshot& snapshot, const GangView& gang);

/// News of the workers themselves about their membership, as events.
void tell_changes(Plan& plan, const JobSnapshot& snapshot);

}  // namespace muster::core
