#include <cstdio>

#include "tests/unit/cuda/cases.h"

namespace muster::test {

bool has_gpu(const char* what) {
  const char* const why = kernels::cuda::why_no_device();
  if (why == nullptr) return true;
  std::printf("skipped: %s needs a GPU, and there is none: %s\n", what, why);
  return false;
}

}  // namespace muster::test
