// docs/numerics.md a second time, as plain loops over std::fma, one logical rank after another:
// what the golden hash promises must follow from the page and not from one implementation of it.
// Only exp, log and the sum inside a tensor are the kernels'.
#include <doctest/doctest.h>

#include <algorithm>
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

constexpr std::uint64_t kSeed = 7;
constexpr std::size_t kIn = 64, kHidden = 128, kOut = 10, kRanks = 16, kRows = 4;
constexpr std::size_t kBatch = kRanks * kRows;

struct Parameters {
  std::vector<float> w1 = std::vector<float>(kIn * kHidden), b1 = std::vector<float>(kHidden),
                     w2 = std::vector<float>(kHidden * kOut), b2 = std::vector<float>(kOut);

  std::vector<float> flat() const {
    std::vector<float> all = w1;
    for (const auto* part : {&b1, &w2, &b2}) all.insert(all.end(), part->begin(), part->end());
    return all;
  }
  void add(const Parameters& right) {
    const auto sum = [](std::vector<float>& a, const std::vector<float>& b) {
      for (std::size_t i = 0; i < a.size(); ++i) a[i] = a[i] + b[i];
    };
    sum(w1, right.w1);
    sum(b1, right.b1);
    sum(w2, right.w2);
    sum(b2, right.b2);
  }
};

struct RowResult {
  std::vector<float> hidden, gradient;  ///< after ReLU; of the logits
};

RowResult forward(const Parameters& p, const std::vector<float>& x, std::size_t label) {
  RowResult row{std::vector<float>(kHidden), std::vector<float>(kOut)};
  for (std::size_t n = 0; n < kHidden; ++n) {
    float acc = 0;
    for (std::size_t k = 0; k < kIn; ++k) acc = std::fma(x[k], p.w1[k * kHidden + n], acc);
    acc = acc + p.b1[n];
    row.hidden[n] = acc > 0 ? acc : 0;
  }
  std::vector<float> z(kOut);
  for (std::size_t n = 0; n < kOut; ++n) {
    float acc = 0;
    for (std::size_t k = 0; k < kHidden; ++k) {
      acc = std::fma(row.hidden[k], p.w2[k * kOut + n], acc);
    }
    z[n] = acc + p.b2[n];
  }
  float most = z[0];
  for (const float v : z) most = v > most ? v : most;
  for (float& v : z) v = cpu::exp_f32(v - most);
  const float total = cpu::sum(z.data(), z.size());
  for (std::size_t n = 0; n < kOut; ++n) {
    row.gradient[n] = (z[n] / total - (n == label ? 1.0f : 0.0f)) * (1.0f / kBatch);
  }
  return row;
}

/// Gradient of the rows of one logical rank.
Parameters rank_gradient(const Parameters& p, const data::Dataset& train, std::size_t step,
                         std::size_t rank) {
  Parameters g;
  const std::size_t steps = train.count / kBatch;
  for (std::size_t i = 0; i < kRows; ++i) {
    const std::uint64_t sample =
        test::permuted(kSeed, static_cast<std::uint32_t>(step / steps), train.count,
                       step % steps * kBatch + rank * kRows + i);
    std::vector<float> x(kIn);
    for (std::size_t k = 0; k < kIn; ++k) {
      x[k] = static_cast<float>(train.image(sample)[k]) / 255.0f;
    }
    const RowResult row = forward(p, x, train.labels[sample]);
    for (std::size_t n = 0; n < kOut; ++n) {
      g.b2[n] = g.b2[n] + row.gradient[n];
      for (std::size_t k = 0; k < kHidden; ++k) {
        g.w2[k * kOut + n] = std::fma(row.hidden[k], row.gradient[n], g.w2[k * kOut + n]);
      }
    }
    for (std::size_t k = 0; k < kHidden; ++k) {
      float dx = 0;
      for (std::size_t n = 0; n < kOut; ++n) {
        dx = std::fma(row.gradient[n], p.w2[k * kOut + n], dx);
      }
      if (!(row.hidden[k] > 0)) dx = 0;
      g.b1[k] = g.b1[k] + dx;
      for (std::size_t j = 0; j < kIn; ++j) {
        g.w1[j * kHidden + k] = std::fma(x[j], dx, g.w1[j * kHidden + k]);
      }
    }
  }
  return g;
}

Parameters tree_gradient(const Parameters& p, const data::Dataset& train, std::size_t step,
                         std::size_t first, std::size_t length) {
  if (length == 1) return rank_gradient(p, train, step, first);
  Parameters left = tree_gradient(p, train, step, first, length / 2);
  left.add(tree_gradient(p, train, step, first + length / 2, length / 2));
  return left;
}

Parameters first_parameters() {
  Parameters p;
  const auto fill = [](std::vector<float>& weight, std::uint32_t tensor, std::size_t fan_in) {
    const float bound = std::sqrt(6.0f / static_cast<float>(fan_in));
    for (std::size_t i = 0; i < weight.size(); ++i) {
      const float unit =
          static_cast<float>(random_bits(kSeed, RngStream::kInit, tensor, i) >> 8) / 16'777'216.0f;
      weight[i] = (2 * unit - 1) * bound;
    }
  };
  fill(p.w1, 0, kIn);
  fill(p.w2, 2, kHidden);
  return p;
}

/// The length of a gradient: the squares of a block on 16 lanes, the lanes 8-4-2-1, then the
/// blocks.
float norm_by_the_page(const std::vector<float>& g) {
  std::vector<float> blocks;
  for (std::size_t first = 0; first < g.size(); first += 4096) {
    float lane[16] = {};
    for (std::size_t i = first; i < std::min(g.size(), first + 4096); ++i) {
      lane[(i - first) % 16] = std::fma(g[i], g[i], lane[(i - first) % 16]);
    }
    for (int half = 8; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) lane[j] = lane[j] + lane[j + half];
    }
    blocks.push_back(lane[0]);
  }
  REQUIRE(blocks.size() == 3);
  return std::sqrt((blocks[0] + blocks[1]) + blocks[2]);
}

constexpr std::int64_t kSteps = 25;  // three steps into the second pass

engine::TrainingConfig config_of_the_page() {
  engine::TrainingConfig config;
  config.seed = kSeed;
  config.steps = kSteps;
  config.mlp.hidden = {kHidden};
  config.train = {"digits-train-images.idx.gz", "digits-train-labels.idx.gz"};
  config.sgd = {0.1f, 0.9f};
  config.data_root = "examples/data";
  return config;
}

std::string hash_by_the_engine(const engine::TrainingConfig& config) {
  std::optional<Result<engine::TrainingSummary>> summary;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    summary = engine::run_training(config, communicator, clock, {});
  });
  REQUIRE(summary->has_value());
  return (*summary)->model_sha256;
}

/// Trains with `update(gradient, parameters)`, both in the order of the flat buffer.
template <typename Update>
std::string hash_by_the_page(Update update) {
  const data::Dataset train = *data::load_dataset(
      {"examples/data/digits-train-images.idx.gz", "examples/data/digits-train-labels.idx.gz"});
  Parameters p = first_parameters();
  for (std::size_t step = 0; step < kSteps; ++step) {
    const std::vector<float> g = tree_gradient(p, train, step, 0, kRanks).flat();
    std::vector<float> w = p.flat();
    update(g, w);
    auto next = w.begin();
    for (auto* part : {&p.w1, &p.b1, &p.w2, &p.b2}) {
      const auto end = next + static_cast<std::ptrdiff_t>(part->size());
      std::copy(next, end, part->begin());
      next = end;
    }
  }
  return to_hex(engine::combine(engine::block_digests(p.flat())));
}

}  // namespace

TEST_CASE("the engine computes what docs/numerics.md says, bit by bit") {
  std::vector<float> v(first_parameters().flat().size());
  const std::string expected =
      hash_by_the_page([&](const std::vector<float>& g, std::vector<float>& w) {
        for (std::size_t i = 0; i < w.size(); ++i) {
          v[i] = std::fma(0.9f, v[i], g[i]);
          w[i] = std::fma(-0.1f, v[i], w[i]);
        }
      });
  CHECK(hash_by_the_engine(config_of_the_page()) == expected);
}

TEST_CASE("AdamW on clipped gradients is what docs/numerics.md says, bit by bit") {
  constexpr float kRate = 0.003f, kBeta1 = 0.9f, kBeta2 = 0.99f, kEpsilon = 1e-6f, kDecay = 0.05f,
                  kNormMax = 1.0f;
  std::vector<float> m(first_parameters().flat().size()), v(m.size());
  double power1 = 1, power2 = 1;
  int clipped = 0;
  const std::string expected =
      hash_by_the_page([&](const std::vector<float>& g, std::vector<float>& w) {
        const float norm = norm_by_the_page(g);
        clipped += norm > kNormMax ? 1 : 0;
        const float s = norm > kNormMax ? kNormMax / norm : 1.0f;
        power1 = power1 * double{kBeta1};
        power2 = power2 * double{kBeta2};
        const auto size = static_cast<float>(double{kRate} / (1.0 - power1));
        const auto root = static_cast<float>(1.0 / std::sqrt(1.0 - power2));
        const float decay = kRate * kDecay;
        for (std::size_t i = 0; i < w.size(); ++i) {
          const float x = s * g[i];
          m[i] = std::fma(kBeta1, m[i], (1.0f - kBeta1) * x);
          v[i] = std::fma(kBeta2, v[i], ((1.0f - kBeta2) * x) * x);
          const float divisor = std::fma(std::sqrt(v[i]), root, kEpsilon);
          w[i] = std::fma(-size, m[i] / divisor, std::fma(-decay, w[i], w[i]));
        }
      });
  CHECK(clipped > 0);
  CHECK(clipped < kSteps);
  engine::TrainingConfig config = config_of_the_page();
  config.adamw = engine::AdamwConfig{kRate, kBeta1, kBeta2, kEpsilon, kDecay};
  config.gradient_norm_max = kNormMax;
  CHECK(hash_by_the_engine(config) == expected);
}

TEST_CASE("momentum on clipped gradients is what docs/numerics.md says, bit by bit") {
  constexpr float kNormMax = 0.7f;
  std::vector<float> v(first_parameters().flat().size());
  const std::string expected =
      hash_by_the_page([&](const std::vector<float>& g, std::vector<float>& w) {
        const float norm = norm_by_the_page(g);
        const float s = norm > kNormMax ? kNormMax / norm : 1.0f;
        for (std::size_t i = 0; i < w.size(); ++i) {
          v[i] = std::fma(0.9f, v[i], s * g[i]);
          w[i] = std::fma(-0.1f, v[i], w[i]);
        }
      });
  engine::TrainingConfig config = config_of_the_page();
  const std::string unclipped = hash_by_the_engine(config);
  config.gradient_norm_max = kNormMax;
  CHECK(hash_by_the_engine(config) == expected);
  CHECK(expected != unclipped);
}
