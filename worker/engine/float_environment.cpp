#include "worker/engine/float_environment.h"

#include "common/contract.h"

namespace muster::engine {

Status check_float_environment() {
  const auto refuse = [](const char* what) {
    return Error(ErrorCode::kUnsupported,
                 std::string("this process ") + what +
                     "; the numerics contract needs IEEE 754 arithmetic (is a library built with "
                     "-ffast-math loaded?)")
        .with_exit_code(contract::exit_code::kCpuOrContract);
  };
  // Volatile, so that the arithmetic happens here and not in the compiler.
  volatile float one = 1.0f;
  volatile float little = 0x1p-30f;
  if (one + little != 1.0f || one - little != 1.0f) return refuse("does not round to nearest");
  volatile float least_normal = 0x1p-126f;
  volatile float half = 0.5f;
  volatile float denormal_result = least_normal * half;
  if (denormal_result == 0.0f) return refuse("flushes denormal results to zero");
  volatile float denormal_input = 0x1p-149f;
  volatile float large = 0x1p100f;
  if (denormal_input * large == 0.0f) return refuse("takes denormal inputs for zero");
  return {};
}

}  // namespace muster::engine
