// What workers say about the training, taken into status: from posted reports while it runs, from
// slot 0's last word at the end. All of it is hostile until checked here.
#pragma once

#include <optional>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// The newest report of a worker of the gang: slot 0's, else the lowest slot's that reported;
/// members of the training come before workers that are still to be let in.
const ProgressReport* newest_report(const JobSnapshot& snapshot, const GangView& gang);

/// Slot 0's termination message as a report; absent when it is none.
std::optional<ProgressReport> last_word(const GangView& gang);

/// Whether progress was written a moment ago.
bool is_recent(const JobSnapshot& snapshot);

/// Takes a report's facts over into `status`. `updated_at` moves only when something changed, and
/// what a step should take is foretold with each written progress, not with each report: it asks
/// all nodes.
/// The step of the checkpoint never goes back.
void take_report(api::TrainingJobStatus& status, const ProgressReport& report,
                 const JobSnapshot& snapshot);

}  // namespace muster::core
