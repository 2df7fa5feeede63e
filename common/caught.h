// Exceptions of the standard library as errors, at the borders that none may cross: the beginnings
// of threads and programs.
#pragma once

#include "common/result.h"

namespace muster {

/// The exception that is being handled: kIo, as what the system refused, with exit code
/// kOutOfMemory or kInternal. Requires that it is called in a catch block.
Error caught_error();

/// What becomes of `work`, of which an exception is an error: what leaves a thread ends the process
/// without a word of what it was.
template <typename Work>
Status run_caught(const Work& work) {
  try {
    return work();
  } catch (...) {
    return caught_error();
  }
}

}  // namespace muster
