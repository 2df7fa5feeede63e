// How long a step takes at least: what is shown or disturbed needs time that a laptop's example
// does not take.
#pragma once

#include <functional>
#include <string_view>

#include "common/clock.h"
#include "common/result.h"

namespace muster::worker {

/// The least time of the step that begins; asked at each. Threads: the trainer's.
using StepPace = std::function<milliseconds()>;

/// Of MUSTER_PACE_MS: a number of milliseconds up to 60,000, or the absolute path of a file that
/// holds one and may be rewritten meanwhile (while it cannot be read or holds anything else, there
/// is no pace). Empty: no pace, an empty function. Errors: kInvalid with exit code kUsage.
Result<StepPace> parse_step_pace(std::string_view text);

}  // namespace muster::worker
