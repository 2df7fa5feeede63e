#include "operator/embedded/object_rules.h"

#include <algorithm>
#include <string_view>

#include "operator/api/topology_config.h"
#include "operator/api/training_job.h"
#include "operator/api/training_queue.h"

namespace muster::embedded {
namespace {

constexpr std::size_t kMaxNameBytes = 253;
constexpr std::size_t kMaxLabelBytes = 63;
constexpr std::size_t kMaxAnnotationBytes = 256 * 1024;
constexpr std::size_t kMaxListedItems = 1024;

bool is_lower_alphanumeric(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }
bool is_alphanumeric(char c) { return is_lower_alphanumeric(c) || (c >= 'A' && c <= 'Z'); }

bool is_dns_subdomain(const std::string& text) {
  if (text.size() > kMaxNameBytes) return false;
  std::size_t start = 0;
  while (true) {
    const auto dot = text.find('.', start);
    const auto label = text.substr(start, dot == std::string::npos ? dot : dot - start);
    // Labels of a subdomain may be longer than 63 bytes in Kubernetes.
    const bool good = !label.empty() && is_lower_alphanumeric(label.front()) &&
                      is_lower_alphanumeric(label.back()) &&
                      std::all_of(label.begin(), label.end(),
                                  [](char c) { return is_lower_alphanumeric(c) || c == '-'; });
    if (!good) return false;
    if (dot == std::string::npos) return true;
    start = dot + 1;
  }
}

/// The name part of a label key, or a label's value.
bool is_label_word(std::string_view text) {
  return text.size() <= kMaxLabelBytes && !text.empty() && is_alphanumeric(text.front()) &&
         is_alphanumeric(text.back()) && std::all_of(text.begin(), text.end(), [](char c) {
           return is_alphanumeric(c) || c == '-' || c == '_' || c == '.';
         });
}

bool is_qualified_name(const std::string& key) {
  const auto slash = key.find('/');
  if (slash == std::string::npos) return is_label_word(key);
  return is_dns_subdomain(key.substr(0, slash)) &&
         is_label_word(std::string_view(key).substr(slash + 1));
}

/// What is wrong with a map of texts, or empty.
std::string wrong_text_map(const Json* map, const char* field) {
  if (map == nullptr || map->is_null()) return {};
  if (!map->is_object()) return std::string(field) + ": must be an object";
  std::size_t bytes = 0;
  const bool is_labels = std::string_view(field) == "metadata.labels";
  for (const auto& [key, value] : map->items()) {
    const std::string where = std::string(field) + "[" + key.substr(0, 128) + "]";
    if (!is_qualified_name(key)) return where + ": the key must be a qualified name";
    if (!value.is_string()) return where + ": must be a string";
    const auto& text = value.get_ref<const std::string&>();
    bytes += key.size() + text.size();
    if (is_labels && !text.empty() && !is_label_word(text)) {
      return where +
             ": must be at most 63 letters, digits, '-', '_' or '.', with a letter or "
             "digit at both ends";
    }
  }
  if (bytes > kMaxAnnotationBytes) return std::string(field) + ": must be at most 256 KiB";
  return {};
}

std::string wrong_owner_references(const Json* references) {
  if (references == nullptr || references->is_null()) return {};
  if (!references->is_array() || references->size() > kMaxListedItems) {
    return "metadata.ownerReferences: must be an array of at most 1024 items";
  }
  int controllers = 0;
  for (const Json& reference : *references) {
    for (const char* field : {"apiVersion", "kind", "name", "uid"}) {
      if (text_or_empty(member(reference, field)).empty()) {
        return std::string("metadata.ownerReferences.") + field + ": must not be empty";
      }
    }
    const Json* controller = member(reference, "controller");
    if (controller != nullptr && controller->is_boolean() && controller->get<bool>()) ++controllers;
  }
  if (controllers > 1) return "metadata.ownerReferences: only one may have controller true";
  return {};
}

std::string wrong_finalizers(const Json* finalizers) {
  if (finalizers == nullptr || finalizers->is_null()) return {};
  const bool good =
      finalizers->is_array() && finalizers->size() <= kMaxListedItems &&
      std::all_of(finalizers->begin(), finalizers->end(), [](const Json& finalizer) {
        return finalizer.is_string() && is_qualified_name(finalizer.get_ref<const std::string&>());
      });
  return good ? std::string() : "metadata.finalizers: must be an array of qualified names";
}

/// The parts of a pod's spec that stay as they were created.
Json fixed_fields(const Json& spec) {
  if (!spec.is_object()) return spec;
  Json fixed = spec;
  for (const char* field :
       {"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"}) {
    fixed.erase(field);
  }
  for (const char* field : {"containers", "initContainers"}) {
    const auto containers = fixed.find(field);
    if (containers == fixed.end() || !containers->is_array()) continue;
    for (Json& container : *containers) {
      if (container.is_object()) container.erase("image");
    }
  }
  return fixed;
}

bool changes_fixed_fields(const Json& before, const Json& after) {
  const Json* old_spec = member(before, "spec");
  const Json* new_spec = member(after, "spec");
  if (old_spec == nullptr || new_spec == nullptr) return old_spec != new_spec;
  return fixed_fields(*old_spec) != fixed_fields(*new_spec);
}

}  // namespace

bool is_dns_label(const std::string& text) {
  return text.size() <= kMaxLabelBytes && text.find('.') == std::string::npos &&
         is_dns_subdomain(text);
}

Refusal invalid(const ResourceType& type, const std::string& name, const std::string& what) {
  return {422, "Invalid",
          type.qualified_kind() + " \"" + name.substr(0, kMaxNameBytes) + "\" is invalid: " + what};
}

std::optional<Refusal> check_type(const ResourceType& type, Json& object) {
  if (!object.is_object()) return bad_request("the body must be an object");
  for (const auto& [field, right] :
       {std::pair{"apiVersion", type.group_version}, std::pair{"kind", type.kind_name}}) {
    const Json* given = member(object, field);
    if (given == nullptr || given->is_null()) {
      // Of its own kinds a server knows what a path is about; of others the body must say it.
      if (!type.is_built_in) return bad_request(std::string(field) + " is missing in the body");
      object[field] = right;
    } else if (*given != right) {
      return bad_request(std::string(field) + " in the body must be " + right + " (got " +
                         dump_json(*given).substr(0, 128) + ")");
    }
  }
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) {
    return bad_request("metadata must be an object");
  }
  return std::nullopt;
}

std::optional<Refusal> check_metadata(const ResourceType& type, const Json& object) {
  const Json& metadata = *member(object, "metadata");
  const std::string name = metadata_text(object, "name");
  const bool good_name = type.name_is_label ? is_dns_label(name) : is_dns_subdomain(name);
  if (!good_name) {
    return invalid(type, name,
                   type.name_is_label
                       ? "metadata.name: must be a DNS label: at most 63 lowercase letters, digits "
                         "and '-', with a letter or digit at both ends"
                       : "metadata.name: must be a DNS subdomain: at most 253 lowercase letters, "
                         "digits, '-' and '.', with a letter or digit at both ends");
  }
  for (const std::string& wrong :
       {wrong_text_map(member(metadata, "labels"), "metadata.labels"),
        wrong_text_map(member(metadata, "annotations"), "metadata.annotations"),
        wrong_owner_references(member(metadata, "ownerReferences")),
        wrong_finalizers(member(metadata, "finalizers"))}) {
    if (!wrong.empty()) return invalid(type, name, wrong);
  }
  return std::nullopt;
}

std::optional<Refusal> check_kind(const ResourceType& type, const Json& object) {
  const std::string name = metadata_text(object, "name");
  if (type.kind == api::Kind::kTrainingJob) {
    const auto job = api::parse_training_job(object);
    if (!job) return invalid(type, name, job.error().message());
  }
  if (type.kind == api::Kind::kTrainingQueue) {
    const auto queue = api::parse_training_queue(object);
    if (!queue) return invalid(type, name, queue.error().message());
  }
  if (type.kind == api::Kind::kTopologyConfig) {
    const auto config = api::parse_topology_config(object);
    if (!config) return invalid(type, name, config.error().message());
  }
  if (type.kind == api::Kind::kPod) {
    const Json* spec = member(object, "spec");
    if (spec == nullptr || !spec->is_object()) {
      return invalid(type, name, "spec: must be an object");
    }
    const Json* containers = member(*spec, "containers");
    if (containers == nullptr || !containers->is_array() || containers->empty()) {
      return invalid(type, name, "spec.containers: must hold at least one container");
    }
  }
  return std::nullopt;
}

std::optional<Refusal> check_change(const ResourceType& type, const Json& before,
                                    const Json& after) {
  const std::string name = metadata_text(before, "name");
  if (type.kind == api::Kind::kPod && changes_fixed_fields(before, after)) {
    return invalid(type, name,
                   "spec: Forbidden: pod updates may not change fields other than "
                   "`spec.containers[*].image`, `spec.initContainers[*].image`, "
                   "`spec.activeDeadlineSeconds`, `spec.tolerations` and "
                   "`spec.terminationGracePeriodSeconds`");
  }
  if (type.kind == api::Kind::kTrainingJob) {
    const auto old_job = api::parse_training_job(before), new_job = api::parse_training_job(after);
    // Both were parsed before they were stored.
    if (!old_job || !new_job) return std::nullopt;
    if (const Status change = api::check_update(*old_job, *new_job); !change) {
      return invalid(type, name, change.error().message());
    }
  }
  return std::nullopt;
}

}  // namespace muster::embedded
