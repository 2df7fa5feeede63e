#include "common/caught.h"

#include <exception>
#include <new>

#include "common/contract.h"

namespace muster {

Error caught_error() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kIo, "memory is exhausted; raise spec.worker.resources.memory")
        .with_exit_code(contract::exit_code::kOutOfMemory);
  } catch (const std::exception& thrown) {
    return Error(ErrorCode::kIo, thrown.what()).with_exit_code(contract::exit_code::kInternal);
  } catch (...) {
    return Error(ErrorCode::kIo, "an exception that is none of the standard library's")
        .with_exit_code(contract::exit_code::kInternal);
  }
}

}  // namespace muster
