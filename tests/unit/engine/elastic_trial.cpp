#include "tests/unit/engine/elastic_trial.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

namespace muster::test {

using engine::OptimizerState;
using engine::TrainingConfig;

TrainingConfig wide(std::int64_t steps) {
  TrainingConfig config = test::digits(steps);
  config.mlp.hidden = {128, 128};
  config.is_sharded = true;
  return config;
}

TrainingConfig wide_adamw(std::int64_t steps) { return with_adamw(wide(steps)); }

TrainingConfig wide_layers(std::int64_t steps) {
  TrainingConfig config = digits_with_layers(steps);
  config.cnn->hidden = {128, 64};
  config.is_sharded = true;
  return with_adamw(config);
}

TrainingConfig wide_buckets(std::int64_t steps) {
  TrainingConfig config = digits_in_buckets(steps);
  config.is_sharded = true;
  return config;
}

namespace {

/// small_gpt() of 64 positions a step, evaluated with step 22 as digits are.
TrainingConfig few_tokens(std::int64_t steps) {
  TrainingConfig config = small_gpt(steps);
  config.gpt->context_length = 4;
  config.batch_size = 16;
  config.test = config.train;
  config.has_test = true;
  config.evaluate_every_steps = 22;
  config.evaluate_samples_most = 32;
  return config;
}

}  // namespace

TrainingConfig wide_gpt(std::int64_t steps) {
  TrainingConfig config = few_tokens(steps);
  config.bucket_blocks = 1;
  config.is_sharded = true;
  return config;
}

TrainingConfig short_gpt(std::int64_t steps) {
  TrainingConfig config = few_tokens(steps);
  config.gpt->layers = 1;
  config.gpt->width = 8;
  return config;
}

void Watch::see(int trainer, int stage, std::int64_t step, std::span<const float> parameters,
                const OptimizerState& optimizer) {
  const auto found = expected_.find(step);
  const bool is_wrong =
      step > 0 && (found == expected_.end() ||
                   !(stages_ ? stages_->is_right(stage, found->second, parameters, optimizer)
                             : is_right(found->second, parameters, optimizer)));
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
        const int stage = world->slot_of(trainer) % config.group_size();
        watch.see(trainer, stage, step, parameters, optimizer);
        if (on_state) on_state(trainer, step, parameters, optimizer);
      });
  world->watch_batches(
      [&](std::int64_t step, data::RankRange ranks, std::span<const std::uint64_t> samples) {
        watch.read(step, ranks, samples);
      });
  const bool is_new = !std::filesystem::exists(config.checkpoint_path) ||
                      std::filesystem::is_empty(config.checkpoint_path);
  world->share_hosts(slots_of_host);
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
    if (!outcome->has_value() && outcome->error().message() == ElasticWorld::kTooLate) {
      ++ends.late;
      continue;
    }
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
