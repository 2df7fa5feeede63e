#include <algorithm>
#include <memory>

#include "tests/recovery/world.h"

namespace muster::sim {
namespace {

/// Nobody knows how fast it is before it has made 16 steps.
constexpr int kSteps = 30, kStepsOfSpeeds = 90;
constexpr int kStepsOfFlips = 100;
/// So many workers take longer over each.
constexpr int kStepsOfMany = 16;

}  // namespace

Lessons make_lessons() {
  Lessons lessons;
  const auto add = [&](engine::TrainingConfig config, int buddies) {
    config.is_sharded = buddies > 0;
    config.buddies = std::max(1, buddies);
    lessons.whole.push_back({config, &test::reference(config), nullptr});
  };
  engine::TrainingConfig small = test::with_adamw(test::digits(kSteps));
  engine::TrainingConfig bucketed = test::digits_in_buckets(kSteps);
  for (const int buddies : {0, 1, 2}) add(small, buddies);
  small.copy_blocks = bucketed.copy_blocks = 1;  // several steps pass until all copies are made
  add(bucketed, 2);
  for (const int buddies : {1, 2}) add(small, buddies);
  for (const int buddies : {0, 1}) add(bucketed, buddies);
  add(test::digits_with_layers(kSteps), 0);
  add(test::small_gpt(kSteps), 1);
  // A learning rate that stays the same: their states are the first ones of a longer training.
  lessons.many = lessons.whole;
  for (Lesson& lesson : lessons.many) lesson.config.steps = kStepsOfMany;
  for (engine::TrainingConfig config :
       {test::with_adamw(test::digits(kStepsOfSpeeds)), test::digits_in_buckets(kStepsOfSpeeds)}) {
    lessons.replicated.push_back({config, &test::reference(config), nullptr});
  }
  engine::TrainingConfig with_spares = test::with_adamw(test::digits(kStepsOfFlips));
  with_spares.logical_ranks = 4;
  for (const engine::TrainingConfig& config :
       {test::with_adamw(test::digits(kStepsOfFlips)), test::digits_in_buckets(kStepsOfFlips),
        test::digits_with_layers(kStepsOfFlips), with_spares}) {
    lessons.flips.push_back({config, &test::reference(config), nullptr});
  }
  const auto add_split = [&](engine::TrainingConfig config, int stages, int slices = 1) {
    config.stages = stages;
    config.slices = slices;
    lessons.split.push_back(
        {config, &test::reference(config), std::make_shared<test::StageReference>(config)});
  };
  add_split(bucketed, 2);
  add_split(test::digits_with_layers(kSteps), 2);
  for (const int stages : {2, 3}) add_split(test::small_gpt(kSteps), stages);
  add_split(bucketed, 1, 2);
  for (const int stages : {1, 2}) add_split(test::small_gpt(kSteps), stages, 2);
  for (const std::size_t split : {0, 2, 4, 5}) {
    engine::TrainingConfig sharded = lessons.split[split].config;
    sharded.is_sharded = true;
    lessons.sharded_split.push_back(
        {sharded, lessons.split[split].expected, lessons.split[split].stages});
  }
  return lessons;
}

}  // namespace muster::sim
