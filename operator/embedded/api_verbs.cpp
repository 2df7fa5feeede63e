#include "operator/embedded/api_verbs.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "operator/embedded/object_rules.h"
#include "operator/embedded/selector.h"
#include "operator/embedded/structural_schema.h"

namespace muster::embedded {
namespace {

constexpr std::size_t kMaxGeneratedBaseBytes = 58;
constexpr int kNameTries = 8;

Refusal not_found(const Target& target) {
  return {404, "NotFound",
          target.type->qualified_plural() + " \"" + target.name.substr(0, 253) + "\" not found"};
}

Refusal conflict(const Target& target, const std::string& why) {
  return {409, "Conflict",
          "Operation cannot be fulfilled on " + target.type->qualified_plural() + " \"" +
              target.name + "\": " + why};
}

Refusal stale(const Target& target) {
  return conflict(target,
                  "the object has been modified; please apply your changes to the latest version "
                  "and try again");
}

std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

/// 409 when a uid or resourceVersion that the caller named is not the object's.
std::optional<Refusal> check_preconditions(const Target& target, const Version& version,
                                           const std::string& uid,
                                           const std::string& resource_version) {
  const std::string own_uid = metadata_text(version.object, "uid");
  if (!uid.empty() && uid != own_uid) {
    return conflict(target, "Precondition failed: UID in precondition: " + uid.substr(0, 64) +
                                ", UID in object meta: " + own_uid);
  }
  if (!resource_version.empty() && resource_version != std::to_string(version.revision)) {
    return stale(target);
  }
  return std::nullopt;
}

std::optional<Refusal> check_size(const ApiState& state, const Json& object) {
  if (dump_json(object).size() <= state.options().max_object_bytes) return std::nullopt;
  return Refusal{413, "RequestEntityTooLarge",
                 "the object is larger than the limit of " +
                     std::to_string(state.options().max_object_bytes) + " bytes"};
}

/// Fills in the name from generateName where there is none.
std::optional<Refusal> choose_name(ApiState& state, const Target& target, Json& object) {
  Json& metadata = object["metadata"];
  const Json* given = member(metadata, "name");
  if (given != nullptr && !given->is_null() && !given->is_string()) {
    return bad_request("metadata.name must be a string");
  }
  if (!text_or_empty(given).empty()) return std::nullopt;
  const std::string base = metadata_text(object, "generateName").substr(0, kMaxGeneratedBaseBytes);
  if (base.empty()) {
    return invalid(*target.type, "",
                   "metadata.name: Required value: name or generateName is "
                   "required");
  }
  for (int i = 0; i < kNameTries; ++i) {
    metadata["name"] = base + state.new_suffix();
    const api::ObjectKey key{target.namespace_name, metadata_text(object, "name")};
    if (state.table_of(*target.type).find(key) == nullptr) break;
  }
  return std::nullopt;
}

void shape(const ApiState& state, const ResourceType& type, Json& object) {
  const auto& options = state.options();
  const bool is_job = type.kind == api::Kind::kTrainingJob;
  if (!is_job && type.kind != api::Kind::kTrainingQueue) return;
  const Json& schema = is_job ? options.job_schema : options.queue_schema;
  if (!schema.is_null()) apply_schema(schema, object);
}

/// An empty list or map of metadata is the same as none.
void drop_empty(Json& metadata) {
  for (const char* field : {"labels", "annotations", "ownerReferences", "finalizers"}) {
    const auto found = metadata.find(field);
    if (found != metadata.end() && found->empty()) metadata.erase(found);
  }
}

/// What a client may not say about a new object.
void set_system_fields(ApiState& state, const ResourceType& type, Json& object) {
  Json& metadata = object["metadata"];
  for (const char* field : {"deletionTimestamp", "deletionGracePeriodSeconds", "generation",
                            "managedFields", "resourceVersion", "selfLink"}) {
    metadata.erase(field);
  }
  drop_empty(metadata);
  metadata["uid"] = state.new_uid();
  metadata["creationTimestamp"] = format_time(state.clock().wall_now());
  if (type.has_generation) metadata["generation"] = 1;
  // A node's kubelet registers it with its status; all others begin without one.
  if (!type.has_status || type.kind == api::Kind::kNode) return;
  object.erase("status");
  if (type.kind == api::Kind::kPod) object["status"] = {{"phase", "Pending"}};
}

/// The update's outcome from what was proposed: the other half of the object (status, or all but
/// status) and the fields only the server writes stay as they were.
Json merge_update(const Target& target, const Json& before, const Json& proposed) {
  const bool status_only = target.subresource == "status";
  const Json* status = member(status_only ? proposed : before, "status");
  Json after = status_only ? before : proposed;
  if (target.type->has_status) {
    if (status != nullptr && !status->is_null()) {
      after["status"] = *status;
    } else {
      after.erase("status");
    }
  }
  const Json& old_metadata = *member(before, "metadata");
  Json& metadata = after["metadata"];
  if (status_only && target.type->is_built_in) {
    // Labels and annotations of built-in kinds are written through the status too, owners are not.
    metadata = *member(proposed, "metadata");
    metadata.erase("ownerReferences");
    if (const Json* owners = member(old_metadata, "ownerReferences")) {
      metadata["ownerReferences"] = *owners;
    }
  }
  metadata.erase("managedFields");
  drop_empty(metadata);
  for (const char* field :
       {"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
        "deletionGracePeriodSeconds", "generation", "generateName", "resourceVersion"}) {
    const Json* old_value = member(old_metadata, field);
    if (old_value != nullptr) {
      metadata[field] = *old_value;
    } else {
      metadata.erase(field);
    }
  }
  return after;
}

/// Whether anything but metadata and status differs.
bool spec_differs(const Json& before, const Json& after) {
  Json a = before, b = after;
  for (Json* object : {&a, &b}) {
    object->erase("metadata");
    object->erase("status");
  }
  return a != b;
}

/// Metadata that names another object is a mistake of the caller.
std::optional<Refusal> check_identity(const Target& target, const Json& proposed) {
  const std::string name = metadata_text(proposed, "name");
  if (name != target.name) {
    return bad_request("the name of the object (" + name.substr(0, 253) +
                       ") does not match the name on the URL (" + target.name + ")");
  }
  const std::string namespace_name = metadata_text(proposed, "namespace");
  if (!namespace_name.empty() && namespace_name != target.namespace_name) {
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request");
  }
  return std::nullopt;
}

/// Removes an object whose deletion only waited for the finalizers that are gone now.
bool finish_delete(ApiState& state, Table& table, const Json& object, const api::ObjectKey& key) {
  const Json& metadata = *member(object, "metadata");
  const Json* grace = member(metadata, "deletionGracePeriodSeconds");
  const bool waits_for_kubelet = grace != nullptr && *grace != 0;
  if (member(metadata, "deletionTimestamp") == nullptr || waits_for_kubelet ||
      has_finalizers(object)) {
    return false;
  }
  state.erase(table, key);
  return true;
}

/// Common end of PUT and PATCH.
Outcome<VersionPtr> replace(ApiState& state, const Target& target, const VersionPtr& version,
                            Json proposed) {
  if (auto refusal = check_type(*target.type, proposed)) return std::move(*refusal);
  if (auto refusal = check_identity(target, proposed)) return std::move(*refusal);
  // A uid is no precondition of an update: it is immutable, and a status update passes over it.
  if (auto refusal =
          check_preconditions(target, *version, "", metadata_text(proposed, "resourceVersion"))) {
    return std::move(*refusal);
  }
  const std::string uid = metadata_text(proposed, "uid");
  if (target.subresource.empty() && !uid.empty() && uid != metadata_text(version->object, "uid")) {
    return invalid(
        *target.type, target.name,
        "metadata.uid: Invalid value: \"" + uid.substr(0, 64) + "\": field is immutable");
  }
  Json after = merge_update(target, version->object, proposed);
  shape(state, *target.type, after);
  if (after == version->object) return version;
  if (auto refusal = check_metadata(*target.type, after)) return std::move(*refusal);
  if (auto refusal = check_kind(*target.type, after)) return std::move(*refusal);
  if (auto refusal = check_change(*target.type, version->object, after)) {
    return std::move(*refusal);
  }
  if (auto refusal = check_size(state, after)) return std::move(*refusal);
  if (target.type->has_generation && spec_differs(version->object, after)) {
    Json& generation = after["metadata"]["generation"];
    generation = generation.get<std::int64_t>() + 1;
  }
  Table& table = state.table_of(*target.type);
  VersionPtr stored = state.put(table, target.key(), std::move(after));
  finish_delete(state, table, stored->object, target.key());
  return stored;
}

struct DeleteRequest {
  std::string uid, resource_version;
  std::int64_t grace_seconds = -1;
  ApiState::Dependents dependents = ApiState::Dependents::kDelete;
};

Outcome<DeleteRequest> parse_delete(const Target& target, const Json& options) {
  DeleteRequest request;
  if (const Json* preconditions = member(options, "preconditions")) {
    request.uid = text_or_empty(member(*preconditions, "uid"));
    request.resource_version = text_or_empty(member(*preconditions, "resourceVersion"));
  }
  auto grace = number_parameter(target, "gracePeriodSeconds", -1);
  if (refused(grace)) return std::get<Refusal>(grace);
  request.grace_seconds = std::get<0>(grace);
  const Json* given = member(options, "gracePeriodSeconds");
  if (given != nullptr && !given->is_null()) {
    if (!given->is_number_integer() || *given < 0) {
      return Refusal{422, "Invalid",
                     "DeleteOptions is invalid: gracePeriodSeconds: must be a whole number from 0"};
    }
    request.grace_seconds = given->get<std::int64_t>();
  }
  std::string policy = text_or_empty(member(options, "propagationPolicy"));
  if (policy.empty()) policy = target.parameter("propagationPolicy");
  if (policy == "Orphan") {
    request.dependents = ApiState::Dependents::kOrphan;
  } else if (!policy.empty() && policy != "Background" && policy != "Foreground") {
    return Refusal{422, "Invalid",
                   "DeleteOptions is invalid: propagationPolicy: must be Background, Foreground or "
                   "Orphan"};
  }
  return request;
}

struct ContinueToken {
  std::uint64_t revision = 0;
  api::ObjectKey after;
};

std::string continue_text(std::uint64_t revision, const api::ObjectKey& key) {
  return std::to_string(revision) + ":" + key.namespace_name + "/" + key.name;
}

std::optional<ContinueToken> parse_continue(const std::string& text) {
  const auto colon = text.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto slash = text.find('/', colon);
  const auto revision = whole_number(std::string_view(text).substr(0, colon));
  if (slash == std::string::npos || !revision) return std::nullopt;
  return ContinueToken{*revision,
                       {text.substr(colon + 1, slash - colon - 1), text.substr(slash + 1)}};
}

/// Items of built-in kinds come without apiVersion and kind; these two stand first, because keys
/// are sorted.
std::string_view item_text(const ResourceType& type, const std::string& prefix,
                           const Version& version) {
  std::string_view text = version.text;
  if (type.is_built_in && text.substr(0, prefix.size()) == prefix)
    text.remove_prefix(prefix.size());
  return text;
}

std::string page_text(const ResourceType& type, std::uint64_t revision,
                      const std::string& continue_token, const std::vector<VersionPtr>& versions) {
  Json metadata = {{"resourceVersion", std::to_string(revision)}};
  if (!continue_token.empty()) metadata["continue"] = continue_token;
  const std::string prefix =
      "{\"apiVersion\":\"" + type.group_version + "\",\"kind\":\"" + type.kind_name + "\",";
  std::string text = "{\"kind\":\"" + type.kind_name + "List\",\"apiVersion\":\"" +
                     type.group_version + "\",\"metadata\":" + dump_json(metadata) + ",\"items\":[";
  bool first = true;
  for (const VersionPtr& version : versions) {
    if (!first) text += ',';
    first = false;
    const std::string_view item = item_text(type, prefix, *version);
    if (item.size() < version->text.size()) text += '{';
    text += item;
  }
  return text + "]}";
}

}  // namespace

Outcome<std::int64_t> number_parameter(const Target& target, const std::string& name,
                                       std::int64_t otherwise) {
  const std::string text = target.parameter(name);
  if (text.empty()) return otherwise;
  const auto number = whole_number(text);
  constexpr std::uint64_t kMost = 1'000'000'000;
  if (!number || *number > kMost) {
    return bad_request(name + ": must be a whole number from 0 to " + std::to_string(kMost));
  }
  return static_cast<std::int64_t>(*number);
}

Outcome<VersionPtr> create_object(ApiState& state, const Target& target, Json object) {
  const ResourceType& type = *target.type;
  if (auto refusal = check_type(type, object)) return std::move(*refusal);
  const std::string namespace_name = metadata_text(object, "namespace");
  if (!namespace_name.empty() && namespace_name != target.namespace_name) {
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request");
  }
  if (type.namespaced && !is_dns_label(target.namespace_name)) {
    return invalid(type, metadata_text(object, "name"), "metadata.namespace: must be a DNS label");
  }
  if (auto refusal = choose_name(state, target, object)) return std::move(*refusal);
  shape(state, type, object);
  if (type.namespaced) object["metadata"]["namespace"] = target.namespace_name;
  set_system_fields(state, type, object);
  if (auto refusal = check_metadata(type, object)) return std::move(*refusal);
  if (auto refusal = check_kind(type, object)) return std::move(*refusal);
  if (auto refusal = check_size(state, object)) return std::move(*refusal);
  const api::ObjectKey key{target.namespace_name, metadata_text(object, "name")};
  Table& table = state.table_of(type);
  if (table.find(key) != nullptr) {
    return Refusal{409, "AlreadyExists",
                   type.qualified_plural() + " \"" + key.name + "\" already exists"};
  }
  return state.put(table, key, std::move(object));
}

Outcome<VersionPtr> get_object(ApiState& state, const Target& target) {
  VersionPtr version = state.table_of(*target.type).find(target.key());
  if (version == nullptr) return not_found(target);
  return version;
}

Outcome<std::string> list_objects(ApiState& state, const Target& target) {
  auto selector = Selector::parse(*target.type, target.parameter("labelSelector"),
                                  target.parameter("fieldSelector"));
  if (refused(selector)) return std::get<Refusal>(selector);
  auto limit = number_parameter(target, "limit", 0);
  if (refused(limit)) return std::get<Refusal>(limit);
  ContinueToken from{state.revision(), {}};
  const std::string continue_token = target.parameter("continue");
  if (!continue_token.empty()) {
    const auto parsed = parse_continue(continue_token);
    if (!parsed) return bad_request("continue key is not valid");
    from = *parsed;
  }
  const auto objects = state.table_of(*target.type).at(from.revision);
  if (!objects) {
    return Refusal{410, "Expired",
                   "The provided continue parameter is too old to display a consistent list "
                   "result. You must start a new list without the continue parameter."};
  }
  std::vector<VersionPtr> versions;
  const auto most = static_cast<std::size_t>(std::get<0>(limit));
  std::string next_token;
  const auto start = continue_token.empty() ? objects->begin() : objects->upper_bound(from.after);
  for (auto entry = start; entry != objects->end(); ++entry) {
    const VersionPtr& version = entry->second;
    const bool in_namespace =
        target.namespace_name.empty() || version->key.namespace_name == target.namespace_name;
    if (!in_namespace || !std::get<0>(selector).matches(*version)) continue;
    if (most > 0 && versions.size() == most) {
      next_token = continue_text(from.revision, versions.back()->key);
      break;
    }
    versions.push_back(version);
  }
  return page_text(*target.type, from.revision, next_token, versions);
}

Outcome<VersionPtr> update_object(ApiState& state, const Target& target, Json proposed) {
  const VersionPtr version = state.table_of(*target.type).find(target.key());
  if (version == nullptr) return not_found(target);
  if (target.type->needs_resource_version && metadata_text(proposed, "resourceVersion").empty()) {
    return invalid(*target.type, target.name,
                   "metadata.resourceVersion: Invalid value: 0: must be specified for an update");
  }
  return replace(state, target, version, std::move(proposed));
}

Outcome<VersionPtr> patch_object(ApiState& state, const Target& target, const Json& patch) {
  const VersionPtr version = state.table_of(*target.type).find(target.key());
  if (version == nullptr) return not_found(target);
  if (!patch.is_object()) return bad_request("a merge patch must be an object");
  Json proposed = version->object;
  proposed.merge_patch(patch);
  return replace(state, target, version, std::move(proposed));
}

Outcome<VersionPtr> delete_object(ApiState& state, const Target& target, const Json& options) {
  auto parsed = parse_delete(target, options);
  if (refused(parsed)) return std::get<Refusal>(parsed);
  const auto& request = std::get<0>(parsed);
  Table& table = state.table_of(*target.type);
  const VersionPtr version = table.find(target.key());
  if (version == nullptr) return not_found(target);
  if (auto refusal = check_preconditions(target, *version, request.uid, request.resource_version)) {
    return std::move(*refusal);
  }
  return state.begin_delete(table, version, request.grace_seconds, request.dependents);
}

std::optional<Refusal> bind_pod(ApiState& state, const Target& target, const Json& binding) {
  Table& table = state.table_of(*target.type);
  const VersionPtr version = table.find(target.key());
  if (version == nullptr) return not_found(target);
  const Json* node = member(binding, "target");
  const std::string node_name =
      node == nullptr ? std::string() : text_or_empty(member(*node, "name"));
  if (node_name.empty()) return bad_request("target.name: must name the node");
  if (auto refusal = check_preconditions(target, *version, metadata_text(binding, "uid"),
                                         metadata_text(binding, "resourceVersion"))) {
    return refusal;
  }
  const Json* spec = member(version->object, "spec");
  const std::string bound = text_or_empty(member(*spec, "nodeName"));
  if (!bound.empty()) {
    return conflict(target,
                    "pod " + target.name + " is already assigned to node \"" + bound + "\"");
  }
  if (member(*member(version->object, "metadata"), "deletionTimestamp") != nullptr) {
    return conflict(target,
                    "pod " + target.name + " is being deleted, cannot be assigned to a host");
  }
  Json object = version->object;
  object["spec"]["nodeName"] = node_name;
  Json& status = object["status"];
  if (!status.is_object()) status = Json::object();
  Json conditions = Json::array();
  if (const Json* old = member(status, "conditions"); old != nullptr && old->is_array()) {
    for (const Json& condition : *old) {
      if (text_or_empty(member(condition, "type")) != "PodScheduled")
        conditions.push_back(condition);
    }
  }
  conditions.push_back({{"type", "PodScheduled"},
                        {"status", "True"},
                        {"lastTransitionTime", format_time(state.clock().wall_now())}});
  status["conditions"] = std::move(conditions);
  state.put(table, target.key(), std::move(object));
  return std::nullopt;
}

}  // namespace muster::embedded
