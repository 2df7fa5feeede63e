#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"

namespace muster::kernels::cpu {

void scale(Context& context, std::size_t n, float factor, float* values) {
  constexpr std::size_t kTaskElements = 16 * kBlockElements;
  parallel_for(context, (n + kTaskElements - 1) / kTaskElements,
               [&](std::size_t index, std::size_t) {
                 const std::size_t end = least(n, (index + 1) * kTaskElements);
                 for (std::size_t i = index * kTaskElements; i < end; ++i) {
                   values[i] = values[i] * factor;
                 }
               });
}

}  // namespace muster::kernels::cpu
