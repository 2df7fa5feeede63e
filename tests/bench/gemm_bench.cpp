// Our matrix products beside OpenBLAS on one core: both in turn on the same buffers, seven times or
// N; the ratio is the median of the pairs' ratios, so that a busy moment hits both.
//
//   gemm_bench [--target scalar|avx2|avx512|neon] [--only SUBSTRING] [--pairs N]
#include <cblas.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string_view>
#include <vector>

#include "kernels/ops.h"

extern "C" void openblas_set_num_threads(int threads);
extern "C" char* openblas_get_corename();

namespace {

namespace cpu = muster::kernels::cpu;

enum class Kind { kForward, kInput, kWeights };

struct Case {
  const char* name;
  Kind kind;
  std::size_t M, N, K;
  std::size_t ranks;  // 1: the plain product; more have no peer and stay out of the mean
};

constexpr Case kCases[] = {
    {"mlp 784x256 batch 64, forward", Kind::kForward, 64, 256, 784, 1},
    {"mlp 784x256 batch 64, weights", Kind::kWeights, 64, 256, 784, 1},
    {"mlp 784x256 batch 512, forward", Kind::kForward, 512, 256, 784, 1},
    {"mlp 784x256 batch 512, weights", Kind::kWeights, 512, 256, 784, 1},
    {"mlp 500x500 batch 512, forward", Kind::kForward, 512, 500, 500, 1},
    {"mlp 500x500 batch 512, input", Kind::kInput, 512, 500, 500, 1},
    {"mlp 500x500 batch 512, weights", Kind::kWeights, 512, 500, 500, 1},
    {"mlp 500x10 batch 512, forward", Kind::kForward, 512, 10, 500, 1},
    {"mlp 500x10 batch 512, input", Kind::kInput, 512, 10, 500, 1},
    {"mlp 500x10 batch 512, weights", Kind::kWeights, 512, 10, 500, 1},
    {"mlp 256x10 batch 64, forward", Kind::kForward, 64, 10, 256, 1},
    {"gpt C128 qkv, forward", Kind::kForward, 768, 384, 128, 1},
    {"gpt C128 proj, forward", Kind::kForward, 768, 128, 128, 1},
    {"gpt C128 up, forward", Kind::kForward, 768, 512, 128, 1},
    {"gpt C128 down, forward", Kind::kForward, 768, 128, 512, 1},
    {"gpt C128 up, input", Kind::kInput, 768, 512, 128, 1},
    {"gpt C128 up, weights", Kind::kWeights, 768, 512, 128, 1},
    {"gpt C384 qkv, forward", Kind::kForward, 2048, 1152, 384, 1},
    {"gpt C384 proj, forward", Kind::kForward, 2048, 384, 384, 1},
    {"gpt C384 up, forward", Kind::kForward, 2048, 1536, 384, 1},
    {"gpt C384 down, forward", Kind::kForward, 2048, 384, 1536, 1},
    {"gpt C384 up, input", Kind::kInput, 2048, 1536, 384, 1},
    {"gpt C384 up, weights", Kind::kWeights, 2048, 1536, 384, 1},
    {"conv 3x3x16 to 32 at 14x14, forward", Kind::kForward, 12544, 32, 144, 1},
    {"conv 3x3x32 to 64 at 7x7, forward", Kind::kForward, 3136, 64, 288, 1},
    {"conv 3x3x32 to 64 at 7x7, input", Kind::kInput, 3136, 64, 288, 1},
    {"conv 3x3x32 to 64 at 7x7, weights", Kind::kWeights, 3136, 64, 288, 1},
    {"mlp 784x256 batch 64, weights of 8 ranks", Kind::kWeights, 64, 256, 784, 8},
    {"mlp 784x256 batch 512, weights of 8 ranks", Kind::kWeights, 512, 256, 784, 8},
    {"gpt C384 up, weights of 16 ranks", Kind::kWeights, 2048, 1536, 384, 16},
};

struct Buffers {
  std::vector<float> a, b, c, bias;
};

std::vector<float> values(std::size_t n) {
  std::vector<float> result(n);
  std::uint32_t state = 12345;
  for (float& value : result) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) * 0x1p-24F - 0.5F;
  }
  return result;
}

void ours(cpu::Context& context, const Case& c, Buffers& buffers) {
  float* out = buffers.c.data();
  const float* a = buffers.a.data();
  const float* b = buffers.b.data();
  switch (c.kind) {
    case Kind::kForward:
      cpu::linear_forward(context, c.M, c.N, c.K, a, b, nullptr, muster::kernels::Activation::kNone,
                          out);
      return;
    case Kind::kInput:
      cpu::linear_backward_input(context, c.M, c.N, c.K, a, b, nullptr, out);
      return;
    case Kind::kWeights:
      cpu::linear_backward_weights(context, c.ranks, c.M / c.ranks, c.N, c.K, a, b, out, nullptr);
      return;
  }
}

void theirs(const Case& c, Buffers& buffers) {
  const int m = static_cast<int>(c.M);
  const int n = static_cast<int>(c.N);
  const int k = static_cast<int>(c.K);
  float* out = buffers.c.data();
  const float* a = buffers.a.data();
  const float* b = buffers.b.data();
  switch (c.kind) {
    case Kind::kForward:
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, n, k, 1, a, k, b, n, 0, out, n);
      return;
    case Kind::kInput:
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, k, n, 1, a, n, b, n, 0, out, k);
      return;
    case Kind::kWeights:
      cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, k, n, m, 1, a, k, b, n, 0, out, n);
      return;
  }
}

/// Time of the processor spent on this thread, both sides' only one: others cannot lengthen it.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Function>
double seconds(int runs, Function&& function) {
  const double begin = thread_seconds();
  for (int i = 0; i < runs; ++i) function();
  return (thread_seconds() - begin) / runs;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

/// Prints one row and returns the ratio.
double measure(cpu::Context& context, const Case& c, int pairs) {
  const std::size_t size = std::max({c.M * c.N, c.N * c.K, c.M * c.K});
  Buffers buffers{values(size), values(size), std::vector<float>(size), {}};
  const auto own = [&] { ours(context, c, buffers); };
  const auto peer = [&] { theirs(c, buffers); };
  own();
  peer();
  const double once = std::max(1e-7, std::min(seconds(3, own), seconds(3, peer)));
  const int runs = std::max(1, static_cast<int>(0.02 / once));
  std::vector<double> own_times, peer_times, ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    own_times.push_back(seconds(runs, own));
    peer_times.push_back(seconds(runs, peer));
    ratios.push_back(peer_times.back() / own_times.back());
  }
  const double flops = 2e-9 * static_cast<double>(c.M) * static_cast<double>(c.N * c.K);
  std::printf("| %-42s | %5zu x %4zu x %4zu | %7.1f | %8.1f | %5.2f |\n", c.name, c.M, c.N, c.K,
              flops / median(own_times), flops / median(peer_times), median(ratios));
  std::fflush(stdout);
  return median(ratios);
}

bool choose_target(std::string_view name) {
  for (const cpu::Target target :
       {cpu::Target::kScalar, cpu::Target::kAvx2, cpu::Target::kAvx512, cpu::Target::kNeon}) {
    if (name != cpu::name_of(target)) continue;
    if (!cpu::has_target(target)) return false;
    cpu::force_target(target);
    return true;
  }
  return false;
}

/// OpenBLAS chooses when it is loaded, and gives processors newer than itself its kernels for
/// AVX2. Beside our AVX-512 it shall run its own.
bool wants_better_core() {
  const std::string_view core = openblas_get_corename();
  return core == "Haswell" || core == "Zen";
}

}  // namespace

int main(int argc, char** argv) {
  const char* only = "";
  int pairs = 7;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--only") == 0) only = argv[i + 1];
    if (std::strcmp(argv[i], "--pairs") == 0) pairs = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--target") == 0 && !choose_target(argv[i + 1])) {
      std::fprintf(stderr, "gemm_bench: --target %s: this machine has no such target\n",
                   argv[i + 1]);
      return 2;
    }
  }
  if (cpu::best_target() == cpu::Target::kAvx512 && wants_better_core()) {
    setenv("OPENBLAS_CORETYPE", "SkylakeX", 1);
    execv("/proc/self/exe", argv);
  }
  openblas_set_num_threads(1);
  cpu::Context context(1);
  std::printf("target %s, OpenBLAS core %s, one thread, median of %d interleaved pairs\n",
              cpu::name_of(cpu::best_target()), openblas_get_corename(), pairs);
  std::printf(
      "| product | M x N x K | ours GF/s | OpenBLAS GF/s | ratio |\n|---|---|---|---|---|\n");
  double logs = 0.0, least = 1e9;
  int count = 0;
  for (const Case& c : kCases) {
    if (std::strstr(c.name, only) == nullptr) continue;
    const double ratio = measure(context, c, pairs);
    if (c.ranks != 1) continue;
    logs += std::log(ratio);
    least = std::min(least, ratio);
    ++count;
  }
  if (count == 0) return 0;
  std::printf("\ngeometric mean %.3f, least %.3f over %d products\n", std::exp(logs / count), least,
              count);
  return 0;
}
