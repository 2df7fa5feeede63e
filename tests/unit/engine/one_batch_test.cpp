// Each kind of model learns a data set of exactly one batch by heart: what is wrong with a gradient
// and yet agrees with itself leaves a loss behind.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/rng.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/reference_state.h"
#include "worker/engine/training.h"

using namespace muster;
using namespace muster::engine;

namespace {

constexpr std::uint32_t kSamplesLearned = 32, kSideLearned = 8, kClassesLearned = 4;

/// Images of any bytes, and labels that do not follow from them.
void write_images(const test::TempDirectory& directory) {
  test::Bytes pixels, labels;
  Rng rng(7);
  for (std::uint32_t i = 0; i < kSamplesLearned * kSideLearned * kSideLearned; ++i) {
    pixels.push_back(static_cast<std::uint8_t>(rng.below(256)));
  }
  for (std::uint32_t i = 0; i < kSamplesLearned; ++i) {
    labels.push_back(static_cast<std::uint8_t>(i * i * 5 / 3 % kClassesLearned));
  }
  test::write_bytes(directory / "images",
                    test::idx_bytes({kSamplesLearned, kSideLearned, kSideLearned}, pixels));
  test::write_bytes(directory / "labels", test::idx_bytes({kSamplesLearned}, labels));
}

/// Of the last of `steps` passes over that one batch.
float loss_after(TrainingConfig config, const test::TempDirectory& directory, std::int64_t steps) {
  config.data_root = directory.path();
  config.batch_size = kSamplesLearned;
  config.logical_ranks = 4;
  config.has_test = false;
  config.steps = steps;
  float loss = -1;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    std::int64_t epoch = 0;
    TrainingHooks hooks;
    hooks.on_step = [&](const StepReport& report) { epoch = report.epoch; };
    const auto summary = run_training(config, communicator, clock, hooks);
    REQUIRE_MESSAGE(summary.has_value(), summary.error().message());
    CHECK(epoch == steps - 1);  // a batch is all there is
    loss = summary->loss;
  });
  return loss;
}

}  // namespace

TEST_CASE("an MLP and a CNN learn one batch by heart, in fp32 and with products of bfloat16") {
  const test::TempDirectory directory;
  write_images(directory);
  TrainingConfig mlp = test::with_adamw(test::digits(1));
  mlp.train = {"images", "labels"};
  mlp.adamw->learning_rate = 0.01F;
  TrainingConfig cnn = mlp;
  cnn.cnn = CnnConfig{{4, 8}, 3, true, {16}, 0.0F};
  for (const bool is_bfloat16 : {false, true}) {
    CAPTURE(is_bfloat16);
    mlp.is_bfloat16 = cnn.is_bfloat16 = is_bfloat16;
    // Of four classes by chance: 1.4.
    CHECK(loss_after(mlp, directory, 1) > 1.0F);
    CHECK(loss_after(mlp, directory, 100) < 0.1F);
    CHECK(loss_after(cnn, directory, 1) > 1.0F);
    CHECK(loss_after(cnn, directory, 100) < 0.1F);
  }
}

TEST_CASE("a GPT learns one batch by heart, in fp32 and with products of bfloat16") {
  const test::TempDirectory directory;
  TrainingConfig gpt = test::small_gpt(1);
  gpt.gpt = GptConfig{1, 2, 16, 8};
  gpt.train.text = "text";
  // Of 15 letters, each of which tells the next one; of as many samples as a batch has.
  test::Bytes text;
  const std::uint32_t tokens = kSamplesLearned * 8 + 1;
  for (std::uint32_t i = 0; i < tokens; ++i) {
    text.push_back(static_cast<std::uint8_t>('a' + i * 7 % 15));
  }
  test::write_bytes(directory / "text", text);
  for (const bool is_bfloat16 : {false, true}) {
    CAPTURE(is_bfloat16);
    gpt.is_bfloat16 = is_bfloat16;
    CHECK(loss_after(gpt, directory, 1) > 5.0F);  // of 256 tokens by chance: 5.5
    CHECK(loss_after(gpt, directory, 100) < 0.1F);
  }
}
