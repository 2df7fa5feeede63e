#include "operator/api/training_job.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "common/contract.h"
#include "common/messages.h"
#include "operator/api/fields.h"
#include "operator/api/kueue.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

constexpr JsonReader::Range kSeconds = {1, INT32_MAX};

constexpr std::size_t kMaxTopologyGroups = 2;

Status read_topology_group(const Json& json, const std::string& path, TopologyGroup& out) {
  SpecReader in(json, path);
  if (!in.has("of")) in.fail("of", "is required: Tensor, Pipeline or Data");
  optional_enum(in, "of", out.of, {"Tensor", "Pipeline", "Data"});
  optional_name(in, "preferred", out.preferred, NameRule::kLabel);
  optional_name(in, "required", out.required, NameRule::kLabel);
  in.no_other_fields();
  one_of(in, {"preferred", "required"});
  return in.status();
}

void read_topology(JsonReader& in, TrainingJobSpec& out) {
  read_object(in, "topology", [&](const Json& object, const std::string& at) {
    SpecReader topology(object, at);
    optional_name(topology, "preferred", out.topology_preferred, NameRule::kLabel);
    optional_name(topology, "required", out.topology_required, NameRule::kLabel);
    std::vector<std::string> seen;
    read_list(topology, "groups", kMaxTopologyGroups,
              [&](const Json& item, const std::string& path) -> Status {
                TopologyGroup& group = out.topology_groups.emplace_back();
                MUSTER_RETURN_IF_ERROR(read_topology_group(item, path, group));
                return add_unique(seen, group.of, path, "group");
              });
    topology.no_other_fields();
    const bool has_groups = topology.has("groups");
    if (has_groups && out.topology_groups.empty()) {
      topology.fail("groups", "must have at least one group, or be left out");
    }
    const bool is_of_groups = has_groups && !topology.has("preferred") && !topology.has("required");
    if (!is_of_groups) one_of(topology, {"preferred", "required"});
    return topology.status();
  });
}

void read_restart(JsonReader& in, RestartSpec& out) {
  read_object(in, "restart", [&](const Json& object, const std::string& at) {
    SpecReader restart(object, at);
    optional_enum(restart, "policy", out.policy, {"OnFailure", "Never"});
    restart.optional("maxRestarts", out.max_restarts, {0, 1000});
    restart.optional("backoffSeconds", out.backoff_seconds, {0, 3600});
    restart.no_other_fields();
    return restart.status();
  });
}

void read_deadlines(JsonReader& in, TrainingJobSpec& out) {
  std::int64_t active = -1, ttl = -1;
  in.optional("activeDeadlineSeconds", active, kSeconds);
  in.optional("ttlSecondsAfterFinished", ttl, {0, INT32_MAX});
  if (active >= 0) out.active_deadline_seconds = active;
  if (ttl >= 0) out.ttl_seconds_after_finished = ttl;
}

/// The checkpoint's own volume must not hide, or be hidden by, one of the job's.
Status check_checkpoint_mount(const TrainingJobSpec& spec) {
  if (!spec.training || !spec.training->checkpoint) return {};
  const std::string& path = spec.training->checkpoint->path;
  const std::string field = "spec.training.checkpoint.path";
  for (const char* closed :
       {"/proc", "/sys", "/dev", kMusterMountPath, "/run/secrets/muster.dev"}) {
    if (is_below(path, closed) || is_below(closed, path)) {
      return Error(ErrorCode::kInvalid,
                   field + ": must not be in " + closed + "; /var/lib/muster is usual");
    }
  }
  const auto mounts = spec.worker.pod_fields.find("volumeMounts");
  if (mounts == spec.worker.pod_fields.end()) return {};
  for (const auto& mount : *mounts) {
    const std::string at = mount["mountPath"].get<std::string>();
    if (is_below(path, at) || is_below(at, path)) {
      return Error(ErrorCode::kInvalid,
                   field + ": is the mount of volume " +
                       in_quotes(mount["name"].get<std::string>()) +
                       ", or overlaps it; to keep checkpoints on a claim, name it in "
                       "volumeClaimName");
    }
  }
  return {};
}

Status check_shape(const TrainingJobSpec& spec) {
  const WorkerSpec& worker = spec.worker;
  if (worker.shape != "Free") return {};
  const auto invalid = [](std::string message) {
    return Status(Error(ErrorCode::kInvalid, "spec.worker.shape: is Free, " + std::move(message)));
  };
  if (worker.min != worker.count || worker.max != worker.count) {
    return invalid(
        "so min and max must be left out: the gang has all that count asks for, in fewer and "
        "larger workers. Leave them out, or shape");
  }
  if (spec.scheduling != "Placed" || worker.host_network) {
    return invalid(
        "which needs scheduling: Placed and no hostNetwork: workers become larger where several "
        "are placed on one node");
  }
  if (worker.pod_fields.contains("resourceClaims")) {
    return invalid(
        "so resourceClaims must be left out: a larger worker would have no more of them than a "
        "small one");
  }
  return {};
}

/// What spec.worker and spec.training say about each other.
Status check_together(const TrainingJobSpec& spec) {
  const WorkerSpec& worker = spec.worker;
  const auto invalid = [](std::string message) {
    return Status(Error(ErrorCode::kInvalid, std::move(message)));
  };
  const bool takes_back = spec.training && !spec.queue_name.empty() && spec.scheduling == "Placed";
  if (worker.grows_to == "Max" && !takes_back) {
    return invalid(
        "spec.worker.growsTo: is Max, which needs training, queueName and scheduling: Placed: a "
        "queue takes back what is beyond count");
  }
  if (!spec.training) {
    if (!worker.command.empty() || !worker.image.empty()) return {};
    return invalid(
        "spec: must have training (the built-in engine), or worker.command or worker.image (your "
        "own program)");
  }
  for (const auto& [field, given] :
       {std::pair("command", !worker.command.empty()), std::pair("args", !worker.args.empty())}) {
    if (given) {
      return invalid("spec.worker." + std::string(field) +
                     ": must be left out when spec.training is set; the built-in engine has its "
                     "own. Drop one of the two");
    }
  }
  if (worker.host_network) {
    return invalid(
        "spec.worker.hostNetwork: must be left out when spec.training is set: the built-in "
        "engine's workers choose ports and reach each other in the pods' network. It is for your "
        "own program (worker.command or worker.image) alone");
  }
  const TrainingSpec& training = *spec.training;
  const std::int64_t processes = std::int64_t{worker.max} * worker.processes;
  const std::int64_t places = std::int64_t{training.logical_ranks} * training.split.processes();
  if (processes > places) {
    return invalid("spec.training.logicalRanks: is " + std::to_string(training.logical_ranks) +
                   ", fewer than the " + std::to_string(processes) +
                   " processes of worker.max x worker.processes; raise logicalRanks or lower them");
  }
  if (const int most = max_trained_workers(worker.processes); worker.max > most) {
    return invalid("spec.worker.max: is " + std::to_string(worker.max) +
                   "; with spec.training it must be at most " + std::to_string(most) +
                   " where a worker has " + std::to_string(worker.processes) +
                   (worker.processes == 1 ? " process" : " processes") +
                   ", because what workers tell each other of all of them fits one message. Lower "
                   "worker.max, or give fewer workers more processes each");
  }
  return check_divides(worker, training.split, "spec.training.parallelism");
}

bool is_either_multiple(int a, int b) { return a % b == 0 || b % a == 0; }

/// Why the workers of such a group are not told by the spec; empty: they are.
std::string why_no_group(const TrainingJobSpec& spec, const std::string& of) {
  if (!spec.training) {
    return "needs spec.training: how a program of your own divides its model is not known here";
  }
  const Split& split = spec.training->split;
  const int processes = spec.worker.processes;
  const std::string parallelism = "needs spec.training.parallelism.";
  if (of == "Tensor" && split.tensor == 1) return parallelism + "tensor above 1";
  if (of == "Pipeline" && split.pipeline == 1) return parallelism + "pipeline above 1";
  if (of == "Data" && split.pipeline == 1) {
    return parallelism +
           "pipeline above 1: without it all workers exchange the same gradients, and "
           "spec.topology.required is for all of them";
  }
  if (of != "Pipeline" && !is_either_multiple(split.tensor, processes)) {
    return "needs spec.training.parallelism.tensor (" + std::to_string(split.tensor) +
           ") to be a multiple of worker.processes (" + std::to_string(processes) +
           ") or to divide it, so that each group has workers of its own";
  }
  if (of != "Tensor" && !is_either_multiple(split.processes(), processes)) {
    return "needs spec.training.parallelism.tensor x pipeline (" +
           std::to_string(split.processes()) + ") to be a multiple of worker.processes (" +
           std::to_string(processes) +
           ") or to divide it, so that each group has workers of its own";
  }
  return "";
}

Status check_groups(const TrainingJobSpec& spec) {
  const std::vector<TopologyGroup>& groups = spec.topology_groups;
  const auto invalid = [](const std::string& field, const std::string& message) {
    return Status(Error(ErrorCode::kInvalid, "spec.topology.groups" + field + ": " + message));
  };
  bool has_pipeline = false, has_data = false;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::string& of = groups[i].of;
    const std::string why = why_no_group(spec, of);
    if (!why.empty())
      return invalid("[" + std::to_string(i) + "].of", "is " + of + ", which " + why);
    has_pipeline = has_pipeline || of == "Pipeline";
    has_data = has_data || of == "Data";
  }
  if (has_pipeline && has_data) {
    return invalid("",
                   "must not have both Pipeline and Data: every two of them have a worker in "
                   "common, so all workers would be in one place; for that use "
                   "spec.topology.required");
  }
  if (!groups.empty() && spec.worker.shape == "Free") {
    return invalid("",
                   "must be left out with worker.shape: Free, which makes other workers of "
                   "those that the groups are counted in");
  }
  return {};
}

/// With a split that was chosen for it: whether the workers that are wished for can have it.
Status check_chosen_split(const TrainingJob& job) {
  const bool is_auto = job.spec.training && job.spec.training->parallelism_mode == "Auto";
  if (!is_auto || !job.status.split) return {};
  return check_divides(job.spec.worker, *job.status.split, "status.parallelism");
}

Status read_spec(const Json& json, const std::string& path, TrainingJobSpec& out) {
  SpecReader in(json, path);
  read_object(in, "worker", [&](const Json& object, const std::string& at) {
    return read_worker(object, at, out.worker);
  });
  read_object(in, "training", [&](const Json& object, const std::string& at) {
    const Status status = read_training(object, at, out.training.emplace());
    const Status mount = check_checkpoint_mount(out);
    return mount ? status : mount;
  });
  read_restart(in, out.restart);
  read_topology(in, out);
  optional_enum(in, "scheduling", out.scheduling, {"Placed", "Unplaced"});
  optional_name(in, "queueName", out.queue_name, NameRule::kLabel);
  optional_name(in, "priorityClassName", out.priority_class_name, NameRule::kSubdomain);
  in.optional("suspend", out.suspend);
  read_deadlines(in, out);
  optional_name(in, "managedBy", out.managed_by, NameRule::kDomainPath);
  in.no_other_fields();
  if (in.status()) in.take(check_shape(out));
  if (in.status()) in.take(check_together(out));
  if (in.status()) in.take(check_groups(out));
  if (in.status()) {
    const std::size_t bytes = dump_json(spec_to_json(out)).size();
    if (bytes > kMaxSpecBytes) {
      in.fail("", "is " + std::to_string(bytes) + " bytes of JSON, more than " +
                      std::to_string(kMaxSpecBytes) + "; move large values into a ConfigMap");
    }
  }
  return in.status();
}

Status check_name(const ObjectMeta& meta) {
  if (meta.name.size() > std::size_t{kMaxJobNameBytes}) {
    return Error(ErrorCode::kInvalid, "metadata.name: is longer than " +
                                          std::to_string(kMaxJobNameBytes) +
                                          " bytes; pods' names are made from it");
  }
  if (!matches(NameRule::kServiceLabel, meta.name)) {
    return Error(ErrorCode::kInvalid,
                 "metadata.name: must be lower-case letters, digits or '-', start with a letter "
                 "and end with a letter or digit (it names a Service), not " +
                     in_quotes(meta.name));
  }
  if (!meta.namespace_name.empty() && !matches(NameRule::kLabel, meta.namespace_name)) {
    return Error(ErrorCode::kInvalid,
                 "metadata.namespace: must be lower-case letters, digits or '-', not " +
                     in_quotes(meta.namespace_name));
  }
  return {};
}

/// The path of the first member in which two documents differ; "" when they are equal.
std::string first_difference(const Json& before, const Json& after, const std::string& path) {
  if (before == after) return "";
  if (!before.is_object() || !after.is_object()) return path;
  for (const auto& [key, value] : before.items()) {
    const auto other = after.find(key);
    const std::string where =
        first_difference(value, other == after.end() ? Json() : *other, path + "." + key);
    if (!where.empty()) return where;
  }
  for (const auto& [key, value] : after.items()) {
    if (!before.contains(key)) return path + "." + key;
  }
  return "";
}

/// What may always change, taken out.
Json without_free_fields(Json spec) {
  for (const char* field : {"count", "min", "max", "growsTo"}) spec["worker"].erase(field);
  for (const char* field : {"suspend", "queueName", "priorityClassName", "activeDeadlineSeconds",
                            "ttlSecondsAfterFinished"}) {
    spec.erase(field);
  }
  return spec;
}

/// What may never change, alone.
Json fixed_fields(const Json& spec) {
  Json fixed{{"managedBy", spec["managedBy"]}};
  if (!spec.contains("training")) return fixed;
  for (const char* field : {"logicalRanks", "seed", "model", "precision"}) {
    fixed["training"][field] = spec["training"].value(field, Json());
  }
  return fixed;
}

/// Whoever went ahead of others because it is over by then, is over by then.
bool breaks_its_deadline(const TrainingJob& before, const TrainingJob& after) {
  const auto &was = before.spec.active_deadline_seconds, &is = after.spec.active_deadline_seconds;
  const bool is_bound = before.status.went_ahead && !before.status.placement.empty();
  return is_bound && was && (!is || *is > *was);
}

}  // namespace

Status check_update(const TrainingJob& before, const TrainingJob& after) {
  const Json old_spec = spec_to_json(before.spec);
  const Json new_spec = spec_to_json(after.spec);
  std::string field = first_difference(fixed_fields(old_spec), fixed_fields(new_spec), "spec");
  if (!field.empty()) {
    return Error(ErrorCode::kInvalid,
                 field + ": cannot change; delete the job and make it anew with the other value");
  }
  if (breaks_its_deadline(before, after)) {
    return Error(
        ErrorCode::kInvalid,
        "spec.activeDeadlineSeconds: can only be lowered, because the job went ahead of the "
        "first of its queue by it; set suspend to true first, and wait until the condition "
        "Suspended is True");
  }
  if (before.status.membership_epoch == 0) return {};
  // Asked to stop is not stopped: until the operator has given the places up, it may find the job
  // resumed, and would go on with a gang that was started from another spec.
  if (before.spec.suspend && before.status.placement.empty()) return {};
  field = first_difference(without_free_fields(old_spec), without_free_fields(new_spec), "spec");
  const WorkerSpec &was = before.spec.worker, &is = after.spec.worker;
  // How many are one worker was chosen for so many.
  if (field.empty() && was.shape == "Free" && was.count != is.count) field = "spec.worker.count";
  if (field.empty()) return {};
  return Error(
      ErrorCode::kInvalid,
      field +
          ": cannot change while the job trains; set suspend to true first, and wait until "
          "the condition Suspended is True");
}

namespace {

/// Whether a status that is partly wrong is a reason to refuse the whole.
enum class StatusIs { kChecked, kForgiven };

std::pair<TrainingJob, Status> read_parts(const Json& json, StatusIs status_is) {
  TrainingJob job;
  JsonReader in(json, "");
  if (!json.is_object()) return {std::move(job), in.status()};
  // Each part is read whatever the others are: a refused spec must not hide the status.
  std::vector<Status> verdicts;
  require_kind(in, Kind::kTrainingJob);
  verdicts.push_back(in.status());
  verdicts.push_back(read_meta(json, job.meta));
  if (verdicts.back()) verdicts.push_back(check_name(job.meta));
  JsonReader parts(json, "");
  if (!parts.has("spec")) parts.fail("spec", "is required");
  read_object(parts, "spec", [&](const Json& object, const std::string& at) {
    return read_spec(object, at, job.spec);
  });
  verdicts.push_back(parts.status());
  if (verdicts.back()) verdicts.push_back(check_kueue(job.meta, job.spec));
  JsonReader rest(json, "");
  read_object(rest, "status", [&](const Json& object, const std::string& at) {
    return read_training_status(object, at, job.status);
  });
  if (status_is == StatusIs::kChecked) verdicts.push_back(rest.status());
  if (verdicts.front() && verdicts.back()) {
    const Status divides = check_chosen_split(job);
    // No operator chooses one that does not: it is no memory of ours.
    if (status_is == StatusIs::kForgiven && !divides) job.status.split.reset();
    if (status_is == StatusIs::kChecked) verdicts.push_back(divides);
  }
  for (const auto& [key, value] : json.items()) {
    if (key != "apiVersion" && key != "kind" && key != "metadata" && key != "spec" &&
        key != "status") {
      verdicts.emplace_back(
          Error(ErrorCode::kInvalid, cut(key, 64) + ": unknown field; known here: apiVersion, "
                                                    "kind, metadata, spec, status"));
    }
  }
  for (const auto& verdict : verdicts) {
    if (!verdict) {
      return {std::move(job), verdict.error().with_exit_code(contract::exit_code::kInvalidSpec)};
    }
  }
  return {std::move(job), Status()};
}

}  // namespace

bool is_about_pods(const Error& refusal) {
  const std::string& at = refusal.message();
  return !at.starts_with("spec.") || at.starts_with("spec.worker") ||
         at.starts_with("spec.training:") || at.starts_with("spec.training.checkpoint");
}

int started_size(const WorkerSpec& worker, const TrainingJobStatus& status) {
  const int size = status.worker_size;
  // Of a spec that was changed meanwhile, or a status that somebody damaged, it tells nothing; nor
  // of a start by an operator that knows of no sizes, and leaves what another one has said of them.
  const bool is_its = size > 1 && size <= largest_size(worker) && worker.count % size == 0 &&
                      status.start_count == worker.count / size;
  return is_its ? size : 1;
}

namespace {

/// What is refused of a job that an operator admitted, who knew more or asked for less.
void keep_as_admitted(TrainingJob& job, const Json& json, const std::string& refusal) {
  const auto spec = json.find("spec");
  const bool has_training = job.spec.training && spec != json.end() && spec->is_object();
  if (has_training) job.spec.training->as_written = without_nulls((*spec)["training"]);
  constexpr std::array kSizes{"spec:", "spec.worker:", "spec.worker.count", "spec.worker.min",
                              "spec.worker.max"};
  const bool is_size = std::any_of(kSizes.begin(), kSizes.end(), [&](std::string_view field) {
    return refusal.starts_with(field);
  });
  if (!is_size || job.status.placement.empty()) return;
  WorkerSpec& worker = job.spec.worker;
  worker.count = worker.min = worker.max =
      std::min(static_cast<int>(job.status.placement.size()), kMaxWorkers);
}

/// The workers are of the size that the gang last started with, also when it has given its places
/// up: its old pods may still be there.
void take_size(TrainingJob& job) {
  const int size = started_size(job.spec.worker, job.status);
  if (size > 1) job.spec.worker = with_size(std::move(job.spec.worker), size);
}

}  // namespace

std::pair<TrainingJob, Status> read_training_job(const Json& json) {
  auto read = read_known(
      json, [](const Json& one) { return read_parts(one, StatusIs::kForgiven); },
      [](const auto& one) -> const Status& { return one.second; });
  take_size(read.first);
  if (!read.second) keep_as_admitted(read.first, json, read.second.error().message());
  return read;
}

Result<TrainingJob> parse_training_job(const Json& json) {
  auto [job, status] = read_parts(json, StatusIs::kChecked);
  if (!status) return status.error();
  return std::move(job);
}

Json spec_to_json(const TrainingJobSpec& spec) {
  Json json{{"worker", worker_to_json(spec.worker)},
            {"restart",
             {{"policy", spec.restart.policy},
              {"maxRestarts", spec.restart.max_restarts},
              {"backoffSeconds", spec.restart.backoff_seconds}}},
            {"scheduling", spec.scheduling},
            {"suspend", spec.suspend},
            {"managedBy", spec.managed_by}};
  if (spec.training) json["training"] = training_to_json(*spec.training);
  if (!spec.topology_preferred.empty()) json["topology"]["preferred"] = spec.topology_preferred;
  if (!spec.topology_required.empty()) json["topology"]["required"] = spec.topology_required;
  for (const TopologyGroup& group : spec.topology_groups) {
    Json one{{"of", group.of}};
    if (!group.preferred.empty()) one["preferred"] = group.preferred;
    if (!group.required.empty()) one["required"] = group.required;
    json["topology"]["groups"].push_back(std::move(one));
  }
  if (!spec.queue_name.empty()) json["queueName"] = spec.queue_name;
  if (!spec.priority_class_name.empty()) json["priorityClassName"] = spec.priority_class_name;
  if (spec.active_deadline_seconds) json["activeDeadlineSeconds"] = *spec.active_deadline_seconds;
  if (spec.ttl_seconds_after_finished) {
    json["ttlSecondsAfterFinished"] = *spec.ttl_seconds_after_finished;
  }
  return json;
}

Json to_json(const TrainingJob& job) {
  Json json = object_json(Kind::kTrainingJob, job.meta);
  json["spec"] = spec_to_json(job.spec);
  if (!(job.status == TrainingJobStatus{})) json["status"] = status_to_json(job.status);
  return json;
}

Split split_of(const TrainingJob& job) {
  if (!job.spec.training) return {};
  const TrainingSpec& training = *job.spec.training;
  return training.parallelism_mode == "Auto" ? job.status.split.value_or(Split()) : training.split;
}

Status check_divides(const WorkerSpec& worker, const Split& split, const std::string& field) {
  const std::int64_t of_copy = split.processes();
  for (const auto& [size, workers] :
       {std::pair("min", worker.min), std::pair("count", worker.count),
        std::pair("max", worker.max)}) {
    const std::int64_t all = std::int64_t{workers} * worker.processes;
    if (all % of_copy == 0) continue;
    return Error(ErrorCode::kInvalid,
                 field + ": tensor x pipeline is " + std::to_string(of_copy) + ", but worker." +
                     size + " x worker.processes is " + std::to_string(all) +
                     "; must divide it, because so many processes have one copy of the model");
  }
  return {};
}

std::string about_gpus(const TrainingJobSpec& spec) {
  if (!spec.training || spec.worker.resources.gpus == 0) return "";
  return "spec.worker.resources.gpus is " + std::to_string(spec.worker.resources.gpus) +
         ": of the built-in engine's workers (spec.training) those built for CUDA alone "
         "(muster-worker-cuda) train on GPUs, others hold them and do not use them (docs/gpus.md)";
}

int workers_together(int processes_of_copy, int processes_of_worker) {
  return processes_of_copy / std::gcd(processes_of_copy, processes_of_worker);
}

}  // namespace muster::api
