#include "kernels/cpu/layer_table.h"
#include "kernels/cpu/pieces.h"

namespace muster::kernels::cpu {
namespace {

/// Work of one task, in values.
constexpr std::size_t kTaskElements = 2 * kBlockElements;

}  // namespace

void gelu(Context& context, std::size_t n, const float* x, float* y) {
  const LayerTable& table = layers();
  parallel_pieces(context, n, kTaskElements,
                  [&](std::size_t at, std::size_t size) { table.gelu(size, x + at, y + at); });
}

void gelu_backward(Context& context, std::size_t n, const float* x, const float* dy, float* dx) {
  const LayerTable& table = layers();
  parallel_pieces(context, n, kTaskElements, [&](std::size_t at, std::size_t size) {
    table.gelu_backward(size, x + at, dy + at, dx + at);
  });
}

}  // namespace muster::kernels::cpu
