// A gang whose pods the cluster's scheduler binds one by one (spec.scheduling: Unplaced) may get a
// part of its nodes and wait for the rest for ever, beside another one that holds that rest. What
// it cannot use it holds for a bounded time.
#pragma once

#include <optional>
#include <string>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// How many of its workers stand on nodes; absent unless the cluster's scheduler refuses others and
/// the gang can do nothing without them. Gangs in Kueue's queues are left to Kueue's own bound
/// (waitForPodsReady).
std::optional<int> half_bound(const JobSnapshot& snapshot, const GangView& gang);

struct LetGo {
  int fits = 0;  ///< the gang starts anew with so many; 0: it waits, and others may have the nodes
  std::string message;
};

/// Absent while it may hold its part: words::kHalfBoundMost, and up to words::kHalfBoundSpread more
/// that go by job and attempt. Of two that wait for each other one lets go first, and the other is
/// whole before its own time is up.
std::optional<LetGo> let_go(const JobSnapshot& snapshot, const GangView& gang);
/// How long until then; absent where nothing is held so.
std::optional<seconds> until_let_go(const JobSnapshot& snapshot, const GangView& gang);

/// How long one that has let go still waits, so that others get what it held; absent when it may
/// try again, or has not let go.
std::optional<seconds> until_tried_again(const JobSnapshot& snapshot);

}  // namespace muster::core
