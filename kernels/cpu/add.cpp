#include "kernels/cpu/pieces.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

void add(Context& context, std::size_t n, const float* a, const float* b, float* y) {
  constexpr std::size_t kTaskElements = 4 * kBlockElements;
  const VectorTable& table = vectors();
  parallel_pieces(context, n, kTaskElements, [&](std::size_t at, std::size_t size) {
    table.add(a + at, b + at, size, y + at);
  });
}

}  // namespace muster::kernels::cpu
