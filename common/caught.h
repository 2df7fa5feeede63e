// Exceptions of the standard library as errors, at the borders that none may cross: the beginnings
// of threads and programs, and what is done for one of many.
#pragma once

#include <new>
#include <string>

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

/// What becomes of `work` that is done for one of many, of which an exception is an error of its
/// own: kInternal, and nobody knows how far it came. Exhausted memory is everybody's, and goes on
/// its way. `work` returns a Result or Status.
template <typename Work>
auto run_apart(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (...) {
    return Error(ErrorCode::kInternal, "an exception: " + caught_error().message());
  }
}

}  // namespace muster
