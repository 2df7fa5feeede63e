// When a job that waits is expected to start, for `muster describe`.
#pragma once

#include <string>

#include "cli/kubectl.h"
#include "common/result.h"
#include "operator/api/training_job.h"

namespace muster::cli {

/// Whether it has no place, and nothing but room is what it waits for.
bool waits_for_room(const api::TrainingJob& job);

/// In words, by the operator's own rules over the cluster as it is now; empty for a job that waits
/// for no room. Errors: the cluster cannot be read. Blocks: on kubectl.
Result<std::string> expected_start(Kubectl& kubectl, const api::TrainingJob& job);

}  // namespace muster::cli
