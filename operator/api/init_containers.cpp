// spec.worker.initContainers: what starts in a worker's pod before the worker, and runs to its end
// or stays beside it (a sidecar).
#include <algorithm>
#include <utility>

#include "common/contract.h"
#include "operator/api/fields.h"
#include "operator/api/pod.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxInitContainers = 8;

/// It may look at the worker's devices before the worker has them, and needs no others.
void check_devices(JsonReader& in, const Resources& amounts, const Resources& worker) {
  if (amounts.gpus > worker.gpus) {
    in.fail("gpus", "must be at most the worker's, " + std::to_string(worker.gpus) + ", not " +
                        std::to_string(amounts.gpus));
  }
  for (const auto& [name, amount] : amounts.devices) {
    const auto has = worker.devices.find(name);
    const std::int64_t most = has == worker.devices.end() ? 0 : has->second;
    if (amount <= most) continue;
    in.fail("devices", "must be at most the worker's, " + std::to_string(most) + " of " + name +
                           ", not " + std::to_string(amount));
  }
}

/// It runs beside the worker: what it has, the pod takes in addition, and a device is one
/// container's.
void check_sidecar(JsonReader& in, const Resources& amounts) {
  for (const char* field : {"cpu", "memory"}) {
    if (in.has(field)) continue;
    in.fail(field, "is required of a sidecar: its pod takes that in addition to the worker's");
  }
  const bool has_devices = !amounts.devices.empty();
  if (amounts.gpus == 0 && !has_devices) return;
  in.fail(has_devices ? "devices" : "gpus",
          "must be left out of a sidecar: the devices of a worker's pod are the worker's");
}

void read_own_resources(JsonReader& in, const Resources& worker, InitContainer& one) {
  Resources& out = one.resources;
  out = worker;
  out.gpus = 0;
  out.devices.clear();
  if (one.stays) out.ephemeral_bytes = 0;
  if (one.stays && !in.has("resources")) {
    in.fail("resources",
            "is required of a sidecar, with cpu and memory: its pod takes that in addition to the "
            "worker's");
  }
  read_object(in, "resources", [&](const Json& object, const std::string& at) {
    SpecReader reader(object, at);
    read_amounts(reader, object, out);
    reader.no_other_fields();
    if (!reader.status()) return reader.status();
    if (one.stays) check_sidecar(reader, out);
    check_devices(reader, out, worker);
    return reader.status();
  });
}

void read_container_name(JsonReader& in, std::string& out) {
  required_name(in, "name", out, NameRule::kLabel);
  if (!in.status()) return;
  if (out == contract::kContainerName || out.starts_with(kMusterVolumePrefix)) {
    in.fail("name", "must not be " + std::string(contract::kContainerName) +
                        ", nor start with \"muster-\"; those containers are Muster's own");
  }
}

/// What the kubelet would ask of it, or do at its start and end.
void refuse_probes(JsonReader& in) {
  for (const char* field : {"startupProbe", "readinessProbe", "livenessProbe", "lifecycle"}) {
    if (!in.has(field)) continue;
    in.fail(field,
            "must be left out: the worker starts as soon as a sidecar runs, and waits itself for "
            "what that gets ready");
  }
}

Status read_one(const Json& json, const std::string& path, const Json& worker,
                const std::vector<std::string>& volumes, const Resources& of_worker,
                std::size_t& characters, InitContainer& out) {
  SpecReader in(json, path);
  read_container_name(in, out.name);
  std::string text;
  optional_enum(in, "restartPolicy", text, {"Never", "Always"});
  out.stays = text == "Always";
  refuse_probes(in);
  optional_name(in, "image", text, NameRule::kImage);
  optional_enum(in, "imagePullPolicy", text, {"Always", "IfNotPresent", "Never"});
  optional_name(in, "workingDir", text, NameRule::kAbsolutePath);
  ProgramFields program;
  characters += read_program(in, program);
  out.env = std::move(program.env);
  read_own_resources(in, of_worker, out);
  read_env_from(in, out.resources.gpus > 0);
  read_mounts(in, worker, volumes);
  in.no_other_fields();
  // The worker's image by its own entry point would be a second worker.
  if (in.status() && !in.has("image") && !in.has("command")) {
    in.fail("command", "is required unless image is given; the image left out is the worker's");
  }
  out.fields = without_nulls(json);
  return in.status();
}

}  // namespace

std::size_t read_init_containers(JsonReader& in, const Json& worker,
                                 const std::vector<std::string>& volumes, WorkerSpec& out) {
  std::size_t characters = 0;
  if (!worker.is_object()) return characters;
  std::vector<std::string> names;
  read_list(
      in, "initContainers", kMaxInitContainers,
      [&](const Json& item, const std::string& at) -> Status {
        InitContainer& one = out.init_containers.emplace_back();
        MUSTER_RETURN_IF_ERROR(read_one(item, at, worker, volumes, out.resources, characters, one));
        return add_unique(names, one.name, at + ".name", "the container");
      });
  return characters;
}

namespace {

/// What the pod takes while `one` runs, and what has stayed so far.
Resources beside(const Resources& one, const Resources& staying) {
  Resources sum = one;
  sum.cpu_millis += staying.cpu_millis;
  sum.memory_bytes += staying.memory_bytes;
  sum.ephemeral_bytes += staying.ephemeral_bytes;
  return sum;
}

}  // namespace

Resources pod_resources(const WorkerSpec& worker) {
  Resources staying;
  staying.cpu_millis = staying.memory_bytes = 0;
  Resources most = worker.resources;
  most.master_port = worker.host_network;
  const auto raise = [&](const Resources& now) {
    raise_to(most, now);
    most.ephemeral_bytes = std::max(most.ephemeral_bytes, now.ephemeral_bytes);
    most.gpus = std::max(most.gpus, now.gpus);
  };
  for (const InitContainer& one : worker.init_containers) {
    const Resources now = beside(one.resources, staying);
    raise(now);
    if (one.stays) staying = now;
  }
  raise(beside(worker.resources, staying));
  return most;
}

bool has_init_container(const WorkerSpec& worker, const std::string& name) {
  return std::any_of(worker.init_containers.begin(), worker.init_containers.end(),
                     [&](const InitContainer& one) { return one.name == name; });
}

}  // namespace muster::api
