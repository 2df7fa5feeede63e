#include "cli/fetch_plan.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/kube_table.h"
#include "cli/output_directory.h"
#include "common/contract.h"
#include "common/json.h"
#include "common/model_files.h"
#include "common/utf8.h"
#include "operator/api/pod.h"

namespace muster::cli {
namespace {

constexpr const char* kVolume = "checkpoint";
/// Of a value that a manifest holds, which anybody may have written.
constexpr std::size_t kMaxSavedBytes = 200;

/// Labels by which the pods that fetch from a job are told from all others, also of charts that
/// name a component so.
std::vector<std::pair<std::string, std::string>> marks_of(const api::TrainingJob& job) {
  return {{"app.kubernetes.io/name", "muster"},
          {"app.kubernetes.io/component", "fetch"},
          {"app.kubernetes.io/instance", job.meta.name}};
}

Error nothing_kept(const std::string& sentence) {
  return Error(ErrorCode::kNotFound, sentence).with_exit_code(contract::exit_code::kNoCheckpoint);
}

/// What stands under a name as "spec.training.seed"; nullptr where nothing does.
const Json* find_field(const Json& object, std::string_view name) {
  const Json* at = &object;
  for (;;) {
    const std::size_t dot = name.find('.');
    const auto found = at->is_object() ? at->find(std::string(name.substr(0, dot))) : at->end();
    if (!at->is_object() || found == at->end()) return nullptr;
    at = &*found;
    if (dot == std::string_view::npos) return at;
    name.remove_prefix(dot + 1);
  }
}

std::string how_far(const api::TrainingJob& job) {
  std::string text = job.status.phase.empty() ? "not started" : job.status.phase;
  if (!job.status.progress) return text;
  text += ", step " + grouped(job.status.progress->step);
  if (job.status.progress->total_steps > 0) {
    text += " of " + grouped(job.status.progress->total_steps);
  }
  return text;
}

}  // namespace

Result<FetchPlan> plan_fetch(const api::TrainingJob& job, bool model_only) {
  const std::string name = "the job " + job.meta.name;
  if (!job.spec.training) {
    return nothing_kept(name +
                        " runs a program of its own: where that keeps its results, only it "
                        "knows (spec.worker.volumes)");
  }
  const auto& checkpoint = job.spec.training->checkpoint;
  if (!checkpoint || checkpoint->volume_claim_name.empty()) {
    return nothing_kept("no model was kept: " + name +
                        " has no spec.training.checkpoint.volumeClaimName, so what it wrote was on "
                        "the own disk of slot 0's node, and is lost with its pod");
  }
  const std::string model(contract::kModelFile);
  FetchPlan plan;
  if (job.status.is_true("Complete")) {
    std::vector<std::string> wanted{model};
    if (!model_only) {
      wanted.emplace_back(contract::kRecordFile);
      if (job.spec.training->model.contains("gpt")) {
        wanted.emplace_back(contract::kModelConfigFile);
        wanted.emplace_back(contract::kSampleFile);
        wanted.emplace_back(contract::kVocabularyFile);
        wanted.emplace_back(contract::kMergesFile);
      } else {
        wanted.emplace_back(contract::kClassesFile);
        wanted.emplace_back(contract::kInputsFile);
      }
    }
    plan.directory = checkpoint->path;
    plan.last = *std::max_element(wanted.begin(), wanted.end());
    plan.wants = [wanted](const std::string& file) {
      return std::find(wanted.begin(), wanted.end(), file) != wanted.end() ? file : std::string();
    };
    plan.names = std::move(wanted);
    plan.model_sha256 = job.status.model_sha256;
    return plan;
  }
  if (!job.status.checkpoint || job.status.checkpoint->step < 0) {
    return nothing_kept(name + " is not complete (" + how_far(job) + ") and has no checkpoint yet");
  }
  const std::string step = checkpoint_name(job.status.checkpoint->step);
  plan.directory = checkpoint->path + "/" + step;
  plan.notice = "Note: " + name + " is not complete (" + how_far(job) +
                "); this is its checkpoint of step " + grouped(job.status.checkpoint->step) + ".";
  if (model_only) plan.names = {model};
  plan.wants = [=](const std::string& file) {
    if (model_only) return file == model ? file : std::string();
    return step + "/" + file;
  };
  return plan;
}

std::string told_by_manifest(const api::TrainingJob& job, const Json& manifest) {
  const Json& identity = member(manifest, {"identity"});
  if (!identity.is_object()) return "";
  const Json spec{{"spec", {{"training", api::training_to_json(*job.spec.training)}}}};
  for (const auto& [field, saved] : identity.items()) {
    // Decimals are written in more than one way, and defaults in none.
    const bool is_plain = saved.is_number_integer() || saved.is_array();
    const Json* const own = is_plain ? find_field(spec, field) : nullptr;
    if (own == nullptr || *own == saved) continue;
    const std::string was(utf8_head(dump_json(saved), kMaxSavedBytes));
    return field + " was " + was + " when it was saved, and of this job is " + dump_json(*own);
  }
  return "";
}

std::string node_of_claim(const std::vector<PodView>& pods) {
  for (const PodView& pod : pods) {
    if (pod.slot == 0 && !pod.is_over() && !pod.node.empty()) return pod.node;
  }
  return "";
}

std::string fetch_selector(const api::TrainingJob& job) {
  std::string selector;
  for (const auto& [label, value] : marks_of(job)) {
    selector += (selector.empty() ? "" : ",") + label + "=" + value;
  }
  return selector;
}

Json make_fetch_pod(const api::TrainingJob& job, const FetchPodFacts& facts) {
  const api::CheckpointSpec& checkpoint = *job.spec.training->checkpoint;
  const Json& fields = job.spec.worker.pod_fields;
  const Json amounts{{"cpu", "200m"}, {"memory", "128Mi"}};
  Json container{
      {"name", kFetchContainer},
      {"image", facts.image},
      {"args", Json::array({contract::kWorkerFlagWait, std::to_string(kFetchPodSeconds)})},
      {"resources", {{"requests", amounts}, {"limits", amounts}}},
      {"volumeMounts",
       Json::array({Json{{"name", kVolume}, {"mountPath", checkpoint.path}, {"readOnly", true}}})},
      {"securityContext", api::restricted_container_context()}};
  container["securityContext"]["readOnlyRootFilesystem"] = true;
  if (!facts.pull_policy.empty()) container["imagePullPolicy"] = facts.pull_policy;
  Json spec{{"restartPolicy", "Never"},
            {"activeDeadlineSeconds", kFetchPodSeconds},
            {"terminationGracePeriodSeconds", 1},
            {"automountServiceAccountToken", false},
            {"enableServiceLinks", false},
            {"securityContext", api::restricted_pod_context(fields)},
            {"containers", Json::array({std::move(container)})},
            {"volumes", Json::array({Json{{"name", kVolume},
                                          {"persistentVolumeClaim",
                                           {{"claimName", checkpoint.volume_claim_name}}}}})}};
  // It is who the workers are, stands where they may and is pulled with what they are pulled with.
  // The claim's node is better known than by their selector.
  for (const char* field : {"tolerations", "imagePullSecrets", "serviceAccountName",
                            "runtimeClassName", "nodeSelector", "affinity"}) {
    const auto found = fields.find(field);
    if (found != fields.end()) spec[field] = *found;
  }
  if (!facts.node.empty()) {
    spec.erase("nodeSelector");
    spec["affinity"] = api::required_node_affinity(facts.node);
  }
  // Without Muster's own labels and without the job as its owner: such a pod is a worker, and only
  // the operator may make one.
  Json labels = Json::object();
  for (const auto& [label, value] : marks_of(job)) labels[label] = value;
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", facts.name}, {"labels", std::move(labels)}}},
          {"spec", std::move(spec)}};
}

}  // namespace muster::cli
