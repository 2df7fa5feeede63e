// docs/numerics.md a second time, as plain loops over std::fma, one logical rank after another:
// what the golden hash promises must follow from the page and not from one implementation of it.
// Only exp, log and the sum inside a tensor are the kernels'.
#include <doctest/doctest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "common/rng.h"
#include "kernels/ops.h"
#include "tests/unit/engine/ranks.h"
#include "worker/data/dataset.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/training.h"

using namespace muster;
namespace cpu = muster::kernels::cpu;

namespace {

constexpr std::uint64_t kSeed = 7;
constexpr std::size_t kIn = 64, kHidden = 128, kOut = 10, kRanks = 16, kRows = 4;
constexpr std::size_t kBatch = kRanks * kRows;

/// Position `index` of the pass `epoch` over n samples.
std::uint64_t permuted(std::uint32_t epoch, std::uint64_t n, std::uint64_t index) {
  int half = 1;
  while ((std::uint64_t{1} << 2 * half) < n) ++half;
  std::uint64_t value = index;
  do {
    std::uint64_t left = value >> half;
    std::uint64_t right = value & ((std::uint64_t{1} << half) - 1);
    for (std::uint64_t round = 0; round < 6; ++round) {
      const auto bits = random_bits(kSeed, RngStream::kPermutation, epoch, (round << 32) + right);
      const std::uint64_t old_right = right;
      right = left ^ bits >> (32 - half);
      left = old_right;
    }
    value = left << half | right;
  } while (value >= n);
  return value;
}

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
    const std::uint64_t sample = permuted(static_cast<std::uint32_t>(step / steps), train.count,
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

}  // namespace

TEST_CASE("the engine computes what docs/numerics.md says, bit by bit") {
  constexpr std::int64_t kSteps = 25;  // three steps into the second pass
  const data::Dataset train = *data::load_dataset(
      {"examples/data/digits-train-images.idx.gz", "examples/data/digits-train-labels.idx.gz"});
  Parameters p = first_parameters();
  Parameters v;
  for (std::size_t step = 0; step < kSteps; ++step) {
    const Parameters g = tree_gradient(p, train, step, 0, kRanks);
    const auto update = [](std::vector<float>& w, std::vector<float>& velocity,
                           const std::vector<float>& gradient) {
      for (std::size_t i = 0; i < w.size(); ++i) {
        velocity[i] = std::fma(0.9f, velocity[i], gradient[i]);
        w[i] = std::fma(-0.1f, velocity[i], w[i]);
      }
    };
    update(p.w1, v.w1, g.w1), update(p.b1, v.b1, g.b1);
    update(p.w2, v.w2, g.w2), update(p.b2, v.b2, g.b2);
  }
  engine::TrainingConfig config;
  config.seed = kSeed;
  config.steps = kSteps;
  config.mlp.hidden = {kHidden};
  config.train = {"digits-train-images.idx.gz", "digits-train-labels.idx.gz"};
  config.sgd = {0.1f, 0.9f};
  config.data_root = "examples/data";
  std::optional<Result<engine::TrainingSummary>> summary;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    summary = engine::run_training(config, communicator, clock, {});
  });
  REQUIRE(summary->has_value());
  CHECK((*summary)->model_sha256 == engine::block_hash(p.flat()));
}
