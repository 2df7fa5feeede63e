// What the workers of a gang say about their membership: who trains, and in which epoch. It is said
// by every worker about itself, so that a late report about another one is never believed.
#pragma once

#include <cstdint>
#include <vector>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

bool is_among(const std::vector<int>& slots, int slot);

/// The newest report of this very attempt; nullptr without one.
const ProgressReport* report_of(const JobSnapshot& snapshot, const Member& member);

/// Whether this attempt of the slot is or was a member of the training: by its own report, or as
/// stored. Workers that know nothing of memberships are none.
bool is_member(const JobSnapshot& snapshot, const Member& member);

/// Whether a member says that this worker, which has not said that it is in any, is with it in the
/// newest membership: all of a gang begin at once, and their first reports of it come one by one.
/// What is said of one that took another's place may mean that other. Good for telling how many
/// train, and for no decision.
bool is_named(const JobSnapshot& snapshot, const GangView& gang, const Member& member);

/// Whether members train on now, so that the others can be replaced, added and sent away without
/// starting the gang anew: the built-in engine with a member that runs.
bool trains_on(const JobSnapshot& snapshot, const GangView& gang);

/// Whether workers can have come to this epoch since the stored one: what they say is believed, but
/// attempts are given out from it, and their numbers must not run out.
bool is_credible(const JobSnapshot& snapshot, std::int64_t epoch);

/// The newest membership epoch that is stored or credibly reported.
std::int64_t newest_epoch(const JobSnapshot& snapshot, const GangView& gang);

/// The epoch of the next decision; attempts given out with it are one less.
std::int64_t next_epoch(const JobSnapshot& snapshot, const GangView& gang);

}  // namespace muster::core
