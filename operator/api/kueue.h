// What a job says to Kueue, which holds the pods of a gang back until a quota of its own has room:
// labels and annotations of jobs and of pods, and what Kueue says of a gang in its Workload. Nobody
// asks here whether Kueue is there: where it is not, nobody holds the pods back.
//
// Source: Kueue v0.19.2, site/content/en/docs/tasks/run/plain_pods.md and keps/976-plain-pods.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "operator/api/object_meta.h"
#include "operator/api/training_job.h"

namespace muster::api {

namespace kueue {
inline constexpr std::string_view kPrefix = "kueue.x-k8s.io/";
inline constexpr std::string_view kQueueName = "kueue.x-k8s.io/queue-name";
inline constexpr std::string_view kPriorityClass = "kueue.x-k8s.io/priority-class";
inline constexpr std::string_view kPodGroupName = "kueue.x-k8s.io/pod-group-name";
inline constexpr std::string_view kPodGroupTotalCount = "kueue.x-k8s.io/pod-group-total-count";
inline constexpr std::string_view kRetriableInGroup = "kueue.x-k8s.io/retriable-in-group";
inline constexpr std::string_view kPodIndexLabel = "kueue.x-k8s.io/pod-group-pod-index-label";
inline constexpr std::string_view kSliceTopology = "kueue.x-k8s.io/podset-slice-required-topology";
inline constexpr std::string_view kSliceSize = "kueue.x-k8s.io/podset-slice-size";
inline constexpr std::string_view kAdmissionGate = "kueue.x-k8s.io/admission";
/// Condition of a pod that Kueue is about to delete.
inline constexpr std::string_view kTerminationTarget = "TerminationTarget";
/// Beginning of that condition's reason when somebody has set the Workload's spec.active to false.
inline constexpr std::string_view kDeactivated = "WorkloadEvictedDueToDeactivated";
inline constexpr std::size_t kMaxQueueBytes = 63;
inline constexpr std::size_t kMaxSaysBytes = 512;
}  // namespace kueue

/// The LocalQueue that the job's label names; empty: the job has nothing to do with Kueue. A gang
/// that has started is in status.kueueQueue, whatever the label says since.
std::string kueue_queue_wanted(const TrainingJob& job);

/// What the label and the other fields say about each other. Errors: kInvalid, with the label or
/// annotation.
Status check_kueue(const ObjectMeta& meta, const TrainingJobSpec& spec);

/// Levels of the topology, or labels of nodes; empty: not asked for.
struct TopologyWish {
  std::string required, preferred;
  std::vector<TopologyGroup> groups{};
  /// Each `slice_size` slots that follow each other are to be within one domain of this level.
  std::string slice_level{};
  int slice_size = 0;
  bool asks() const {
    return !required.empty() || !preferred.empty() || !groups.empty() || !slice_level.empty();
  }
};
/// spec.topology, or what Kueue's annotations ask for of a job that is in none of its queues: of
/// those that are, Kueue and the cluster's scheduler choose the nodes.
TopologyWish topology_wanted(const TrainingJob& job);

/// The pod group of the gang that status.startAttempt started, and so the name of its Workload.
/// Each start is a group of its own, because a group's size is fixed and its end final.
std::string kueue_group_name(const TrainingJob& job);

/// Makes the pod one of that group; nothing for a gang that did not start in a queue of Kueue.
void add_kueue_metadata(const TrainingJob& job, ObjectMeta& pod);

/// What is known of a Workload.
struct KueueWorkload {
  ObjectMeta meta;
  std::string pod;   ///< one of its owners; empty: it has none
  std::string says;  ///< why it is not admitted; empty: it is, or nobody said. Cut.
  bool operator==(const KueueWorkload&) const = default;
};

/// Lenient towards what is not used. Errors: kInvalid.
Result<KueueWorkload> parse_kueue_workload(const Json& json);

}  // namespace muster::api
