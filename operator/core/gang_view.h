// A job's pods sorted by what they are to it: members of the stored placement, leftovers of earlier
// attempts, and strangers.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "operator/core/reconcile.h"

namespace muster::core {

enum class MemberState {
  kMissing,  ///< no pod yet, or no more
  kPending,  ///< there, not running
  kRunning,
  kSucceeded,  ///< ended with 0; its pod may be gone, where status says that it has ended
  kFailed,     ///< ended with another code, or without one
  kLost,       ///< being deleted, though nobody here asked for it, or its node is gone
};

struct Member {
  api::SlotPlacement placement;
  MemberState state = MemberState::kMissing;
  const api::Pod* pod = nullptr;  ///< into the snapshot
};

struct GangView {
  std::vector<Member> members;         ///< by slot, one per placement
  std::vector<const api::Pod*> stale;  ///< ours, of an attempt before the stored one; by name
  std::vector<const api::Pod*> owned;  ///< every pod of ours that has not ended; by name
  /// A pod of ours is of a later attempt than the job we see: our view of the job is old, and
  /// nothing may follow from it.
  bool job_is_old = false;
  int newest_attempt = -1;  ///< of all pods of ours; -1 without any

  int count(MemberState state) const;
  bool all(MemberState state) const;
  /// nullptr: the slot has no place.
  const Member* find(int slot) const;
};

/// Whether a pod may be made for the place. Somebody else may have written the status, and no
/// operator gives out a slot beyond spec.worker.max, not to a spare either. A pod that is beyond it
/// was made when the job allowed more.
bool may_have_pod(const api::TrainingJob& job, const api::SlotPlacement& place);

GangView view_gang(const JobSnapshot& snapshot);

/// Pods of the job, by uid, that are to go and do not leave yet: with this plan or a later one.
std::set<std::string> unwanted_pods(const JobSnapshot& snapshot);

/// Whether a node is gone, or has not been ready for words::kNodeLostAfter.
bool is_lost_node(const JobSnapshot& snapshot, const std::string& node);

/// Until a pod that was asked to leave is given up.
seconds until_overdue(const api::Pod& pod, const JobSnapshot& snapshot);

/// Whether a pod may still hold capacity, or files: whoever comes next waits for it, but not for
/// one whose node cannot end it any more.
bool must_wait_for(const api::Pod& pod, const JobSnapshot& snapshot);

/// The slot of a pod of the job, by its name; -1 when it is none.
int slot_of(const api::Pod& pod, const api::TrainingJob& job);

/// Whether the job is the pod's controller, by uid: name and labels prove nothing. An owner of
/// another kind proves nothing either: whoever makes a pod may name one.
bool is_owned(const api::Pod& pod, const api::TrainingJob& job);

/// The epoch after this one; attempts given out with it are one less.
std::int64_t next_epoch(const api::TrainingJobStatus& status);

/// The end of the container by which the pod failed before its worker began, whoever put it there;
/// nullptr: it did not.
const api::Termination* failed_init_container(const api::Pod& pod);

/// Why a member failed: reason, code and text are bounded and clean.
api::FailureStatus failure_of(const Member& member, const api::TrainingJob& job);

}  // namespace muster::core
