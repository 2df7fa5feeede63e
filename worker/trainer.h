// The trainer process: what its sentinel hands it, to a trained model, over TCP.
#pragma once

#include "common/clock.h"

namespace muster::worker {

/// Runs the training of the launch on the sentinel's descriptors (worker/sentinel/launch.h). Stops
/// with a checkpoint on SIGTERM or SIGINT. Returns the process exit code; a failure's sentence goes
/// to the log and to the sentinel. A step takes at least `pace`. Call once, from the only thread.
int run_trainer(const Clock& clock, milliseconds pace);

}  // namespace muster::worker
