#include "kernels/operations.h"

#include "kernels/cuda/ops.h"

namespace muster::kernels::cuda {

const Operations& Context::operations() const {
  static constexpr Operations kOperations{MUSTER_OPERATIONS(MUSTER_TABLE_ENTRY)};
  return kOperations;
}

}  // namespace muster::kernels::cuda
