// Pods as Muster makes and reads them, and the nodes they stand on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/object_meta.h"
#include "operator/api/pcie.h"
#include "operator/api/training_job.h"

namespace muster::api {

enum class PodPhase { kPending, kRunning, kSucceeded, kFailed, kUnknown };

/// How a container ended.
struct Termination {
  int exit_code = 0;
  int signal = 0;
  std::string reason;       ///< "OOMKilled", "Error", "Completed"
  std::string message;      ///< termination message, at most 4,096 bytes: hostile text
  std::string container{};  ///< of those that run before the worker; empty: the worker
  bool operator==(const Termination&) const = default;
};

/// What a pod takes of its node, as the cluster's scheduler counts it.
struct PodRequests {
  std::int64_t cpu_millis = 0, memory_bytes = 0;
  /// Of device plugins, by resource, and kEphemeralStorage in bytes; above 0.
  std::map<std::string, std::int64_t> devices;
  bool master_port = false;  ///< TCP port kMasterPort of the node itself, as a host port
  PodRequests() = default;
  /// Of a worker's pod. Implicit: these are what it takes (pod_resources).
  PodRequests(const Resources& worker);
  bool operator==(const PodRequests&) const = default;
};

/// Raises each amount of `most`, requests or resources, to that of `other` where it is more. GPUs
/// that stand apart from devices are not looked at.
template <typename Most, typename Other>
void raise_to(Most& most, const Other& other) {
  most.cpu_millis = std::max(most.cpu_millis, other.cpu_millis);
  most.memory_bytes = std::max(most.memory_bytes, other.memory_bytes);
  for (const auto& [name, amount] : other.devices) {
    most.devices[name] = std::max(most.devices[name], amount);
  }
  most.master_port = most.master_port || other.master_port;
}

/// Keys of the taints that a worker with these resources bears whatever its job says: nodes with
/// devices are tainted with the devices' names, to keep out who asks for none of them. Source:
/// Kubernetes' admission plugin ExtendedResourceToleration, which not every cluster has, and which
/// sees pods alone.
std::vector<std::string> borne_taints(const Resources& worker);

struct Pod {
  ObjectMeta meta;
  // spec
  std::string node_name;      ///< bound node; empty = not bound yet
  std::string required_node;  ///< node of our required affinity; empty = unplaced
  PodRequests requests;
  Json spec = Json::object();  ///< the whole spec of a pod to create; empty when read back
  // status
  PodPhase phase = PodPhase::kPending;
  /// e.g. "Evicted"; else of PodScheduled=False ("Unschedulable") or of DisruptionTarget=True
  /// ("EvictionByEvictionAPI")
  std::string reason, message;
  /// When it got its node (PodScheduled=True), as the API server writes it; absent: it has none, or
  /// nobody says so.
  std::optional<WallTime> bound_at;
  /// Since when the cluster's scheduler refuses it (PodScheduled=False), likewise.
  std::optional<WallTime> unbound_since;
  std::string pod_ip;
  bool ready = false;
  /// DisruptionTarget is True: it is evicted, preempted or deleted by the cluster.
  bool is_disrupted = false;
  bool held_by_kueue = false;  ///< by a scheduling gate of its own (spec)
  /// Why Kueue is about to delete it: reason and message of its condition; empty: it is not.
  std::string kueue_stop, kueue_stop_message;
  std::optional<Termination> termination;  ///< of the container `worker`, once it has ended
  /// Of a pod that has failed before its worker began: the first container that failed.
  std::optional<Termination> init_failure;
  std::string initializing;  ///< while it is pending: the container that runs before the worker
  std::string image_id;
  bool operator==(const Pod&) const = default;

  /// Slot and attempt from our labels; -1 when absent or not a number.
  int slot() const;
  int attempt() const;
  bool ended() const { return phase == PodPhase::kSucceeded || phase == PodPhase::kFailed; }
  /// Whether its controller is a TrainingJob, whichever.
  bool is_of_job() const;
  /// Whether it is there for as long as its node: of a DaemonSet, or of the node itself.
  bool is_of_node() const;
};

struct Node {
  ObjectMeta meta;
  bool ready = false;
  bool unschedulable = false;
  struct Taint {
    std::string key, value, effect;
    bool operator==(const Taint&) const = default;
    /// Whether it keeps pods off that do not tolerate it; others only say that a node is not liked.
    bool is_hard() const { return effect == "NoSchedule" || effect == "NoExecute"; }
  };
  std::vector<Taint> taints;
  std::map<std::string, std::int64_t>
      allocatable;               ///< cpu in thousandths, memory in bytes, others counted
  std::optional<PcieNode> pcie;  ///< as the annotation says it, which meta has, too
  bool operator==(const Node&) const = default;
};

struct Service {
  ObjectMeta meta;
  std::map<std::string, std::string> selector;
  bool operator==(const Service&) const = default;
};

/// How many of a job's workers an eviction leaves at least.
struct DisruptionBudget {
  ObjectMeta meta;
  std::map<std::string, std::string> selector;
  int min_available = 0;
  bool operator==(const DisruptionBudget&) const = default;
};

/// What the cluster's own scheduler binds as one: a gang, from its first pod to its last. It is
/// made from the one template of a Workload of the same name, which says to tools whose it is.
struct PodGroup {
  Kind kind = Kind::kPodGroup;  ///< or kPodGroupV1Alpha2
  ObjectMeta meta;
  int min_count = 0;
  bool operator==(const PodGroup&) const = default;
};

/// Of the core API.
struct Event {
  ObjectMeta meta;
  ObjectKey regarding;
  Kind regarding_kind = Kind::kTrainingJob;
  std::string regarding_uid;
  std::string type;    ///< Normal or Warning
  std::string reason;  ///< contract::reason
  std::string action;
  std::string note;  ///< at most 1,024 bytes
  WallTime event_time;
  int series_count = 0;  ///< 0 = single
  bool operator==(const Event&) const = default;
};

/// Lenient towards fields Muster does not use, strict about those it does. Errors: kInvalid.
Result<Pod> parse_pod(const Json& json);
Result<Node> parse_node(const Json& json);
/// A pod with `spec` is written with it; one read back is written with the fields known here.
Json to_json(const Pod& pod);
Json to_json(const Node& node);
Json to_json(const Service& service);
Json to_json(const DisruptionBudget& budget);
Json to_json(const PodGroup& group);
/// The kind of its Workload, and the Workload: it has to be there first.
Kind workload_kind(const PodGroup& group);
Json workload_json(const PodGroup& group);
Json to_json(const Event& event);

/// "<job>-<5 of the uid's hash>": the job's headless Service and the stem of its pods' names.
std::string service_name(const TrainingJob& job);
/// "<service_name>-<slot>-<attempt>".
std::string pod_name(const TrainingJob& job, int slot, int attempt);
/// "muster.dev/job-uid=...": selects the pods of a job.
std::string pod_selector(const TrainingJob& job);

/// spec.affinity that admits the node of this name alone.
Json required_node_affinity(const std::string& node);

/// The securityContext of a pod and of a container that meets Pod Security `restricted`, as a user
/// who is not root: the one that WorkerSpec::pod_fields names, if any.
Json restricted_pod_context(const Json& pod_fields);
Json restricted_container_context();

struct PodOptions {
  std::string endpoint_url;     ///< MUSTER_ENDPOINT; empty: no endpoint, and no token is mounted
  std::string ca_certificate;   ///< PEM; empty for plain http on loopback
  std::string default_image;    ///< of the built-in worker
  int worker_metrics_port = 0;  ///< of the built-in worker's /metrics; 0 = none
  std::optional<Kind>
      pod_groups{};  ///< as which kind the cluster serves PodGroups; none: not at all
  /// Which of its own labels and annotations a job hands on to its pods: names, or with a * at the
  /// end what names begin with. check_copied_names has seen them.
  std::vector<std::string> copied_names{};
  /// Namespaces whose own programs may be in the network of their nodes; "*": all.
  std::vector<std::string> host_network_namespaces{};
};

/// Whether pods may be given what is named so by whoever may make jobs. What Muster and Kubernetes
/// say by labels and annotations is theirs to say: never below muster.dev, kubernetes.io (but
/// app.kubernetes.io, of which the pods' own come first) and k8s.io. Errors: kInvalid.
Status check_copied_names(const std::string& names);

/// The pod of one slot, built from an allow-list: nothing of the job's reaches it unchecked, and it
/// meets Pod Security `restricted`, but for the node's network where worker.hostNetwork asks for
/// that. Pure. The gang is status.targetWorkers strong
/// (spec.worker.count before that is decided); an own program's gang restarts as one, so its
/// MASTER_ADDR is slot 0's pod of `placement.attempt`. With more than kMaxTfConfigWorkers workers
/// TF_CONFIG is left out: it lists every one of them in every pod.
inline constexpr int kMaxTfConfigWorkers = 512;
inline constexpr int kMasterPort = 29'500;
Pod make_pod(const TrainingJob& job, const SlotPlacement& placement, const PodOptions& options);
/// Whether a built pod meets Pod Security `restricted` and has nothing in it that make_pod would
/// not set; in these namespaces (PodOptions) it may be in the network of its node. Errors:
/// kForbidden, with what is wrong.
Status check_restricted(const Pod& pod,
                        const std::vector<std::string>& host_network_namespaces = {});
Service make_service(const TrainingJob& job);
/// minAvailable is spec.worker.min.
DisruptionBudget make_disruption_budget(const TrainingJob& job);
/// Of the gang that status.startAttempt started, all or none: minCount is all of its members.
/// Nothing for a gang of one, and where the cluster serves no such kind. Who joins later is of no
/// group: it is bound alone, and the group of a gang that has shrunk would hold it back.
std::optional<PodGroup> make_pod_group(const TrainingJob& job, const PodOptions& options);

}  // namespace muster::api
