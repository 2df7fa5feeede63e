#include "worker/engine/mlp.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::engine;

namespace {

struct Batch {
  std::size_t rows = 0;
  std::vector<float> input;
  std::vector<std::int32_t> labels;
};

Batch make_batch(const MlpShape& shape, std::size_t rows, std::uint64_t seed) {
  Rng rng(seed);
  Batch batch{rows, {}, {}};
  for (std::size_t i = 0; i < rows * shape.widths.front(); ++i) {
    batch.input.push_back(static_cast<float>(rng.unit()));
  }
  for (std::size_t i = 0; i < rows; ++i) {
    batch.labels.push_back(static_cast<std::int32_t>(rng.below(shape.widths.back())));
  }
  return batch;
}

void put(Mlp& model, const Batch& batch) {
  std::copy(batch.input.begin(), batch.input.end(), model.input().begin());
  std::copy(batch.labels.begin(), batch.labels.end(), model.labels().begin());
}

/// Mean loss, all in double: the definition of the model, written a second time.
double loss_in_double(const MlpShape& shape, const std::vector<double>& parameters,
                      const Batch& batch) {
  const auto tensors = shape.tensors();
  double total = 0;
  for (std::size_t row = 0; row < batch.rows; ++row) {
    std::vector<double> x(
        batch.input.begin() + static_cast<std::ptrdiff_t>(row * shape.widths[0]),
        batch.input.begin() + static_cast<std::ptrdiff_t>((row + 1) * shape.widths[0]));
    for (std::size_t l = 0; l < shape.layers(); ++l) {
      std::vector<double> y(shape.widths[l + 1]);
      for (std::size_t n = 0; n < y.size(); ++n) {
        y[n] = parameters[tensors[2 * l + 1].offset + n];
        for (std::size_t k = 0; k < x.size(); ++k) {
          y[n] += x[k] * parameters[tensors[2 * l].offset + k * y.size() + n];
        }
        if (l + 1 < shape.layers()) y[n] = std::max(y[n], 0.0);
      }
      x = y;
    }
    const double most = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const double v : x) sum += std::exp(v - most);
    total += std::log(sum) + most - x[static_cast<std::size_t>(batch.labels[row])];
  }
  return total / static_cast<double>(batch.rows);
}

std::vector<float> gradient_of(const MlpShape& shape, const std::vector<float>& parameters,
                               const Batch& batch) {
  kernels::cpu::Context context;
  Mlp model(shape, batch.rows, context);
  put(model, batch);
  std::vector<float> gradient(shape.parameters());
  model.forward(parameters, batch.rows);
  model.losses_with_gradient(batch.rows, 1.0f / static_cast<float>(batch.rows));
  const Mlp::Node node{0, 1, gradient.data()};
  model.backward(parameters, batch.rows, batch.rows, {&node, 1});
  return gradient;
}

}  // namespace

TEST_CASE("tensors stand one after another, weight before bias") {
  const MlpShape shape{{64, 128, 10}};
  CHECK(shape.parameters() == 64 * 128 + 128 + 128 * 10 + 10);
  const auto tensors = shape.tensors();
  REQUIRE(tensors.size() == 4);
  CHECK(tensors[2].name == "layers.1.weight");
  CHECK(tensors[2].shape == std::vector<std::size_t>{128, 10});
  CHECK(tensors[2].offset == 64 * 128 + 128);
  CHECK(tensors[3].offset + tensors[3].size == shape.parameters());
}

TEST_CASE("first weights are uniform within their bound and biases are zero") {
  const MlpShape shape{{64, 128, 10}};
  std::vector<float> parameters(shape.parameters());
  initialise(shape, 7, parameters);
  const float bound = std::sqrt(6.0f / 64);
  const auto weights = parameters.begin() + 64 * 128;
  const auto [least, most] = std::minmax_element(parameters.begin(), weights);
  CHECK(*least >= -bound);
  CHECK(*most <= bound);
  CHECK(*least < -0.99f * bound);
  CHECK(*most > 0.99f * bound);
  CHECK(std::all_of(weights, weights + 128, [](float v) { return v == 0; }));
  CHECK(parameters[3] == (2 * random_unit(7, RngStream::kInit, 0, 3) - 1) * bound);
  CHECK(parameters[64 * 128 + 128 + 5] ==
        (2 * random_unit(7, RngStream::kInit, 2, 5) - 1) * std::sqrt(6.0f / 128));
}

TEST_CASE("gradients are those of finite differences in double, for every layer") {
  for (const auto& widths : std::vector<std::vector<std::size_t>>{
           {5, 3}, {7, 9, 4}, {6, 11, 5, 3}, {3, 4, 6, 5, 2}, {1, 1, 2}}) {
    const MlpShape shape{widths};
    std::vector<float> parameters(shape.parameters());
    initialise(shape, test::seed(), parameters);
    // Biases off zero, so that no ReLU stands at its kink.
    Rng rng(test::seed());
    for (float& p : parameters) p += 0.1f * static_cast<float>(rng.unit());
    const Batch batch = make_batch(shape, 6, test::seed() + 1);
    const auto gradient = gradient_of(shape, parameters, batch);
    std::vector<double> point(parameters.begin(), parameters.end());
    for (std::size_t i = 0; i < point.size(); ++i) {
      constexpr double kStep = 1e-6;
      const double at = point[i];
      point[i] = at + kStep;
      const double above = loss_in_double(shape, point, batch);
      point[i] = at - kStep;
      const double below = loss_in_double(shape, point, batch);
      point[i] = at;
      const double expected = (above - below) / (2 * kStep);
      CAPTURE(i);
      // fp32 chains of at most 11 terms of size 1: 11 x 2^-24 < 1e-6; the rest is the difference's.
      CHECK(std::abs(static_cast<double>(gradient[i]) - expected) <
            2e-6 + 1e-4 * std::abs(expected));
    }
  }
}

TEST_CASE("rows computed together or apart have the same bits, and so have nodes") {
  const MlpShape shape{{13, 17, 6}};
  std::vector<float> parameters(shape.parameters());
  initialise(shape, 3, parameters);
  constexpr std::size_t kRanks = 8;
  constexpr std::size_t kRows = 3;
  const Batch batch = make_batch(shape, kRanks * kRows, test::seed());
  const auto gradients = [&](std::size_t first, std::size_t ranks) {
    kernels::cpu::Context context(2);
    Mlp model(shape, ranks * kRows, context);
    Batch part{ranks * kRows, {}, {}};
    part.input.assign(
        batch.input.begin() + static_cast<std::ptrdiff_t>(first * kRows * 13),
        batch.input.begin() + static_cast<std::ptrdiff_t>((first + ranks) * kRows * 13));
    part.labels.assign(batch.labels.begin() + static_cast<std::ptrdiff_t>(first * kRows),
                       batch.labels.begin() + static_cast<std::ptrdiff_t>((first + ranks) * kRows));
    put(model, part);
    std::vector<float> gradient(shape.parameters());
    model.forward(parameters, part.rows);
    model.losses_with_gradient(part.rows, 1.0f / 24);
    const Mlp::Node node{0, ranks, gradient.data()};
    model.backward(parameters, part.rows, kRows, {&node, 1});
    return gradient;
  };
  const auto whole = gradients(0, kRanks);
  std::vector<std::vector<float>> parts;
  for (std::size_t r = 0; r < kRanks; ++r) parts.push_back(gradients(r, 1));
  for (std::size_t count = kRanks; count > 1; count /= 2) {
    for (std::size_t r = 0; r < count / 2; ++r) {
      for (std::size_t i = 0; i < whole.size(); ++i) {
        parts[r][i] = parts[2 * r][i] + parts[2 * r + 1][i];
      }
    }
  }
  CHECK(std::memcmp(whole.data(), parts[0].data(), whole.size() * sizeof(float)) == 0);
}
