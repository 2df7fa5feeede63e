// The parts of the TrainingJob codec that stand in files of their own. Internal to operator/api.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "operator/api/training_job.h"

namespace muster::api {

/// Largest amounts accepted; the schema's bounds.
inline constexpr std::int64_t kMaxCpuMillis = 1'024'000;
inline constexpr std::int64_t kMinMemoryBytes = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxMemoryBytes = std::int64_t{1} << 46;
inline constexpr std::size_t kMaxDeviceKinds = 16;
inline constexpr std::int64_t kMaxDevices = 1024;  ///< of a kind
inline constexpr int kMaxThreads = 1024;
inline constexpr std::int64_t kMaxExactInteger = (std::int64_t{1} << 53) - 1;

/// Where the token and the CA of the workers' endpoint are mounted; closed to the user's mounts.
inline constexpr const char* kMusterMountPath = "/var/run/secrets/muster.dev";
/// Volume names with this prefix are Muster's own.
inline constexpr const char* kMusterVolumePrefix = "muster-";

/// By which a device plugin says which GPUs of the node are a container's.
inline constexpr std::string_view kVisibleGpus = "NVIDIA_VISIBLE_DEVICES";

/// Reads spec.worker and fills in the defaults that depend on other fields.
Status read_worker(const Json& json, const std::string& path, WorkerSpec& out);
Json worker_to_json(const WorkerSpec& worker);

/// Bounds of what every container of a worker's pod runs.
inline constexpr std::size_t kMaxCommandItems = 64;
inline constexpr std::size_t kMaxArgs = 256;
inline constexpr std::size_t kMaxArgumentBytes = 8192;

/// Reads command, args and env of a container, the worker's or another of its pod; returns how many
/// characters they have together.
struct ProgramFields {
  std::vector<std::string> command, args;
  std::vector<EnvVar> env;
};
std::size_t read_program(JsonReader& in, ProgramFields& out);
/// One environment variable as a pod has it.
Json env_to_json(const EnvVar& variable);
/// Amounts of resources of `json`, the object of `in`; what is absent stays as it is.
void read_amounts(JsonReader& in, const Json& json, Resources& out);

/// envFrom of a container with these GPUs or none.
void read_env_from(JsonReader& in, bool has_gpus);
/// volumeMounts of a container of `worker` (spec.worker as written), which has these volumes.
void read_mounts(JsonReader& in, const Json& worker, const std::vector<std::string>& volumes);

/// Reads affinity of a worker.
void read_node_affinity(JsonReader& in, std::vector<NodeTerm>& out);

/// Reads the members of the allow-list that are kept as written (ports, volumes, ...) from
/// object `worker` of `in` into `out.pod_fields`; `out.resources` has been read. Returns the names
/// of its volumes.
std::vector<std::string> read_pod_fields(JsonReader& in, const Json& worker, WorkerSpec& out);

/// Reads initContainers of `worker`, the object of `in`, whose own fields are in `out` already and
/// which has these volumes; returns how many characters their commands, arguments and values have
/// together.
std::size_t read_init_containers(JsonReader& in, const Json& worker,
                                 const std::vector<std::string>& volumes, WorkerSpec& out);

Status read_training(const Json& json, const std::string& path, TrainingSpec& out);

Status read_training_status(const Json& json, const std::string& path, TrainingJobStatus& out);

}  // namespace muster::api
