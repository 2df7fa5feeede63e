// The promise of the project at the engine: whatever happens to the membership, every step has the
// bits of an undisturbed run of one worker.
#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <latch>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "common/contract.h"
#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/picture_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/run_files.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/optimizer.h"

using namespace muster;
using namespace muster::engine;
using test::BetweenSteps;
using test::bytes_of;
using test::digits;
using test::digits_in_buckets;
using test::digits_with_layers;
using test::ElasticWorld;
using test::Ends;
using test::ends_of;
using test::record_of;
using test::Trial;
using test::with_adamw;

namespace {

/// Masks of a model without any other layer that draws or counts.
TrainingConfig digits_with_dropout(std::int64_t steps) {
  TrainingConfig config = test::digits(steps);
  config.mlp = {{40, 24}, 0.25f};
  return config;
}

}  // namespace

TEST_CASE("nothing happens: every logical rank of every step is read and computed once") {
  for (int workers = 1; workers <= 8; ++workers) {
    for (const auto config_of :
         {digits, digits_with_dropout, digits_with_layers, digits_in_buckets}) {
      CAPTURE(workers);
      Trial trial;
      trial.config = config_of(trial.steps);
      const Ends ends = ends_of(*trial.run(workers), trial.steps);
      CHECK(ends.complete == workers);
      CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
      CHECK(ends.reads == ends.computations);
    }
  }
}

TEST_CASE("an exchange is cut in the middle of the backward pass: nobody computes anything again") {
  // One process' connections break when it has sent so many buckets of step 12.
  for (int buckets = 1; buckets <= 3; ++buckets) {
    for (const bool is_sharded : {false, true}) {
      CAPTURE(buckets);
      CAPTURE(is_sharded);
      Trial trial;
      trial.steps = 26;
      trial.config = digits_in_buckets(trial.steps);
      trial.config.is_sharded = is_sharded;
      std::atomic<int> sent = 0;
      trial.before = [&](ElasticWorld& world) {
        world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
          if (trainer != 1 || point != point::kBucket || step != 12) return {};
          if (++sent != buckets) return {};
          return Error(ErrorCode::kAborted, "the connections broke");
        });
      };
      const auto world = trial.run(3);
      const Ends ends = ends_of(*world, trial.steps);
      CHECK(ends.complete == 3);
      CHECK(sent == buckets + 3);  // and then all of them
      CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
      const auto entries = world->entries();
      CHECK(std::count_if(entries.begin(), entries.end(),
                          [](const Entry& entry) { return entry.step == 12; }) == 3);
    }
  }
}

TEST_CASE("survivors keep what they have computed: only the lost share is computed again") {
  Trial trial;
  trial.before = [](ElasticWorld& world) {
    // In this very step: one who is doomed by another may have come further meanwhile.
    world.watch_points([](int trainer, std::string_view point, std::int64_t step) -> Status {
      if (trainer != 3 || point != point::kScatter || step != 20) return {};
      return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
    });
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
    CHECK(ends.reads == ends.computations);
    CHECK(world->stalls() == 0);
  }
}

TEST_CASE("who joins is let in before it has decoded any picture, and trains on the same ones") {
  const test::TempDirectory directory;
  for (int i = 0; i < 96; ++i) {
    const std::string of_class = directory / (i % 2 == 0 ? "a" : "b");
    std::filesystem::create_directories(of_class);
    test::write_bytes(of_class + "/" + std::to_string(i),
                      test::png_bytes(8, 8, test::Bytes(192, static_cast<std::uint8_t>(2 * i))));
  }
  for (const bool is_sharded : {false, true}) {
    for (const std::uint64_t most_held : {std::uint64_t{0}, data::kMostHeldBytes}) {
      CAPTURE(is_sharded);
      CAPTURE(most_held);
      Trial trial;
      trial.config.is_sharded = is_sharded;
      trial.config.train = {.folder = directory.path(), .height = 8, .width = 8};
      trial.config.has_test = false;
      trial.config.batch_size = 32;
      trial.config.most_data_held = most_held;
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step == 8) world.wait_for(world.add(2));
        if (step == 20) world.leave(0);
        if (step == 24) world.leave(1);  // who was told of the pictures is alone with them
        if (step == 30) world.wait_for(world.add(0));
      };
      const Ends ends = ends_of(*trial.run(2), trial.steps);
      CHECK(ends.left == 2);
      CHECK(ends.complete == 2);
    }
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
  CHECK(steps.at(3) == 11);  // nobody goes on without the first of them before it has the state
}

TEST_CASE("who goes over with all others begins the next step before they have come") {
  Trial trial;
  BetweenSteps between(8, [&](ElasticWorld& world) {
    world.wait_connected(world.add(3));
    world.hold(1, point::kConnect, 8 + 1);  // it has greeted nobody then
    for (const int other : {0, 2}) world.hold(other, point::kForward, 8 + 1);
    for (const int other : {0, 1, 2}) world.wait_held(other);
  });
  trial.at_step = std::ref(between);
  const auto world = trial.run(3);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.complete == 4);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  CHECK(world->stalls() == 0);
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
    // The others may have had what the dead one sent. Then they finish that step without it, and
    // may go over before they miss it.
    if (steps.contains(2)) CHECK(steps.at(2) == 9);
    CHECK(steps.at(3) >= 8);
    CHECK(steps.at(3) <= 9);
  }
}

namespace {

/// A trial in which one more joins so many, three as a rule, that have made `step` steps.
struct JoinTrial : Trial {
  explicit JoinTrial(bool is_sharded, std::int64_t step = 9, int members = 3)
      : between(
            step - 1, [=](ElasticWorld& world) { world.wait_connected(world.add(members)); },
            members) {
    steps = 26;
    config = digits_in_buckets(steps);
    config.is_sharded = is_sharded;
    at_step = std::ref(between);
  }
  BetweenSteps between;
};

Error killed() {
  return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
}

/// When one trainer entered, and when it first computed: one step later where it learned.
struct FirstSteps {
  explicit FirstSteps(int whose) : trainer(whose) {}
  void see(int whose, std::string_view point, std::int64_t step) {
    if (whose != trainer) return;
    if (point == point::kIdle && entered < 0) entered = step;
    if (point == point::kForward && computed < 0) computed = step;
  }
  const int trainer;
  std::atomic<std::int64_t> entered = -1, computed = -1;
};

}  // namespace

TEST_CASE("a joiner is given the state while the others make a step") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    JoinTrial trial(is_sharded);
    std::mutex mutex;
    std::condition_variable changed;
    std::map<int, bool> has_entered;  // by trainer
    std::set<int> reduced;            // those who have added up the first step with it
    bool in_time = false;
    std::int64_t joiner_computed = -1;
    trial.before = [&](ElasticWorld& world) {
      world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
        std::unique_lock lock(mutex);
        if (trainer == 3) {
          // It does not go on before the others have made that step's sums: without shards it has
          // not begun to take the state.
          if (point == (is_sharded ? point::kIdle : point::kEnter)) {
            in_time = changed.wait_for(lock, seconds(20), [&] { return reduced.size() == 3; });
          }
          if (point == point::kForward && joiner_computed < 0) joiner_computed = step;
          return {};
        }
        if (point == point::kEnter && step == 9) has_entered[trainer] = true;
        if (point == point::kReduced && has_entered[trainer]) reduced.insert(trainer);
        changed.notify_all();
        return {};
      });
    };
    const auto world = trial.run(3);
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.complete == 4);
    CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
    CHECK(in_time);
    CHECK(joiner_computed == 10);
    for (const Entry& entry : world->entries()) {
      CHECK(entry.recomputed == 0);
      // Two powers of AdamW's betas; the parameters come with those of the next step.
      if (is_sharded) CHECK(entry.state_bytes <= 2 * sizeof(double));
    }
  }
}

TEST_CASE(
    "a joiner dies at each place of the step in which it learns: the others keep what they have") {
  constexpr std::array kPlacesOfLearners = {point::kEnter,  point::kTransfer,    point::kIdle,
                                            point::kBucket, point::kScatter,     point::kReduced,
                                            point::kLog,    point::kLogged,      point::kGather,
                                            point::kUpdate, point::kHalfUpdated, point::kUpdated};
  constexpr std::array kMembers = {2, 1, 3, 4, 6, 7};
  for (const int members : test::tried(kMembers)) {
    for (std::size_t p = 0; p < kPlacesOfLearners.size(); ++p) {
      const std::string_view point = kPlacesOfLearners[p];
      const bool is_of_shards = point == point::kLog || point == point::kLogged;
      // With shards and without in turn, by place and by number of members; but who learns keeps no
      // shard yet that could be half updated.
      const bool is_sharded = is_of_shards || (point != point::kHalfUpdated &&
                                               (p + static_cast<std::size_t>(members)) % 2 == 0);
      CAPTURE(members);
      CAPTURE(is_sharded);
      CAPTURE(std::string(point));
      JoinTrial trial(is_sharded, 9, members);
      trial.before = [&](ElasticWorld& world) {
        world.watch_points([&](int trainer, std::string_view at, std::int64_t) -> Status {
          if (trainer != members || at != point) return {};
          return killed();
        });
      };
      const auto world = trial.run(members);
      const Ends ends = ends_of(*world, trial.steps);
      CHECK(ends.killed == 1);
      CHECK(ends.complete == members);
      CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
    }
  }
}

TEST_CASE("who gives the state dies at each place of that step: another gives it") {
  constexpr std::array kPlacesOfGivers = {
      point::kEnter,    point::kIdle,        point::kLayer,   point::kForward,  point::kBucket,
      point::kBackward, point::kScatter,     point::kReduced, point::kTransfer, point::kGather,
      point::kUpdate,   point::kHalfUpdated, point::kUpdated};
  constexpr std::array kMembers = {3, 2, 4, 6, 7};
  for (const int members : test::tried(kMembers)) {
    for (std::size_t p = 0; p < kPlacesOfGivers.size(); ++p) {
      const std::string_view point = kPlacesOfGivers[p];
      const bool is_sharded = (p + static_cast<std::size_t>(members)) % 2 == 0;
      CAPTURE(members);
      CAPTURE(is_sharded);
      CAPTURE(std::string(point));
      JoinTrial trial(is_sharded, 9, members);
      std::atomic<bool> has_entered = false;
      trial.before = [&](ElasticWorld& world) {
        world.watch_points([&](int trainer, std::string_view at, std::int64_t step) -> Status {
          if (trainer == 0 && at == point::kEnter && step == 9) has_entered = true;
          if (trainer != 0 || at != point || !has_entered) return {};
          return killed();
        });
      };
      const auto world = trial.run(members);
      const Ends ends = ends_of(*world, trial.steps);
      CHECK(ends.killed == 1);
      CHECK(ends.complete == members);
    }
  }
}

TEST_CASE("who gives the state and adds up nothing keeps it as it is until it is given") {
  // The model is one block, which the last of three owns; the first gives.
  Trial trial;
  trial.steps = 26;
  trial.config = digits(trial.steps);
  BetweenSteps between(8, [](ElasticWorld& world) { world.wait_connected(world.add(3)); });
  trial.at_step = std::ref(between);
  std::mutex mutex;
  std::condition_variable changed;
  bool is_another_ahead = false, is_taken = false, was_taken = false;
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
      std::unique_lock lock(mutex);
      if (trainer == 3 && step == 0 && point == point::kEnter) {
        changed.wait_for(lock, seconds(20), [&] { return is_another_ahead; });
        is_taken = true;
      }
      // It neither gives nor adds up, and is free to go on.
      if (trainer == 1 && step == 10 && point == point::kForward) is_another_ahead = true;
      if (trainer == 0 && step == 9 && point == point::kUpdate) was_taken = is_taken;
      changed.notify_all();
      return {};
    });
  };
  CHECK(ends_of(*trial.run(3), trial.steps).complete == 4);
  CHECK(is_another_ahead);
  CHECK(was_taken);
}

TEST_CASE("a joiner has patience while the others make a step, however long that takes") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    JoinTrial trial(is_sharded);
    std::mutex mutex;
    std::condition_variable changed;
    std::set<std::string> passed;  // by the joiner, in that step
    trial.before = [&](ElasticWorld& world) {
      world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
        std::unique_lock lock(mutex);
        if (trainer == 3 && step == 9) {
          // A minute is longer than members wait for each other.
          if (point == point::kIdle) world.lag(3, seconds(60));
          if (point == point::kScatter) world.lag(3, seconds(0));
          passed.insert(std::string(point));
          changed.notify_all();
        }
        if (trainer < 3 && step == 9 && point == point::kForward) {
          const auto waits = [&] { return passed.contains(std::string(point::kReduced)); };
          if (!changed.wait_for(lock, seconds(20), waits)) return Error(ErrorCode::kInternal, "");
        }
        return {};
      });
    };
    const auto world = trial.run(3);
    CHECK(ends_of(*world, trial.steps).complete == 4);
    const auto entries = world->entries();
    CHECK(std::count_if(entries.begin(), entries.end(),
                        [](const Entry& entry) { return entry.step == 9; }) == 4);
  }
}

TEST_CASE("all who have the state die while one learns: it has none, and the files are read") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    const test::TempDirectory directory;
    const std::string newest = directory.path() + "/step-000000000008";
    JoinTrial trial(is_sharded);
    trial.config.checkpoint_path = directory.path();
    trial.config.checkpoint_every_steps = 4;
    std::latch all_have_entered(3);
    trial.before = [&](ElasticWorld& world) {
      world.save_in_place();  // what is removed below is not being written
      world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
        if (trainer > 2 || step != 9 || point != point::kForward) return {};
        all_have_entered.arrive_and_wait();
        if (trainer == 0) {
          for (const int other : {1, 2}) world.wait_ended(other);
          std::filesystem::remove_all(newest);
          world.respawn_next();
        }
        return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
      });
    };
    bool is_saved = false;
    trial.on_state = [&](int trainer, std::int64_t step, std::span<const float>,
                         const OptimizerState&) {
      // The joiner has heard of the checkpoint of step 8, but there is none any more.
      if (trainer == 3 && step >= 9) is_saved = is_saved || std::filesystem::exists(newest);
    };
    const auto world = trial.run(3);
    const Ends ends = ends_of(*world, trial.steps);
    CHECK(ends.killed == 3);
    CHECK(ends.complete == 2);
    CHECK(is_saved);
    const auto entries = world->entries();
    CHECK(std::count_if(entries.begin(), entries.end(),
                        [](const Entry& entry) { return entry.step == 4; }) == 2);
  }
}

TEST_CASE("several join at once, more than there are to give the state") {
  for (const bool is_sharded : {false, true}) {
    for (const int workers : {1, 3}) {
      CAPTURE(is_sharded);
      Trial trial;
      trial.steps = 26;
      trial.config = digits_in_buckets(trial.steps);
      trial.config.is_sharded = is_sharded;
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step != 8) return;
        for (const int slot : {3, 4, 5, 6}) world.wait_for(world.add(slot));
      };
      const auto world = trial.run(workers);
      const Ends ends = ends_of(*world, trial.steps);
      CHECK(ends.complete == workers + 4);
      CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
      CHECK(world->stalls() == 0);
    }
  }
}

TEST_CASE("one joins where something is due that wants the state: it has it at once") {
  // A checkpoint after each fifth step, an evaluation after 22; nothing after 9.
  for (const bool is_sharded : {false, true}) {
    for (const std::int64_t joined : {5, 9, 22}) {
      CAPTURE(is_sharded);
      CAPTURE(joined);
      const test::TempDirectory directory;
      JoinTrial trial(is_sharded, joined);
      trial.config.checkpoint_every_steps = 5;
      trial.config.checkpoint_path = directory.path();
      FirstSteps joiner(3);
      trial.before = [&](ElasticWorld& world) {
        world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
          joiner.see(trainer, point, step);
          return {};
        });
      };
      const auto world = trial.run(3);
      const Ends ends = ends_of(*world, trial.steps);
      CHECK(ends.complete == 4);
      CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
      CHECK(joiner.entered == joined);
      CHECK(joiner.computed == (joined == 9 ? 10 : joined));
    }
  }
}

TEST_CASE("who comes while slot 0 is away writes the record, and so does slot 0: no one learns") {
  for (const int slot : {0, 3}) {
    CAPTURE(slot);
    const test::TempDirectory directory;
    Trial trial;
    trial.steps = 26;
    trial.config = digits(trial.steps);
    trial.config.checkpoint_path = directory.path();
    FirstSteps joiner(3);
    trial.before = [&](ElasticWorld& world) {
      world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
        joiner.see(trainer, point, step);
        return {};
      });
    };
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 6) world.doom(0, point::kScatter);
      if (step == 10) world.wait_for(world.add(slot));
      if (step == 16 && slot != 0) world.add(0);
    };
    const auto world = trial.run(3);
    CHECK(ends_of(*world, trial.steps).complete == (slot == 0 ? 3 : 4));
    CHECK(joiner.entered > 10);
    CHECK(joiner.computed == joiner.entered);
  }
}

TEST_CASE("a joiner dies while nothing of the state has come to it: who gives it trains on") {
  JoinTrial trial(false);
  std::mutex mutex;
  std::condition_variable changed;
  std::set<int> reduced;
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
      std::unique_lock lock(mutex);
      if (trainer < 3 && step == 9 && point == point::kReduced) reduced.insert(trainer);
      changed.notify_all();
      if (trainer != 3 || point != point::kEnter) return {};
      changed.wait_for(lock, seconds(20), [&] { return reduced.size() == 3; });
      return killed();
    });
  };
  const auto world = trial.run(3);
  const Ends ends = ends_of(*world, trial.steps);
  CHECK(ends.killed == 1);
  CHECK(ends.complete == 3);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  CHECK(world->entries().size() <= 5 * 3);  // and not one membership a step
}

TEST_CASE("who has learned is a member like any other: those who had the state before may die") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    JoinTrial trial(is_sharded);
    trial.before = [&](ElasticWorld& world) {
      world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
        // Sharded, the first keeps the copy of what the fourth owns.
        const bool dies = trainer == 0 || (trainer < 3 && !is_sharded);
        return dies && step == 14 && point == point::kForward ? Status(killed()) : Status();
      });
    };
    const Ends ends = ends_of(*trial.run(3), trial.steps);
    CHECK(ends.killed == (is_sharded ? 1 : 3));
    CHECK(ends.complete == (is_sharded ? 3 : 1));
  }
}

TEST_CASE("one joins when all that is left is to end: it has the state at once") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    const test::TempDirectory directory;
    Trial trial;
    trial.steps = 26;
    trial.config = digits_in_buckets(trial.steps);
    trial.config.is_sharded = is_sharded;
    trial.config.checkpoint_path = directory.path();
    std::latch all_have_come(3);
    std::array<std::atomic<bool>, 3> has_come{};
    trial.before = [&](ElasticWorld& world) {
      world.respawn_next();
      world.watch_points([&](int trainer, std::string_view point, std::int64_t) -> Status {
        if (trainer > 2 || point != point::kFinish) return {};
        if (has_come[static_cast<std::size_t>(trainer)].exchange(true)) return {};
        all_have_come.arrive_and_wait();
        if (trainer != 1) {
          world.wait_for(3);
          return {};
        }
        return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
      });
    };
    const Ends ends = ends_of(*trial.run(3), trial.steps);
    CHECK(ends.killed == 1);
    CHECK(ends.complete == 3);
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

TEST_CASE("who ends before the end knows which checkpoint was saved, and whether there are files") {
  const test::TempDirectory directory;
  Trial trial;
  trial.config.checkpoint_path = directory.path();
  trial.config.checkpoint_every_steps = 20;
  trial.before = [](ElasticWorld& world) { world.save_in_place(); };
  trial.at_step = [](ElasticWorld& world, std::int64_t step) {
    if (step == 24) world.leave(0);
    if (step == 32) world.add(0);
  };
  const auto world = trial.run(3);
  CHECK(ends_of(*world, trial.steps).complete == 3);
  const auto& left = *world->outcome(0);
  REQUIRE(left.has_value());
  CHECK(left->left);
  CHECK(left->step >= 24);
  CHECK(left->step < 40);
  CHECK(left->checkpoint_step == left->step);
  CHECK((*world->outcome(1))->checkpoint_step == 44);

  for (const bool has_files : {false, true}) {
    CAPTURE(has_files);
    const test::TempDirectory other;
    trial.config.checkpoint_path = has_files ? other.path() : "";
    trial.at_step = [](ElasticWorld& elastic, std::int64_t step) {
      if (step == 24) elastic.stop();
    };
    const auto stopped = trial.run(2);
    const auto& outcome = *stopped->outcome(0);
    REQUIRE(outcome.has_value());
    CHECK_FALSE(outcome->complete);
    CHECK(outcome->step >= 24);
    CHECK(outcome->checkpoint_step == (has_files ? outcome->step : -1));
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
  struct Death {
    std::int64_t step;
    std::string_view point;
  };
  // The last one right after an evaluation, before there is another line.
  for (const auto& [dies_at, point] :
       {Death{18, point::kScatter}, Death{18, point::kGather}, Death{18, point::kUpdated},
        Death{18, point::kEvaluate}, Death{18, point::kCheckpoint}, Death{22, point::kScatter}}) {
    for (const std::int64_t back_at : {28, 44}) {
      CAPTURE(dies_at);
      CAPTURE(std::string(point));
      CAPTURE(back_at);
      const test::TempDirectory directory;
      trial.config.checkpoint_path = directory.path();
      std::atomic<bool> is_back = false;
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step == dies_at) world.doom(0, point);
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
