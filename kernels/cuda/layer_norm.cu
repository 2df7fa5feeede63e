// Layer normalisation: each row by itself, its weights over all rows of a logical rank.
#include <cmath>

#include "kernels/cuda/row_sum.h"

namespace muster::kernels::cuda {
namespace {

/// Half a warp a row.
__global__ void layer_norm_kernel(std::size_t M, std::size_t C, const float* x, const float* gamma,
                                  const float* beta, float epsilon, float* mean, float* inverse,
                                  float* y) {
  const auto n = static_cast<float>(C);
  for_each_row(M, C, [&](const Row& row) {
    const float* from = x + row.number * C;
    float* to = y + row.number * C;
    const float middle = row_sum(row, [&](std::size_t i) { return from[i]; }) / n;
    const float squares = row_sum(row, [&](std::size_t i) {
      const float off = from[i] - middle;
      return off * off;
    });
    const float factor = 1.0F / std::sqrt(squares / n + epsilon);
    for_each_own(
        row, [&](std::size_t i) { to[i] = ((from[i] - middle) * factor) * gamma[i] + beta[i]; });
    if (row.exists() && half_warp_lane() == 0) {
      mean[row.number] = middle;
      inverse[row.number] = factor;
    }
  });
}

/// Half a warp a row.
__global__ void layer_norm_backward_input_kernel(std::size_t M, std::size_t C, const float* x,
                                                 const float* mean, const float* inverse,
                                                 const float* gamma, const float* dy,
                                                 const float* skip, float* dx) {
  const auto n = static_cast<float>(C);
  for_each_row(M, C, [&](const Row& row) {
    const std::size_t at = row.number * C;
    const float middle = row.exists() ? mean[row.number] : 0.0F;
    const float factor = row.exists() ? inverse[row.number] : 0.0F;
    const auto sums = row_sums<2>(row, [&](std::size_t i) {
      const float g = dy[at + i] * gamma[i];
      return std::array{g, g * ((x[at + i] - middle) * factor)};
    });
    const float a = sums[0] / n;
    const float b = sums[1] / n;
    for_each_own(row, [&](std::size_t i) {
      const float g = dy[at + i] * gamma[i];
      const float value = ((g - a) - ((x[at + i] - middle) * factor) * b) * factor;
      dx[at + i] = skip == nullptr ? value : value + skip[at + i];
    });
  });
}

/// Rows of all logical ranks, and what they were normalised by.
struct NormRows {
  std::size_t ranks, rows, C;
  const float* x;
  const float* mean;
  const float* inverse;
  const float* dy;
};

constexpr unsigned kChains = 32;  // of a block of threads: few, so that more processors have some
/// Rows that are fetched at once: a chain alone would wait for memory at every step.
constexpr std::size_t kAhead = 16;

/// A thread has the two chains of one channel and one logical rank.
/// Shape: dgamma and dbeta (ranks, C).
__global__ void norm_weights_kernel(NormRows of, float* dgamma, float* dbeta) {
  for (std::size_t chain = thread_number(); chain < of.ranks * of.C; chain += threads_of_grid()) {
    const std::size_t c = chain % of.C;
    const std::size_t begin = chain / of.C * of.rows;
    float gamma = 0.0F, beta = 0.0F;
    for (std::size_t first = begin; first < begin + of.rows; first += kAhead) {
      const std::size_t count = std::min(begin + of.rows - first, +kAhead);
      float dy[kAhead] = {}, h[kAhead] = {};
      for (std::size_t i = 0; i < kAhead; ++i) {
        if (i >= count) continue;
        const std::size_t row = first + i;
        dy[i] = of.dy[row * of.C + c];
        h[i] = (of.x[row * of.C + c] - of.mean[row]) * of.inverse[row];
      }
      for (std::size_t i = 0; i < kAhead; ++i) {
        if (i >= count) continue;
        gamma = std::fma(dy[i], h[i], gamma);
        beta = beta + dy[i];
      }
    }
    dgamma[chain] = gamma;
    dbeta[chain] = beta;
  }
}

}  // namespace

void layer_norm(Context& context, std::size_t M, std::size_t C, const float* x, const float* gamma,
                const float* beta, float epsilon, float* mean, float* inverse, float* y) {
  if (M == 0 || C == 0) return;
  launch(context, blocks_for(M, kHalfWarps), kThreads, layer_norm_kernel, M, C, x, gamma, beta,
         epsilon, mean, inverse, y);
}

void layer_norm_backward_input(Context& context, std::size_t M, std::size_t C, const float* x,
                               const float* mean, const float* inverse, const float* gamma,
                               const float* dy, const float* skip, float* dx) {
  if (M == 0 || C == 0) return;
  launch(context, blocks_for(M, kHalfWarps), kThreads, layer_norm_backward_input_kernel, M, C, x,
         mean, inverse, gamma, dy, skip, dx);
}

void layer_norm_backward_weights(Context& context, std::size_t ranks, std::size_t rows,
                                 std::size_t C, const float* x, const float* mean,
                                 const float* inverse, const float* dy, float* dgamma,
                                 float* dbeta) {
  if (C == 0) return;
  const std::size_t chains = ranks * C;
  float* const gammas = scratch(context, 2 * chains);
  if (gammas == nullptr) return;
  float* const betas = gammas + chains;
  launch(context, blocks_for(chains, kChains), kChains, norm_weights_kernel,
         NormRows{ranks, rows, C, x, mean, inverse, dy}, gammas, betas);
  sum_ranks(context, ranks, C, gammas, dgamma);
  sum_ranks(context, ranks, C, betas, dbeta);
}

}  // namespace muster::kernels::cuda
