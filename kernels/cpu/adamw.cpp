#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

void adamw(Context& context, std::size_t n, const AdamwStep& step, const float* g, float* m,
           float* v, float* w) {
  constexpr std::size_t kTaskElements = 16 * kBlockElements;
  const VectorTable& table = vectors();
  parallel_for(context, (n + kTaskElements - 1) / kTaskElements,
               [&](std::size_t index, std::size_t) {
                 const std::size_t at = index * kTaskElements;
                 table.adamw(least(kTaskElements, n - at), step, g + at, m + at, v + at, w + at);
               });
}

}  // namespace muster::kernels::cpu
