// Layer normalisation: each row by itself, its weights over all rows of a logical rank.
#include <bit>
#include <cmath>

#include "kernels/cpu/layer_table.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/row_sum.h"

namespace muster::kernels::cpu {
namespace {

/// Work of one task, in values.
constexpr std::size_t kTaskElements = 16'384;
/// Columns of one task: whole cache lines, and few enough to give every thread some.
constexpr std::size_t kColumns = 64;

NormGradient gradient_of(const LayerTable& table, std::size_t C, const NormRow& row, const float* x,
                         const float* gamma, const float* dy) {
  TreeSum plain, products;
  for (std::size_t first = 0; first < C; first += kBlockElements) {
    float lanes[2 * kLanes];
    table.norm_gradient_lanes(least(C - first, kBlockElements), row, x + first, gamma + first,
                              dy + first, lanes);
    plain.push(lane_tree(lanes));
    products.push(lane_tree(lanes + kLanes));
  }
  const auto n = static_cast<float>(C);
  return {row, plain.finish() / n, products.finish() / n};
}

}  // namespace

void layer_norm(Context& context, std::size_t M, std::size_t C, const float* x, const float* gamma,
                const float* beta, float epsilon, float* mean, float* inverse, float* y) {
  if (C == 0) return;
  const VectorTable& loops = vectors();
  const LayerTable& table = layers();
  const auto n = static_cast<float>(C);
  parallel_rows(context, M, C, kTaskElements, [&](std::size_t m) {
    const float* row = x + m * C;
    const float own =
        row_sum(C, [&](std::size_t first, std::size_t size,
                       float* lanes) { loops.block_lanes(row + first, size, lanes); }) /
        n;
    const float squares = row_sum(C, [&](std::size_t first, std::size_t size, float* lanes) {
      table.deviation_lanes(row + first, size, own, lanes);
    });
    mean[m] = own;
    inverse[m] = 1.0F / std::sqrt(squares / n + epsilon);
    table.normalise(C, {own, inverse[m]}, row, gamma, beta, y + m * C);
  });
}

void layer_norm_backward_input(Context& context, std::size_t M, std::size_t C, const float* x,
                               const float* mean, const float* inverse, const float* gamma,
                               const float* dy, const float* skip, float* dx) {
  if (C == 0) return;
  const LayerTable& table = layers();
  parallel_rows(context, M, C, kTaskElements, [&](std::size_t m) {
    const std::size_t at = m * C;
    const NormGradient by = gradient_of(table, C, {mean[m], inverse[m]}, x + at, gamma, dy + at);
    table.norm_gradient(C, by, x + at, gamma, dy + at, skip == nullptr ? nullptr : skip + at,
                        dx + at);
  });
}

void layer_norm_backward_weights(Context& context, std::size_t ranks, std::size_t rows,
                                 std::size_t C, const float* x, const float* mean,
                                 const float* inverse, const float* dy, float* dgamma,
                                 float* dbeta) {
  if (!std::has_single_bit(ranks)) fail("logical ranks must be a power of two");
  const LayerTable& table = layers();
  parallel_pieces(context, C, kColumns, [&](std::size_t first, std::size_t n) {
    const NormColumns of{ranks, rows, C, n, x + first, dy + first, mean, inverse};
    table.norm_weights(of, dgamma + first, dbeta + first);
  });
}

}  // namespace muster::kernels::cpu
