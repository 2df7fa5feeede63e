#include "kernels/cpu/pieces.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

void adamw(Context& context, std::size_t n, const AdamwStep& step, const float* g, float* m,
           float* v, float* w) {
  constexpr std::size_t kTaskElements = 16 * kBlockElements;
  const VectorTable& table = vectors();
  parallel_pieces(context, n, kTaskElements, [&](std::size_t at, std::size_t size) {
    table.adamw(size, step, g + at, m + at, v + at, w + at);
  });
}

}  // namespace muster::kernels::cpu
