#include "operator/api/object_meta.h"

#include <cstddef>
#include <iterator>
#include <string_view>

#include "common/check.h"
#include "common/contract.h"
#include "operator/api/fields.h"
#include "operator/api/object_meta_json.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxMapEntries = 4096;
/// Of all annotations together, as Kubernetes has it.
constexpr std::size_t kMaxAnnotationBytes = 262'144;
constexpr std::int64_t kMaxGeneration = (std::int64_t{1} << 53) - 1;

}  // namespace

std::string percent_encoded(const std::string& segment) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string text;
  for (const char c : segment) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      text += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      text += '%';
      text += kHex[byte >> 4];
      text += kHex[byte & 15];
    }
  }
  return text;
}

namespace {

Status read_owner(const Json& json, const std::string& path, OwnerReference& out) {
  JsonReader in(json, path);
  in.required("apiVersion", out.api_version);
  in.required("kind", out.kind);
  in.required("name", out.name);
  in.required("uid", out.uid);
  in.optional("controller", out.controller);
  return in.status();
}

}  // namespace

const OwnerReference* ObjectMeta::controller() const {
  for (const auto& owner : owner_references) {
    if (owner.controller) return &owner;
  }
  return nullptr;
}

namespace {

// In the order of Kind.
constexpr KindInfo kKinds[] = {
    {"muster.dev/v1alpha1", "TrainingJob", "trainingjobs", true},
    {"v1", "Pod", "pods", true},
    {"v1", "Node", "nodes", false},
    {"v1", "Service", "services", true},
    {"v1", "Event", "events", true},
    {"coordination.k8s.io/v1", "Lease", "leases", true},
    {"authentication.k8s.io/v1", "TokenReview", "tokenreviews", false},
    {"authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", false},
    {"v1", "PersistentVolume", "persistentvolumes", false},
    {"v1", "PersistentVolumeClaim", "persistentvolumeclaims", true},
    {"policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true},
    {"scheduling.k8s.io/v1beta1", "PodGroup", "podgroups", true},
    {"scheduling.k8s.io/v1alpha2", "PodGroup", "podgroups", true},
    {"scheduling.k8s.io/v1beta1", "Workload", "workloads", true},
    {"scheduling.k8s.io/v1alpha2", "Workload", "workloads", true},
    {"muster.dev/v1alpha1", "TrainingQueue", "trainingqueues", false},
    {"scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false},
    {"muster.dev/v1alpha1", "TopologyConfig", "topologyconfigs", false},
    {"kueue.x-k8s.io/v1beta2", "Topology", "topologies", false},
    {"kai.scheduler/v1alpha1", "Topology", "topologies", false},
    {"topology.volcano.sh/v1alpha1", "HyperNode", "hypernodes", false},
    {"kueue.x-k8s.io/v1beta2", "Workload", "workloads", true},
};
static_assert(std::size(kKinds) == static_cast<std::size_t>(Kind::kKueueWorkload) + 1);

}  // namespace

const KindInfo& info_of(Kind kind) {
  const auto at = static_cast<std::size_t>(kind);
  MUSTER_CHECK(at < std::size(kKinds));
  return kKinds[at];
}

std::string collection_path(Kind kind, const std::string& namespace_name) {
  const KindInfo& info = info_of(kind);
  const std::string_view version = info.api_version;
  std::string path = version.find('/') == std::string_view::npos ? "/api/" : "/apis/";
  path += version;
  if (info.namespaced && !namespace_name.empty())
    path += "/namespaces/" + percent_encoded(namespace_name);
  return path + "/" + info.plural;
}

std::string object_path(Kind kind, const ObjectKey& key) {
  return collection_path(kind, key.namespace_name) + "/" + percent_encoded(key.name);
}

Status read_string_map(const Json& json, const std::string& path,
                       std::map<std::string, std::string>& out) {
  if (json.size() > kMaxMapEntries) {
    return Error(ErrorCode::kInvalid,
                 path + ": has more than " + std::to_string(kMaxMapEntries) + " entries");
  }
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string() || value.get_ref<const std::string&>().size() > kMaxAnnotationBytes) {
      return Error(ErrorCode::kInvalid,
                   path + "." + cut(key, 64) + ": must be a string (write numbers in quotes)");
    }
    out[key] = value.get<std::string>();
  }
  return {};
}

void optional_time(JsonReader& in, std::string_view field, std::optional<WallTime>& out) {
  std::string text;
  in.optional(field, text, 64);
  if (!in.has(field) || !in.goes_on()) return;
  auto time = parse_time(text);
  if (!time) return in.fail(field, time.error().message());
  out = *time;
}

Status read_meta(const Json& object, ObjectMeta& out) {
  JsonReader outer(object, "");
  const Json* json = outer.object("metadata");
  if (json == nullptr) {
    outer.fail("metadata", "is required");
    return outer.status();
  }
  // Of all that is known: labels that are refused must not hide that the object is being deleted.
  SpecReader in(*json, "metadata");
  in.required("name", out.name, 253);
  in.optional("namespace", out.namespace_name, 253);
  in.optional("uid", out.uid, 128);
  in.optional("resourceVersion", out.resource_version, 128);
  in.optional("generation", out.generation, {0, kMaxGeneration});
  read_object(in, "labels", [&](const Json& map, const std::string& path) {
    return read_string_map(map, path, out.labels);
  });
  read_object(in, "annotations", [&](const Json& map, const std::string& path) {
    return read_string_map(map, path, out.annotations);
  });
  read_list(in, "ownerReferences", 64, [&](const Json& item, const std::string& path) {
    return read_owner(item, path, out.owner_references.emplace_back());
  });
  optional_time(in, "creationTimestamp", out.creation_time);
  optional_time(in, "deletionTimestamp", out.deletion_time);
  in.optional("deletionGracePeriodSeconds", out.deletion_grace_seconds, {0, kMaxGeneration});
  if (in.status() && out.name.empty()) in.fail("name", "must not be empty");
  return in.status();
}

std::optional<ObjectKey> read_key(const Json& object) {
  JsonReader outer(object, "");
  const Json* json = outer.object("metadata");
  if (json == nullptr) return std::nullopt;
  JsonReader in(*json, "metadata");
  ObjectKey key;
  in.required("name", key.name, 253);
  in.optional("namespace", key.namespace_name, 253);
  return in.status() && !key.name.empty() ? std::optional(std::move(key)) : std::nullopt;
}

Json meta_to_json(const ObjectMeta& meta) {
  Json json{{"name", meta.name}};
  if (!meta.namespace_name.empty()) json["namespace"] = meta.namespace_name;
  if (!meta.uid.empty()) json["uid"] = meta.uid;
  if (!meta.resource_version.empty()) json["resourceVersion"] = meta.resource_version;
  if (meta.generation != 0) json["generation"] = meta.generation;
  if (!meta.labels.empty()) json["labels"] = meta.labels;
  if (!meta.annotations.empty()) json["annotations"] = meta.annotations;
  for (const auto& owner : meta.owner_references) {
    Json reference{{"apiVersion", owner.api_version},
                   {"kind", owner.kind},
                   {"name", owner.name},
                   {"uid", owner.uid}};
    if (owner.controller) {
      reference["controller"] = true;
      reference["blockOwnerDeletion"] = true;
    }
    json["ownerReferences"].push_back(std::move(reference));
  }
  if (meta.creation_time) json["creationTimestamp"] = format_time(*meta.creation_time);
  if (meta.deletion_time) {
    json["deletionTimestamp"] = format_time(*meta.deletion_time);
    if (meta.deletion_grace_seconds > 0) {
      json["deletionGracePeriodSeconds"] = meta.deletion_grace_seconds;
    }
  }
  return json;
}

void require_kind(JsonReader& in, Kind kind) {
  const KindInfo& info = info_of(kind);
  std::string version, name;
  in.required("apiVersion", version);
  in.required("kind", name);
  if (in.status() && version != info.api_version) {
    in.fail("apiVersion",
            "must be " + std::string(info.api_version) + ", not " + in_quotes(version));
  }
  if (in.status() && name != info.kind) {
    in.fail("kind", "must be " + std::string(info.kind) + ", not " + in_quotes(name));
  }
}

Json object_json(Kind kind, const ObjectMeta& meta) {
  const KindInfo& info = info_of(kind);
  return Json{
      {"apiVersion", info.api_version}, {"kind", info.kind}, {"metadata", meta_to_json(meta)}};
}

Status read_condition(const Json& json, const std::string& path, Condition& out) {
  JsonReader in(json, path);
  in.required("type", out.type, 316);
  in.required("status", out.status, 16);
  if (in.status() && out.status != "True" && out.status != "False" && out.status != "Unknown") {
    in.fail("status", "must be True, False or Unknown, not " + in_quotes(out.status));
  }
  in.optional("reason", out.reason, 1024);
  in.optional("message", out.message, 32'768);
  // As it would be written: what is read must be equal to what is written back.
  out.message = cut(out.message, kMaxConditionMessageBytes);
  in.optional("observedGeneration", out.observed_generation, {0, kMaxGeneration});
  std::optional<WallTime> time;
  optional_time(in, "lastTransitionTime", time);
  if (time) out.last_transition_time = *time;
  return in.status();
}

Json condition_to_json(const Condition& condition) {
  Json json{{"type", condition.type},
            {"status", condition.status},
            {"reason", condition.reason},
            {"message", cut(condition.message, kMaxConditionMessageBytes)},
            {"lastTransitionTime", format_time(condition.last_transition_time)}};
  if (condition.observed_generation != 0) {
    json["observedGeneration"] = condition.observed_generation;
  }
  return json;
}

}  // namespace muster::api
