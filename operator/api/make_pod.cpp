// The pod of one slot and the job's headless Service. Every field that reaches the pod is named
// here: what a job could set to leave its box (host paths, privileges, its own security context, an
// API token) has no way in. The node's network has one, for own programs; restricted_pod.cpp says
// whose may go it.
#include <algorithm>
#include <array>
#include <utility>

#include "common/check.h"
#include "common/contract.h"
#include "common/sha256.h"
#include "operator/api/fields.h"
#include "operator/api/kueue.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/pod.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

/// Any user but root: an image whose own user is root, or has a name only, is refused by the node
/// under runAsNonRoot, so the number is given.
constexpr int kUser = 65'532;
constexpr int kDefaultGraceSeconds = 30;
constexpr int kTokenSeconds = 3600;
/// torchrun waits so long for more workers once it has enough; its own default is 30.
constexpr int kLastCallSeconds = 10;
constexpr const char* kTokenVolume = "muster-token";
constexpr const char* kSharedMemoryVolume = "muster-shm";
constexpr const char* kCheckpointVolume = "muster-checkpoint";
constexpr const char* kPodGroupTemplate = "workers";

Json scheduling_policy(const PodGroup& group) {
  return {{"gang", {{"minCount", group.min_count}}}};
}

int workers_of(const TrainingJob& job) {
  return job.status.target_workers > 0 ? job.status.target_workers : job.spec.worker.count;
}

std::map<std::string, std::string> labels_of(const TrainingJob& job) {
  return {{std::string(contract::kLabelJobName), job.meta.name},
          {std::string(contract::kLabelJobUid), job.meta.uid},
          {"app.kubernetes.io/name", "muster"},
          {"app.kubernetes.io/component", "worker"},
          {"app.kubernetes.io/instance", job.meta.name},
          {"app.kubernetes.io/managed-by", "muster-operator"}};
}

ObjectMeta owned_meta(const TrainingJob& job, std::string name) {
  ObjectMeta meta;
  meta.name = std::move(name);
  meta.namespace_name = job.meta.namespace_name;
  meta.labels = labels_of(job);
  meta.owner_references.push_back({std::string(contract::kApiVersion),
                                   std::string(contract::kKindTrainingJob), job.meta.name,
                                   job.meta.uid, true});
  return meta;
}

void set_env(Json& env, std::string_view name, std::string value) {
  env.push_back(Json{{"name", name}, {"value", std::move(value)}});
}

/// Unless the job gives it itself.
void set_default_env(Json& env, const std::vector<EnvVar>& own, std::string_view name,
                     std::string value) {
  const bool is_given = std::any_of(own.begin(), own.end(),
                                    [&](const EnvVar& variable) { return variable.name == name; });
  if (!is_given) set_env(env, name, std::move(value));
}

/// Where the other workers of the gang reach a slot's pod.
std::string host_of(const TrainingJob& job, int slot, int attempt) {
  std::string host = pod_name(job, slot, attempt) + "." + service_name(job);
  if (!job.meta.namespace_name.empty()) host += "." + job.meta.namespace_name + ".svc";
  return host;
}

std::string tf_config(const TrainingJob& job, const SlotPlacement& placement) {
  Json hosts = Json::array();
  for (int slot = 0; slot < workers_of(job); ++slot) {
    hosts.push_back(host_of(job, slot, placement.attempt) + ":" + std::to_string(kMasterPort));
  }
  return dump_json(Json{{"cluster", {{"worker", std::move(hosts)}}},
                        {"task", {{"type", "worker"}, {"index", placement.slot}}}});
}

/// What programs that are not ours expect: PyTorch, torchrun, TensorFlow. A pod is one place of
/// the gang; a launcher inside it starts the other processes and renumbers RANK and LOCAL_RANK.
void add_program_env(Json& env, const TrainingJob& job, const SlotPlacement& placement) {
  const int processes = job.spec.worker.processes;
  const int workers = workers_of(job);
  const std::string master = host_of(job, 0, placement.attempt);
  const std::string port = std::to_string(kMasterPort);
  const std::string rendezvous = service_name(job) + "-" + std::to_string(placement.attempt);
  set_env(env, "RANK", std::to_string(placement.slot * processes));
  set_env(env, "LOCAL_RANK", "0");
  set_env(env, "WORLD_SIZE", std::to_string(workers * processes));
  set_env(env, "MASTER_ADDR", master);
  set_env(env, "MASTER_PORT", port);
  const WorkerSpec& spec = job.spec.worker;
  // By its host's name torchrun knows itself, and has others find it, in a rendezvous of its own:
  // in its node's network that name may be unknown to others, and the same on every node.
  const bool counts_itself = spec.min < spec.max && !spec.host_network;
  set_env(env, "PET_NNODES",
          counts_itself ? std::to_string(spec.min) + ":" + std::to_string(spec.max)
                        : std::to_string(workers));
  set_env(env, "PET_NPROC_PER_NODE", std::to_string(processes));
  set_env(env, "PET_NODE_RANK", std::to_string(placement.slot));
  set_env(env, "PET_MASTER_ADDR", master);
  set_env(env, "PET_MASTER_PORT", port);
  // Static: the ranks are ours, and a lost worker restarts the gang. A static rendezvous would wait
  // for max of min:max, so torchrun counts who is there; the store is in slot 0's pod.
  set_env(env, "PET_RDZV_BACKEND", counts_itself ? "c10d" : "static");
  if (counts_itself) {
    set_env(env, "PET_RDZV_CONF",
            std::string("is_host=") + (placement.slot == 0 ? "true" : "false") +
                ",last_call_timeout=" + std::to_string(kLastCallSeconds));
  }
  set_env(env, "PET_RDZV_ENDPOINT", master + ":" + port);
  set_env(env, "PET_RDZV_ID", rendezvous);
  if (workers <= kMaxTfConfigWorkers) set_env(env, "TF_CONFIG", tf_config(job, placement));
  // Without it OpenMP, and PyTorch with it, takes as many as the node has processors.
  set_default_env(env, spec.env, "OMP_NUM_THREADS", std::to_string(spec.threads));
}

/// Where its node is in the topology; of one in which hosts are a level, what is above them.
std::string rack_of(const SlotPlacement& placement) {
  const std::string& path = placement.domain;
  const std::size_t slash = path.rfind('/');
  const bool ends_with_host =
      path.substr(slash == std::string::npos ? 0 : slash + 1) == placement.node;
  if (!ends_with_host) return path;
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

/// Own programs serve what they like under their own ports.
bool has_metrics(const TrainingJob& job, const PodOptions& options) {
  return job.spec.training && options.worker_metrics_port > 0;
}

/// kUser has no entry in most images, and where an image names a home of its own it belongs to
/// somebody else: without these, caches go to / and asking for the user's name fails.
void add_user_env(Json& env, const std::vector<EnvVar>& own) {
  set_default_env(env, own, "HOME", "/tmp");
  set_default_env(env, own, "USER", "worker");
}

/// Which worker of which job the pod is.
void add_place_env(Json& env, const TrainingJob& job, const SlotPlacement& placement) {
  set_env(env, contract::kEnvJob, job.meta.key().text());
  set_env(env, contract::kEnvSlot, std::to_string(placement.slot));
  set_env(env, contract::kEnvAttempt, std::to_string(placement.attempt));
  set_env(env, contract::kEnvWorkers, std::to_string(workers_of(job)));
  set_env(env, contract::kEnvProcesses, std::to_string(job.spec.worker.processes));
}

Json make_env(const TrainingJob& job, const SlotPlacement& placement, const PodOptions& options) {
  Json env = Json::array();
  add_place_env(env, job, placement);
  if (!options.endpoint_url.empty()) {
    set_env(env, contract::kEnvEndpoint, options.endpoint_url);
    set_env(env, contract::kEnvTokenFile, std::string(kMusterMountPath) + "/token");
  }
  if (!options.ca_certificate.empty()) {
    set_env(env, contract::kEnvCaCert, options.ca_certificate);
    env.push_back(Json{{"name", contract::kEnvPodIp},
                       {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}});
  }
  if (job.spec.training) {
    env.push_back(Json{{"name", contract::kEnvNode},
                       {"valueFrom", {{"fieldRef", {{"fieldPath", "spec.nodeName"}}}}}});
    if (const auto rack = rack_of(placement); !rack.empty()) set_env(env, contract::kEnvRack, rack);
  }
  if (has_metrics(job, options)) {
    set_env(env, contract::kEnvMetricsPort, std::to_string(options.worker_metrics_port));
  }
  // Where the GPU runtime is the node's default, a container that asks for none would see all.
  const std::int64_t gpus = job.spec.worker.resources.gpus;
  if (gpus == 0) set_env(env, kVisibleGpus, "void");
  if (gpus > 0 && job.spec.training) set_env(env, contract::kEnvGpus, std::to_string(gpus));
  if (!job.spec.training) add_program_env(env, job, placement);
  // On a laptop the program runs as whoever started it.
  if (!job.spec.training && !options.ca_certificate.empty()) add_user_env(env, job.spec.worker.env);
  for (const auto& variable : job.spec.worker.env) env.push_back(env_to_json(variable));
  return env;
}

Json requests_and_limits(const Resources& resources) {
  Json amounts{{"cpu", std::to_string(resources.cpu_millis) + "m"},
               {"memory", std::to_string(resources.memory_bytes)}};
  for (const auto& [name, amount] : PodRequests(resources).devices) {
    amounts[name] = std::to_string(amount);
  }
  return Json{{"requests", amounts}, {"limits", amounts}};
}

Json make_resources(const WorkerSpec& worker) {
  Json json = requests_and_limits(worker.resources);
  const auto claims = worker.pod_fields.find("resourceClaims");
  if (claims != worker.pod_fields.end()) {
    for (const auto& claim : *claims) json["claims"].push_back(Json{{"name", claim["name"]}});
  }
  return json;
}

struct Storage {
  Json volumes = Json::array();
  Json mounts = Json::array();

  void add(const std::string& name, Json source, const std::string& path) {
    source["name"] = name;
    volumes.push_back(std::move(source));
    mounts.push_back(Json{{"name", name}, {"mountPath", path}});
  }
};

/// Slot 0 alone mounts the claim: it writes for all and hands state to the others.
Json checkpoint_source(const CheckpointSpec& checkpoint, int slot) {
  if (checkpoint.volume_claim_name.empty() || slot != 0) return Json{{"emptyDir", Json::object()}};
  return Json{{"persistentVolumeClaim", {{"claimName", checkpoint.volume_claim_name}}}};
}

Storage make_storage(const TrainingJob& job, int slot, const PodOptions& options) {
  Storage storage;
  const Json& fields = job.spec.worker.pod_fields;
  if (const auto found = fields.find("volumes"); found != fields.end()) storage.volumes = *found;
  if (const auto found = fields.find("volumeMounts"); found != fields.end()) {
    storage.mounts = *found;
  }
  if (const auto size = fields.find("shmSize"); size != fields.end()) {
    storage.add(kSharedMemoryVolume,
                Json{{"emptyDir", {{"medium", "Memory"}, {"sizeLimit", *size}}}}, "/dev/shm");
  }
  if (job.spec.training && job.spec.training->checkpoint) {
    const CheckpointSpec& checkpoint = *job.spec.training->checkpoint;
    storage.add(kCheckpointVolume, checkpoint_source(checkpoint, slot), checkpoint.path);
  }
  if (!options.endpoint_url.empty()) {
    const Json token{{"serviceAccountToken",
                      {{"audience", contract::kTokenAudience},
                       {"expirationSeconds", kTokenSeconds},
                       {"path", "token"}}}};
    storage.add(kTokenVolume,
                Json{{"projected", {{"sources", Json::array({token})}, {"defaultMode", 0440}}}},
                kMusterMountPath);
    storage.mounts.back()["readOnly"] = true;
  }
  return storage;
}

/// The engine writes to its volumes alone. Own programs write where they please: PyTorch to /tmp.
Json container_context(const TrainingJob& job) {
  Json context = restricted_container_context();
  if (job.spec.training) context["readOnlyRootFilesystem"] = true;
  return context;
}

/// In its node's network every port of a pod is the node's: what stands here the cluster's
/// scheduler keeps others' pods off. First, for a reader of pods reads few of their ports.
void put_master_port_first(Json& ports) {
  if (ports.is_null()) ports = Json::array();
  const auto is_it = [](const Json& port) {
    return port.value("containerPort", 0) == kMasterPort && port.value("protocol", "TCP") == "TCP";
  };
  const auto own = std::find_if(ports.begin(), ports.end(), is_it);
  Json first{{"containerPort", kMasterPort}, {"protocol", "TCP"}};
  if (own != ports.end()) {
    first = *own;
    ports.erase(own);
  }
  ports.insert(ports.begin(), std::move(first));
}

Json make_container(const TrainingJob& job, const SlotPlacement& placement,
                    const PodOptions& options, Json mounts) {
  const WorkerSpec& worker = job.spec.worker;
  Json container{{"name", contract::kContainerName},
                 {"image", worker.image.empty() ? options.default_image : worker.image},
                 {"env", make_env(job, placement, options)},
                 {"resources", make_resources(worker)},
                 {"terminationMessagePolicy", "FallbackToLogsOnError"},
                 {"securityContext", container_context(job)}};
  if (!worker.command.empty()) container["command"] = worker.command;
  if (!worker.args.empty()) container["args"] = worker.args;
  if (!mounts.empty()) container["volumeMounts"] = std::move(mounts);
  for (const char* field : {"imagePullPolicy", "envFrom", "ports"}) {
    const auto own = worker.pod_fields.find(field);
    if (own != worker.pod_fields.end()) container[field] = *own;
  }
  const auto ports = worker.pod_fields.find("ports");
  const bool is_taken = ports != worker.pod_fields.end() &&
                        std::any_of(ports->begin(), ports->end(), [](const Json& port) {
                          return port.value("name", "") == contract::kMetricsPortName;
                        });
  // A name may stand once in a pod; the job's own port of that name comes first.
  if (has_metrics(job, options) && !is_taken) {
    container["ports"].push_back(Json{{"name", contract::kMetricsPortName},
                                      {"containerPort", options.worker_metrics_port},
                                      {"protocol", "TCP"}});
  }
  if (worker.host_network) put_master_port_first(container["ports"]);
  return container;
}

/// It is a program of the user's, whatever the worker is: it gets no token, and writes where it
/// pleases.
Json make_init_container(const TrainingJob& job, const InitContainer& one,
                         const SlotPlacement& placement, const PodOptions& options) {
  const WorkerSpec& worker = job.spec.worker;
  Json container{{"name", one.name},
                 {"image", worker.image.empty() ? options.default_image : worker.image},
                 {"resources", requests_and_limits(one.resources)},
                 {"terminationMessagePolicy", "FallbackToLogsOnError"},
                 {"securityContext", restricted_container_context()}};
  // Of the worker's image, unless it has its own.
  const auto policy = worker.pod_fields.find("imagePullPolicy");
  if (!one.fields.contains("image") && policy != worker.pod_fields.end()) {
    container["imagePullPolicy"] = *policy;
  }
  for (const char* field :
       {"image", "imagePullPolicy", "command", "args", "workingDir", "envFrom", "volumeMounts"}) {
    const auto own = one.fields.find(field);
    if (own != one.fields.end()) container[field] = *own;
  }
  if (one.stays) container["restartPolicy"] = "Always";
  Json env = Json::array();
  add_place_env(env, job, placement);
  if (one.resources.gpus == 0) set_env(env, kVisibleGpus, "void");
  add_user_env(env, one.env);
  for (const auto& variable : one.env) env.push_back(env_to_json(variable));
  container["env"] = std::move(env);
  return container;
}

Json make_init_containers(const TrainingJob& job, const SlotPlacement& placement,
                          const PodOptions& options) {
  Json containers = Json::array();
  for (const InitContainer& one : job.spec.worker.init_containers) {
    containers.push_back(make_init_container(job, one, placement, options));
  }
  return containers;
}

}  // namespace

std::string service_name(const TrainingJob& job) {
  // Five of 36 letters and digits: a job deleted and made again by the same name gets other names,
  // so that a worker of the old one finds nobody.
  constexpr std::string_view kAlphabet = "0123456789abcdefghijklmnopqrstuvwxyz";
  const Sha256Digest digest = sha256(job.meta.uid);
  std::string name = job.meta.name + "-";
  for (std::size_t i = 0; i < 5; ++i) name += kAlphabet[digest[i] % kAlphabet.size()];
  return name;
}

std::string pod_name(const TrainingJob& job, int slot, int attempt) {
  return service_name(job) + "-" + std::to_string(slot) + "-" + std::to_string(attempt);
}

std::string pod_selector(const TrainingJob& job) {
  return std::string(contract::kLabelJobUid) + "=" + job.meta.uid;
}

Json restricted_pod_context(const Json& pod_fields) {
  Json context{{"runAsNonRoot", true},
               {"runAsUser", kUser},
               {"runAsGroup", kUser},
               {"fsGroup", kUser},
               {"fsGroupChangePolicy", "OnRootMismatch"},
               {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  for (const char* field : {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"}) {
    if (const auto own = pod_fields.find(field); own != pod_fields.end()) context[field] = *own;
  }
  return context;
}

Json restricted_container_context() {
  return Json{{"allowPrivilegeEscalation", false},
              {"capabilities", {{"drop", Json::array({"ALL"})}}}};
}

/// Who empties nodes to save some is asked to leave pods alone of a gang that cannot lose any: it
/// would go back to its checkpoint. For a gang that can the disruption budget speaks. What the job
/// says itself comes first.
void ask_to_stay(const TrainingJob& job, ObjectMeta& pod) {
  constexpr std::array<std::pair<const char*, const char*>, 2> kStay{
      {{"karpenter.sh/do-not-disrupt", "true"},
       {"cluster-autoscaler.kubernetes.io/safe-to-evict", "false"}}};
  for (const auto& [key, value] : kStay) {
    const auto own = job.meta.annotations.find(key);
    const bool is_said =
        own != job.meta.annotations.end() && (own->second == "true" || own->second == "false");
    if (is_said) {
      pod.annotations[key] = own->second;
    } else if (job.spec.worker.min == job.spec.worker.max) {
      pod.annotations[key] = value;
    }
  }
}

namespace {

/// Whether only Muster and Kubernetes say what is named so, or begins so: some of it lets pods out
/// of their box (AppArmor, devices by CDI), or is what selectors look for.
bool is_closed(std::string_view name) {
  const std::string_view domain = name.substr(0, std::min(name.find('/'), name.size()));
  const bool has_domain = domain.size() < name.size();
  const auto is_of = [&](std::string_view other) {
    if (!domain.ends_with(other)) return false;
    return domain.size() == other.size() || domain[domain.size() - other.size() - 1] == '.';
  };
  return has_domain && domain != "app.kubernetes.io" &&
         (is_of("muster.dev") || is_of("kubernetes.io") || is_of("k8s.io") || is_of("x-k8s.io"));
}

bool is_copied(const std::string& name, const PodOptions& options) {
  const auto matches_it = [&](const std::string& names) {
    if (!names.ends_with('*')) return name == names;
    return name.starts_with(std::string_view(names).substr(0, names.size() - 1));
  };
  return !is_closed(name) &&
         std::any_of(options.copied_names.begin(), options.copied_names.end(), matches_it);
}

/// What the pod has already stays as it is.
void copy_metadata(const ObjectMeta& job, const PodOptions& options, ObjectMeta& pod) {
  for (const auto& [name, value] : job.labels) {
    if (is_copied(name, options)) pod.labels.try_emplace(name, value);
  }
  for (const auto& [name, value] : job.annotations) {
    if (is_copied(name, options)) pod.annotations.try_emplace(name, value);
  }
}

}  // namespace

Status check_copied_names(const std::string& names) {
  constexpr std::size_t kMostBytes = 317;
  constexpr std::string_view kCharacters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./";
  const bool is_beginning = names.ends_with('*');
  const std::string text = is_beginning ? names.substr(0, names.size() - 1) : names;
  const bool is_right = is_beginning ? !text.empty() && text.size() <= kMostBytes &&
                                           text.find_first_not_of(kCharacters) == std::string::npos
                                     : matches(NameRule::kQualified, text);
  if (!is_right) {
    return Error(ErrorCode::kInvalid,
                 "must be names of labels and annotations with commas between, a * at the end for "
                 "all that begin so, like team,example.com/*; not " +
                     in_quotes(names));
  }
  if (!is_closed(text)) return {};
  return Error(ErrorCode::kInvalid, "must leave out " + in_quotes(names) +
                                        ": what is below muster.dev, kubernetes.io (but "
                                        "app.kubernetes.io) or k8s.io jobs do not say of pods");
}

/// Schedule counts on them, whatever the cluster adds.
void add_device_tolerations(const TrainingJob& job, Json& spec) {
  for (const std::string& key : borne_taints(job.spec.worker.resources)) {
    Json toleration{{"key", key}, {"operator", "Exists"}};
    Json& all = spec["tolerations"];
    const bool is_there = std::find(all.begin(), all.end(), toleration) != all.end();
    if (!is_there) all.push_back(std::move(toleration));
  }
}

Pod make_pod(const TrainingJob& job, const SlotPlacement& placement, const PodOptions& options) {
  Pod pod;
  pod.meta = owned_meta(job, pod_name(job, placement.slot, placement.attempt));
  pod.meta.labels[std::string(contract::kLabelSlot)] = std::to_string(placement.slot);
  pod.meta.labels[std::string(contract::kLabelAttempt)] = std::to_string(placement.attempt);
  // A status that anybody has damaged must not keep pods from being made.
  if (const std::string& queue = job.status.queue; matches(NameRule::kLabel, queue)) {
    pod.meta.labels[std::string(contract::kLabelQueue)] = queue;
  }
  pod.meta.annotations[std::string(contract::kAnnotationDefaultContainer)] =
      contract::kContainerName;
  ask_to_stay(job, pod.meta);
  add_kueue_metadata(job, pod.meta);
  copy_metadata(job.meta, options, pod.meta);
  pod.required_node = placement.node;
  pod.requests = pod_resources(job.spec.worker);

  const Json& fields = job.spec.worker.pod_fields;
  Storage storage = make_storage(job, placement.slot, options);
  pod.spec =
      Json{{"containers",
            Json::array({make_container(job, placement, options, std::move(storage.mounts))})},
           {"restartPolicy", "Never"},
           {"hostname", pod.meta.name},
           {"subdomain", service_name(job)},
           {"automountServiceAccountToken", false},
           {"enableServiceLinks", false},
           {"terminationGracePeriodSeconds", kDefaultGraceSeconds},
           {"securityContext", restricted_pod_context(fields)}};
  if (!job.spec.worker.init_containers.empty()) {
    pod.spec["initContainers"] = make_init_containers(job, placement, options);
  }
  if (!storage.volumes.empty()) pod.spec["volumes"] = std::move(storage.volumes);
  if (job.spec.worker.host_network) {
    pod.spec["hostNetwork"] = true;
    // By the node's own resolver nobody would find the Service.
    pod.spec["dnsPolicy"] = "ClusterFirstWithHostNet";
  }
  if (!placement.node.empty()) {
    // It is one of those that the job selects.
    pod.spec["affinity"] = required_node_affinity(placement.node);
  } else if (!job.spec.worker.node_terms.empty()) {
    pod.spec["affinity"] = fields["affinity"];
  }
  if (!job.spec.priority_class_name.empty()) {
    pod.spec["priorityClassName"] = job.spec.priority_class_name;
  }
  if (placement.attempt == job.status.start_attempt) {
    if (const auto group = make_pod_group(job, options)) {
      pod.spec["schedulingGroup"] = Json{{"podGroupName", group->meta.name}};
    }
  }
  for (const char* field :
       {"nodeSelector", "tolerations", "imagePullSecrets", "serviceAccountName", "runtimeClassName",
        "schedulerName", "resourceClaims", "terminationGracePeriodSeconds"}) {
    const auto found = fields.find(field);
    if (found != fields.end()) pod.spec[field] = *found;
  }
  add_device_tolerations(job, pod.spec);
  return pod;
}

Service make_service(const TrainingJob& job) {
  Service service;
  service.meta = owned_meta(job, service_name(job));
  service.selector = {{std::string(contract::kLabelJobUid), job.meta.uid}};
  return service;
}

DisruptionBudget make_disruption_budget(const TrainingJob& job) {
  DisruptionBudget budget;
  budget.meta = owned_meta(job, service_name(job));
  budget.selector = {{std::string(contract::kLabelJobUid), job.meta.uid}};
  budget.min_available = job.spec.worker.min;
  return budget;
}

std::optional<PodGroup> make_pod_group(const TrainingJob& job, const PodOptions& options) {
  if (!options.pod_groups) return std::nullopt;
  const int members = static_cast<int>(std::count_if(
      job.status.placement.begin(), job.status.placement.end(),
      [&](const SlotPlacement& one) { return one.attempt == job.status.start_attempt; }));
  if (members < 2) return std::nullopt;
  PodGroup group;
  group.kind = *options.pod_groups;
  group.meta = owned_meta(job, service_name(job) + "-" + std::to_string(job.status.start_attempt));
  group.min_count = members;
  return group;
}

Json to_json(const PodGroup& group) {
  Json json = object_json(group.kind, group.meta);
  json["spec"]["schedulingPolicy"] = scheduling_policy(group);
  if (group.kind == Kind::kPodGroup) {
    json["spec"]["workloadRef"] = {{"workloadName", group.meta.name},
                                   {"templateName", kPodGroupTemplate}};
  } else {
    json["spec"]["podGroupTemplateRef"]["workload"] = {{"workloadName", group.meta.name},
                                                       {"podGroupTemplateName", kPodGroupTemplate}};
  }
  return json;
}

Kind workload_kind(const PodGroup& group) {
  return group.kind == Kind::kPodGroup ? Kind::kWorkload : Kind::kWorkloadV1Alpha2;
}

Json workload_json(const PodGroup& group) {
  Json json = object_json(workload_kind(group), group.meta);
  const OwnerReference* owner = group.meta.controller();
  MUSTER_CHECK(owner != nullptr);
  json["spec"]["controllerRef"] = {
      {"apiGroup", contract::kGroup}, {"kind", owner->kind}, {"name", owner->name}};
  json["spec"]["podGroupTemplates"] =
      Json::array({{{"name", kPodGroupTemplate}, {"schedulingPolicy", scheduling_policy(group)}}});
  return json;
}

Json to_json(const DisruptionBudget& budget) {
  Json json = object_json(Kind::kPodDisruptionBudget, budget.meta);
  // Pods that are not ready may always go: they train with nobody yet.
  json["spec"] = Json{{"minAvailable", budget.min_available},
                      {"selector", {{"matchLabels", budget.selector}}},
                      {"unhealthyPodEvictionPolicy", "AlwaysAllow"}};
  return json;
}

Json to_json(const Service& service) {
  Json json = object_json(Kind::kService, service.meta);
  // Headless, and with addresses before readiness: workers look each other up while they start.
  json["spec"] = Json{
      {"clusterIP", "None"}, {"publishNotReadyAddresses", true}, {"selector", service.selector}};
  return json;
}

}  // namespace muster::api
