// A transformer over text keeps the promises of every other model, learns, and tells what it has
// learned.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "common/bpe/vocabulary.h"
#include "common/contract.h"
#include "common/model_files.h"
#include "kernels/ops.h"
#include "tests/golden.h"
#include "tests/test_main.h"
#include "tests/unit/data/shard_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/run_files.h"
#include "worker/engine/model.h"
#include "worker/engine/sample.h"

using namespace muster;
using namespace muster::engine;
using test::bytes_of;

namespace {

/// The summary of rank 0; all ranks must have ended well and with the same model.
TrainingSummary trained(const TrainingConfig& config, int processes) {
  std::vector<TrainingSummary> summaries(static_cast<std::size_t>(processes));
  test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    auto outcome = run_training(config, communicator, clock, {});
    MUSTER_CHECK_MSG(outcome.has_value(), outcome ? "" : outcome.error().message());
    summaries[static_cast<std::size_t>(communicator.rank())] = *outcome;
  });
  for (const TrainingSummary& summary : summaries) {
    CHECK(summary.complete);
    CHECK(summary.model_sha256 == summaries[0].model_sha256);
  }
  return summaries[0];
}

/// A text in which every byte follows from the one before it. Its period has no factor in common
/// with a context, so that every letter comes to stand at every position.
constexpr int kLetters = 25;
std::string alphabet(std::size_t bytes) {
  std::string text;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>('a' + i % kLetters);
  return text;
}

TrainingConfig of_text(const std::string& file) {
  TrainingConfig config = test::small_gpt(0);
  config.train.text = file;
  config.data_root = "/";
  return config;
}

/// Tokens of four shards that repeat each other after a while, none of them a byte.
TrainingConfig of_tokens(const test::TempDirectory& directory) {
  TrainingConfig config = test::small_gpt(12);
  config.gpt->vocabulary_size = 1000;
  config.data_root = directory.path();
  config.train = {};
  for (const int shard : {0, 1, 2, 3}) {
    std::vector<std::uint32_t> tokens;
    for (std::uint32_t i = 0; i < 1501; ++i) tokens.push_back(256 + i * i % 743);
    config.train.shards.push_back("shard-" + std::to_string(shard));
    test::write_bytes(directory / config.train.shards.back(),
                      test::shard_bytes(tokens, shard == 2 ? 4 : 2));
  }
  config.test.shards = {"shard-1"};
  config.has_test = true;
  return config;
}

}  // namespace

TEST_CASE("a text's bytes as tokens in shards train to the bits that the text itself trains to") {
  const test::TempDirectory directory;
  const std::string text = bytes_of("examples/data/shakespeare-test.txt");
  TrainingConfig config = test::small_gpt(12);
  config.data_root = directory.path();
  config.train = {};
  constexpr std::size_t kFirstPart = 50'001;
  for (const std::size_t first : {std::size_t{0}, kFirstPart}) {
    std::vector<std::uint32_t> tokens;
    for (const char byte : text.substr(first, first == 0 ? kFirstPart : text.npos)) {
      tokens.push_back(static_cast<unsigned char>(byte));
    }
    config.train.shards.push_back("from-" + std::to_string(first));
    test::write_bytes(directory / config.train.shards.back(),
                      test::shard_bytes(tokens, first == 0 ? 2 : 4));
  }
  CHECK(trained(config, 1).model_sha256 == test::kSmallGptGolden);
}

TEST_CASE("one to four workers train the same transformer from shards, also in the middle of one") {
  const test::TempDirectory directory;
  TrainingConfig config = of_tokens(directory);
  const TrainingSummary expected = trained(config, 1);
  CHECK(expected.accuracy > 0);
  for (const int processes : {2, 3, 4}) {
    const TrainingSummary summary = trained(config, processes);
    CHECK(summary.model_sha256 == expected.model_sha256);
    CHECK(summary.data_sha256 == expected.data_sha256);
    CHECK(summary.accuracy == expected.accuracy);
  }
  // 375 samples are 11 steps: it goes on within the first epoch, and then from the second one's
  // beginning.
  config.checkpoint_path = directory / "model";
  // As another job's model that had a vocabulary may have left it.
  const std::string sample = config.checkpoint_path + "/" + std::string(contract::kSampleFile);
  std::filesystem::create_directory(config.checkpoint_path);
  std::ofstream(sample) << "of another job";
  for (const std::int64_t steps : {5, 11, 12}) {
    config.steps = steps;
    const TrainingSummary summary = trained(config, 2);
    if (steps == 12) CHECK(summary.model_sha256 == expected.model_sha256);
  }
  const auto description =
      parse_json(bytes_of(config.checkpoint_path + "/" + std::string(contract::kModelConfigFile)));
  REQUIRE(description.has_value());
  CHECK((*description)["vocab_size"] == 1000);
  CHECK_FALSE(std::filesystem::exists(sample));
}

TEST_CASE("a checkpoint of another vocabulary is refused by its field") {
  const test::TempDirectory directory;
  TrainingConfig config = of_tokens(directory);
  config.checkpoint_path = directory / "model";
  config.steps = 1;
  trained(config, 1);
  config.gpt->vocabulary_size = 1001;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    const auto outcome = run_training(config, communicator, clock, {});
    REQUIRE_FALSE(outcome.has_value());
    CHECK(outcome.error().exit_code() == contract::exit_code::kCheckpoint);
    CHECK(outcome.error().message().find("spec.training.model.gpt.vocabularySize was 1000") !=
          std::string::npos);
  });
}

TEST_CASE("a shard that is cut while a job trains ends it with exit code 21 and a sentence") {
  const test::TempDirectory directory;
  TrainingConfig config = of_tokens(directory);
  config.has_test = false;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    TrainingHooks hooks;
    hooks.at = [&](std::string_view point, std::int64_t step) -> Status {
      if (point == point::kIdle && step == 2) {
        std::filesystem::resize_file(directory / "shard-0", 1024);
      }
      return {};
    };
    const auto outcome = run_training(config, communicator, clock, hooks);
    REQUIRE_FALSE(outcome.has_value());
    CHECK(outcome.error().exit_code() == contract::exit_code::kData);
    CHECK(outcome.error().message().starts_with(directory / "shard-0: has become shorter"));
  });
}

TEST_CASE("one to four workers, of one or two threads, train the same transformer") {
  TrainingConfig config = test::small_gpt(12);
  SUBCASE("as it is") {}
  SUBCASE("with dropout, also of attention's weights") { config = test::dropped_gpt(12); }
  config.test = {"", "", "shakespeare-test.txt"};
  config.has_test = true;
  const TrainingSummary expected = trained(config, 1);
  CHECK(expected.accuracy > 0);
  for (const int processes : {2, 3, 4}) {
    config.threads = 1 + processes % 2;
    const TrainingSummary summary = trained(config, processes);
    CHECK(summary.model_sha256 == expected.model_sha256);
    CHECK(summary.loss == expected.loss);
    CHECK(summary.accuracy == expected.accuracy);
  }
}

TEST_CASE("the golden hash of a transformer: the same bits on every instruction set") {
  const kernels::cpu::Target best = kernels::cpu::best_target();
  using kernels::cpu::Target;
  for (const Target target : {Target::kScalar, Target::kAvx2, Target::kAvx512, Target::kNeon}) {
    if (!kernels::cpu::has_target(target)) continue;
    kernels::cpu::force_target(target);
    CAPTURE(kernels::cpu::name_of(target));
    CHECK(trained(test::small_gpt(12), 1).model_sha256 == test::kSmallGptGolden);
    CHECK(trained(test::dropped_gpt(12), 1).model_sha256 == test::kDroppedGptGolden);
  }
  kernels::cpu::force_target(best);
}

TEST_CASE("a transformer's workers die, come and go, and no bit moves") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    test::Trial trial;
    trial.steps = 24;
    trial.config = is_sharded ? test::small_gpt(trial.steps) : test::dropped_gpt(trial.steps);
    trial.config.is_sharded = is_sharded;
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
}

TEST_CASE("a transformer goes on from a checkpoint with the same bits") {
  test::TempDirectory directory;
  TrainingConfig config = test::small_gpt(20);
  const std::string expected = trained(config, 2).model_sha256;
  config.checkpoint_path = directory.path();
  config.checkpoint_every_steps = 4;
  config.steps = 9;
  trained(config, 1);
  config.steps = 20;
  const TrainingSummary resumed = trained(config, 3);
  CHECK(resumed.restored_step == 9);
  CHECK(resumed.model_sha256 == expected);
}

TEST_CASE("a transformer learns a text by heart and writes it, and others can load it") {
  test::TempDirectory directory;
  const std::string file = directory.path() + "/text";
  std::ofstream(file) << alphabet(1200);
  TrainingConfig config = of_text(file);
  config.steps = 150;
  config.checkpoint_path = directory.path() + "/model";
  const TrainingSummary summary = trained(config, 2);
  CHECK(summary.loss < 0.1f);

  const std::string sample =
      bytes_of(config.checkpoint_path + "/" + std::string(contract::kSampleFile));
  REQUIRE(sample.size() == 512);
  int right = 0;
  for (std::size_t i = 1; i < sample.size(); ++i) {
    right += sample[i] == 'a' + (sample[i - 1] - 'a' + 1) % kLetters ? 1 : 0;
  }
  CHECK(right >= 480);

  const auto description =
      parse_json(bytes_of(config.checkpoint_path + "/" + std::string(contract::kModelConfigFile)));
  REQUIRE(description.has_value());
  CHECK((*description)["model_type"] == "gpt2");
  CHECK((*description)["n_layer"] == 2);
  CHECK((*description)["n_embd"] == 32);
  CHECK((*description)["vocab_size"] == 256);

  // The same training writes the same bytes.
  config.checkpoint_path = directory.path() + "/again";
  trained(config, 1);
  CHECK(bytes_of(config.checkpoint_path + "/" + std::string(contract::kSampleFile)) == sample);
}

TEST_CASE("what a model's training has dropped stands in its description by GPT-2's names") {
  GptConfig config{2, 2, 32, 16};
  config.dropout = 0.25f;
  config.attention_dropout = 0.1f;
  const Json description = gpt2_config(config, 256);
  CHECK(description["embd_pdrop"] == 0.25);
  CHECK(description["resid_pdrop"] == 0.25);
  CHECK(description["attn_pdrop"] == 0.1);
}

TEST_CASE("an evaluation and a sample drop nothing") {
  const ModelShape plain = ModelShape::gpt({2, 2, 32, 16}, 256);
  const ModelShape dropping = ModelShape::gpt({2, 2, 32, 16, 256, 0.25f, 0.25f}, 256);
  std::vector<float> values(plain.values());
  initialise(plain, 3, values);
  kernels::cpu::Context context(1);
  Model one(plain, 1, context), other(dropping, 1, context);
  CHECK(write_sample(one, values, {7, 60}).value() == write_sample(other, values, {7, 60}).value());
}

TEST_CASE("a model that writes for longer than anybody waits is waited for") {
  test::TempDirectory directory;
  TrainingConfig config = test::small_gpt(4);
  config.checkpoint_path = directory.path();
  config.long_deadline = seconds(1);
  config.save_patience = milliseconds(50);
  SUBCASE("whole") {}
  SUBCASE("in two stages") { config.stages = config.processes = 2; }
  SUBCASE("in two stages, with memory for all of it") {
    config.stages = config.processes = 2;
    config.memory_bytes = std::size_t{1} << 30;
  }
  std::atomic<int> tokens = 0;
  TrainingHooks hooks;
  hooks.at = [&](std::string_view place, std::int64_t) {
    if (place != point::kSample) return Status();
    ++tokens;
    std::this_thread::sleep_for(milliseconds(4));  // so long a pass of the model takes
    return Status();
  };
  test::on_all_ranks(2, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    TrainingConfig own = config;
    own.place = config.stages > 1 ? communicator.rank() : 0;
    const auto outcome = run_training(own, communicator, clock, hooks);
    REQUIRE_MESSAGE(outcome.has_value(), outcome.error().message());
    CHECK(outcome->complete);
  });
  CHECK(tokens == 512);
  CHECK(bytes_of(config.checkpoint_path + "/" + std::string(contract::kSampleFile)).size() == 512);
}

TEST_CASE("what a model writes follows from its values and the seed alone") {
  const ModelShape shape = ModelShape::gpt({1, 2, 8, 4}, 256);
  std::vector<float> values(shape.values());
  initialise(shape, 3, values);
  kernels::cpu::Context one(1), two(2);
  Model small(shape, 1, one), large(shape, 5, two);
  const auto written = [&](Model& model, const SampleOptions& options) {
    return write_sample(model, values, options).value();
  };
  const auto first = written(small, {7, 100});
  CHECK(first.size() == 100);
  CHECK(written(large, {7, 100}) == first);
  CHECK(written(small, {8, 100}) != first);
  // Hardly warm, it always takes the likeliest: a new model's bytes are all about as likely.
  CHECK(written(small, {7, 100, '\n', 1e-3f}) == written(small, {8, 100, '\n', 1e-3f}));
  CHECK(written(small, {7, 100, '\n', 1e-3f}) != written(small, {7, 100, 'x', 1e-3f}));
  CHECK(written(small, {7, 20}) == std::vector<std::int32_t>(first.begin(), first.begin() + 20));
}

TEST_CASE("the first positions of a context are what they are of all, and so is what it writes") {
  constexpr std::size_t kContext = 100;
  const ModelShape whole = ModelShape::gpt({2, 2, 16, kContext}, 256);
  std::vector<float> values(whole.values());
  initialise(whole, 3, values);
  for (const auto products : {kernels::Products::kFloat32, kernels::Products::kBfloat16}) {
    kernels::cpu::Context context(2, products);
    Model of_all(whole, 1, context);
    const auto passed = [&](Model& model) {
      model.use(values);
      for (std::size_t i = 0; i < model.tokens().size(); ++i) {
        model.tokens()[i] = static_cast<std::int32_t>(i * i % 256);
      }
      model.forward(1);
    };
    for (const std::size_t count : {std::size_t{1}, std::size_t{17}, std::size_t{64}, kContext}) {
      CAPTURE(count);
      Model of_some(whole.first_positions(count), 1, context);
      passed(of_all);
      passed(of_some);
      for (std::size_t i = 0; i < count; ++i) {
        const auto logits = of_some.logits(i);
        const std::vector<float> some(logits.begin(), logits.end());
        CHECK(std::ranges::equal(some, of_all.logits(i)));
      }
      CHECK(write_sample(of_some, values, {7, count}).value() ==
            write_sample(of_all, values, {7, count}).value());
    }
  }
}

TEST_CASE("a model of a long context writes what it would write if it computed all of it") {
  const test::TempDirectory directory;
  TrainingConfig config = test::small_gpt(1);
  config.gpt = GptConfig{1, 1, 8, 256};
  config.checkpoint_path = directory.path();
  trained(config, 1);
  const ModelShape whole = ModelShape::gpt(*config.gpt, 256);
  std::vector<float> values(whole.values());
  const std::string file = bytes_of(directory / "model.safetensors");
  const std::size_t bytes = values.size() * sizeof(float);
  REQUIRE(file.size() > bytes);
  std::memcpy(values.data(), file.data() + file.size() - bytes, bytes);
  kernels::cpu::Context context(1);
  Model model(whole, 1, context);
  const auto tokens = write_sample(model, values, {config.seed, 128}).value();
  CHECK(bytes_of(directory / std::string(contract::kSampleFile)) ==
        std::string(tokens.begin(), tokens.end()));
}

TEST_CASE("with a vocabulary a model of tokens writes text, and one of another size is refused") {
  const test::TempDirectory directory;
  TrainingConfig config = of_tokens(directory);
  config.has_test = false;
  config.gpt->vocabulary_size = 1000;
  config.vocabulary = std::filesystem::absolute("tests/unit/bpe/vocabulary");
  const auto vocabulary = bpe::Vocabulary::load(config.vocabulary);
  REQUIRE(vocabulary.has_value());
  config.checkpoint_path = directory / "model";
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    const auto outcome = run_training(config, communicator, clock, {});
    REQUIRE_FALSE(outcome.has_value());
    CHECK(outcome.error().exit_code() == contract::exit_code::kData);
    CHECK(outcome.error().message() ==
          config.vocabulary + ": its vocabulary has " + std::to_string(vocabulary->size()) +
              " tokens; must have spec.training.model.gpt.vocabularySize (1000)");
  });
  // Text that the vocabulary itself has cut: what is written is decoded by it, and not some bytes.
  std::vector<std::int32_t> tokens;
  vocabulary->encode(bytes_of("examples/data/shakespeare-test.txt").substr(0, 8000), tokens);
  test::write_bytes(directory / "text",
                    test::shard_bytes(std::vector<std::uint32_t>(tokens.begin(), tokens.end())));
  config.train.shards = {"text"};
  config.gpt->vocabulary_size = static_cast<int>(vocabulary->size());
  config.steps = 30;
  trained(config, 1);
  const std::string sample =
      bytes_of(config.checkpoint_path + "/" + std::string(contract::kSampleFile));
  CHECK(sample.size() > 512);
  std::vector<std::int32_t> again;
  vocabulary->encode(sample, again);
  CHECK(again.size() < sample.size() * 9 / 10);
  const auto loaded = parse_json(bytes_of(config.checkpoint_path + "/config.json"));
  REQUIRE(loaded.has_value());
  CHECK((*loaded)["eos_token_id"] == *vocabulary->find(bpe::kEndOfText));
  CHECK((*loaded)["bos_token_id"] == *vocabulary->find(bpe::kEndOfText));
  for (const char* file : {"/vocab.json", "/merges.txt"}) {
    CHECK(bytes_of(config.checkpoint_path + file) == bytes_of(config.vocabulary + file));
  }
}

TEST_CASE("a pipe in the place of a vocabulary is refused, and nobody waits for its writer") {
  const test::TempDirectory directory;
  TrainingConfig config = of_tokens(directory);
  config.has_test = false;
  config.vocabulary = directory.path();
  REQUIRE(::mkfifo((directory / "vocab.json").c_str(), 0600) == 0);
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    const auto outcome = run_training(config, communicator, clock, {});
    REQUIRE_FALSE(outcome.has_value());
    CHECK(outcome.error().exit_code() == contract::exit_code::kData);
    CHECK(outcome.error().message() == directory / "vocab.json: is not a regular file");
  });
}

TEST_CASE("a text with too few samples for a batch is refused by name") {
  test::TempDirectory directory;
  const std::string file = directory.path() + "/text";
  std::ofstream(file) << alphabet(31 * 16 + 1);
  TrainingConfig config = of_text(file);
  config.steps = 1;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    const auto outcome = run_training(config, communicator, clock, {});
    REQUIRE_FALSE(outcome.has_value());
    CHECK(outcome.error().message().find("has only 31 samples") != std::string::npos);
  });
}
