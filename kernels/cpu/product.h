// What the ways to multiply matrices are asked for.
#pragma once

#include <cstddef>

#include "kernels/ops.h"

namespace muster::kernels::cpu {

/// c = a b, then bias, ReLU and mask: linear_forward and linear_backward_input in ops.h.
struct Product {
  std::size_t rows, columns, steps;
  const float* a;  // (rows, steps)
  std::size_t a_stride;
  const float* b;  // (steps, columns), or (columns, steps) when transposed
  std::size_t b_stride;
  bool transposed;
  bool goes_on;  // the chains begin with what c holds
  const float* bias;
  const float* mask;
  bool relu;
  float* c;  // (rows, columns)
};

/// dw = x^T dy: linear_backward_weights in ops.h.
struct WeightsProduct {
  std::size_t ranks;
  std::size_t rank_rows;
  std::size_t rows, columns;  // of dw
  const float* x;             // (ranks * rank_rows, rows)
  const float* dy;            // (ranks * rank_rows, columns)
  float* dw;
  bool goes_on;  // the chains of the only logical rank begin with what dw holds
};

/// With Products::kBfloat16.
void multiply_pairs(Context& context, const Product& product);
void multiply_pairs(Context& context, const WeightsProduct& product);

}  // namespace muster::kernels::cpu
