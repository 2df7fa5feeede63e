// Pods as they are read back, and as they are written for a cluster that is not real (tests, local
// runs). What a job's pod is made of stands in make_pod.cpp.
#include "operator/api/pod.h"

#include <charconv>
#include <set>

#include "common/contract.h"
#include "operator/api/fields.h"
#include "operator/api/kueue.h"
#include "operator/api/object_meta_json.h"
#include "operator/api/waiting.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxTerminationBytes = 4096;
constexpr std::size_t kMaxContainers = 256;
constexpr std::size_t kMaxGates = 256;
/// Kinds of devices that a pod asks for: no node has as many.
constexpr std::size_t kMaxKindsOfDevices = 256;
constexpr std::size_t kMaxMessageBytes = 32'768;

/// A number of a label, or -1.
int label_number(const ObjectMeta& meta, std::string_view label) {
  const auto found = meta.labels.find(std::string(label));
  if (found == meta.labels.end()) return -1;
  const std::string& text = found->second;
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && value >= 0 ? value : -1;
}

const char* text_of(PodPhase phase) {
  switch (phase) {
    case PodPhase::kPending:
      return "Pending";
    case PodPhase::kRunning:
      return "Running";
    case PodPhase::kSucceeded:
      return "Succeeded";
    case PodPhase::kFailed:
      return "Failed";
    case PodPhase::kUnknown:
      return "Unknown";
  }
  return "Unknown";
}

PodPhase phase_of(const std::string& text) {
  for (const PodPhase phase : {PodPhase::kPending, PodPhase::kRunning, PodPhase::kSucceeded,
                               PodPhase::kFailed, PodPhase::kUnknown}) {
    if (text == text_of(phase)) return phase;
  }
  return text.empty() ? PodPhase::kPending : PodPhase::kUnknown;
}

/// A quantity of a container's requests; 0 when absent.
std::int64_t request_of(JsonReader& in, const Json& map, const std::string& field,
                        Result<std::int64_t> (*parse)(const std::string&)) {
  if (!in.has(field) || !in.status()) return 0;
  const Json& value = map[field];
  std::string text = value.is_number_integer() ? value.dump() : "";
  if (!value.is_number_integer()) in.optional(field, text, 64);
  if (!in.status()) return 0;
  const auto amount = parse(text);
  if (amount) return *amount;
  in.fail(field, amount.error().message());
  return 0;
}

/// Sums with a ceiling, so that no pod can wrap the total.
void add(std::int64_t& total, std::int64_t more) {
  if (__builtin_add_overflow(total, more, &total)) total = INT64_MAX;
}

void add(PodRequests& total, const PodRequests& more) {
  add(total.cpu_millis, more.cpu_millis);
  add(total.memory_bytes, more.memory_bytes);
  for (const auto& [name, count] : more.devices) add(total.devices[name], count);
  total.master_port = total.master_port || more.master_port;
}

/// A list of amounts by resource.
Status read_amounts(const Json& json, const std::string& path, PodRequests& out) {
  JsonReader in(json, path);
  out.cpu_millis = request_of(in, json, "cpu", parse_cpu_millis);
  out.memory_bytes = request_of(in, json, "memory", parse_bytes);
  for (const auto& [name, value] : json.items()) {
    // Device plugins' resources carry a domain.
    const bool is_disk = name == kEphemeralStorage;
    if (!is_disk && name.find('/') == std::string::npos) continue;
    const std::int64_t count = request_of(in, json, name, is_disk ? parse_bytes : parse_count);
    if (count > 0) out.devices[name] = count;
  }
  return in.status();
}

/// The requests of a container's or a pod's `resources`.
Status read_resource_requests(const Json& json, const std::string& path, PodRequests& out) {
  JsonReader in(json, path);
  read_object(in, "requests",
              [&](const Json& map, const std::string& at) { return read_amounts(map, at, out); });
  return in.status();
}

struct ContainerRequests {
  std::string name;
  PodRequests amounts;
  bool stays = false;  ///< of those that start first: it runs as long as the pod
};

/// Whether a container of these ports holds kMasterPort of its node. UDP and SCTP are not told
/// apart: nobody is known to use these there. What is no list of ports holds nothing: this is no
/// reason to pass a pod over.
bool holds_master_port(const Json& container, bool host_network) {
  const auto ports = container.find("ports");
  if (ports == container.end() || !ports->is_array()) return false;
  return std::any_of(ports->begin(), ports->end(), [&](const Json& port) {
    if (!port.is_object()) return false;
    const auto host = port.find("hostPort"), own = port.find("containerPort");
    if (host != port.end()) return *host == kMasterPort;
    return host_network && own != port.end() && *own == kMasterPort;
  });
}

Status read_container(const Json& json, const std::string& path, bool host_network,
                      ContainerRequests& out) {
  JsonReader in(json, path);
  std::string restarts;
  in.optional("name", out.name, 253);
  in.optional("restartPolicy", restarts);
  out.stays = restarts == "Always";
  read_object(in, "resources", [&](const Json& resources, const std::string& at) {
    return read_resource_requests(resources, at, out.amounts);
  });
  if (in.status()) out.amounts.master_port = holds_master_port(json, host_network);
  return in.status();
}

/// The largest that the pod takes at any time: those that start first run one after the other
/// beside those of them that stay, then all others run together. What the pod itself asks for of
/// processors and memory counts in place of that. Sources: Kubernetes' KEP-753 and KEP-2837.
void read_requests(JsonReader& in, PodRequests& out, std::set<std::string>& staying) {
  PodRequests lasting, most;
  bool host_network = false;
  in.optional("hostNetwork", host_network);
  read_list(in, "initContainers", kMaxContainers, [&](const Json& item, const std::string& at) {
    ContainerRequests one;
    const Status read = read_container(item, at, host_network, one);
    // Host ports of what has ended before the others begin keep nobody off.
    if (!one.stays) one.amounts.master_port = false;
    PodRequests now = lasting;
    add(now, one.amounts);
    raise_to(most, now);
    if (one.stays) {
      lasting = std::move(now);
      staying.insert(std::move(one.name));
    }
    return read;
  });
  read_list(in, "containers", kMaxContainers, [&](const Json& item, const std::string& at) {
    ContainerRequests one;
    const Status read = read_container(item, at, host_network, one);
    add(lasting, one.amounts);
    return read;
  });
  raise_to(most, lasting);
  read_object(in, "resources", [&](const Json& resources, const std::string& at) {
    PodRequests of_pod;
    const Status read = read_resource_requests(resources, at, of_pod);
    if (of_pod.cpu_millis > 0) most.cpu_millis = of_pod.cpu_millis;
    if (of_pod.memory_bytes > 0) most.memory_bytes = of_pod.memory_bytes;
    return read;
  });
  read_object(in, "overhead", [&](const Json& map, const std::string& at) {
    PodRequests overhead;
    const Status read = read_amounts(map, at, overhead);
    add(most, overhead);
    return read;
  });
  if (most.devices.size() > kMaxKindsOfDevices) {
    in.fail("containers", "ask for more than " + std::to_string(kMaxKindsOfDevices) + " resources");
  }
  out = std::move(most);
}

/// The node of a required affinity of the shape that make_pod writes; anything else is "".
std::string required_node_of(const Json& spec) {
  const Json& terms =
      member(spec, {"affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
                    "nodeSelectorTerms"});
  if (!terms.is_array() || terms.size() != 1) return "";
  const Json& fields = member(terms[0], {"matchFields"});
  if (!fields.is_array() || fields.size() != 1) return "";
  const Json& field = fields[0];
  const bool is_of_name =
      text_at(field, {"operator"}) == "In" && text_at(field, {"key"}) == "metadata.name";
  const Json& values = member(field, {"values"});
  const bool is_one = values.is_array() && values.size() == 1 && values[0].is_string();
  return is_of_name && is_one ? values[0].get<std::string>() : "";
}

Status read_spec(const Json& json, const std::string& path, Pod& out,
                 std::set<std::string>& staying) {
  JsonReader in(json, path);
  in.optional("nodeName", out.node_name, 253);
  out.required_node = required_node_of(json);
  read_list(in, "schedulingGates", kMaxGates, [&](const Json& item, const std::string& at) {
    JsonReader gate(item, at);
    std::string name;
    gate.optional("name", name);
    if (name.starts_with(kueue::kPrefix)) out.held_by_kueue = true;
    return gate.status();
  });
  read_requests(in, out.requests, staying);
  return in.status();
}

Status read_terminated(const Json& json, const std::string& path, Termination& out) {
  JsonReader in(json, path);
  in.optional("exitCode", out.exit_code, {INT32_MIN, INT32_MAX});
  in.optional("signal", out.signal, {0, INT32_MAX});
  in.words("reason", out.reason);
  in.words("message", out.message, kMaxTerminationBytes);
  return in.status();
}

/// What a container waits for, with `head` before its message, where nothing else is known.
void read_waiting(JsonReader& in, const std::string& head, Pod& out) {
  read_object(in, "waiting", [&](const Json& waiting, const std::string& at) {
    JsonReader reader(waiting, at);
    std::string reason, message;
    reader.words("reason", reason);
    reader.words("message", message, kMaxMessageBytes);
    if (out.reason.empty() && says_why(reason)) {
      out.reason = reason;
      out.message = head + message;
    }
    return reader.status();
  });
}

Status read_state(const Json& json, const std::string& path, Pod& out) {
  JsonReader in(json, path);
  read_object(in, "terminated", [&](const Json& ended, const std::string& at) {
    return read_terminated(ended, at, out.termination.emplace());
  });
  read_waiting(in, "", out);
  return in.status();
}

/// Of a container that runs before the worker, of the job's or what webhooks of others put there (a
/// proxy, the agent of a vault): a pod that is pending waits for it. One of `staying` is waited for
/// until it runs, says nothing of the worker later, and fails no pod: the kubelet starts it again.
Status read_init_container_status(const Json& json, const std::string& path,
                                  const std::set<std::string>& staying, Pod& out) {
  JsonReader in(json, path);
  std::string name;
  in.required("name", name, 253);
  const bool stays = staying.contains(name);
  const bool may_fail_pod =
      out.phase == PodPhase::kFailed && !out.termination && !out.init_failure && !stays;
  if (out.phase != PodPhase::kPending && !may_fail_pod) return in.status();
  bool has_started = false;
  in.optional("started", has_started);
  read_object(in, "state", [&](const Json& state, const std::string& at) {
    JsonReader reader(state, at);
    if (may_fail_pod) {
      read_object(reader, "terminated", [&](const Json& ended, const std::string& where) {
        Termination end;
        const Status read = read_terminated(ended, where, end);
        end.container = name;
        if (end.exit_code != 0) out.init_failure = std::move(end);
        return read;
      });
      return reader.status();
    }
    if (reader.has("running") && !(stays && has_started)) out.initializing = name;
    read_waiting(reader, "init container " + name + ": ", out);
    return reader.status();
  });
  return in.status();
}

Status read_container_status(const Json& json, const std::string& path, Pod& out) {
  JsonReader in(json, path);
  std::string name;
  in.required("name", name);
  if (name != contract::kContainerName) return in.status();
  in.optional("imageID", out.image_id, 4096);
  read_object(in, "state",
              [&](const Json& state, const std::string& at) { return read_state(state, at, out); });
  return in.status();
}

Status read_condition(const Json& json, const std::string& path, Pod& out) {
  JsonReader in(json, path);
  std::string type, status, reason, message;
  in.required("type", type);
  in.required("status", status);
  in.words("reason", reason);
  in.words("message", message, kMaxMessageBytes);
  if (type == "PodScheduled" && (status == "True" || status == "False")) {
    std::string since;
    in.optional("lastTransitionTime", since);
    const auto time = parse_time(since);
    if (time) (status == "True" ? out.bound_at : out.unbound_since) = *time;
  }
  if (type == "Ready") out.ready = status == "True";
  if (type == "DisruptionTarget") out.is_disrupted = status == "True";
  if (type == kueue::kTerminationTarget && status == "True") {
    out.kueue_stop = reason;
    out.kueue_stop_message = cut(message, kueue::kMaxSaysBytes);
  }
  const bool tells = (type == "PodScheduled" && status == "False") ||
                     (type == "DisruptionTarget" && status == "True");
  if (tells && out.reason.empty()) {
    out.reason = reason;
    out.message = message;
  }
  return in.status();
}

Status read_status(const Json& json, const std::string& path, const std::set<std::string>& staying,
                   Pod& out) {
  JsonReader in(json, path);
  std::string phase;
  in.optional("phase", phase);
  out.phase = phase_of(phase);
  in.words("reason", out.reason);
  in.words("message", out.message, kMaxMessageBytes);
  in.optional("podIP", out.pod_ip, 64);
  read_list(in, "conditions", 256,
            [&](const Json& item, const std::string& at) { return read_condition(item, at, out); });
  read_list(in, "containerStatuses", kMaxContainers, [&](const Json& item, const std::string& at) {
    return read_container_status(item, at, out);
  });
  read_list(in, "initContainerStatuses", kMaxContainers,
            [&](const Json& item, const std::string& at) {
              return read_init_container_status(item, at, staying, out);
            });
  return in.status();
}

Json requests_to_json(const PodRequests& requests) {
  Json json{{"cpu", std::to_string(requests.cpu_millis) + "m"},
            {"memory", std::to_string(requests.memory_bytes)}};
  for (const auto& [name, count] : requests.devices) json[name] = std::to_string(count);
  return json;
}

/// A spec that reads back as the pod's own fields, for a pod that has no whole one.
Json least_spec(const Pod& pod) {
  Json container{{"name", contract::kContainerName},
                 {"resources", {{"requests", requests_to_json(pod.requests)}}}};
  if (pod.requests.master_port) {
    container["ports"] = Json::array({{{"containerPort", kMasterPort}, {"hostPort", kMasterPort}}});
  }
  Json spec{{"containers", Json::array({container})}};
  if (!pod.required_node.empty()) spec["affinity"] = required_node_affinity(pod.required_node);
  if (pod.held_by_kueue) {
    spec["schedulingGates"] = Json::array({Json{{"name", kueue::kAdmissionGate}}});
  }
  return spec;
}

Json terminated_to_json(const Termination& ended) {
  Json json{{"exitCode", ended.exit_code},
            {"reason", ended.reason},
            {"message", cut(ended.message, kMaxTerminationBytes)}};
  if (ended.signal != 0) json["signal"] = ended.signal;
  return json;
}

Json container_status_to_json(const Pod& pod) {
  Json json{{"name", contract::kContainerName}, {"ready", pod.ready}, {"imageID", pod.image_id}};
  if (pod.termination) json["state"]["terminated"] = terminated_to_json(*pod.termination);
  return json;
}

Json init_container_statuses_to_json(const Pod& pod) {
  Json json = Json::array();
  if (pod.init_failure) {
    json.push_back(Json{{"name", pod.init_failure->container},
                        {"state", {{"terminated", terminated_to_json(*pod.init_failure)}}}});
  }
  if (!pod.initializing.empty()) {
    json.push_back(Json{{"name", pod.initializing}, {"state", {{"running", Json::object()}}}});
  }
  return json;
}

}  // namespace

PodRequests::PodRequests(const Resources& worker)
    : cpu_millis(worker.cpu_millis),
      memory_bytes(worker.memory_bytes),
      devices(worker.devices),
      master_port(worker.master_port) {
  if (worker.gpus > 0) devices[worker.gpu_resource] = worker.gpus;
  if (worker.ephemeral_bytes > 0) devices[kEphemeralStorage] = worker.ephemeral_bytes;
}

bool Pod::is_of_job() const {
  const OwnerReference* owner = meta.controller();
  return owner != nullptr && owner->kind == contract::kKindTrainingJob &&
         owner->api_version.starts_with(std::string(contract::kGroup) + "/");
}

bool Pod::is_of_node() const {
  const OwnerReference* owner = meta.controller();
  if (owner == nullptr) return false;
  return (owner->kind == "DaemonSet" && owner->api_version.starts_with("apps/")) ||
         (owner->kind == "Node" && owner->api_version == "v1");
}

std::vector<std::string> borne_taints(const Resources& worker) {
  std::vector<std::string> keys;
  for (const auto& [resource, amount] : PodRequests(worker).devices) {
    if (resource != kEphemeralStorage) keys.push_back(resource);
  }
  return keys;
}

int Pod::slot() const { return label_number(meta, contract::kLabelSlot); }
int Pod::attempt() const { return label_number(meta, contract::kLabelAttempt); }

Json required_node_affinity(const std::string& node) {
  const Json field{{"key", "metadata.name"}, {"operator", "In"}, {"values", Json::array({node})}};
  const Json term{{"matchFields", Json::array({field})}};
  return Json{{"nodeAffinity",
               {{"requiredDuringSchedulingIgnoredDuringExecution",
                 {{"nodeSelectorTerms", Json::array({term})}}}}}};
}

Result<Pod> parse_pod(const Json& json) {
  Pod pod;
  MUSTER_RETURN_IF_ERROR(read_meta(json, pod.meta));
  JsonReader in(json, "");
  std::set<std::string> staying;
  read_object(in, "spec", [&](const Json& object, const std::string& at) {
    return read_spec(object, at, pod, staying);
  });
  read_object(in, "status", [&](const Json& object, const std::string& at) {
    return read_status(object, at, staying, pod);
  });
  MUSTER_RETURN_IF_ERROR(in.status());
  return pod;
}

Json to_json(const Pod& pod) {
  Json json = object_json(Kind::kPod, pod.meta);
  json["spec"] = pod.spec.empty() ? least_spec(pod) : pod.spec;
  if (!pod.node_name.empty()) json["spec"]["nodeName"] = pod.node_name;
  Json status{{"phase", text_of(pod.phase)}};
  if (!pod.reason.empty()) status["reason"] = pod.reason;
  if (!pod.message.empty()) status["message"] = pod.message;
  if (!pod.pod_ip.empty()) status["podIP"] = pod.pod_ip;
  status["conditions"] =
      Json::array({Json{{"type", "Ready"}, {"status", pod.ready ? "True" : "False"}}});
  if (pod.bound_at) {
    status["conditions"].push_back(Json{{"type", "PodScheduled"},
                                        {"status", "True"},
                                        {"lastTransitionTime", format_time(*pod.bound_at)}});
  }
  if (pod.unbound_since) {
    status["conditions"].push_back(Json{{"type", "PodScheduled"},
                                        {"status", "False"},
                                        {"lastTransitionTime", format_time(*pod.unbound_since)}});
  }
  if (pod.is_disrupted) {
    status["conditions"].push_back(Json{{"type", "DisruptionTarget"}, {"status", "True"}});
  }
  if (!pod.kueue_stop.empty()) {
    status["conditions"].push_back(Json{{"type", kueue::kTerminationTarget},
                                        {"status", "True"},
                                        {"reason", pod.kueue_stop},
                                        {"message", pod.kueue_stop_message}});
  }
  if (pod.termination || !pod.image_id.empty()) {
    status["containerStatuses"] = Json::array({container_status_to_json(pod)});
  }
  if (Json first = init_container_statuses_to_json(pod); !first.empty()) {
    status["initContainerStatuses"] = std::move(first);
  }
  json["status"] = std::move(status);
  return json;
}

}  // namespace muster::api
