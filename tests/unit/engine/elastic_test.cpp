// The promise of the project at the engine: whatever happens to the membership, every step has the
// bits of an undisturbed run of one worker.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "common/contract.h"
#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/run_files.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/optimizer.h"

using namespace muster;
using namespace muster::engine;
using test::bytes_of;
using test::digits;
using test::digits_with_layers;
using test::ElasticWorld;
using test::Ends;
using test::ends_of;
using test::record_of;
using test::Trial;
using test::with_adamw;

TEST_CASE("nothing happens: every logical rank of every step is computed once") {
  for (const int workers : {1, 2, 3, 5, 8}) {
    for (const bool has_layers : {false, true}) {
      Trial trial;
      if (has_layers) trial.config = digits_with_layers(trial.steps);
      const Ends ends = ends_of(*trial.run(workers), trial.steps);
      CHECK(ends.complete == workers);
      CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
    }
  }
}

void die_at_each_place(TrainingConfig (*config_of)(std::int64_t steps)) {
  for (const std::string_view point :
       {point::kIdle, point::kForward, point::kBackward, point::kScatter, point::kReduced,
        point::kGather, point::kUpdate, point::kUpdated, point::kEvaluate, point::kFinish}) {
    for (const int victim : {0, 2}) {
      CAPTURE(std::string(point));
      CAPTURE(victim);
      Trial trial;
      trial.config = config_of(trial.steps);
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step == 20) world.doom(victim, point);
      };
      const Ends ends = ends_of(*trial.run(3), trial.steps);
      CHECK(ends.killed == 1);
      CHECK(ends.complete == 2);
    }
  }
}

TEST_CASE("a worker dies at each place of a step: no step is lost, the bits stay") {
  die_at_each_place(digits);
}

TEST_CASE("a worker dies at each place: nor do running statistics and masks tell of it") {
  die_at_each_place(digits_with_layers);
}

TEST_CASE("a worker dies at each place: nor do AdamW's moments and clipped gradients tell of it") {
  die_at_each_place([](std::int64_t steps) { return with_adamw(digits(steps)); });
}

TEST_CASE("survivors keep what they have computed: only the lost share is computed again") {
  Trial trial;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 20) world.doom(3, point::kScatter);
  };
  const auto world = trial.run(4);
  const Ends ends = ends_of(*world, trial.steps);
  // The dead one's computations are not in the sum; it had made 21 steps of 4 logical ranks.
  CHECK(ends.computations == 16u * 44u - 4u * 20u);
  int recomputed = 0;
  for (const Entry& entry : world->entries()) recomputed += entry.recomputed;
  CHECK(recomputed == 4);
}

TEST_CASE("workers join and leave at step boundaries, and nothing is computed twice") {
  for (const bool is_adamw : {false, true}) {
    CAPTURE(is_adamw);
    Trial trial;
    if (is_adamw) trial.config = with_adamw(trial.config);
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 8) world.wait_for(world.add(1));
      if (step == 12) world.wait_for(world.add(2));
      if (step == 24) world.leave(1);
      if (step == 30) world.wait_for(world.add(1));
      if (step == 36) world.leave(0);
    };
    const auto world = trial.run(1);
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.left == 2);
    CHECK(ends.complete == 2);
    CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
    CHECK(world->stalls() == 0);
  }
}

/// At which step each view was entered that anybody has entered, by epoch.
std::map<std::int64_t, std::int64_t> entered_at(const ElasticWorld& world) {
  std::map<std::int64_t, std::int64_t> steps;
  for (const Entry& entry : world.entries()) steps[entry.epoch] = entry.step;
  return steps;
}

TEST_CASE("the members train on until all of them are connected with a joiner") {
  Trial trial;
  int joiner = -1;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 8) world.wait_for(joiner = world.add_slow(3));
    if (step == 20) world.let_connect(joiner);
  };
  const auto world = trial.run(3);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.complete == 4);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  CHECK(world->stalls() == 0);
  const auto steps = entered_at(*world);
  REQUIRE(steps.size() == 2);
  CHECK(steps.at(2) >= 20);
  CHECK(steps.at(2) <= 22);
}

TEST_CASE(
    "a joiner dies while the members connect with it: they train on as if it had never been") {
  Trial trial;
  int joiner = -1;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 8) world.wait_for(joiner = world.add_slow(3));
    if (step == 14) world.doom(joiner, point::kConnect);
    if (step == 15) world.wait_gone(joiner);
  };
  const auto world = trial.run(3);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.killed == 1);
  CHECK(ends.complete == 3);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  CHECK(world->stalls() == 0);
  const auto steps = entered_at(*world);
  CHECK(steps.size() == 2);
  CHECK_FALSE(steps.contains(2));
}

TEST_CASE("a joiner dies when all are connected with it and none has entered: they go on") {
  Trial trial;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 8) world.wait_ended(world.add(3, point::kConnect));
  };
  const auto world = trial.run(3);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.killed == 1);
  CHECK(ends.complete == 3);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
}

TEST_CASE("a view overtakes one that is being connected: nobody ever enters that one") {
  Trial trial;
  int slow = -1;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 8) world.wait_for(slow = world.add_slow(3));
    if (step == 12) world.wait_for(world.add(4));
    if (step == 16) world.leave(2);
    if (step == 20) world.let_connect(slow);
  };
  const auto world = trial.run(3);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.left == 1);
  CHECK(ends.complete == 4);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  CHECK(world->stalls() == 0);
  const auto steps = entered_at(*world);
  REQUIRE(steps.size() == 2);
  CHECK(steps.at(4) >= 20);
}

/// While `change` happens, the first three trainers stand at the beginning of the step after
/// `step`.
class BetweenSteps {
 public:
  BetweenSteps(std::int64_t step, std::function<void(ElasticWorld&)> change)
      : step_(step), change_(std::move(change)) {}
  ~BetweenSteps() {
    if (thread_.joinable()) thread_.join();
  }
  BetweenSteps(const BetweenSteps&) = delete;
  BetweenSteps& operator=(const BetweenSteps&) = delete;

  void operator()(ElasticWorld& world, std::int64_t step) {
    if (step != step_ - 1) return;
    hold_all(world, point::kIdle);
    thread_ = std::thread([this, &world] {
      wait_all(world);
      change_(world);
      for (const int trainer : {0, 1, 2}) world.release(trainer);
    });
  }
  /// Moves all three on to `point` of that step.
  void go_to(ElasticWorld& world, std::string_view point) const {
    hold_all(world, point);
    wait_all(world);
  }

 private:
  void hold_all(ElasticWorld& world, std::string_view point) const {
    for (const int trainer : {0, 1, 2}) world.hold(trainer, point, step_);
  }
  static void wait_all(ElasticWorld& world) {
    for (const int trainer : {0, 1, 2}) world.wait_held(trainer);
  }

  std::int64_t step_;
  std::function<void(ElasticWorld&)> change_;
  std::thread thread_;
};

TEST_CASE("a view overtakes one that all have just agreed to enter: they enter both in turn") {
  Trial trial;
  BetweenSteps between(8, [&](ElasticWorld& world) {
    world.wait_connected(world.add(3));
    between.go_to(world, point::kReduced);  // all have said by then what they are prepared for
    world.wait_for(world.add(4));
  });
  trial.at_step = std::ref(between);
  const auto world = trial.run(3);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.complete == 5);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  CHECK(world->stalls() == 0);
  const auto steps = entered_at(*world);
  REQUIRE(steps.size() == 3);
  CHECK(steps.at(2) == 9);
  CHECK(steps.at(3) == 10);
}

TEST_CASE("a view overtakes one that some have said they are prepared for: that one is left out") {
  Trial trial;
  BetweenSteps between(8, [&](ElasticWorld& world) {
    world.wait_connected(world.add(3));
    world.hold(0, point::kScatter, 8);  // it has said so; the others have not
    for (const int trainer : {1, 2}) world.hold(trainer, point::kForward, 8);
    for (const int trainer : {0, 1, 2}) world.wait_held(trainer);
    world.wait_for(world.add(4));
  });
  trial.at_step = std::ref(between);
  const auto world = trial.run(3);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.complete == 5);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  CHECK(world->stalls() == 0);
  const auto steps = entered_at(*world);
  REQUIRE(steps.size() == 2);
  CHECK(steps.at(3) == 10);
}

TEST_CASE("a member dies while a joiner is connected ahead: the step is finished at once") {
  for (const bool is_slow : {false, true}) {
    CAPTURE(is_slow);
    Trial trial;
    BetweenSteps between(8, [&](ElasticWorld& world) {
      if (is_slow) {
        world.wait_for(world.add_slow(3));
      } else {
        world.wait_connected(world.add(3));
      }
      world.doom(1, point::kScatter);
    });
    trial.at_step = std::ref(between);
    const auto world = trial.run(3);
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.killed == 1);
    CHECK(ends.complete == 3);
    const auto steps = entered_at(*world);
    CHECK_FALSE(steps.contains(2));
    // The others may have had what the dead one sent, and then finish that step without it.
    CHECK(steps.at(3) >= 8);
    CHECK(steps.at(3) <= 9);
  }
}

TEST_CASE("the one who is a step ahead dies before it has handed it on: the others keep theirs") {
  for (const bool is_adamw : {false, true}) {
    CAPTURE(is_adamw);
    Trial trial;
    if (is_adamw) trial.config = with_adamw(trial.config);
    // The model is one block, which the last of three owns: it waits for all who want it, and each
    // of them for it alone.
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 19) world.hold(0, point::kReduced, 20);
      if (step != 21) return;
      world.doom(1, point::kEnter);
      world.cut(0);
      world.release(0);
    };
    const auto world = trial.run(3);
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.killed == 1);
    CHECK(ends.complete == 2);
    for (const Entry& entry : world->entries()) CHECK((entry.step == 0 || entry.step >= 20));
  }
}

TEST_CASE("broken connections without a death: the same members go on") {
  Trial trial;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step % 7 == 0) world.cut(static_cast<int>(step % 3));
  };
  const Ends ends = ends_of(*trial.run(3), trial.steps);
  CHECK(ends.complete == 3);
}

TEST_CASE("a stop ends all at one step with a checkpoint, from which another size goes on") {
  for (const bool is_adamw : {false, true}) {
    CAPTURE(is_adamw);
    const test::TempDirectory directory;
    Trial trial;
    if (is_adamw) trial.config = with_adamw(trial.config);
    trial.config.checkpoint_path = directory.path();
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 17) world.stop();
    };
    const auto world = trial.run(3);
    std::int64_t stopped_at = 0;
    for (int trainer = 0; trainer < 3; ++trainer) {
      const auto& outcome = *world->outcome(trainer);
      REQUIRE(outcome.has_value());
      CHECK_FALSE(outcome->complete);
      if (trainer > 0) CHECK(outcome->step == stopped_at);
      stopped_at = outcome->step;
    }
    CHECK(stopped_at < 44);
    trial.at_step = nullptr;
    const auto resumed = trial.run(2);
    CHECK((*resumed->outcome(0))->restored_step == stopped_at);
    CHECK((*resumed->outcome(0))->complete);
  }
}

/// Stops a run of two workers at about step 17 and returns where.
std::int64_t stopped_run(const std::string& directory) {
  Trial trial;
  trial.config.checkpoint_path = directory;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 17) world.stop();
  };
  return (*trial.run(2)->outcome(0))->step;
}

void damage_checkpoints(const std::string& directory) {
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const auto model = entry.path() / "model.safetensors";
    if (!std::filesystem::exists(model)) continue;
    std::fstream file(model, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-100, std::ios::end);
    const int byte = file.peek();
    file.put(static_cast<char>(byte ^ 1));
  }
}

TEST_CASE("slot 0 dies before it has read the checkpoint: nobody trains from the beginning") {
  for (const std::string_view point : {point::kConnect, point::kEnter, point::kTransfer}) {
    CAPTURE(std::string(point));
    const test::TempDirectory directory;
    const std::int64_t stopped_at = stopped_run(directory.path());
    Trial trial;
    trial.config.checkpoint_path = directory.path();
    trial.doom_of_slot_0 = point;
    trial.before = [](ElasticWorld& world) { world.respawn_next(); };
    std::atomic<std::int64_t> first = 1'000;
    trial.at_step = [&](ElasticWorld&, std::int64_t step) {
      first = std::min<std::int64_t>(first, step);
    };
    const auto world = trial.run(3);
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.killed == 1);
    CHECK(ends.complete == 3);
    CHECK(first >= stopped_at);
    CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps - stopped_at));
  }
}

TEST_CASE("damaged checkpoints end the training, but not for a slot 0 that is given the state") {
  const test::TempDirectory directory;
  stopped_run(directory.path());
  damage_checkpoints(directory.path());
  Trial trial;
  trial.config.checkpoint_path = directory.path();
  ElasticWorld world(trial.config, [](int, std::int64_t step, auto, auto) { CHECK(step < 0); });
  world.start(2);
  world.join();
  REQUIRE_FALSE(world.outcome(0)->has_value());
  CHECK(world.outcome(0)->error().exit_code() == contract::exit_code::kCheckpoint);
  CHECK_FALSE(world.outcome(1)->has_value());

  const test::TempDirectory other;
  trial.config.checkpoint_path = other.path();
  trial.config.checkpoint_every_steps = 5;
  trial.at_step = [&](ElasticWorld& elastic, std::int64_t step) {
    if (step == 18) elastic.doom(0, point::kScatter);
    if (step != 24) return;
    damage_checkpoints(other.path());
    elastic.wait_for(elastic.add(0));
  };
  CHECK(ends_of(*trial.run(3), trial.steps).complete == 3);
}

TEST_CASE("slot 0 dies and comes back: its files lack nothing, the others wait with the model") {
  const test::TempDirectory calm;
  Trial trial;
  trial.config.checkpoint_every_steps = 10;
  trial.config.checkpoint_path = calm.path();
  trial.run(2);
  for (const std::string_view point :
       {point::kScatter, point::kGather, point::kUpdated, point::kEvaluate, point::kCheckpoint}) {
    for (const std::int64_t back_at : {28, 44}) {
      CAPTURE(std::string(point));
      CAPTURE(back_at);
      const test::TempDirectory directory;
      trial.config.checkpoint_path = directory.path();
      std::atomic<bool> is_back = false;
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step == 18) world.doom(0, point);
        const bool is_dead = world.members()[0] != 0;
        if (step >= back_at && is_dead && !is_back.exchange(true)) world.add(0);
      };
      const auto world = trial.run(3);
      const Ends ends = ends_of(*world, trial.steps);
      CHECK(ends.complete == 3);
      CHECK((*world->outcome(3))->restored_step == -1);
      for (const char* file : {"/model.safetensors", "/step-000000000044/model.safetensors",
                               "/step-000000000044/optimizer.safetensors"}) {
        CHECK(bytes_of(directory.path() + file) == bytes_of(calm.path() + file));
        CHECK_FALSE(bytes_of(calm.path() + file).empty());
      }
      CHECK(record_of(directory.path()) == record_of(calm.path()));
    }
  }
}

TEST_CASE("whoever dies while slot 0 is away, its record lacks nothing") {
  const test::TempDirectory calm;
  Trial trial;
  trial.config.checkpoint_path = calm.path();
  trial.run(1);
  for (const int victim : {1, 2, 3}) {
    CAPTURE(victim);
    const test::TempDirectory directory;
    trial.config.checkpoint_path = directory.path();
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 10) world.doom(0, point::kScatter);
      if (step == 16) world.doom(victim, point::kGather);
      if (step == 24) world.add(0);
    };
    const auto world = trial.run(4);
    CHECK(ends_of(*world, trial.steps).complete == 3);
    CHECK(record_of(directory.path()) == record_of(calm.path()));
  }
}

TEST_CASE("random joins, leaves, deaths and cuts at random places: the same bits at every step") {
  constexpr std::array kPoints = {
      point::kConnect,  point::kEnter,    point::kTransfer,  point::kIdle,   point::kForward,
      point::kBackward, point::kScatter,  point::kReduced,   point::kGather, point::kUpdate,
      point::kUpdated,  point::kEvaluate, point::kCheckpoint};
  std::map<std::string, int> deaths;
  for (std::uint32_t number = 0; number < 40; ++number) {
    CAPTURE(number);
    CAPTURE(test::seed());
    const test::TempDirectory directory;
    Trial trial;
    Rng rng(test::seed() * 1'000 + number);
    if (number % 4 >= 2) trial.config = digits_with_layers(trial.steps);
    if (number % 8 >= 4) trial.config = with_adamw(trial.config);
    if (number % 2 == 1) {
      trial.config.checkpoint_path = directory.path();
      trial.config.checkpoint_every_steps = 5;
    }
    std::map<int, std::string> doomed;
    int slow = -1;
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step >= 40 || rng.below(3) != 0) return;
      if (slow >= 0) world.let_connect(std::exchange(slow, -1));
      const std::vector<int> members = world.members();
      const int one = members[rng.below(members.size())];
      const auto event = rng.below(8);
      // One member that nothing happens to keeps the state.
      if (event < 3 && members.size() > doomed.size() + 1 && world.slot_of(one) != 0) {
        const std::string_view point = kPoints[rng.below(kPoints.size())];
        if (doomed.emplace(one, point).second) world.doom(one, point);
      } else if (event < 6 && members.size() < 8) {
        const int slot = 1 + static_cast<int>(rng.below(12));
        if (rng.below(2) == 0) {
          slow = world.add_slow(slot);
        } else {
          world.add(slot);
        }
      } else if (event == 6 && world.slot_of(one) != 0) {
        world.leave(one);
      } else {
        world.cut(one);
      }
    };
    const auto world = trial.run(1 + static_cast<int>(rng.below(5)));
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.complete >= 1);
    for (const auto& [trainer, point] : doomed) {
      if (!world->outcome(trainer)->has_value()) ++deaths[point];
    }
  }
  std::string table;
  for (const auto& [point, count] : deaths) table += " " + point + " " + std::to_string(count);
  MESSAGE("deaths by place:" << table);
}
