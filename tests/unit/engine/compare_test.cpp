// A bit flips in the memory of one worker while it trains: it is noticed, and in the end nothing is
// left of it or of what was made with it.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/run_files.h"
#include "worker/engine/identity.h"

using namespace muster;
using namespace muster::engine;
using test::bytes_of;
using test::ElasticWorld;
using test::record_of;

namespace {

/// A weight of a pixel in the middle of the images, so that the gradients are wrong at once.
constexpr std::size_t kElement = 645;

enum class Where { kParameter, kState };

struct Flip {
  int trainer = 1;
  std::int64_t step = 12;  ///< it flips as soon as the trainer has made that step
  Where where = Where::kParameter;
  int bit = 18;
  int times = 1;  ///< again each time that the trainer comes to that step
};

void flip_bit(const float& value, int bit) {
  auto& own = const_cast<float&>(value);  // as memory does
  own = std::bit_cast<float>(std::bit_cast<std::uint32_t>(own) ^ (1u << bit));
}

struct FlipTrial {
  TrainingConfig config;
  Flip flip;
  /// Called each time that trainer 0 comes to a step.
  std::function<void(ElasticWorld&, std::int64_t)> at_step;
  std::function<void(ElasticWorld&)> before;

  std::unique_ptr<ElasticWorld> run(int workers) const {
    std::unique_ptr<ElasticWorld> world;
    std::atomic<int> left = flip.times;
    world = std::make_unique<ElasticWorld>(
        config, [&](int trainer, std::int64_t step, std::span<const float> parameters,
                    const OptimizerState& optimizer) {
          if (trainer == 0 && at_step) at_step(*world, step);
          if (trainer != flip.trainer || step != flip.step || left-- <= 0) return;
          const bool is_parameter = flip.where == Where::kParameter;
          const auto& state = optimizer.buffers[0].values;
          flip_bit(is_parameter ? parameters[kElement] : state[kElement], flip.bit);
        });
    if (before) before(*world);
    world->start(workers);
    world->join();
    return world;
  }
};

/// Its files are those of a calm run of one worker; each line of the record has the parameters'
/// hash.
void check_calm(TrainingConfig config, const std::string& directory) {
  const test::TempDirectory calm;
  config.checkpoint_path = calm.path();
  config.is_sharded = false;
  config.stages = 1;
  FlipTrial trial{config, Flip{}, {}, {}};
  trial.flip.times = 0;
  REQUIRE(trial.run(1)->outcome(0)->has_value());
  CHECK_FALSE(bytes_of(calm.path() + "/model.safetensors").empty());
  CHECK(bytes_of(directory + "/model.safetensors") == bytes_of(calm.path() + "/model.safetensors"));
  const auto record = record_of(calm.path());
  CHECK(record.size() >= static_cast<std::size_t>(config.steps));
  CHECK(record_of(directory) == record);
}

TrainingConfig compared_every_five(const std::string& directory, std::int64_t steps = 33) {
  TrainingConfig config = test::digits(steps);
  config.checkpoint_every_steps = 5;
  config.checkpoint_path = directory;
  return config;
}

const Error* error_of(const ElasticWorld& world, int trainer) {
  const auto& outcome = world.outcome(trainer);
  REQUIRE(outcome.has_value());
  return outcome->has_value() ? nullptr : &outcome->error();
}

/// All have ended well, and each has once entered at `step`, or at the start for the second time.
void check_went_back(const ElasticWorld& world, const std::vector<int>& trainers,
                     std::int64_t step) {
  for (const int trainer : trainers) {
    CAPTURE(trainer);
    const Error* const error = error_of(world, trainer);
    REQUIRE_MESSAGE(error == nullptr, error->message());
    CHECK((*world.outcome(trainer))->complete);
  }
  const auto entries = world.entries();
  const auto entered = std::count_if(entries.begin(), entries.end(),
                                     [&](const Entry& entry) { return entry.step == step; });
  CHECK(entered >= std::ssize(trainers) * (step == 0 ? 2 : 1));
}

/// An element of the parameters that becomes infinite on all trainers when they come to a step, so
/// that no copy differs: as what a fault leaves behind in a gradient before it is summed.
struct Fault {
  std::int64_t step = 12;
  std::size_t element = kElement;
};

constexpr std::size_t kFourWorkers = 4;

/// On each of four workers one fault after the other.
std::unique_ptr<ElasticWorld> run_with(const TrainingConfig& config,
                                       const std::vector<Fault>& faults) {
  std::array<std::size_t, kFourWorkers> met{};  // by trainer, of whose thread each is
  auto world = std::make_unique<ElasticWorld>(
      config, [&](int trainer, std::int64_t step, std::span<const float> parameters,
                  const OptimizerState&) {
        std::size_t& next = met.at(static_cast<std::size_t>(trainer));
        if (next == faults.size() || faults[next].step != step) return;
        const std::size_t element = faults[next++].element % parameters.size();
        const_cast<float&>(parameters[element]) = std::numeric_limits<float>::infinity();
      });
  world->start(kFourWorkers);
  world->join();
  return world;
}

/// Of every way to keep the state.
void with_each_kind(const std::string& directory, const std::function<void(TrainingConfig)>& body) {
  TrainingConfig config = compared_every_five(directory);
  SUBCASE("replicated") {}
  SUBCASE("sharded") { config.is_sharded = true; }
  SUBCASE("in stages") { config.stages = 2; }
  body(config);
}

/// Where each process that has gone back says that it stood, and why.
std::vector<Entry> returns_of(const ElasticWorld& world) {
  std::vector<Entry> entries = world.entries();
  std::erase_if(entries, [](const Entry& entry) { return entry.returned.empty(); });
  return entries;
}

void check_ends(const ElasticWorld& world, int exit_code, const std::string& words) {
  for (int trainer = 0; trainer < world.trainers(); ++trainer) {
    CAPTURE(trainer);
    const Error* const error = error_of(world, trainer);
    REQUIRE(error != nullptr);
    CHECK(error->exit_code() == exit_code);
    CHECK_MESSAGE(error->message().find(words) != std::string::npos, error->message());
  }
}

}  // namespace

TEST_CASE("of three copies the one that is wrong is known: its process ends, the others go back") {
  for (const Where where : {Where::kParameter, Where::kState}) {
    for (const int bit : {2, 18, 31}) {
      CAPTURE(where == Where::kState);
      CAPTURE(bit);
      const test::TempDirectory directory;
      FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
      trial.flip.where = where;
      trial.flip.bit = bit;
      const auto world = trial.run(3);
      const Error* const error = error_of(*world, 1);
      REQUIRE(error != nullptr);
      CHECK(error->exit_code() == contract::exit_code::kMemory);
      CHECK(error->message().find("step 15: the training state of process 1 is not") == 0);
      check_went_back(*world, {0, 2}, 10);
      check_calm(trial.config, directory.path());
    }
  }
}

TEST_CASE("the process with the files is wrong: another in its place reads the checkpoint") {
  const test::TempDirectory directory;
  FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
  trial.flip.trainer = 0;
  trial.before = [](ElasticWorld& world) { world.respawn_next(); };
  const auto world = trial.run(3);
  REQUIRE(error_of(*world, 0) != nullptr);
  CHECK(error_of(*world, 0)->exit_code() == contract::exit_code::kMemory);
  check_went_back(*world, {1, 2, 3}, 10);
  check_calm(trial.config, directory.path());
}

TEST_CASE("of two copies nobody knows which is wrong: both go back, and nobody ends") {
  for (const Where where : {Where::kParameter, Where::kState}) {
    for (const std::int64_t step : {12, 15}) {  // 15: nothing was made with it yet
      CAPTURE(where == Where::kState);
      CAPTURE(step);
      const test::TempDirectory directory;
      FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
      trial.flip.where = where;
      trial.flip.step = step;
      check_went_back(*trial.run(2), {0, 1}, 10);
      check_calm(trial.config, directory.path());
    }
  }
}

TEST_CASE("a bit has flipped when the process with the files leaves: all go back before it saves") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    const test::TempDirectory directory;
    FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
    trial.config.checkpoint_keep = 9;
    trial.config.is_sharded = is_sharded;
    if (is_sharded) trial.flip.where = Where::kState;  // parameters are given anew in every step
    bool has_left = false;
    trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
      if (step == 12 && !std::exchange(has_left, true)) world.leave(0);
    };
    std::atomic<bool> is_back = false;
    trial.before = [&](ElasticWorld& world) {
      world.watch_points([&](int trainer, std::string_view at, std::int64_t step) -> Status {
        if (trainer == 1 && at == point::kIdle && step == 20 && !is_back.exchange(true)) {
          world.add(0);
        }
        return {};
      });
    };
    const auto world = trial.run(2);
    check_went_back(*world, {1, 2}, 10);
    for (const Entry& entry : returns_of(*world)) CHECK(entry.returned_from < 15);
    const auto& left = *world->outcome(0);
    REQUIRE_MESSAGE(left.has_value(), left.error().message());
    CHECK(left->left);
    CHECK(left->step == 11);  // after the first step from there
    CHECK(left->checkpoint_step == 11);
    for (const char* wrong : {"/step-000000000013", "/step-000000000014"}) {
      CHECK_FALSE(std::filesystem::exists(directory.path() + wrong));
    }
    check_calm(trial.config, directory.path());
  }
}

TEST_CASE("between checkpoints copies are compared, too; before the first one all begins anew") {
  const test::TempDirectory directory;
  FlipTrial trial{compared_every_five(directory.path(), 100), Flip{}, {}, {}};
  trial.config.checkpoint_every_steps = 1000;
  trial.flip.step = 40;
  std::int64_t newest = 0;
  std::vector<std::int64_t> back_from;
  trial.at_step = [&](ElasticWorld&, std::int64_t step) {
    if (step <= newest) back_from.push_back(newest);
    newest = step;
  };
  check_went_back(*trial.run(2), {0, 1}, 0);
  CHECK(back_from == std::vector<std::int64_t>{64});
  check_calm(trial.config, directory.path());
}

TEST_CASE("copies of shards are compared with their owners', and nobody is found guilty") {
  for (const Where where : {Where::kParameter, Where::kState}) {
    for (int trainer = 0; trainer < 4; ++trainer) {
      for (const std::int64_t step : {12, 15}) {
        CAPTURE(where == Where::kState);
        CAPTURE(trainer);
        CAPTURE(step);
        // Process 0 owns the parameter and 1 keeps it; to 2 and 3 it is given anew in every step.
        if (where == Where::kParameter && trainer > 1 && step == 12) continue;
        const test::TempDirectory directory;
        FlipTrial trial{compared_every_five(directory.path()), {}, {}, {}};
        trial.config.mlp.hidden = {128, 128};
        trial.config.is_sharded = true;
        trial.flip.trainer = trainer;
        trial.flip.where = where;
        trial.flip.step = step;
        check_went_back(*trial.run(4), {0, 1, 2, 3}, 10);
        check_calm(trial.config, directory.path());
      }
    }
  }
}

TEST_CASE("who has joined since may have been given the wrong copy: nobody is found guilty") {
  const test::TempDirectory directory;
  FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
  trial.flip.trainer = 0;  // who gives the joiner its state
  trial.flip.step = 11;
  bool has_joined = false;
  trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
    if (step == 12 && !std::exchange(has_joined, true)) world.wait_for(world.add(2));
  };
  check_went_back(*trial.run(2), {0, 1, 2}, 10);
  check_calm(trial.config, directory.path());
}

TEST_CASE("without checkpoints there is nothing to go back to: the training ends and says so") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    FlipTrial trial{compared_every_five(""), Flip{}, {}, {}};
    trial.config.is_sharded = is_sharded;
    if (is_sharded) trial.flip.step = 15;  // it is given anew in every step
    const auto world = trial.run(3);
    for (int trainer = 0; trainer < 3; ++trainer) {
      const Error* const error = error_of(*world, trainer);
      REQUIRE(error != nullptr);
      CHECK(error->exit_code() == contract::exit_code::kMemory);
      CHECK(error->message().find("use spec.training.checkpoint") != std::string::npos);
    }
  }
}

TEST_CASE("a bit that makes the loss infinite is not taken for a learning rate that is too large") {
  for (const int workers : {2, 3}) {
    for (const bool rolls_back : {true, false}) {
      CAPTURE(workers);
      CAPTURE(rolls_back);
      const test::TempDirectory directory;
      FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
      trial.config.rolls_back = rolls_back;
      trial.flip.trainer = workers - 1;
      trial.flip.bit = 30;
      const auto world = trial.run(workers);
      for (int trainer = 0; trainer < workers; ++trainer) {
        const Error* const error = error_of(*world, trainer);
        if (error) CHECK(error->exit_code() == contract::exit_code::kMemory);
      }
      check_calm(trial.config, directory.path());
    }
  }
}

TEST_CASE(
    "a loss that a fault has made infinite on all: training goes back, and its bits are right") {
  const test::TempDirectory directory;
  with_each_kind(directory.path(), [&](const TrainingConfig& config) {
    const auto world = run_with(config, {{}});
    check_went_back(*world, {0, 1, 2, 3}, 10);
    CHECK(returns_of(*world).size() == kFourWorkers);
    for (const Entry& entry : returns_of(*world)) {
      CHECK(entry.returned_from == 12);
      CHECK_MESSAGE(entry.returned.find("training had diverged: step 13: the loss is ") == 0,
                    entry.returned);
    }
    check_calm(config, directory.path());
  });
}

TEST_CASE(
    "by spec a loss that is not finite ends the training at once, and it can be taken up again") {
  const test::TempDirectory directory;
  with_each_kind(directory.path(), [&](TrainingConfig config) {
    config.rolls_back = false;
    const auto world = run_with(config, {{}});
    check_ends(*world, contract::exit_code::kNumerics, "step 13: the loss is ");
    CHECK(error_of(*world, 0)->message().find("again") == std::string::npos);
    CHECK(returns_of(*world).empty());
    // Nor does a checkpoint ask what is done then.
    config.rolls_back = true;
    check_went_back(*run_with(config, {}), {0, 1, 2, 3}, 10);
    check_calm(config, directory.path());
  });
}

TEST_CASE("members that would come to different ends by the same loss are told apart") {
  TrainingConfig config = compared_every_five("");
  const auto shape = ModelShape::of(config, {8, 8, 1}, 10);
  const Sha256Digest usual = configuration_digest(config, *shape);
  config.rolls_back = false;
  CHECK(configuration_digest(config, *shape) != usual);
}

TEST_CASE("training that diverges does so again, from the newest checkpoint, and ends") {
  const test::TempDirectory directory;
  with_each_kind(directory.path(), [&](TrainingConfig config) {
    config.sgd.learning_rate = 1e30f;
    const auto world = run_with(config, {});
    check_ends(*world, contract::exit_code::kNumerics,
               "learningRate may help; it came again with the same bits after training had gone "
               "back to its start, so it is the training");
    CHECK(returns_of(*world).size() == kFourWorkers);
  });
}

TEST_CASE("a second fault in the same step has other bits: training goes back once more") {
  const test::TempDirectory directory;
  with_each_kind(directory.path(), [&](const TrainingConfig& config) {
    const auto world = run_with(config, {{12, kElement}, {12, kElement + 1}});
    check_went_back(*world, {0, 1, 2, 3}, 10);
    CHECK(returns_of(*world).size() == 2 * kFourWorkers);
    check_calm(config, directory.path());
  });
}

TEST_CASE("training that diverges in another step each time is no training's fault, and ends") {
  const test::TempDirectory directory;
  with_each_kind(directory.path(), [&](const TrainingConfig& config) {
    const auto world = run_with(config, {{11}, {12}, {13}, {14}});
    check_ends(*world, contract::exit_code::kMemory,
               "step 14: training diverges from other bits each time, after 3 returns");
  });
}

TEST_CASE("training that diverges while one learns is not taken for memory that flips") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    FlipTrial trial{compared_every_five(""), Flip{}, {}, {}};
    trial.flip.times = 0;
    trial.config.sgd.learning_rate = 1e30f;
    trial.config.is_sharded = is_sharded;
    std::atomic<std::int64_t> entered = -1;
    trial.before = [&](ElasticWorld& world) {
      world.watch_points([&](int trainer, std::string_view point, std::int64_t step) -> Status {
        if (point != point::kIdle) return {};
        if (trainer == 2) entered = step;
        if (trainer < 2 && step == 0) {
          if (trainer == 0) world.add(2);
          world.wait_for(2);
        }
        return {};
      });
    };
    const auto world = trial.run(2);
    CHECK(entered == 1);  // the second step's loss is not finite
    for (int trainer = 0; trainer < 3; ++trainer) {
      REQUIRE(error_of(*world, trainer) != nullptr);
      CHECK(error_of(*world, trainer)->exit_code() == contract::exit_code::kNumerics);
    }
  }
}

TEST_CASE("memory that flips again and again ends the training, when nobody can tell whose it is") {
  const test::TempDirectory directory;
  FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
  trial.flip.times = 100;
  const auto world = trial.run(2);
  for (int trainer = 0; trainer < 2; ++trainer) {
    const Error* const error = error_of(*world, trainer);
    REQUIRE(error != nullptr);
    CHECK(error->exit_code() == contract::exit_code::kMemory);
    CHECK(error->message().find("differ again after 3 returns") != std::string::npos);
  }
}

TEST_CASE("bits that flip now and then, with a checkpoint in between, never end the training") {
  const test::TempDirectory directory;
  FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
  trial.flip.trainer = 0;
  trial.flip.step = 7;
  trial.flip.times = 5;  // after 7, 12, 17, 22 and 27
  trial.at_step = [&](ElasticWorld&, std::int64_t step) {
    if (step == trial.flip.step + 1) trial.flip.step += 5;
  };
  check_went_back(*trial.run(2), {0, 1}, 25);
  check_calm(trial.config, directory.path());
}

// Of 1 itself nobody would know then, nor if it were a step behind and were given the others'
// state: what it has had its part in is alike on all others.
TEST_CASE("whoever else dies while copies are compared, no wrong one is used any more") {
  for (const int victim : {0, 2, 3}) {
    for (const std::string_view point : {point::kCompare, point::kEnter, point::kTransfer}) {
      CAPTURE(victim);
      CAPTURE(std::string(point));
      if (victim == 0 && point != point::kCompare) continue;  // of two who die one comes back
      const test::TempDirectory directory;
      FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
      std::array<std::atomic<bool>, 4> has_come{};
      std::latch all_compare(4);
      trial.before = [&](ElasticWorld& world) {
        if (victim == 0) world.respawn_next();
        world.watch_points([&](int trainer, std::string_view at, std::int64_t step) -> Status {
          if (at != point::kCompare || step != 15 || trainer > 3) return {};
          if (has_come[static_cast<std::size_t>(trainer)].exchange(true)) return {};
          all_compare.count_down();
          if (trainer == victim) all_compare.wait();
          return {};
        });
      };
      bool is_doomed = false;
      trial.at_step = [&](ElasticWorld& world, std::int64_t step) {
        if (step == 13 && !std::exchange(is_doomed, true)) world.doom(victim, point);
      };
      const auto world = trial.run(4);
      int complete = 0;
      for (int trainer = 0; trainer < world->trainers(); ++trainer) {
        if (error_of(*world, trainer) == nullptr) ++complete;
      }
      CHECK(complete >= 2);
      check_calm(trial.config, directory.path());
    }
  }
}

TEST_CASE("who has lost the others' sums keeps nothing: it is behind those who have gone back") {
  const test::TempDirectory directory;
  FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
  // Both of the trainer that is wrong, hence of one thread.
  bool compares = false, has_lost = false;
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view at, std::int64_t step) -> Status {
      if (trainer == trial.flip.trainer && at == point::kCompare && step == 15) compares = true;
      return {};
    });
    // They were on their way when the connections broke; its own have come to all others. When it
    // compares that step again, nothing breaks: whether all could go on then, with connections that
    // break each time, would hang on who of the others is quicker.
    world.watch_transfers({[](int) {}, [](int) {},
                           [&](int trainer) -> Status {
                             if (trainer != trial.flip.trainer || !compares || has_lost) return {};
                             has_lost = true;
                             return Error(ErrorCode::kAborted, "the connections broke");
                           }});
  };
  const auto world = trial.run(3);
  CHECK(has_lost);
  check_went_back(*world, {0, 1, 2}, 10);
  CHECK(world->entries().size() == 2 * 3);  // at the start, and once to go back
  check_calm(trial.config, directory.path());
}

TEST_CASE("nobody ends before all know that copies differ: no one goes on alone with its own") {
  FlipTrial trial{compared_every_five(""), Flip{}, {}, {}};
  std::mutex mutex;
  std::condition_variable changed;
  std::array<bool, 2> compares{};
  int started = 0;
  bool has_ended = false;
  const auto tell = [&](const auto& change) {
    const std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  };
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view at, std::int64_t step) -> Status {
      if (at == point::kCompare && step == 15) {
        tell([&] { compares[static_cast<std::size_t>(trainer)] = true; });
      }
      return {};
    });
    ElasticWorld::TransferWatch watch;
    watch.on_start = [&](int trainer) {
      if (trainer == 0) tell([&] { started += compares[0] ? 1 : 0; });
    };
    watch.on_abort = [&](int trainer) {
      if (trainer == 0) tell([&] { has_ended = compares[0]; });
    };
    // 1 reads what has come when 0 has begun something after that, or is gone with all it had sent.
    watch.on_done = [&](int trainer) -> Status {
      std::unique_lock lock(mutex);
      if (trainer != 1 || !std::exchange(compares[1], false)) return {};
      const bool is_due =
          changed.wait_for(lock, seconds(20), [&] { return started > 1 || has_ended; });
      CHECK(is_due);
      return has_ended ? Status(Error(ErrorCode::kAborted, "rank 0 was lost")) : Status();
    };
    world.watch_transfers(watch);
  };
  const auto world = trial.run(2);
  for (int trainer = 0; trainer < 2; ++trainer) {
    REQUIRE(error_of(*world, trainer) != nullptr);
    CHECK(error_of(*world, trainer)->exit_code() == contract::exit_code::kMemory);
  }
}

TEST_CASE("the process with the files is away once more after all went back: the record is whole") {
  const test::TempDirectory directory;
  FlipTrial trial{compared_every_five(directory.path()), Flip{}, {}, {}};
  trial.config.checkpoint_every_steps = 10;
  trial.flip.step = 19;
  trial.before = [&](ElasticWorld& world) {
    world.watch_points([&](int trainer, std::string_view at, std::int64_t step) -> Status {
      // The others keep the lines until another one is there in its place.
      if (trainer == 1 && at == point::kIdle && step == 15) world.add(0);
      const bool is_doomed = (trainer == 0 || trainer == 3) && at == point::kScatter && step == 12;
      if (!is_doomed) return {};
      return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
    });
  };
  const auto world = trial.run(3);
  CHECK(world->trainers() == 5);
  check_went_back(*world, {1, 2, 4}, 10);
  check_calm(trial.config, directory.path());
}
