#include "cli/manifest.h"

#include <filesystem>

#include "cli/overrides.h"
#include "cli/yaml_reader.h"
#include "common/contract.h"

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

std::vector<std::string> notes_of(const api::TrainingJobSpec& spec) {
  std::vector<std::string> notes;
  if (!spec.worker.image.empty()) {
    notes.push_back("spec.worker.image is ignored: a local run starts programs of this machine");
  }
  if (spec.training && spec.training->checkpoint) {
    const api::CheckpointSpec& checkpoint = *spec.training->checkpoint;
    if (!checkpoint.volume_claim_name.empty()) {
      notes.push_back(
          "spec.training.checkpoint.volumeClaimName is ignored: checkpoints are "
          "written below the output directory");
    }
  }
  if (std::string about = api::about_gpus(spec); !about.empty()) notes.push_back(std::move(about));
  return notes;
}

}  // namespace

Result<Manifest> load_manifest(const std::string& file, const std::vector<std::string>& overrides) {
  Manifest manifest;
  MUSTER_ASSIGN_OR_RETURN(manifest.json, read_yaml_file(file));
  if (!manifest.json.is_object()) {
    return invalid(file + ": must be a map that starts with apiVersion and kind");
  }
  for (const std::string& assignment : overrides) {
    MUSTER_RETURN_IF_ERROR(apply_override(assignment, manifest.json));
  }
  manifest.json.erase("status");
  auto job = api::parse_training_job(manifest.json);
  if (!job) {
    return job.error().with(file).with_exit_code(contract::exit_code::kInvalidSpec);
  }
  manifest.job = std::move(*job);
  return manifest;
}

Result<LocalJob> load_job(const std::string& file, const std::vector<std::string>& overrides) {
  LocalJob local;
  MUSTER_ASSIGN_OR_RETURN(Manifest manifest, load_manifest(file, overrides));
  local.manifest = std::move(manifest.json);
  local.job = std::move(manifest.job);
  if (const Status checked = check_local(local.job.spec); !checked) {
    return checked.error().with(file);
  }
  if (local.job.meta.namespace_name.empty()) local.job.meta.namespace_name = "default";
  local.manifest["metadata"]["namespace"] = local.job.meta.namespace_name;
  local.normalised = {{"apiVersion", contract::kApiVersion},
                      {"kind", contract::kKindTrainingJob},
                      {"metadata", {{"name", local.job.meta.name}}},
                      {"spec", api::spec_to_json(local.job.spec)}};
  std::error_code error;
  local.file = file;
  local.directory = std::filesystem::absolute(file, error).lexically_normal().parent_path();
  local.notes = notes_of(local.job.spec);
  return local;
}

}  // namespace muster::cli
