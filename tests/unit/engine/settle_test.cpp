// What is due between two steps and at the end: in which order it is done, and what a run that ends
// early leaves to the next one.
#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/contract.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/run_files.h"
#include "worker/engine/training.h"

using namespace muster;
using namespace muster::engine;
using test::bytes_of;
using test::ElasticWorld;
using test::record_of;
using test::Trial;

namespace {

constexpr std::int64_t kStepsOfTwoEpochs = 44;  // evaluated after 22 and at the end

TrainingConfig two_epochs(const std::string& directory) {
  TrainingConfig config = test::digits(kStepsOfTwoEpochs);
  config.checkpoint_path = directory;
  config.checkpoint_every_steps = 20;
  return config;
}

/// Who has which part of the state.
struct Holding {
  bool is_sharded = false;
  int stages = 1;
};
constexpr Holding kHoldings[] = {{false, 1}, {true, 1}, {false, 2}};

/// By two processes; what the first one says.
Result<TrainingSummary> train_held(TrainingConfig config, const Holding& holding,
                                   const TrainingHooks& hooks) {
  config.is_sharded = holding.is_sharded;
  config.stages = holding.stages;
  config.processes = 2;
  std::optional<Result<TrainingSummary>> first;
  test::on_all_ranks(2, [&](comm::Communicator& communicator) {
    TrainingConfig own = config;
    own.place = communicator.rank() % config.group_size();
    const SystemClock clock;
    auto result = run_training(own, communicator, clock, hooks);
    if (!result) communicator.abort();
    if (communicator.rank() == 0) first = std::move(result);
  });
  return *std::move(first);
}

/// Whoever begins an evaluation at that step dies.
TrainingHooks deadly_evaluation(std::int64_t at_step) {
  TrainingHooks hooks;
  hooks.at = [at_step](std::string_view place, std::int64_t step) -> Status {
    if (place != point::kEvaluate || step != at_step) return {};
    return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
  };
  return hooks;
}

int evaluations_in(const std::string& directory) {
  int count = 0;
  for (const std::string& line : record_of(directory)) {
    count += line.starts_with("{\"evaluation\"") ? 1 : 0;
  }
  return count;
}

void check_same_end(const std::string& one, const std::string& other) {
  CHECK(record_of(one) == record_of(other));
  for (const char* file : {"/model.safetensors", "/step-000000000044/optimizer.safetensors"}) {
    CHECK(bytes_of(one + file) == bytes_of(other + file));
    CHECK_FALSE(bytes_of(one + file).empty());
  }
}

}  // namespace

TEST_CASE("a stop where an evaluation is due only saves, and the next run makes the evaluation") {
  const test::TempDirectory calm;
  REQUIRE(train_held(two_epochs(calm.path()), {}, {}));
  CHECK(evaluations_in(calm.path()) == 2);
  for (const Holding& holding : kHoldings) {
    CAPTURE(holding.is_sharded);
    CAPTURE(holding.stages);
    const test::TempDirectory directory;
    std::atomic<bool> stop = false;
    TrainingHooks hooks = deadly_evaluation(22);
    hooks.stop = &stop;
    hooks.on_step = [&](const StepReport& report) {
      if (report.step == 21) stop = true;
    };
    const auto stopped = train_held(two_epochs(directory.path()), holding, hooks);
    REQUIRE_MESSAGE(stopped.has_value(), stopped.error().message());
    CHECK(stopped->step == 22);
    CHECK(stopped->checkpoint_step == 22);
    CHECK(evaluations_in(directory.path()) == 0);
    const auto resumed = train_held(two_epochs(directory.path()), holding, {});
    REQUIRE_MESSAGE(resumed.has_value(), resumed.error().message());
    CHECK(resumed->restored_step == 22);
    check_same_end(directory.path(), calm.path());
  }
}

TEST_CASE("who dies over the last evaluation has trained to the end") {
  const test::TempDirectory calm;
  REQUIRE(train_held(two_epochs(calm.path()), {}, {}));
  for (const Holding& holding : kHoldings) {
    CAPTURE(holding.is_sharded);
    CAPTURE(holding.stages);
    const test::TempDirectory directory;
    const TrainingConfig config = two_epochs(directory.path());
    REQUIRE_FALSE(train_held(config, holding, deadly_evaluation(kStepsOfTwoEpochs)));
    const auto resumed = train_held(config, holding, {});
    REQUIRE_MESSAGE(resumed.has_value(), resumed.error().message());
    CHECK(resumed->restored_step == kStepsOfTwoEpochs);
    CHECK(resumed->complete);
    CHECK(resumed->logical_rank_computations == 0);
    check_same_end(directory.path(), calm.path());
    // Nor is it made a third time.
    REQUIRE(train_held(config, holding, {}));
    check_same_end(directory.path(), calm.path());
  }
}

TEST_CASE("a stop that comes before all are connected with a joiner saves without it") {
  const test::TempDirectory directory;
  Trial trial;
  trial.config.checkpoint_path = directory.path();
  int joiner = -1;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 8) world.wait_for(joiner = world.add_slow(3));
    if (step == 17) world.stop();
  };
  const auto world = trial.run(3);
  const auto& first = *world->outcome(0);
  REQUIRE(first.has_value());
  CHECK(first->step >= 17);
  CHECK(first->step < trial.steps);
  for (int trainer = 0; trainer < 3; ++trainer) {
    CAPTURE(trainer);
    const auto& outcome = *world->outcome(trainer);
    REQUIRE(outcome.has_value());
    CHECK_FALSE(outcome->complete);
    CHECK(outcome->step == first->step);
    CHECK(outcome->checkpoint_step == first->step);
  }
  const auto& late = *world->outcome(joiner);
  REQUIRE(late.has_value());
  CHECK(late->left);
}

TEST_CASE("a stop ends an evaluation that is under way, and the next run makes it") {
  const test::TempDirectory calm, directory;
  Trial trial;
  trial.config.checkpoint_path = calm.path();
  trial.run(2);
  trial.config.checkpoint_path = directory.path();
  std::atomic<bool> is_asked = false;
  Trial stopped = trial;
  stopped.before = [&](ElasticWorld& world) {
    world.watch_points([&](int, std::string_view place, std::int64_t step) -> Status {
      if (step == 22 && place == point::kEvaluate && !is_asked.exchange(true)) world.stop();
      return {};
    });
  };
  const auto world = stopped.run(2);
  for (const int trainer : {0, 1}) {
    const auto& outcome = *world->outcome(trainer);
    REQUIRE_MESSAGE(outcome.has_value(), outcome.error().message());
    CHECK(outcome->step == 22);
    CHECK(outcome->checkpoint_step == 22);
  }
  CHECK(world->broken() == 0);
  CHECK(evaluations_in(directory.path()) == 0);
  CHECK(test::ends_of(*trial.run(2), trial.steps).complete == 2);
  check_same_end(directory.path(), calm.path());
}

TEST_CASE("a stop during the last evaluation waits for it: it is begun once") {
  const test::TempDirectory directory;
  Trial trial;
  trial.config.checkpoint_path = directory.path();
  std::atomic<int> begun = 0;
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int, std::string_view place, std::int64_t step) -> Status {
      if (step == trial.steps && place == point::kEvaluate && begun++ == 0) world.stop();
      return {};
    });
  };
  const auto world = trial.run(2);
  CHECK(test::ends_of(*world, trial.steps).complete == 2);
  CHECK(begun == 2);
  CHECK(world->broken() == 0);
}
