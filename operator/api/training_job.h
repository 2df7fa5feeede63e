// TrainingJob: what the user asks for (spec) and what is (status). Field by field the manifest
// reference; crds/trainingjob.yaml is its schema, and a test keeps the two equal.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "common/split.h"
#include "operator/api/decimal.h"
#include "operator/api/node_term.h"
#include "operator/api/object_meta.h"

namespace muster::api {

/// Amounts in base units, parsed from Kubernetes quantities.
struct Resources {
  std::int64_t cpu_millis = 1000;
  std::int64_t memory_bytes = std::int64_t{512} << 20;
  std::int64_t gpus = 0;
  std::string gpu_resource = "nvidia.com/gpu";
  std::map<std::string, std::int64_t> devices{};  ///< of device plugins, by resource; above 0
  std::int64_t ephemeral_bytes = 0;               ///< of the node's own disk; 0 = not asked for
  /// TCP port kMasterPort of the node itself, which one pod alone can have. Of a pod's sums only.
  bool master_port = false;
  bool operator==(const Resources&) const = default;
};

struct EnvVar {
  std::string name;
  std::string value;
  Json value_from;  ///< null, or one of secretKeyRef, configMapKeyRef, fieldRef as written
  bool operator==(const EnvVar&) const = default;
};

/// What starts in a worker's pod before the worker: it runs to its end or, a sidecar, stays.
struct InitContainer {
  std::string name;
  std::vector<EnvVar> env;
  Resources resources;  ///< cpu, memory and disk that are not given are the worker's
  Json fields;          ///< all of it as written, validated
  /// Beside the worker as long as that runs; it has neither GPUs nor devices.
  bool stays = false;
  bool operator==(const InitContainer&) const = default;
};

struct WorkerSpec {
  int count = 1;
  int min = 1;                     ///< default count
  int max = 1;                     ///< default count
  std::string grows_to = "Count";  ///< Count or Max
  std::string shape = "Fixed";     ///< Fixed or Free
  /// With shape: Free each worker is as large as so many that spec asks for, and there are so many
  /// times fewer; 1: as written. Never written to a spec.
  int size = 1;
  int processes = 1;  ///< per worker; default GPUs per worker, else 1
  int threads = 1;    ///< per process; default max(1, floor(cpu / processes))
  Resources resources;
  std::string image;  ///< empty: the chart's built-in worker
  std::vector<std::string> command, args;
  std::vector<EnvVar> env;
  std::vector<InitContainer> init_containers;  ///< in the order in which they start
  bool host_network = false;  ///< in the network of the node; of own programs alone
  /// Of affinity: a node is any of these; empty: any node. As written it is in pod_fields.
  std::vector<NodeTerm> node_terms;
  /// The remaining pod fields of the allow-list (ports, volumes, volumeMounts, nodeSelector,
  /// tolerations, imagePullSecrets, serviceAccountName, ...), validated, kept as written and copied
  /// into the pod.
  Json pod_fields = Json::object();
  bool operator==(const WorkerSpec&) const = default;
};

struct CheckpointSpec {
  std::string path = "/var/lib/muster";
  std::string volume_claim_name;  ///< empty: memory of the workers only, and status says so
  std::int64_t every_steps = 100;
  int keep = 2;
  bool operator==(const CheckpointSpec&) const = default;
};

struct TrainingSpec {
  std::string algorithm = "Backpropagation";
  std::string mode = "Strict";
  std::int64_t seed = 0;
  int logical_ranks = 16;
  int batch_size = 64;
  int micro_batch_size = 0;  ///< 0 = not given: all that a process has
  std::int64_t epochs = 0;   ///< 0 = not given; exactly one of epochs and steps is given
  std::int64_t steps = 0;
  Json model;  ///< one-of, validated: {"mlp": {"hidden": [128]}}
  Json data;   ///< {"train": {"idx": {...}}, "test": {...}}; text or tokens in place of idx
  std::string pretrained;  ///< directory of the model to begin with; empty: not given
  Json optimizer;          ///< one-of: {"sgd": {"learningRate": "0.1", "momentum": "0.9"}}
  Json gradient_clipping;  ///< {"maxNorm": "1.0"}; null: not given
  int evaluation_every_epochs = 1;
  std::int64_t evaluation_every_steps = 0;  ///< 0 = not given
  std::int64_t evaluation_max_samples = 0;  ///< likewise
  std::optional<CheckpointSpec> checkpoint;
  std::string optimizer_state = "Replicated";
  int buddies = 1;
  std::string activations = "Kept";
  std::string on_non_finite = "RollBack";
  std::string precision = "Float32";
  std::string parallelism_mode = "Fixed";  ///< Fixed or Auto
  Split split;                             ///< as written; with Auto see split_of
  /// Where the spec was refused, as it stands there: the workers may know what is not known here.
  Json as_written{};
  bool operator==(const TrainingSpec&) const = default;
};

struct RestartSpec {
  std::string policy = "OnFailure";  ///< OnFailure or Never
  int max_restarts = 3;
  int backoff_seconds = 10;
  bool operator==(const RestartSpec&) const = default;
};

/// Workers that send to each other in one way, and the level within which they are to stand.
struct TopologyGroup {
  std::string of;                   ///< Tensor, Pipeline or Data
  std::string preferred, required;  ///< one of them
  bool operator==(const TopologyGroup&) const = default;
};

struct TrainingJobSpec {
  WorkerSpec worker;
  std::optional<TrainingSpec> training;
  RestartSpec restart;
  std::string topology_preferred, topology_required;
  std::vector<TopologyGroup> topology_groups;
  std::string scheduling = "Placed";  ///< Placed or Unplaced
  std::string queue_name, priority_class_name;
  bool suspend = false;
  std::optional<std::int64_t> active_deadline_seconds;
  std::optional<std::int64_t> ttl_seconds_after_finished;
  std::string managed_by = "muster.dev/operator";
  bool operator==(const TrainingJobSpec&) const = default;
};

struct SlotPlacement {
  int slot = 0;
  int attempt = 0;
  std::string node;
  std::string domain;
  bool member = false;   ///< this attempt has been a member of the training, by its own report
  int replacements = 0;  ///< failures of this slot in a row, for the back-off
  /// The attempt before this one ended for what it read: this one is to know all its data before it
  /// asks to be let in.
  bool checks_data = false;
  /// This attempt has ended with 0 while others went on, of a user's own program: its pod may be
  /// gone.
  bool ended = false;
  bool operator==(const SlotPlacement&) const = default;
};

/// The newest question that the witness said yes to.
struct WitnessGrant {
  std::int64_t from_epoch = 0, epoch = 0;
  std::vector<int> members;  ///< slots of `epoch`, ascending
  bool operator==(const WitnessGrant&) const = default;
};

/// What was taken back from the job for others, since it was made.
struct TakenBack {
  int shrinks = 0, preemptions = 0;
  std::int64_t lost_process_seconds = 0;  ///< at most: computing that preemptions threw away
  /// For whom it was preempted last: namespace/name, and uid.
  std::string preempted_for, preempted_for_uid;
  bool operator==(const TakenBack&) const = default;
};

struct Progress {
  std::int64_t step = 0, total_steps = 0, epoch = 0;
  std::string loss, accuracy;  ///< decimal text, no floats in the API
  std::string samples_per_second;
  std::string step_milliseconds, exchange_milliseconds;  ///< measured by the workers
  std::string predicted_step_milliseconds;               ///< of what they compute, and the network
  std::int64_t eta_seconds = -1;
  std::optional<WallTime> updated_at;
  bool operator==(const Progress&) const = default;
};

struct CheckpointStatus {
  std::int64_t step = -1;
  std::optional<WallTime> time;
  bool durable = false;
  std::string path;
  int start_attempt = -1;  ///< of the gang whose workers told of it last; negative = not known
  bool operator==(const CheckpointStatus&) const = default;
};

struct FailureStatus {
  int slot = 0;
  int exit_code = 0;
  std::string reason;
  std::string log_tail;  ///< at most 2,048 bytes
  std::string node{};    ///< where it ran, or was to run; empty: not known
  int attempt = -1;      ///< of the slot; negative: not known
  /// That which failed before the worker began, of spec.worker.initContainers or put into the pod
  /// by a webhook; empty: the worker itself did.
  std::string container{};
  bool operator==(const FailureStatus&) const = default;
};

/// What the job has used of one price of the list.
struct CostItem {
  std::string tier, resource;
  Billionths units = 0;  ///< of it that the job has now; of memory GiB
  Billionths hours = 0;  ///< units times hours until `updated_at`
  bool operator==(const CostItem&) const = default;
};

/// What the job has cost until `updated_at`, as far as that is known.
struct JobCost {
  std::string currency;
  std::optional<Billionths> amount;         ///< absent: nothing of it is known
  std::optional<Billionths> rate_per_hour;  ///< at `updated_at`; absent: not known
  std::int64_t unknown_seconds = 0;         ///< time of which the cost, or a part, is not known
  std::string unknown;                      ///< why, the last time that it was so
  std::optional<WallTime> updated_at;
  std::vector<CostItem> items;  ///< by tier and resource
  bool operator==(const JobCost&) const = default;
};

struct TrainingJobStatus {
  std::int64_t observed_generation = 0;
  std::vector<Condition> conditions;
  std::string
      phase;  ///< display only: Pending, Waiting, Running, Restarting, Suspended, Complete, Failed
  std::string workers;  ///< "2/2": running / target
  int target_workers = 0;
  int replicas = 0;
  std::string selector;
  std::int64_t membership_epoch = 0;
  int restarts = 0;
  int replacements = 0;     ///< workers replaced while others trained on
  int resizes = 0;          ///< starts of the gang because another size was wished for
  int start_attempt = -1;   ///< attempt that the gang last started with; negative = not known
  std::string key_id;       ///< of the master key that the gang last started with; empty: unknown
  int start_count = 0;      ///< spec.worker.count when the gang last started; 0 = not known
  int worker_size = 1;      ///< WorkerSpec::size of that start
  std::string queue;        ///< TrainingQueue that the gang last started from; empty = none
  std::string kueue_queue;  ///< LocalQueue of Kueue that the gang last started in; empty = none
  /// The gang last started ahead of the first of its queue, by its deadline.
  bool went_ahead = false;
  std::vector<SlotPlacement> placement;
  /// By slot, where the gang stood when it gave its places up to start again; empty: nowhere. Of
  /// them it holds none: its next start takes those that are still free.
  std::vector<std::string> last_nodes;
  std::optional<WitnessGrant> witness;
  std::optional<WallTime> start_time, completion_time;
  /// Before start_time, in runs that others put an end to: they count for the deadline, too.
  std::int64_t past_active_seconds = 0;
  std::optional<WallTime> restart_at;  ///< back-off: the next attempt is not before this
  std::optional<Progress> progress;
  std::optional<CheckpointStatus> checkpoint;
  std::int64_t model_parameters = 0;
  std::string model_sha256, image_digest, data_sha256, contract;
  std::optional<FailureStatus> failure;
  TakenBack taken_back;
  std::optional<JobCost> cost;
  std::optional<Split> split;  ///< chosen with parallelism.mode: Auto; none: copies are whole
  bool operator==(const TrainingJobStatus&) const = default;

  /// nullptr when the condition has never been set.
  const Condition* condition(const std::string& type) const;
  bool is_true(const std::string& type) const;
  bool finished() const { return is_true("Complete") || is_true("Failed"); }
};

struct TrainingJob {
  ObjectMeta meta;
  TrainingJobSpec spec;
  TrainingJobStatus status;
  bool operator==(const TrainingJob&) const = default;
};

inline constexpr int kMaxJobNameBytes = 40;
inline constexpr std::size_t kMaxSpecBytes = 64 * 1024;

/// Reads and validates a TrainingJob, filling in every default (also those that depend on other
/// fields). Errors: kInvalid naming the field and what would be right ("spec.worker.count: must be
/// from ..."); exit code kInvalidSpec.
Result<TrainingJob> parse_training_job(const Json& json);
/// As above for an object of the API server whose spec an older schema admitted: metadata and
/// status are read even when the spec is refused, so that a condition can say so. The Status is the
/// spec's verdict; of a spec that is refused all is read that can be, as SpecReader says, and where
/// how many workers there should be is refused, it is so many as have places. Of a status that
/// somebody damaged, what can be read is read. Fields that are not known here are passed over: a
/// newer schema, which the server has read the spec by, may give them to every job before the
/// operator that knows them leads. Its workers are of the size that status tells.
std::pair<TrainingJob, Status> read_training_job(const Json& json);

/// Whether what such a verdict refuses is a part of the workers' pods, or of how many there are: no
/// further pod is made from that.
bool is_about_pods(const Error& refusal);

/// Whether a user may change `before` into `after`: training's logicalRanks, seed, model
/// and precision, whether there is a training, and managedBy never change; once the job has trained
/// (membershipEpoch > 0), and unless it is suspended and its gang has given its places up, only
/// worker.count (not with shape: Free), min, max, growsTo, suspend, queueName, priorityClassName
/// and the two deadlines may; the first of these only be lowered, while the gang has places to
/// which it went ahead by it. Errors: kInvalid naming the field. The schema's transition rules say
/// the same.
Status check_update(const TrainingJob& before, const TrainingJob& after);

/// What one pod takes of its node, as Kubernetes counts it: of each resource what the worker has
/// and those that stay beside it, or what the one that runs before it has and those that stay
/// already, where that is more.
Resources pod_resources(const WorkerSpec& worker);

/// How large these workers, of size 1, may become: not at all unless their shape is free, and no
/// larger than a spec could ask for.
int largest_size(const WorkerSpec& worker);

/// The same job in workers of that size, which divides as many as it has of size 1.
WorkerSpec with_size(WorkerSpec worker, int size);

/// How large these workers, of size 1, are in the gang whose last start status tells of.
int started_size(const WorkerSpec& worker, const TrainingJobStatus& status);

/// Whether spec.worker.initContainers has one of this name.
bool has_init_container(const WorkerSpec& worker, const std::string& name);

/// How each copy of the model is split: as spec says, with parallelism.mode: Auto as status does.
/// {1, 1}: it is whole, or the program is the user's own.
Split split_of(const TrainingJob& job);

/// Whether min, count and max workers have whole copies of a model that is split so. Errors:
/// kInvalid naming `field`, which says how it is split, and the number of workers.
Status check_divides(const WorkerSpec& worker, const Split& split, const std::string& field);

/// What is to be said where workers hold GPUs that not every worker trains on; empty: nothing.
std::string about_gpus(const TrainingJobSpec& spec);

Json to_json(const TrainingJob& job);
Json spec_to_json(const TrainingJobSpec& spec);
Json training_to_json(const TrainingSpec& training);  ///< what JoinResponse::training carries
Json status_to_json(const TrainingJobStatus& status);

/// Of a model that so many processes have a copy of together (parallelism.tensor x pipeline), in
/// workers of so many: so many workers from the first on, and each further so many, have whole
/// copies. 1: each has.
int workers_together(int processes_of_copy, int processes_of_worker);

/// Room on a node's own disk: containers' files, logs and emptyDir volumes.
inline constexpr const char* kEphemeralStorage = "ephemeral-storage";

/// Kubernetes quantity ("1500m", "2Gi", "1e3"). cpu: in thousandths, rounded up. Errors: kInvalid.
Result<std::int64_t> parse_cpu_millis(const std::string& text);
Result<std::int64_t> parse_bytes(const std::string& text);
Result<std::int64_t> parse_count(const std::string& text);
/// In the units of the resource: cpu, memory and what else counts bytes, everything else counted.
Result<std::int64_t> parse_amount(const std::string& resource, const std::string& text);

}  // namespace muster::api
