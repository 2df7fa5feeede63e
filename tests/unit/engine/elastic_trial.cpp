#include "tests/unit/engine/elastic_trial.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "common/check.h"
#include "tests/unit/engine/ranks.h"
#include "worker/engine/block_hash.h"

namespace muster::test {

using engine::ElementRange;
using engine::OptimizerState;
using engine::TrainingConfig;

TrainingConfig digits(std::int64_t steps) {
  TrainingConfig config;
  config.seed = 7;
  config.steps = steps;
  config.mlp.hidden = {32};
  config.train = {"digits-train-images.idx.gz", "digits-train-labels.idx.gz"};
  config.test = {"digits-test-images.idx.gz", "digits-test-labels.idx.gz"};
  config.has_test = true;
  config.sgd = {0.1f, 0.9f};
  config.data_root = "examples/data";
  return config;
}

TrainingConfig digits_with_layers(std::int64_t steps) {
  TrainingConfig config = digits(steps);
  config.cnn = engine::CnnConfig{{4, 8}, 3, true, {16}, 0.25f};
  return config;
}

TrainingConfig with_adamw(TrainingConfig config) {
  config.adamw = engine::AdamwConfig{0.003f, 0.9f, 0.99f, 1e-8f, 0.05f};
  config.gradient_norm_max = 1.0f;
  return config;
}

TrainingConfig small_gpt(std::int64_t steps) {
  TrainingConfig config = with_adamw(digits(steps));
  config.gpt = engine::GptConfig{2, 2, 32, 16};
  config.train = {"", "", "shakespeare-test.txt"};
  config.has_test = false;
  config.batch_size = 32;
  config.adamw->learning_rate = 0.01f;
  return config;
}

TrainingConfig digits_in_buckets(std::int64_t steps) {
  TrainingConfig config = with_adamw(digits(steps));
  config.mlp.hidden = {128, 128, 64, 64};
  config.bucket_blocks = 1;
  return config;
}

const std::map<std::int64_t, ReferenceState>& reference(const TrainingConfig& wanted) {
  using Key = std::tuple<std::int64_t, std::vector<int>, std::vector<int>, bool, bool, bool, bool>;
  static std::map<Key, std::map<std::int64_t, ReferenceState>> known;
  const auto layers = wanted.cnn ? wanted.cnn->hidden : std::vector<int>();
  auto& states = known[{wanted.steps, wanted.mlp.hidden, layers, wanted.cnn.has_value(),
                        wanted.gpt.has_value(), wanted.adamw.has_value(), wanted.is_bfloat16}];
  if (!states.empty()) return states;
  on_all_ranks(1, [&](comm::Communicator& communicator) {
    engine::TrainingHooks hooks;
    hooks.on_state = [&](std::int64_t step, std::span<const float> parameters,
                         const OptimizerState& optimizer) {
      ReferenceState& state = states[step];
      state.parameters = engine::block_hash(parameters);
      for (const auto& buffer : optimizer.buffers) {
        state.state.push_back(engine::block_digests(buffer.values));
      }
      for (const auto& scalar : optimizer.scalars) state.scalars.push_back(scalar.value);
    };
    hooks.on_batch = [&](std::int64_t step, data::RankRange ranks,
                         std::span<const std::uint64_t> samples) {
      MUSTER_CHECK(ranks.size() == wanted.logical_ranks);
      states[step].samples.assign(samples.begin(), samples.end());
      std::sort(states[step].samples.begin(), states[step].samples.end());
    };
    const SystemClock clock;
    TrainingConfig config = wanted;
    config.checkpoint_path.clear();
    config.is_sharded = false;
    config.micro_batch_size = 0;
    config.memory_bytes = 0;
    config.bucket_blocks = TrainingConfig().bucket_blocks;
    MUSTER_CHECK(run_training(config, communicator, clock, hooks).has_value());
  });
  return states;
}

bool Watch::is_right(std::int64_t step, std::span<const float> parameters,
                     const OptimizerState& optimizer) const {
  const auto found = expected_.find(step);
  if (found == expected_.end()) return false;
  const ReferenceState& right = found->second;
  if (engine::block_hash(parameters) != right.parameters) return false;
  if (optimizer.buffers.size() != right.state.size()) return false;
  if (optimizer.scalars.size() != right.scalars.size()) return false;
  for (std::size_t i = 0; i < right.scalars.size(); ++i) {
    if (optimizer.scalars[i].value != right.scalars[i]) return false;
  }
  for (std::size_t b = 0; b < right.state.size(); ++b) {
    const std::span<const float> values = optimizer.buffers[b].values;
    for (const ElementRange range : optimizer.held) {
      const auto digests = engine::block_digests(
          values.subspan(engine::offset_of(optimizer.held, range), range.size()));
      const auto first = static_cast<std::ptrdiff_t>(range.begin / kernels::kBlockElements);
      if (range.begin % kernels::kBlockElements != 0) return false;
      if (!std::equal(digests.begin(), digests.end(), right.state[b].begin() + first)) return false;
    }
  }
  return true;
}

void Watch::see(int trainer, std::int64_t step, std::span<const float> parameters,
                const OptimizerState& optimizer) {
  const bool is_wrong = step > 0 && !is_right(step, parameters, optimizer);
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    ++states_;
    if (is_wrong) ++wrong_;
    if (last_.contains(trainer) && step <= last_[trainer]) ++backwards_;
    last_[trainer] = step;
    is_first = step > newest_;
    newest_ = std::max(newest_, step);
  }
  if (!is_first || !at_step_) return;
  const std::lock_guard lock(events_);
  at_step_(step);
}

void Watch::read(std::int64_t step, data::RankRange ranks, std::span<const std::uint64_t> samples) {
  const std::size_t rows = samples.size() / static_cast<std::size_t>(ranks.size());
  const std::lock_guard lock(mutex_);
  for (int rank = ranks.first; rank < ranks.last; ++rank) {
    const auto own = samples.subspan(static_cast<std::size_t>(rank - ranks.first) * rows, rows);
    Samples& known = samples_[step][rank];
    if (known.empty()) known.assign(own.begin(), own.end());
    if (!std::equal(known.begin(), known.end(), own.begin(), own.end())) ++read_differently_;
  }
}

/// Whether all logical ranks were read, and together what the reference has read.
bool Watch::is_all_read(std::int64_t step) const {
  const auto found = samples_.find(step);
  if (found == samples_.end() || found->second.size() != logical_ranks_) return false;
  Samples all;
  for (const auto& [rank, own] : found->second) all.insert(all.end(), own.begin(), own.end());
  std::sort(all.begin(), all.end());
  return all == expected_.at(step).samples;
}

void Watch::check(int falls) {
  CHECK(states_ > 0);
  CHECK(wrong_ == 0);
  CHECK(backwards_ <= falls);
  CHECK(read_differently_ == 0);
  // What is read for a step that nobody has made is of no account.
  for (std::int64_t step = std::max<std::int64_t>(1, first_step()); step <= newest_; ++step) {
    CHECK_MESSAGE(is_all_read(step), "samples of step ", step);
  }
}

std::unique_ptr<ElasticWorld> Trial::run(int workers) const {
  std::unique_ptr<ElasticWorld> world;
  Watch watch(config, [&](std::int64_t step) {
    if (at_step) at_step(*world, step);
  });
  world = std::make_unique<ElasticWorld>(
      config, [&](int trainer, std::int64_t step, std::span<const float> parameters,
                  const OptimizerState& optimizer) {
        watch.see(trainer, step, parameters, optimizer);
        if (on_state) on_state(trainer, step, parameters, optimizer);
      });
  world->watch_batches(
      [&](std::int64_t step, data::RankRange ranks, std::span<const std::uint64_t> samples) {
        watch.read(step, ranks, samples);
      });
  const bool is_new = !std::filesystem::exists(config.checkpoint_path) ||
                      std::filesystem::is_empty(config.checkpoint_path);
  if (before) before(*world);
  world->start(workers, doom_of_slot_0);
  world->join();
  watch.check(falls);
  if (is_new) CHECK(watch.first_step() == 1);
  return world;
}

Ends ends_of(const ElasticWorld& world, std::int64_t steps) {
  Ends ends;
  ends.reads = world.reads();
  for (int trainer = 0; trainer < world.trainers(); ++trainer) {
    const auto& outcome = world.outcome(trainer);
    REQUIRE(outcome.has_value());
    if (!outcome->has_value() && outcome->error().message() == ElasticWorld::kTooLate) continue;
    if (!outcome->has_value()) {
      CHECK_MESSAGE(outcome->error().message().ends_with("killed"), outcome->error().message());
      ++ends.killed;
      continue;
    }
    ends.computations += (*outcome)->logical_rank_computations;
    if ((*outcome)->left) {
      ++ends.left;
    } else {
      ++ends.complete;
      CHECK((*outcome)->step == steps);
    }
  }
  return ends;
}

}  // namespace muster::test
