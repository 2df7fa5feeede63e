// What `muster fetch` copies for a job, and the pod that it reads the claim with. Pure.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/kube_objects.h"
#include "common/result.h"
#include "operator/api/training_job.h"

namespace muster::cli {

struct FetchPlan {
  std::string directory;  ///< in the pod
  std::string notice;     ///< for the user; empty: the model is final
  /// Where a file of that directory goes below the output directory; "" = nowhere.
  std::function<std::string(const std::string&)> wants;
  /// Of that directory, all that `wants` may take; empty: all of it.
  std::vector<std::string> names;
  std::string last;          ///< the last name wanted, in sorted order; "" = any may be
  std::string model_sha256;  ///< what the model must have; "" = not known
};

/// Of a complete job the model, its record and what a model of text has beside it; of another its
/// newest durable checkpoint, with a notice; with `model_only` nothing but model.safetensors.
/// Errors: exit code kNoCheckpoint, with the sentence why nothing was kept.
Result<FetchPlan> plan_fetch(const api::TrainingJob& job, bool model_only);

/// Which field of the job's spec is not what a checkpoint with this `manifest` was saved with, in
/// words: then it is another job's, of the same claim. Empty: nothing tells that it is, as where it
/// is damaged.
std::string told_by_manifest(const api::TrainingJob& job, const nlohmann::json& manifest);

inline constexpr const char* kFetchContainer = "fetch";
/// Its deadline, whatever happens to muster: the most that a worker waits. A large checkpoint over
/// a slow line takes hours, and a pod that ends meanwhile ends that, too.
inline constexpr int kFetchPodSeconds = 86'400;

struct FetchPodFacts {
  std::string name;
  std::string image;
  std::string pull_policy;  ///< empty: the cluster's default
  std::string node;         ///< that the claim is in use on; empty: any
};

/// What tells the pods of make_fetch_pod from others, as `kubectl --selector` takes it.
std::string fetch_selector(const api::TrainingJob& job);

/// A pod that waits with the job's claim mounted read-only. It meets Pod Security `restricted`. The
/// job does not own it, so that it stays until it is deleted.
nlohmann::json make_fetch_pod(const api::TrainingJob& job, const FetchPodFacts& facts);

/// The node whose kubelet has the claim mounted for writing now; "" when no pod of slot 0 runs.
std::string node_of_claim(const std::vector<PodView>& pods);

}  // namespace muster::cli
