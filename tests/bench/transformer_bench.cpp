// The operations of a transformer on one core, beside a product of matrices on the same core: how
// much of the vector units' speed attention has, and how fast the others go through memory.
//
//   transformer_bench [--target scalar|avx2|avx512|neon] [--only SUBSTRING]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/ops.h"

namespace {

namespace cpu = muster::kernels::cpu;
using Floats = std::vector<float>;

constexpr int kSamples = 9;

Floats values(std::size_t n) {
  Floats result(n);
  std::uint32_t state = 12345;
  for (float& value : result) {
    state = state * 1664525U + 1013904223U;
    value = static_cast<float>(state >> 8) * 0x1p-24F - 0.5F;
  }
  return result;
}

/// Time of the processor spent on this thread: others cannot lengthen it.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Median of some samples of at least 10 ms each.
double seconds_of(const std::function<void()>& function) {
  function();
  const double begin = thread_seconds();
  function();
  const double once = std::max(1e-7, thread_seconds() - begin);
  const int runs = std::max(1, static_cast<int>(0.01 / once));
  std::vector<double> samples;
  for (int sample = 0; sample < kSamples; ++sample) {
    const double start = thread_seconds();
    for (int run = 0; run < runs; ++run) function();
    samples.push_back((thread_seconds() - start) / runs);
  }
  std::sort(samples.begin(), samples.end());
  return samples[kSamples / 2];
}

struct Bench {
  const char* only;
  cpu::Context context{1};

  /// One row: `amount` of `unit` in units of 1e9.
  void row(const std::string& name, double amount, const char* unit,
           const std::function<void()>& function) const {
    if (name.find(only) == std::string::npos) return;
    const double seconds = seconds_of(function);
    std::printf("| %-44s | %10.1f | %8.1f %s |\n", name.c_str(), 1e6 * seconds,
                1e-9 * amount / seconds, unit);
    std::fflush(stdout);
  }
};

void product(Bench& bench) {
  const std::size_t n = 384;
  const Floats a = values(n * n), b = values(n * n);
  Floats c(n * n);
  bench.row("product 384 x 384 x 384", 2.0 * static_cast<double>(n * n * n), "GF/s", [&] {
    cpu::linear_forward(bench.context, n, n, n, a.data(), b.data(), nullptr,
                        muster::kernels::Activation::kNone, c.data());
  });
}

/// Counted are the products' operations alone, on the scores that there are.
void attention(Bench& bench, const cpu::AttentionShape& shape) {
  const std::size_t n = shape.rows * shape.T * shape.heads * shape.D;
  const Floats qkv = values(3 * n), dy = values(n);
  Floats y(n), dqkv(3 * n), greatest(shape.rows * shape.heads * shape.T), total(greatest);
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.D));
  const double flops = static_cast<double>(n) * static_cast<double>(shape.T + 1);
  const std::string name = "T " + std::to_string(shape.T) + ", " + std::to_string(shape.heads) +
                           " heads of " + std::to_string(shape.D);
  for (const float share : {0.0F, 0.1F}) {
    const cpu::WeightDrop drop{1, 0, 0, share, 1.0F / (1.0F - share)};
    const std::string end = name + (share > 0.0F ? ", dropped" : "");
    const auto forward = [&] {
      cpu::attention(bench.context, shape, qkv.data(), scale, drop, y.data(), greatest.data(),
                     total.data());
    };
    forward();
    bench.row("attention " + end, 2.0 * flops, "GF/s", forward);
    bench.row("attention backward " + end, 5.0 * flops, "GF/s", [&] {
      cpu::attention_backward(bench.context, shape, qkv.data(), scale, drop, greatest.data(),
                              total.data(), dy.data(), dqkv.data());
    });
  }
}

/// Counted are the bytes of the buffers, each once.
void rows(Bench& bench, std::size_t M, std::size_t C) {
  const std::size_t n = M * C;
  const Floats x = values(n), dy = values(n), gamma = values(C), beta = values(C);
  Floats y(n), mean(M), inverse(M), dgamma(C), dbeta(C);
  const double bytes = 4.0 * static_cast<double>(n);
  const std::string name = " " + std::to_string(M) + " x " + std::to_string(C);
  cpu::layer_norm(bench.context, M, C, x.data(), gamma.data(), beta.data(), 1e-5F, mean.data(),
                  inverse.data(), y.data());
  bench.row("layer norm" + name, 2.0 * bytes, "GB/s", [&] {
    cpu::layer_norm(bench.context, M, C, x.data(), gamma.data(), beta.data(), 1e-5F, mean.data(),
                    inverse.data(), y.data());
  });
  bench.row("layer norm, input" + name, 4.0 * bytes, "GB/s", [&] {
    cpu::layer_norm_backward_input(bench.context, M, C, x.data(), mean.data(), inverse.data(),
                                   gamma.data(), dy.data(), dy.data(), y.data());
  });
  bench.row("layer norm, weights of 8 ranks" + name, 2.0 * bytes, "GB/s", [&] {
    cpu::layer_norm_backward_weights(bench.context, 8, M / 8, C, x.data(), mean.data(),
                                     inverse.data(), dy.data(), dgamma.data(), dbeta.data());
  });
  bench.row("gelu" + name, 2.0 * bytes, "GB/s",
            [&] { cpu::gelu(bench.context, n, x.data(), y.data()); });
  bench.row("gelu backward" + name, 3.0 * bytes, "GB/s",
            [&] { cpu::gelu_backward(bench.context, n, x.data(), dy.data(), y.data()); });
  bench.row("add" + name, 3.0 * bytes, "GB/s",
            [&] { cpu::add(bench.context, n, x.data(), dy.data(), y.data()); });
  std::vector<std::int32_t> tokens(M);
  for (std::size_t m = 0; m < M; ++m) tokens[m] = static_cast<std::int32_t>(m * 7919 % 256);
  Floats table = values(256 * C);
  bench.row("embed" + name, 2.0 * bytes, "GB/s", [&] {
    cpu::embed(bench.context, M, M / 8, C, tokens.data(), table.data(), x.data(), y.data());
  });
  bench.row("token rows" + name, 2.0 * bytes, "GB/s", [&] {
    cpu::add_token_rows(bench.context, M, C, {0, 256}, tokens.data(), dy.data(), table.data());
  });
  bench.row("positions of 8 ranks" + name, bytes, "GB/s",
            [&] { cpu::position_gradient(bench.context, 8, 1, M / 8, C, dy.data(), y.data()); });
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

}  // namespace

int main(int argc, char** argv) {
  Bench bench{""};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--only") == 0) bench.only = argv[i + 1];
    if (std::strcmp(argv[i], "--target") == 0 && !choose_target(argv[i + 1])) {
      std::fprintf(stderr, "transformer_bench: --target %s: this machine has no such target\n",
                   argv[i + 1]);
      return 2;
    }
  }
  std::printf("target %s, one thread, median of %d\n", cpu::name_of(cpu::best_target()), kSamples);
  std::printf("| operation | microseconds | speed |\n|---|---|---|\n");
  product(bench);
  for (const std::size_t T : {64, 128, 256, 1024}) {
    for (const std::size_t D : {32, 64}) attention(bench, {1, T, 4, D});
  }
  rows(bench, 1024, 128);
  rows(bench, 2048, 384);
  return 0;
}
