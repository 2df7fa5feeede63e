// The numerics contract needs IEEE arithmetic in every thread: a library built with -ffast-math
// switches the whole process to flush-to-zero when it is loaded, without a word.
#pragma once

#include "common/result.h"

namespace muster::engine {

/// Refuses a thread that rounds other than to nearest even, or that flushes denormal inputs or
/// results to zero. Errors: kUnsupported with exit code kCpuOrContract. Threads: judges the calling
/// one, whose children inherit its state.
Status check_float_environment();

}  // namespace muster::engine
