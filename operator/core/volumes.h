// Where a gang may stand for the sake of its volumes: slot 0 mounts the checkpoint's claim, every
// slot the claims of spec.worker.volumes, of which some are one node's at a time. The cluster's
// scheduler decides the same once more; this keeps a gang from being pinned to nodes where its pods
// could never start.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/api/volume.h"

namespace muster::core {

/// What is known of the cluster's storage; nothing is owned.
struct StorageSnapshot {
  std::map<api::ObjectKey, const api::PersistentVolumeClaim*> claims;
  std::vector<const api::PersistentVolume*> volumes;
  std::vector<const api::Node*> nodes;
};

/// Names of nodes; absent = any.
using NodeLimit = std::optional<std::set<std::string>>;

struct VolumeLimits {
  NodeLimit first_slot, every_slot;
  /// Not empty: all slots must stand on one node, and why, in words.
  std::string one_node{};
  /// Not empty: the gang cannot start anywhere, and why, in words.
  std::string why_not;
  bool operator==(const VolumeLimits&) const = default;
};

/// Names of the claims of a job: of slot 0's checkpoint (empty = none), and of every worker.
std::string checkpoint_claim(const api::TrainingJob& job);
std::vector<std::string> worker_claims(const api::TrainingJob& job);
/// Whether volumes limit where the job may go at all.
bool names_claims(const api::TrainingJob& job);

/// A claim that is not bound yet may take any available volume of its class that is large enough;
/// when there is none, a provisioner is expected to make one where the pod is put.
VolumeLimits volume_limits(const api::TrainingJob& job, const StorageSnapshot& storage);

}  // namespace muster::core
