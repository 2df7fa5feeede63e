// Nodes that are emptied under a gang that has nobody to spare: the disruption budget lets no
// worker be evicted while no more than spec.worker.min run. So one more comes first, on another
// node, and goes again when it is not needed. Where none can come, the job says so and what helps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// So many slots beyond the wish the gang has use for: one, or as many as have a copy of the model
/// together. From when a node under a gang that wishes for spec.worker.min workers is being emptied
/// (a taint says so, or it has been cordoned for words::kCordonedFor), until its workers all train
/// elsewhere, and words::kSpareFor longer.
int spare_slots(const JobSnapshot& snapshot, const GangView& gang);

/// Whether this one has a slot beyond the wish for that reason. While another count is being
/// followed, whoever is beyond it is none.
bool is_spare(const JobSnapshot& snapshot, const Member& member);
bool has_spare(const JobSnapshot& snapshot, const GangView& gang);

/// Whether these slots, ascending, can be a spare worker's alone.
bool are_spare(const JobSnapshot& snapshot, const std::vector<int>& slots);

/// Of a gang that trains: workers that run and do not train yet. An eviction must not count on
/// them, though their pods are ready. Of one with a spare also those who are not there yet: none
/// can be spared meanwhile, and so they are counted before Kubernetes counts them.
int not_yet_members(const JobSnapshot& snapshot, const GangView& gang);

/// Whether a spare has nobody to stand in for.
bool is_spare_idle(const JobSnapshot& snapshot, const GangView& gang);

/// Until a cordon counts, or an idle spare leaves; absent without one.
std::optional<seconds> until_spared(const JobSnapshot& snapshot, const GangView& gang);

/// Why one comes, as the beginning of a sentence.
std::string why_spare_comes(const JobSnapshot& snapshot, const GangView& gang);
/// Why it leaves, where spare_slots has no use for it.
std::string why_spare_leaves(const JobSnapshot& snapshot, const GangView& gang);

/// For the message of Running, whose condition `before` is the one stored: that there is a spare
/// worker and what keeps it, or that a drain waits and what helps it. Empty: neither.
std::string drain_text(const JobSnapshot& snapshot, const GangView& gang,
                       const api::Condition* before);

/// That a drain waits for the job is news in the write that says so first.
void tell_drain(Plan& plan, const JobSnapshot& snapshot);

}  // namespace muster::core
