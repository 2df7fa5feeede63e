// Trains one MLP on made-up images with the engine itself, one worker, and prints
// `images_per_second X peak_rss_mib Y`. tests/bench/training.py runs it beside PyTorch.
//   mlp_bench --shape 784-256-10 --batch 64 --threads 2 [--logical-ranks 8] [--seconds 3]
#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "common/rng.h"
#include "tests/bench/measured_training.h"

namespace {

using namespace muster;

constexpr std::uint32_t kImages = 4096;
constexpr int kWarmUpSteps = 20;

void write_idx(const std::string& path, const std::vector<std::uint32_t>& shape,
               const std::vector<char>& values) {
  std::ofstream out(path, std::ios::binary);
  const char magic[] = {0, 0, 8, static_cast<char>(shape.size())};
  out.write(magic, 4);
  for (const std::uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) out.put(static_cast<char>(size >> shift));
  }
  out.write(values.data(), static_cast<std::streamsize>(values.size()));
}

std::vector<int> widths_of(const std::string& shape) {
  std::vector<int> widths;
  for (std::size_t at = 0; at < shape.size();) {
    widths.push_back(std::atoi(shape.c_str() + at));
    const std::size_t dash = shape.find('-', at);
    at = dash == std::string::npos ? shape.size() : dash + 1;
  }
  return widths;
}

void write_data(const std::string& directory, const std::vector<int>& widths) {
  Rng rng(1);
  const auto features = static_cast<std::uint32_t>(widths.front());
  std::vector<char> images(std::size_t{kImages} * features);
  for (char& value : images) value = static_cast<char>(rng.below(256));
  std::vector<char> labels(kImages);
  for (char& label : labels) {
    label = static_cast<char>(rng.below(static_cast<std::uint64_t>(widths.back())));
  }
  write_idx(directory + "/images", {kImages, features}, images);
  write_idx(directory + "/labels", {kImages}, labels);
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
  std::string directory = (std::filesystem::temp_directory_path() / "mlp-bench-XXXXXX").string();
  if (::mkdtemp(directory.data()) == nullptr) return 1;
  write_data(directory, widths);
  engine::TrainingConfig config;
  config.steps = bench::kStepsMax;
  config.batch_size = std::atoi(options["--batch"].c_str());
  config.threads = std::atoi(options["--threads"].c_str());
  config.logical_ranks = std::atoi(options["--logical-ranks"].c_str());
  config.mlp.hidden.assign(widths.begin() + 1, widths.end() - 1);
  config.train = {"images", "labels"};
  config.data_root = directory;
  config.sgd = {0.01f, 0.9f};
  config.hash_every_steps = 0;
  const bench::Measured measured =
      bench::measure(config, kWarmUpSteps, std::atof(options["--seconds"].c_str()));
  std::filesystem::remove_all(directory);
  std::printf("images_per_second %.0f peak_rss_mib %.1f\n",
              static_cast<double>(measured.steps * config.batch_size) / measured.seconds,
              bench::peak_rss_mib());
  return 0;
}
