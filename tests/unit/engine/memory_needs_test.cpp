// What a trainer takes is known before it is taken, a step is cut into passes that fit, and what
// cannot fit is refused in words.
#include "worker/engine/memory_needs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <utility>

#include "common/contract.h"
#include "tests/golden.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/picture_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "worker/engine/block_parts.h"
#include "worker/engine/model.h"
#include "worker/engine/node_sums.h"
#include "worker/engine/pipeline_stage.h"
#include "worker/engine/speeds.h"
#include "worker/engine/stage_state.h"

using namespace muster;
using namespace muster::engine;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TrainingConfig gpt_of(int layers, int width, int context) {
  TrainingConfig config = test::small_gpt(12);
  config.gpt = GptConfig{layers, 2, width, context};
  return config;
}

ModelShape shape_of(const TrainingConfig& config) {
  const auto shape =
      ModelShape::of(config, {1, static_cast<std::size_t>(config.gpt->context_length), 1}, 256);
  MUSTER_CHECK(shape.has_value());
  return *shape;
}

MemoryShare share_of(const TrainingConfig& config, int processes) {
  const auto even = assign(config.logical_ranks, processes);
  MUSTER_CHECK(even.has_value());
  return {*even, 0, static_cast<std::size_t>(config.batch_size / config.logical_ranks), 0,
          std::filesystem::file_size(config.data_root + "/" + config.train.text)};
}

struct TrainedInMemory {
  std::vector<Result<TrainingSummary>> outcomes;
  std::size_t samples_at_once = 0;  ///< of rank 0, the most
};

/// The memory of a process is `memory_bytes`, of this very model.
TrainedInMemory trained_within(TrainingConfig config, std::size_t memory_bytes, int processes) {
  config.memory_bytes = memory_bytes;
  std::vector<std::optional<Result<TrainingSummary>>> outcomes(static_cast<std::size_t>(processes));
  TrainedInMemory all;
  test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
    std::size_t of_pass = 0;
    TrainingHooks hooks;
    hooks.on_batch = [&](std::int64_t, data::RankRange, std::span<const std::uint64_t> samples) {
      of_pass += samples.size();
      if (communicator.rank() == 0) all.samples_at_once = std::max(all.samples_at_once, of_pass);
    };
    hooks.at = [&](std::string_view point, std::int64_t) {
      if (point == point::kForward) of_pass = 0;
      return Status();
    };
    const SystemClock clock;
    outcomes[static_cast<std::size_t>(communicator.rank())] =
        run_training(config, communicator, clock, hooks);
  });
  for (auto& outcome : outcomes) all.outcomes.push_back(*std::move(outcome));
  return all;
}

}  // namespace

TEST_CASE("activations are foreseen to the byte") {
  kernels::cpu::Context context(1);
  for (const Activations activations : {Activations::kKept, Activations::kRecomputed}) {
    for (const std::size_t rows : {1, 3, 16}) {
      const ModelShape shape = ModelShape::gpt({3, 2, 32, 16}, 256);
      const Model model(shape, rows, context, activations);
      // And a token, a label, a loss and a hit of each position.
      CHECK(Model::bytes(shape, rows, activations, 1) == model.arena_bytes() + rows * 16 * 16);
    }
  }
}

TEST_CASE("a head never holds all logits, and those that it holds are foreseen to the byte") {
  constexpr std::size_t kTokens = 5'000, kPositions = 300;
  const ModelShape shape = ModelShape::gpt({1, 1, 4, kPositions}, kTokens);
  kernels::cpu::Context context(1);
  for (const std::size_t rows : {1, 4}) {
    CAPTURE(rows);
    const Model model(shape, rows, context);
    CHECK(model.arena_bytes() < rows * kPositions * kTokens * sizeof(float));
    CHECK(Model::bytes(shape, rows, Activations::kKept, 1) ==
          model.arena_bytes() + rows * kPositions * 16);
  }
  // GPT-2's vocabulary and context: of one sample a quarter of its logits, of more no more.
  constexpr std::size_t kGpt2Tokens = 50'257, kContext = 1024;
  const ModelShape large = ModelShape::gpt({1, 1, 4, kContext}, kGpt2Tokens);
  const auto bytes = [&](std::size_t rows) {
    return Model::bytes(large, rows, Activations::kKept, 1);
  };
  constexpr std::size_t kLogitBytes = kGpt2Tokens * kContext * sizeof(float);
  CHECK(bytes(1) > kLogitBytes / 4);
  CHECK(bytes(1) < kLogitBytes / 3);
  CHECK(bytes(9) - bytes(1) < kLogitBytes / 8);
}

TEST_CASE("a convolution's patches are foreseen to the byte, and are no more with more samples") {
  ModelShape shape({16, 16, 8});
  shape.stage({8, 3, true}).linear(10, false).finish();
  constexpr std::size_t kPatches = 16 * 16 * 8 * 9 * sizeof(float);
  for (const int threads : {1, 3}) {
    kernels::cpu::Context context(threads);
    for (const std::size_t rows : {1, 14, 15, 42, 43, 600}) {
      const Model model(shape, rows, context);
      // And a label, a loss and a hit.
      CHECK(Model::bytes(shape, rows, Activations::kKept, context.threads()) ==
            model.arena_bytes() + rows * 12);
    }
  }
  // A device lays out more at once, and is as bounded.
  const auto of_device = [&](std::size_t rows) {
    return Model::device_bytes(shape, rows, Activations::kKept, {});
  };
  CHECK(of_device(2000) - of_device(1000) > 1000 * kPatches);
  CHECK(of_device(40'000) - of_device(20'000) < 20'000 * kPatches);
}

TEST_CASE("a MiB of patches is laid out for each of some threads, and more where pixels are few") {
  struct Case {
    Extent image;
    int threads;
    std::size_t rows;  // that are laid out at once
  };
  for (const Case& one :
       {Case{{16, 16, 8}, 1, 14}, Case{{16, 16, 8}, 4, 56}, Case{{16, 16, 8}, 8, 113},
        Case{{16, 16, 8}, 100, 113}, Case{{64, 64, 64}, 1, 1},  // 9 MiB
        Case{{4, 4, 512}, 1, 64},                               // as have 1,024 pixels, 18 MiB
        Case{{2, 2, 4096}, 1, 56}}) {                           // of 256 no more than 32 MiB
    CAPTURE(one.image.channels);
    CAPTURE(one.threads);
    ModelShape shape(one.image);
    shape.stage({8, 3, true}).linear(10, false).finish();
    const auto bytes = [&](std::size_t rows) {
      return Model::bytes(shape, rows, Activations::kKept, one.threads);
    };
    const std::size_t patches = one.image.size() * 9 * sizeof(float);
    if (one.rows > 1) CHECK(bytes(one.rows) - bytes(one.rows - 1) > patches);
    CHECK(bytes(2 * one.rows) - bytes(one.rows) < one.rows * patches);
  }
}

TEST_CASE("activations of a slice are foreseen to the byte") {
  kernels::cpu::Context context(1);
  for (const Activations activations : {Activations::kKept, Activations::kRecomputed}) {
    for (const std::size_t rows : {1, 3, 16}) {
      for (const std::size_t slices : {2, 4}) {
        const ModelShape shape = ModelShape::gpt({3, 4, 32, 18}, 256).slice(slices, 1);
        const Model model(shape, rows, context, activations);
        CHECK(Model::bytes(shape, rows, activations, 1) == model.arena_bytes() + rows * 18 * 16);
      }
    }
  }
}

TEST_CASE("of a block a slice keeps its own share, and of the stream its rows with recomputation") {
  const std::size_t rows = 5, positions = 16, width = 32, heads = 8;
  for (const std::size_t slices : {1, 2, 4, 8}) {
    CAPTURE(slices);
    const auto of_block = [&](Activations activations, std::size_t stages) {
      const auto bytes = [&](int layers) {
        const ModelShape whole = ModelShape::gpt({layers, heads, width, positions}, 256);
        const std::size_t end = whole.layers().size();
        const ModelShape part = stages == 1 ? whole : whole.cut(1, end - 2);
        return Model::bytes(part.slice(slices, 0), rows, activations, 1);
      };
      return (bytes(9) - bytes(5)) / 4;
    };
    // Two means and deviations of a position; of each head its greatest score and their sum.
    const std::size_t of_position = 4 + 2 * heads / slices, whole_norms = slices == 1 ? 2 : 0;
    const std::size_t kept = (2 + whole_norms) * width + 12 * width / slices + of_position;
    const std::size_t recomputed = 2 * width / slices + of_position;
    for (const std::size_t stages : {1, 2}) {
      CHECK(of_block(Activations::kKept, stages) == rows * positions * kept * sizeof(float));
      CHECK(of_block(Activations::kRecomputed, stages) ==
            rows * positions * recomputed * sizeof(float));
    }
  }
}

TEST_CASE("the gradients of a table that a head shares are foreseen, one for each rank of a pass") {
  TrainingConfig config = gpt_of(2, 64, 32);
  const ModelShape shape = shape_of(config);
  const std::size_t table = 256 * 64 * sizeof(float), ranks = 16;
  config.logical_ranks = 16;
  for (const int processes : {1, 3}) {
    CAPTURE(processes);
    const MemoryShare share = share_of(config, processes);
    const auto needs = [&](int at_once) {
      return memory_needs(config, shape, share, at_once).activations;
    };
    const auto& nodes = share.assignment.nodes[0];
    const auto own = static_cast<std::size_t>(count_ranks(nodes));
    CHECK((own == ranks) == (processes == 1));
    // The first rank of each node makes its gradient where the node's sum is.
    CHECK(needs(16) == Model::bytes(shape, own * share.rows_per_rank, Activations::kKept, 1) +
                           (own - nodes.size()) * table);
    CHECK(needs(2) == Model::bytes(shape, 2 * share.rows_per_rank, Activations::kKept, 1) + table);
    CHECK(needs(1) == Model::bytes(shape, share.rows_per_rank, Activations::kKept, 1));
    // In slices of one stage, too, each of which has a part of the table or all of it.
    const auto plan = plan_stages(shape, 1, 2);
    REQUIRE(plan.has_value());
    const ModelShape& part = plan->part(0);
    CHECK(memory_needs(config, *plan, 0, share, 2).activations ==
          Model::bytes(part, 2 * share.rows_per_rank, Activations::kKept, 1) +
              part.layers().back().out.channels * 64 * sizeof(float));
  }
}

TEST_CASE("what threads keep for a long context, and convolutions of large pictures, is foreseen") {
  TrainingConfig config = gpt_of(2, 64, 1024);
  const ModelShape shape = shape_of(config);
  const auto needs = [&](int threads) {
    config.threads = threads;
    return memory_needs(config, shape, share_of(config, 1), 1).rest;
  };
  // Query, key and value, their gradients, and weights of 96 positions, of a head.
  const std::size_t head = (5 * 1024 * 32 + 96 * 1024) * sizeof(float);
  CHECK(kernels::cpu::attention_scratch_bytes({1, 1024, 2, 32}) >= head);
  CHECK(needs(32) - needs(1) >= 31 * head);

  // 27 taps, which is no multiple of a tile's rows: a copy of some of them for each pixel of the
  // two pictures whose patches are laid out at once.
  ModelShape pictures({64, 64, 3});
  for (int stage = 0; stage < 4; ++stage) pictures.stage({16, 3, true});
  pictures.linear(10, false).finish();
  CHECK(Model::scratch_bytes(pictures, 2, 1) >= std::size_t{2} * 64 * 64 * 4 * sizeof(float));
  CHECK(Model::scratch_bytes(pictures, 800, 1) <= 4 * kMiB);
  const auto activations = [&](int threads) {
    config.threads = threads;
    return memory_needs(config, pictures, share_of(config, 1), config.logical_ranks).activations;
  };
  CHECK(activations(8) - activations(1) > 6 * kMiB);
}

TEST_CASE("a share of the work is a share of the memory, parameters are what all have") {
  TrainingConfig config = gpt_of(2, 64, 32);
  const ModelShape shape = shape_of(config);
  const MemoryNeeds alone = memory_needs(config, shape, share_of(config, 1), config.logical_ranks);
  const MemoryNeeds of_four =
      memory_needs(config, shape, share_of(config, 4), config.logical_ranks);
  CHECK(alone.parameters == shape.values() * sizeof(float));
  CHECK(of_four.parameters == alone.parameters);
  CHECK(alone.optimizer == 2 * shape.parameters() * sizeof(float));
  CHECK(of_four.activations < alone.activations / 3);
  CHECK(alone.gradients == alone.parameters);
  CHECK(of_four.gradients > alone.gradients);  // with what comes from the others
  config.is_sharded = true;
  CHECK(memory_needs(config, shape, share_of(config, 4), 1).optimizer == alone.optimizer / 2);
  CHECK(memory_needs(config, shape, share_of(config, 1), 1).optimizer == alone.optimizer);
}

TEST_CASE("who keeps more than its share of the state needs memory for that, and its gradients") {
  TrainingConfig config = gpt_of(2, 64, 32);
  config.is_sharded = true;
  const ModelShape shape = shape_of(config);
  MemoryShare share = share_of(config, 4);
  const MemoryNeeds even = memory_needs(config, shape, share, 1);
  // Its own and one other's of four shares, of which others add up that other one.
  share.kept = KeptParts{0.5, 0.25};
  CHECK(memory_needs(config, shape, share, 1).total() == even.total());
  share.kept = KeptParts{1.0, 0.75};
  const MemoryNeeds all = memory_needs(config, shape, share, 1);
  CHECK(all.optimizer == 2 * even.optimizer);
  CHECK(all.gradients == even.gradients + shape.values() / 2 * sizeof(float));
  CHECK(all.activations == even.activations);
}

TEST_CASE("of shards the process with the files has all state before it has anything of a pass") {
  TrainingConfig config = gpt_of(2, 64, 32);
  const ModelShape shape = shape_of(config);
  const auto needs = [&] { return memory_needs(config, shape, share_of(config, 8), 1); };
  CHECK(needs().loading == 0);
  config.checkpoint_path = "/checkpoints";
  CHECK(needs().loading == 0);
  config.is_sharded = true;
  CHECK(needs().loading == 2 * shape.parameters() * sizeof(float));
  MemoryNeeds some = needs();
  some.activations = some.loading - some.optimizer;
  const std::size_t before = some.total();
  --some.activations;
  CHECK(some.total() == before);
  some.activations += 1 + 32;
  CHECK(some.total() == before + 32 + 1);
  config.checkpoint_path.clear();
  CHECK(needs().loading == 0);
}

TEST_CASE("as many samples at once as the memory holds, and the bits of all others") {
  TrainingConfig config = test::small_gpt(12);
  const ModelShape shape = shape_of(config);
  const MemoryShare share = share_of(config, 1);
  const int ranks = config.logical_ranks;
  const auto needs = [&](int at_once) {
    return memory_needs(config, shape, share, at_once).total();
  };
  CHECK(trained_within(config, 0, 1).samples_at_once == 32);
  CHECK(trained_within(config, needs(ranks), 1).samples_at_once == 32);
  for (const int at_once : {ranks / 2, 2, 1}) {
    REQUIRE(needs(at_once) < needs(2 * at_once));
    const TrainedInMemory trained = trained_within(config, needs(at_once), 1);
    CHECK(trained.samples_at_once == 32U / static_cast<unsigned>(ranks / at_once));
    CHECK(trained.outcomes[0]->model_sha256 == test::kSmallGptGolden);
  }
  // Three have room for less each, and need less.
  const TrainedInMemory three = trained_within(config, needs(2), 3);
  for (const auto& outcome : three.outcomes) {
    REQUIRE(outcome.has_value());
    CHECK(outcome->model_sha256 == test::kSmallGptGolden);
  }
}

TEST_CASE("who adds up more of the sum needs more memory for it, and who adds up less needs less") {
  const TrainingConfig config = test::small_gpt(1);
  const ModelShape shape = shape_of(config);
  const auto gradients = [&](std::vector<std::uint8_t> weights, Hosts hosts = {}) {
    MemoryShare share = share_of(config, 4);
    share.weights = std::move(weights);
    share.hosts = std::move(hosts);
    return memory_needs(config, shape, share, 1).gradients;
  };
  const std::size_t even = gradients({});
  CHECK(gradients({8, 8, 8, 8}) == even);
  CHECK(gradients({8, 1, 8, 8}) > even);
  CHECK(gradients({1, 8, 8, 8}) < even);
  // Who makes a node of its host for others needs what they have.
  const Hosts hosts({0, 0, 1, 1});
  CHECK(gradients({1, 8, 8, 8}, hosts) > gradients({}, hosts));
}

TEST_CASE("who is fast gets no more logical ranks than its memory holds") {
  for (const bool is_tight : {false, true}) {
    CAPTURE(is_tight);
    test::Trial trial;
    trial.config = test::small_gpt(trial.steps);
    trial.config.look_steps = kSpeedSteps;
    const ModelShape shape = shape_of(trial.config);
    if (is_tight) {
      trial.config.memory_bytes =
          memory_needs(trial.config, shape, share_of(trial.config, 2), 1).total();
    }
    std::uint64_t before = 0, most = 0;
    trial.before = [&](test::ElasticWorld& world) {
      world.set_speed(
          [](int trainer, std::int64_t) { return std::chrono::seconds(trainer == 0 ? 100 : 430); });
      world.watch_reports([&](int trainer, const StepReport& report) {
        if (trainer != 0) return;
        most = std::max(most, report.logical_rank_computations - before);
        before = report.logical_rank_computations;
      });
    };
    CHECK(test::ends_of(*trial.run(2), trial.steps).complete == 2);
    const auto half = static_cast<std::uint64_t>(trial.config.logical_ranks) / 2;
    CHECK((is_tight ? most == half : most > half));
  }
}

TEST_CASE("who is left alone takes what fits its memory, and no bit moves") {
  test::Trial trial;
  trial.steps = 24;
  trial.config = test::small_gpt(trial.steps);
  const ModelShape shape = shape_of(trial.config);
  trial.config.memory_bytes =
      memory_needs(trial.config, shape, share_of(trial.config, 1), 2).total();
  trial.at_step = [](test::ElasticWorld& world, std::int64_t step) {
    if (step == 6) world.doom(1, point::kForward);
    if (step == 12) world.leave(2);
  };
  const auto world = trial.run(3);
  const test::Ends ends = test::ends_of(*world, trial.steps);
  CHECK(ends.killed == 1);
  CHECK(ends.left == 1);
  CHECK(ends.complete == 1);
}

TEST_CASE("who stays makes room before it is given what those keep who are asked to leave") {
  constexpr std::int64_t kAsked = 8;
  constexpr int kMembers = 4, kLeaver = 1;
  test::Trial trial;
  trial.steps = 20;
  trial.config = test::small_gpt(trial.steps);
  trial.config.is_sharded = true;
  trial.config.processes = kMembers;
  const ModelShape shape = shape_of(trial.config);
  const MemoryShare share = share_of(trial.config, kMembers);
  const int own = count_ranks(share.assignment.nodes[0]);
  const MemoryNeeds even = memory_needs(trial.config, shape, share, own);
  trial.config.memory_bytes = even.total();
  std::mutex mutex;
  using OfStep = std::pair<int, std::int64_t>;  // a trainer, and the step that it makes
  std::map<OfStep, int> passes;
  std::map<OfStep, std::size_t> kept;  // elements, of which the state has two moments
  trial.before = [&](test::ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
      const std::lock_guard lock(mutex);
      if (point == point::kForward) ++passes[{trainer, step + 1}];
      return {};
    });
  };
  trial.on_state = [&](int trainer, std::int64_t step, std::span<const float>,
                       const OptimizerState& state) {
    const std::lock_guard lock(mutex);
    kept[{trainer, step + 1}] = state.buffers[0].values.size();
  };
  trial.at_step = [&](test::ElasticWorld& world, std::int64_t step) {
    if (step == kAsked) world.ask_to_leave(kLeaver);
    if (step == kAsked + 3) world.leave(kLeaver);
  };
  const test::Ends ends = test::ends_of(*trial.run(kMembers), trial.steps);
  CHECK(ends.left == 1);
  CHECK(ends.complete == kMembers - 1);
  for (const int one : {0, 2, 3}) {
    CAPTURE(one);
    CHECK(passes[{one, kAsked + 1}] == 1);
    // That in which it is copied, and the next, before the view is another.
    for (const std::int64_t step : {kAsked + 2, kAsked + 3}) {
      CAPTURE(step);
      const int count = passes[{one, step}];
      REQUIRE(count > 0);
      MemoryNeeds needs = memory_needs(trial.config, shape, share, own / count);
      needs.optimizer = 2 * kept[{one, step}] * sizeof(float);
      CHECK(needs.optimizer > even.optimizer);
      CHECK(needs.total() <= trial.config.memory_bytes);
    }
  }
}

TEST_CASE("sums that an earlier division has left behind are known, and can be given up") {
  NodeSums sums(1000);
  sums.hold({{0, 4}, {4, 8}, {8, 12}});
  sums.set_computed(1);
  const auto kept = sums.buffer(1);
  kept[999] = 7;
  CHECK(sums.unused_bytes() == 0);
  sums.hold({{4, 8}});
  sums.spare(0)[0] = 1;
  // One of the two that are left was taken for a part of a node.
  CHECK(sums.unused_bytes() == 2 * 1000 * sizeof(float));
  sums.give_up_unused();
  CHECK(sums.unused_bytes() == 0);
  CHECK(sums.is_computed(0));
  CHECK(sums.buffer(0).data() == kept.data());
  CHECK(sums.buffer(0)[999] == 7);
}

TEST_CASE("what cannot fit is refused before the first step, with what would fit") {
  TrainingConfig config = gpt_of(8, 64, 64);
  const ModelShape shape = shape_of(config);
  config.logical_ranks = 1;
  config.batch_size = 8;
  const std::size_t needs = memory_needs(config, shape, share_of(config, 1), 1).total();
  const TrainedInMemory refused = trained_within(config, needs / 2 + 14 * kMiB, 1);
  REQUIRE_FALSE(refused.outcomes[0].has_value());
  const Error& error = refused.outcomes[0].error();
  CHECK(error.exit_code() == contract::exit_code::kInvalidSpec);
  const std::string& sentence = error.message();
  CAPTURE(sentence);
  CHECK(sentence.starts_with("spec.training.model: each of 1 processes needs at least "));
  CHECK(sentence.find("; it would fit with spec.training.activations: Recomputed (") !=
        std::string::npos);
  CHECK(sentence.find(", or spec.worker.resources.memory of ") != std::string::npos);
  config.recomputes_activations = true;
  CHECK(trained_within(config, needs / 2 + 14 * kMiB, 1).outcomes[0].has_value());
}

TEST_CASE("what cannot fit and may be split names the splits that fit, the least first") {
  TrainingConfig config = gpt_of(8, 128, 64);
  config.logical_ranks = 4;
  config.batch_size = 8;
  config.may_be_split = true;
  config.processes = 4;
  const ModelShape shape = shape_of(config);
  const auto needs = [&](int stages, int slices, int copies) {
    const StagePlan plan = *plan_stages(shape, stages, slices);
    std::size_t most = 0;
    for (int place = 0; place < plan.places(); ++place) {
      most = std::max(most, memory_needs(config, plan, place, share_of(config, copies), 1).total());
    }
    return most;
  };
  const auto fits = [&](std::size_t bytes) {
    config.memory_bytes = bytes;
    return splits_that_fit(config, shape, share_of(config, 4));
  };
  // tensor 2 is told beside pipeline 2 by what it takes; never what does not divide four processes.
  const std::size_t in_two = needs(2, 1, 2), divided = needs(1, 2, 2), in_four = needs(4, 1, 1);
  REQUIRE(in_two != divided);
  CHECK(fits(std::max(in_two, divided)).front() == Split{1, 2});
  CHECK(fits(std::max(in_two, divided)).at(1) == Split{2, 1});
  CHECK(fits(std::min(in_two, divided)).front() == (in_two < divided ? Split{1, 2} : Split{2, 1}));
  for (const Split& split : fits(std::max(in_two, divided))) CHECK(4 % split.processes() == 0);
  CHECK(fits(std::min({in_two, divided, in_four}) / 2).empty());
  config.stages = 2;  // split so already, and that is not enough
  for (const Split& split : fits(in_two)) CHECK(split.processes() == 4);
  config.stages = 1;

  const TrainedInMemory refused = trained_within(config, std::max(in_two, divided), 4);
  for (const auto& outcome : refused.outcomes) {
    REQUIRE_FALSE(outcome.has_value());
    CHECK(outcome.error().exit_code() == contract::exit_code::kNeedsSplit);
    CHECK(outcome.error().message().starts_with(
        "spec.training.parallelism: each of 4 processes needs at least "));
    const auto told = read_needs_split(outcome.error().message());
    CHECK(told == fits(std::max(in_two, divided)));
  }
  // Nothing would fit: the same words as of any other job.
  config.gpt->heads = 1;
  config.processes = 1;
  const TrainedInMemory alone = trained_within(config, needs(1, 1, 1) / 2, 1);
  REQUIRE_FALSE(alone.outcomes[0].has_value());
  CHECK(alone.outcomes[0].error().exit_code() == contract::exit_code::kInvalidSpec);
}

TEST_CASE("of a pipeline each stage needs its own part, and one stage what the whole model does") {
  TrainingConfig config = gpt_of(4, 64, 32);
  config.micro_batch_size = 2;
  const ModelShape shape = shape_of(config);
  const MemoryShare share = share_of(config, 2);
  const MemoryNeeds whole = memory_needs(config, shape, share, 1);
  const MemoryNeeds alone = memory_needs(config, *plan_stages(shape, 1), 0, share, 1);
  CHECK(alone.total() == whole.total());
  for (const int stages : {2, 3, 5}) {
    const StagePlan plan = *plan_stages(shape, stages);
    MemoryNeeds sum;
    for (int stage = 0; stage < stages; ++stage) {
      const MemoryNeeds needs = memory_needs(config, plan, stage, share, 1);
      sum.parameters += needs.parameters;
      sum.optimizer += needs.optimizer;
      sum.gradients += needs.gradients;
      CHECK(needs.parameters < whole.parameters);
      CHECK(needs.total() < whole.total());
    }
    CHECK(sum.parameters == whole.parameters);
    CHECK(sum.optimizer == whole.optimizer);
    CHECK(sum.gradients <= whole.gradients);
    CHECK(sum.gradients + static_cast<std::size_t>(4 * stages) > whole.gradients);
  }
}

TEST_CASE("the first stages of a pipeline keep more micro-batches alive, the last one its tables") {
  const TrainingConfig config = gpt_of(8, 32, 16);
  const ModelShape shape = shape_of(config);
  const StagePlan plan = *plan_stages(shape, 4);
  const StageWork work{{{0, 16}}, 1, 2};
  const auto of_one = [&](std::size_t stage) {
    return Model::bytes(plan.stages[stage].shape, 2, Activations::kKept, 1);
  };
  for (std::size_t stage = 0; stage < 3; ++stage) {
    CHECK(pass_bytes(plan, static_cast<int>(stage), work) == (4 - stage) * of_one(stage));
  }
  const std::size_t table = 256 * 32 * sizeof(float), embedding = 2 * 16 * 32 * sizeof(float);
  const std::size_t tokens = 2 * 16 * 2 * sizeof(std::int32_t);
  CHECK(pass_bytes(plan, 3, work) == of_one(3) + 3 * table + 2 * embedding + 5 * tokens);
  CHECK(pass_bytes(plan, 0, {{{0, 16}}, 1, 2, 1, Pipelining::kGpipe}) == 16 * of_one(0));
}

TEST_CASE("what processes of one machine share is foreseen, for each its half") {
  TrainingConfig config = gpt_of(2, 64, 32);
  const ModelShape shape = shape_of(config);
  const auto rest = [&](int processes, int together) {
    config.together = together;
    return memory_needs(config, shape, share_of(config, processes), 1).rest;
  };
  CHECK(rest(4, 1) == rest(1, 1));
  CHECK(rest(4, 4) == rest(1, 1) + 3 * kMiB);
  CHECK(rest(16, 2) == rest(1, 1) + kMiB / 4);  // the fourth part of a MiB for each of 15 lanes
  // Of those that were there when it started.
  CHECK(rest(2, 4) == rest(1, 1) + kMiB);
  CHECK(rest(1, 4) == rest(1, 1));
}

TEST_CASE("what the processes of a copy take to make something of all of it is foreseen") {
  TrainingConfig config = gpt_of(12, 128, 16);
  config.gpt->heads = 4;
  const ModelShape whole = shape_of(config);
  const MemoryShare share = share_of(config, 1);
  for (const auto& [stages, slices] :
       {std::pair(2, 1), std::pair(1, 2), std::pair(1, 4), std::pair(2, 2)}) {
    CAPTURE(stages);
    CAPTURE(slices);
    const StagePlan plan = *plan_stages(whole, stages, slices);
    std::size_t listed = 0;
    for (int place = 0; place < plan.places(); ++place) {
      const ModelShape& part = plan.part(place);
      const std::size_t stretches = counted_stretches_of(part, whole).size();
      CHECK(stretches <= counted_stretches_most(part));
      CHECK(counted_stretches_most(part) < stretches + 2 * part.tensors().size());
      listed += stretches;
      // 256 blocks of 16 KiB, of these what is moved, and the lists of a norm and of a hash.
      std::size_t known = 0;
      const BlockPlan blocks = plan_blocks(block_parts(plan, whole, whole.values()), place);
      for (const auto& of_place : blocks.parts) known += of_place.size();
      const std::size_t moved = 2 * static_cast<std::size_t>(slices - 1) * 4 * kMiB /
                                static_cast<std::size_t>(slices * slices);
      const std::size_t lists = 2 * known * sizeof(BlockPart);
      CHECK(gathering_bytes(plan, place) >= 4 * kMiB + moved + lists / 20 * 19);
      CHECK(gathering_bytes(plan, place) <= 4 * kMiB + moved + lists * 2 + kMiB / 8);
    }
    // Of parameters and two moments, in both lists, and a piece of them.
    CHECK(PartsSource::bytes(plan, 2) >= 3 * listed * 2 * sizeof(StatePart) + kMiB);
    // The one that writes the files needs more for that than the others.
    const auto rest = [&](const std::string& path) {
      config.checkpoint_path = path;
      return memory_needs(config, plan, 0, share, 1).rest;
    };
    CHECK(rest("/files") == rest("") + PartsSource::bytes(plan, 2));
  }
}

TEST_CASE("a model that does not fit one process fits when it is split") {
  TrainingConfig config = gpt_of(8, 64, 64);
  const ModelShape shape = shape_of(config);
  const MemoryShare share = share_of(config, 1);
  config.memory_bytes = memory_needs(config, shape, share, 1).total() - 1;
  CHECK(!ranks_that_fit(config, shape, share, 16));
  const auto fits = ranks_that_fit(config, *plan_stages(shape, 4), share, 16);
  REQUIRE(fits.has_value());
  config.memory_bytes = 0;
  for (int stage = 0; stage < 4; ++stage) {
    const StagePlan plan = *plan_stages(shape, 4);
    CHECK(memory_needs(config, plan, stage, share, *fits).total() <
          memory_needs(config, shape, share, 1).total());
  }
}

TEST_CASE("what pictures take while they are checked is what is left beside what is there then") {
  const test::TempDirectory directory;
  constexpr std::uint32_t kSide = 4000;  // 48 MB, while 8 x 8 are trained on
  for (const char* name : {"train", "test"}) {
    for (const char* of_class : {"/a", "/b"}) {
      std::filesystem::create_directories(directory / name + of_class);
      for (int i = 0; i < 8; ++i) {
        test::write_bytes(directory / name + of_class + "/" + std::to_string(i),
                          test::png_bytes(8, 8, test::Bytes(192, 7)));
      }
    }
    test::write_bytes(
        directory / name + "/b/large",
        test::png_bytes(kSide, kSide, test::Bytes(std::size_t{kSide} * kSide * 3, 7)));
  }
  TrainingConfig config;
  config.mlp.hidden = {16};
  config.train = {.folder = "train", .height = 8, .width = 8};
  config.test = {.folder = "test", .height = 8, .width = 8};
  config.has_test = true;
  config.data_root = directory.path();
  config.batch_size = 16;
  config.epochs = 1;
  config.sgd = {0.1f, 0.9f};
  config.most_data_held = 0;
  const auto refused = [&](std::size_t memory_bytes) {
    const auto outcome = trained_within(config, memory_bytes, 1).outcomes[0];
    REQUIRE_FALSE(outcome);
    CHECK(outcome.error().exit_code() == contract::exit_code::kInvalidSpec);
    return outcome.error().message();
  };
  // Two threads read the training set's later, but none while the test set is checked.
  CHECK(refused(110'000'000).starts_with("spec.training.model: each of 1 processes needs"));
  // Who comes to train with others, and finds nobody who knows, has the model already.
  config.is_joining = true;
  CHECK(refused(60'000'000).starts_with(directory / "train/b/large: takes at least 48"));
}
