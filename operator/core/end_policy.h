// How a gang's run ends or starts anew: success, a failed worker and the restart policy, deadline.
#pragma once

#include <optional>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// Complete: every member ended with 0. A decision of its own; absent when it is not so.
std::optional<Plan> decide_success(const JobSnapshot& snapshot, const GangView& gang);

/// Failed: spec.activeDeadlineSeconds since the start have passed.
std::optional<Plan> decide_deadline(const JobSnapshot& snapshot, const GangView& gang);
/// Until the deadline; absent without one.
std::optional<seconds> until_deadline(const JobSnapshot& snapshot);

/// A member failed or was lost: the whole gang starts anew, or the job has failed.
std::optional<Plan> decide_failure(const JobSnapshot& snapshot, const GangView& gang);

/// Whether only followers of a lost peer have ended so far.
bool is_settling(const JobSnapshot& snapshot, const GangView& gang);

/// backoffSeconds, doubled per restart, at most kBackoffMost.
seconds restart_backoff(const api::RestartSpec& restart, int restarts_before);

}  // namespace muster::core
