// What a step waits for its samples. Tokens: 64 samples of 1,024 from a shard of 200 MB of which
// the system holds nothing in memory, read when they are wanted and read ahead while the step
// before is computed. Pictures: a directory of JPEGs, decoded and scaled by one thread and by two;
// those of a step, decoded when they are wanted and ahead, while a device computes; and what a
// worker does with them before it can train, at a start and where others tell it what they have
// found. Tables: read at a start, and rows that stay in their file.
//
//   reading_bench [DIRECTORY]     default: a directory below /tmp, removed at the end
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/rng.h"
#include "tests/unit/data/picture_bytes.h"
#include "tests/unit/data/shard_bytes.h"
#include "worker/data/csv.h"
#include "worker/data/dataset.h"
#include "worker/data/image_folder.h"
#include "worker/data/loader.h"
#include "worker/data/picture.h"
#include "worker/data/picture_files.h"
#include "worker/data/prefetch.h"
#include "worker/data/table_file.h"
#include "worker/data/tokens.h"

namespace {

using namespace muster;

constexpr std::size_t kContext = 1024, kSamples = 100'000;
constexpr int kSteps = 100;
constexpr milliseconds kComputing{50};
constexpr int kPictures = 400, kHeight = 375, kWidth = 500;
constexpr std::size_t kSide = 64;
constexpr int kRows = 200'000, kColumns = 20;

double milliseconds_of(const auto& function) {
  const SystemClock clock;
  const MonoTime start = clock.mono_now();
  function();
  return std::chrono::duration<double, std::milli>(clock.mono_now() - start).count();
}

void write_shard(const std::string& path) {
  const std::vector<std::uint32_t> tokens(kSamples * kContext + 1, 1);
  const test::Bytes bytes = test::shard_bytes(tokens);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

struct Pace {
  int steps, samples;
  milliseconds computing;
};

/// Of each step how long its samples take, and to say which come next; in order.
std::vector<double> read_steps(const data::Dataset& set, const Pace& pace, bool is_ahead,
                               const std::function<bool(std::uint64_t index)>& read) {
  const data::Loader loader({7, set.count, pace.samples, pace.samples});
  const data::RankRange all{0, pace.samples};
  std::vector<std::uint64_t> indices(static_cast<std::size_t>(pace.samples));
  std::vector<double> times;
  for (std::int64_t step = 0; step < pace.steps; ++step) {
    loader.samples(step, all, indices);
    times.push_back(milliseconds_of([&] {
      for (const std::uint64_t index : indices) {
        if (!read(index)) std::abort();
      }
      if (is_ahead) data::prefetch(set, loader, step + 1, all);
    }));
    std::this_thread::sleep_for(pace.computing);
  }
  times.erase(times.begin());  // nobody could read ahead of the first
  std::sort(times.begin(), times.end());
  return times;
}

std::vector<double> read_tokens(const std::string& path, const data::Dataset& set, bool is_ahead) {
  const UniqueFd shard(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (::fsync(shard.get()) != 0 || ::posix_fadvise(shard.get(), 0, 0, POSIX_FADV_DONTNEED) != 0) {
    std::abort();
  }
  std::vector<std::int32_t> tokens(kContext), labels(kContext);
  return read_steps(set, {kSteps, 64, kComputing}, is_ahead, [&](std::uint64_t index) {
    return data::read_sample(set, index, tokens, labels).has_value();
  });
}

void print_tokens(const std::string& path) {
  write_shard(path);
  const auto set = data::load_tokens({{path}, 256, kContext});
  if (!set) std::abort();
  std::printf("64 samples of 1,024 tokens, ms a step  |  p50  |  most of %d\n", kSteps - 1);
  for (int round = 0; round < 3; ++round) {
    for (const bool is_ahead : {false, true}) {
      const std::vector<double> times = read_tokens(path, *set, is_ahead);
      std::printf("%-38s | %5.2f | %5.1f\n", is_ahead ? "read ahead" : "read when they are wanted",
                  times[times.size() / 2], times.back());
    }
  }
  std::filesystem::remove(path);
}

void write_pictures(const std::string& directory) {
  Rng rng(1);
  std::filesystem::create_directories(directory + "/a");
  for (int picture = 0; picture < kPictures; ++picture) {
    std::vector<std::uint8_t> pixels;
    // Smooth, with some noise: what a camera sees.
    for (int at = 0; at < kHeight * kWidth; ++at) {
      for (int color = 0; color < 3; ++color) {
        const int value = at / kWidth / 2 + at % kWidth / 4 + color * picture % 40;
        pixels.push_back(static_cast<std::uint8_t>(value + static_cast<int>(rng.below(12))));
      }
    }
    test::write_bytes(directory + "/a/" + std::to_string(picture) + ".jpg",
                      test::jpeg_bytes(kHeight, kWidth, pixels));
  }
}

data::Dataset load_pictures(const std::string& directory, int threads, std::uint64_t most_held) {
  auto set = data::load_image_folder({directory, kSide, kSide, false, threads, most_held});
  if (!set) std::abort();
  return *std::move(set);
}

/// Before a worker can train on them.
void print_start(const std::string& directory) {
  const data::Dataset known = load_pictures(directory, 2, 0);
  for (int round = 0; round < 3; ++round) {
    const double first = milliseconds_of([&] { load_pictures(directory, 2, 0); });
    const double later = milliseconds_of([&] {
      const auto set = data::load_image_folder(
          {directory, kSide, kSide, false, 2, 0, /*is_checked_by_others=*/true});
      if (!set) std::abort();
      set->pictures->take_check(*known.pictures->check());
    });
    std::printf("%d JPEGs, 2 threads, ms before a worker trains: at a start %.0f, who joins %.2f\n",
                kPictures, first, later);
  }
}

void write_table(const std::string& path) {
  Rng rng(1);
  std::ofstream file(path, std::ios::binary);
  for (int column = 0; column < kColumns; ++column) file << "c" << column << ",";
  file << "label\n";
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      if (column % 5 == 4) {
        file << "word" << rng.below(20) << ",";
      } else {
        file << static_cast<double>(rng.below(1'000'000)) / 997 << ",";
      }
    }
    file << rng.below(10) << "\n";
  }
}

void print_tables(const std::string& path) {
  write_table(path);
  data::CsvSource source{path, "label", {true, true, true}};
  data::Dataset rows;
  for (const std::uint64_t most_held : {source.most_held, std::uint64_t{32} << 20}) {
    source.most_held = most_held;
    for (int round = 0; round < 3; ++round) {
      const double took = milliseconds_of([&] {
        auto set = data::load_csv(source);
        if (!set) std::abort();
        rows = *std::move(set);
      });
      std::printf("%d rows of %d columns at a start, %s: %.0f ms, %.1f MB in memory then\n", kRows,
                  kColumns, rows.rows == nullptr ? "held" : "left in their file", took,
                  static_cast<double>(rows.memory()) / 1e6);
    }
  }
  std::printf("256 rows a step, ms a step, 1 thread     |  p50  |  most of %d\n", kSteps - 1);
  std::vector<float> row(rows.features);
  for (int round = 0; round < 3; ++round) {
    for (const bool is_ahead : {false, true}) {
      const std::vector<double> times = read_steps(
          rows, {kSteps, 256, kComputing / 5}, is_ahead,
          [&](std::uint64_t index) { return data::read_row(rows, index, row).has_value(); });
      std::printf("%-40s | %5.2f | %5.1f\n", is_ahead ? "read ahead" : "read when they are wanted",
                  times[times.size() / 2], times.back());
    }
  }
  std::filesystem::remove(path);
}

void print_pictures(const std::string& directory) {
  write_pictures(directory);
  print_start(directory);
  for (int round = 0; round < 3; ++round) {
    for (const int threads : {1, 2}) {
      const double took =
          milliseconds_of([&] { load_pictures(directory, threads, data::kMostHeldBytes); });
      std::printf("JPEGs of %d x %d to %zu x %zu, %d threads: %.0f a second\n", kHeight, kWidth,
                  kSide, kSide, threads, kPictures / took * 1000);
    }
  }
  std::printf("32 of them a step, ms a step, 2 threads |  p50  |  most of %d\n", kSteps / 4 - 1);
  const data::Dataset files =
      load_pictures(directory, 2, kPictures * kSide * kSide * data::kColors / 2);
  std::vector<std::uint8_t> buffer;
  for (int round = 0; round < 3; ++round) {
    for (const bool is_ahead : {false, true}) {
      const std::vector<double> times = read_steps(
          files, {kSteps / 4, 32, 4 * kComputing}, is_ahead,
          [&](std::uint64_t index) { return data::read_image(files, index, buffer).has_value(); });
      std::printf("%-39s | %5.1f | %5.1f\n",
                  is_ahead ? "decoded ahead" : "decoded when they are wanted",
                  times[times.size() / 2], times.back());
    }
  }
  std::filesystem::remove_all(directory);
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_given = argc > 1;
  const test::TempDirectory own;
  const std::string directory = is_given ? argv[1] : own.path();
  print_tokens(directory + "/shard.bin");
  print_pictures(directory + "/pictures");
  print_tables(directory + "/table.csv");
  return 0;
}
