#include "kernels/cpu/pieces.h"

namespace muster::kernels::cpu {

void scale(Context& context, std::size_t n, float factor, float* values) {
  constexpr std::size_t kTaskElements = 16 * kBlockElements;
  parallel_pieces(context, n, kTaskElements, [&](std::size_t first, std::size_t size) {
    for (std::size_t i = first; i < first + size; ++i) values[i] = values[i] * factor;
  });
}

}  // namespace muster::kernels::cpu
