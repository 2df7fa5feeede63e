// Of each step the record has one line, whoever writes it and whoever dies.
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <string_view>

#include "common/contract.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/run_files.h"

using namespace muster;
using namespace muster::engine;
using test::ElasticWorld;
using test::ends_of;
using test::record_of;
using test::Trial;

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

TEST_CASE(
    "of a worker with two processes the first dies again and again: the record lacks nothing") {
  const test::TempDirectory calm, directory;
  Trial trial;
  trial.config.checkpoint_path = calm.path();
  trial.run(1);
  trial.config.checkpoint_path = directory.path();
  int first = 0;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 4) world.wait_for(world.add_process(0, 1));
    if (step == 10 || step == 24) world.doom(first, point::kScatter);
    if (step == 16 || step == 32) world.wait_for(first = world.add_process(0, 0));
  };
  const auto world = trial.run(2);
  CHECK(ends_of(*world, trial.steps).complete == 3);
  CHECK(record_of(directory.path()) == record_of(calm.path()));
}

TEST_CASE("who joins while the record's disk gives no answer has its lines, whoever dies") {
  const test::TempDirectory calm, directory;
  Trial trial;
  trial.config.checkpoint_path = calm.path();
  trial.config.checkpoint_every_steps = 1'000;  // none is begun on such a disk
  trial.run(1);
  trial.config.checkpoint_path = directory.path();
  std::atomic<bool> is_held = false;
  trial.before = [&](ElasticWorld& world) {
    world.save_in_place();
    world.hold_record([&] { return is_held.load(); });
  };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 6) is_held = true;
    if (step == 10) world.wait_for(world.add(1));
    if (step == 16) world.doom(0, point::kScatter);
    if (step == 24) {
      world.wait_ended(0);
      is_held = false;
      world.add(0);
    }
  };
  const auto world = trial.run(1);
  CHECK(ends_of(*world, trial.steps).complete == 2);
  CHECK(record_of(directory.path()) == record_of(calm.path()));
}

namespace {

/// Who has come where the others may break their connections.
class Arrivals {
 public:
  void come(int trainer) {
    const std::lock_guard lock(mutex_);
    here_.insert(trainer);
    changed_.notify_all();
  }
  bool wait_for(std::size_t trainers) {
    std::unique_lock lock(mutex_);
    const auto are_here = [&] { return here_.size() >= trainers; };
    return changed_.wait_for(lock, std::chrono::seconds(20), are_here);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<int> here_;
};

}  // namespace

TEST_CASE("a copy that breaks over a step that the other makes has the lines before it") {
  const test::TempDirectory calm, directory;
  Trial trial;
  trial.config.stages = 2;
  trial.config.checkpoint_path = calm.path();
  trial.config.checkpoint_every_steps = 1'000;  // none is begun on such a disk
  trial.run(2);
  trial.config.checkpoint_path = directory.path();
  trial.falls = 3;  // what trainer 1 has come to is worth nothing without its first stage
  std::atomic<bool> is_held = false, is_broken = false;
  Arrivals before_break;
  trial.on_state = [&](int trainer, std::int64_t step, auto, auto) {
    if (trainer < 2 && step == 10) before_break.come(trainer);
  };
  trial.before = [&](ElasticWorld& world) {
    world.save_in_place();
    world.hold_record([&] { return is_held.load(); });
    world.watch_points([&](int trainer, std::string_view place, std::int64_t step) -> Status {
      if (place != point::kLog || step != 9 || trainer < 2) return {};
      if (trainer == 2) before_break.come(trainer);
      if (trainer != 3 || is_broken.exchange(true)) return {};
      // The first copy has made step 10, and the second has all it needs for it.
      if (!before_break.wait_for(3)) return Error(ErrorCode::kInternal, "they never come");
      return Error(ErrorCode::kAborted, "a connection breaks")
          .with_exit_code(contract::exit_code::kPeerLost);
    });
  };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 6) is_held = true;
    if (step == 16) world.doom(0, point::kScatter);
    if (step == 24) {
      world.wait_ended(0);
      is_held = false;
      world.add(0);
    }
  };
  const auto world = trial.run(4);
  CHECK(is_broken);
  CHECK(ends_of(*world, trial.steps).complete == 4);
  CHECK(record_of(directory.path()) == record_of(calm.path()));
}
