// What saves memory and leaves the bits: a step computed in several passes, of which none has more
// samples than it may, and activations that are computed again.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <string>
#include <vector>

#include "common/file.h"
#include "tests/golden.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/picture_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "worker/engine/model.h"

using namespace muster;
using namespace muster::engine;

namespace {

/// What one training read between its forward passes.
struct Reads {
  std::size_t of_pass = 0, passes = 0, most = 0;

  void count(std::size_t samples) { of_pass += samples; }
  void end_pass() {
    ++passes;
    most = std::max(most, of_pass);
    of_pass = 0;
  }
};

struct Trained {
  std::string model_sha256;
  std::uint64_t computations = 0;
  std::vector<Reads> reads;  ///< by rank
};

Trained train(const TrainingConfig& config, int processes) {
  Trained all;
  all.reads.resize(static_cast<std::size_t>(processes));
  std::vector<TrainingSummary> summaries(all.reads.size());
  test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    Reads& reads = all.reads[rank];
    TrainingHooks hooks;
    hooks.on_batch = [&](std::int64_t, data::RankRange, std::span<const std::uint64_t> samples) {
      reads.count(samples.size());
    };
    hooks.at = [&](std::string_view point, std::int64_t) {
      if (point == point::kForward) reads.end_pass();
      return Status();
    };
    const SystemClock clock;
    const auto summary = run_training(config, communicator, clock, hooks);
    MUSTER_CHECK(summary.has_value());
    summaries[rank] = *summary;
  });
  all.model_sha256 = summaries[0].model_sha256;
  for (const TrainingSummary& one : summaries) all.computations += one.logical_rank_computations;
  return all;
}

/// 16 logical ranks of 4 samples, or of 2.
void train_in_passes(TrainingConfig config, const std::string& expected) {
  const int rows = config.batch_size / config.logical_ranks;
  for (const int processes : {1, 2, 3, 5}) {
    config.threads = 1 + processes % 2;
    for (const int ranks : {1, 2, 3, 5, 8}) {
      CAPTURE(processes);
      CAPTURE(ranks);
      config.micro_batch_size = ranks * rows + rows - 1;  // what does not fill a rank is not used
      const Trained trained = train(config, processes);
      CHECK(trained.model_sha256 == expected);
      CHECK(trained.computations == 16u * static_cast<std::uint64_t>(config.steps));
      for (const Reads& reads : trained.reads) {
        CHECK(reads.most <= static_cast<std::size_t>(ranks * rows));
        CHECK(reads.most > 0);
        CHECK(reads.passes >= static_cast<std::size_t>(config.steps));
      }
    }
  }
}

}  // namespace

TEST_CASE("in passes of few samples: the same bits, whoever makes them") {
  for (auto* const config_of :
       {test::digits, test::digits_with_layers, test::digits_in_buckets, test::dropped_gpt}) {
    const TrainingConfig config = config_of(6);
    const Trained at_once = train(config, 1);
    CHECK(at_once.reads[0].passes == 6);
    train_in_passes(config, at_once.model_sha256);
  }
}

TEST_CASE("the golden hash of a transformer that is trained two samples at a time") {
  TrainingConfig config = test::small_gpt(12);
  config.micro_batch_size = 2;
  CHECK(train(config, 1).model_sha256 == test::kSmallGptGolden);
  config.is_sharded = true;
  CHECK(train(config, 3).model_sha256 == test::kSmallGptGolden);
}

TEST_CASE("activations that are computed again have the same bits") {
  TrainingConfig config = test::small_gpt(12);
  config.recomputes_activations = true;
  for (const int processes : {1, 3}) {
    config.threads = 1 + processes % 2;
    config.micro_batch_size = processes == 1 ? 0 : 2;
    CHECK(train(config, processes).model_sha256 == test::kSmallGptGolden);
  }
  config = test::dropped_gpt(6);
  const std::string kept = train(config, 1).model_sha256;
  config.recomputes_activations = true;
  CHECK(train(config, 1).model_sha256 == kept);
}

TEST_CASE("of activations that are computed again, the memory is that of one branch") {
  kernels::cpu::Context context(1);
  const auto bytes = [&](int layers, Activations activations) {
    return Model(ModelShape::gpt({layers, 2, 32, 16}, 256), 2, context, activations).arena_bytes();
  };
  const std::size_t position = 2 * 16 * sizeof(float);
  // Of a block: after either branch, the stream; within them 1 + 3 + 1 and 1 + 4 + 4 widths.
  const std::size_t stream = 2 * 32 * position, within = (5 + 9) * 32 * position;
  const std::size_t kept = bytes(3, Activations::kKept) - bytes(2, Activations::kKept);
  const std::size_t left = bytes(3, Activations::kRecomputed) - bytes(2, Activations::kRecomputed);
  CHECK(kept - left == within);
  CHECK(left >= stream);
  CHECK(left < stream + within / 8);  // means and the like stay
  CHECK(bytes(2, Activations::kKept) - bytes(2, Activations::kRecomputed) ==
        2 * within - 9 * 32 * position);
}

namespace {

/// How often the files of some directories have been opened, as the system tells it.
class OpenedFiles {
 public:
  OpenedFiles() : events_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    REQUIRE(events_.get() >= 0);
  }

  /// From the first call on.
  void watch(const std::vector<std::string>& directories) {
    std::call_once(is_watched_, [&] {
      for (const std::string& one : directories) {
        // With the closing between them, two openings of one file are not told as one.
        MUSTER_CHECK(::inotify_add_watch(events_.get(), one.c_str(), IN_OPEN | IN_CLOSE) >= 0);
      }
    });
  }

  int count() {
    const std::lock_guard lock(mutex_);
    std::array<char, 4096> bytes;
    for (;;) {
      const ssize_t got = ::read(events_.get(), bytes.data(), bytes.size());
      if (got <= 0) return count_;
      for (const char* at = bytes.data(); at < bytes.data() + got;) {
        inotify_event event;
        std::memcpy(&event, at, sizeof event);
        count_ += (event.mask & IN_OPEN) != 0 && (event.mask & IN_ISDIR) == 0 ? 1 : 0;
        at += sizeof event + event.len;
      }
    }
  }

  Status await(int openings) {
    const SystemClock clock;
    const MonoTime deadline = clock.mono_now() + seconds(20);
    while (count() < openings) {
      if (clock.mono_now() > deadline) {
        return Error(ErrorCode::kDeadlineExceeded, std::to_string(count()) + " files were opened");
      }
      pollfd more{events_.get(), POLLIN, 0};
      ::poll(&more, 1, 10);  // or another thread has read of it
    }
    return {};
  }

 private:
  UniqueFd events_;
  std::once_flag is_watched_;
  std::mutex mutex_;
  int count_ = 0;
};

constexpr int kPictures = 128;

TrainingConfig config_of_pictures(const test::TempDirectory& directory) {
  for (int i = 0; i < kPictures; ++i) {
    const std::string of_class = directory / (i % 2 == 0 ? "a" : "b");
    std::filesystem::create_directories(of_class);
    test::write_bytes(of_class + "/" + std::to_string(i),
                      test::png_bytes(8, 8, test::Bytes(192, static_cast<std::uint8_t>(i))));
  }
  TrainingConfig config = test::digits(6);
  config.data_root = directory.path();
  config.train = {.folder = ".", .height = 8, .width = 8};
  config.has_test = false;
  config.batch_size = 16;
  config.most_data_held = kPictures * 192 - 1;  // so that a quarter of all may wait
  return config;
}

}  // namespace

TEST_CASE("the next step's pictures are decoded ahead, each once, in however many pieces") {
  struct Division {
    int processes, micro_batch, stages;
  };
  // Pieces of four in four passes; one of four and some in one pass; two at a time, through stages.
  for (const Division division : {Division{1, 4, 1}, Division{3, 0, 1}, Division{2, 0, 2}}) {
    CAPTURE(division.processes);
    CAPTURE(division.stages);
    const test::TempDirectory directory;
    TrainingConfig config = config_of_pictures(directory);
    config.micro_batch_size = division.micro_batch;
    config.stages = division.stages;
    config.processes = division.processes;
    OpenedFiles opened;
    std::vector<Status> ends(static_cast<std::size_t>(division.processes));
    test::on_all_ranks(division.processes, [&](comm::Communicator& communicator) {
      TrainingConfig own = config;
      own.place = communicator.rank() % config.group_size();
      TrainingHooks hooks;
      hooks.at = [&](std::string_view point, std::int64_t step) {
        // All have read all once by then, and nobody a sample of a step.
        if (point == point::kEnter) opened.watch({directory / "a", directory / "b"});
        const int of_next = static_cast<int>(std::min(step + 2, config.steps)) * config.batch_size;
        return point == point::kUpdate ? opened.await(of_next) : Status();
      };
      const SystemClock clock;
      const auto summary = run_training(own, communicator, clock, hooks);
      if (summary) return;
      ends[static_cast<std::size_t>(communicator.rank())] = summary.error();
      communicator.abort();
    });
    for (const Status& end : ends) REQUIRE_MESSAGE(end, end.error().message());
    // Behind the last step nobody comes for any.
    CHECK(opened.count() == config.steps * config.batch_size);
  }
}
