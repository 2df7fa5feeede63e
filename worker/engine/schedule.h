// How the learning rate changes from step to step: a function of the step alone.
#pragma once

#include <cstdint>

#include "worker/engine/training.h"

namespace muster::engine {

/// The learning rate of the step that follows `step` done ones, of `total_steps`. Without a
/// schedule that of the optimiser. With the cosine (Loshchilov and Hutter 2017) it rises in equal
/// parts to that over the warm-up, and falls along half a cosine to its last share of it, which the
/// step after the last would have. Computed in double, rounded once.
float learning_rate_at(const TrainingConfig& config, std::int64_t step, std::int64_t total_steps);

}  // namespace muster::engine
