// A gang whose pods Kueue holds back until its own quota has room, and that Kueue stops. Nothing
// here waits for Kueue by itself: pods that nobody holds back are as any others.
#pragma once

#include <optional>
#include <string>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// Whether the gang was started in a queue of Kueue: its size is fixed until its next start.
bool is_in_kueue(const api::TrainingJob& job);

/// Whether Kueue holds one of the gang's pods back. Nothing is late then, and nothing fails.
bool is_held_by_kueue(const GangView& gang);

/// Kueue stops the gang, or a pod vanished that it held back: the places are given back, and the
/// next start is another pod group. No failure, whatever the workers end with.
std::optional<Plan> decide_kueue_stop(const JobSnapshot& snapshot, const GangView& gang);

/// Somebody has deactivated the gang's Workload. A new one would make that void, so the job waits
/// until it is suspended and resumed; empty: it need not.
std::string why_deactivated(const api::TrainingJob& job);

/// Writes into `status` that the gang waits for Kueue, and why as far as Kueue says it. Other words
/// alone are written so often at most; returns when to come back for them.
std::optional<seconds> say_held(api::TrainingJobStatus& status, const JobSnapshot& snapshot);

/// Of a replacement that Kueue holds back while the others train; empty: there is none.
std::string held_text(const JobSnapshot& snapshot, const GangView& gang);

}  // namespace muster::core
