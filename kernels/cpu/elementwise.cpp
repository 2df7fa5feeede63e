// What is made of each value by itself, or of each row: loops of a target's tables, shared out over
// the pool.
#include "kernels/cpu/layer_table.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

// Work of one task, in values.
constexpr std::size_t kUpdateElements = 16 * kBlockElements;
constexpr std::size_t kAddElements = 4 * kBlockElements;
constexpr std::size_t kGeluElements = 2 * kBlockElements;

}  // namespace

void add(Context& context, std::size_t n, const float* a, const float* b, float* y) {
  const VectorTable& table = vectors();
  parallel_pieces(context, n, kAddElements, [&](std::size_t at, std::size_t size) {
    table.add(a + at, b + at, size, y + at);
  });
}

void scale(Context& context, std::size_t n, float factor, float* values) {
  parallel_pieces(context, n, kUpdateElements, [&](std::size_t first, std::size_t size) {
    for (std::size_t i = first; i < first + size; ++i) values[i] = values[i] * factor;
  });
}

void sgd_momentum(Context& context, std::size_t n, const SgdStep& step, const float* g, float* v,
                  float* w) {
  const VectorTable& table = vectors();
  parallel_pieces(context, n, kUpdateElements, [&](std::size_t at, std::size_t size) {
    table.sgd_momentum(size, step, g + at, v + at, w + at);
  });
}

void adamw(Context& context, std::size_t n, const AdamwStep& step, const float* g, float* m,
           float* v, float* w) {
  const VectorTable& table = vectors();
  parallel_pieces(context, n, kUpdateElements, [&](std::size_t at, std::size_t size) {
    table.adamw(size, step, g + at, m + at, v + at, w + at);
  });
}

void gelu(Context& context, std::size_t n, const float* x, float* y) {
  const LayerTable& table = layers();
  parallel_pieces(context, n, kGeluElements,
                  [&](std::size_t at, std::size_t size) { table.gelu(size, x + at, y + at); });
}

void gelu_backward(Context& context, std::size_t n, const float* x, const float* dy, float* dx) {
  const LayerTable& table = layers();
  parallel_pieces(context, n, kGeluElements, [&](std::size_t at, std::size_t size) {
    table.gelu_backward(size, x + at, dy + at, dx + at);
  });
}

void drop(Context& context, std::size_t rows, const Drop& by, float* values) {
  const LayerTable& table = layers();
  parallel_for(context, rows, [&](std::size_t row, std::size_t) {
    table.drop(by, row, values + row * by.columns);
  });
}

}  // namespace muster::kernels::cpu
