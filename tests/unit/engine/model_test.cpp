#include "worker/engine/model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/engine/gpt_in_double.h"
#include "tests/unit/engine/model_in_double.h"

using namespace muster;
using namespace muster::engine;
using test::loss_in_double;
using test::make_batch;
using test::ModelBatch;
namespace cpu = muster::kernels::cpu;

namespace {

ModelShape mlp(const std::vector<std::size_t>& widths, float dropout = 0) {
  return ModelShape::mlp(widths, dropout);
}

/// Two stages with all there is between an image of 6 x 5 and four classes.
ModelShape cnn(float dropout, bool normalise = true) {
  return ModelShape({6, 5, 2})
      .stage({3, 3, normalise})
      .stage({4, 3, normalise})
      .dropout(dropout)
      .linear(5, true)
      .dropout(dropout)
      .linear(4, false)
      .finish();
}

/// Two blocks of two heads over 5 tokens of 11.
ModelShape gpt(float dropout = 0, float attention_dropout = 0) {
  return ModelShape::gpt({2, 2, 6, 5, 11, dropout, attention_dropout}, 11);
}

std::vector<float> first_values(const ModelShape& shape, std::uint64_t seed) {
  std::vector<float> values(shape.values());
  initialise(shape, seed, values);
  return values;
}

/// First values moved off zero, so that no ReLU stands at its kink.
std::vector<float> moved_values(const ModelShape& shape, std::uint64_t seed) {
  std::vector<float> values = first_values(shape, seed);
  Rng rng(seed);
  for (float& value : values) value += 0.1f * static_cast<float>(rng.unit());
  return values;
}

/// Of the model for `rows` of the batch, beginning with those of logical rank `first`.
struct Passed {
  std::vector<float> gradient, loss;
};

Passed passed(const ModelShape& shape, const std::vector<float>& values, const ModelBatch& batch,
              std::size_t first, const std::vector<std::size_t>& node_ranks, int threads = 1,
              std::size_t patch_bytes = 0,
              muster::kernels::Products products = muster::kernels::Products::kFloat32) {
  cpu::Context context(threads, products);
  const std::size_t nodes = node_ranks.size();
  std::vector<std::vector<float>> gradients(nodes, std::vector<float>(shape.values(), NAN));
  std::vector<Model::Node> list;
  std::size_t ranks = 0;
  for (std::size_t n = 0; n < nodes; ++n) {
    list.push_back({ranks * batch.rows_per_rank, node_ranks[n], gradients[n].data(),
                    batch.first_rank + first + ranks});
    ranks += node_ranks[n];
  }
  const std::size_t rows = ranks * batch.rows_per_rank;
  Model model(shape, rows, context, Activations::kKept, patch_bytes);
  test::fill(model, batch, first * batch.rows_per_rank, rows);
  const Model::Batch pass{batch.seed, batch.step, batch.rows_per_rank, list};
  model.use(values);
  model.forward(pass);
  model.losses_with_gradient(pass, 1.0f / static_cast<float>(batch.labels.size()));
  model.backward(pass);
  Passed result;
  result.loss.assign(model.loss().begin(), model.loss().end());
  for (const auto& gradient : gradients) {
    result.gradient.insert(result.gradient.end(), gradient.begin(), gradient.end());
  }
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

std::vector<ModelShape> all_kinds() {
  return {mlp({13, 17, 6}), mlp({13, 17, 9, 6}, 0.3f),
          cnn(0),           cnn(0.4f),
          cnn(0.4f, false), gpt(),
          gpt(0.3f),        gpt(0, 0.3f),
          gpt(0.2f, 0.4f)};
}

}  // namespace

TEST_CASE("tensors stand one after another, weight before bias") {
  const ModelShape shape = mlp({64, 128, 10});
  CHECK(shape.parameters() == 64 * 128 + 128 + 128 * 10 + 10);
  CHECK(shape.running() == 0);
  const auto& tensors = shape.tensors();
  REQUIRE(tensors.size() == 4);
  CHECK(tensors[2].name == "layers.1.weight");
  CHECK(tensors[2].shape == std::vector<std::size_t>{128, 10});
  CHECK(tensors[2].offset == 64 * 128 + 128);
  CHECK(tensors[3].offset + tensors[3].size == shape.parameters());
}

TEST_CASE("products of a row are those with parameters, as often as each is used") {
  CHECK(mlp({64, 128, 10}).products() == 64 * 128 + 128 * 10);
  // Of 6 x 5 pixels, 2 channels by 3 x 3 taps to 3, of 3 x 2 to 4, then 4 to 5 and to the end.
  const ModelShape images = cnn(0.5f);
  CHECK(images.products() == 9 * 2 * 30 * 3 + 9 * 3 * 6 * 4 + 4 * 5 + 5 * images.output().size());
  // A transformer's layer has 12 width^2 for each of 4 positions, its head all 16 tokens.
  CHECK(ModelShape::gpt({2, 2, 8, 4}, 16).products() == 4 * (2 * 12 * 8 * 8 + 8 * 16));
}

TEST_CASE("running statistics stand behind the last parameter, by the names of their layers") {
  const ModelShape shape = cnn(0.5f);
  std::vector<std::string> names;
  std::size_t next = 0;
  for (const Tensor& tensor : shape.tensors()) {
    names.push_back(tensor.name);
    CHECK(tensor.offset == next);
    next += tensor.size;
  }
  CHECK(next == shape.values());
  CHECK(names == std::vector<std::string>{
                     "layers.0.weight", "layers.1.weight", "layers.1.bias", "layers.2.weight",
                     "layers.3.weight", "layers.3.bias", "layers.4.weight", "layers.4.bias",
                     "layers.5.weight", "layers.5.bias", "layers.1.running_mean",
                     "layers.1.running_var", "layers.3.running_mean", "layers.3.running_var"});
  CHECK(shape.trained().size() == 10);
  CHECK(shape.running() == 2 * (3 + 4));
  CHECK(shape.tensors()[3].shape == std::vector<std::size_t>{3, 3, 3, 4});
  // 6 x 5 becomes 3 x 2 and 1 x 1.
  CHECK(shape.tensors()[6].shape == std::vector<std::size_t>{4, 5});
}

TEST_CASE("a dropout has no tensor and takes no number from the layers that have") {
  const ModelShape with = mlp({64, 128, 10}, 0.5f);
  const ModelShape without = mlp({64, 128, 10});
  REQUIRE(with.tensors().size() == without.tensors().size());
  for (std::size_t t = 0; t < with.tensors().size(); ++t) {
    CHECK(with.tensors()[t].name == without.tensors()[t].name);
  }
  CHECK(with.description() != without.description());
  CHECK(with.layers().size() == without.layers().size() + 1);
}

TEST_CASE("a transformer's tensors have the names and shapes of GPT-2's checkpoints") {
  const ModelShape shape = ModelShape::gpt({1, 2, 8, 5}, 11);
  std::vector<std::string> lines;
  for (const Tensor& tensor : shape.tensors()) {
    std::string line = tensor.name;
    for (const std::size_t size : tensor.shape) line += " " + std::to_string(size);
    lines.push_back(line);
  }
  CHECK(lines == std::vector<std::string>{"wte.weight 11 8", "wpe.weight 5 8", "h.0.ln_1.weight 8",
                                          "h.0.ln_1.bias 8", "h.0.attn.c_attn.weight 8 24",
                                          "h.0.attn.c_attn.bias 24", "h.0.attn.c_proj.weight 8 8",
                                          "h.0.attn.c_proj.bias 8", "h.0.ln_2.weight 8",
                                          "h.0.ln_2.bias 8", "h.0.mlp.c_fc.weight 8 32",
                                          "h.0.mlp.c_fc.bias 32", "h.0.mlp.c_proj.weight 32 8",
                                          "h.0.mlp.c_proj.bias 8", "ln_f.weight 8", "ln_f.bias 8"});
  // As large as the smallest GPT-2.
  CHECK(ModelShape::gpt({12, 12, 768, 1024}, 50257).parameters() == 124'439'808);
}

TEST_CASE("all that drops in a transformer is drawn apart, whole or cut") {
  const auto numbers = [](const ModelShape& shape) {
    std::vector<std::uint32_t> found;
    for (const auto& layer : shape.layers()) {
      if (layer.dropout > 0) found.push_back(layer.number);
    }
    return found;
  };
  // Behind the embedding, and at the end of each of two branches a block.
  CHECK(numbers(gpt(0.3f)) == std::vector<std::uint32_t>{0, 1, 2, 3, 4});
  CHECK(numbers(gpt()).empty());
  CHECK(numbers(gpt(0, 0.3f)) == std::vector<std::uint32_t>{0, 1});
  CHECK(numbers(gpt(0.3f, 0.3f)) == std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 6});
  CHECK(numbers(gpt(0.3f).cut(6, 10)) == std::vector<std::uint32_t>{2});
}

TEST_CASE("a transformer's first weights have GPT-2's deviation, those that end a branch less") {
  const ModelShape shape = ModelShape::gpt({8, 4, 64, 32}, 256);
  const std::vector<float> values = first_values(shape, 7);
  for (const Tensor& tensor : shape.tensors()) {
    CAPTURE(tensor.name);
    double squares = 0;
    for (std::size_t i = 0; i < tensor.size; ++i) {
      const double v = values[tensor.offset + i];
      squares += v * v / static_cast<double>(tensor.size);
    }
    const bool is_scale = tensor.name.find("ln_") != std::string::npos;
    if (tensor.name.ends_with("bias")) {
      CHECK(squares == 0);
    } else if (is_scale) {
      CHECK(squares == 1);
    } else {
      const double expected = tensor.name.ends_with("c_proj.weight") ? 0.005 : 0.02;
      // 2,048 values at least: the deviation of the sample is within 8 % of the distribution's.
      CHECK(std::sqrt(squares) == doctest::Approx(expected).epsilon(0.08));
    }
  }
}

TEST_CASE("no position of a transformer reads what comes after it") {
  const ModelShape shape = gpt();
  const std::vector<float> values = moved_values(shape, 3);
  cpu::Context context;
  Model model(shape, 1, context);
  model.use(values);
  const auto logits = [&](const std::vector<std::int32_t>& tokens) {
    std::copy(tokens.begin(), tokens.end(), model.tokens().begin());
    model.forward(1);
    std::vector<float> all;
    for (std::size_t position = 0; position < tokens.size(); ++position) {
      const auto own = model.logits(position);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  };
  const auto first = logits({1, 2, 3, 4, 5});
  const auto second = logits({1, 2, 3, 9, 0});
  const std::ptrdiff_t known = 3 * 11;
  CHECK(
      same_bits({first.begin(), first.begin() + known}, {second.begin(), second.begin() + known}));
  CHECK_FALSE(first == second);
  const auto expected = test::gpt_logits(shape, {values.begin(), values.end()}, {1, 2, 3, 4, 5});
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(std::abs(double{first[i]} - expected[i / 11][i % 11]) < 1e-5);
  }
}

TEST_CASE("first weights are uniform within their bound and biases are zero") {
  const ModelShape shape = mlp({64, 128, 10});
  const std::vector<float> parameters = first_values(shape, 7);
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

TEST_CASE("a convolution's first weights count all taps, scales and running variances begin at 1") {
  const ModelShape shape = cnn(0);
  const std::vector<float> values = first_values(shape, 7);
  for (const Tensor& tensor : shape.tensors()) {
    CAPTURE(tensor.name);
    const bool is_one = tensor.name == "layers.1.weight" || tensor.name == "layers.3.weight" ||
                        tensor.name.ends_with("running_var");
    if (tensor.bound > 0) continue;
    for (std::size_t i = 0; i < tensor.size; ++i) {
      CHECK(values[tensor.offset + i] == (is_one ? 1.0f : 0.0f));
    }
  }
  const Tensor& second = shape.tensors()[3];
  CHECK(values[second.offset + 11] ==
        (2 * random_unit(7, RngStream::kInit, 3, 11) - 1) * std::sqrt(6.0f / 27));
}

TEST_CASE("gradients are those of finite differences in double, for every layer") {
  const ModelShape stages =
      ModelShape({4, 7, 1}).stage({3, 5, true}).stage({2, 1, true}).linear(3, false).finish();
  std::vector<ModelShape> shapes{mlp({5, 3}),
                                 mlp({7, 9, 4}),
                                 mlp({6, 11, 5, 3}),
                                 mlp({3, 4, 6, 5, 2}),
                                 mlp({1, 1, 2}),
                                 mlp({6, 11, 5, 3}, 0.4f),
                                 cnn(0, false),
                                 cnn(0.3f, false),
                                 cnn(0),
                                 cnn(0.3f),
                                 stages,
                                 gpt(),
                                 ModelShape::gpt({1, 1, 4, 1}, 3),
                                 ModelShape::gpt({3, 4, 8, 2}, 5)};
  double worst = 0;
  for (const ModelShape& shape : shapes) {
    CAPTURE(shape.description().front());
    CAPTURE(shape.layers().size());
    const std::vector<float> values = moved_values(shape, test::seed());
    ModelBatch batch = make_batch(shape, 2, 3, test::seed() + 1);
    batch.seed = test::seed();
    batch.step = 5;
    batch.first_rank = 6;
    const Passed found = passed(shape, values, batch, 0, {2});
    std::vector<double> point(values.begin(), values.end());
    for (std::size_t i = 0; i < shape.parameters(); ++i) {
      constexpr double kStep = 1e-6;
      const double at = point[i];
      point[i] = at + kStep;
      const double above = loss_in_double(shape, point, batch);
      point[i] = at - kStep;
      const double below = loss_in_double(shape, point, batch);
      point[i] = at;
      const double expected = (above - below) / (2 * kStep);
      CAPTURE(i);
      const double off = std::abs(static_cast<double>(found.gradient[i]) - expected);
      // fp32 chains of at most 54 terms of size 1: 54 x 2^-24 < 4e-6; the rest is the difference's.
      CHECK(off < 4e-6 + 1e-4 * std::abs(expected));
      worst = std::max(worst, off);
    }
  }
  MESSAGE("furthest from the difference: " << worst);
}

TEST_CASE(
    "a head that cannot make all logits at once has the losses and gradients of one that can") {
  constexpr std::size_t kLength = 150;
  const ModelShape shape = ModelShape::gpt({1, 1, 4, kLength}, 5'000);
  const std::vector<float> values = moved_values(shape, test::seed());
  const ModelBatch batch = make_batch(shape, 1, 2, test::seed() + 1);
  const Passed found = passed(shape, values, batch, 0, {1});
  cpu::Context context(1);
  for (std::size_t row = 0; row < 2; ++row) {
    Model alone(shape, 1, context);
    test::fill(alone, batch, row, 1);
    alone.use(values);
    alone.forward(1);
    alone.losses(1);
    CHECK(std::memcmp(alone.loss().data(), &found.loss[row * kLength], kLength * 4) == 0);
  }
  std::vector<double> point(values.begin(), values.end());
  for (std::size_t i = 11; i < shape.parameters(); i += shape.parameters() / 20) {
    constexpr double kStep = 1e-5;
    const double at = point[i];
    point[i] = at + kStep;
    const double above = loss_in_double(shape, point, batch);
    point[i] = at - kStep;
    const double below = loss_in_double(shape, point, batch);
    point[i] = at;
    const double expected = (above - below) / (2 * kStep);
    CAPTURE(i);
    CHECK(std::abs(static_cast<double>(found.gradient[i]) - expected) < 2e-7);
  }
}

TEST_CASE("statistics are the mean and the unbiased variance of each logical rank, summed") {
  const ModelShape shape = ModelShape({4, 4, 1}).stage({2, 3, true}).linear(3, false).finish();
  const std::vector<float> values = moved_values(shape, 3);
  const ModelBatch batch = make_batch(shape, 4, 2, test::seed());
  const Passed all = passed(shape, values, batch, 0, {4});
  // The convolution in front of the normalisation, in double.
  const LayerShape& layer = shape.layers()[1];
  std::vector<std::vector<double>> of_rank(4);
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    for (std::ptrdiff_t pixel = 0; pixel < 16; ++pixel) {
      double sum = 0;
      for (std::ptrdiff_t tap = 0; tap < 9; ++tap) {
        const std::ptrdiff_t y = pixel / 4 + tap / 3 - 1;
        const std::ptrdiff_t x = pixel % 4 + tap % 3 - 1;
        if (y < 0 || y > 3 || x < 0 || x > 3) continue;
        const auto at = row * 16 + static_cast<std::size_t>(y * 4 + x);
        sum += double{batch.input[at]} * double{values[static_cast<std::size_t>(tap) * 2 + 1]};
      }
      of_rank[row / 2].push_back(sum);
    }
  }
  double means = 0, variances = 0;
  for (const auto& rank : of_rank) {
    double mean = 0, squares = 0;
    for (const double v : rank) mean += v / 32;
    for (const double v : rank) squares += (v - mean) * (v - mean);
    means += mean;
    variances += squares / 31;
  }
  CHECK(std::abs(double{all.gradient[layer.running_mean + 1]} - means) < 1e-5);
  CHECK(std::abs(double{all.gradient[layer.running_variance + 1]} - variances) < 1e-5);

  std::vector<float> updated = values;
  update_running(shape, 4, std::span(all.gradient).subspan(shape.parameters()), updated);
  CHECK(std::equal(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(shape.parameters()),
                   updated.begin()));
  const std::size_t at = layer.running_variance + 1;
  CHECK(updated[at] == std::fma(0.1f, all.gradient[at] / 4 - values[at], values[at]));
}

TEST_CASE("rows computed together or apart have the same bits, and so have nodes") {
  for (const ModelShape& shape : all_kinds()) {
    CAPTURE(shape.description().front());
    const std::vector<float> values = moved_values(shape, 3);
    constexpr std::size_t kRanks = 8;
    ModelBatch batch = make_batch(shape, kRanks, 3, test::seed());
    batch.seed = 7;
    batch.step = 1'000'000'000'000;
    const Passed whole = passed(shape, values, batch, 0, {kRanks}, 2);
    std::vector<std::vector<float>> parts;
    std::vector<float> losses;
    for (std::size_t r = 0; r < kRanks; ++r) {
      const Passed part = passed(shape, values, batch, r, {1}, 2);
      parts.push_back(part.gradient);
      losses.insert(losses.end(), part.loss.begin(), part.loss.end());
    }
    CHECK(same_bits(losses, whole.loss));
    for (std::size_t count = kRanks; count > 1; count /= 2) {
      for (std::size_t r = 0; r < count / 2; ++r) {
        for (std::size_t i = 0; i < whole.gradient.size(); ++i) {
          parts[r][i] = parts[2 * r][i] + parts[2 * r + 1][i];
        }
      }
    }
    CHECK(same_bits(whole.gradient, parts[0]));

    // Several nodes of one pass, as a worker has that holds ranks 3 to 8.
    const Passed nodes = passed(shape, values, batch, 3, {1, 4}, 1);
    std::vector<float> apart = passed(shape, values, batch, 3, {1}).gradient;
    const std::vector<float> four = passed(shape, values, batch, 4, {4}).gradient;
    apart.insert(apart.end(), four.begin(), four.end());
    CHECK(same_bits(nodes.gradient, apart));
  }
}

TEST_CASE("every instruction set and number of threads has the same bits") {
  const cpu::Target best = cpu::best_target();
  for (const ModelShape& shape : all_kinds()) {
    const std::vector<float> values = moved_values(shape, 3);
    const ModelBatch batch = make_batch(shape, 8, 3, test::seed());
    cpu::force_target(cpu::Target::kScalar);
    const Passed scalar = passed(shape, values, batch, 0, {8});
    for (const cpu::Target target :
         {cpu::Target::kScalar, cpu::Target::kAvx2, cpu::Target::kAvx512, cpu::Target::kNeon}) {
      if (!cpu::has_target(target)) continue;
      cpu::force_target(target);
      for (const int threads : {1, 2, 3}) {
        const Passed other = passed(shape, values, batch, 0, {8}, threads);
        CHECK(same_bits(other.gradient, scalar.gradient));
        CHECK(same_bits(other.loss, scalar.loss));
      }
    }
  }
  cpu::force_target(best);
}

TEST_CASE("patches of a convolution in pieces of any number of rows: the same bits") {
  constexpr std::size_t kRowBytes = sizeof(float) * 6 * 5 * 2 * 9;  // of the first convolution
  using muster::kernels::Products;
  for (const ModelShape& shape : {cnn(0.4f), cnn(0.4f, false)}) {
    const std::vector<float> values = moved_values(shape, 3);
    for (const auto& [rows_per_rank, nodes] :
         {std::pair(std::size_t{3}, std::vector<std::size_t>{8}),
          std::pair(std::size_t{3}, std::vector<std::size_t>{1, 4, 2}),
          std::pair(std::size_t{2}, std::vector<std::size_t>{16}),
          std::pair(std::size_t{11}, std::vector<std::size_t>{1})}) {
      const ModelBatch batch = make_batch(shape, 16, rows_per_rank, test::seed());
      for (const Products products : {Products::kFloat32, Products::kBfloat16}) {
        const Passed whole = passed(shape, values, batch, 0, nodes, 1, 0, products);
        for (const std::size_t rows : {0, 1, 2, 3, 4, 5, 6, 7, 12, 13, 23}) {
          CAPTURE(rows);
          const Passed pieces =
              passed(shape, values, batch, 0, nodes, 2, rows * kRowBytes + 1, products);
          CHECK(same_bits(pieces.gradient, whole.gradient));
          CHECK(same_bits(pieces.loss, whole.loss));
        }
      }
    }
  }
}

TEST_CASE("as much of patches as suits any number of threads has the bits of all at once") {
  // Of 32 rows of the first convolution 14 are laid out at once for each thread.
  ModelShape shape({16, 16, 8});
  shape.stage({8, 3, true}).stage({16, 3, false}).linear(4, false).finish();
  const std::vector<float> values = moved_values(shape, 3);
  const ModelBatch batch = make_batch(shape, 8, 4, test::seed());
  const Passed whole = passed(shape, values, batch, 0, {8}, 1, std::size_t{1} << 30);
  for (const int threads : {1, 2, 3}) {
    CAPTURE(threads);
    const Passed pieces = passed(shape, values, batch, 0, {8}, threads);
    CHECK(same_bits(pieces.gradient, whole.gradient));
    CHECK(same_bits(pieces.loss, whole.loss));
  }
}

TEST_CASE("evaluation drops nothing and normalises by the running statistics") {
  for (const ModelShape& shape : {cnn(0.5f), mlp({13, 17, 6}, 0.5f)}) {
    const std::vector<float> values = moved_values(shape, 3);
    const ModelBatch batch = make_batch(shape, 1, 9, test::seed());
    cpu::Context context;
    Model model(shape, 9, context);
    test::fill(model, batch, 0, 9);
    model.use(values);
    model.forward(9);
    model.losses(9);
    double mean = 0;
    for (const float loss : model.loss()) mean += double{loss} / 9;
    const std::vector<double> point(values.begin(), values.end());
    CHECK(std::abs(mean - loss_in_double(shape, point, batch, true)) < 1e-5);
    CHECK(std::abs(mean - loss_in_double(shape, point, batch)) > 1e-4);
    // A row's loss does not depend on its neighbours.
    Model one(shape, 1, context);
    test::fill(one, batch, 4, 1);
    one.use(values);
    one.forward(1);
    one.losses(1);
    CHECK(one.loss()[0] == model.loss()[4]);
  }
}

TEST_CASE("what is dropped follows from seed, step, layer, row and element alone") {
  // One hidden layer of ones: with weights of one every logit counts what was kept.
  const ModelShape shape = mlp({1, 1000, 2}, 0.25f);
  std::vector<float> values(shape.values(), 0.0f);
  std::fill_n(values.begin(), 1000, 1.0f);
  for (std::size_t i = 0; i < 1000; ++i) values[2000 + 2 * i] = 1.0f;
  const auto gradient_of = [&](std::uint64_t seed, std::int64_t step, std::size_t first_rank) {
    ModelBatch batch;
    batch.ranks = 2;
    batch.rows_per_rank = 2;
    batch.input = {1, 1, 1, 1};
    batch.labels = {1, 1, 1, 1};
    batch.seed = seed;
    batch.step = step;
    batch.first_rank = first_rank;
    // The gradient of the second layer's weights tells which elements were there.
    return passed(shape, values, batch, 0, {2}).gradient;
  };
  const auto first = gradient_of(7, 0, 0);
  CHECK(same_bits(first, gradient_of(7, 0, 0)));
  CHECK_FALSE(same_bits(first, gradient_of(8, 0, 0)));
  CHECK_FALSE(same_bits(first, gradient_of(7, 1, 0)));
  CHECK_FALSE(same_bits(first, gradient_of(7, std::int64_t{1} << 32, 0)));
  CHECK_FALSE(same_bits(first, gradient_of(7, 0, 2)));

  cpu::Context context;
  Model model(shape, 1, context);
  model.use(values);
  std::size_t kept = 0;
  for (std::int64_t step = 0; step < 40; ++step) {
    std::vector<float> gradient(shape.values());
    const Model::Node node{0, 1, gradient.data(), 0};
    model.input()[0] = 1;
    model.labels()[0] = 1;
    model.forward(Model::Batch{7, step, 1, {&node, 1}});
    model.losses_with_gradient(Model::Batch{7, step, 1, {&node, 1}}, 1);
    model.backward(Model::Batch{7, step, 1, {&node, 1}});
    for (std::size_t i = 0; i < 1000; ++i) kept += gradient[2000 + 2 * i] != 0 ? 1 : 0;
  }
  // 40,000 throws of a coin of 0.75: five deviations are 433.
  CHECK(kept > 30'000 - 433);
  CHECK(kept < 30'000 + 433);
  MESSAGE("kept " << kept << " of 40000");
}

TEST_CASE("what is said to be finished is never written again, and all of it is said") {
  const ModelShape shapes[] = {mlp({13, 17, 9, 6}, 0.3f), cnn(0.4f), cnn(0.4f, false), gpt()};
  for (const ModelShape& shape : shapes) {
    const ModelBatch batch = make_batch(shape, 4, 3, 5);
    cpu::Context context;
    Model model(shape, batch.rows(), context);
    test::fill(model, batch, 0, batch.rows());
    // Two nodes of two logical ranks each, with something behind the values.
    constexpr std::size_t kTail = 3;
    std::vector<std::vector<float>> gradients(2, std::vector<float>(shape.values() + kTail, 77.0f));
    const std::size_t half = batch.rows() / 2;
    const std::vector<Model::Node> nodes{{0, 2, gradients[0].data(), 0},
                                         {half, 2, gradients[1].data(), 2}};
    const Model::Batch pass{batch.seed, batch.step, batch.rows_per_rank, nodes};
    const std::vector<float> values = moved_values(shape, 5);
    model.use(values);
    model.forward(pass);
    model.losses_with_gradient(pass, 1.0f / static_cast<float>(batch.rows()));
    std::vector<std::size_t> told;
    std::vector<std::vector<float>> copies(2, std::vector<float>(gradients[0].size()));
    model.backward(pass, [&](std::size_t first) {
      const std::size_t last = told.empty() ? gradients[0].size() : told.back();
      CHECK(first < last);
      told.push_back(first);
      for (std::size_t n = 0; n < 2; ++n) {
        std::copy(gradients[n].begin() + static_cast<std::ptrdiff_t>(first),
                  gradients[n].begin() + static_cast<std::ptrdiff_t>(last),
                  copies[n].begin() + static_cast<std::ptrdiff_t>(first));
      }
    });
    CHECK(same_bits(copies[0], gradients[0]));
    CHECK(same_bits(copies[1], gradients[1]));
    for (const auto& gradient : gradients) {
      for (std::size_t i = 0; i < kTail; ++i) CHECK(gradient[shape.values() + i] == 77.0f);
    }
    std::vector<std::size_t> starts = shape.layer_starts();
    std::reverse(starts.begin(), starts.end());
    CHECK(told == starts);
  }
}
