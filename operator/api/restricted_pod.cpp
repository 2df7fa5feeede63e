// The last look at a pod before it is asked for: whether it meets Pod Security `restricted`, by
// what may stand in it. A field that is not listed here is refused, whatever it would do: what
// Kubernetes learns tomorrow must not be open today.
#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "common/contract.h"
#include "operator/api/pod.h"

namespace muster::api {
namespace {

using FieldNames = std::initializer_list<std::string_view>;

constexpr std::string_view kHostNetworkNames = "ClusterFirstWithHostNet";

Error breaks(const std::string& what) {
  return {ErrorCode::kForbidden, "breaks Pod Security restricted: " + what};
}

/// An object, with no other fields than those.
Status has_only(const Json& object, const std::string& path, FieldNames allowed) {
  if (!object.is_object()) return breaks(path + " is no object");
  for (const auto& [key, value] : object.items()) {
    if (std::find(allowed.begin(), allowed.end(), key) != allowed.end()) continue;
    return breaks(path + "." + key.substr(0, 64) + " is set");
  }
  return {};
}

/// Absent, or a list of such objects.
Status has_only_such(const Json& list, const std::string& path, FieldNames allowed) {
  if (list.is_null()) return {};
  if (!list.is_array()) return breaks(path + " is no list");
  for (const Json& item : list) MUSTER_RETURN_IF_ERROR(has_only(item, path + "[]", allowed));
  return {};
}

bool is_ordinary_user(const Json& id) { return id.is_number_integer() && id > 0; }

Status check_pod_context(const Json& context) {
  const std::string path = "spec.securityContext";
  MUSTER_RETURN_IF_ERROR(has_only(context, path,
                                  {"runAsNonRoot", "runAsUser", "runAsGroup", "fsGroup",
                                   "fsGroupChangePolicy", "supplementalGroups", "seccompProfile"}));
  if (member(context, {"runAsNonRoot"}) != true) {
    return breaks(path + ".runAsNonRoot is not true");
  }
  for (const char* id : {"runAsUser", "runAsGroup", "fsGroup"}) {
    if (!is_ordinary_user(member(context, {id}))) return breaks(path + "." + id + " is root");
  }
  const Json& groups = member(context, {"supplementalGroups"});
  const bool is_ordinary =
      groups.is_null() ||
      (groups.is_array() && std::all_of(groups.begin(), groups.end(), is_ordinary_user));
  if (!is_ordinary) return breaks(path + ".supplementalGroups has root's");
  if (member(context, {"seccompProfile"}) != Json{{"type", "RuntimeDefault"}}) {
    return breaks(path + ".seccompProfile is not RuntimeDefault");
  }
  return {};
}

Status check_container_context(const Json& context) {
  const std::string path = "securityContext of the container";
  MUSTER_RETURN_IF_ERROR(has_only(
      context, path, {"allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"}));
  if (member(context, {"allowPrivilegeEscalation"}) != false) {
    return breaks(path + ": allowPrivilegeEscalation is not false");
  }
  if (member(context, {"capabilities"}) != Json{{"drop", Json::array({"ALL"})}}) {
    return breaks(path + ": capabilities are kept");
  }
  return {};
}

/// What every container of a worker's pod must hold; `is_worker`: of the worker itself.
Status check_container(const Json& container, const std::string& path, bool is_worker) {
  MUSTER_RETURN_IF_ERROR(
      has_only(container, path,
               {"name", "image", "imagePullPolicy", "command", "args", "workingDir", "env",
                "envFrom", "ports", "resources", "volumeMounts", "terminationMessagePolicy",
                "securityContext", "restartPolicy"}));
  // Of a sidecar; whoever else starts anew does so with its pod.
  const Json& policy = member(container, {"restartPolicy"});
  if (!policy.is_null() && (is_worker || policy != "Always")) {
    return breaks(path + ".restartPolicy is set");
  }
  const bool is_named_worker = member(container, {"name"}) == contract::kContainerName;
  if (is_named_worker != is_worker) {
    return breaks(path + (is_worker ? " is not the worker" : " is a second worker"));
  }
  MUSTER_RETURN_IF_ERROR(has_only_such(member(container, {"envFrom"}), path + ".envFrom",
                                       {"prefix", "configMapRef", "secretRef"}));
  MUSTER_RETURN_IF_ERROR(has_only_such(member(container, {"ports"}), path + ".ports",
                                       {"name", "containerPort", "protocol"}));
  MUSTER_RETURN_IF_ERROR(has_only_such(member(container, {"volumeMounts"}), path + ".volumeMounts",
                                       {"name", "mountPath", "subPath", "readOnly"}));
  return check_container_context(member(container, {"securityContext"}));
}

/// Whether it is in a network of its own, or may be in its node's. Whoever is there finds the
/// Service's names by this policy for names alone.
Status check_network(const Pod& pod, const std::vector<std::string>& host_network_namespaces) {
  const Json& host = member(pod.spec, {"hostNetwork"});
  const Json& names = member(pod.spec, {"dnsPolicy"});
  if (host.is_null()) return names.is_null() ? Status() : breaks("spec.dnsPolicy is set");
  if (host != true) return breaks("spec.hostNetwork is not true");
  const std::string& own = pod.meta.namespace_name;
  const bool may = std::any_of(host_network_namespaces.begin(), host_network_namespaces.end(),
                               [&](const std::string& one) { return one == "*" || one == own; });
  if (may && names != kHostNetworkNames) {
    return breaks("spec.dnsPolicy is not " + std::string(kHostNetworkNames));
  }
  if (may) return {};
  return Error(ErrorCode::kForbidden,
               "is to be in the network of its node (spec.worker.hostNetwork), which pods of "
               "namespace " +
                   own +
                   " may not: leave that out, or have the namespace added to the operator's "
                   "--host-network-namespaces (in the chart worker.hostNetworkNamespaces)");
}

}  // namespace

Status check_restricted(const Pod& pod, const std::vector<std::string>& host_network_namespaces) {
  const Json& spec = pod.spec;
  MUSTER_RETURN_IF_ERROR(has_only(spec, "spec",
                                  {"containers",
                                   "initContainers",
                                   "restartPolicy",
                                   "hostname",
                                   "subdomain",
                                   "enableServiceLinks",
                                   "automountServiceAccountToken",
                                   "terminationGracePeriodSeconds",
                                   "securityContext",
                                   "volumes",
                                   "affinity",
                                   "priorityClassName",
                                   "nodeSelector",
                                   "tolerations",
                                   "imagePullSecrets",
                                   "serviceAccountName",
                                   "runtimeClassName",
                                   "schedulerName",
                                   "resourceClaims",
                                   "schedulingGroup",
                                   "hostNetwork",
                                   "dnsPolicy"}));
  if (member(spec, {"automountServiceAccountToken"}) != false) {
    return breaks("spec.automountServiceAccountToken is not false");
  }
  MUSTER_RETURN_IF_ERROR(check_network(pod, host_network_namespaces));
  MUSTER_RETURN_IF_ERROR(check_pod_context(member(spec, {"securityContext"})));
  MUSTER_RETURN_IF_ERROR(has_only_such(
      member(spec, {"volumes"}), "spec.volumes",
      {"name", "persistentVolumeClaim", "configMap", "secret", "emptyDir", "projected"}));
  const Json& containers = member(spec, {"containers"});
  if (!containers.is_array() || containers.size() != 1) {
    return breaks("spec.containers is not the one worker");
  }
  const Json& first = member(spec, {"initContainers"});
  if (!first.is_null() && (!first.is_array() || first.empty())) {
    return breaks("spec.initContainers is no list of containers");
  }
  for (std::size_t i = 0; i < first.size(); ++i) {
    const std::string path = "spec.initContainers[" + std::to_string(i) + "]";
    MUSTER_RETURN_IF_ERROR(check_container(first[i], path, false));
  }
  return check_container(containers.front(), "spec.containers[0]", true);
}

}  // namespace muster::api
