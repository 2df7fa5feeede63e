// The plain path of LayerTable: what every other target must equal bit by bit.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/gelu.h"
#include "kernels/cpu/layer_table.h"
#include "kernels/dropout.h"

namespace muster::kernels::cpu {
namespace {

/// lanes[j] = the chain over term(i), i mod 16 = j, from +0.
template <typename Term>
void lanes_of(std::size_t n, float* lanes, Term term) {
  for (std::size_t j = 0; j < kLanes; ++j) lanes[j] = 0.0F;
  for (std::size_t i = 0; i < n; ++i) lanes[i % kLanes] = lanes[i % kLanes] + term(i);
}

float normal(float x, const NormRow& row) { return (x - row.mean) * row.inverse; }

void deviation_lanes(const float* x, std::size_t n, float mean, float* lanes) {
  lanes_of(n, lanes, [&](std::size_t i) { return (x[i] - mean) * (x[i] - mean); });
}

void normalise(std::size_t n, const NormRow& row, const float* x, const float* gamma,
               const float* beta, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = normal(x[i], row) * gamma[i] + beta[i];
}

void norm_gradient_lanes(std::size_t n, const NormRow& row, const float* x, const float* gamma,
                         const float* dy, float* lanes) {
  lanes_of(n, lanes, [&](std::size_t i) { return dy[i] * gamma[i]; });
  lanes_of(n, lanes + kLanes,
           [&](std::size_t i) { return (dy[i] * gamma[i]) * normal(x[i], row); });
}

void norm_gradient(std::size_t n, const NormGradient& by, const float* x, const float* gamma,
                   const float* dy, const float* skip, float* dx) {
  for (std::size_t i = 0; i < n; ++i) {
    const float off = (dy[i] * gamma[i] - by.a) - normal(x[i], by.row) * by.b;
    const float value = off * by.row.inverse;
    dx[i] = skip == nullptr ? value : value + skip[i];
  }
}

void norm_weights(const NormColumns& of, float* dgamma, float* dbeta) {
  for (std::size_t j = 0; j < of.columns; ++j) {
    TreeSum gammas, betas;
    for (std::size_t rank = 0; rank < of.ranks; ++rank) {
      float gamma = 0.0F, beta = 0.0F;
      for (std::size_t row = rank * of.rows; row < (rank + 1) * of.rows; ++row) {
        const float dy = of.dy[row * of.stride + j];
        const float h = normal(of.x[row * of.stride + j], {of.mean[row], of.inverse[row]});
        gamma = std::fma(dy, h, gamma);
        beta = beta + dy;
      }
      gammas.push(gamma);
      betas.push(beta);
    }
    dgamma[j] = gammas.finish();
    dbeta[j] = betas.finish();
  }
}

void gelu_all(std::size_t n, const float* x, float* y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = gelu_one(x[i]);
}

void gelu_backward_all(std::size_t n, const float* x, const float* dy, float* dx) {
  for (std::size_t i = 0; i < n; ++i) dx[i] = dy[i] * gelu_slope_one(x[i]);
}

float scale_and_max(float* values, std::size_t n, float scale) {
  float max = -HUGE_VALF;
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = values[i] * scale;
    max = values[i] > max ? values[i] : max;
  }
  return max + 0.0F;
}

void probabilities(float* values, std::size_t n, const SoftmaxRow& row) {
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = exp_one(values[i] * row.scale - row.greatest) / row.total;
  }
}

void product_lanes(const float* a, const float* b, std::size_t n, float* lanes) {
  lanes_of(n, lanes, [&](std::size_t i) { return a[i] * b[i]; });
}

void score_gradient(const float* p, std::size_t n, float mean, float scale, float* dp) {
  for (std::size_t i = 0; i < n; ++i) dp[i] = (p[i] * (dp[i] - mean)) * scale;
}

void triangle(const Triangle& of) {
  for (std::size_t r = 0; r < of.rows; ++r) {
    const std::size_t end = of.below ? r : of.rows;
    for (std::size_t k = of.below ? 0 : r; k < end; ++k) {
      const float x = of.a[r * of.row_stride + k * of.step_stride];
      for (std::size_t j = 0; j < of.columns; ++j) {
        float& sum = of.c[r * of.c_stride + j];
        sum = std::fma(x, of.b[k * of.b_stride + j], sum);
      }
    }
  }
}

void drop_row(const Drop& by, std::size_t row, float* values) {
  const std::size_t end = by.first_column + by.columns;
  for (std::size_t c = by.first_column; c < end; c = c / 4 * 4 + 4) {
    const auto words = drop_words(by, row, c / 4);
    for (std::size_t i = c; i < std::min(c / 4 * 4 + 4, end); ++i) {
      float& value = values[i - by.first_column];
      value = dropped(by, words[i % 4], value);
    }
  }
}

void kept(const WeightDrop& by, std::size_t row, std::uint64_t block, std::size_t n,
          float* factors) {
  const std::size_t end = (n + kKeptAtOnce - 1) / kKeptAtOnce * kKeptAtOnce;
  for (std::size_t first = 0; first < end; first += kWeightsOfBlock) {
    const auto words = weight_words(by, row, block++);
    for (std::size_t i = 0; i < kWeightsOfBlock; ++i) {
      factors[first + i] = weight_stays(by, words, i) ? by.scale : 0.0F;
    }
  }
}

void keep(const float* factors, std::size_t n, float* values) {
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = factors[i] > 0.0F ? values[i] * factors[i] : 0.0F;
  }
}

}  // namespace

const LayerTable kScalarLayers = {deviation_lanes,   normalise,      norm_gradient_lanes,
                                  norm_gradient,     norm_weights,   gelu_all,
                                  gelu_backward_all, scale_and_max,  probabilities,
                                  product_lanes,     score_gradient, triangle,
                                  drop_row,          kept,           keep};

}  // namespace muster::kernels::cpu
