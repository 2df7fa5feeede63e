// Trainings that multiply in bfloat16 keep the promises of all others, by a contract of their own.
#include <doctest/doctest.h>

#include "common/contract.h"
#include "kernels/ops.h"
#include "tests/golden.h"
#include "tests/test_main.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/run_files.h"

using namespace muster;
using namespace muster::engine;

namespace {

Result<TrainingSummary> trained_in_half(const TrainingConfig& config, int processes) {
  std::vector<std::optional<Result<TrainingSummary>>> outcomes(static_cast<std::size_t>(processes));
  test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    outcomes[static_cast<std::size_t>(communicator.rank())] =
        run_training(config, communicator, clock, {});
  });
  return *outcomes[0];
}

TrainingConfig half_gpt(std::int64_t steps) {
  TrainingConfig config = test::small_gpt(steps);
  config.is_bfloat16 = true;
  return config;
}

}  // namespace

TEST_CASE("bfloat16: the golden hash of a transformer: the same bits on every instruction set") {
  using kernels::cpu::Target;
  const Target best = kernels::cpu::best_target();
  for (const Target target : {Target::kScalar, Target::kAvx2, Target::kAvx512, Target::kNeon}) {
    if (!kernels::cpu::has_target(target)) continue;
    kernels::cpu::force_target(target);
    CAPTURE(kernels::cpu::name_of(target));
    CHECK(trained_in_half(half_gpt(12), 1)->model_sha256 == test::kSmallGptBfloat16Golden);
  }
  kernels::cpu::force_target(best);
}

TEST_CASE("bfloat16: any processes, threads, passes and shards train the same transformer") {
  for (int processes = 1; processes <= 4; ++processes) {
    TrainingConfig config = half_gpt(12);
    config.threads = 1 + processes % 2;
    config.is_sharded = processes == 3;
    config.recomputes_activations = processes == 4;
    config.micro_batch_size = processes == 2 ? 0 : 2;
    CAPTURE(processes);
    CHECK(trained_in_half(config, processes)->model_sha256 == test::kSmallGptBfloat16Golden);
  }
}

TEST_CASE("bfloat16: a transformer's workers die, come and go, and no bit moves") {
  test::Trial trial;
  trial.steps = 24;
  trial.config = half_gpt(trial.steps);
  trial.config.bucket_blocks = 1;
  trial.at_step = [](test::ElasticWorld& world, std::int64_t step) {
    if (step == 5) world.doom(1, point::kBucket);
    if (step == 10) world.add(3);
    if (step == 16) world.leave(0);
  };
  const auto world = trial.run(3);
  const test::Ends ends = test::ends_of(*world, trial.steps);
  CHECK(ends.killed == 1);
  CHECK(ends.left == 1);
  CHECK(ends.complete >= 1);
}

TEST_CASE("bfloat16: digits are learned as well as in fp32") {
  TrainingConfig config = test::digits(0);
  config.epochs = 20;
  config.logical_ranks = 16;
  config.batch_size = 64;
  config.mlp.hidden = {128};
  config.train = {"digits-train-images.idx.gz", "digits-train-labels.idx.gz"};
  config.test = {"digits-test-images.idx.gz", "digits-test-labels.idx.gz"};
  config.has_test = true;
  config.sgd = {0.1F, 0.9F};
  config.is_bfloat16 = true;
  const auto trained = trained_in_half(config, 2);
  REQUIRE(trained.has_value());
  CHECK(trained->accuracy >= 0.97);
}

TEST_CASE("bfloat16: convolutions have the same bits whoever computes them, and others than fp32") {
  TrainingConfig config = test::digits_with_layers(8);
  const std::string single = trained_in_half(config, 1)->model_sha256;
  config.is_bfloat16 = true;
  const std::string half = trained_in_half(config, 1)->model_sha256;
  CHECK(half != single);
  config.threads = 2;
  CHECK(trained_in_half(config, 3)->model_sha256 == half);
}

TEST_CASE("bfloat16: a checkpoint goes on with its own bits, and is refused where fp32 is wanted") {
  test::TempDirectory directory;
  TrainingConfig config = half_gpt(12);
  config.checkpoint_path = directory.path();
  config.checkpoint_every_steps = 4;
  config.steps = 7;
  REQUIRE(trained_in_half(config, 1).has_value());
  const std::string manifest = test::bytes_of(directory / "step-000000000007/manifest.json");
  CHECK(manifest.find(R"("contract":"bf16-chain/1")") != std::string::npos);
  config.steps = 12;
  config.is_bfloat16 = false;
  const auto refused = trained_in_half(config, 1);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().exit_code() == contract::exit_code::kCheckpoint);
  CHECK(refused.error().message().find("spec.training.precision was \"BFloat16\" when it was saved "
                                       "and is not given now") != std::string::npos);
  config.is_bfloat16 = true;
  const auto resumed = trained_in_half(config, 3);
  REQUIRE(resumed.has_value());
  CHECK(resumed->restored_step == 7);
  CHECK(resumed->model_sha256 == test::kSmallGptBfloat16Golden);
}
