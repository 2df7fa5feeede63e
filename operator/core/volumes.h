// Where a gang may stand for the sake of its volumes: slot 0 mounts the checkpoint's claim, every
// slot the claims of spec.worker.volumes, of which some are one node's at a time. The cluster's
// scheduler decides the same once more; this keeps a gang from being pinned to nodes where its pods
// could never start.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
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
/// limits that are no more than that. Of volumes that lie on a node each, thousands of them, none
/// asks more than its node, and what claims of a class may take of them is found once.  Threads:
/// one.
class VolumeReach {
 public:
  /// What is in `storage` outlives it.
  explicit VolumeReach(StorageSnapshot storage);

  /// A claim that is not bound yet may take any available volume of its class that is large enough;
  /// when there is none, a provisioner is expected to make one where the pod is put.
  VolumeLimits limits(const api::TrainingJob& job);

  /// How often a node was held against what a volume asks of nodes.
  std::int64_t nodes_asked() const { return nodes_asked_; }

 private:
  /// Nodes by what they have for one label.
  using Labelled = std::map<std::string_view, std::vector<const api::Node*>>;

  const Labelled& labelled_by(const std::string& key);
  std::vector<const api::Node*> candidates(const std::vector<api::NodeTerm>& terms);
  NodeLimit reach_of(const api::PersistentVolume& volume);
  NodeLimit reach_of_any(const std::vector<const api::PersistentVolume*>& volumes);
  NodeLimit reach_unbound(const api::PersistentVolumeClaim& claim);
  Result<NodeLimit> reach_of(const api::PersistentVolumeClaim& claim);
  bool is_of_one_node(const api::PersistentVolumeClaim& claim) const;
  void limit_by_modes(const api::PersistentVolumeClaim& claim, const api::TrainingJob& job,
                      VolumeLimits& limits) const;

  const StorageSnapshot storage_;
  std::map<std::string_view, const api::PersistentVolume*> by_name_;
  /// Claims that volumes name, by namespace and name.
  std::set<std::pair<std::string_view, std::string_view>> named_;
  std::map<std::string, Labelled> labelled_;  ///< by label, made when one is asked for
  std::map<std::vector<api::NodeTerm>, NodeLimit> reached_;
  /// By class and bytes: of claims that are not bound, and that no volume names.
  std::map<std::pair<std::string, std::int64_t>, NodeLimit> reached_by_class_;
  std::int64_t nodes_asked_ = 0;
};

}  // namespace muster::core
