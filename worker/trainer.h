// The trainer process: what its sentinel hands it, to a trained model, over TCP.
#pragma once

#include <string>

#include "common/clock.h"
#include "worker/step_pace.h"

namespace muster::worker {

/// Runs the training of the launch on the sentinel's descriptors (worker/sentinel/launch.h). Stops
/// with a checkpoint on SIGTERM or SIGINT. Returns the process exit code; a failure's sentence goes
/// to the log and to the sentinel, that of `pace`, too. `gpus_listed`: as own_instance()
/// (worker/gpu_list.h) wants it. Call once, from the only thread.
int run_trainer(const Clock& clock, const Result<StepPace>& pace, const std::string& gpus_listed);

}  // namespace muster::worker
