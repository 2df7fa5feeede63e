#include "operator/api/kueue.h"

#include <array>
#include <charconv>

#include "common/contract.h"
#include "operator/api/fields.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/pod.h"

namespace muster::api {
namespace {

/// How Kueue's own topology-aware placement is asked for. Of a job in one of its queues they are
/// handed on to the pods as they are; of others they say what spec.topology does.
constexpr std::array<std::string_view, 3> kTopology{"kueue.x-k8s.io/podset-required-topology",
                                                    "kueue.x-k8s.io/podset-preferred-topology",
                                                    "kueue.x-k8s.io/podset-unconstrained-topology"};

/// Of the same, what neither Muster nor its pods' groups do.
constexpr std::string_view kGroupName = "kueue.x-k8s.io/podset-group-name";

constexpr int kMaxSliceSize = 4096;

const std::string* find(const std::map<std::string, std::string>& map, std::string_view key) {
  const auto found = map.find(std::string(key));
  return found == map.end() ? nullptr : &found->second;
}

Status must_be(std::string_view kind, std::string_view key, const std::string& what,
               const std::string& value) {
  return Error(ErrorCode::kInvalid, "metadata." + std::string(kind) + "." + std::string(key) +
                                        ": must be " + what + ", not " + in_quotes(value));
}

Status check_annotations(const ObjectMeta& meta, const TrainingJobSpec& spec) {
  for (const auto key : kTopology) {
    const std::string* value = find(meta.annotations, key);
    if (value == nullptr) continue;
    const bool is_flag = key == kTopology[2];
    const bool is_right =
        is_flag ? *value == "true" || *value == "false" : matches(NameRule::kQualified, *value);
    if (!is_right) {
      return must_be("annotations", key, is_flag ? "true or false" : "the label of a node", *value);
    }
    if (!spec.topology_required.empty() || !spec.topology_preferred.empty()) {
      return Error(ErrorCode::kInvalid,
                   "spec.topology: must be left out where metadata.annotations." +
                       std::string(key) + " is set, which asks for the same");
    }
  }
  if (find(meta.annotations, kGroupName) != nullptr) {
    return Error(ErrorCode::kInvalid, "metadata.annotations." + std::string(kGroupName) +
                                          ": must be left out; a job is one gang, ask with " +
                                          std::string(kTopology[0]));
  }
  return {};
}

/// 0: it is none.
int read_slice_size(const std::string& text) {
  int size = 0;
  const char* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, size);
  return read.ec == std::errc() && read.ptr == end && size >= 1 && size <= kMaxSliceSize ? size : 0;
}

/// Slices: so many workers that follow each other, each within one domain of a level.
Status check_slices(const ObjectMeta& meta, const TrainingJobSpec& spec) {
  const std::string* level = find(meta.annotations, kueue::kSliceTopology);
  const std::string* size = find(meta.annotations, kueue::kSliceSize);
  if (level == nullptr && size == nullptr) return {};
  const auto given = level != nullptr ? kueue::kSliceTopology : kueue::kSliceSize;
  const auto invalid = [&](std::string_view key, const std::string& message) {
    return Status(
        Error(ErrorCode::kInvalid, "metadata.annotations." + std::string(key) + ": " + message));
  };
  if (level == nullptr || size == nullptr) {
    const auto other = level != nullptr ? kueue::kSliceSize : kueue::kSliceTopology;
    return invalid(given, "needs " + std::string(other) + " beside it");
  }
  const std::string* queue = find(meta.labels, kueue::kQueueName);
  if (queue != nullptr && !queue->empty()) {
    return invalid(given, "must be left out where metadata.labels." +
                              std::string(kueue::kQueueName) +
                              " is set; slices are not handed on to Kueue");
  }
  if (!spec.topology_groups.empty()) {
    return invalid(given,
                   "must be left out where spec.topology.groups is set; one of them says "
                   "which workers stay together");
  }
  if (!matches(NameRule::kQualified, *level)) {
    return must_be("annotations", kueue::kSliceTopology, "the label of a node", *level);
  }
  const int workers = read_slice_size(*size);
  if (workers == 0) {
    return must_be("annotations", kueue::kSliceSize,
                   "a whole number from 1 to " + std::to_string(kMaxSliceSize), *size);
  }
  const WorkerSpec& worker = spec.worker;
  const bool is_fixed =
      worker.min == worker.count && worker.max == worker.count && worker.shape == "Fixed";
  if (worker.count % workers != 0 || !is_fixed) {
    return invalid(kueue::kSliceSize, "is " + *size + ", which must divide spec.worker.count (" +
                                          std::to_string(worker.count) +
                                          "); worker.min, max and shape must be left out");
  }
  return {};
}

/// The last word of conditions that matter: who has no quota yet hears why, who has it and is not
/// admitted waits for checks.
std::string read_says(const Json& json) {
  const auto spec = json.find("spec");
  if (spec != json.end() && spec->is_object() && spec->value("active", Json(true)) == Json(false)) {
    return "its Workload was deactivated (spec.active is false)";
  }
  const auto status = json.find("status");
  if (status == json.end() || !status->is_object()) return "";
  const auto conditions = status->find("conditions");
  if (conditions == status->end() || !conditions->is_array()) return "";
  std::string admitted, reserved;
  for (const Json& one : *conditions) {
    JsonReader in(one, "");
    std::string type, value, message;
    in.optional("type", type);
    in.optional("status", value);
    in.words("message", message, kueue::kMaxSaysBytes);
    if (!in.status() || value == "True") continue;
    if (type == "Admitted") admitted = message;
    if (type == "QuotaReserved") reserved = message;
  }
  return reserved.empty() ? admitted : reserved;
}

}  // namespace

std::string kueue_queue_wanted(const TrainingJob& job) {
  const std::string* queue = find(job.meta.labels, kueue::kQueueName);
  return queue == nullptr ? "" : *queue;
}

Status check_kueue(const ObjectMeta& meta, const TrainingJobSpec& spec) {
  MUSTER_RETURN_IF_ERROR(check_annotations(meta, spec));
  MUSTER_RETURN_IF_ERROR(check_slices(meta, spec));
  const std::string* queue = find(meta.labels, kueue::kQueueName);
  if (queue == nullptr || queue->empty()) return {};
  const std::string label = "metadata.labels." + std::string(kueue::kQueueName);
  if (queue->size() > kueue::kMaxQueueBytes || !matches(NameRule::kSubdomain, *queue)) {
    return must_be("labels", kueue::kQueueName,
                   "the name of a LocalQueue of Kueue (lower-case letters, digits, '-' or '.', 63 "
                   "at most)",
                   *queue);
  }
  const std::string* priority = find(meta.labels, kueue::kPriorityClass);
  if (priority != nullptr && !matches(NameRule::kSubdomain, *priority)) {
    return must_be("labels", kueue::kPriorityClass, "the name of a WorkloadPriorityClass",
                   *priority);
  }
  if (!spec.queue_name.empty()) {
    return Error(ErrorCode::kInvalid,
                 "spec.queueName: must be left out where " + label +
                     " is set; either a TrainingQueue or Kueue gives the job its turn");
  }
  if (!spec.topology_required.empty() || !spec.topology_preferred.empty() ||
      !spec.topology_groups.empty()) {
    return Error(ErrorCode::kInvalid,
                 "spec.topology: must be left out where " + label +
                     " is set, because Kueue and the cluster's scheduler choose the nodes then; "
                     "ask Kueue with the annotation " +
                     std::string(kTopology[0]));
  }
  return {};
}

TopologyWish topology_wanted(const TrainingJob& job) {
  if (!kueue_queue_wanted(job).empty()) return {};
  const auto annotation = [&](std::string_view key) {
    const std::string* value = find(job.meta.annotations, key);
    return value == nullptr ? "" : *value;
  };
  TopologyWish wish{job.spec.topology_required, job.spec.topology_preferred,
                    job.spec.topology_groups};
  if (wish.required.empty() && wish.preferred.empty()) {
    wish.required = annotation(kTopology[0]);
    wish.preferred = annotation(kTopology[1]);
  }
  const int slice_size = read_slice_size(annotation(kueue::kSliceSize));
  if (wish.groups.empty() && slice_size > 0) {
    wish.slice_level = annotation(kueue::kSliceTopology);
    wish.slice_size = slice_size;
  }
  return wish;
}

std::string kueue_group_name(const TrainingJob& job) {
  return service_name(job) + "-" + std::to_string(job.status.start_attempt);
}

void add_kueue_metadata(const TrainingJob& job, ObjectMeta& pod) {
  if (job.status.kueue_queue.empty()) return;
  pod.labels[std::string(kueue::kQueueName)] = job.status.kueue_queue;
  pod.labels[std::string(kueue::kPodGroupName)] = kueue_group_name(job);
  pod.annotations[std::string(kueue::kPodGroupTotalCount)] =
      std::to_string(job.status.target_workers);
  // Without it, pods of a gang that was stopped would wait, with Kueue's finalizer, for pods that
  // take their places, and keep the quota. A worker's place is taken while others of it run.
  pod.annotations[std::string(kueue::kRetriableInGroup)] = "false";
  if (const std::string* priority = find(job.meta.labels, kueue::kPriorityClass)) {
    pod.labels[std::string(kueue::kPriorityClass)] = *priority;
  }
  for (const auto key : kTopology) {
    const std::string* value = find(job.meta.annotations, key);
    if (value == nullptr) continue;
    pod.annotations[std::string(key)] = *value;
    pod.annotations[std::string(kueue::kPodIndexLabel)] = contract::kLabelSlot;
  }
}

Result<KueueWorkload> parse_kueue_workload(const Json& json) {
  // Not all of its metadata: every pod of a group is an owner, and of thousands of them one is
  // kept.
  KueueWorkload workload;
  JsonReader outer(json, "");
  const Json* meta = outer.object("metadata");
  if (meta == nullptr) outer.fail("metadata", "is required");
  MUSTER_RETURN_IF_ERROR(outer.status());
  JsonReader in(*meta, "metadata");
  in.required("name", workload.meta.name, 253);
  in.optional("namespace", workload.meta.namespace_name, 253);
  MUSTER_RETURN_IF_ERROR(in.status());
  const auto owners = meta->find("ownerReferences");
  if (owners != meta->end() && owners->is_array() && !owners->empty()) {
    JsonReader owner((*owners)[0], "");
    std::string kind;
    owner.optional("kind", kind);
    owner.optional("name", workload.pod, 253);
    if (!owner.status() || kind != "Pod") workload.pod.clear();
  }
  workload.says = read_says(json);
  return workload;
}

}  // namespace muster::api
