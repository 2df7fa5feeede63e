// What matters by how long it has been so. The loop times these facts with a clock that never
// leaps; the rules, the names and the limits are here and in words.h.
#pragma once

#include <optional>
#include <string>

#include "operator/core/reconcile.h"

namespace muster::core {

namespace facts {
/// The cluster's scheduler cannot bind the pod.
std::string unbound(const api::Pod& pod);
/// The pod's node gets it ready (network, volumes, images), and no later worker's.
std::string preparing(const api::Pod& pod);
/// The gang that was started so can do nothing before a pod starts that has its node.
std::string starting(const api::TrainingJobStatus& status);
/// The pod of a worker that comes to those who train has its node and does not start.
std::string starting(const api::Pod& pod);
/// A part of the gang that was started so is on nodes, and others are refused.
std::string half_bound(const api::TrainingJobStatus& status);
/// The pod was asked to leave and is still there.
std::string leaving(const api::Pod& pod);
std::string not_ready(const std::string& node);
/// The pod runs, though its worker has ended and its job as well.
std::string lingering(const api::Pod& pod);
/// A restart's back-off.
std::string backing_off(const api::TrainingJobStatus& status);
/// Only followers of a lost peer have ended so far; the cause is awaited.
std::string settling(const api::TrainingJobStatus& status);
/// Pods of a later attempt than the job says are there.
std::string job_is_old();
/// This attempt of the slot has ended or was lost, and the others train on.
std::string down(const api::SlotPlacement& placement);
/// This attempt of the slot has ended with 0, and no status says so.
std::string ended(const api::SlotPlacement& placement);
/// Slot 0 has ended with the job's model, and the job is not complete.
std::string has_model();
/// There is room for a slot that the gang wishes for and never had.
std::string room();
/// Nothing new is placed on the node, which somebody empties, or may be about to.
std::string cordoned(const std::string& node);
/// A worker that came while nodes were emptied has nobody to stand in for.
std::string spare_idle();
/// Its volumes are missing, and nobody was told yet.
std::string lacks_volumes();
/// The words in which the job says what it waits for.
std::string waiting_words(const std::string& message);
}  // namespace facts

/// How long a job that said `said` still leaves it at that, now that it would say `now` in its
/// place.
seconds until_said_anew(const JobSnapshot& snapshot, const std::string& said,
                        const std::string& now);

/// Whether a gang that waits for claims or volumes has never said anything yet.
bool newly_lacks_volumes(const JobSnapshot& snapshot);

/// How long something has been so that the API server dates: what an operator that has just begun
/// cannot have timed. 0: nobody says since when, or somebody's clock is ahead.
seconds told_to_last(const JobSnapshot& snapshot, const std::optional<WallTime>& since);

/// Whether the cluster's scheduler has said that it cannot bind this pod.
bool is_unbound(const api::Pod& pod);

/// How long the fact has been seen; 0 when it is new.
seconds lasted(const JobSnapshot& snapshot, const std::string& fact);

}  // namespace muster::core
