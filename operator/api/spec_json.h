// The parts of the TrainingJob codec that stand in files of their own. Internal to operator/api.
#pragma once

#include <string>

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

/// Reads spec.worker and fills in the defaults that depend on other fields.
Status read_worker(const Json& json, const std::string& path, WorkerSpec& out);
Json worker_to_json(const WorkerSpec& worker);

/// Reads the members of the allow-list that are kept as written (ports, volumes, ...) from
/// object `worker` of `in` into `out.pod_fields`; `out.resources` has been read.
void read_pod_fields(JsonReader& in, const Json& worker, WorkerSpec& out);

Status read_training(const Json& json, const std::string& path, TrainingSpec& out);

Status read_training_status(const Json& json, const std::string& path, TrainingJobStatus& out);

}  // namespace muster::api
