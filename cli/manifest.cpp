#include "cli/manifest.h"

#include <array>
#include <filesystem>
#include <string_view>
#include <utility>

#include "cli/overrides.h"
#include "cli/yaml_reader.h"
#include "common/contract.h"
#include "operator/api/kueue.h"

namespace muster::cli {
namespace {

Error invalid(const std::string& sentence) {
  return Error(ErrorCode::kInvalid, sentence).with_exit_code(contract::exit_code::kInvalidSpec);
}

/// What is right in a cluster and cannot be done by processes of one machine.
Status check_local(const api::TrainingJobSpec& spec) {
  if (spec.managed_by != contract::kManagedBy) {
    return invalid("spec.managedBy: must be " + std::string(contract::kManagedBy) +
                   " for `muster run`, which is that operator");
  }
  if (spec.suspend) {
    return invalid("spec.suspend: must be false for `muster run`; a suspended job never starts");
  }
  if (!spec.training && spec.worker.command.empty()) {
    return invalid(
        "spec.worker.command: is required by `muster run`, which starts programs of this machine "
        "and no images");
  }
  for (const api::EnvVar& variable : spec.worker.env) {
    if (variable.value_from.is_object() && !variable.value_from.contains("fieldRef")) {
      return invalid("spec.worker.env: " + variable.name +
                     " takes its value from the cluster, which a local run does not have; give it "
                     "a value, as with --set");
    }
  }
  return {};
}

/// What only pods have: none of it means anything to a process of this machine. These are fields of
/// spec.worker that are kept as written.
constexpr std::array<std::string_view, 15> kFieldsOfPods{
    "volumes",          "volumeMounts",     "shmSize",
    "resourceClaims",   "nodeSelector",     "affinity",
    "schedulerName",    "runtimeClassName", "serviceAccountName",
    "imagePullSecrets", "imagePullPolicy",  "runAsUser",
    "runAsGroup",       "fsGroup",          "supplementalGroups"};

/// Takes such fields out of a job that this machine is to run, so that none of them decides
/// anything, and gives their paths.
std::vector<std::string> take_fields_of_pods(const api::TrainingJobSpec& spec, Json& manifest) {
  std::vector<std::string> taken;
  if (!spec.worker.image.empty()) taken.emplace_back("spec.worker.image");
  for (const std::string_view field : kFieldsOfPods) {
    if (!spec.worker.pod_fields.contains(field)) continue;
    manifest["spec"]["worker"].erase(std::string(field));
    taken.push_back("spec.worker." + std::string(field));
  }
  // Processes are in this machine's network as it is; as pods there would be one a machine.
  if (spec.worker.host_network) {
    manifest["spec"]["worker"].erase("hostNetwork");
    taken.emplace_back("spec.worker.hostNetwork");
  }
  if (spec.worker.resources.ephemeral_bytes > 0) {
    manifest["spec"]["worker"]["resources"].erase("ephemeralStorage");
    taken.emplace_back("spec.worker.resources.ephemeralStorage");
  }
  manifest["spec"].erase("topology");
  if (!spec.topology_required.empty() || !spec.topology_preferred.empty() ||
      !spec.topology_groups.empty()) {
    taken.emplace_back("spec.topology");
  }
  const bool has_claim = spec.training && spec.training->checkpoint &&
                         !spec.training->checkpoint->volume_claim_name.empty();
  if (has_claim) taken.emplace_back("spec.training.checkpoint.volumeClaimName");
  return taken;
}

/// In words; empty: there are none. They stay in the manifest: what starts a worker goes by them.
std::string about_env_from(const api::TrainingJobSpec& spec) {
  if (!spec.worker.pod_fields.contains("envFrom")) return "";
  return "spec.worker.envFrom is replaced by the variables that `muster run` was started with: a "
         "local run has no ConfigMaps and Secrets";
}

/// In words, and out of the manifest, what runs before workers.
std::string about_init_containers(const api::TrainingJobSpec& spec, Json& manifest) {
  if (spec.worker.init_containers.empty()) return "";
  manifest["spec"]["worker"].erase("initContainers");
  return "spec.worker.initContainers are not run: a local run starts the workers alone; do here "
         "what they do (the data that they fetch, the files that they make) before `muster run`, "
         "and start beside it what is a sidecar";
}

/// Likewise of workers beyond those that are counted.
std::string about_growth(const api::TrainingJobSpec& spec, Json& manifest) {
  if (spec.worker.grows_to == "Count") return "";
  manifest["spec"]["worker"].erase("growsTo");
  return "spec.worker.growsTo is ignored: a local run has no queue that takes back what is beyond "
         "spec.worker.count";
}

/// Likewise of what the job says to Kueue: workers that it has let in are not resized.
std::string about_kueue(const api::ObjectMeta& meta, Json& manifest) {
  bool has_any = false;
  const auto take = [&](const char* kind, const auto& entries) {
    for (const auto& [key, value] : entries) {
      if (!key.starts_with(api::kueue::kPrefix)) continue;
      manifest["metadata"][kind].erase(key);
      has_any = true;
    }
  };
  take("labels", meta.labels);
  take("annotations", meta.annotations);
  if (!has_any) return "";
  return "labels and annotations of " + std::string(api::kueue::kPrefix) +
         " are ignored: a local run has no Kueue, and has as many workers as spec.worker.count "
         "says";
}

/// Of the directory of a file, a path without "." and "..".
std::string directory_of(const std::string& file) {
  std::error_code error;
  const std::filesystem::path place = std::filesystem::absolute(file, error);
  const auto as_text = place.lexically_normal().parent_path(), parent = place.parent_path();
  // "LINK/.." is where the link leads to, and one up; as text it is where the link stands.
  if (std::filesystem::equivalent(as_text, parent, error)) return as_text;
  const auto resolved = std::filesystem::canonical(parent, error);
  return error ? as_text : resolved;
}

/// In words; empty: nothing is ignored.
std::string about_ignored(const std::vector<std::string>& fields) {
  std::string text;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < fields.size() ? ", " : " and ") + fields[i];
  }
  if (fields.empty()) return text;
  return text + (fields.size() == 1 ? " is" : " are") +
         " ignored: a local run starts programs of this machine, which see its files, and writes "
         "checkpoints below the output directory";
}

}  // namespace

Result<Manifest> load_manifest(const std::string& path, const std::vector<std::string>& overrides) {
  Manifest manifest;
  MUSTER_ASSIGN_OR_RETURN(manifest.json, read_yaml_file(path));
  const std::string file = name_of_file(path);
  if (!manifest.json.is_object()) {
    return invalid(file + ": must be a map that starts with apiVersion and kind");
  }
  for (const std::string& assignment : overrides) {
    MUSTER_RETURN_IF_ERROR(apply_override(assignment, manifest.json));
  }
  if (manifest.json.value("kind", Json()) == Json(contract::kKindTrainingQueue)) {
    return invalid(file + ": kind: must be " + std::string(contract::kKindTrainingJob) +
                   "; a TrainingQueue is for kubectl apply");
  }
  manifest.json.erase("status");
  auto job = api::parse_training_job(manifest.json);
  if (!job) {
    return job.error().with(file).with_exit_code(contract::exit_code::kInvalidSpec);
  }
  manifest.job = std::move(*job);
  return manifest;
}

Result<LocalJob> load_job(const std::string& path, const std::vector<std::string>& overrides) {
  LocalJob local;
  MUSTER_ASSIGN_OR_RETURN(Manifest manifest, load_manifest(path, overrides));
  local.file = name_of_file(path);
  local.manifest = std::move(manifest.json);
  local.job = std::move(manifest.job);
  if (const Status checked = check_local(local.job.spec); !checked) {
    return checked.error().with(local.file);
  }
  if (local.job.meta.namespace_name.empty()) local.job.meta.namespace_name = "default";
  local.manifest["metadata"]["namespace"] = local.job.meta.namespace_name;
  local.normalised = {{"apiVersion", contract::kApiVersion},
                      {"kind", contract::kKindTrainingJob},
                      {"metadata", {{"name", local.job.meta.name}}},
                      {"spec", api::spec_to_json(local.job.spec)}};
  local.directory = directory_of(is_read_once(path) ? kStandardInput : path);  // else /dev/fd, say
  for (std::string note :
       {about_ignored(take_fields_of_pods(local.job.spec, local.manifest)),
        about_init_containers(local.job.spec, local.manifest), about_env_from(local.job.spec),
        about_growth(local.job.spec, local.manifest), about_kueue(local.job.meta, local.manifest),
        api::about_gpus(local.job.spec)}) {
    if (!note.empty()) local.notes.push_back(std::move(note));
  }
  return local;
}

}  // namespace muster::cli
