// `muster fetch JOB`: the model out of the job's claim, with the user's own rights.
#pragma once

#include <string>

#include "cli/kubectl.h"
#include "common/clock.h"

namespace muster::cli {

struct FetchOptions {
  std::string job;
  std::string output;       ///< empty: muster-fetch/<job>
  bool model_only = false;  ///< nothing but model.safetensors
  std::string image;        ///< of the pod; empty: that of the job's workers
  seconds timeout{120};     ///< until the pod runs
};

/// Returns the exit code. The pod it makes is deleted in every end. Blocks: on the cluster.
int fetch_command(Kubectl& kubectl, const FetchOptions& options);

}  // namespace muster::cli
