// docs/numerics.md a second time for convolution, batch normalisation, pooling and dropout: plain
// loops, one logical rank after another, held against the engine bit by bit. Only exp, log and the
// sum inside a tensor are the kernels'.
#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "common/rng.h"
#include "kernels/ops.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/reference_order.h"
#include "worker/data/dataset.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/training.h"

using namespace muster;
namespace cpu = muster::kernels::cpu;

namespace {

using Floats = std::vector<float>;

constexpr std::uint64_t kSeed = 7;
constexpr std::size_t kRanks = 16, kRows = 4, kBatch = kRanks * kRows, kClasses = 10, kHidden = 5;
constexpr float kShare = 0.25f;

/// Where tensors lie: weights of the stages, then of the linear layers, then running statistics.
struct Stage {
  std::size_t size, in, out;  ///< of the image, of its channels
  std::size_t weight, gamma, beta, mean, variance;
};
constexpr Stage kStages[2] = {{8, 1, 2, 0, 18, 20, 207, 209}, {4, 2, 3, 22, 76, 79, 211, 214}};
/// Inputs, outputs, weight, bias.
struct Linear {
  std::size_t in, out, weight, bias;
};
constexpr Linear kLinear[2] = {{12, kHidden, 82, 142}, {kHidden, kClasses, 147, 197}};
constexpr std::size_t kParameters = 207;
constexpr std::size_t kValues = kStages[1].variance + kStages[1].out;

static_assert(kLinear[1].bias + kClasses == kParameters);

/// What one stage leaves for its way back, for all rows of a logical rank.
struct StagePass {
  Floats x, before, mean, inverse, after, pooled;
};

float tap_of(const Stage& s, const Floats& x, std::size_t row, std::size_t pixel, std::size_t tap,
             std::size_t c) {
  const std::size_t y = pixel / s.size + tap / 3;
  const std::size_t column = pixel % s.size + tap % 3;
  if (y < 1 || column < 1 || y > s.size || column > s.size) return 0;
  return x[((row * s.size + y - 1) * s.size + column - 1) * s.in + c];
}

void convolve(const Stage& s, const Floats& v, StagePass& pass) {
  const std::size_t pixels = s.size * s.size;
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t pixel = 0; pixel < pixels; ++pixel) {
      for (std::size_t n = 0; n < s.out; ++n) {
        float acc = 0;
        for (std::size_t k = 0; k < 9 * s.in; ++k) {
          acc = std::fma(tap_of(s, pass.x, row, pixel, k / s.in, k % s.in),
                         v[s.weight + k * s.out + n], acc);
        }
        pass.before.push_back(acc);
      }
    }
  }
}

Floats channel(const Floats& values, std::size_t channels, std::size_t c) {
  Floats own;
  for (std::size_t i = c; i < values.size(); i += channels) own.push_back(values[i]);
  return own;
}

float sum(const Floats& values) { return cpu::sum(values.data(), values.size()); }

void normalise(const Stage& s, const Floats& v, StagePass& pass, Floats& statistics) {
  pass.after.resize(pass.before.size());
  for (std::size_t c = 0; c < s.out; ++c) {
    Floats own = channel(pass.before, s.out, c);
    const auto n = static_cast<float>(own.size());
    const float mean = sum(own) / n;
    for (float& x : own) x = (x - mean) * (x - mean);
    const float q = sum(own);
    const float inverse = 1.0f / std::sqrt(q / n + 1e-5f);
    for (std::size_t i = c; i < pass.before.size(); i += s.out) {
      const float y = ((pass.before[i] - mean) * inverse) * v[s.gamma + c] + v[s.beta + c];
      pass.after[i] = y > 0 ? y : 0;
    }
    pass.mean.push_back(mean);
    pass.inverse.push_back(inverse);
    statistics[s.mean + c] = mean;
    statistics[s.variance + c] = q / (n - 1);
  }
}

/// The place in `after` that gives output i of the pooling.
std::size_t pooled_from(const Stage& s, const Floats& after, std::size_t i) {
  const std::size_t half = s.size / 2;
  const std::size_t c = i % s.out;
  const std::size_t pixel = i / s.out % (half * half);
  const std::size_t row = i / s.out / (half * half);
  std::size_t best = 0;
  for (std::size_t k = 0; k < 4; ++k) {
    const std::size_t y = pixel / half * 2 + k / 2;
    const std::size_t x = pixel % half * 2 + k % 2;
    const std::size_t at = ((row * s.size + y) * s.size + x) * s.out + c;
    if (k == 0 || after[at] > after[best]) best = at;
  }
  return best;
}

StagePass through(const Stage& s, const Floats& v, const Floats& x, Floats& statistics) {
  StagePass pass;
  pass.x = x;
  convolve(s, v, pass);
  normalise(s, v, pass, statistics);
  for (std::size_t i = 0; i < kRows * s.size * s.size / 4 * s.out; ++i) {
    pass.pooled.push_back(pass.after[pooled_from(s, pass.after, i)]);
  }
  return pass;
}

/// Gradient of the stage's input from that of its pooled output; the first stage needs none.
Floats back(const Stage& s, const Floats& v, const StagePass& pass, const Floats& dpooled,
            Floats& g) {
  Floats dy(pass.after.size(), 0.0f);
  for (std::size_t i = 0; i < dpooled.size(); ++i) {
    dy[pooled_from(s, pass.after, i)] = dpooled[i];
  }
  Floats dx(dy.size());
  for (std::size_t c = 0; c < s.out; ++c) {
    const Floats own = channel(dy, s.out, c);
    Floats h = channel(pass.before, s.out, c);
    const auto n = static_cast<float>(own.size());
    for (float& x : h) x = (x - pass.mean[c]) * pass.inverse[c];
    Floats products;
    for (std::size_t i = 0; i < own.size(); ++i) products.push_back(own[i] * h[i]);
    g[s.beta + c] = sum(own);
    g[s.gamma + c] = sum(products);
    for (std::size_t i = 0; i < own.size(); ++i) {
      dx[i * s.out + c] = ((own[i] - g[s.beta + c] / n) - h[i] * (g[s.gamma + c] / n)) *
                          (v[s.gamma + c] * pass.inverse[c]);
    }
  }
  const std::size_t pixels = s.size * s.size;
  Floats dinput(pass.x.size(), 0.0f);
  for (std::size_t k = 0; k < 9 * s.in; ++k) {
    const std::size_t tap = k / s.in;
    for (std::size_t i = 0; i < kRows * pixels; ++i) {
      const std::size_t pixel = i % pixels;
      const float x = tap_of(s, pass.x, i / pixels, pixel, tap, k % s.in);
      float gradient = 0;
      for (std::size_t n = 0; n < s.out; ++n) {
        float& weight = g[s.weight + k * s.out + n];
        weight = std::fma(x, dx[i * s.out + n], weight);
        gradient = std::fma(dx[i * s.out + n], v[s.weight + k * s.out + n], gradient);
      }
      const std::size_t y = pixel / s.size + tap / 3;
      const std::size_t column = pixel % s.size + tap % 3;
      if (y < 1 || column < 1 || y > s.size || column > s.size) continue;
      float& to = dinput[((i / pixels * s.size + y - 1) * s.size + column - 1) * s.in + k % s.in];
      to = to + gradient;
    }
  }
  for (std::size_t i = 0; i < dinput.size(); ++i) {
    if (!(pass.x[i] > 0)) dinput[i] = 0;
  }
  return dinput;
}

/// Of the rows of logical rank `rank`, in place.
void drop(std::size_t step, std::uint32_t number, std::size_t rank, Floats& x) {
  const auto words = philox4x32(kSeed, {static_cast<std::uint32_t>(step), 0, number, 3});
  const std::uint64_t key = words[0] | std::uint64_t{words[1]} << 32;
  const std::size_t width = x.size() / kRows;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto row = static_cast<std::uint32_t>(rank * kRows + i / width);
    const std::uint32_t bits = random_bits(key, RngStream::kDropout, row, i % width);
    const float unit = static_cast<float>(bits >> 8) / 16'777'216.0f;
    x[i] = unit < kShare ? 0.0f : x[i] * (1.0f / (1.0f - kShare));
  }
}

Floats linear(const Linear& l, const Floats& v, const Floats& x, bool rectify) {
  Floats y;
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t n = 0; n < l.out; ++n) {
      float acc = 0;
      for (std::size_t k = 0; k < l.in; ++k) {
        acc = std::fma(x[row * l.in + k], v[l.weight + k * l.out + n], acc);
      }
      acc = acc + v[l.bias + n];
      y.push_back(!rectify || acc > 0 ? acc : 0);
    }
  }
  return y;
}

/// Through the linear layer and the dropout in front of it.
Floats linear_back(const Linear& l, const Floats& v, const Floats& x, const Floats& dy, Floats& g) {
  Floats dx;
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t k = 0; k < l.in; ++k) {
      float acc = 0;
      for (std::size_t n = 0; n < l.out; ++n) {
        const float gradient = dy[row * l.out + n];
        acc = std::fma(gradient, v[l.weight + k * l.out + n], acc);
        float& weight = g[l.weight + k * l.out + n];
        weight = std::fma(x[row * l.in + k], gradient, weight);
        if (k == 0) g[l.bias + n] = g[l.bias + n] + gradient;
      }
      dx.push_back((x[row * l.in + k] > 0 ? acc : 0) * (1.0f / (1.0f - kShare)));
    }
  }
  return dx;
}

/// Logits become their gradient.
void loss_gradient(const std::vector<std::size_t>& labels, Floats& logits) {
  for (std::size_t row = 0; row < kRows; ++row) {
    float* z = logits.data() + row * kClasses;
    float most = z[0];
    for (std::size_t n = 0; n < kClasses; ++n) most = z[n] > most ? z[n] : most;
    for (std::size_t n = 0; n < kClasses; ++n) z[n] = cpu::exp_f32(z[n] - most);
    const float total = cpu::sum(z, kClasses);
    for (std::size_t n = 0; n < kClasses; ++n) {
      z[n] = (z[n] / total - (n == labels[row] ? 1.0f : 0.0f)) * (1.0f / kBatch);
    }
  }
}

/// Gradient of one logical rank's rows, and its statistics behind it.
Floats rank_gradient(const Floats& v, const data::Dataset& train, std::size_t step,
                     std::size_t rank) {
  const std::size_t steps = train.count / kBatch;
  Floats x;
  std::vector<std::size_t> labels;
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::uint64_t sample =
        test::permuted(kSeed, static_cast<std::uint32_t>(step / steps), train.count,
                       step % steps * kBatch + rank * kRows + i);
    for (std::size_t k = 0; k < 64; ++k) {
      x.push_back(static_cast<float>(train.image(sample)[k]) / 255.0f);
    }
    labels.push_back(train.labels[sample]);
  }
  Floats g(kValues, 0.0f);
  const StagePass first = through(kStages[0], v, x, g);
  const StagePass second = through(kStages[1], v, first.pooled, g);
  Floats flat = second.pooled;
  drop(step, 0, rank, flat);
  Floats hidden = linear(kLinear[0], v, flat, true);
  drop(step, 1, rank, hidden);
  Floats logits = linear(kLinear[1], v, hidden, false);
  loss_gradient(labels, logits);
  const Floats dhidden = linear_back(kLinear[1], v, hidden, logits, g);
  const Floats dflat = linear_back(kLinear[0], v, flat, dhidden, g);
  const Floats dfirst = back(kStages[1], v, second, dflat, g);
  back(kStages[0], v, first, dfirst, g);
  return g;
}

Floats tree_gradient(const Floats& v, const data::Dataset& train, std::size_t step,
                     std::size_t first, std::size_t length) {
  if (length == 1) return rank_gradient(v, train, step, first);
  Floats left = tree_gradient(v, train, step, first, length / 2);
  const Floats right = tree_gradient(v, train, step, first + length / 2, length / 2);
  for (std::size_t i = 0; i < left.size(); ++i) left[i] = left[i] + right[i];
  return left;
}

Floats first_values() {
  Floats v(kValues, 0.0f);
  const auto fill = [&](std::size_t at, std::size_t size, std::uint32_t tensor,
                        std::size_t fan_in) {
    const float bound = std::sqrt(6.0f / static_cast<float>(fan_in));
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint32_t bits = random_bits(kSeed, RngStream::kInit, tensor, i);
      v[at + i] = (2 * (static_cast<float>(bits >> 8) / 16'777'216.0f) - 1) * bound;
    }
  };
  fill(kStages[0].weight, 18, 0, 9);
  fill(kStages[1].weight, 54, 3, 18);
  fill(kLinear[0].weight, 60, 6, 12);
  fill(kLinear[1].weight, 50, 8, kHidden);
  for (const Stage& s : kStages) {
    for (std::size_t c = 0; c < s.out; ++c) v[s.gamma + c] = v[s.variance + c] = 1;
  }
  return v;
}

}  // namespace

TEST_CASE("the engine computes what docs/numerics.md says of the layers, bit by bit") {
  constexpr std::int64_t kSteps = 25;  // three steps into the second pass
  const data::Dataset train = *data::load_dataset(
      {"examples/data/digits-train-images.idx.gz", "examples/data/digits-train-labels.idx.gz"});
  Floats v = first_values();
  Floats velocity(kParameters, 0.0f);
  for (std::size_t step = 0; step < kSteps; ++step) {
    const Floats g = tree_gradient(v, train, step, 0, kRanks);
    for (std::size_t i = 0; i < kParameters; ++i) {
      velocity[i] = std::fma(0.9f, velocity[i], g[i]);
      v[i] = std::fma(-0.05f, velocity[i], v[i]);
    }
    for (std::size_t i = kParameters; i < kValues; ++i) {
      v[i] = std::fma(0.1f, g[i] * (1.0f / kRanks) - v[i], v[i]);
    }
  }
  engine::TrainingConfig config;
  config.seed = kSeed;
  config.steps = kSteps;
  config.cnn = engine::CnnConfig{{2, 3}, 3, true, {static_cast<int>(kHidden)}, kShare};
  config.train = {"digits-train-images.idx.gz", "digits-train-labels.idx.gz"};
  config.sgd = {0.05f, 0.9f};
  config.data_root = "examples/data";
  std::optional<Result<engine::TrainingSummary>> summary;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    summary = engine::run_training(config, communicator, clock, {});
  });
  REQUIRE(summary->has_value());
  CHECK((*summary)->model_parameters == kParameters);
  CHECK((*summary)->model_sha256 == to_hex(engine::combine(engine::block_digests(v))));
}
