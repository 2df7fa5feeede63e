// What saves memory and leaves the bits: a step computed in several passes, of which none has more
// samples than it may, and activations that are computed again.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "tests/golden.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "worker/engine/model.h"

using namespace muster;
using namespace muster::engine;

namespace {

/// What one training read between its forward passes.
struct Reads {
  std::size_t of_pass = 0, passes = 0, most = 0;

  void count(std::size_t samples) { of_pass += samples; }
  void end_pass() {
    ++passes;
    most = std::max(most, of_pass);
    of_pass = 0;
  }
};

struct Trained {
  std::string model_sha256;
  std::uint64_t computations = 0;
  std::vector<Reads> reads;  ///< by rank
};

Trained train(const TrainingConfig& config, int processes) {
  Trained all;
  all.reads.resize(static_cast<std::size_t>(processes));
  std::vector<TrainingSummary> summaries(all.reads.size());
  test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    Reads& reads = all.reads[rank];
    TrainingHooks hooks;
    hooks.on_batch = [&](std::int64_t, data::RankRange, std::span<const std::uint64_t> samples) {
      reads.count(samples.size());
    };
    hooks.at = [&](std::string_view point, std::int64_t) {
      if (point == point::kForward) reads.end_pass();
      return Status();
    };
    const SystemClock clock;
    const auto summary = run_training(config, communicator, clock, hooks);
    MUSTER_CHECK(summary.has_value());
    summaries[rank] = *summary;
  });
  all.model_sha256 = summaries[0].model_sha256;
  for (const TrainingSummary& one : summaries) all.computations += one.logical_rank_computations;
  return all;
}

/// 16 logical ranks of 4 samples, or of 2.
void train_in_passes(TrainingConfig config, const std::string& expected) {
  const int rows = config.batch_size / config.logical_ranks;
  for (const int processes : {1, 2, 3, 5}) {
    config.threads = 1 + processes % 2;
    for (const int ranks : {1, 2, 3, 5, 8}) {
      CAPTURE(processes);
      CAPTURE(ranks);
      config.micro_batch_size = ranks * rows + rows - 1;  // what does not fill a rank is not used
      const Trained trained = train(config, processes);
      CHECK(trained.model_sha256 == expected);
      CHECK(trained.computations == 16u * static_cast<std::uint64_t>(config.steps));
      for (const Reads& reads : trained.reads) {
        CHECK(reads.most <= static_cast<std::size_t>(ranks * rows));
        CHECK(reads.most > 0);
        CHECK(reads.passes >= static_cast<std::size_t>(config.steps));
      }
    }
  }
}

}  // namespace

TEST_CASE("in passes of few samples: the same bits, whoever makes them") {
  for (auto* const config_of :
       {test::digits, test::digits_with_layers, test::digits_in_buckets, test::small_gpt}) {
    const TrainingConfig config = config_of(6);
    const Trained at_once = train(config, 1);
    CHECK(at_once.reads[0].passes == 6);
    train_in_passes(config, at_once.model_sha256);
  }
}

TEST_CASE("the golden hash of a transformer that is trained two samples at a time") {
  TrainingConfig config = test::small_gpt(12);
  config.micro_batch_size = 2;
  CHECK(train(config, 1).model_sha256 == test::kSmallGptGolden);
  config.is_sharded = true;
  CHECK(train(config, 3).model_sha256 == test::kSmallGptGolden);
}

TEST_CASE("activations that are computed again have the same bits") {
  TrainingConfig config = test::small_gpt(12);
  config.recomputes_activations = true;
  for (const int processes : {1, 3}) {
    config.threads = 1 + processes % 2;
    config.micro_batch_size = processes == 1 ? 0 : 2;
    CHECK(train(config, processes).model_sha256 == test::kSmallGptGolden);
  }
}

TEST_CASE("of activations that are computed again, the memory is that of one branch") {
  kernels::cpu::Context context(1);
  const auto bytes = [&](int layers, Activations activations) {
    return Model(ModelShape::gpt({layers, 2, 32, 16}, 256), 2, context, activations).arena_bytes();
  };
  const std::size_t position = 2 * 16 * sizeof(float);
  // Of a block: after either branch, the stream; within them 1 + 3 + 1 and 1 + 4 + 4 widths.
  const std::size_t stream = 2 * 32 * position, within = (5 + 9) * 32 * position;
  const std::size_t kept = bytes(3, Activations::kKept) - bytes(2, Activations::kKept);
  const std::size_t left = bytes(3, Activations::kRecomputed) - bytes(2, Activations::kRecomputed);
  CHECK(kept - left == within);
  CHECK(left >= stream);
  CHECK(left < stream + within / 8);  // means and the like stay
  CHECK(bytes(2, Activations::kKept) - bytes(2, Activations::kRecomputed) ==
        2 * within - 9 * 32 * position);
}
