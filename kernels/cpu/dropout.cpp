#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/layer_table.h"
#include "kernels/ops.h"

namespace muster::kernels::cpu {

void drop(Context& context, std::size_t rows, const Drop& by, float* values) {
  const LayerTable& table = layers();
  parallel_for(context, rows, [&](std::size_t row, std::size_t) {
    table.drop(by, row, values + row * by.columns);
  });
}

}  // namespace muster::kernels::cpu
