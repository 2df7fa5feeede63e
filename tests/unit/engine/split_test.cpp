// A model that is split into stages, and its layers between slices, trains to the same bits as one
// that is not, whatever the number of stages, slices and copies, and whatever happens to those who
// have them.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "common/model_files.h"
#include "tests/golden.h"
#include "tests/test_main.h"
#include "tests/unit/data/shard_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/run_files.h"
#include "worker/comm/shared_communicator.h"
#include "worker/engine/memory_needs.h"

using namespace muster;
using namespace muster::engine;
using test::ElasticWorld;
using test::Ends;
using test::ends_of;
using test::Trial;

namespace {

struct Grid {
  int copies = 1, stages = 1, slices = 1;
  int processes() const { return copies * stages * slices; }
};

/// `config` for a process of the split.
TrainingConfig config_of_process(TrainingConfig config, Grid split, int rank) {
  config.stages = split.stages;
  config.slices = split.slices;
  config.processes = split.processes();
  config.place = rank % config.group_size();
  return config;
}

/// doctest's CAPTURE, of all sizes.
#define CAPTURE_SPLIT(split) \
  CAPTURE((split).copies);   \
  CAPTURE((split).stages);   \
  CAPTURE((split).slices)

using OnAllRanks =
    std::function<void(int size, const std::function<void(comm::Communicator&)>& body)>;

/// How each process of a training that is split has ended.
std::vector<Result<TrainingSummary>> train_split(TrainingConfig config, Grid split,
                                                 const TrainingHooks& hooks = {},
                                                 const OnAllRanks& connect = test::on_all_ranks) {
  std::mutex mutex;
  std::vector<Result<TrainingSummary>> ends;
  connect(split.processes(), [&](comm::Communicator& communicator) {
    const SystemClock clock;
    const TrainingConfig own = config_of_process(config, split, communicator.rank());
    auto end = run_training(own, communicator, clock, hooks);
    const std::lock_guard lock(mutex);
    ends.push_back(std::move(end));
  });
  return ends;
}

/// Holds the state after each step of each process against the reference.
void check_steps(TrainingConfig config, Grid split,
                 const OnAllRanks& connect = test::on_all_ranks) {
  config.stages = std::max(2, split.stages);  // the reference's values are wanted
  const auto& expected = test::reference(config);
  config.stages = split.stages;
  config.slices = split.slices;
  const test::StageReference reference(config);
  std::atomic<int> seen = 0, wrong = 0, norms = 0;
  std::vector<std::unique_ptr<TrainingHooks>> hooks;
  const auto last = expected.rbegin()->second.parameters;
  const auto body = [&](comm::Communicator& communicator) {
    const SystemClock clock;
    const TrainingConfig own = config_of_process(config, split, communicator.rank());
    TrainingHooks of_rank;
    of_rank.on_state = [&](std::int64_t step, std::span<const float> parameters,
                           const OptimizerState& optimizer) {
      ++seen;
      const auto found = expected.find(step);
      const bool is_right = found != expected.end() &&
                            reference.is_right(own.place, found->second, parameters, optimizer);
      wrong += is_right ? 0 : 1;
    };
    of_rank.on_step = [&](const StepReport& report) { norms += report.gradient_norm > 0 ? 1 : 0; };
    const auto end = run_training(own, communicator, clock, of_rank);
    CHECK_MESSAGE(end.has_value(), (end ? std::string() : end.error().message()));
    if (end) CHECK(end->model_sha256 == last);
  };
  const int processes = split.processes();
  connect(processes, body);
  CHECK(wrong == 0);
  CHECK(seen == processes * config.steps);
  CHECK(norms == (config.gradient_norm_max > 0 ? seen.load() : 0));
}

ModelShape whole_of(TrainingConfig config) {
  config.stages = 1;
  return test::StageReference(config).whole();
}

/// A chain of as many pieces as a group may have processes here.
TrainingConfig deep_digits(std::int64_t steps) {
  TrainingConfig config = test::with_adamw(test::digits(steps));
  config.mlp.hidden = {48, 32, 32, 24, 24, 16, 16};
  return config;
}

/// What is dropped is known by its column, whoever has it.
TrainingConfig dropped_digits(std::int64_t steps) {
  TrainingConfig config = test::with_adamw(test::digits(steps));
  config.mlp.hidden = {40, 24};
  config.mlp.dropout = 0.25f;
  return config;
}

/// Of heads that so many processes can have as many of.
TrainingConfig gpt_of_heads(std::int64_t steps, int heads) {
  TrainingConfig config = test::dropped_gpt(steps);
  config.gpt->heads = heads;
  config.gpt->width = 4 * heads;
  return config;
}

TrainingConfig gpt_of_eight_heads(std::int64_t steps) { return gpt_of_heads(steps, 8); }

/// Rows that are not dealt out evenly: 2 sequences of 7 positions, or some, between three and six.
TrainingConfig gpt_of_six_heads(std::int64_t steps) {
  TrainingConfig config = gpt_of_heads(steps, 6);
  config.gpt->context_length = 7;
  return config;
}

/// All products of at most eight processes.
std::vector<Grid> splits_of(const ModelShape& whole) {
  std::vector<Grid> splits;
  for (int stages = 1; stages <= std::min(8, static_cast<int>(pieces_of(whole))); ++stages) {
    for (int copies = 1; copies * stages <= 8; ++copies) splits.push_back({copies, stages});
  }
  return splits;
}

}  // namespace

TEST_CASE("split into stages: the same bits after every step, whatever the product of sizes") {
  for (auto* const config_of :
       {test::digits, test::digits_with_layers, deep_digits, test::dropped_gpt}) {
    const TrainingConfig config = config_of(4);
    const auto splits = splits_of(whole_of(config));
    CHECK(splits.back().stages == std::min(8, static_cast<int>(pieces_of(whole_of(config)))));
    for (const Grid split : splits) {
      CAPTURE_SPLIT(split);
      check_steps(config, split);
    }
  }
}

TEST_CASE("each process counts what its part of a step is") {
  const auto counts_of = [](const TrainingConfig& config, Grid split) {
    std::mutex mutex;
    std::vector<PartCounts> counts(static_cast<std::size_t>(split.processes()));
    test::on_all_ranks(split.processes(), [&](comm::Communicator& communicator) {
      const SystemClock clock;
      TrainingHooks hooks;
      hooks.on_step = [&](const StepReport& report) {
        CHECK(report.turn_seconds <= report.compute_seconds);
        const std::lock_guard lock(mutex);
        counts[static_cast<std::size_t>(report.rank)] = report.part;
      };
      const auto own = config_of_process(config, split, communicator.rank());
      CHECK(run_training(own, communicator, clock, hooks));
    });
    return counts;
  };
  TrainingConfig config = test::digits(2);
  config.mlp.hidden = {40, 24};
  const auto whole = static_cast<std::int64_t>(whole_of(config).parameters());
  const auto of_batch = static_cast<std::int64_t>(sizeof(float)) * config.batch_size;
  const auto stages = counts_of(config, {1, 2});
  CHECK(stages[0].parameters + stages[1].parameters == whole);
  CHECK(stages[0].micro_batches == 8);  // four of each stage
  CHECK(stages[1].micro_batches == 8);
  CHECK(stages[0].handed_on_bytes == of_batch * 40);
  CHECK(stages[1].handed_on_bytes == 0);
  CHECK(stages[0].turns == 0);
  // The second layer's outputs, in tiles of eight rows. Nobody wants the gradient of the data.
  const auto slices = counts_of(config, {1, 1, 2});
  for (const PartCounts& one : slices) {
    const std::int64_t tiles = config.batch_size / 8;
    CHECK(one.handed_on_bytes == 0);
    CHECK(one.sums == 1);
    CHECK(one.busy_turns == tiles);
    CHECK(one.turns == tiles + 2);
    CHECK(one.turn_bytes == of_batch * 24);
  }
  // Who embeds for the first stage gives it as much as that gives on.
  const auto tied = counts_of(test::dropped_gpt(2), {1, 2});
  CHECK(tied[1].handed_on_bytes == tied[0].handed_on_bytes);
  CHECK(tied[1].handed_on_bytes > 0);
  CHECK(counts_of(config, {2}).front() == PartCounts{});
}

/// All products of at most eight processes in which layers are divided.
std::vector<Grid> splits_with_slices(const ModelShape& whole, const std::vector<int>& slices) {
  std::vector<Grid> splits;
  for (const int each : slices) {
    for (Grid split : splits_of(whole)) {
      split.slices = each;
      if (split.processes() <= 8) splits.push_back(split);
    }
  }
  return splits;
}

TEST_CASE("layers divided: the same bits after every step, whatever the product of sizes") {
  for (auto* const config_of : {test::digits, deep_digits, dropped_digits, gpt_of_eight_heads}) {
    const TrainingConfig config = config_of(4);
    for (const Grid split : splits_with_slices(whole_of(config), {2, 4, 8})) {
      CAPTURE_SPLIT(split);
      check_steps(config, split);
    }
  }
  // The rest of all products of at most eight, of which each needs layers of its own.
  for (const Grid split :
       {Grid{1, 1, 3}, Grid{2, 1, 3}, Grid{1, 2, 3}, Grid{1, 1, 5}, Grid{1, 1, 6}, Grid{1, 1, 7}}) {
    CAPTURE_SPLIT(split);
    TrainingConfig config = dropped_digits(4);
    config.mlp.hidden = split.slices == 5 ? std::vector{30, 60} : std::vector{42, 84};
    check_steps(config, split);
    check_steps(split.slices % 3 == 0 ? gpt_of_six_heads(3) : gpt_of_heads(3, split.slices), split);
  }
}

TEST_CASE(
    "shards of a split model: the same bits after every step, whatever the product of sizes") {
  std::vector<TrainingConfig> configs{gpt_of_eight_heads(4)};
  configs[0].is_sharded = true;
  for (auto* const config_of : test::kShardedConfigs) configs.push_back(config_of(4));
  for (TrainingConfig& config : configs) {
    std::vector<Grid> splits{{2, 2}, {2, 3}, {3, 2}, {4, 2}, {2, 4}, {1, 2}};
    for (const Grid more : {Grid{2, 1, 2}, Grid{3, 1, 2}, Grid{4, 1, 2}, Grid{2, 2, 2}}) {
      if (!config.cnn) splits.push_back(more);
    }
    for (const Grid split : splits) {
      if (split.stages > static_cast<int>(pieces_of(whole_of(config)))) continue;
      CAPTURE_SPLIT(split);
      config.buddies = 1 + split.copies % 2;
      check_steps(config, split);
    }
  }
}

/// So many tokens that each of four processes has rows of the table, and one more than another.
TrainingConfig gpt_of_many_tokens(const test::TempDirectory& directory, std::int64_t steps) {
  TrainingConfig config = test::small_gpt(steps);
  config.gpt = GptConfig{1, 4, 8, 6};
  config.gpt->vocabulary_size = 5 * 4096 + 100;
  config.batch_size = 16;
  config.data_root = directory.path();
  config.train = {"", "", "", {"shard"}};
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 3000; ++i) tokens.push_back(i * i * 7919 % 20580);
  test::write_bytes(directory / "shard", test::shard_bytes(tokens));
  return config;
}

TEST_CASE("a table of many tokens is divided: the same bits, of steps and of evaluations") {
  const test::TempDirectory directory;
  TrainingConfig config = gpt_of_many_tokens(directory, 3);
  const ModelShape whole = whole_of(config);
  CHECK(whole.slice(4, 1).has_divided_table());
  CHECK(whole.slice(4, 1).tensors()[0].size + whole.slice(4, 3).tensors()[0].size <
        whole.tensors()[0].size);
  for (const Grid split : {Grid{1, 1, 2}, Grid{1, 1, 4}, Grid{2, 1, 2}, Grid{1, 2, 2},
                           Grid{2, 2, 2}, Grid{1, 2, 4}, Grid{1, 3, 2}}) {
    CAPTURE_SPLIT(split);
    config.micro_batch_size = split.stages;
    config.threads = split.slices / 2;
    for (const bool is_bfloat16 : {false, true}) {
      config.is_bfloat16 = is_bfloat16;
      check_steps(config, split);
    }
  }
  config.is_bfloat16 = false;
  config.test = config.train;
  config.has_test = true;
  const auto alone = train_split(config, {1, 1});
  REQUIRE(alone[0].has_value());
  for (const Grid split : {Grid{1, 1, 2}, Grid{1, 2, 4}}) {
    CAPTURE_SPLIT(split);
    for (const auto& end : train_split(config, split)) {
      REQUIRE(end.has_value());
      CHECK(end->model_sha256 == alone[0]->model_sha256);
      CHECK(end->loss == alone[0]->loss);
      CHECK(end->accuracy == alone[0]->accuracy);
    }
  }
}

TEST_CASE("split into stages: micro-batches of every size, threads and recomputation") {
  for (auto* const config_of : {test::digits_with_layers, test::dropped_gpt}) {
    TrainingConfig config = config_of(3);
    const int rows = config.batch_size / config.logical_ranks;
    for (const Grid split : {Grid{1, 2}, Grid{2, 3}, Grid{3, 2}, Grid{1, 5}, Grid{1, 1, 2},
                             Grid{1, 3, 2}, Grid{2, 2, 2}}) {
      if (config.cnn && split.slices > 1) continue;
      for (const int ranks : {1, 2, 3, 8}) {
        CAPTURE_SPLIT(split);
        CAPTURE(ranks);
        config.micro_batch_size = ranks * rows;
        config.threads = 1 + ranks % 2;
        config.recomputes_activations = config.gpt && ranks == 2;
        check_steps(config, split);
      }
    }
  }
}

TEST_CASE("recomputed, each slice keeps its rows of what branches read: the same bits") {
  for (auto* const config_of : {gpt_of_eight_heads, gpt_of_six_heads}) {
    TrainingConfig config = config_of(3);
    config.recomputes_activations = true;
    const int rows = config.batch_size / config.logical_ranks;
    const std::vector<int> slices =
        config.gpt->heads == 8 ? std::vector{2, 4, 8} : std::vector{3, 6};
    for (const Grid split : splits_with_slices(whole_of(config), slices)) {
      for (const int ranks : {1, 8}) {
        CAPTURE_SPLIT(split);
        CAPTURE(ranks);
        config.micro_batch_size = ranks * rows;
        check_steps(config, split);
      }
    }
  }
}

namespace {

/// Bytes that all processes of a team have sent in a step, by how they take their activations.
std::uint64_t sent_in_step(TrainingConfig config, int slices, bool recomputes) {
  config.recomputes_activations = recomputes;
  const auto sent_in = [&](std::int64_t steps) {
    config.steps = steps;
    std::uint64_t sent = 0;
    for (const auto& end : train_split(config, {1, 1, slices})) {
      REQUIRE(end.has_value());
      sent += end->sent_bytes;
    }
    return sent;
  };
  return (sent_in(3) - sent_in(1)) / 2;
}

}  // namespace

TEST_CASE("recomputed, slices send each other what branches read once more, and nothing else") {
  const TrainingConfig config = gpt_of_eight_heads(3);
  const auto branches = static_cast<std::uint64_t>(2 * config.gpt->layers);
  const auto positions = static_cast<std::uint64_t>(config.batch_size * config.gpt->context_length);
  const auto stream = positions * static_cast<std::uint64_t>(config.gpt->width) * sizeof(float);
  for (const int slices : {2, 4}) {
    CAPTURE(slices);
    const std::uint64_t kept = sent_in_step(config, slices, false);
    const std::uint64_t recomputed = sent_in_step(config, slices, true);
    const auto others = static_cast<std::uint64_t>(slices - 1);
    CHECK(recomputed - kept == branches * others * stream);
  }
}

TEST_CASE("stages have enough micro-batches to be busy where nobody says how many") {
  TrainingConfig config = test::small_gpt(1);
  REQUIRE(config.logical_ranks == 16);
  const auto micro_batches = [&](Grid split, int samples) {
    config.micro_batch_size = samples;
    std::atomic<int> read = 0;
    TrainingHooks hooks;
    // A piece is a subtree; a micro-batch of so few ranks is one.
    hooks.on_batch = [&](std::int64_t, data::RankRange, std::span<const std::uint64_t>) { ++read; };
    for (const auto& end : train_split(config, split, hooks)) REQUIRE(end.has_value());
    return read / split.copies;
  };
  CHECK(micro_batches({1, 1}, 0) == 1);
  CHECK(micro_batches({1, 1, 2}, 0) == 1);
  CHECK(micro_batches({1, 2}, 0) == 8);
  CHECK(micro_batches({2, 2}, 0) == 8);
  CHECK(micro_batches({1, 3}, 0) == 16);
  CHECK(micro_batches({1, 2}, config.batch_size) == 1);
  CHECK(micro_batches({1, 2}, config.batch_size / 4) == 4);
}

TEST_CASE("split into stages that are connected as pods: the same bits") {
  TrainingConfig config = test::small_gpt(3);
  config.micro_batch_size = 4;
  for (const Grid split :
       {Grid{1, 4}, Grid{2, 3}, Grid{3, 2}, Grid{2, 1, 2}, Grid{1, 3, 2}, Grid{2, 2, 2}}) {
    CAPTURE_SPLIT(split);
    check_steps(config, split, test::on_all_ranks_by_tcp);
  }
}

namespace {

/// Of each process something else has come in a step.
class TellsArrivals final : public comm::SharedCommunicator {
 public:
  explicit TellsArrivals(comm::Communicator& real)
      : SharedCommunicator(std::shared_ptr<comm::Communicator>(&real, [](auto*) {})) {}
  std::vector<comm::Arrivals> take_arrivals() override {
    std::vector<comm::Arrivals> all;
    for (int rank = 0; rank < size(); ++rank) all.push_back({1U << rank, rank + 0.5});
    return all;
  }
};

}  // namespace

TEST_CASE("who has a part of the model reports what has come from whom over a network") {
  const auto connect = [](int size, const std::function<void(comm::Communicator&)>& body) {
    test::on_all_ranks(size, [&](comm::Communicator& real) {
      TellsArrivals tells(real);
      body(tells);
    });
  };
  for (const Grid split : {Grid{2, 2}, Grid{1, 1, 2}, Grid{4}}) {
    CAPTURE_SPLIT(split);
    std::vector<comm::Arrivals> expected{{1, 0.5}, {2, 1.5}, {4, 2.5}, {8, 3.5}};
    const bool has_part = split.stages * split.slices > 1;
    expected.resize(has_part ? static_cast<std::size_t>(split.processes()) : 0);
    std::atomic<int> told = 0, wrong = 0;
    TrainingHooks hooks;
    hooks.on_step = [&](const StepReport& report) {
      ++told;
      wrong += report.arrivals == expected ? 0 : 1;
    };
    for (const auto& end : train_split(test::digits(4), split, hooks, connect)) {
      CHECK(end.has_value());
    }
    CHECK(told == 4 * split.processes());
    CHECK(wrong == 0);
  }
}

TEST_CASE("the golden hash of a transformer that is split, a sample at a time") {
  TrainingConfig config = test::small_gpt(12);
  config.micro_batch_size = 2;
  for (const Grid split : {Grid{1, 5}, Grid{2, 4}, Grid{2, 2, 2}}) {
    const auto ends = train_split(config, split);
    CHECK(ends.size() == static_cast<std::size_t>(split.processes()));
    for (const auto& end : ends) {
      REQUIRE(end.has_value());
      CHECK(end->model_sha256 == test::kSmallGptGolden);
    }
  }
}

TEST_CASE("a deep transformer in six to eight stages has the bits of one process") {
  TrainingConfig config = test::small_gpt(3);
  config.gpt->layers = 4;
  config.micro_batch_size = 2;
  for (const Grid split : {Grid{1, 6}, Grid{1, 7}, Grid{1, 8}}) check_steps(config, split);
}

TEST_CASE("with no room for the whole model the stages train it, in micro-batches that fit") {
  TrainingConfig config = test::small_gpt(3);
  const ModelShape whole = whole_of(config);
  const auto rows = static_cast<std::size_t>(config.batch_size / config.logical_ranks);
  const MemoryShare alone{*assign(config.logical_ranks, 1), 0, rows, 0,
                          std::filesystem::file_size("examples/data/shakespeare-test.txt")};
  config.memory_bytes = memory_needs(config, whole, alone, 1).total() - 1;
  const auto refused = train_split(config, {1, 1});
  REQUIRE(!refused[0].has_value());
  CHECK(refused[0].error().exit_code() == contract::exit_code::kInvalidSpec);
  CHECK(refused[0].error().message().find("spec.training.parallelism.pipeline: 2 (") !=
        std::string::npos);
  const auto fit = ranks_that_fit(config, *plan_stages(whole, 4), alone, 16);
  REQUIRE(fit);
  CHECK(*fit < 16);
  for (const Grid split : {Grid{1, 2}, Grid{1, 4}, Grid{2, 4}}) check_steps(config, split);
}

TEST_CASE("a split model that no process has room for is left whole and without a sample") {
  const test::TempDirectory directory;
  TrainingConfig config = test::small_gpt(1);
  config.gpt = GptConfig{8, 4, 256, 16};
  config.logical_ranks = config.batch_size = 1;
  config.checkpoint_path = directory.path();
  const ModelShape whole = ModelShape::gpt(*config.gpt, 256);
  const StagePlan plan = *plan_stages(whole, 4);
  const MemoryShare share{*assign(config.logical_ranks, 1), 0, 1, 0,
                          std::filesystem::file_size("examples/data/shakespeare-test.txt")};
  for (int place = 0; place < plan.places(); ++place) {
    config.memory_bytes =
        std::max(config.memory_bytes, memory_needs(config, plan, place, share, 1).total());
  }
  // As another job may have left it.
  const std::string sample = directory / std::string(contract::kSampleFile);
  test::write_bytes(sample, {'x'});
  for (const auto& end : train_split(config, {1, 4})) {
    REQUIRE_MESSAGE(end.has_value(), end.error().message());
    CHECK(end->complete);
  }
  CHECK_FALSE(std::filesystem::exists(sample));
  CHECK(std::filesystem::exists(directory / std::string(contract::kModelConfigFile)));
  const auto model = directory / std::string(contract::kModelFile);
  CHECK(std::filesystem::file_size(model) > whole.values() * sizeof(float));
}

TEST_CASE("an evaluation of a split model has the figures of one that is not") {
  for (const auto& [config_of, most] :
       {std::pair(&test::digits_with_layers, 0), std::pair(&test::digits_with_layers, 100),
        std::pair(&test::small_gpt, 0)}) {
    CAPTURE(most);
    TrainingConfig config = config_of(3);
    config.evaluate_samples_most = most;
    if (config.gpt) config.test = config.train;
    config.has_test = true;
    const auto alone = train_split(config, {1, 1});
    REQUIRE(alone[0].has_value());
    for (const Grid split :
         {Grid{1, 2}, Grid{2, 3}, Grid{1, 5}, Grid{3, 2}, Grid{1, 1, 2}, Grid{2, 2, 2}}) {
      if (config.cnn && split.slices > 1) continue;
      CAPTURE_SPLIT(split);
      config.recomputes_activations = split.slices > 1;
      for (const auto& end : train_split(config, split)) {
        REQUIRE(end.has_value());
        CHECK(end->accuracy == alone[0]->accuracy);
        CHECK(end->loss == alone[0]->loss);
      }
    }
  }
}

TEST_CASE("a checkpoint of one split is gone on from by any other, and is the one of no split") {
  for (const auto& [config_of, is_sharded] :
       {std::pair(&test::digits_with_layers, false), std::pair(&test::small_gpt, false),
        std::pair(&test::digits_with_layers, true), std::pair(&test::small_gpt, true)}) {
    CAPTURE(is_sharded);
    TrainingConfig config = test::with_adamw(config_of(6));
    config.adamw->decays_all = false;
    config.checkpoint_every_steps = 3;
    config.checkpoint_keep = 5;
    const test::TempDirectory plain, split_dir;
    config.checkpoint_path = plain.path();
    REQUIRE(train_split(config, {1, 1})[0].has_value());
    config.checkpoint_path = split_dir.path();
    config.is_sharded = is_sharded;
    for (const auto& end : train_split(config, {2, 3})) REQUIRE(end.has_value());
    CHECK(test::record_of(plain.path()) == test::record_of(split_dir.path()));
    for (const char* const file :
         {"/step-000000000003/model.safetensors", "/step-000000000003/optimizer.safetensors",
          "/step-000000000006/optimizer.safetensors", "/model.safetensors"}) {
      CAPTURE(file);
      const std::string wanted = test::bytes_of(plain.path() + file);
      CHECK(!wanted.empty());
      CHECK(wanted == test::bytes_of(split_dir.path() + file));
    }
    for (const Grid split : {Grid{1, 1}, Grid{1, 4}, Grid{3, 2}}) {
      CAPTURE(split.stages);
      const test::TempDirectory next;
      std::filesystem::copy(split_dir.path(), next.path(),
                            std::filesystem::copy_options::recursive |
                                std::filesystem::copy_options::overwrite_existing);
      std::filesystem::remove_all(next.path() + "/step-000000000006");
      config.checkpoint_path = next.path();
      for (const auto& end : train_split(config, split)) {
        REQUIRE(end.has_value());
        CHECK(end->restored_step == 3);
      }
      CHECK(test::bytes_of(next.path() + "/model.safetensors") ==
            test::bytes_of(plain.path() + "/model.safetensors"));
      CHECK(test::record_of(next.path()) == test::record_of(plain.path()));
    }
  }
}

TEST_CASE(
    "the loss of a split training is known to all its processes, and stops all when infinite") {
  TrainingConfig config = test::digits(8);
  config.sgd.learning_rate = 1e30f;
  const auto ends = train_split(config, {2, 2});
  REQUIRE(ends.size() == 4);
  for (const auto& end : ends) {
    REQUIRE(!end.has_value());
    CHECK(end.error().exit_code() == contract::exit_code::kNumerics);
    CHECK(end.error().message() == ends[0].error().message());
  }
  CHECK(ends[0].error().message().find(": the loss is ") != std::string::npos);
}

namespace {

/// Where a process may die in whose step there are stages; kTransfer and what is before it are met
/// when its connections break.
constexpr std::array kSplitPlaces = {
    point::kConnect,  point::kEnter,     point::kTransfer,    point::kIdle,    point::kForward,
    point::kBackward, point::kScatter,   point::kReduced,     point::kGather,  point::kLog,
    point::kLogged,   point::kUpdate,    point::kHalfUpdated, point::kUpdated, point::kCompare,
    point::kEvaluate, point::kCheckpoint};

/// So long that all places come after step 12: an evaluation with step 22, a checkpoint with 20.
struct SplitTrial : Trial {
  SplitTrial(TrainingConfig (*config_of)(std::int64_t), int stages, int slices = 1) {
    steps = 26;
    config = config_of(steps);
    config.stages = stages;
    config.slices = slices;
    config.checkpoint_every_steps = 20;
  }
  void keep_files() { config.checkpoint_path = directory.path(); }
  const test::TempDirectory directory;
};

TrainingConfig clipped_digits(std::int64_t steps) {
  TrainingConfig config = test::with_adamw(test::digits(steps));
  config.mlp.hidden = {32, 24};
  return config;
}

void lose_one(Grid split, int victim, std::string_view place,
              test::ConfigOf config_of = clipped_digits) {
  CAPTURE_SPLIT(split);
  CAPTURE(victim);
  CAPTURE(std::string(place));
  SplitTrial trial(config_of, split.stages, split.slices);
  if (place == point::kCompare || place == point::kCheckpoint) trial.keep_files();
  // What the others of its group have come to is worth nothing without its part; they are given a
  // state, and another one where somebody's connections break over that.
  trial.falls = 3 * (trial.config.group_size() - 1);
  trial.before = [](ElasticWorld& world) { world.respawn_next(); };
  const int processes = split.processes();
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 14 || step == 24) {
      // The one in its place, before the others are through without it.
      const bool is_late =
          place == point::kCompare || place == point::kEvaluate || place == point::kCheckpoint;
      if (is_late == (step == 24)) world.wait_for(processes);
    }
    if (step != 12) return;
    world.doom(victim, place);
    const bool is_of_entry =
        place == point::kConnect || place == point::kEnter || place == point::kTransfer;
    if (is_of_entry) world.cut(victim);
  };
  const auto world = trial.run(processes);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.killed == 1);
  CHECK(ends.complete == processes);
  for (const Entry& entry : world->entries()) CHECK(entry.returned.empty());
}

}  // namespace

TEST_CASE("a stage of one copy dies at each place: the other copies lose no step") {
  constexpr std::array kSplits = {Grid{2, 2}, Grid{2, 3}, Grid{3, 2}};
  for (const Grid split : test::tried(kSplits)) {
    const test::ConfigOf config_of = split.processes() == 4 ? test::short_gpt : clipped_digits;
    for (const std::string_view place : kSplitPlaces) {
      for (const int victim : {0, 1, split.processes() - 1}) {
        lose_one(split, victim, place, config_of);
      }
    }
  }
}

TEST_CASE("one of those who share layers dies at each place: the other copies lose no step") {
  for (const std::string_view place : kSplitPlaces) {
    for (const int victim : {0, 1, 3}) lose_one({2, 1, 2}, victim, place);
    lose_one({2, 2, 2}, 6, place);
  }
}

TEST_CASE("sharded, a process of one copy dies at each place: the other copies have what it had") {
  constexpr std::array kSplits = {Grid{2, 2}, Grid{3, 2}, Grid{2, 1, 2}};
  for (const Grid split : test::tried(kSplits)) {
    for (const std::string_view place : kSplitPlaces) {
      for (const int victim : {0, 1, split.processes() - 1}) {
        lose_one(split, victim, place, test::wide_buckets);
      }
    }
  }
}

TEST_CASE("sharded, an owner and its buddy lose a process each: it goes on from the checkpoint") {
  SplitTrial trial(test::wide_buckets, 2);
  trial.keep_files();
  trial.config.checkpoint_every_steps = 5;
  trial.falls = 4;
  trial.before = [](ElasticWorld& world) { world.respawn_next(2); };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step != 12) return;
    // Of different stages: of each, every block was kept by somebody who lives.
    world.doom(3, point::kForward);
    world.doom(4, point::kForward);
  };
  const auto world = trial.run(6);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.killed == 2);
  CHECK(ends.complete == 6);
  int returns = 0;
  for (const Entry& entry : world->entries()) {
    if (entry.returned.empty()) continue;
    ++returns;
    CHECK(entry.step == 10);
    CHECK(entry.returned.find("blocks of the optimiser's state were lost") != std::string::npos);
  }
  CHECK(returns > 0);
}

TEST_CASE("sharded, an owner and its buddy leave with a process each: others have what they kept") {
  SplitTrial trial(test::wide_buckets, 2);
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 12) {
      // Those who are left of their copies wait, and what they have is of no use.
      world.leave(1);
      world.leave(3);
    }
    if (step == 16) {
      world.add(3);
      world.wait_for(world.add(1));
    }
  };
  const auto world = trial.run(6);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.left == 2);
  CHECK(ends.complete == 6);
  for (const Entry& entry : world->entries()) CHECK(entry.returned.empty());
}

namespace {

/// In two stages, of three blocks and of one.
TrainingConfig lopsided_digits(std::int64_t steps) {
  TrainingConfig config = test::digits(steps);
  config.mlp.hidden = {128, 16};
  config.is_sharded = true;
  return config;
}

}  // namespace

TEST_CASE("sharded, a copy that leaves takes something along until each of its parts is copied") {
  // Of three copies this one keeps nothing of the second stage, whose only block is the last one's:
  // that stage lacks nothing, while the first one's blocks are copied in the step after the news.
  constexpr std::int64_t kAsked = 6, kNews = kAsked + 1, kCopied = kNews + 1, kTold = kCopied + 1;
  constexpr std::array kLeavers = {2, 3};
  SplitTrial trial(lopsided_digits, 2);
  std::mutex mutex;
  std::map<std::pair<int, std::int64_t>, std::size_t> kept;  // by trainer and step
  std::atomic<int> looks = 0;
  trial.on_state = [&](int trainer, std::int64_t step, std::span<const float>,
                       const OptimizerState& state) {
    const std::lock_guard lock(mutex);
    kept[{trainer, step}] = size_of(state.held);
  };
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
      // All have made the step of the news, and none can end the next one yet.
      if (trainer != 0 || point != point::kLog || step != kNews) return {};
      for (const int one : kLeavers) CHECK(world.spared_by(one) == 0);
      ++looks;
      return {};
    });
  };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    for (const int one : kLeavers) {
      if (step == kAsked) world.ask_to_leave(one);
      if (step == kCopied) CHECK(world.spared_by(one) == 0);
      if (step == kTold + 1) CHECK(world.spared_by(one) == 6);
    }
    if (step != kTold + 1) return;
    for (const int one : kLeavers) world.leave(one);
  };
  const auto world = trial.run(6);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.left == 2);
  CHECK(ends.complete == 4);
  CHECK(looks > 0);
  for (const int stage : {0, 1}) {
    CAPTURE(stage);
    // Of the first copy, and of the one that leaves.
    CHECK((kept[{stage, kCopied}] > kept[{stage, kAsked}]) == (stage == 0));
    CHECK((kept[{2 + stage, kAsked}] > 0) == (stage == 0));
  }
  for (const Entry& entry : world->entries()) CHECK(entry.returned.empty());
}

TEST_CASE("the only copy loses a stage: it goes on from the checkpoint, and says why") {
  for (const int victim : {0, 1}) {
    CAPTURE(victim);
    SplitTrial trial(test::small_gpt, 2);
    trial.keep_files();
    trial.config.checkpoint_every_steps = 5;
    trial.falls = 1;  // who has lived
    trial.before = [](ElasticWorld& world) { world.respawn_next(); };
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 12) world.doom(victim, point::kForward);
    };
    const auto world = trial.run(2);
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.killed == 1);
    CHECK(ends.complete == 2);
    int returns = 0;
    for (const Entry& entry : world->entries()) {
      if (entry.returned.empty()) continue;
      ++returns;
      CHECK(entry.step == 10);
      CHECK(entry.returned.find("a stage of every copy of the model") != std::string::npos);
    }
    CHECK(returns > 0);
    CHECK(test::record_of(trial.directory.path()).size() >= 26);
  }
}

TEST_CASE("who is stopped without the rest of its copy knows nothing of how far training is") {
  SplitTrial trial(test::small_gpt, 2);
  trial.keep_files();
  ElasticWorld world(trial.config, [](int, std::int64_t, auto, auto) {});
  std::atomic<int> views = 0;
  world.watch_points([&](int trainer, std::string_view point, std::int64_t) -> Status {
    // Before it has heard from the first stage.
    if (trainer != 1 || point != point::kConnect || ++views > 1) return {};
    world.lose(0);
    world.stop();
    return {};
  });
  world.start(2);
  world.join();
  const auto& end = *world.outcome(1);
  REQUIRE(end.has_value());
  CHECK_FALSE(end->complete);
  CHECK(end->step == -1);
  CHECK(end->checkpoint_step == -1);
}

TEST_CASE("copies of a split model come and go at step boundaries, and nothing is computed twice") {
  for (const auto& [config_of, is_sharded] :
       {std::pair(&clipped_digits, false), std::pair(&test::small_gpt, false),
        std::pair(&test::wide_buckets, true), std::pair(&test::small_gpt, true)}) {
    CAPTURE(is_sharded);
    SplitTrial trial(config_of, 2);
    trial.steps = 44;
    trial.config = config_of(44);
    trial.config.stages = 2;
    trial.config.is_sharded = is_sharded;
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 8) world.wait_for(world.add(2));
      if (step == 12) world.wait_for(world.add(3));
      if (step == 24) world.leave(1);  // the other process of its copy waits
      if (step == 30) world.wait_for(world.add(1));
    };
    const auto world = trial.run(2);
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.left == 1);
    CHECK(ends.complete == 4);
    CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  }
}

TEST_CASE("those who have nothing to write wait for the disk, however slow it is") {
  SplitTrial trial(clipped_digits, 2);
  trial.keep_files();
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> waiting;
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
      const bool is_saving = point == point::kCheckpoint && step == 20;
      if (trainer > 1) {
        // A minute is longer than members wait for each other within a step.
        world.lag(trainer, seconds(is_saving ? 60 : 0));
        const std::lock_guard lock(mutex);
        if (is_saving) waiting.insert(trainer);
        changed.notify_all();
      } else if (is_saving && trainer == 0) {
        std::unique_lock lock(mutex);
        const auto wait = [&] { return waiting.size() == 2; };
        if (!changed.wait_for(lock, seconds(20), wait)) return Error(ErrorCode::kInternal, "");
      }
      return {};
    });
  };
  const auto world = trial.run(4);
  CHECK(ends_of(*world, trial.steps).complete == 4);
  for (const Entry& entry : world->entries()) CHECK(entry.step == 0);
}

namespace {

/// From its first pass of a step to its update, the trainer comes `late` to each wait.
void come_late(ElasticWorld& world, seconds late) {
  world.watch_points([&world, late](int trainer, std::string_view point, std::int64_t) -> Status {
    if (point == point::kForward) world.lag(trainer, late);
    if (point == point::kUpdate || point == point::kConnect) world.lag(trainer, seconds(0));
    return {};
  });
}

}  // namespace

TEST_CASE("who waits for what others compute has patience, however long a pass takes") {
  for (const auto& [stages, slices] : {std::pair(1, 1), std::pair(2, 1), std::pair(1, 2)}) {
    CAPTURE(stages);
    CAPTURE(slices);
    SplitTrial trial(clipped_digits, stages, slices);
    trial.config.gradient_norm_max = 1;
    // A minute is longer than members wait for what others have at hand.
    trial.before = [](ElasticWorld& world) { come_late(world, seconds(60)); };
    const auto world = trial.run(4);
    CHECK(ends_of(*world, trial.steps).complete == 4);
    for (const Entry& entry : world->entries()) CHECK(entry.step == 0);
  }
}

TEST_CASE("a model that lies there whole is not written again for another membership") {
  for (const int stages : {1, 2}) {
    CAPTURE(stages);
    SplitTrial trial(test::small_gpt, stages);
    trial.keep_files();
    std::atomic<bool> has_checkpoint = false, is_cut = false;
    std::atomic<int> pieces = 0;
    trial.before = [&](ElasticWorld& world) {
      world.watch_points([&](int trainer, std::string_view place, std::int64_t) -> Status {
        if (place == point::kFinish) has_checkpoint = true;
        if (place == point::kPiece && has_checkpoint) ++pieces;
        // It stands there, and what the model writes does not yet.
        if (place == point::kSample && !is_cut.exchange(true)) world.cut(trainer);
        return {};
      });
    };
    const auto world = trial.run(2 * stages);
    CHECK(ends_of(*world, trial.steps).complete == 2 * stages);
    CHECK(is_cut);
    CHECK(pieces == 1);
  }
}

TEST_CASE("who has waited in vain for the same members waits longer the next time") {
  SplitTrial trial(clipped_digits, 2);
  trial.config.long_deadline = trial.config.peer_deadline;
  trial.before = [](ElasticWorld& world) { come_late(world, seconds(100)); };
  const auto world = trial.run(2);
  CHECK(ends_of(*world, trial.steps).complete == 2);
  std::set<std::int64_t> views;
  for (const Entry& entry : world->entries()) {
    CHECK(entry.step == 0);
    views.insert(entry.epoch);
  }
  CHECK(views.size() == 3);  // of 30, 60 and 120 seconds
}
