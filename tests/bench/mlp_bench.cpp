// Trains one MLP on made-up images with the engine itself, one worker, and prints
// `images_per_second X peak_rss_mib Y`. tests/bench/training.py runs it beside PyTorch.
//   mlp_bench --shape 784-256-10 --batch 64 --threads 2 [--logical-ranks 8] [--seconds 3]
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
constexpr int kWarmUpSteps = 20;

std::vector<int> widths_of(const std::string& shape) {
  std::vector<int> widths;
  for (std::size_t at = 0; at < shape.size();) {
    widths.push_back(std::atoi(shape.c_str() + at));
    const std::size_t dash = shape.find('-', at);
    at = dash == std::string::npos ? shape.size() : dash + 1;
  }
  return widths;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--shape", "784-256-10"},
                                             {"--batch", "64"},
                                             {"--threads", "2"},
                                             {"--logical-ranks", "8"},
                                             {"--seconds", "3"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!options.contains(argv[i])) {
      std::fprintf(stderr, "mlp_bench: unknown option %s\n", argv[i]);
      return 2;
    }
    options[argv[i]] = argv[i + 1];
  }
  const std::vector<int> widths = widths_of(options["--shape"]);
  if (widths.size() < 2) {
    std::fprintf(stderr, "mlp_bench: --shape must be widths like 784-256-10\n");
    return 2;
  }
  const bench::Scratch directory;
  bench::write_images(directory.path(), kImages, {static_cast<std::uint32_t>(widths.front())},
                      widths.back());
  engine::TrainingConfig config;
  config.steps = bench::kStepsMax;
  config.batch_size = std::atoi(options["--batch"].c_str());
  config.threads = std::atoi(options["--threads"].c_str());
  config.logical_ranks = std::atoi(options["--logical-ranks"].c_str());
  config.mlp.hidden.assign(widths.begin() + 1, widths.end() - 1);
  config.train = {"images", "labels"};
  config.data_root = directory.path();
  config.sgd = {0.01f, 0.9f};
  config.hash_every_steps = 0;
  const bench::Measured measured =
      bench::measure(config, kWarmUpSteps, std::atof(options["--seconds"].c_str()));
  std::printf("images_per_second %.0f peak_rss_mib %.1f\n",
              static_cast<double>(measured.steps * config.batch_size) / measured.seconds,
              bench::peak_rss_mib());
  return 0;
}
