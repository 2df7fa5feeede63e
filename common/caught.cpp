#include "common/caught.h"

#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "common/contract.h"

namespace muster {

Error caught_error() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Error(ErrorCode::kIo, "memory is exhausted; raise spec.worker.resources.memory")
        .with_exit_code(contract::exit_code::kOutOfMemory);
  } catch (const std::system_error& thrown) {
    // What std::thread throws where there is none to be had.
    const bool is_thread = thrown.code() == std::errc::resource_unavailable_try_again;
    return Error(ErrorCode::kIo,
                 std::string(is_thread ? "the system gives no more threads; raise the limit of "
                                         "processes of the pod (podPidsLimit) or the user: "
                                       : "") +
                     thrown.what())
        .with_exit_code(contract::exit_code::kInternal);
  } catch (const std::exception& thrown) {
    return Error(ErrorCode::kIo, thrown.what()).with_exit_code(contract::exit_code::kInternal);
  } catch (...) {
    return Error(ErrorCode::kIo, "an exception that is none of the standard library's")
        .with_exit_code(contract::exit_code::kInternal);
  }
}

}  // namespace muster
