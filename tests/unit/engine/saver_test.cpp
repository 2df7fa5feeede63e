// Checkpoints that are written while training goes on.
#include "worker/engine/saver.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "common/contract.h"
#include "common/file.h"
#include "tests/descriptor_of.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/run_files.h"
#include "worker/engine/memory_needs.h"
#include "worker/engine/training.h"

using namespace muster;
using namespace muster::engine;

namespace {

/// Steps that are made while a disk takes its time.
class SlowDisk {
 public:
  /// Called by whoever writes: until `steps` steps have been made since, or for ten seconds.
  void write(std::int64_t step) {
    std::unique_lock lock(mutex_);
    const bool went_on =
        changed_.wait_for(lock, seconds(10), [&] { return made_ >= step + kWait; });
    (went_on ? beside_ : waited_for_).insert(step);
  }
  void made(std::int64_t step) {
    const std::lock_guard lock(mutex_);
    made_ = std::max(made_, step);
    changed_.notify_all();
  }
  /// Checkpoints during whose writing so many steps were made, and the others.
  std::set<std::int64_t> beside_, waited_for_;
  static constexpr std::int64_t kWait = 3;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t made_ = 0;
};

/// A disk that answers when the test lets it; after a minute it does so anyway.
class Gate {
 public:
  void wait() { wait_for(is_open_, true); }
  void open() { set(is_open_); }
  void pass() { set(is_passed_); }
  void wait_passed() { wait_for(is_passed_, false); }
  bool is_awaited() {
    const std::lock_guard lock(mutex_);
    return is_awaited_;
  }

 private:
  void set(bool& what) {
    const std::lock_guard lock(mutex_);
    what = true;
    changed_.notify_all();
  }
  void wait_for(const bool& what, bool is_told) {
    std::unique_lock lock(mutex_);
    is_awaited_ = is_awaited_ || is_told;
    CHECK(changed_.wait_for(lock, seconds(60), [&] { return what; }));
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false, is_passed_ = false, is_awaited_ = false;
};

TrainingConfig trained_digits(const std::string& directory) {
  TrainingConfig config;
  config.seed = 7;
  config.steps = 44;
  config.mlp.hidden = {32};
  config.train = {"digits-train-images.idx.gz", "digits-train-labels.idx.gz"};
  config.adamw = AdamwConfig{};
  config.data_root = "examples/data";
  config.checkpoint_path = directory;
  config.checkpoint_every_steps = 20;
  config.checkpoint_keep = 9;
  return config;
}

/// Who has which part of a state.
struct Layout {
  bool is_sharded = false;
  int stages = 1;
  int processes() const { return 2 * stages; }
  TrainingConfig of(TrainingConfig config) const {
    config.is_sharded = is_sharded;
    config.stages = stages;
    config.processes = processes();
    return config;
  }
};
constexpr Layout kLayouts[] = {{false, 1}, {true, 1}, {false, 2}, {true, 2}};

/// doctest's CAPTURE, of all fields.
#define CAPTURE_LAYOUT(layout)  \
  CAPTURE((layout).is_sharded); \
  CAPTURE((layout).stages)

struct Trained {
  std::vector<Result<TrainingSummary>> results;
  std::map<std::int64_t, std::int64_t> checkpoint_at;  ///< as the first rank told it, by step
};

const SystemClock kRealTime{};

/// Time that passes where a test says so.  Threads: any.
class ToldTime final : public Clock {
 public:
  MonoTime mono_now() const override { return MonoTime(nanoseconds(now_.load())); }
  WallTime wall_now() const override { return {}; }
  void pass(nanoseconds time) { now_ += time.count(); }

 private:
  std::atomic<std::int64_t> now_ = nanoseconds(seconds(1)).count();
};

Trained train_with(const TrainingConfig& config, int processes, const TrainingHooks& common,
                   const Clock& clock = kRealTime) {
  Trained trained;
  std::mutex mutex;
  test::on_all_ranks_by(clock, processes, [&](comm::Communicator& communicator) {
    TrainingHooks hooks = common;
    hooks.on_step = [&](const StepReport& report) {
      if (common.on_step) common.on_step(report);
      if (communicator.rank() != 0) return;
      const std::lock_guard lock(mutex);
      trained.checkpoint_at[report.step] = report.checkpoint_step;
    };
    TrainingConfig own = config;
    own.place = communicator.rank() % config.group_size();
    auto result = run_training(own, communicator, clock, hooks);
    if (!result) communicator.abort();
    const std::lock_guard lock(mutex);
    trained.results.push_back(std::move(result));
  });
  return trained;
}

std::string saved_bytes(const std::string& directory, int step, const std::string& name) {
  return test::bytes_of(directory + "/step-0000000000" + std::to_string(step) + "/" + name);
}

}  // namespace

TEST_CASE("no checkpoint is whole before the disk has the record's lines of its steps") {
  const test::TempDirectory directory;
  TrainingConfig config = trained_digits(directory.path());
  const std::string record = directory / "record.jsonl";
  TrainingHooks hooks;
  hooks.on_step = [&](const StepReport& report) {
    if (report.step != config.checkpoint_every_steps - 1) return;
    // It takes lines, and cannot be made sure of.
    const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    REQUIRE(::dup2(null.get(), test::descriptor_of(record)) >= 0);
  };
  const Trained trained = train_with(config, 1, hooks);
  REQUIRE_FALSE(trained.results[0]);
  const Error& error = trained.results[0].error();
  CHECK(error.exit_code() == contract::exit_code::kDisk);
  CHECK(error.message().find(record + ": cannot flush") != std::string::npos);
  CHECK_FALSE(std::filesystem::exists(directory / "step-000000000020"));
}

TEST_CASE("who draws a large model, looks through its state and copies it is seen to live") {
  for (const bool is_sharded : {false, true}) {
    CAPTURE(is_sharded);
    const test::TempDirectory directory;
    TrainingConfig config = trained_digits(directory.path());
    config.is_sharded = is_sharded;
    config.steps = 2;
    config.checkpoint_every_steps = 1;
    config.mlp.hidden = {1024, 1024};  // 1.1 million values, four pieces and some
    // How often it has told so from the point before until it came to each point, at most.
    std::map<std::string_view, int> told;
    int since = 0, after_checkpoint = 0;
    std::string_view before;
    TrainingHooks hooks;
    hooks.on_alive = [&] { ++since; };
    hooks.at = [&](std::string_view point, std::int64_t) -> Status {
      told[point] = std::max(told[point], since);
      if (before == point::kCheckpoint) after_checkpoint = std::max(after_checkpoint, since);
      since = 0;
      before = point;
      return {};
    };
    const Trained trained = train_with(config, 1, hooks);
    REQUIRE(trained.results[0]);
    CHECK(std::max(told[point::kTransfer], told[point::kIdle]) > 4);
    CHECK(told[point::kCheckpoint] > 3 * 4);
    CHECK(after_checkpoint > 3 * 4);
  }
}

TEST_CASE("a slow disk holds up no step, and the checkpoint is of the step it was begun at") {
  const test::TempDirectory quick, slow;
  TrainingHooks in_place;
  in_place.saves_in_place = true;
  REQUIRE(train_with(trained_digits(quick.path()), 2, in_place).results[0].has_value());
  for (const Layout& layout : kLayouts) {
    CAPTURE_LAYOUT(layout);
    const std::string name = std::to_string(layout.stages) + (layout.is_sharded ? "s" : "r");
    const TrainingConfig config = layout.of(trained_digits(slow / name));
    SlowDisk disk;
    TrainingHooks hooks;
    hooks.on_save = [&](std::int64_t step) {
      if (step < config.steps) disk.write(step);
    };
    hooks.on_step = [&](const StepReport& report) { disk.made(report.step); };
    const Trained trained = train_with(config, layout.processes(), hooks);
    for (const auto& result : trained.results) REQUIRE(result.has_value());
    CHECK(disk.beside_ == std::set<std::int64_t>{20, 40});
    CHECK(disk.waited_for_.empty());
    // It is told of when it is there.
    CHECK(trained.checkpoint_at.at(20 + SlowDisk::kWait - 1) == -1);
    CHECK(trained.checkpoint_at.at(40) == 20);
    for (const int step : {20, 40, 44}) {
      for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
        CHECK(saved_bytes(config.checkpoint_path, step, file) ==
              saved_bytes(quick.path(), step, file));
      }
    }
  }
}

TEST_CASE("a checkpoint that is due while the one before is still being written is left out") {
  for (const Layout& layout : kLayouts) {
    CAPTURE_LAYOUT(layout);
    const test::TempDirectory directory;
    TrainingConfig config = layout.of(trained_digits(directory.path()));
    config.checkpoint_every_steps = 10;
    config.save_patience = milliseconds(0);
    Gate gate;
    TrainingHooks hooks;
    std::mutex mutex;
    std::vector<std::int64_t> saved;
    hooks.on_save = [&](std::int64_t step) {
      if (step == 10) gate.wait();
    };
    hooks.on_saved = [&](std::int64_t step) {
      {
        const std::lock_guard lock(mutex);
        saved.push_back(step);
      }
      if (step == 10) gate.pass();
    };
    hooks.on_step = [&](const StepReport& report) {
      // The disk answers between two checkpoints, and both processes see that it has.
      if (report.step != 35) return;
      gate.open();
      gate.wait_passed();
    };
    const Trained trained = train_with(config, layout.processes(), hooks);
    for (const auto& result : trained.results) REQUIRE(result.has_value());
    // Whether the disk is through with the first one at step 40 is its own affair.
    CHECK((saved == std::vector<std::int64_t>{10, 40, 44} ||
           saved == std::vector<std::int64_t>{10, 44}));
    CHECK(trained.checkpoint_at.at(34) == -1);
    for (const auto& [step, told] : trained.checkpoint_at) {
      CHECK((told == -1 || (step >= 35 && told == 10) || told >= 40));
    }
    for (const int step : {10, 20, 30, 44}) {
      CAPTURE(step);
      CHECK(saved_bytes(directory.path(), step, "manifest.json").empty() ==
            (step == 20 || step == 30));
    }
  }
}

TEST_CASE("the last checkpoint is waited for, and others are told meanwhile that it is") {
  for (const Layout& layout : kLayouts) {
    CAPTURE_LAYOUT(layout);
    const test::TempDirectory directory;
    TrainingConfig config = layout.of(trained_digits(directory.path()));
    config.checkpoint_every_steps = 40;
    config.save_patience = milliseconds(0);
    Gate gate;
    TrainingHooks hooks;
    std::atomic<int> looked = 0;
    hooks.on_save = [&](std::int64_t step) {
      if (step == 40) gate.wait();
    };
    hooks.on_files = [&](std::string_view path) {
      // All that is done with files at the end is to look at this one.
      if (path.empty() || !gate.is_awaited()) return;
      if (++looked == 20) gate.open();
    };
    const Trained trained = train_with(config, layout.processes(), hooks);
    for (const auto& result : trained.results) {
      REQUIRE(result.has_value());
      CHECK(result->step == 44);
      CHECK(result->complete);
    }
    CHECK(looked >= 20);
    CHECK_FALSE(saved_bytes(directory.path(), 40, "manifest.json").empty());
    CHECK_FALSE(saved_bytes(directory.path(), 44, "manifest.json").empty());
  }
}

TEST_CASE("who waits for files waits as long as they get on, however long they take") {
  for (const Layout& layout : kLayouts) {
    CAPTURE_LAYOUT(layout);
    const test::TempDirectory directory;
    TrainingConfig config = layout.of(trained_digits(directory.path()));
    config.steps = 2;
    config.mlp.hidden = {2048, 1280};  // 2.8 million values: 11 pieces, and 33 with the moments
    config.long_deadline = seconds(100);
    config.peer_deadline = seconds(1000);
    config.save_patience = milliseconds(1);
    ToldTime clock;
    TrainingHooks hooks;
    std::atomic<int> pieces = 0;
    hooks.at = [&](std::string_view place, std::int64_t) -> Status {
      if (place != point::kPiece) return {};
      ++pieces;
      clock.pass(seconds(10));
      // Who waits looks at the clock once a second.
      const bool is_last = pieces == 33 || pieces == 33 + 11;
      if (is_last) std::this_thread::sleep_for(milliseconds(1'100));
      return {};
    };
    const Trained trained = train_with(config, layout.processes(), hooks, clock);
    for (const auto& result : trained.results) {
      REQUIRE_MESSAGE(result.has_value(), result.error().message());
      CHECK(result->complete);
    }
    CHECK(pieces == 33 + 11);
  }
}

TEST_CASE("who looks through a large model at the end is waited for as long as that may take") {
  for (const Layout& layout : {kLayouts[0], kLayouts[3]}) {
    CAPTURE_LAYOUT(layout);
    const test::TempDirectory directory;
    TrainingConfig config = layout.of(trained_digits(directory.path()));
    config.steps = 2;
    ToldTime clock;
    TrainingHooks hooks;
    std::atomic<int> come = 0;
    hooks.at = [&](std::string_view place, std::int64_t) -> Status {
      if (place != point::kFinish || ++come < layout.processes()) return {};
      // All others wait by then. Who waits looks at the clock once a second.
      std::this_thread::sleep_for(milliseconds(300));
      clock.pass(2 * config.peer_deadline);
      std::this_thread::sleep_for(milliseconds(1'100));
      return {};
    };
    const Trained trained = train_with(config, layout.processes(), hooks, clock);
    for (const auto& result : trained.results) {
      REQUIRE_MESSAGE(result.has_value(), result.error().message());
      CHECK(result->complete);
    }
  }
}

TEST_CASE("who ends while a checkpoint is being written is busy with files until it is written") {
  const test::TempDirectory directory;
  const TrainingConfig config = trained_digits(directory.path());
  Gate gate;
  TrainingHooks hooks;
  std::atomic<bool> is_ending = false;
  hooks.on_save = [&](std::int64_t) { gate.wait(); };
  hooks.at = [&](std::string_view point, std::int64_t step) -> Status {
    if (point != muster::engine::point::kIdle || step != 30) return {};
    is_ending = true;
    return Error(ErrorCode::kIo, "ends").with_exit_code(contract::exit_code::kDisk);
  };
  std::atomic<int> told = 0;
  hooks.on_files = [&](std::string_view path) {
    if (is_ending && !path.empty()) gate.open();
    told += is_ending ? 1 : 0;
  };
  const Trained trained = train_with(config, 1, hooks);
  CHECK(trained.results[0].error().exit_code() == contract::exit_code::kDisk);
  CHECK(told == 2);
  CHECK_FALSE(saved_bytes(directory.path(), 20, "manifest.json").empty());
}

TEST_CASE("where there is no room for a second state the checkpoint is written in place") {
  const test::TempDirectory directory;
  TrainingConfig config = trained_digits(directory.path());
  config.memory_bytes = std::size_t{64} << 20;
  SlowDisk disk;
  TrainingHooks hooks;
  std::mutex mutex;
  std::vector<std::thread::id> trainers, writers;
  hooks.on_save = [&](std::int64_t) {
    const std::lock_guard lock(mutex);
    writers.push_back(std::this_thread::get_id());
  };
  hooks.on_step = [&](const StepReport&) {
    const std::lock_guard lock(mutex);
    if (trainers.empty()) trainers.push_back(std::this_thread::get_id());
  };
  REQUIRE(train_with(config, 1, hooks).results[0].has_value());
  CHECK(std::count(writers.begin(), writers.end(), trainers[0]) == 1);  // the last one
  // All but the copy fits.
  writers.clear();
  trainers.clear();
  config.checkpoint_path = directory / "tight";
  const auto shape = ModelShape::of(config, {8, 8, 1}, 10);
  const MemoryShare share{*assign(config.logical_ranks, 1), 0, 4, 0, std::size_t{1438} * 65};
  const std::size_t needed = memory_needs(config, *shape, share, config.logical_ranks).total();
  config.memory_bytes = needed + 1;
  REQUIRE(train_with(config, 1, hooks).results[0].has_value());
  CHECK(writers.size() == 3);
  CHECK(std::count(writers.begin(), writers.end(), trainers[0]) == 3);
}

TEST_CASE("who has no room for a second state is waited for while its disk is slow") {
  const test::TempDirectory directory;
  TrainingConfig config = trained_digits(directory.path());
  config.processes = 2;
  config.peer_deadline = seconds(1);
  const auto shape = ModelShape::of(config, {8, 8, 1}, 10);
  const MemoryShare share{*assign(config.logical_ranks, 2), 0, 4, 0, std::size_t{1438} * 65};
  // Room for two thirds of a copy.
  config.memory_bytes = memory_needs(config, *shape, share, config.logical_ranks).total() +
                        2 * shape->values() * sizeof(float);
  std::atomic<int> slow = 0;
  TrainingHooks hooks;
  hooks.on_save = [&](std::int64_t step) {
    if (step != 20) return;
    ++slow;
    std::this_thread::sleep_for(2 * config.peer_deadline);  // so long the disk takes
  };
  const Trained trained = train_with(config, 2, hooks);
  for (const auto& result : trained.results) {
    REQUIRE_MESSAGE(result.has_value(), result.error().message());
  }
  CHECK(slow == 1);
  CHECK(trained.checkpoint_at.at(21) == 20);
}

TEST_CASE("a disk that gives no answer to the record stops no step, and has all lines at the end") {
  const test::TempDirectory undisturbed, hanging;
  REQUIRE(train_with(trained_digits(undisturbed.path()), 2, {}).results[0].has_value());
  const auto right = test::record_of(undisturbed.path());
  for (const Layout& layout : kLayouts) {
    CAPTURE_LAYOUT(layout);
    const std::string name = std::to_string(layout.stages) + (layout.is_sharded ? "s" : "r");
    TrainingConfig config = layout.of(trained_digits(hanging / name));
    config.save_patience = milliseconds(0);
    Gate gate;
    std::atomic<bool> hangs = false;
    TrainingHooks hooks;
    hooks.on_record = [&] {
      if (hangs) gate.wait();
    };
    hooks.on_step = [&](const StepReport& report) {
      if (report.step == 5) hangs = true;
      if (report.step == 40) gate.open();
    };
    const Trained trained = train_with(config, layout.processes(), hooks);
    for (const auto& result : trained.results) REQUIRE(result.has_value());
    CHECK(gate.is_awaited());
    // The one that was due meanwhile waits for the lines of its steps.
    CHECK(trained.checkpoint_at.at(39) == -1);
    CHECK(test::record_of(config.checkpoint_path) == right);
  }
}

TEST_CASE("where checkpoints are written in place, none is begun on a disk that gives no answer") {
  const test::TempDirectory directory;
  TrainingConfig config = trained_digits(directory.path());
  config.processes = 2;
  const auto shape = ModelShape::of(config, {8, 8, 1}, 10);
  const MemoryShare share{*assign(config.logical_ranks, 2), 0, 4, 0, std::size_t{1438} * 65};
  // Room for two thirds of a copy.
  config.memory_bytes = memory_needs(config, *shape, share, config.logical_ranks).total() +
                        2 * shape->values() * sizeof(float);
  Gate gate;
  TrainingHooks hooks;
  std::mutex mutex;
  std::set<std::int64_t> saved;
  hooks.on_record = [&] {
    if (!gate.is_awaited()) gate.wait();
  };
  hooks.on_save = [&](std::int64_t step) {
    const std::lock_guard lock(mutex);
    saved.insert(step);
  };
  hooks.on_step = [&](const StepReport& report) {
    if (report.step == 30) gate.open();
  };
  const Trained trained = train_with(config, 2, hooks);
  for (const auto& result : trained.results) {
    REQUIRE_MESSAGE(result.has_value(), result.error().message());
  }
  CHECK(saved == std::set<std::int64_t>{40, 44});
  CHECK(test::record_of(directory.path()).size() >= 44);
}

namespace {

/// The parameters of the trainer whose thread this is.
thread_local float* own_parameters = nullptr;

}  // namespace

TEST_CASE("what has changed since all had the same state becomes no checkpoint") {
  struct Case {
    int processes;
    bool saves_in_place;
    std::string_view flips_at;
  };
  // Between the comparison and the copy; or, of the only process, while it is written.
  for (const Case& one : {Case{2, false, point::kCheckpoint}, Case{2, true, point::kCheckpoint},
                          Case{1, true, point::kPiece}}) {
    CAPTURE(one.processes);
    CAPTURE(one.saves_in_place);
    const test::TempDirectory directory;
    TrainingHooks hooks;
    hooks.saves_in_place = one.saves_in_place;
    hooks.on_state = [](std::int64_t, std::span<const float> parameters, const OptimizerState&) {
      own_parameters = const_cast<float*>(parameters.data());
    };
    std::atomic<int> flips = 0;
    hooks.at = [&](std::string_view place, std::int64_t step) -> Status {
      if (place != one.flips_at || step != 20 || flips == one.processes) return {};
      ++flips;
      float& value = own_parameters[100];  // on all, so that nobody's copy differs
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1u);
      return {};
    };
    const Trained trained = train_with(trained_digits(directory.path()), one.processes, hooks);
    CHECK(flips == one.processes);
    std::multiset<int> codes, expected{contract::exit_code::kMemory};
    if (one.processes > 1) expected.insert(contract::exit_code::kPeerLost);
    for (const auto& result : trained.results) {
      REQUIRE_FALSE(result.has_value());
      codes.insert(result.error().exit_code());
    }
    CHECK(codes == expected);
    CHECK_FALSE(std::filesystem::exists(directory / "step-000000000020"));
  }
}

TEST_CASE("a want of memory while a checkpoint is written is an error and no end without a word") {
  Saver saver;
  saver.begin(20, true, []() -> Status { throw std::bad_alloc(); });
  CHECK(saver.wait(seconds(60)));
  CHECK_FALSE(saver.is_saved());
  const Status result = saver.result();
  REQUIRE_FALSE(result);
  CHECK(result.error().exit_code() == contract::exit_code::kOutOfMemory);
}

TEST_CASE("a disk that is full ends the process with the files, a few steps later") {
  const test::TempDirectory directory;
  TrainingConfig config = trained_digits(directory.path());
  TrainingHooks hooks;
  hooks.on_save = [&](std::int64_t step) {
    // What is no directory cannot be written into.
    std::filesystem::create_directories(directory.path());
    std::ofstream(directory / ("step-0000000000" + std::to_string(step))) << "x";
  };
  const Trained trained = train_with(config, 2, hooks);
  std::multiset<int> codes;
  for (const auto& result : trained.results) {
    REQUIRE_FALSE(result.has_value());
    codes.insert(result.error().exit_code());
  }
  CHECK(codes == std::multiset<int>{contract::exit_code::kDisk, contract::exit_code::kPeerLost});
}
