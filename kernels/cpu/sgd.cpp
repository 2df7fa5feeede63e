#include "kernels/cpu/pieces.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

void sgd_momentum(Context& context, std::size_t n, const SgdStep& step, const float* g, float* v,
                  float* w) {
  constexpr std::size_t kTaskElements = 16 * kBlockElements;
  const VectorTable& table = vectors();
  parallel_pieces(context, n, kTaskElements, [&](std::size_t at, std::size_t size) {
    table.sgd_momentum(size, step, g + at, v + at, w + at);
  });
}

}  // namespace muster::kernels::cpu
