// When a gang gives its places back though no worker of it failed: another size is wished for, the
// model has to be split, the cluster's scheduler refuses a pod, pods could not be made, the status
// was lost.
#pragma once

#include <optional>

#include "operator/core/gang_view.h"
#include "operator/core/half_bound.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// Places without a pod that may not have one (may_have_pod): somebody wrote them into the status,
/// or spec.worker.max was lowered before the pods were there. The gang would wait for them for
/// ever.
std::optional<Plan> decide_beyond_size(const JobSnapshot& snapshot, const GangView& gang);

/// A part of the gang must not hold capacity that the rest cannot get: the cluster's scheduler has
/// refused a placed pod for words::kUnboundMost, or a pod was refused by the API server.
std::optional<Plan> decide_give_back(const JobSnapshot& snapshot, const GangView& gang);
/// Until a refused pod's time is up; absent without one.
std::optional<seconds> until_unbound(const JobSnapshot& snapshot, const GangView& gang);

/// A part of the gang has held nodes for too long beside a rest that the cluster's scheduler finds
/// none for, and no smaller gang can start on them.
Plan decide_let_go(const JobSnapshot& snapshot, const GangView& gang, const LetGo& why);

/// An elastic program's (spec.worker.min < max) count was changed: the gang starts again in that
/// size. Of others' it takes effect at the next start (resize_text).
std::optional<Plan> decide_resize(const JobSnapshot& snapshot, const GangView& gang);
/// That a count takes effect at the next start; empty where the gang has that size, or comes to it
/// by itself.
std::string resize_text(const JobSnapshot& snapshot, const GangView& gang);

/// With parallelism.mode: Auto a worker has ended because its memory is too small for the model,
/// and has said how much further it would have to be split: the gang starts again with the first of
/// these splits that the workers there may be can have. Absent where none is.
std::optional<Plan> decide_split(const JobSnapshot& snapshot, const GangView& gang);

/// Pods of later attempts than the job knows: its status is late, or somebody has damaged it. In
/// the second case they are superseded by an attempt after them. Safe though the view may only be
/// late: the write is bound to the version seen.
Plan await_or_supersede(const JobSnapshot& snapshot, const GangView& gang);

}  // namespace muster::core
