// Pods that have their node and do not start yet: what is said of them when it takes long, and how
// long a gang that can do nothing without them holds its nodes.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// The last worker whose node gets its pod ready and says nothing of it: why that takes long stands
/// in the pod's own events, which the operator does not read. nullptr: there is none. Pods are made
/// by slot, so that the last is likely to be the last one ready: a gang is timed by it alone.
const Member* last_preparing(const GangView& gang);

/// What the job says when that one has not been ready for words::kPreparingMost, else nothing. What
/// was `said` (may be null) of a worker stays said until its pod is ready, without being timed.
std::string preparing_text(const JobSnapshot& snapshot, const GangView& gang,
                           const api::Condition* said);

/// When it is to be said; absent when it is not, or was.
std::optional<seconds> until_preparing(const JobSnapshot& snapshot, const GangView& gang);

/// How long, as far as the API server tells, the worker's pod has had its node without having
/// started anything; absent: that is not so, or one of the job's init containers runs.
std::optional<seconds> starting_for(const JobSnapshot& snapshot, const Member& member);

/// Of a worker that comes to those who train: how long it may hold its node yet, while its pod does
/// not start. Absent where that is not so, and in Kueue's queues.
std::optional<seconds> until_given_up(const JobSnapshot& snapshot, const Member& member);

/// "worker 2 on node n7 did not start in 3600 s (image x is being pulled, or a volume attached)".
std::string not_started_text(const JobSnapshot& snapshot, const Member& member);

/// Whether the gang can do nothing, because some of its pods have a node and have not started: not
/// even one of the containers that the job has run before its workers. Gangs in Kueue's queues are
/// left to Kueue's own bound (waitForPodsReady).
bool awaits_start(const JobSnapshot& snapshot, const GangView& gang);
/// How long it may hold its nodes yet; absent where it is not so.
std::optional<seconds> until_not_started(const JobSnapshot& snapshot, const GangView& gang);

struct NotStarted {
  std::map<std::string, int> nodes;  ///< that were chosen for those pods, and an attempt of these
  std::string message;
};
/// Absent while it may.
std::optional<NotStarted> not_started(const JobSnapshot& snapshot, const GangView& gang);

}  // namespace muster::core
