// Whether an action that failed is tried again: the one place where that is decided.
#pragma once

#include "common/result.h"

namespace muster::runtime {

enum class Retry {
  kLater,    ///< the API server is not there or busy: the same plan, after a back-off
  kReread,   ///< what the plan was made from is old: a new plan, once the news is here
  kRefused,  ///< the API server understood and refuses; only a change of the world helps
};

Retry retry_of(ErrorCode code);

}  // namespace muster::runtime
