// Batch normalisation with the statistics of each logical rank by itself. Channels lie side by
// side, so every loop over them is one over independent chains: plain code has the same bits
// however a compiler turns it into vectors.
#include <bit>
#include <cmath>

#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

/// Channels of one task: their lanes stay in the first cache.
constexpr std::size_t kChannelsMax = 32;
/// Work of one task that has no sums, in values.
constexpr std::size_t kTaskElements = 16'384;

/// Channels [first, first + count) of one logical rank.
struct Columns {
  std::size_t rank, first, count;
};

template <typename Function>
void for_each_columns(Context& context, std::size_t ranks, std::size_t C, Function function) {
  const std::size_t groups = (C + kChannelsMax - 1) / kChannelsMax;
  parallel_for(context, ranks * groups, [&](std::size_t index, std::size_t) {
    const std::size_t first = index % groups * kChannelsMax;
    function(Columns{index / groups, first, least(kChannelsMax, C - first)});
  });
}

/// sums[c] = the sum by the reduction rule of term(row, c) over all rows, for each of `count`
/// columns.
template <typename Term>
void column_sums(std::size_t rows, std::size_t count, Term term, float* sums) {
  TreeSum trees[kChannelsMax];
  for (std::size_t first = 0; first < rows; first += kBlockElements) {
    float lanes[kLanes][kChannelsMax] = {};
    const std::size_t size = least(rows - first, kBlockElements);
    for (std::size_t i = 0; i < size; ++i) {
      float* lane = lanes[i % kLanes];
      for (std::size_t c = 0; c < count; ++c) lane[c] = lane[c] + term(first + i, c);
    }
    for (std::size_t c = 0; c < count; ++c) {
      float own[kLanes];
      for (std::size_t j = 0; j < kLanes; ++j) own[j] = lanes[j][c];
      trees[c].push(lane_tree(own));
    }
  }
  for (std::size_t c = 0; c < count; ++c) sums[c] = trees[c].finish();
}

float inverse_of(float variance, float epsilon) { return 1.0F / std::sqrt(variance + epsilon); }

}  // namespace

void batch_statistics(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                      const float* x, float epsilon, const BatchStatistics& statistics) {
  if (rows < 2) fail("batch_statistics: a logical rank must have at least two values a channel");
  const auto n = static_cast<float>(rows);
  const auto n_less_one = static_cast<float>(rows - 1);
  for_each_columns(context, ranks, C, [&](const Columns& own) {
    const float* values = x + own.rank * rows * C + own.first;
    const std::size_t at = own.rank * C + own.first;
    float* mean = statistics.mean + at;
    float squares[kChannelsMax];
    column_sums(
        rows, own.count, [&](std::size_t i, std::size_t c) { return values[i * C + c]; }, mean);
    for (std::size_t c = 0; c < own.count; ++c) mean[c] = mean[c] / n;
    column_sums(
        rows, own.count,
        [&](std::size_t i, std::size_t c) {
          const float off = values[i * C + c] - mean[c];
          return off * off;
        },
        squares);
    for (std::size_t c = 0; c < own.count; ++c) {
      statistics.inverse[at + c] = inverse_of(squares[c] / n, epsilon);
      statistics.variance[at + c] = squares[c] / n_less_one;
    }
  });
}

void inverse_deviation(Context&, std::size_t n, const float* variance, float epsilon, float* out) {
  for (std::size_t i = 0; i < n; ++i) out[i] = inverse_of(variance[i], epsilon);
}

void batch_normalise(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                     const float* x, const Normalisation& by, Activation activation, float* y) {
  const bool relu = activation == Activation::kRelu;
  const std::size_t at_once = kTaskElements / C + 1;
  const std::size_t pieces = (rows + at_once - 1) / at_once;
  parallel_for(context, ranks * pieces, [&](std::size_t index, std::size_t) {
    const std::size_t rank = index / pieces;
    const std::size_t first = index % pieces * at_once;
    const std::size_t end = rank * rows + least(rows, first + at_once);
    const float* mean = by.mean + rank * C;
    const float* inverse = by.inverse + rank * C;
    for (std::size_t row = rank * rows + first; row < end; ++row) {
      const float* from = x + row * C;
      float* to = y + row * C;
      for (std::size_t c = 0; c < C; ++c) {
        const float value = ((from[c] - mean[c]) * inverse[c]) * by.gamma[c] + by.beta[c];
        to[c] = relu && !(value > 0.0F) ? 0.0F : value;
      }
    }
  });
}

void batch_normalise_backward(Context& context, std::size_t ranks, std::size_t rows, std::size_t C,
                              const float* x, const Normalisation& by, const float* dy,
                              float* dgamma, float* dbeta, float* dx) {
  const auto n = static_cast<float>(rows);
  for_each_columns(context, ranks, C, [&](const Columns& own) {
    const std::size_t offset = own.rank * rows * C + own.first;
    const float* values = x + offset;
    const float* gradient = dy + offset;
    const std::size_t at = own.rank * C + own.first;
    const float* mean = by.mean + at;
    const float* inverse = by.inverse + at;
    const float* gamma = by.gamma + own.first;
    column_sums(
        rows, own.count, [&](std::size_t i, std::size_t c) { return gradient[i * C + c]; },
        dbeta + at);
    column_sums(
        rows, own.count,
        [&](std::size_t i, std::size_t c) {
          return gradient[i * C + c] * ((values[i * C + c] - mean[c]) * inverse[c]);
        },
        dgamma + at);
    float beta_part[kChannelsMax], gamma_part[kChannelsMax], factor[kChannelsMax];
    for (std::size_t c = 0; c < own.count; ++c) {
      beta_part[c] = dbeta[at + c] / n;
      gamma_part[c] = dgamma[at + c] / n;
      factor[c] = gamma[c] * inverse[c];
    }
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t c = 0; c < own.count; ++c) {
        const std::size_t k = i * C + c;
        const float h = (values[k] - mean[c]) * inverse[c];
        dx[offset + k] = ((gradient[k] - beta_part[c]) - h * gamma_part[c]) * factor[c];
      }
    }
  });
}

void sum_ranks(Context&, std::size_t ranks, std::size_t n, float* values, float* out) {
  if (!std::has_single_bit(ranks)) fail("logical ranks must be a power of two");
  const VectorTable& table = vectors();
  for (std::size_t step = 1; step < ranks; step *= 2) {
    for (std::size_t rank = 0; rank < ranks; rank += 2 * step) {
      float* left = values + rank * n;
      table.add(left, left + step * n, n, left);
    }
  }
  for (std::size_t i = 0; i < n; ++i) out[i] = values[i];
}

}  // namespace muster::kernels::cpu
