#include "worker/engine/schedule.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "common/contract.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"

using namespace muster;
using namespace muster::engine;

TEST_CASE("without a schedule every step has the optimiser's learning rate") {
  TrainingConfig config;
  config.sgd.learning_rate = 0.3f;
  CHECK(learning_rate_at(config, 0, 10) == 0.3f);
  CHECK(learning_rate_at(config, 9, 10) == 0.3f);
  config.adamw.emplace().learning_rate = 0.007f;
  CHECK(learning_rate_at(config, 5, 10) == 0.007f);
}

TEST_CASE("the cosine warms up in equal parts and falls to its last share") {
  TrainingConfig config;
  config.adamw.emplace().learning_rate = 0.01f;
  config.cosine = CosineConfig{4, 0.1f};
  const double rate = 0.01f, last = 0.1f;
  for (std::int64_t step = 0; step < 4; ++step) {
    CHECK(learning_rate_at(config, step, 24) ==
          static_cast<float>(rate * static_cast<double>(step + 1) / 4));
  }
  CHECK(learning_rate_at(config, 4, 24) == 0.01f);
  float before = 0.01f;
  for (std::int64_t step = 5; step < 24; ++step) {
    const float now = learning_rate_at(config, step, 24);
    const double done = static_cast<double>(step - 4) / 20;
    CHECK(std::abs(double{now} -
                   rate * (last + (1 - last) * (1 + std::cos(std::numbers::pi * done)) / 2)) <
          1e-9);
    CHECK(now < before);
    before = now;
  }
  // A step after the last one would have the last share.
  CHECK(std::abs(double{learning_rate_at(config, 24, 24)} - rate * last) < 1e-9);
  config.cosine = CosineConfig{0, 0};
  CHECK(learning_rate_at(config, 0, 24) == 0.01f);
  config.cosine = CosineConfig{24, 0};
  CHECK(learning_rate_at(config, 23, 24) == 0.01f);
}

TEST_CASE("a schedule decides the bits, and the same for any workers, sharded or not") {
  TrainingConfig config = test::with_adamw(test::digits(20));
  const auto hash_of = [&](int processes) {
    std::string hash;
    test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
      const SystemClock clock;
      const auto outcome = run_training(config, communicator, clock, {});
      REQUIRE(outcome.has_value());
      if (communicator.rank() == 0) hash = outcome->model_sha256;
    });
    return hash;
  };
  const std::string constant = hash_of(1);
  config.cosine = CosineConfig{5, 0.1f};
  const std::string expected = hash_of(1);
  CHECK(expected != constant);
  CHECK(hash_of(3) == expected);
  config.is_sharded = true;
  CHECK(hash_of(2) == expected);
  config.cosine->warmup_steps = 6;
  CHECK(hash_of(2) != expected);
}

TEST_CASE("a learning rate that would still rise after the last step is refused") {
  TrainingConfig config = test::digits(20);
  config.steps = 0;
  config.epochs = 1;  // 22 steps
  for (const std::int64_t warmup : {22, 23}) {
    config.cosine = CosineConfig{warmup, 0};
    test::on_all_ranks(1, [&](comm::Communicator& communicator) {
      const SystemClock clock;
      const auto outcome = run_training(config, communicator, clock, {});
      REQUIRE(outcome.has_value() == (warmup == 22));
      if (outcome) return;
      CHECK(outcome.error().exit_code() == contract::exit_code::kInvalidSpec);
      CHECK(outcome.error().message() ==
            "spec.training.optimizer.schedule.cosine.warmupSteps: is 23, but the training has 22 "
            "steps; must be at most their number");
    });
  }
}
