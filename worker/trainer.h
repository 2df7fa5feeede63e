// The trainer process: what its sentinel hands it, to a trained model, over TCP.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "worker/step_pace.h"

namespace muster::worker {

/// Is told each place that training comes to (engine::point) and the step that it stands at, by the
/// training thread, which waits for it.
using PlaceWatch = std::function<void(std::string_view place, std::int64_t step)>;

/// Runs the training of the launch on the sentinel's descriptors (worker/sentinel/launch.h). Stops
/// with a checkpoint on SIGTERM or SIGINT. Returns the process exit code; a failure's sentence goes
/// to the log and to the sentinel, that of `pace`, too. `gpus_listed`: as own_instance()
/// (worker/gpu_list.h) wants it. `places`: empty where nobody watches. Call once, from the only
/// thread.
int run_trainer(const Clock& clock, const Result<StepPace>& pace, const std::string& gpus_listed,
                const PlaceWatch& places = {});

}  // namespace muster::worker
