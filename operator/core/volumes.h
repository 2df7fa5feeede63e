// Where a gang may stand for the sake of its volumes: slot 0 mounts the checkpoint's claim, every
// slot the claims of spec.worker.volumes, of which some are one node's at a time. The cluster's
// scheduler decides the same once more; this keeps a gang from being pinned to nodes where its pods
// could never start.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/api/volume.h"
#include "operator/core/node_limit.h"

namespace muster::core {

/// What is known of the cluster's storage; nothing is owned.
struct StorageSnapshot {
  std::map<api::ObjectKey, const api::PersistentVolumeClaim*> claims;
  std::vector<const api::PersistentVolume*> volumes;
  std::vector<const api::Node*> nodes;
};

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

/// Where volumes let jobs stand. What volumes of one kind reach is found once and shared by all
/// limits that are no more than that.  Threads: one.
class VolumeReach {
 public:
  /// What is in `storage` outlives it.
  explicit VolumeReach(StorageSnapshot storage);

  /// A claim that is not bound yet may take any available volume of its class that is large enough;
  /// when there is none, a provisioner is expected to make one where the pod is put.
  VolumeLimits limits(const api::TrainingJob& job);

 private:
  NodeLimit reach_of(const api::PersistentVolume& volume);
  Result<NodeLimit> reach_of(const api::PersistentVolumeClaim& claim);
  bool is_of_one_node(const api::PersistentVolumeClaim& claim) const;
  void limit_by_modes(const api::PersistentVolumeClaim& claim, const api::TrainingJob& job,
                      VolumeLimits& limits) const;

  const StorageSnapshot storage_;
  std::map<std::string_view, const api::PersistentVolume*> by_name_;
  std::map<std::vector<api::NodeTerm>, NodeLimit> reached_;
};

}  // namespace muster::core
