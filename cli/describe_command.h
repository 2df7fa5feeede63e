// `muster describe JOB`: what happened, what it waits for, what would help.
#pragma once

#include <functional>
#include <string>

#include "cli/kube_table.h"
#include "cli/kubectl.h"
#include "common/result.h"
#include "operator/api/training_job.h"

namespace muster::cli {

struct DescribeOptions {
  std::string job;
};

/// When a job that waits is expected to start, in words; may be empty.
using StartWords = std::function<Result<std::string>(Kubectl&, const api::TrainingJob&)>;

/// Returns the exit code: 0 also for a job that failed, and where `start_words` cannot be had,
/// which the page says. Blocks: on the cluster.
int describe_command(Kubectl& kubectl, const DescribeOptions& options, const Display& display,
                     const StartWords& start_words);

}  // namespace muster::cli
