// `muster describe JOB`: what happened, what it waits for, what would help.
#pragma once

#include <string>

#include "cli/kube_table.h"
#include "cli/kubectl.h"

namespace muster::cli {

struct DescribeOptions {
  std::string job;
};

/// Returns the exit code: 0 also for a job that failed. Blocks: on the cluster.
int describe_command(Kubectl& kubectl, const DescribeOptions& options, const Display& display);

}  // namespace muster::cli
