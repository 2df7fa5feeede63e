#include "worker/engine/optimizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"
#include "worker/engine/block_hash.h"

using namespace muster;
using namespace muster::engine;

namespace {

constexpr AdamwConfig kAdamw{0.003f, 0.9f, 0.999f, 1e-8f, 0.1f};

TrainingConfig with_adamw(const AdamwConfig& adamw = kAdamw) {
  TrainingConfig config;
  config.adamw = adamw;
  return config;
}

TrainingConfig with_sgd() {
  TrainingConfig config;
  config.sgd = {0.1f, 0.9f};
  return config;
}

/// In (-1, 1), of sizes that differ by up to 2^8 from element to element.
std::vector<float> random_values(Rng& rng, std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) {
    values[i] = std::ldexp(static_cast<float>(2 * rng.unit() - 1), -static_cast<int>(i % 9));
  }
  return values;
}

/// AdamW as in the paper (Loshchilov and Hutter, 2019, algorithm 2), in double precision.
struct Textbook {
  std::vector<double> m, v, w;
  double t = 0, power1 = 1, power2 = 1;

  void step(const AdamwConfig& adamw, const std::vector<float>& g) {
    const double beta1 = adamw.beta1, beta2 = adamw.beta2, rate = adamw.learning_rate;
    power1 *= beta1;
    power2 *= beta2;
    for (std::size_t i = 0; i < g.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      const double mean = m[i] / (1 - power1);
      const double square = v[i] / (1 - power2);
      w[i] -= rate * (mean / (std::sqrt(square) + double{adamw.epsilon}) +
                      double{adamw.weight_decay} * w[i]);
    }
  }
};

}  // namespace

TEST_CASE("AdamW stays at the textbook's parameters, but for the rounding of its additions") {
  constexpr std::size_t kElements = 500;
  constexpr int kSteps = 400;
  Rng rng(test::seed());
  kernels::cpu::Context context;
  Optimizer optimizer(with_adamw(), kElements);
  std::vector<float> w = random_values(rng, kElements);
  Textbook exact{std::vector<double>(kElements), std::vector<double>(kElements), {}};
  exact.w.assign(w.begin(), w.end());
  const std::vector<float> drift = random_values(rng, kElements);
  double greatest = 0;
  double bound = 0;
  for (int step = 1; step <= kSteps; ++step) {
    std::vector<float> g = random_values(rng, kElements);
    for (std::size_t i = 0; i < kElements; ++i) g[i] += drift[i];
    optimizer.update(context, g, 1.0f, w);
    exact.step(kAdamw, g);
    // w is below 2 and rounded twice. The direction is below 4: what ten steps of rounding leave in
    // m, what all steps leave in v, half of it after the root, and four operations.
    bound += 2 * 0x1p-24 + double{kAdamw.learning_rate} * 4 * (14 * 0x1p-24 + step * 0x1p-25);
    for (std::size_t i = 0; i < kElements; ++i) {
      const double error = std::abs(static_cast<double>(w[i]) - exact.w[i]);
      greatest = std::max(greatest, error);
      REQUIRE(error <= bound);
    }
  }
  MESSAGE("greatest distance after " << kSteps << " steps: " << greatest << ", bound " << bound);
}

TEST_CASE("the first step of AdamW is as long as the learning rate, whatever the gradient") {
  kernels::cpu::Context context;
  AdamwConfig adamw = kAdamw;
  adamw.weight_decay = 0;
  Optimizer optimizer(with_adamw(adamw), 4);
  std::vector<float> w(4, 0.0f);
  optimizer.update(context, std::vector<float>{1e-3f, -1e-3f, 1e3f, -1e3f}, 1.0f, w);
  for (std::size_t i = 0; i < 4; ++i) {
    const double expected = (i % 2 == 0 ? -1.0 : 1.0) * double{adamw.learning_rate};
    // epsilon is 1e-5 of the smallest gradient.
    CHECK(std::abs(static_cast<double>(w[i]) - expected) <= 2e-5 * double{adamw.learning_rate});
  }
}

TEST_CASE("decay makes parameters smaller once a step, also where there is no gradient") {
  kernels::cpu::Context context;
  Optimizer optimizer(with_adamw(), 1);
  std::vector<float> w{1.0f};
  optimizer.update(context, std::vector<float>{0.0f}, 1.0f, w);
  CHECK(w[0] == std::fma(-(kAdamw.learning_rate * kAdamw.weight_decay), 1.0f, 1.0f));
}

TEST_CASE("what does not decay is updated as without any decay, wherever gradients are parted") {
  constexpr std::size_t kElements = 9000;
  AdamwConfig without_decay = kAdamw;
  without_decay.weight_decay = 0;
  const Ranges undecayed{{10, 20}, {4000, 5000}, {8999, 9000}};
  Rng rng(test::seed());
  kernels::cpu::Context context;
  Optimizer some(with_adamw(), kElements, undecayed), all(with_adamw(), kElements),
      none(with_adamw(without_decay), kElements);
  const std::vector<float> first = random_values(rng, kElements);
  std::vector<float> w = first, w_all = first, w_none = first;
  for (const std::vector<std::size_t>& cuts :
       {std::vector<std::size_t>{0, 9000}, {0, 15, 4096, 9000}, {0, 10, 20, 4999, 8999, 9000}}) {
    const std::vector<float> g = random_values(rng, kElements);
    std::vector<Gradient> parts;
    for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
      parts.push_back({{cuts[i], cuts[i + 1]}, g.data() + cuts[i]});
    }
    some.update(context, parts, 0.5f, w);
    all.update(context, g, 0.5f, w_all);
    none.update(context, g, 0.5f, w_none);
    std::vector<float> expected = w_all;
    for (const ElementRange range : undecayed) {
      std::copy_n(w_none.data() + range.begin, range.size(), expected.data() + range.begin);
    }
    CHECK(w == expected);
    CHECK(w != w_all);
  }
}

TEST_CASE("where matrices alone decay, biases and the scales of normalisations do not") {
  TrainingConfig config = with_adamw();
  const auto names_of = [&](const ModelShape& shape) {
    std::vector<std::string> names;
    const Ranges undecayed = undecayed_of(config, shape);
    for (const Tensor& tensor : shape.tensors()) {
      if (!intersection(undecayed, {{tensor.offset, tensor.offset + tensor.size}}).empty()) {
        names.push_back(tensor.name);
      }
    }
    return names;
  };
  GptConfig gpt;
  gpt.layers = 1;
  gpt.heads = 2;
  gpt.width = 8;
  gpt.context_length = 4;
  const ModelShape shape = ModelShape::gpt(gpt, 300);
  CHECK(names_of(shape).empty());
  config.adamw->decays_all = false;
  CHECK(names_of(shape) == std::vector<std::string>{"h.0.ln_1.weight", "h.0.ln_1.bias",
                                                    "h.0.attn.c_attn.bias", "h.0.attn.c_proj.bias",
                                                    "h.0.ln_2.weight", "h.0.ln_2.bias",
                                                    "h.0.mlp.c_fc.bias", "h.0.mlp.c_proj.bias",
                                                    "ln_f.weight", "ln_f.bias"});
  ModelShape cnn({.height = 8, .width = 8, .channels = 1});
  cnn.stage({.channels = 2, .side = 3, .normalise = true}).linear(3, false).finish();
  CHECK(names_of(cnn) ==
        std::vector<std::string>{"layers.1.weight", "layers.1.bias", "layers.2.bias"});
}

namespace {

/// The bits of all numbers of a state: of the scalars, and of its buffers.
std::vector<std::vector<std::uint64_t>> bits_of(const OptimizerState& state) {
  std::vector<std::vector<std::uint64_t>> bits(1);
  for (const auto& scalar : state.scalars) {
    bits[0].push_back(std::bit_cast<std::uint64_t>(scalar.value));
  }
  for (const auto& buffer : state.buffers) {
    auto& own = bits.emplace_back();
    for (const float value : buffer.values) own.push_back(std::bit_cast<std::uint32_t>(value));
  }
  return bits;
}

}  // namespace

TEST_CASE("an optimiser goes on from another's state with the same bits") {
  for (const bool is_adamw : {false, true}) {
    CAPTURE(is_adamw);
    const TrainingConfig config = is_adamw ? with_adamw() : with_sgd();
    Rng rng(test::seed());
    kernels::cpu::Context context;
    Optimizer first(config, 100);
    std::vector<float> w = random_values(rng, 100);
    for (int step = 0; step < 5; ++step) first.update(context, random_values(rng, 100), 0.5f, w);
    Optimizer second(config, 100);
    const auto at_start = bits_of(second.state());
    second.state() = first.state();
    std::vector<float> others = w;
    const std::vector<float> g = random_values(rng, 100);
    first.update(context, g, 1.0f, w);
    second.update(context, g, 1.0f, others);
    CHECK(block_digests(w) == block_digests(others));
    CHECK(bits_of(first.state()) == bits_of(second.state()));
    CHECK(bits_of(second.state()) != at_start);
    second.reset();
    CHECK(bits_of(second.state()) == at_start);
  }
}

TEST_CASE("an update that is looked at half way has the same bits, and one that ends there half") {
  for (const bool is_adamw : {false, true}) {
    CAPTURE(is_adamw);
    const TrainingConfig config = is_adamw ? with_adamw() : with_sgd();
    Rng rng(test::seed());
    kernels::cpu::Context context;
    const std::vector<float> start = random_values(rng, 301), g = random_values(rng, 301);
    // The middle lies within the second of three parts.
    const std::array parts = {Gradient{{0, 50}, g.data()}, Gradient{{50, 250}, g.data() + 50},
                              Gradient{{250, 301}, g.data() + 250}};
    Optimizer whole(config, 301), watched(config, 301), ended(config, 301);
    std::vector<float> all = start, seen = start, half = start;
    whole.update(context, g, 0.5f, all);
    std::vector<float> at_half;
    CHECK(watched.update(context, parts, 0.5f, seen, [&]() -> Status {
      CHECK(at_half.empty());
      at_half = seen;
      return {};
    }));
    CHECK(!ended.update(context, parts, 0.5f, half,
                        [] { return Status(Error(ErrorCode::kInternal, "killed")); }));
    CHECK(block_digests(seen) == block_digests(all));
    CHECK(bits_of(watched.state()) == bits_of(whole.state()));
    CHECK(at_half == half);
    CHECK(std::equal(half.begin(), half.begin() + 150, all.begin()));
    CHECK(std::equal(half.begin() + 150, half.end(), start.begin() + 150));
  }
}

TEST_CASE("only a gradient above the greatest norm is scaled, down to it") {
  CHECK(norm_of(std::vector<float>{9.0f, 16.0f}) == 5.0f);
  CHECK(norm_of({}) == 0.0f);
  CHECK(clip_scale(0.0f, 1.0f) == 1.0f);
  CHECK(clip_scale(1.0f, 1.0f) == 1.0f);
  CHECK(clip_scale(4.0f, 1.0f) == 0.25f);
  CHECK(clip_scale(std::nextafter(1.0f, 2.0f), 1.0f) < 1.0f);
}
