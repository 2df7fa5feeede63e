// The process with the files leaves as planned: it saves before it goes, because those who stay
// could not if they were asked to stop next.
#include <doctest/doctest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/run_files.h"

using namespace muster;
using namespace muster::engine;
using test::bytes_of;
using test::ElasticWorld;
using test::Ends;
using test::ends_of;
using test::record_of;
using test::Trial;

namespace {

constexpr std::int64_t kAllSteps = 33;   // evaluated after 22 and at the end
constexpr std::int64_t kLeaveStep = 13;  // nothing is due
constexpr std::int64_t kEvaluateStep = 22;

/// Who has which part of the state, and how it is written.
struct Kind {
  bool is_sharded = false;
  int stages = 1;
  bool saves_in_place = false;
  /// Two copies at least, without the one of slot 0.
  int workers() const { return stages == 1 ? 3 : 2 * stages; }
  TrainingConfig config(const std::string& path) const {
    TrainingConfig config = test::digits_in_buckets(kAllSteps);
    config.is_sharded = is_sharded;
    config.stages = stages;
    config.checkpoint_path = path;
    config.checkpoint_every_steps = 30;
    return config;
  }
};
constexpr Kind kKinds[] = {{false, 1, false}, {false, 1, true}, {true, 1, false}, {true, 1, true},
                           {false, 2, false}, {false, 2, true}, {true, 2, false}, {true, 2, true}};
constexpr Kind kInPlace[] = {{false, 1, true}, {true, 1, true}, {false, 2, true}, {true, 2, true}};
/// All of the state is slot 0's.
constexpr Kind kAlone[] = {{false, 1, false}, {false, 1, true}};
constexpr Kind kSplit[] = {{false, 2, false}, {false, 2, true}, {true, 2, false}};

/// doctest's CAPTURE, of all fields.
#define CAPTURE_KIND(kind)    \
  CAPTURE((kind).is_sharded); \
  CAPTURE((kind).stages);     \
  CAPTURE((kind).saves_in_place)

using ToWorld = std::function<void(ElasticWorld&)>;
void leave_0(ElasticWorld& world) { world.leave(0); }

/// A run to whose members `change` happens so that they go over after `step`.
struct LeaveTrial : Trial {
  LeaveTrial(const Kind& kind, const std::string& path, std::int64_t step, ToWorld change = leave_0)
      : between(step - 1, std::move(change), kind.workers()) {
    steps = kAllSteps;
    config = kind.config(path);
    at_step = [this](ElasticWorld& world, std::int64_t at) {
      if (at == asked_step) world.ask_to_leave(0);
      between(world, at);
      if (later) later(world, at);
    };
    before = [this, in_place = kind.saves_in_place](ElasticWorld& world) {
      if (in_place) world.save_in_place();
      if (at_point) world.watch_points(at_point);
      if (!at_place) return;
      world.watch_points([&](int trainer, std::string_view place, std::int64_t at) -> Status {
        at_place(world, trainer, place, at);
        return {};
      });
    };
  }
  void stop_at(std::int64_t step) {
    later = [step](ElasticWorld& world, std::int64_t at) {
      if (at == step) world.stop();
    };
  }
  /// Another one in slot 0 is there from `step` on.
  void come_back_at(std::int64_t step) {
    later = [step](ElasticWorld& world, std::int64_t at) {
      if (at == step) world.wait_for(world.add(0));
    };
  }

  test::BetweenSteps between;
  std::function<void(ElasticWorld&, std::int64_t)> later;
  ElasticWorld::AtPoint at_point;
  /// In place of at_point.
  std::function<void(ElasticWorld&, int, std::string_view, std::int64_t)> at_place;
  /// Slot 0 is asked to leave as soon as anybody has made it; two steps later at most all compare.
  std::int64_t asked_step = -1;
};

/// By one worker that nothing happens to, with a checkpoint of `step`.
void train_calm(const std::string& path, std::int64_t step) {
  Trial trial;
  trial.steps = kAllSteps;
  trial.config = Kind{}.config(path);
  trial.config.checkpoint_every_steps = step;
  trial.config.checkpoint_keep = 9;
  trial.run(1);
}

std::string checkpoint_of(const std::string& path, std::int64_t step) {
  return path + "/step-0000000000" + std::to_string(step);
}

bool has_whole_checkpoint(const std::string& path, std::int64_t step) {
  return std::filesystem::exists(checkpoint_of(path, step) + "/manifest.json");
}

/// What a trainer says that has neither died nor come to the end.
TrainingSummary end_of(const ElasticWorld& world, int trainer) {
  CAPTURE(trainer);
  const auto& outcome = *world.outcome(trainer);
  REQUIRE_MESSAGE(outcome.has_value(), outcome.error().message());
  CHECK_FALSE(outcome->complete);
  return *outcome;
}

/// Trains on from what is in `path`, which begins after `step`, to the files of `calm`.
void check_goes_on(const Kind& kind, const std::string& path, std::int64_t step,
                   const std::string& calm) {
  Trial trial;
  trial.steps = kAllSteps;
  trial.config = kind.config(path);
  const auto resumed = trial.run(kind.workers());
  CHECK(ends_of(*resumed, kAllSteps).complete == kind.workers());
  CHECK((*resumed->outcome(0))->restored_step == step);
  CHECK(record_of(path) == record_of(calm));
  CHECK_FALSE(bytes_of(calm + "/model.safetensors").empty());
  CHECK(bytes_of(path + "/model.safetensors") == bytes_of(calm + "/model.safetensors"));
}

/// Whether the checkpoint of `step` in `path` has the bytes of the one in `calm`.
void check_checkpoint(const std::string& path, std::int64_t step, const std::string& calm) {
  CHECK(has_whole_checkpoint(path, step));
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    CHECK(bytes_of(checkpoint_of(path, step) + file) == bytes_of(checkpoint_of(calm, step) + file));
  }
}

}  // namespace

TEST_CASE("slot 0 saves before it leaves: of those who stop later only what they made is lost") {
  for (const std::int64_t step : {kLeaveStep, kEvaluateStep}) {
    const test::TempDirectory calm;
    train_calm(calm.path(), step);
    for (const Kind& kind : kKinds) {
      // An evaluation that is due differs between whole and split models alone.
      if (step == kEvaluateStep && (kind.is_sharded || kind.saves_in_place)) continue;
      CAPTURE(step);
      CAPTURE_KIND(kind);
      const test::TempDirectory directory;
      LeaveTrial trial(kind, directory.path(), step);
      trial.stop_at(step + 2);
      const auto world = trial.run(kind.workers());
      const TrainingSummary left = end_of(*world, 0);
      CHECK(left.left);
      CHECK(left.step == step);
      CHECK(left.checkpoint_step == step);
      for (int other = 1; other < kind.workers(); ++other) CHECK_FALSE(end_of(*world, other).left);
      CHECK(world->broken() == 0);
      // Who is left of a copy waits, and comes to the stop from there.
      if (kind.stages == 1) CHECK(world->stalls() == 0);
      // An evaluation that is due is left to the next run.
      CHECK(record_of(directory.path()).size() == static_cast<std::size_t>(step));
      check_checkpoint(directory.path(), step, calm.path());
      check_goes_on(kind, directory.path(), step, calm.path());
    }
  }
}

TEST_CASE("slot 0 leaves, and all others stop or one joins before the step is made: it saves") {
  const test::TempDirectory calm;
  train_calm(calm.path(), kLeaveStep);
  for (const bool stops : {true, false}) {
    for (const Kind& kind : kKinds) {
      CAPTURE(stops);
      CAPTURE_KIND(kind);
      const test::TempDirectory directory;
      LeaveTrial trial(kind, directory.path(), kLeaveStep, [&](ElasticWorld& world) {
        world.leave(0);
        if (stops) return world.stop();
        world.wait_for(world.add(kind.workers()));
      });
      if (!stops) trial.stop_at(kLeaveStep + 2);
      const auto world = trial.run(kind.workers());
      const TrainingSummary left = end_of(*world, 0);
      CHECK(left.left);
      CHECK(left.step == kLeaveStep);
      CHECK(left.checkpoint_step == kLeaveStep);
      for (int other = 1; stops && other < kind.workers(); ++other) {
        CHECK(end_of(*world, other).step == kLeaveStep);
      }
      check_checkpoint(directory.path(), kLeaveStep, calm.path());
    }
  }
}

TEST_CASE(
    "another process of the copy with the files leaves, and that one cannot train: it saves") {
  const test::TempDirectory calm;
  train_calm(calm.path(), kLeaveStep);
  for (const Kind& kind : kSplit) {
    CAPTURE_KIND(kind);
    const test::TempDirectory directory;
    LeaveTrial trial(kind, directory.path(), kLeaveStep,
                     [](ElasticWorld& world) { world.leave(1); });
    trial.stop_at(kLeaveStep + 2);
    const auto world = trial.run(kind.workers());
    CHECK(end_of(*world, 1).left);
    CHECK_FALSE(end_of(*world, 0).left);
    CHECK(world->broken() == 0);
    check_goes_on(kind, directory.path(), kLeaveStep, calm.path());
  }
}

TEST_CASE("slot 0 has left and comes back: the others train on meanwhile, and no line is lacking") {
  const test::TempDirectory calm;
  train_calm(calm.path(), kEvaluateStep);
  for (const Kind& kind : kKinds) {
    CAPTURE_KIND(kind);
    const test::TempDirectory directory;
    LeaveTrial trial(kind, directory.path(), kEvaluateStep);
    trial.come_back_at(kEvaluateStep + 4);
    const auto world = trial.run(kind.workers());
    const Ends ends = ends_of(*world, kAllSteps);
    CHECK(ends.left == 1);
    CHECK(ends.complete == kind.workers());
    CHECK(record_of(directory.path()) == record_of(calm.path()));
  }
}

TEST_CASE("slot 0 leaves in a step of which it computes nothing: it does so after the next one") {
  const test::TempDirectory calm, directory;
  train_calm(calm.path(), kLeaveStep);
  Trial trial;
  trial.steps = kAllSteps;
  trial.config = Kind{}.config(directory.path());
  std::thread change;
  static constexpr int kBack = 3;
  // The others have computed all of step 14 when their connections break, and one in slot 0 enters.
  const auto enter_and_leave = [](ElasticWorld& world) {
    for (const int other : {1, 2}) world.wait_held(other);
    CHECK(world.add(0) == kBack);
    world.wait_for(kBack);
    world.cut(1);
    for (const int one : {1, 2, kBack}) world.hold(one, point::kIdle, 13);
    for (const int one : {1, 2, kBack}) world.wait_held(one);
    world.leave(kBack);
    for (const int one : {1, 2, kBack}) world.release(one);
  };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 8) world.doom(0, point::kScatter);
    if (step == 12) {
      for (const int other : {1, 2}) world.hold(other, point::kScatter, 13);
      change = std::thread([&] { enter_and_leave(world); });
    }
    if (step == 22) world.wait_for(world.add(0));
  };
  const auto world = trial.run(3);
  change.join();
  CHECK(ends_of(*world, kAllSteps).complete == 3);
  const TrainingSummary left = end_of(*world, kBack);
  CHECK(left.left);
  CHECK(left.step == 15);
  CHECK(left.checkpoint_step == 15);
  CHECK(record_of(directory.path()) == record_of(calm.path()));
}

TEST_CASE("slot 0 dies over what it does before it leaves: the others go on without it") {
  const test::TempDirectory calm;
  train_calm(calm.path(), kLeaveStep);
  for (const std::string_view point : {point::kCompare, point::kCheckpoint, point::kPiece}) {
    for (const Kind& kind : kInPlace) {
      CAPTURE(std::string(point));
      CAPTURE_KIND(kind);
      const test::TempDirectory directory;
      LeaveTrial trial(kind, directory.path(), kLeaveStep, [point](ElasticWorld& world) {
        world.doom(0, point);
        world.leave(0);
      });
      trial.come_back_at(kLeaveStep + 7);
      const auto world = trial.run(kind.workers());
      const Ends ends = ends_of(*world, kAllSteps);
      CHECK(ends.killed == 1);
      CHECK(ends.complete == kind.workers());
      CHECK_FALSE(has_whole_checkpoint(directory.path(), kLeaveStep));
      CHECK(record_of(directory.path()) == record_of(calm.path()));
    }
  }
}

TEST_CASE("the step after which slot 0 leaves is cut: it saves the state before it") {
  constexpr std::int64_t kMade = kLeaveStep - 1;  // with slot 0
  const test::TempDirectory calm;
  train_calm(calm.path(), kMade);
  for (const bool dies : {true, false}) {  // or connections break
    for (const Kind& kind : kAlone) {
      CAPTURE(dies);
      CAPTURE_KIND(kind);
      const test::TempDirectory directory;
      LeaveTrial trial(kind, directory.path(), kLeaveStep, [dies](ElasticWorld& world) {
        CHECK(world.spared_by(0) == 3);
        world.leave(0);
        if (dies) world.doom(2, point::kForward);
      });
      trial.asked_step = kMade - 2;
      std::atomic<bool> is_cut = dies;
      trial.at_place = [&](ElasticWorld& world, int trainer, std::string_view place,
                           std::int64_t step) {
        const bool is_there = trainer == 1 && place == point::kForward && step == kMade;
        if (is_there && !is_cut.exchange(true)) world.cut(1);
      };
      trial.stop_at(kLeaveStep + 2);
      const auto world = trial.run(kind.workers());
      const TrainingSummary left = end_of(*world, 0);
      CHECK(left.left);
      CHECK(left.step == kMade);
      CHECK(left.checkpoint_step == kMade);
      CHECK(world->outcome(2)->has_value() != dies);
      CHECK(record_of(directory.path()).size() == static_cast<std::size_t>(kMade));
      check_checkpoint(directory.path(), kMade, calm.path());
      // What was made with slot 0 is not made again.
      check_goes_on(kind, directory.path(), kMade, calm.path());
    }
  }
}

TEST_CASE("slot 0 is about to leave, and the others' stop ends an evaluation: it saves") {
  const test::TempDirectory calm;
  train_calm(calm.path(), kEvaluateStep);
  for (const Kind& kind : kAlone) {
    CAPTURE_KIND(kind);
    const test::TempDirectory directory;
    LeaveTrial trial(kind, directory.path(), kEvaluateStep, [](ElasticWorld&) {});
    trial.asked_step = kEvaluateStep - 3;
    std::atomic<bool> is_stopped = false;
    trial.at_place = [&](ElasticWorld& world, int, std::string_view place, std::int64_t step) {
      const bool is_there = place == point::kEvaluate && step == kEvaluateStep;
      if (!is_there || is_stopped.exchange(true)) return;
      world.leave(0);
      world.stop();
    };
    const auto world = trial.run(kind.workers());
    const TrainingSummary left = end_of(*world, 0);
    CHECK(left.left);
    CHECK(left.step == kEvaluateStep);
    CHECK(left.checkpoint_step == kEvaluateStep);
    for (const int other : {1, 2}) CHECK(end_of(*world, other).step == kEvaluateStep);
    CHECK(world->broken() == 0);
    check_checkpoint(directory.path(), kEvaluateStep, calm.path());
    check_goes_on(kind, directory.path(), kEvaluateStep, calm.path());
  }
}

TEST_CASE("one dies while copies are compared before slot 0 leaves: what it has is not saved") {
  for (const Kind& kind : kAlone) {
    CAPTURE_KIND(kind);
    const test::TempDirectory directory;
    LeaveTrial trial(kind, directory.path(), kLeaveStep, [](ElasticWorld& world) {
      world.doom(2, point::kCompare);
      world.leave(0);
    });
    trial.asked_step = kLeaveStep - 3;
    trial.at_place = [](ElasticWorld& world, int trainer, std::string_view place,
                        std::int64_t step) {
      const bool is_there = trainer == 0 && place == point::kCompare && step == kLeaveStep;
      if (is_there) world.wait_ended(2);
    };
    trial.stop_at(kLeaveStep + 2);
    const auto world = trial.run(kind.workers());
    const TrainingSummary left = end_of(*world, 0);
    CHECK(left.left);
    CHECK(left.step == kLeaveStep);
    CHECK(left.checkpoint_step == -1);
    CHECK_FALSE(has_whole_checkpoint(directory.path(), kLeaveStep));
  }
}

TEST_CASE("slot 0 leaves with a full disk: it leaves all the same, and nobody waits for it") {
  for (const Kind& kind : kKinds) {
    CAPTURE_KIND(kind);
    const test::TempDirectory directory;
    LeaveTrial trial(kind, directory.path(), kLeaveStep);
    if (!kind.is_sharded && kind.stages == 1) trial.asked_step = kLeaveStep - 3;
    std::atomic<int> tries = 0;
    trial.at_point = [&](int trainer, std::string_view point, std::int64_t step) -> Status {
      if (trainer != 0 || point != point::kCheckpoint || step != kLeaveStep) return {};
      ++tries;
      // What is no directory cannot be written into.
      std::ofstream(checkpoint_of(directory.path(), step)) << "x";
      return {};
    };
    trial.stop_at(kLeaveStep + 2);
    const auto world = trial.run(kind.workers());
    const TrainingSummary left = end_of(*world, 0);
    CHECK(left.left);
    CHECK(left.step == kLeaveStep);
    CHECK(left.checkpoint_step == -1);
    CHECK(tries == 1);
    for (int other = 1; other < kind.workers(); ++other) CHECK_FALSE(end_of(*world, other).left);
  }
}

TEST_CASE("without checkpoints, or where others leave, nothing is compared and nothing saved") {
  for (const bool has_files : {false, true}) {
    for (const Kind& kind : kKinds) {
      if (kind.stages > 1) continue;
      CAPTURE(has_files);
      CAPTURE_KIND(kind);
      const test::TempDirectory directory;
      const int leaver = has_files ? 2 : 0;
      LeaveTrial trial(kind, has_files ? directory.path() : "", kLeaveStep,
                       [&](ElasticWorld& world) {
                         if (!kind.is_sharded) world.ask_to_leave(leaver);
                         world.leave(leaver);
                       });
      std::atomic<int> done = 0;
      trial.at_point = [&](int, std::string_view point, std::int64_t step) -> Status {
        const bool is_asked = point == point::kCompare || point == point::kCheckpoint;
        if (is_asked && step < 30) ++done;
        return {};
      };
      const auto world = trial.run(kind.workers());
      CHECK(ends_of(*world, kAllSteps).left == 1);
      CHECK(done == 0);
      CHECK((*world->outcome(leaver))->checkpoint_step == -1);
    }
  }
}
