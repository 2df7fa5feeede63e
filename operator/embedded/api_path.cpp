// From a request's path to the kind, the object and the parameters it is aimed at.
#include <algorithm>
#include <optional>
#include <string_view>

#include "operator/embedded/api_types.h"

namespace muster::embedded {
namespace {

constexpr std::size_t kMaxPathBytes = 8 * 1024;

ResourceType make_type(api::Kind kind) {
  const api::KindInfo& info = api::info_of(kind);
  ResourceType type;
  type.kind = kind;
  type.group_version = info.api_version;
  const auto slash = type.group_version.find('/');
  if (slash != std::string::npos) type.group = type.group_version.substr(0, slash);
  type.kind_name = info.kind;
  type.plural = info.plural;
  type.namespaced = info.namespaced;
  const bool has_own_status = kind == api::Kind::kTrainingJob || kind == api::Kind::kTrainingQueue;
  const bool is_custom = has_own_status || kind == api::Kind::kTopologyConfig ||
                         kind == api::Kind::kKueueTopology || kind == api::Kind::kKaiTopology ||
                         kind == api::Kind::kHyperNode || kind == api::Kind::kKueueWorkload;
  type.has_status = has_own_status || kind == api::Kind::kPod || kind == api::Kind::kNode ||
                    kind == api::Kind::kService;
  type.has_generation = is_custom || kind == api::Kind::kPod;
  type.is_built_in = !is_custom;
  type.needs_resource_version = is_custom || kind == api::Kind::kLease;
  type.name_is_label = kind == api::Kind::kService;
  return type;
}

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

/// Undoes percent-encoding; nullopt when it is broken.
std::optional<std::string> decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i] == '+' ? ' ' : text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const auto high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (!high || !low) return std::nullopt;
    out += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return out;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

Refusal unknown_path() {
  return {404, "NotFound", "the server could not find the requested resource"};
}

Outcome<std::map<std::string, std::string>> parse_query(std::string_view query) {
  std::map<std::string, std::string> parameters;
  if (query.empty()) return parameters;
  for (const std::string_view part : split(query, '&')) {
    const auto equals = part.find('=');
    const auto name = decode(part.substr(0, equals));
    const auto value =
        equals == std::string_view::npos ? std::string() : decode(part.substr(equals + 1));
    if (!name || !value) return bad_request("the query is not percent-encoded correctly");
    parameters.emplace(*name, *value);
  }
  return parameters;
}

const ResourceType* find_type(const std::string& group_version, const std::string& plural) {
  for (const ResourceType& type : resource_types()) {
    if (type.group_version == group_version && type.plural == plural) return &type;
  }
  return nullptr;
}

}  // namespace

const std::vector<ResourceType>& resource_types() {
  static const std::vector<ResourceType> kTypes = [] {
    std::vector<ResourceType> types;
    for (const api::Kind kind :
         {api::Kind::kTrainingJob, api::Kind::kPod, api::Kind::kNode, api::Kind::kService,
          api::Kind::kEvent, api::Kind::kLease, api::Kind::kPersistentVolume,
          api::Kind::kPersistentVolumeClaim, api::Kind::kPodDisruptionBudget, api::Kind::kPodGroup,
          api::Kind::kWorkload, api::Kind::kTrainingQueue, api::Kind::kPriorityClass,
          api::Kind::kTopologyConfig, api::Kind::kKueueTopology, api::Kind::kKaiTopology,
          api::Kind::kHyperNode, api::Kind::kKueueWorkload}) {
      types.push_back(make_type(kind));
    }
    return types;
  }();
  return kTypes;
}

Refusal bad_request(std::string message) { return {400, "BadRequest", std::move(message)}; }

Json status_body(const Refusal& refusal) {
  return {{"kind", "Status"},    {"apiVersion", "v1"},         {"metadata", Json::object()},
          {"status", "Failure"}, {"message", refusal.message}, {"reason", refusal.reason},
          {"code", refusal.code}};
}

kube::HttpResponse to_response(const Refusal& refusal) {
  kube::HttpResponse response;
  response.code = refusal.code;
  response.body = dump_json(status_body(refusal));
  return response;
}

std::string Target::parameter(const std::string& parameter_name) const {
  const auto found = query.find(parameter_name);
  return found == query.end() ? std::string() : found->second;
}

Outcome<Target> parse_target(const std::string& path) {
  if (path.size() > kMaxPathBytes) return Refusal{414, "", "the request URI is too long"};
  const auto question = path.find('?');
  Target target;
  if (question != std::string::npos) {
    auto query = parse_query(std::string_view(path).substr(question + 1));
    if (refused(query)) return std::get<Refusal>(query);
    target.query = std::move(std::get<0>(query));
  }
  std::vector<std::string> parts;
  const std::string_view plain = std::string_view(path).substr(0, question);
  if (plain.empty() || plain.front() != '/') return unknown_path();
  for (const std::string_view part : split(plain.substr(1), '/')) {
    auto decoded = decode(part);
    if (!decoded || decoded->empty()) return unknown_path();
    parts.push_back(std::move(*decoded));
  }
  // "api/v1/..." or "apis/GROUP/VERSION/..."
  std::string group_version;
  std::size_t at = 0;
  if (parts.size() >= 2 && parts[0] == "api") {
    group_version = parts[1];
    at = 2;
  } else if (parts.size() >= 3 && parts[0] == "apis") {
    group_version = parts[1] + "/" + parts[2];
    at = 3;
  } else {
    return unknown_path();
  }
  bool in_namespace = false;
  if (parts.size() >= at + 3 && parts[at] == "namespaces") {
    target.namespace_name = parts[at + 1];
    in_namespace = true;
    at += 2;
  }
  if (at >= parts.size() || parts.size() > at + 3) return unknown_path();
  target.type = find_type(group_version, parts[at]);
  if (target.type == nullptr || (in_namespace && !target.type->namespaced)) return unknown_path();
  if (at + 1 < parts.size()) target.name = parts[at + 1];
  if (at + 2 < parts.size()) target.subresource = parts[at + 2];
  if (target.type->namespaced && !in_namespace && !target.name.empty()) return unknown_path();
  const bool known_subresource =
      target.subresource.empty() || (target.subresource == "status" && target.type->has_status) ||
      (target.subresource == "binding" && target.type->kind == api::Kind::kPod);
  if (!known_subresource) return unknown_path();
  return target;
}

const Json* member(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

std::string text_or_empty(const Json* value) {
  const auto* text = value == nullptr ? nullptr : value->get_ptr<const std::string*>();
  return text == nullptr ? std::string() : *text;
}

std::string metadata_text(const Json& object, const char* name) {
  return text_at(object, {"metadata", name});
}

}  // namespace muster::embedded
