// Workers of a user's own program that end with 0 while the others go on. Their pods may be gone
// before the job is done, as with a node that nobody needs any more, and what is gone would count
// as lost: so it is stored that they have ended. Reports of the built-in engine's workers say more.
#pragma once

#include <optional>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// Whether the worker has ended with 0, which is known by its pod alone.
bool is_end_untold(const JobSnapshot& snapshot, const Member& member);

/// How long until that is to be stored; absent: there is nothing to store. Most gangs end together,
/// and their ends cost no write.
std::optional<seconds> until_ends_stored(const JobSnapshot& snapshot, const GangView& gang);

/// Writes into `status` who has ended, when it is time for one of them.
void store_ends(api::TrainingJobStatus& status, const JobSnapshot& snapshot, const GangView& gang);

}  // namespace muster::core
