#include "kernels/operations.h"

namespace muster::kernels::cpu {

const Operations& Context::operations() const {
  static constexpr Operations kOperations{MUSTER_OPERATIONS(MUSTER_TABLE_ENTRY)};
  return kOperations;
}

}  // namespace muster::kernels::cpu
