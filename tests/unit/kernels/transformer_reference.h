// The layers of a transformer by their definitions (kernels/ops.h), once for float, where every
// operation and its order is the contract's, and for double, where it serves finite differences.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

#include "common/philox.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {

using kernels::cpu::AttentionShape;

inline constexpr float kInfinityF = std::numeric_limits<float>::infinity();
inline constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();

inline float own_exp(float x) { return cpu::exp_f32(x); }
inline double own_exp(double x) { return std::exp(x); }

template <typename Real>
Real rule_tree(const Real* values, std::size_t n) {
  if (n == 1) return values[0];
  const std::size_t left = std::bit_floor(n - 1);
  return rule_tree(values, left) + rule_tree(values + left, n - left);
}

/// The reduction rule of kernels/ops.h.
template <typename Real>
Real rule_sum(const std::vector<Real>& values) {
  std::vector<Real> blocks;
  for (std::size_t first = 0; first < values.size(); first += 4096) {
    Real lanes[16] = {};
    for (std::size_t i = first; i < values.size() && i < first + 4096; ++i) {
      lanes[(i - first) % 16] += values[i];
    }
    for (std::size_t half : {8, 4, 2, 1}) {
      for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
    }
    blocks.push_back(lanes[0]);
  }
  return rule_tree(blocks.data(), blocks.size());
}

template <typename Real>
struct NormResult {
  std::vector<Real> mean, inverse, h, y;
};

template <typename Real>
NormResult<Real> layer_norm_of(std::size_t C, const std::vector<Real>& x,
                               const std::vector<Real>& gamma, const std::vector<Real>& beta,
                               Real epsilon) {
  NormResult<Real> result;
  const auto n = static_cast<Real>(C);
  for (std::size_t at = 0; at < x.size(); at += C) {
    const std::vector<Real> row(&x[at], &x[at] + C);
    const Real mean = rule_sum(row) / n;
    std::vector<Real> squares;
    for (const Real value : row) squares.push_back((value - mean) * (value - mean));
    const Real inverse = Real(1) / std::sqrt(rule_sum(squares) / n + epsilon);
    for (std::size_t c = 0; c < C; ++c) {
      result.h.push_back((row[c] - mean) * inverse);
      result.y.push_back(result.h.back() * gamma[c] + beta[c]);
    }
    result.mean.push_back(mean);
    result.inverse.push_back(inverse);
  }
  return result;
}

template <typename Real>
Real gelu_of(Real x) {
  const Real kappa = static_cast<Real>(static_cast<float>(std::sqrt(2.0 / std::acos(-1.0))));
  const Real s = x * x;
  const Real u = kappa * std::fma(Real(0.044715F) * s, x, x);
  const Real t = Real(1) - Real(2) / (own_exp(Real(2) * u) + Real(1));
  const Real h = Real(0.5) * x;
  return std::fma(h, t, h);
}

inline float gelu_slope_of(float x) {
  const auto kappa = static_cast<float>(std::sqrt(2.0 / std::acos(-1.0)));
  const float s = x * x;
  const float u = kappa * std::fma(0.044715F * s, x, x);
  const float t = 1.0F - 2.0F / (own_exp(2.0F * u) + 1.0F);
  const float h = 0.5F * x;
  const float w = std::fma(-t, t, 1.0F);
  const float du = kappa * std::fma(3.0F * 0.044715F, s, 1.0F);
  return std::fma(h * w, du, std::fma(0.5F, t, 0.5F));
}

/// Where value d of a head's query (part 0), key (1) or value (2) of a position lies in qkv.
struct Places {
  AttentionShape shape;
  std::size_t sequence, head;
  std::size_t C() const { return shape.heads * shape.D; }
  std::size_t in(std::size_t part, std::size_t i, std::size_t d) const {
    return (sequence * shape.T + i) * 3 * C() + part * C() + head * shape.D + d;
  }
  std::size_t out(std::size_t i, std::size_t d) const {
    return (sequence * shape.T + i) * C() + head * shape.D + d;
  }
  std::size_t row(std::size_t i) const { return (sequence * shape.heads + head) * shape.T + i; }
};

template <typename Loop>
void each_head(const AttentionShape& shape, Loop loop) {
  for (std::size_t sequence = 0; sequence < shape.rows; ++sequence) {
    for (std::size_t head = 0; head < shape.heads; ++head) loop(Places{shape, sequence, head});
  }
}

/// Scores of position i with all up to itself.
template <typename Real>
std::vector<Real> scores_of(const Places& at, const std::vector<Real>& qkv, std::size_t i,
                            Real scale) {
  std::vector<Real> scores;
  for (std::size_t j = 0; j <= i; ++j) {
    Real sum = 0;
    for (std::size_t d = 0; d < at.shape.D; ++d) {
      sum = std::fma(qkv[at.in(0, i, d)], qkv[at.in(1, j, d)], sum);
    }
    scores.push_back(sum * scale);
  }
  return scores;
}

/// Values of position i of a head, as a dropout of weights leaves them.
template <typename Real>
std::vector<Real> dropped_weights(const Places& at, const cpu::WeightDrop& drop, std::size_t i,
                                  std::vector<Real> values) {
  if (drop.share == 0.0F) return values;
  const std::uint64_t blocks = (at.shape.T + 7) / 8;
  for (std::size_t j = 0; j < values.size(); ++j) {
    const std::uint64_t block = ((drop.first_head + at.head) * at.shape.T + i) * blocks + j / 8;
    const auto words = philox4x32(
        drop.key, {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                   drop.first_row + static_cast<std::uint32_t>(at.sequence), 3});
    const std::uint32_t word = words[j / 2 % 4];
    const std::uint32_t half = j % 2 == 0 ? word & 0xFFFFu : word >> 16;
    const bool stays = static_cast<float>(half) / 65536.0F >= drop.share;
    values[j] = stays ? values[j] * static_cast<Real>(drop.scale) : Real(0);
  }
  return values;
}

template <typename Real>
struct AttentionResult {
  std::vector<Real> y, greatest, total;
};

template <typename Real>
AttentionResult<Real> attention_of(const AttentionShape& shape, const std::vector<Real>& qkv,
                                   Real scale, const cpu::WeightDrop& drop = {}) {
  AttentionResult<Real> result;
  result.y.resize(qkv.size() / 3);
  result.greatest.resize(shape.rows * shape.heads * shape.T);
  result.total.resize(result.greatest.size());
  each_head(shape, [&](const Places& at) {
    for (std::size_t i = 0; i < shape.T; ++i) {
      std::vector<Real> weights = scores_of(at, qkv, i, scale);
      Real greatest = -std::numeric_limits<Real>::infinity();
      for (const Real score : weights) greatest = score > greatest ? score : greatest;
      if (greatest == Real(0)) greatest = Real(0);  // of either sign
      for (Real& weight : weights) weight = own_exp(weight - greatest);
      const Real total = rule_sum(weights);
      for (Real& weight : weights) weight = weight / total;
      weights = dropped_weights(at, drop, i, std::move(weights));
      for (std::size_t d = 0; d < shape.D; ++d) {
        Real sum = 0;
        for (std::size_t j = 0; j <= i; ++j) {
          sum = std::fma(weights[j], qkv[at.in(2, j, d)], sum);
        }
        result.y[at.out(i, d)] = sum;
      }
      result.greatest[at.row(i)] = greatest;
      result.total[at.row(i)] = total;
    }
  });
  return result;
}

/// What goes back through position i of one head: dq's row is written, the steps of dk and dv are
/// taken, so that their chains ascend in i.
inline void attention_row_back(const Places& at, const Floats& qkv, float scale,
                               const cpu::WeightDrop& drop, const AttentionResult<float>& forward,
                               const Floats& dy, std::size_t i, Floats& dqkv) {
  const std::size_t D = at.shape.D;
  Floats p = scores_of(at, qkv, i, scale);
  Floats dp, products;
  for (std::size_t j = 0; j <= i; ++j) {
    p[j] = own_exp(p[j] - forward.greatest[at.row(i)]) / forward.total[at.row(i)];
    float sum = 0.0F;
    for (std::size_t d = 0; d < D; ++d) {
      sum = std::fma(dy[at.out(i, d)], qkv[at.in(2, j, d)], sum);
    }
    dp.push_back(sum);
  }
  dp = dropped_weights(at, drop, i, std::move(dp));
  for (std::size_t j = 0; j <= i; ++j) products.push_back(p[j] * dp[j]);
  const float mean = rule_sum(products);
  const Floats w = dropped_weights(at, drop, i, p);
  for (std::size_t j = 0; j <= i; ++j) {
    const float ds = (p[j] * (dp[j] - mean)) * scale;
    for (std::size_t d = 0; d < D; ++d) {
      float& dq = dqkv[at.in(0, i, d)];
      float& dk = dqkv[at.in(1, j, d)];
      float& dv = dqkv[at.in(2, j, d)];
      dq = std::fma(ds, qkv[at.in(1, j, d)], dq);
      dk = std::fma(ds, qkv[at.in(0, i, d)], dk);
      dv = std::fma(w[j], dy[at.out(i, d)], dv);
    }
  }
}

inline Floats attention_back(const AttentionShape& shape, const Floats& qkv, float scale,
                             const AttentionResult<float>& forward, const Floats& dy,
                             const cpu::WeightDrop& drop = {}) {
  Floats dqkv(qkv.size(), 0.0F);
  each_head(shape, [&](const Places& at) {
    for (std::size_t i = 0; i < shape.T; ++i) {
      attention_row_back(at, qkv, scale, drop, forward, dy, i, dqkv);
    }
  });
  return dqkv;
}

/// What a buffer holds.
inline Floats copy_of(Guarded<float>& buffer) {
  return {buffer.data(), buffer.data() + buffer.size()};
}

}  // namespace muster::test
