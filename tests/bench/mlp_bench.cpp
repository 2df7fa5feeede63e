// Trains one MLP on made-up images with the engine itself, one worker, and prints
// `images_per_second X peak_rss_mib Y`. tests/bench/training.py runs it beside PyTorch.
//   mlp_bench --shape 784-256-10 --batch 64 --threads 2 [--logical-ranks 8] [--seconds 3]
// With --cnn 32-64 a CNN with stages of so many channels before these layers, of square images:
//   mlp_bench --shape 784-10 --cnn 32-64 --batch 512
// With --hash-every 1 as a job with checkpoints: with a record, which has the parameters' SHA-256
// of every so many steps.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "tests/bench/made_up_data.h"
#include "tests/bench/measured_training.h"

namespace {

using namespace muster;

constexpr std::uint32_t kImages = 4096;
constexpr int kWarmUpSteps = 20, kWarmUpStepsOfCnn = 3;

std::vector<int> numbers_of(const std::string& shape) {
  std::vector<int> numbers;
  for (std::size_t at = 0; at < shape.size();) {
    numbers.push_back(std::atoi(shape.c_str() + at));
    const std::size_t dash = shape.find('-', at);
    at = dash == std::string::npos ? shape.size() : dash + 1;
  }
  return numbers;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{
      {"--shape", "784-256-10"}, {"--cnn", ""},      {"--batch", "64"},    {"--threads", "2"},
      {"--logical-ranks", "8"},  {"--seconds", "3"}, {"--hash-every", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!options.contains(argv[i])) {
      std::fprintf(stderr, "mlp_bench: unknown option %s\n", argv[i]);
      return 2;
    }
    options[argv[i]] = argv[i + 1];
  }
  const std::vector<int> widths = numbers_of(options["--shape"]);
  if (widths.size() < 2) {
    std::fprintf(stderr, "mlp_bench: --shape must be widths like 784-256-10\n");
    return 2;
  }
  engine::TrainingConfig config;
  const std::vector<int> hidden(widths.begin() + 1, widths.end() - 1);
  std::vector<std::uint32_t> image{static_cast<std::uint32_t>(widths.front())};
  if (const std::vector<int> channels = numbers_of(options["--cnn"]); !channels.empty()) {
    const auto side = static_cast<std::uint32_t>(std::lround(std::sqrt(widths.front())));
    if (side * side != image.front()) {
      std::fprintf(stderr, "mlp_bench: --cnn wants the pixels of a square in --shape\n");
      return 2;
    }
    image = {side, side};
    config.cnn = engine::CnnConfig{channels, 3, true, hidden, 0};
  } else {
    config.mlp.hidden = hidden;
  }
  const bench::Scratch directory;
  bench::write_images(directory.path(), kImages, image, widths.back());
  config.steps = bench::kStepsMax;
  config.batch_size = std::atoi(options["--batch"].c_str());
  config.threads = std::atoi(options["--threads"].c_str());
  config.logical_ranks = std::atoi(options["--logical-ranks"].c_str());
  config.train = {"images", "labels"};
  config.data_root = directory.path();
  config.sgd = {0.01f, 0.9f};
  config.hash_every_steps = std::atoi(options["--hash-every"].c_str());
  if (config.hash_every_steps > 0) {
    config.checkpoint_path = directory.path() + "/checkpoints";
    config.checkpoint_every_steps = bench::kStepsMax;
  }
  const bench::Measured measured =
      bench::measure(config, config.cnn ? kWarmUpStepsOfCnn : kWarmUpSteps,
                     std::atof(options["--seconds"].c_str()));
  std::printf("images_per_second %.0f peak_rss_mib %.1f\n",
              static_cast<double>(measured.steps * config.batch_size) / measured.seconds,
              bench::peak_rss_mib());
  return 0;
}
