// What every instruction set implements for the layers of a transformer; see table.h. The scalar
// forms (scalar_layers.cpp) say what each computes.
#pragma once

#include <cstddef>

#include "kernels/cpu/table.h"
#include "kernels/ops.h"

namespace muster::kernels::cpu {

/// Statistics of one row that is normalised.
struct NormRow {
  float mean, inverse;
};

/// What a row's input gradient takes besides: a = sum(g) / C, b = sum(g * h) / C.
struct NormGradient {
  NormRow row;
  float a, b;
};

/// Columns of `ranks` x `rows` rows that lie `stride` apart; mean and inverse have one value a row.
struct NormColumns {
  std::size_t ranks, rows, stride, columns;
  const float* x;
  const float* dy;
  const float* mean;
  const float* inverse;
};

/// What turns a chain of products into a probability.
struct SoftmaxRow {
  float scale, greatest, total;
};

/// The steps in which not all rows of a tile take part, for rows r and steps k below `rows`. Below
/// the diagonal row r takes the steps k < r, else k >= r. Row r and step k meet at a + r *
/// row_stride + k * step_stride; B as in Tile. C goes on from what it holds.
struct Triangle {
  const float* a;
  std::size_t row_stride, step_stride;
  const float* b;
  std::size_t b_stride;
  float* c;
  std::size_t c_stride;
  std::size_t rows, columns;
  bool below;
};

/// kept() writes multiples of so many.
inline constexpr std::size_t kKeptAtOnce = 64;

struct LayerTable {
  /// Lanes of one block (table.h) of d * d, d = x - mean.
  void (*deviation_lanes)(const float* x, std::size_t n, float mean, float* lanes);
  /// y = ((x - mean) * inverse) * gamma + beta. y may be x.
  void (*normalise)(std::size_t n, const NormRow& row, const float* x, const float* gamma,
                    const float* beta, float* y);
  /// Lanes of one block of g = dy * gamma, and behind these 16 those of g * h, h = (x - mean) *
  /// inverse.
  void (*norm_gradient_lanes)(std::size_t n, const NormRow& row, const float* x, const float* gamma,
                              const float* dy, float* lanes);
  /// dx = ((g - a) - h * b) * inverse, + skip unless nullptr. dx may be dy or skip.
  void (*norm_gradient)(std::size_t n, const NormGradient& by, const float* x, const float* gamma,
                        const float* dy, const float* skip, float* dx);
  /// Per rank the chains fma(dy, h, acc) and acc + dy, then the tree.
  void (*norm_weights)(const NormColumns& of, float* dgamma, float* dbeta);
  /// As in ops.h.
  void (*gelu)(std::size_t n, const float* x, float* y);
  void (*gelu_backward)(std::size_t n, const float* x, const float* dy, float* dx);
  /// values[i] = values[i] * scale; the greatest of them, +0 for -0; NaNs are passed over. n >= 1.
  float (*scale_and_max)(float* values, std::size_t n, float scale);
  /// values[i] = exp(values[i] * scale - greatest) / total.
  void (*probabilities)(float* values, std::size_t n, const SoftmaxRow& row);
  /// Lanes of one block of a * b.
  void (*product_lanes)(const float* a, const float* b, std::size_t n, float* lanes);
  /// dp[i] = (p[i] * (dp[i] - mean)) * scale.
  void (*score_gradient)(const float* p, std::size_t n, float mean, float scale, float* dp);
  void (*triangle)(const Triangle& triangle);
  /// As in ops.h, of one row.
  void (*drop)(const Drop& by, std::size_t row, float* values);
  /// factors[j] = by.scale where weight j of those that begin with `block` stays (dropout.h), else
  /// +0; n is rounded up to a multiple of kKeptAtOnce.
  void (*kept)(const WeightDrop& by, std::size_t row, std::uint64_t block, std::size_t n,
               float* factors);
  /// values[i] = values[i] * factors[i] where that is above 0, else +0.
  void (*keep)(const float* factors, std::size_t n, float* values);
};

const LayerTable& layers();

extern const LayerTable kScalarLayers;
/// nullptr when the target is not compiled in.
const LayerTable* layers_of(Target target);

}  // namespace muster::kernels::cpu
