// The promise where each process keeps only a part of the optimiser's state: the bits are those of
// one worker that keeps everything, whoever dies, and what is lost is said.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <latch>
#include <map>
#include <mutex>
#include <set>

#include "common/contract.h"
#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/run_files.h"
#include "worker/engine/identity.h"
#include "worker/engine/shard.h"

using namespace muster;
using namespace muster::engine;
using test::bytes_of;
using test::ConfigOf;
using test::ElasticWorld;
using test::ends_of;
using test::kShardedConfigs;
using test::record_of;
using test::wide;
using test::wide_adamw;
using test::wide_buckets;
using test::wide_layers;

namespace {

constexpr std::int64_t kShardedSteps = 26;

/// As Trial, sharded.
struct ShardedTrial : test::Trial {
  explicit ShardedTrial(ConfigOf config_of = wide_adamw, std::int64_t wanted = kShardedSteps) {
    steps = wanted;
    config = config_of(wanted);
  }
};

std::string file_of(const std::string& directory, std::int64_t step, const char* name) {
  std::string digits = std::to_string(step);
  digits.insert(0, 12 - digits.size(), '0');
  return directory + "/step-" + digits + "/" + name;
}

void check_same_files(const std::string& one, const std::string& other,
                      const std::vector<std::int64_t>& steps) {
  CHECK_FALSE(bytes_of(one + "/model.safetensors").empty());
  CHECK(bytes_of(one + "/model.safetensors") == bytes_of(other + "/model.safetensors"));
  for (const std::int64_t step : steps) {
    for (const char* name : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
      CAPTURE(step);
      CAPTURE(std::string(name));
      CHECK_FALSE(bytes_of(file_of(one, step, name)).empty());
      CHECK(bytes_of(file_of(one, step, name)) == bytes_of(file_of(other, step, name)));
    }
  }
  CHECK(record_of(one) == record_of(other));
}

}  // namespace

void keep_shares(ConfigOf config_of, int workers, int buddies) {
  ShardedTrial trial(config_of);
  trial.config.buddies = buddies;
  std::mutex mutex;
  std::size_t most = 0;
  std::size_t all = 0;
  std::size_t whole = 0;
  trial.on_state = [&](int, std::int64_t step, std::span<const float>,
                       const OptimizerState& state) {
    if (step != trial.steps) return;
    const std::lock_guard lock(mutex);
    most = std::max(most, state.buffers[0].values.size());
    all += state.buffers[0].values.size();
    for (const auto& buffer : state.buffers) {
      CHECK(buffer.values.size() == size_of(state.held));
      CHECK(buffer.values.capacity() == buffer.values.size());
    }
    for (const ElementRange range : state.held) whole = std::max(whole, range.end);
  };
  const auto ends = ends_of(*trial.run(workers), trial.steps);
  CHECK(ends.complete == workers);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  CHECK(ends.reads == ends.computations);
  // So many of each element, and of whole blocks nobody has more than one too many, so many times.
  const auto copies = static_cast<std::size_t>(1 + buddies);
  CHECK(all == whole * std::min<std::size_t>(static_cast<std::size_t>(workers), copies));
  const std::size_t even = whole * copies / static_cast<std::size_t>(workers);
  const std::size_t buckets = config_of == wide_buckets ? 4 : 1;
  CHECK(most <= even + copies * buckets * kernels::kBlockElements);
}

TEST_CASE("sharded, nothing happens: the same bits, and each keeps two or three shares of P") {
  for (std::size_t c = 0; c < kShardedConfigs.size(); ++c) {
    for (int workers = 1; workers <= 8; ++workers) {
      // Each number of copies with every other size, and with each in two of the four.
      const int buddies = 1 + (workers + static_cast<int>(c)) % 2;
      CAPTURE(workers);
      CAPTURE(buddies);
      keep_shares(kShardedConfigs[c], workers, buddies);
    }
  }
}

TEST_CASE("sharded, one dies while the others enter after a cut: at each place of it") {
  for (const std::string_view point : {point::kConnect, point::kEnter, point::kTransfer}) {
    for (const int victim : {0, 1, 2, 3}) {
      for (const int cut : {0, 3}) {
        CAPTURE(std::string(point));
        CAPTURE(victim);
        ShardedTrial trial;
        trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
          if (step % 6 == 0) world.cut(cut);
          if (step == 12) world.doom(victim, point);
        };
        const auto ends = ends_of(*trial.run(4), trial.steps);
        CHECK(ends.killed == 1);
        CHECK(ends.complete == 3);
      }
    }
  }
}

TEST_CASE("sharded, one does not hear that all have logged: it makes the update all the same") {
  for (const ConfigOf config_of : kShardedConfigs) {
    for (const int killed : {-1, 0, 1, 3}) {
      CAPTURE(killed);
      ShardedTrial trial(config_of);
      std::latch updated(3);  // all but the one who is cut off
      std::mutex mutex;
      std::map<int, int> seen;  // by trainer: how often it came to step 13
      trial.before = [&](ElasticWorld& world) {
        world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
          if (trainer != 2 && point == point::kGather && step == 13) updated.count_down();
          if (trainer != 2 || point != point::kLogged || step != 12) return {};
          updated.wait();
          if (killed >= 0) world.doom(killed, point::kEnter);
          return Error(ErrorCode::kAborted, "the connections broke");
        });
      };
      trial.on_state = [&](int trainer, std::int64_t step, auto, const OptimizerState&) {
        const std::lock_guard lock(mutex);
        if (step == 13) ++seen[trainer];
      };
      const auto world = trial.run(4);
      const auto ends = ends_of(*world, trial.steps);
      CHECK(ends.complete == (killed >= 0 ? 3 : 4));
      std::map<int, int> expected{{0, 1}, {1, 1}, {2, 1}, {3, 1}};
      expected.erase(killed);
      seen.erase(killed);  // it may have come there before its end
      CHECK(seen == expected);
      // The step was not made anew: all go on from where three of them were.
      const auto entries = world->entries();
      CHECK(std::none_of(entries.begin(), entries.end(),
                         [](const Entry& entry) { return entry.step == 12; }));
    }
  }
}

TEST_CASE("sharded, nobody hears that all have logged: all make the step anew") {
  ShardedTrial trial;
  std::latch logged(4);
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
      if (point != point::kLogged || step != 12 || trainer > 3) return {};
      if (logged.try_wait()) return {};
      logged.arrive_and_wait();
      return Error(ErrorCode::kAborted, "the connections broke");
    });
  };
  const auto world = trial.run(4);
  const auto ends = ends_of(*world, trial.steps);
  CHECK(ends.complete == 4);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  const auto entries = world->entries();
  CHECK(std::any_of(entries.begin(), entries.end(),
                    [](const Entry& entry) { return entry.step == 12; }));
}

TEST_CASE("sharded, who gives a block away keeps it until all have theirs") {
  // Of seven members each owns one block. The fourth of five dies, the fifth has the only copy of
  // its block, and that goes to two of three joiners, who lose their connections over it.
  ShardedTrial trial;
  std::atomic<bool> has_given = false;
  std::latch given(1);
  std::mutex mutex;
  std::set<int> cut;
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
      if (point != point::kTransfer) return {};
      if (trainer == 4 && step >= 12 && !has_given.exchange(true)) given.count_down();
      if (trainer < 5) return {};
      given.wait();
      const std::lock_guard lock(mutex);
      if (!cut.insert(trainer).second) return {};
      return Error(ErrorCode::kAborted, "the connections broke");
    });
  };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step != 12) return;
    world.doom(3, point::kScatter);
    for (const int slot : {5, 6, 7}) world.wait_for(world.add(slot));
  };
  const auto ends = ends_of(*trial.run(5), trial.steps);
  CHECK(ends.killed == 1);
  CHECK(ends.complete == 7);
  CHECK(cut.size() == 3);
}

TEST_CASE("sharded, two die at once of whom neither is the other's buddy: nothing is lost") {
  for (const std::string_view point :
       {point::kScatter, point::kLog, point::kLogged, point::kUpdate, point::kGather}) {
    CAPTURE(std::string(point));
    ShardedTrial trial(wide_layers);
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step != 12) return;
      world.doom(1, point);
      world.doom(3, point::kEnter);  // before anybody has been given anything
    };
    const auto ends = ends_of(*trial.run(5), trial.steps);
    CHECK(ends.killed == 2);
    CHECK(ends.complete == 3);
  }
}

TEST_CASE("sharded, an owner and its buddy die at once: back to the newest checkpoint") {
  for (const std::string_view point : {point::kScatter, point::kLogged, point::kGather}) {
    CAPTURE(std::string(point));
    const test::TempDirectory directory, calm;
    ShardedTrial trial;
    trial.config.checkpoint_every_steps = 5;
    trial.config.checkpoint_path = calm.path();
    trial.run(1);
    trial.config.checkpoint_path = directory.path();
    trial.falls = 3;
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step != 12) return;
      world.doom(1, point);
      world.doom(2, point::kEnter);
    };
    const auto world = trial.run(5);
    const auto ends = ends_of(*world, trial.steps);
    CHECK(ends.killed == 2);
    CHECK(ends.complete == 3);
    for (const int trainer : {0, 3, 4}) CHECK((*world->outcome(trainer))->restored_step == 10);
    const auto entries = world->entries();
    CHECK(std::count_if(entries.begin(), entries.end(), [](const Entry& entry) {
            return entry.step == 10 && entry.returned_from >= 11 &&
                   entry.returned.find("were lost") != std::string::npos;
          }) == 3);
    check_same_files(calm.path(), directory.path(), {25, 26});
  }
}

TEST_CASE("sharded, one more dies while all go back: nothing is left of the shards before") {
  const test::TempDirectory directory;
  ShardedTrial trial;
  trial.config.checkpoint_every_steps = 5;
  trial.config.checkpoint_path = directory.path();
  trial.falls = 5;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step != 12) return;
    world.doom(1, point::kScatter);
    world.doom(2, point::kEnter);
  };
  std::atomic<bool> goes_back = false;
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view at, std::int64_t step) -> Status {
      if (trainer == 0 && at == point::kEnter && step == 10) goes_back = true;
      // The others have taken theirs, and wait for it.
      if (trainer != 4 || at != point::kTransfer || !goes_back) return {};
      return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
    });
  };
  const auto world = trial.run(5);
  const auto ends = ends_of(*world, trial.steps);
  CHECK(ends.killed == 3);
  CHECK(ends.complete == 2);
}

TEST_CASE("sharded, one dies before it has given a joiner its shards: the other keeps them") {
  // Both have everything, and each gives the joiner a part of what it is to own.
  for (const int victim : {0, 1}) {
    CAPTURE(victim);
    ShardedTrial trial(wide_buckets);
    std::atomic<bool> has_joined = false, is_given = false;
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 8) world.wait_for(world.add(3));
    };
    trial.before = [&](ElasticWorld& world) {
      world.watch_points([&](int trainer, std::string_view at, std::int64_t) -> Status {
        if (trainer == 2 && at == point::kIdle) has_joined = true;
        if (trainer == 1 - victim && at == point::kCopy && has_joined) is_given = true;
        if (trainer != victim || at != point::kUpdated || !has_joined) return {};
        return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
      });
    };
    const auto world = trial.run(2);
    const auto ends = ends_of(*world, trial.steps);
    CHECK(is_given);
    CHECK(ends.killed == 1);
    CHECK(ends.complete == 2);
    CHECK((*world->outcome(1 - victim))->restored_step == -1);
  }
}

TEST_CASE("sharded with two buddies, an owner and one of them die at once: nothing is lost") {
  for (const std::string_view point :
       {point::kScatter, point::kReduced, point::kLog, point::kLogged, point::kUpdate,
        point::kGather, point::kUpdated}) {
    for (const int other : {2, 3}) {
      CAPTURE(std::string(point));
      CAPTURE(other);
      ShardedTrial trial;
      trial.config.buddies = 2;
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step != 12) return;
        world.doom(1, point);
        world.doom(other, point::kEnter);
      };
      const auto ends = ends_of(*trial.run(5), trial.steps);
      CHECK(ends.killed == 2);
      CHECK(ends.complete == 3);
    }
  }
}

TEST_CASE("sharded, an owner and its buddy die and no checkpoint is kept: the training ends") {
  ShardedTrial trial;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step != 12) return;
    world.doom(1, point::kScatter);
    world.doom(2, point::kEnter);
  };
  const auto world = trial.run(4);
  for (const int survivor : {0, 3}) {
    const auto& outcome = *world->outcome(survivor);
    REQUIRE_FALSE(outcome.has_value());
    const bool is_told = outcome.error().exit_code() == contract::exit_code::kNoCheckpoint;
    // Who enters later than the other finds it gone.
    CHECK((is_told || outcome.error().message() == ElasticWorld::kTooLate ||
           outcome.error().exit_code() == contract::exit_code::kPeerLost));
    if (is_told) CHECK(outcome.error().message().find("keeps no checkpoints") != std::string::npos);
  }
}

TEST_CASE("sharded, a pod of two processes dies: another pod has what they had") {
  for (const std::string_view point : {point::kScatter, point::kLogged, point::kGather}) {
    for (const int pod : {0, 1, 2}) {
      CAPTURE(pod);
      ShardedTrial trial;
      int first = -1;
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step == 4) {
          for (const int slot : {0, 1, 2}) {
            const int added = world.add(slot);
            if (slot == pod) first = added;
            world.wait_for(added);
          }
        }
        if (step != 12) return;
        REQUIRE(world.members().size() == 6);
        world.doom(pod, point);
        world.doom(first, point::kEnter);
      };
      const auto ends = ends_of(*trial.run(3), trial.steps);
      CHECK(ends.killed == 2);
      CHECK(ends.complete == 4);
    }
  }
}

TEST_CASE("sharded, workers come and go in any number: nothing is computed twice or lost") {
  for (const ConfigOf config_of : kShardedConfigs) {
    ShardedTrial trial(config_of, 44);
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      const auto add = [&](int slot) { world.wait_for(world.add(slot)); };
      if (step == 4) add(1);
      if (step == 8) {
        for (const int slot : {2, 3, 4, 5, 6, 7}) add(slot);
      }
      // Neighbours, so owners and buddies among them.
      if (step == 14) {
        for (const int trainer : {2, 3, 4, 5}) world.leave(trainer);
      }
      if (step == 20) {
        for (const int trainer : {7, 6, 1}) world.leave(trainer);
      }
      if (step == 26) {
        for (const int slot : {1, 2}) add(slot);
      }
      if (step == 32) {
        world.leave(0);
        world.leave(8);
      }
    };
    const auto ends = ends_of(*trial.run(1), trial.steps);
    CHECK(ends.left == 9);
    CHECK(ends.complete == 1);
    CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
    CHECK(ends.reads == ends.computations);
  }
}

TEST_CASE("sharded, an owner and its buddy are to leave just as others enter: nothing is lost") {
  // All have agreed to enter with a joiner and both of them, and the joiner passes that view over
  // for the newest, which is without them.
  constexpr std::int64_t kStep = 12;
  constexpr int kMembers = 5, kJoiner = 5;
  ShardedTrial trial;
  std::latch told(1);
  std::atomic<bool> has_passed_over = false;
  test::BetweenSteps between(
      kStep,
      [&](ElasticWorld& world) {
        CHECK(world.add(kMembers) == kJoiner);
        world.wait_for(kJoiner);
        for (int one = 0; one < kMembers; ++one) world.hold(one, point::kUpdated, kStep + 1);
        for (int one = 0; one < kMembers; ++one) world.wait_held(one);
        for (const int one : {1, 2}) world.leave(one);
        told.count_down();
      },
      kMembers);
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view at, std::int64_t) -> Status {
      if (trainer != kJoiner || at != point::kConnect || has_passed_over.exchange(true)) return {};
      told.wait();
      return Error(ErrorCode::kAborted, "a newer view came");
    });
  };
  trial.at_step = std::ref(between);
  const auto world = trial.run(kMembers);
  const auto ends = ends_of(*world, trial.steps);
  CHECK(ends.left == 2);
  CHECK(ends.complete == 4);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
  const auto entries = world->entries();
  // Nobody has entered what was passed over.
  CHECK(entries.size() == kMembers + 4);
  CHECK(std::ranges::all_of(entries, [](const Entry& one) { return one.returned.empty(); }));
}

TEST_CASE("sharded, what those keep who are asked to leave is copied, to those who stay alone") {
  constexpr std::int64_t kAsked = 6;
  for (const ConfigOf config_of : kShardedConfigs) {
    ShardedTrial trial(config_of);
    std::mutex mutex;
    std::map<int, Ranges> kept;  // since they know of it
    trial.on_state = [&](int trainer, std::int64_t step, std::span<const float>,
                         const OptimizerState& state) {
      if (step <= kAsked || (trainer != 1 && trainer != 2)) return;
      const std::lock_guard lock(mutex);
      // What they have they keep until they go.
      CHECK(kept.emplace(trainer, state.held).first->second == state.held);
    };
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step < kAsked) return;
      for (const int one : {1, 2}) {
        if (step == kAsked) world.ask_to_leave(one);
        if (step == kAsked + 1) CHECK(world.spared_by(one) == 0);
        if (step == kAsked + 3) CHECK(world.spared_by(one) == 5);
        if (step == kAsked + 8) CHECK(world.spared_by(one) == 4);
      }
      if (step == kAsked + 3) world.leave(3);
      if (step != kAsked + 8) return;
      for (const int one : {1, 2}) world.leave(one);
    };
    const auto ends = ends_of(*trial.run(5), trial.steps);
    CHECK(ends.left == 3);
    CHECK(ends.complete == 2);
    CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
    CHECK(ends.reads == ends.computations);
  }
}

TEST_CASE(
    "sharded, all are asked to leave, or all but one who joins: those keep all until it has") {
  ShardedTrial trial;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 6) {
      for (const int one : {0, 1, 2}) world.ask_to_leave(one);
    }
    if (step == 10) {
      CHECK(world.spared_by(0) == 0);
      world.wait_for(world.add(3));
    }
    if (step == 18) {
      for (const int one : {0, 1, 2}) CHECK(world.spared_by(one) == 4);
      for (const int one : {0, 1, 2}) world.leave(one);
    }
  };
  const auto ends = ends_of(*trial.run(3), trial.steps);
  CHECK(ends.left == 3);
  CHECK(ends.complete == 1);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
}

TEST_CASE("sharded, of a worker's processes one hears that they leave: neither is given anything") {
  constexpr std::int64_t kAsked = 12;
  constexpr int kFirst = 2, kSecond = 3;  // both of slot 2
  ShardedTrial trial;
  std::mutex mutex;
  std::map<int, Ranges> kept;
  trial.on_state = [&](int trainer, std::int64_t step, std::span<const float>,
                       const OptimizerState& state) {
    if (step <= kAsked || trainer < kFirst) return;
    const std::lock_guard lock(mutex);
    CHECK(kept.emplace(trainer, state.held).first->second == state.held);
  };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 4) {
      CHECK(world.add_process(2, 1) == kSecond);
      world.wait_for(kSecond);
    }
    if (step == kAsked) world.ask_to_leave(kFirst);
    if (step != kAsked + 3) return;
    CHECK(world.members().size() == 4);
    CHECK(world.spared_by(kFirst) == 4);
    for (const int one : {kFirst, kSecond}) world.leave(one);
  };
  const auto ends = ends_of(*trial.run(3), trial.steps);
  CHECK(ends.left == 2);
  CHECK(ends.complete == 2);
  CHECK(ends.computations == 16u * static_cast<std::uint64_t>(trial.steps));
}

TEST_CASE("sharded, one who leaves dies over handing over: the others have what it had") {
  ShardedTrial trial;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step != 12) return;
    world.doom(2, point::kTransfer);
    world.leave(2);
  };
  const auto world = trial.run(4);
  CHECK(ends_of(*world, trial.steps).complete == 3);
  CHECK_FALSE(world->outcome(2)->has_value());
}

namespace {

/// 21 blocks, so that copying them block by block takes several steps.
TrainingConfig broad_adamw(std::int64_t steps) {
  TrainingConfig config = wide_adamw(steps);
  config.mlp.hidden = {256, 256};
  return config;
}

/// Elements of it that optimiser state belongs to, and how they are shared by the members.
constexpr std::size_t kTrained = 64 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10;
Shards shards_of(const std::vector<int>& slots, int buddies = 1) {
  const Buckets buckets(kTrained + 5);
  return make_shards(slots,
                     {Ownership(buckets, static_cast<int>(slots.size())), kTrained, buddies});
}

/// What those who go on when `dead` is lost are to be given of the optimiser's state: both moments.
std::uint64_t bytes_lacking(int before, int dead, int buddies = 1) {
  std::vector<int> slots;
  for (int slot = 0; slot < before; ++slot) slots.push_back(slot);
  const Shards old = shards_of(slots, buddies);
  slots.erase(slots.begin() + dead);
  const Shards next = shards_of(slots, buddies);
  std::uint64_t bytes = 0;
  for (std::size_t rank = 0; rank < slots.size(); ++rank) {
    const Ranges had = old.held(slots[rank]);
    bytes += size_of(without(next.held(static_cast<int>(rank)), had)) * sizeof(float) * 2;
  }
  return bytes;
}

/// What the trainers said of their steps.
struct Reports {
  std::mutex mutex;
  std::map<std::int64_t, std::vector<StepReport>> by_step;

  void watch(ElasticWorld& world) {
    world.watch_reports([this](int, const StepReport& report) {
      const std::lock_guard lock(mutex);
      by_step[report.step].push_back(report);
    });
  }
  std::uint64_t copied(std::int64_t step) {
    std::uint64_t bytes = 0;
    for (const StepReport& one : by_step[step]) bytes += one.copied_bytes;
    return bytes;
  }
  std::uint64_t copied() {
    std::uint64_t bytes = 0;
    for (const auto& [step, reports] : by_step) bytes += copied(step);
    return bytes;
  }
};

std::uint64_t bytes_on_entering(const ElasticWorld& world) {
  std::uint64_t bytes = 0;
  for (const Entry& entry : world.entries()) bytes += entry.step > 0 ? entry.state_bytes : 0;
  return bytes;
}

}  // namespace

TEST_CASE("sharded, a death moves only what changes hands, and not before the next step") {
  ShardedTrial trial(broad_adamw);
  Reports reports;
  trial.before = [&](ElasticWorld& world) { reports.watch(world); };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 12) world.doom(3, point::kScatter);
  };
  CHECK(bytes_lacking(5, 3) > 0);
  const auto world = trial.run(5);
  CHECK(ends_of(*world, trial.steps).complete == 4);
  CHECK(bytes_on_entering(*world) == 0);
  CHECK(reports.copied() == bytes_lacking(5, 3));
}

TEST_CASE("sharded, no step waits for the copies after a death: each takes a part along") {
  for (const int buddies : {1, 2}) {
    CAPTURE(buddies);
    ShardedTrial trial(broad_adamw);
    trial.config.buddies = buddies;
    trial.config.copy_blocks = 1;
    Reports reports;
    trial.before = [&](ElasticWorld& world) { reports.watch(world); };
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 12) world.doom(3, point::kScatter);
    };
    const auto world = trial.run(5);
    CHECK(ends_of(*world, trial.steps).complete == 4);
    // Those who finish the step that was cut short are given nothing before it, nor in it.
    CHECK(bytes_on_entering(*world) == 0);
    std::int64_t cut_short = 0;
    for (const auto& [step, all] : reports.by_step) {
      if (cut_short == 0 && all[0].members == 4) cut_short = step;
    }
    CHECK(reports.copied(cut_short) == 0);
    // Then steps are made one after another, and each process is given a block at most in each.
    int beside = 0;
    for (const auto& [step, all] : reports.by_step) {
      for (const StepReport& one : all) {
        CHECK(one.copied_bytes <= kernels::kBlockElements * sizeof(float) * 2);
        // It is known how many blocks another death would take along, and never more than before.
        CHECK((one.blocks_short > 0) == (all[0].blocks_short > 0));
        if (step <= cut_short) continue;
        CHECK(one.blocks_short <= reports.by_step[step - 1][0].blocks_short);
      }
      beside += reports.copied(step) > 0 ? 1 : 0;
    }
    CHECK(reports.by_step[cut_short][0].blocks_short > 0);
    CHECK(reports.by_step[trial.steps][0].blocks_short == 0);
    CHECK(beside > 1);
    CHECK(reports.copied() == bytes_lacking(5, 3, buddies));
  }
}

TEST_CASE("sharded, who joins is given its shards while steps are made, and no block is short") {
  ShardedTrial trial(broad_adamw);
  trial.config.copy_blocks = 1;
  Reports reports;
  trial.before = [&](ElasticWorld& world) { reports.watch(world); };
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 8) world.wait_for(world.add(3));
  };
  const auto world = trial.run(3);
  CHECK(ends_of(*world, trial.steps).complete == 4);
  int beside = 0;
  for (const auto& [step, all] : reports.by_step) {
    for (const StepReport& one : all) CHECK(one.blocks_short == 0);
    beside += reports.copied(step) > 0 ? 1 : 0;
  }
  CHECK(beside > 1);
}

namespace {

/// The second of four dies, and when its copies are made anew but not all are there, another one.
std::unique_ptr<ElasticWorld> die_again(ShardedTrial& trial, int second) {
  trial.config.copy_blocks = 1;
  std::atomic<std::int64_t> first_gone = 0;
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&, second](int trainer, std::string_view at, std::int64_t) -> Status {
      // The next step that takes copies along is the second one.
      if (trainer != second || at != point::kCopy || ++first_gone < 2) return {};
      return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
    });
  };
  trial.at_step = [](ElasticWorld& world, std::int64_t step) {
    if (step == 12) world.doom(1, point::kScatter);
  };
  return trial.run(5);
}

}  // namespace

TEST_CASE("sharded, one more dies before all copies are made: back to the checkpoint, told why") {
  const test::TempDirectory directory;
  ShardedTrial trial(broad_adamw);
  trial.config.checkpoint_path = directory.path();
  trial.config.checkpoint_every_steps = 5;
  trial.falls = 3;
  // The buddy of the one who died has what is left of its shard.
  const int buddy = shards_of({0, 1, 2, 3, 4}).buddies[1][0];
  const auto world = die_again(trial, buddy);
  const auto ends = ends_of(*world, trial.steps);
  CHECK(ends.killed == 2);
  CHECK(ends.complete == 3);
  const auto entries = world->entries();
  CHECK(std::count_if(entries.begin(), entries.end(), [](const Entry& entry) {
          return entry.step == 10 && entry.returned_from >= 12 &&
                 entry.returned.ends_with("before new copies of all blocks were made");
        }) == 3);
}

TEST_CASE("sharded with two buddies, one more dies before all copies are made: nothing is lost") {
  for (const int second : {0, 2, 3, 4}) {
    CAPTURE(second);
    ShardedTrial trial(broad_adamw);
    trial.config.buddies = 2;
    const auto world = die_again(trial, second);
    const auto ends = ends_of(*world, trial.steps);
    CHECK(ends.killed == 2);
    CHECK(ends.complete == 3);
  }
}

TEST_CASE("sharded, one dies at each place of a step that takes copies along: nothing is lost") {
  // The joiner is to be given shards by all others, who keep them until it has them.
  for (const std::string_view place :
       {point::kCopy, point::kForward, point::kScatter, point::kLog, point::kLogged, point::kUpdate,
        point::kGather, point::kUpdated}) {
    for (const int victim : {0, 1, 3}) {
      CAPTURE(std::string(place));
      CAPTURE(victim);
      ShardedTrial trial(broad_adamw);
      trial.config.copy_blocks = 1;
      std::mutex mutex;
      std::map<int, int> copies;  // by trainer: steps with copies that it has begun
      trial.before = [&](ElasticWorld& world) {
        world.watch_points([&](int trainer, std::string_view at, std::int64_t) -> Status {
          const std::lock_guard lock(mutex);
          if (at == point::kCopy) ++copies[trainer];
          if (trainer != victim || at != place || copies[trainer] != 2) return {};
          return Error(ErrorCode::kInternal, "killed")
              .with_exit_code(contract::exit_code::kInternal);
        });
      };
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step == 8) world.wait_for(world.add(3));
      };
      const auto ends = ends_of(*trial.run(3), trial.steps);
      CHECK(ends.killed == 1);
      CHECK(ends.complete == 3);
    }
  }
}

TEST_CASE("checkpoints of shards have the bytes of one worker's, whatever happens") {
  for (const ConfigOf config_of : kShardedConfigs) {
    const test::TempDirectory calm;
    ShardedTrial trial(config_of);
    trial.config.checkpoint_every_steps = 4;
    trial.config.checkpoint_keep = 100;
    trial.config.checkpoint_path = calm.path();
    trial.config.is_sharded = false;
    trial.run(1);
    trial.config.is_sharded = true;
    for (const int workers : {1, 2, 4}) {
      const test::TempDirectory directory;
      trial.config.checkpoint_path = directory.path();
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (workers != 4) return;
        if (step == 6) world.doom(2, point::kCheckpoint);
        if (step == 10) world.wait_for(world.add(5));
        if (step == 14) world.doom(3, point::kLogged);
        if (step == 18) world.leave(1);
      };
      trial.run(workers);
      check_same_files(calm.path(), directory.path(), {4, 8, 12, 16, 20, 24, 26});
    }
  }
}

TEST_CASE("sharded, slot 0 dies and comes back: its files lack nothing") {
  const test::TempDirectory calm;
  ShardedTrial trial;
  trial.config.checkpoint_every_steps = 10;
  trial.config.checkpoint_path = calm.path();
  trial.run(2);
  for (const std::string_view point : {point::kScatter, point::kLogged, point::kGather,
                                       point::kUpdated, point::kEvaluate, point::kCheckpoint}) {
    for (const std::int64_t back_at : {std::int64_t{24}, kShardedSteps}) {
      CAPTURE(std::string(point));
      const test::TempDirectory directory;
      trial.config.checkpoint_path = directory.path();
      std::atomic<bool> is_back = false;
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step == 18) world.doom(0, point);
        const bool is_dead = world.members()[0] != 0;
        if (step >= back_at && is_dead && !is_back.exchange(true)) world.add(0);
      };
      CHECK(ends_of(*trial.run(3), trial.steps).complete == 3);
      check_same_files(calm.path(), directory.path(), {kShardedSteps});
    }
  }
}

TEST_CASE("stopped sharded or replicated, it goes on in any number of either") {
  for (const bool was_sharded : {false, true}) {
    for (const bool is_sharded : {false, true}) {
      for (const int workers : {1, 3, 8}) {
        CAPTURE(was_sharded);
        CAPTURE(is_sharded);
        CAPTURE(workers);
        const test::TempDirectory directory;
        ShardedTrial trial(wide_layers);
        trial.config.checkpoint_path = directory.path();
        trial.config.is_sharded = was_sharded;
        trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
          if (step == 9) world.stop();
        };
        const std::int64_t stopped_at = (*trial.run(4)->outcome(0))->step;
        CHECK(stopped_at >= 9);
        CHECK(stopped_at < kShardedSteps);
        trial.at_step = nullptr;
        trial.config.is_sharded = is_sharded;
        const auto world = trial.run(workers);
        CHECK((*world->outcome(0))->restored_step == stopped_at);
        CHECK(ends_of(*world, kShardedSteps).complete == workers);
      }
    }
  }
}

TEST_CASE("members that keep the state in different ways are told apart") {
  const auto digest_of = [](TrainingConfig config) {
    const auto shape = ModelShape::of(config, {8, 8, 1}, 10);
    return to_hex(configuration_digest(config, *shape));
  };
  TrainingConfig config = wide(kShardedSteps);
  const std::string sharded = digest_of(config);
  config.is_sharded = false;
  CHECK(digest_of(config) != sharded);
}

TEST_CASE("sharded, random joins, leaves, cuts and deaths one after another: the same bits") {
  constexpr std::array kPoints = {
      point::kConnect, point::kEnter,    point::kTransfer, point::kIdle,    point::kForward,
      point::kBucket,  point::kBackward, point::kScatter,  point::kReduced, point::kLog,
      point::kLogged,  point::kUpdate,   point::kGather,   point::kUpdated, point::kEvaluate};
  std::map<std::string, int> deaths;
  for (std::uint32_t number = 0; number < static_cast<std::uint32_t>(test::tries(40)); ++number) {
    CAPTURE(number);
    CAPTURE(test::seed());
    const test::TempDirectory directory;
    ShardedTrial trial(kShardedConfigs[number % kShardedConfigs.size()], 44);
    Rng rng(test::seed() * 1'000 + number);
    trial.config.micro_batch_size = static_cast<int>(number % 3) * trial.config.batch_size / 8;
    if (number % 2 == 1) {
      trial.config.checkpoint_path = directory.path();
      trial.config.checkpoint_every_steps = 5;
    }
    std::map<int, std::string> doomed;
    int dying = -1;
    std::int64_t quiet_until = 0;  // nobody dies while what was lost is not copied yet
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      const std::vector<int> members = world.members();
      if (dying >= 0 && std::find(members.begin(), members.end(), dying) == members.end()) {
        dying = -1;
        quiet_until = step + 4;
      }
      if (step >= 40 || rng.below(2) != 0 || step < quiet_until) return;
      const int one = members[rng.below(members.size())];
      const auto event = rng.below(8);
      const bool is_quiet = dying < 0 && step >= quiet_until;
      if (event < 3 && is_quiet && members.size() > 1 && world.slot_of(one) != 0) {
        dying = one;
        doomed[one] = kPoints[rng.below(kPoints.size())];
        world.doom(one, doomed[one]);
      } else if (event < 6 && members.size() < 8) {
        world.wait_for(world.add(1 + static_cast<int>(rng.below(12))));
      } else if (event == 6 && is_quiet) {
        world.wait_joiners();  // those who train may be about to enter with them
        quiet_until = step + 4;
        for (const int leaver : members) {
          if (world.slot_of(leaver) != 0 && rng.below(2) == 0) world.leave(leaver);
        }
      } else if (step >= quiet_until) {
        world.cut(one);
      }
    };
    const auto world = trial.run(1 + static_cast<int>(rng.below(6)));
    CHECK(ends_of(*world, trial.steps).complete >= 1);
    for (const auto& [trainer, point] : doomed) {
      if (!world->outcome(trainer)->has_value()) ++deaths[point];
    }
  }
  std::string table;
  for (const auto& [point, count] : deaths) table += " " + point + " " + std::to_string(count);
  MESSAGE("deaths by place:" << table);
}

TEST_CASE("sharded, whoever dies together with whom: right bits, from a checkpoint at worst") {
  int fallen = 0;
  for (std::uint32_t number = 0; number < 16; ++number) {
    CAPTURE(number);
    CAPTURE(test::seed());
    const test::TempDirectory directory;
    ShardedTrial trial(kShardedConfigs[number % kShardedConfigs.size()], 36);
    Rng rng(test::seed() * 10'000 + number);
    trial.config.checkpoint_path = directory.path();
    trial.config.checkpoint_every_steps = 3;
    if (number % 2 == 1) trial.config.copy_blocks = 1;
    trial.falls = 1'000;
    std::set<int> doomed;
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step >= 33) return;
      const std::vector<int> members = world.members();
      if (rng.below(3) == 0 && members.size() < 8) {
        world.add(1 + static_cast<int>(rng.below(12)));
      }
      if (rng.below(4) != 0) return;
      for (const int one : members) {
        if (world.slot_of(one) == 0 || rng.below(2) != 0 || !doomed.insert(one).second) continue;
        world.doom(one, rng.below(2) == 0 ? point::kEnter : point::kLogged);
      }
      world.cut(members[rng.below(members.size())]);
    };
    const auto world = trial.run(5);
    CHECK(ends_of(*world, trial.steps).complete >= 1);
    fallen += (*world->outcome(0))->restored_step > 0 ? 1 : 0;
  }
  MESSAGE("runs that went back to a checkpoint: " << fallen << " of 16");
  CHECK(fallen > 0);
}
