// Gradients of a transformer's kernels against finite differences of their definitions in double.
#include <functional>

#include "doctest/doctest.h"
#include "tests/unit/kernels/transformer_reference.h"

namespace muster::test {
namespace {

using Doubles = std::vector<double>;

Floats some(Random& random, std::size_t n) {
  Floats values(n);
  for (float& value : values) value = random.value();
  return values;
}

Doubles widened(const Floats& values) { return {values.begin(), values.end()}; }

double dot(const Doubles& a, const Floats& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * static_cast<double>(b[i]);
  return sum;
}

/// Central differences with h = 1e-6 are exact to about 1e-9 in double; the gradients are sums of
/// some hundred terms of order 1 in single precision, of which some nearly cancel.
void check_gradient(Doubles& at, const Floats& gradient, const std::function<double()>& loss) {
  constexpr double kDifference = 1e-6;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const double kept = at[i];
    at[i] = kept + kDifference;
    const double above = loss();
    at[i] = kept - kDifference;
    const double below = loss();
    at[i] = kept;
    const double slope = (above - below) / (2.0 * kDifference);
    const double off = std::abs(static_cast<double>(gradient[i]) - slope);
    wrong += off <= 1e-5 + 1e-3 * std::abs(slope) ? 0 : 1;
  }
  CHECK(wrong == 0);
}

TEST_CASE("layer normalisation's gradients agree with finite differences") {
  Random random(seed());
  cpu::Context context(2);
  constexpr std::size_t kRanks = 2, kRows = 3, C = 19, M = kRanks * kRows;
  const Floats x = some(random, M * C), gamma = some(random, C), beta = some(random, C);
  const Floats dy = some(random, M * C), skip = some(random, M * C);
  Floats mean(M), inverse(M), y(M * C), dx(M * C), dgamma(C), dbeta(C);
  cpu::layer_norm(context, M, C, x.data(), gamma.data(), beta.data(), 1e-5F, mean.data(),
                  inverse.data(), y.data());
  cpu::layer_norm_backward_input(context, M, C, x.data(), mean.data(), inverse.data(), gamma.data(),
                                 dy.data(), skip.data(), dx.data());
  cpu::layer_norm_backward_weights(context, kRanks, kRows, C, x.data(), mean.data(), inverse.data(),
                                   dy.data(), dgamma.data(), dbeta.data());
  Doubles wide_x = widened(x), wide_gamma = widened(gamma), wide_beta = widened(beta);
  // The branch, and beside it what goes past.
  const auto loss = [&] {
    return dot(layer_norm_of<double>(C, wide_x, wide_gamma, wide_beta, 1e-5).y, dy) +
           dot(wide_x, skip);
  };
  check_gradient(wide_x, dx, loss);
  check_gradient(wide_gamma, dgamma, loss);
  check_gradient(wide_beta, dbeta, loss);
}

TEST_CASE("GELU's gradient agrees with finite differences") {
  Random random(seed());
  cpu::Context context;
  const std::size_t n = 400;
  Floats x = some(random, n);
  for (float& value : x) value *= 6.0F;
  const Floats dy = some(random, n);
  Floats dx(n);
  cpu::gelu_backward(context, n, x.data(), dy.data(), dx.data());
  Doubles wide = widened(x);
  check_gradient(wide, dx, [&] {
    double sum = 0.0;
    for (std::size_t i = 0; i < n; ++i) sum += gelu_of(wide[i]) * static_cast<double>(dy[i]);
    return sum;
  });
}

TEST_CASE("attention's gradients agree with finite differences") {
  Random random(seed());
  cpu::Context context(2);
  const AttentionShape shapes[] = {{2, 11, 2, 5}, {1, 52, 1, 2}, {2, 11, 2, 5}, {1, 52, 1, 2}};
  std::size_t count = 0;
  for (const AttentionShape& shape : shapes) {
    cpu::WeightDrop drop;
    if (count++ >= 2) drop = {random.bits(), 3, 5, 0.3F, 1.0F / 0.7F};
    const std::size_t n = shape.rows * shape.T * shape.heads * shape.D;
    Floats qkv = some(random, 3 * n);
    for (float& value : qkv) value *= 2.0F;
    const Floats dy = some(random, n);
    Floats y(n), dqkv(3 * n), greatest(shape.rows * shape.heads * shape.T), total(greatest);
    const float scale = 0.7F;
    cpu::attention(context, shape, qkv.data(), scale, drop, y.data(), greatest.data(),
                   total.data());
    cpu::attention_backward(context, shape, qkv.data(), scale, drop, greatest.data(), total.data(),
                            dy.data(), dqkv.data());
    Doubles wide = widened(qkv);
    check_gradient(wide, dqkv, [&] {
      return dot(attention_of<double>(shape, wide, static_cast<double>(scale), drop).y, dy);
    });
  }
}

TEST_CASE("the gradients of tokens and positions agree with finite differences") {
  Random random(seed());
  cpu::Context context(2);
  constexpr std::size_t kRanks = 2, kRows = 2, T = 3, C = 5, V = 4, M = kRanks * kRows * T;
  std::vector<std::int32_t> tokens(M);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(V));
  const Floats table = some(random, V * C), positions = some(random, T * C);
  const Floats dy = some(random, M * C);
  Floats dtable(V * C, 0.0F), dpositions(T * C);
  cpu::add_token_rows(context, M, C, {0, V}, tokens.data(), dy.data(), dtable.data());
  cpu::position_gradient(context, kRanks, kRows, T, C, dy.data(), dpositions.data());
  Doubles wide_table = widened(table), wide_positions = widened(positions);
  const auto loss = [&] {
    double sum = 0.0;
    for (std::size_t m = 0; m < M; ++m) {
      for (std::size_t c = 0; c < C; ++c) {
        sum += static_cast<double>(dy[m * C + c]) *
               (wide_table[static_cast<std::size_t>(tokens[m]) * C + c] +
                wide_positions[m % T * C + c]);
      }
    }
    return sum;
  };
  check_gradient(wide_table, dtable, loss);
  check_gradient(wide_positions, dpositions, loss);
}

}  // namespace
}  // namespace muster::test
