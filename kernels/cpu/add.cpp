#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {

void add(Context& context, std::size_t n, const float* a, const float* b, float* y) {
  constexpr std::size_t kTaskElements = 4 * kBlockElements;
  const VectorTable& table = vectors();
  parallel_for(context, (n + kTaskElements - 1) / kTaskElements,
               [&](std::size_t index, std::size_t) {
                 const std::size_t at = index * kTaskElements;
                 table.add(a + at, b + at, least(kTaskElements, n - at), y + at);
               });
}

}  // namespace muster::kernels::cpu
