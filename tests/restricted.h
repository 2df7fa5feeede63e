// Pod Security `restricted` of Kubernetes 1.30 as a check of a pod's spec, written from its
// documentation and apart from the operator's own: what tests/chart/restricted.py is for the chart.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/json.h"

namespace muster::test {

/// A member of an object; null where there is none.
inline Json at_or_null(const Json& object, const std::string& name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? Json() : *found;
}

inline bool has_word(const Json& list, const std::string& word) {
  if (!list.is_array()) return false;
  for (const Json& one : list) {
    if (one == word) return true;
  }
  return false;
}

/// What of one container breaks it; `pod` is the pod's own securityContext.
inline std::vector<std::string> container_findings(const Json& container, const Json& pod) {
  std::vector<std::string> found;
  const Json own = at_or_null(container, "securityContext");
  const auto effective = [&](const char* field) {
    const Json value = at_or_null(own, field);
    return value.is_null() ? at_or_null(pod, field) : value;
  };
  const auto say = [&](bool wrong, const char* what) {
    if (wrong) found.emplace_back(what);
  };
  const Json capabilities = at_or_null(own, "capabilities");
  const Json privileged = at_or_null(own, "privileged");
  const Json seccomp = at_or_null(effective("seccompProfile"), "type");
  const Json proc = at_or_null(own, "procMount");
  say(!privileged.is_null() && privileged != false, "privileged");
  say(at_or_null(own, "allowPrivilegeEscalation") != false, "allowPrivilegeEscalation");
  say(!has_word(at_or_null(capabilities, "drop"), "ALL"), "does not drop ALL");
  for (const Json& one : at_or_null(capabilities, "add")) {
    say(one != "NET_BIND_SERVICE", "adds capabilities");
  }
  say(effective("runAsNonRoot") != true, "runAsNonRoot");
  say(effective("runAsUser") == 0, "runAsUser is 0");
  say(seccomp != "RuntimeDefault" && seccomp != "Localhost", "seccompProfile");
  say(!proc.is_null() && proc != "Default", "procMount");
  for (const char* windows : {"windowsOptions", "seLinuxOptions", "appArmorProfile"}) {
    say(!at_or_null(own, windows).is_null(), windows);
  }
  for (const Json& port : at_or_null(container, "ports")) {
    const Json host = at_or_null(port, "hostPort");
    say(!host.is_null() && host != 0, "hostPort");
  }
  return found;
}

/// Words for each thing that breaks it; none where the spec may run. Containers beside the worker
/// and a token of the API server are not of `restricted`, but of this house.
inline std::vector<std::string> restricted_findings(const Json& spec) {
  std::vector<std::string> found;
  for (const char* field : {"hostNetwork", "hostPID", "hostIPC"}) {
    const Json value = at_or_null(spec, field);
    if (!value.is_null() && value != false) found.emplace_back(field);
  }
  static const std::set<std::string> kVolumes{"configMap", "csi",       "downwardAPI",
                                              "emptyDir",  "ephemeral", "persistentVolumeClaim",
                                              "projected", "secret",    "name"};
  for (const Json& volume : at_or_null(spec, "volumes")) {
    if (!volume.is_object()) continue;
    for (const auto& [kind, source] : volume.items()) {
      if (!kVolumes.contains(kind)) found.push_back("volume " + kind);
    }
  }
  const Json pod = at_or_null(spec, "securityContext");
  const Json sysctls = at_or_null(pod, "sysctls");
  if (!sysctls.is_null() && !sysctls.empty()) found.emplace_back("sysctls");
  for (const char* field : {"windowsOptions", "seLinuxOptions", "appArmorProfile"}) {
    if (!at_or_null(pod, field).is_null()) found.emplace_back(field);
  }
  const Json containers = at_or_null(spec, "containers");
  if (!containers.is_array() || containers.size() != 1) found.emplace_back("not one container");
  if (!at_or_null(spec, "ephemeralContainers").is_null()) {
    found.emplace_back("ephemeralContainers");
  }
  if (at_or_null(spec, "automountServiceAccountToken") != false) found.emplace_back("token");
  const Json first = at_or_null(spec, "initContainers");
  for (const Json* list : {&containers, &first}) {
    for (const Json& container : *list) {
      for (auto& one : container_findings(container, pod)) found.push_back(std::move(one));
    }
  }
  return found;
}

}  // namespace muster::test
