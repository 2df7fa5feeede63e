// `muster suspend JOB` and `muster resume JOB`: spec.suspend, and waiting until it is so.
#pragma once

#include <string>

#include "cli/kubectl.h"
#include "common/clock.h"

namespace muster::cli {

struct SuspendOptions {
  std::string job;
  bool suspend = true;  ///< false: resume
  bool waits = false;
  seconds timeout{300};  ///< of waiting
};

/// Returns the exit code: kDeadline when waiting took too long, kFailedJob when the job is over.
/// Blocks: on the cluster.
int suspend_command(Kubectl& kubectl, const SuspendOptions& options);

}  // namespace muster::cli
