// spec.worker.initContainers: what runs in a worker's pod before the worker, to its end.
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

void read_own_resources(JsonReader& in, const Resources& worker, Resources& out) {
  out = worker;
  out.gpus = 0;
  out.devices.clear();
  read_object(in, "resources", [&](const Json& object, const std::string& at) {
    SpecReader reader(object, at);
    read_amounts(reader, object, out);
    reader.no_other_fields();
    if (reader.status()) check_devices(reader, out, worker);
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

void refuse_sidecar(JsonReader& in) {
  std::string policy;
  in.optional("restartPolicy", policy);
  if (!in.has("restartPolicy") || policy == "Never") return;
  in.fail("restartPolicy",
          "must be Never, or left out, not " + in_quotes(policy) +
              ": these containers end before the worker starts, and one that fails is started "
              "again with its gang (spec.restart); what has to run beside the worker (a sidecar) "
              "is started by the worker's own command");
}

Status read_one(const Json& json, const std::string& path, const Json& worker,
                const std::vector<std::string>& volumes, const Resources& of_worker,
                std::size_t& characters, InitContainer& out) {
  SpecReader in(json, path);
  read_container_name(in, out.name);
  refuse_sidecar(in);
  std::string text;
  optional_name(in, "image", text, NameRule::kImage);
  optional_enum(in, "imagePullPolicy", text, {"Always", "IfNotPresent", "Never"});
  optional_name(in, "workingDir", text, NameRule::kAbsolutePath);
  ProgramFields program;
  characters += read_program(in, program);
  out.env = std::move(program.env);
  read_own_resources(in, of_worker, out.resources);
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

Resources pod_resources(const WorkerSpec& worker) {
  Resources most = worker.resources;
  for (const InitContainer& one : worker.init_containers) {
    raise_to(most, one.resources);
    most.ephemeral_bytes = std::max(most.ephemeral_bytes, one.resources.ephemeral_bytes);
    most.gpus = std::max(most.gpus, one.resources.gpus);
  }
  return most;
}

bool has_init_container(const WorkerSpec& worker, const std::string& name) {
  return std::any_of(worker.init_containers.begin(), worker.init_containers.end(),
                     [&](const InitContainer& one) { return one.name == name; });
}

}  // namespace muster::api
