// What a step waits for its samples. Tokens: 64 samples of 1,024 from a shard of 200 MB of which
// the system holds nothing in memory, read when they are wanted and read ahead while the step
// before is computed. Pictures: a directory of JPEGs, decoded and scaled by one thread and by two.
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
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/rng.h"
#include "tests/unit/data/picture_bytes.h"
#include "tests/unit/data/shard_bytes.h"
#include "worker/data/dataset.h"
#include "worker/data/image_folder.h"
#include "worker/data/tokens.h"

namespace {

using namespace muster;

constexpr std::size_t kContext = 1024, kSamples = 100'000;
constexpr int kSteps = 100;
constexpr milliseconds kComputing{50};
constexpr int kPictures = 400, kHeight = 375, kWidth = 500;
constexpr std::size_t kSide = 64;

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

/// Of each step how long its samples take, and to say which come next.
std::vector<double> read_tokens(const std::string& path, const data::Dataset& set, bool is_ahead) {
  const UniqueFd shard(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (::fsync(shard.get()) != 0 || ::posix_fadvise(shard.get(), 0, 0, POSIX_FADV_DONTNEED) != 0) {
    std::abort();
  }
  const data::Loader loader({7, set.count, 16, 64});
  std::vector<std::int32_t> tokens(kContext), labels(kContext);
  std::vector<std::uint64_t> indices(64);
  std::vector<double> times;
  for (std::int64_t step = 0; step < kSteps; ++step) {
    loader.samples(step, {0, 16}, indices);
    times.push_back(milliseconds_of([&] {
      for (const std::uint64_t index : indices) {
        if (!data::read_sample(set, index, tokens, labels)) std::abort();
      }
      if (is_ahead) data::prefetch(set, loader, step + 1, {0, 16});
    }));
    std::this_thread::sleep_for(kComputing);
  }
  times.erase(times.begin());  // nobody could read ahead of the first
  std::sort(times.begin(), times.end());
  return times;
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

}  // namespace

int main(int argc, char** argv) {
  const bool is_given = argc > 1;
  const test::TempDirectory own;
  const std::string directory = is_given ? argv[1] : own.path();
  const std::string path = directory + "/shard.bin";
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
  write_pictures(directory + "/pictures");
  for (int round = 0; round < 3; ++round) {
    for (const int threads : {1, 2}) {
      const double took = milliseconds_of([&] {
        if (!data::load_image_folder({directory + "/pictures", kSide, kSide, false, threads})) {
          std::abort();
        }
      });
      std::printf("JPEGs of %d x %d to %zu x %zu, %d threads: %.0f a second\n", kHeight, kWidth,
                  kSide, kSide, threads, kPictures / took * 1000);
    }
  }
  std::filesystem::remove_all(directory + "/pictures");
  return 0;
}
