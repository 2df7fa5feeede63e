// Words shared by the files of the embedded API server. Nothing outside this directory includes it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/json.h"
#include "operator/api/object_meta.h"
#include "operator/kube/http_transport.h"

namespace muster::embedded {

/// A kind as the server treats it.
struct ResourceType {
  api::Kind kind;
  std::string group_version;  ///< "v1", "muster.dev/v1alpha1"
  std::string group;          ///< empty for v1
  std::string kind_name, plural;
  bool namespaced = true;
  bool has_status = false;      ///< the status subresource stands apart
  bool has_generation = false;  ///< metadata.generation counts changes of the spec
  bool is_built_in = true;      ///< items of a list come without apiVersion and kind
  /// A write must name the resourceVersion that it was made from.
  bool needs_resource_version = false;
  bool name_is_label = false;  ///< names are DNS labels, not subdomains

  /// "trainingjobs.muster.dev", as messages name it.
  std::string qualified_plural() const { return group.empty() ? plural : plural + "." + group; }
  std::string qualified_kind() const { return group.empty() ? kind_name : kind_name + "." + group; }
};

/// Every kind the server serves, in the order of api::Kind.
const std::vector<ResourceType>& resource_types();

/// A request that is refused: HTTP code and the reason of metav1.Status.
struct Refusal {
  int code;
  std::string reason;
  std::string message;
};
Refusal bad_request(std::string message);
Json status_body(const Refusal& refusal);
kube::HttpResponse to_response(const Refusal& refusal);

template <typename T>
using Outcome = std::variant<T, Refusal>;
template <typename T>
bool refused(const Outcome<T>& outcome) {
  return std::holds_alternative<Refusal>(outcome);
}

/// What a request is aimed at.
struct Target {
  const ResourceType* type = nullptr;
  std::string namespace_name;  ///< empty: all namespaces, or a cluster-scoped kind
  std::string name;            ///< empty: the collection
  std::string subresource;     ///< "", "status" or "binding"
  std::map<std::string, std::string> query;

  api::ObjectKey key() const { return {namespace_name, name}; }
  std::string parameter(const std::string& parameter_name) const;
};
Outcome<Target> parse_target(const std::string& path);

/// nullptr when `object` is no object or has no such member.
const Json* member(const Json& object, const char* name);
/// The text at metadata.<name>, or empty.
std::string metadata_text(const Json& object, const char* name);
std::string text_or_empty(const Json* value);

/// One state of one object; never changes once made, so that lists, history and streams share it.
struct Version {
  api::ObjectKey key;
  std::uint64_t revision = 0;
  Json object;
  std::string text;  ///< `object` as JSON
};
using VersionPtr = std::shared_ptr<const Version>;

}  // namespace muster::embedded
