// What reconcile decides: actions in the order in which they are applied. Plain data.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "operator/api/pod.h"
#include "operator/api/training_job.h"

namespace muster::core {

struct CreatePod {
  api::Pod pod;
  bool operator==(const CreatePod&) const = default;
};

/// Only the pod with this uid; the pod's own grace period.
struct DeletePod {
  api::ObjectKey key;
  std::string uid;
  bool operator==(const DeletePod&) const = default;
};

struct CreateService {
  api::Service service;
  bool operator==(const CreateService&) const = default;
};

/// Looks whether the Service of a gang that lives is there, and makes it where it is gone. What has
/// its name and is somebody else's stays.
struct KeepService {
  api::Service service;
  bool operator==(const KeepService&) const = default;
};

/// With its Workload. One that is there already is the gang's own: its name says of which start it
/// is.
struct CreatePodGroup {
  api::PodGroup group;
  bool operator==(const CreatePodGroup&) const = default;
};

/// Makes the job's budget, or changes the one there is. That it cannot be done (the right is
/// missing, a stranger has the name) holds nothing else up.
struct SetDisruptionBudget {
  api::DisruptionBudget budget;
  bool operator==(const SetDisruptionBudget&) const = default;
};

/// The job's own alone.
struct RemoveDisruptionBudget {
  api::ObjectKey key;
  bool operator==(const RemoveDisruptionBudget&) const = default;
};

/// Merge patch of the job's status under its uid and resourceVersion.
struct PatchStatus {
  api::ObjectKey key;
  Json patch;                     ///< {"metadata": {uid, resourceVersion}, "status": {...}}
  api::TrainingJobStatus status;  ///< the whole status after it
  /// Pods whose absence this decision rests on: it holds only if a fresh read does not find them.
  std::vector<api::ObjectKey> confirm_absent;
  bool operator==(const PatchStatus&) const = default;
};

/// Merge patch of a queue's status under its uid and resourceVersion.
struct PatchQueueStatus {
  api::ObjectKey key;
  Json patch;  ///< {"metadata": {uid, resourceVersion}, "status": {...}}
  bool operator==(const PatchQueueStatus&) const = default;
};

/// Lost when it fails: an event is news, never state.
struct EmitEvent {
  api::Event event;
  bool operator==(const EmitEvent&) const = default;
};

/// The time to live after the end has passed. The pods go with their owner. Only the job as it was
/// read: somebody may just have changed its time to live, or repaired a spec that was refused.
struct DeleteJob {
  api::ObjectKey key;
  std::string uid;
  std::string resource_version;
  bool operator==(const DeleteJob&) const = default;
};

using Action = std::variant<CreatePod, DeletePod, CreateService, KeepService, CreatePodGroup,
                            SetDisruptionBudget, RemoveDisruptionBudget, PatchStatus,
                            PatchQueueStatus, EmitEvent, DeleteJob>;

/// What a plan's status write is: a decision is written alone, before anything that follows from
/// it; observations come last; progress is an observation under a budget of its own.
enum class Pass { kNone, kDecision, kObservation, kProgress };

struct Plan {
  std::vector<Action> actions;
  Pass pass = Pass::kNone;
  /// Look again then, though nothing changed.
  std::optional<seconds> requeue_after;
  /// Nodes to leave out for words::kAvoidFor and longer when this job is placed again, with the
  /// attempt that says so: the cluster's scheduler or the node itself refused its pod there, or it
  /// failed there again and again. It is told for as long as its end is seen.
  std::map<std::string, int> avoid;
  std::string reason;  ///< for the log and for tests: what the plan is about
  bool operator==(const Plan&) const = default;

  bool empty() const { return actions.empty(); }
};

/// Adds `node` to a Plan::avoid; of several attempts the newest counts.
inline void leave_out(std::map<std::string, int>& avoid, const std::string& node, int attempt) {
  int& newest = avoid[node];
  newest = std::max(newest, attempt);
}

}  // namespace muster::core
