#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/layer_table.h"
#include "kernels/cpu/panels.h"

namespace muster::kernels::cpu {
namespace {

/// Work of one task, in values.
constexpr std::size_t kTaskElements = 2 * kBlockElements;

}  // namespace

void gelu(Context& context, std::size_t n, const float* x, float* y) {
  const LayerTable& table = layers();
  parallel_for(context, (n + kTaskElements - 1) / kTaskElements,
               [&](std::size_t index, std::size_t) {
                 const std::size_t at = index * kTaskElements;
                 table.gelu(least(kTaskElements, n - at), x + at, y + at);
               });
}

void gelu_backward(Context& context, std::size_t n, const float* x, const float* dy, float* dx) {
  const LayerTable& table = layers();
  parallel_for(context, (n + kTaskElements - 1) / kTaskElements,
               [&](std::size_t index, std::size_t) {
                 const std::size_t at = index * kTaskElements;
                 table.gelu_backward(least(kTaskElements, n - at), x + at, dy + at, dx + at);
               });
}

}  // namespace muster::kernels::cpu
