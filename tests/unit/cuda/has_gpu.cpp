#include <cstdio>

#include "tests/unit/cuda/cases.h"

namespace muster::test {

bool has_gpu(const char* what) {
  if (kernels::cuda::device_count() > 0) return true;
  std::printf("skipped: %s needs a GPU, and there is none\n", what);
  return false;
}

}  // namespace muster::test
