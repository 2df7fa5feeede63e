// How an action failed: the one place where that is decided. Whatever failed is tried again, after
// a back-off.
#pragma once

#include "common/result.h"

namespace muster::runtime {

/// Whether the API server understood and refuses, so that only a change of the world helps. It is
/// not refused where the server is not there or busy, or what the plan was made from is old.
bool is_refused(ErrorCode code);

}  // namespace muster::runtime
