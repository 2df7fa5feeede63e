// Trains one GPT over made-up tokens with the engine itself, one worker, and prints
// `tokens_per_second X peak_rss_mib Y`. tests/bench/training.py runs it beside PyTorch.
//   gpt_bench --shape LAYERS-HEADS-WIDTH-CONTEXT[-TOKENS] --batch 12 --threads 2
//   [--logical-ranks 4] [--precision Float32|BFloat16] [--seconds 5]
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "tests/bench/made_up_data.h"
#include "tests/bench/measured_training.h"

namespace {

using namespace muster;

constexpr std::int64_t kWarmUpSteps = 3;
constexpr int kSamples = 256;

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--shape", "4-4-128-64"},  {"--batch", "12"},
                                             {"--threads", "2"},         {"--logical-ranks", "4"},
                                             {"--precision", "Float32"}, {"--seconds", "5"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!options.contains(argv[i])) {
      std::fprintf(stderr, "gpt_bench: unknown option %s\n", argv[i]);
      return 2;
    }
    options[argv[i]] = argv[i + 1];
  }
  engine::TrainingConfig config;
  engine::GptConfig& gpt = config.gpt.emplace();
  if (std::sscanf(options["--shape"].c_str(), "%d-%d-%d-%d-%d", &gpt.layers, &gpt.heads, &gpt.width,
                  &gpt.context_length, &gpt.vocabulary_size) < 4) {
    std::fprintf(stderr,
                 "gpt_bench: --shape must be layers, heads, width, context and, unless 256, "
                 "tokens: 4-4-128-64\n");
    return 2;
  }
  const bench::Scratch directory;
  bench::write_shard(directory.path(), kSamples, gpt.context_length, gpt.vocabulary_size);
  config.steps = bench::kStepsMax;
  config.batch_size = std::atoi(options["--batch"].c_str());
  config.threads = std::atoi(options["--threads"].c_str());
  config.logical_ranks = std::atoi(options["--logical-ranks"].c_str());
  config.train.shards = {"shard"};
  config.data_root = directory.path();
  config.adamw = engine::AdamwConfig{0.001f, 0.9f, 0.99f, 1e-8f, 0.1f};
  config.gradient_norm_max = 1;
  config.hash_every_steps = 0;
  config.is_bfloat16 = options["--precision"] == "BFloat16";
  const bench::Measured measured =
      bench::measure(config, kWarmUpSteps, std::atof(options["--seconds"].c_str()));
  std::printf("tokens_per_second %.0f peak_rss_mib %.1f\n",
              static_cast<double>(measured.steps * config.batch_size * gpt.context_length) /
                  measured.seconds,
              bench::peak_rss_mib());
  return 0;
}
