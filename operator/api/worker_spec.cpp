// spec.worker: how many, how large, and what they run.
#include <algorithm>
#include <array>
#include <utility>

#include "common/messages.h"
#include "operator/api/fields.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxEnv = 128;
/// Of command, args and the values of env together, of all containers.
constexpr std::size_t kMaxTextsCharacters = 49'152;

/// Names that Muster sets, or that would let a job reach past what it was given.
bool is_reserved_env(const std::string& name) {
  static constexpr std::array<std::string_view, 16> kNames = {
      "LD_PRELOAD",         "LD_AUDIT",      "NVIDIA_VISIBLE_DEVICES",
      "NCCL_COMM_ID",       "NCCL_RAS_ADDR", "RANK",
      "LOCAL_RANK",         "WORLD_SIZE",    "MASTER_ADDR",
      "MASTER_PORT",        "TF_CONFIG",     "PET_NNODES",
      "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR",
      "PET_MASTER_PORT"};
  return name.starts_with("MUSTER_") || name.starts_with("PET_RDZV_") ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool is_pod_field_path(const std::string& path) {
  for (const char* known : {"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
                            "spec.serviceAccountName", "status.hostIP", "status.hostIPs",
                            "status.podIP", "status.podIPs"}) {
    if (path == known) return true;
  }
  for (const std::string prefix : {"metadata.labels['", "metadata.annotations['"}) {
    if (path.starts_with(prefix) && path.ends_with("']") &&
        matches(NameRule::kQualified,
                path.substr(prefix.size(), path.size() - prefix.size() - 2))) {
      return true;
    }
  }
  return false;
}

Status read_key_ref(const Json& json, const std::string& path) {
  SpecReader in(json, path);
  std::string name, key;
  bool is_optional = false;
  required_name(in, "name", name, NameRule::kSubdomain);
  required_name(in, "key", key, NameRule::kConfigKey);
  in.optional("optional", is_optional);
  in.no_other_fields();
  return in.status();
}

Status read_field_ref(const Json& json, const std::string& path) {
  SpecReader in(json, path);
  std::string version, field;
  optional_enum(in, "apiVersion", version, {"v1"});
  in.required("fieldPath", field, 512);
  in.no_other_fields();
  if (in.status() && !is_pod_field_path(field)) {
    in.fail("fieldPath",
            "must be metadata.name, metadata.namespace, metadata.uid, metadata.labels['NAME'], "
            "metadata.annotations['NAME'], spec.nodeName, spec.serviceAccountName, status.hostIP "
            "or status.podIP, not " +
                in_quotes(field));
  }
  return in.status();
}

Status read_env_source(const Json& json, const std::string& path) {
  SpecReader in(json, path);
  read_object(in, "secretKeyRef", read_key_ref);
  read_object(in, "configMapKeyRef", read_key_ref);
  read_object(in, "fieldRef", read_field_ref);
  in.no_other_fields();
  one_of(in, {"secretKeyRef", "configMapKeyRef", "fieldRef"});
  return in.status();
}

Status read_env(const Json& json, const std::string& path, EnvVar& out) {
  SpecReader in(json, path);
  required_name(in, "name", out.name, NameRule::kEnvName);
  in.optional("value", out.value, kMaxArgumentBytes);
  read_object(in, "valueFrom", read_env_source);
  in.no_other_fields();
  if (!in.status()) return in.status();
  if (is_reserved_env(out.name)) {
    in.fail("name",
            in_quotes(out.name) + " is set by Muster or closed to jobs; choose another name");
  }
  if (in.has("valueFrom")) {
    if (!out.value.empty()) in.fail("value", "must be left out when valueFrom is set");
    out.value_from = without_nulls(json["valueFrom"]);
  }
  return in.status();
}

constexpr const char* kOfPlugins =
    "must be a device plugin's name; those of kubernetes.io are the cluster's own";

/// Whether the cluster's own resources and those of quotas have such names.
bool is_of_cluster(const std::string& resource) {
  return resource.find("kubernetes.io/") != std::string::npos || resource.starts_with("requests.");
}

void read_devices(JsonReader& in, Resources& out) {
  read_object(in, "devices", [&](const Json& map, const std::string& path) -> Status {
    if (map.size() > kMaxDeviceKinds) {
      return Error(ErrorCode::kInvalid,
                   path + ": has more than " + std::to_string(kMaxDeviceKinds) + " entries");
    }
    for (const auto& [name, amount] : map.items()) {
      const auto refuse = [&](const std::string& why) {
        return Error(ErrorCode::kInvalid, path + "." + cut(name, 64) + ": " + why);
      };
      if (amount.is_null()) continue;
      if (!matches(NameRule::kDomainPath, name)) {
        return refuse("must be a resource's name like \"rdma/hca\" or \"example.com/nic\"");
      }
      if (is_of_cluster(name)) return refuse(kOfPlugins);
      if (name == out.gpu_resource) return refuse("is gpuResource; gpus says how many");
      const bool is_amount = amount.is_number_integer() && amount >= 1 && amount <= kMaxDevices;
      if (!is_amount) {
        return refuse("must be an integer from 1 to " + std::to_string(kMaxDevices));
      }
      out.devices[name] = amount.get<std::int64_t>();
    }
    return {};
  });
}

/// A quantity of bytes from 1Mi to 64Ti.
void read_memory(JsonReader& in, const Json& json, const char* field, std::int64_t& out) {
  read_quantity(in, json, field, out, parse_bytes);
  if (!in.has(field) || !in.status()) return;
  if (out < kMinMemoryBytes || out > kMaxMemoryBytes) {
    in.fail(field, "must be from 1Mi to 64Ti, not " + std::to_string(out) + " bytes");
  }
}

Status read_resources(const Json& json, const std::string& path, Resources& out) {
  SpecReader in(json, path);
  optional_name(in, "gpuResource", out.gpu_resource, NameRule::kDomainPath);
  if (in.status() && is_of_cluster(out.gpu_resource)) {
    in.fail("gpuResource", kOfPlugins);
  }
  read_amounts(in, json, out);
  in.no_other_fields();
  return in.status();
}

std::size_t characters(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

void check_texts(JsonReader& in, std::size_t sum) {
  if (!in.status() || sum <= kMaxTextsCharacters) return;
  in.fail("", "command, args and the values of env are " + std::to_string(sum) +
                  " characters together, more than " + std::to_string(kMaxTextsCharacters) +
                  "; move large values into a ConfigMap");
}

void check_counts(JsonReader& in, const WorkerSpec& worker) {
  if (!in.status()) return;
  const std::string count = std::to_string(worker.count);
  if (worker.count < worker.min) {
    in.fail("count", "is " + count + ", fewer than min (" + std::to_string(worker.min) +
                         "); raise count or lower min");
  }
  if (worker.count > worker.max) {
    in.fail("count", "is " + count + ", more than max (" + std::to_string(worker.max) +
                         "); lower count or raise max");
  }
}

std::string bytes_quantity(std::int64_t bytes) {
  std::string text = std::to_string(bytes);
  constexpr std::array<const char*, 4> kUnits = {"Ki", "Mi", "Gi", "Ti"};
  for (std::size_t i = 0; i < kUnits.size() && bytes > 0 && bytes % 1024 == 0; ++i) {
    bytes /= 1024;
    text = std::to_string(bytes) + kUnits[i];
  }
  return text;
}

Json resources_to_json(const Resources& resources) {
  const std::int64_t cpu = resources.cpu_millis;
  Json json{{"cpu", cpu % 1000 == 0 ? std::to_string(cpu / 1000) : std::to_string(cpu) + "m"},
            {"memory", bytes_quantity(resources.memory_bytes)},
            {"gpus", resources.gpus},
            {"gpuResource", resources.gpu_resource}};
  if (!resources.devices.empty()) json["devices"] = resources.devices;
  if (resources.ephemeral_bytes > 0) {
    json["ephemeralStorage"] = bytes_quantity(resources.ephemeral_bytes);
  }
  return json;
}

}  // namespace

void read_amounts(JsonReader& in, const Json& json, Resources& out) {
  read_quantity(in, json, "cpu", out.cpu_millis, parse_cpu_millis);
  if (in.status() && (out.cpu_millis < 1 || out.cpu_millis > kMaxCpuMillis)) {
    in.fail("cpu", "must be from 1m to 1024, not " + std::to_string(out.cpu_millis) + "m");
  }
  read_memory(in, json, "memory", out.memory_bytes);
  read_memory(in, json, "ephemeralStorage", out.ephemeral_bytes);
  in.optional("gpus", out.gpus, {0, kMaxGpus});
  read_devices(in, out);
}

std::size_t read_program(JsonReader& in, ProgramFields& out) {
  read_strings(in, "command", kMaxCommandItems, kMaxArgumentBytes, out.command);
  if (in.status() && !out.command.empty() && out.command.front().empty()) {
    in.fail("command[0]", "must name a program");
  }
  if (in.has("command") && out.command.empty()) {
    in.fail("command", "must not be empty; leave it out for the image's own");
  }
  read_strings(in, "args", kMaxArgs, kMaxArgumentBytes, out.args);
  if (in.has("args") && out.args.empty()) in.fail("args", "must not be empty; leave it out");
  std::vector<std::string> names;
  read_list(in, "env", kMaxEnv, [&](const Json& item, const std::string& at) -> Status {
    EnvVar& variable = out.env.emplace_back();
    MUSTER_RETURN_IF_ERROR(read_env(item, at, variable));
    return add_unique(names, variable.name, at + ".name", "the variable");
  });
  std::size_t sum = 0;
  for (const auto& word : out.command) sum += characters(word);
  for (const auto& word : out.args) sum += characters(word);
  for (const auto& variable : out.env) sum += characters(variable.value);
  return sum;
}

Json env_to_json(const EnvVar& variable) {
  Json entry{{"name", variable.name}};
  if (variable.value_from.is_null()) {
    entry["value"] = variable.value;
  } else {
    entry["valueFrom"] = variable.value_from;
  }
  return entry;
}

Status read_worker(const Json& json, const std::string& path, WorkerSpec& out) {
  SpecReader in(json, path);
  in.optional("count", out.count, {1, kMaxWorkers});
  out.min = out.max = out.count;
  in.optional("min", out.min, {1, kMaxWorkers});
  in.optional("max", out.max, {1, kMaxWorkers});
  check_counts(in, out);
  optional_enum(in, "growsTo", out.grows_to, {"Count", "Max"});
  optional_enum(in, "shape", out.shape, {"Fixed", "Free"});
  read_object(in, "resources", [&](const Json& object, const std::string& at) {
    return read_resources(object, at, out.resources);
  });
  out.processes = std::max(1, static_cast<int>(out.resources.gpus));
  in.optional("processes", out.processes, {1, kMaxProcesses});
  out.threads = static_cast<int>(
      std::clamp<std::int64_t>(out.resources.cpu_millis / 1000 / out.processes, 1, kMaxThreads));
  in.optional("threads", out.threads, {1, kMaxThreads});
  optional_name(in, "image", out.image, NameRule::kImage);
  in.optional("hostNetwork", out.host_network);
  ProgramFields program;
  const std::size_t characters_of_worker = read_program(in, program);
  out.command = std::move(program.command);
  out.args = std::move(program.args);
  out.env = std::move(program.env);
  const std::vector<std::string> volumes = read_pod_fields(in, json, out);
  check_texts(in, characters_of_worker + read_init_containers(in, json, volumes, out));
  in.no_other_fields();
  return in.status();
}

int largest_size(const WorkerSpec& worker) {
  if (worker.shape != "Free" || worker.min != worker.count || worker.max != worker.count) return 1;
  std::int64_t largest = kMaxProcesses;
  const auto limit = [&](std::int64_t most, std::int64_t of_one) {
    if (of_one > 0) largest = std::min(largest, most / of_one);
  };
  const Resources& resources = worker.resources;
  limit(kMaxProcesses, worker.processes);
  limit(kMaxCpuMillis, resources.cpu_millis);
  limit(kMaxMemoryBytes, resources.memory_bytes);
  limit(kMaxMemoryBytes, resources.ephemeral_bytes);
  limit(kMaxGpus, resources.gpus);
  for (const auto& [name, amount] : resources.devices) limit(kMaxDevices, amount);
  return static_cast<int>(std::max<std::int64_t>(1, largest));
}

WorkerSpec with_size(WorkerSpec worker, int size) {
  const auto scale = [&](auto& amount) { amount = amount / worker.size * size; };
  for (int* workers : {&worker.count, &worker.min, &worker.max}) {
    *workers = *workers * worker.size / size;
  }
  scale(worker.processes);
  scale(worker.resources.cpu_millis);
  scale(worker.resources.memory_bytes);
  scale(worker.resources.ephemeral_bytes);
  scale(worker.resources.gpus);
  for (auto& [name, amount] : worker.resources.devices) scale(amount);
  worker.size = size;
  return worker;
}

Json worker_to_json(const WorkerSpec& worker) {
  if (worker.size != 1) return worker_to_json(with_size(worker, 1));
  Json json = worker.pod_fields;
  json["count"] = worker.count;
  json["min"] = worker.min;
  json["max"] = worker.max;
  if (worker.grows_to != "Count") json["growsTo"] = worker.grows_to;
  if (worker.shape != "Fixed") json["shape"] = worker.shape;
  json["processes"] = worker.processes;
  json["threads"] = worker.threads;
  json["resources"] = resources_to_json(worker.resources);
  if (!worker.image.empty()) json["image"] = worker.image;
  if (worker.host_network) json["hostNetwork"] = true;
  if (!worker.command.empty()) json["command"] = worker.command;
  if (!worker.args.empty()) json["args"] = worker.args;
  for (const auto& variable : worker.env) json["env"].push_back(env_to_json(variable));
  for (const auto& one : worker.init_containers) json["initContainers"].push_back(one.fields);
  return json;
}

}  // namespace muster::api
