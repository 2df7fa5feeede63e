// What to run for a pod: its `worker` container as a command line and an environment. Pure.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace muster::embedded {

struct PodProgram {
  std::vector<std::string> argv;
  std::map<std::string, std::string> environment;
  /// GPUs to choose for it: those that its container asks for. None for the built-in worker, whose
  /// processes choose themselves, and where the pod says which with CUDA_VISIBLE_DEVICES.
  int gpus = 0;
};

struct PodProgramOptions {
  std::string worker_program;  ///< run where the container names no command
  std::string node_name;
  std::map<std::string, std::string> base_environment;         ///< under the pod's own
  std::vector<std::pair<std::string, std::string>> extra_env;  ///< over the pod's own
};

/// Command, arguments and environment of the `worker` container, with $(NAME) written out as
/// Kubernetes does: of the pod's own variables and, where it has envFrom, of the base. Errors:
/// kInvalid with a sentence when the pod asks for what processes of one machine do not have (a
/// Secret, an image without a command).
Result<PodProgram> program_of_pod(const Json& pod, const PodProgramOptions& options);

}  // namespace muster::embedded
