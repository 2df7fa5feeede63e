// How fast a GPU's kernels and copies are, on the shapes of a GPT-2 of 124 million parameters: what
// scripts/gpu-check shows beside whole trainings. Where the processor has the place of a GPU
// (tests/cuda_on_host) shapes are small, and the figures say nothing.
//
//   cuda_bench
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/ops.h"
#include "kernels/memory.h"

namespace {

namespace kernels = muster::kernels;
namespace cuda = kernels::cuda;
using Floats = kernels::Memory<float>;
using Work = std::function<void()>;

struct Sizes {
  std::size_t sequences, T, heads, D, tokens;  // `tokens`: of the vocabulary
  std::size_t copied;                          // bytes
  double sample_seconds;                       // at least
  std::size_t C() const { return heads * D; }
  std::size_t M() const { return sequences * T; }
};
#ifdef MUSTER_CUDA_ON_HOST
constexpr Sizes kSizes{2, 16, 2, 8, 40, 1 << 16, 0};
#else
constexpr Sizes kSizes{8, 1024, 12, 64, 50'257, std::size_t{256} << 20, 0.03};
#endif

constexpr std::size_t kRanks = 8;
/// Multiplications and additions a second of an H100's or H200's plain units, the SXM ones.
constexpr double kPeak = 67e12;
constexpr int kSamples = 5, kRunsMax = 1000;

/// One context, and a line for each thing that is measured with it.
class Bench {
 public:
  explicit Bench(kernels::Products products = kernels::Products::kFloat32)
      : context({}, products) {}

  /// Products of matrices, of `flops` in all.
  void product(const std::string& name, double flops, const Work& work) {
    const double seconds = seconds_of_kernels(work);
    std::printf("| %-46s | %9.3f | %7.2f TFLOP/s, %3.0f %% of 67 |\n", name.c_str(), 1e3 * seconds,
                1e-12 * flops / seconds, 100 * flops / seconds / kPeak);
    std::fflush(stdout);
  }
  /// What goes through the device's memory, each value once.
  void memory(const std::string& name, std::size_t bytes, const Work& work) {
    speed(name, bytes, seconds_of_kernels(work));
  }
  /// `work` as it is after `prepare`, which is not measured.
  void once(const std::string& name, std::size_t bytes, const Work& prepare, const Work& work) {
    speed(name, bytes, seconds_of(prepare, work));
  }
  /// Some in (-0.5, 0.5).
  Floats values(std::size_t n) {
    Floats result(context, n);
    finish();
    std::uint32_t state = 12345;
    for (float& value : result.span()) {
      state = state * 1664525U + 1013904223U;
      value = static_cast<float>(state >> 8) * 0x1p-24F - 0.5F;
    }
    return result;
  }

  cuda::Context context;

 private:
  void finish() {
    const char* const error = context.finish();
    if (error == nullptr) return;
    std::fflush(stdout);
    std::fprintf(stderr, "cuda_bench: %s\n", error);
    std::exit(1);
  }
  double seconds_of(const Work& prepare, const Work& work) {
    std::vector<double> samples;
    for (int sample = 0; sample < kSamples; ++sample) {
      prepare();
      finish();
      const auto start = std::chrono::steady_clock::now();
      work();
      finish();
      const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
      samples.push_back(taken.count());
    }
    std::sort(samples.begin(), samples.end());
    return samples[kSamples / 2];
  }
  /// Of one of many in a row, beside which launches and waits are nothing. The first times, when
  /// code is loaded, scratch is taken, pages come and clocks go up, do not count.
  double seconds_of_kernels(const Work& work) {
    const double about = seconds_of(work, work);
    const double wanted = kSizes.sample_seconds / std::max(about, 1e-9);
    const int runs = static_cast<int>(std::clamp(wanted, 1.0, double{kRunsMax}));
    const auto all = [&] {
      for (int run = 0; run < runs; ++run) work();
    };
    return seconds_of(work, all) / runs;
  }
  static void speed(const std::string& name, std::size_t bytes, double seconds) {
    std::printf("| %-46s | %9.3f | %7.1f GB/s |\n", name.c_str(), 1e3 * seconds,
                1e-9 * static_cast<double>(bytes) / seconds);
    std::fflush(stdout);
  }
};

/// A layer of K inputs and N outputs.
void linear(Bench& bench, const std::string& kind, std::size_t N, std::size_t K) {
  cuda::Context& context = bench.context;
  const std::size_t M = kSizes.M();
  const double flops = 2.0 * static_cast<double>(M) * static_cast<double>(N * K);
  const std::string name = " " + kind + std::to_string(K) + " to " + std::to_string(N);
  const Floats x = bench.values(M * K), w = bench.values(K * N);
  Floats y(context, M * N), dx(context, M * K), dw(context, K * N), db(context, N);
  bench.product("forward" + name, flops, [&] {
    cuda::linear_forward(context, M, N, K, x.data(), w.data(), nullptr, kernels::Activation::kNone,
                         y.data());
  });
  bench.product("backward, inputs," + name, flops, [&] {
    cuda::linear_backward_input(context, M, N, K, y.data(), w.data(), nullptr, dx.data());
  });
  bench.product("backward, weights," + name, flops, [&] {
    cuda::linear_backward_weights(context, kRanks, M / kRanks, N, K, x.data(), y.data(), dw.data(),
                                  db.data());
  });
}

/// Counted are the products on the scores that there are, and none twice.
void attention(Bench& bench, float dropped) {
  cuda::Context& context = bench.context;
  const kernels::cpu::AttentionShape shape{kSizes.sequences, kSizes.T, kSizes.heads, kSizes.D};
  const kernels::cpu::WeightDrop drop{1, 0, 0, dropped, 1.0F / (1.0F - dropped)};
  const std::size_t n = kSizes.M() * kSizes.C(), each = kSizes.M() * kSizes.heads;
  const double flops = static_cast<double>(n) * static_cast<double>(shape.T + 1);
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.D));
  const std::string name = dropped > 0 ? ", dropped" : "";
  const Floats qkv = bench.values(3 * n);
  Floats y(context, n), dqkv(context, 3 * n), greatest(context, each), total(context, each);
  bench.product("attention" + name, 2 * flops, [&] {
    cuda::attention(context, shape, qkv.data(), scale, drop, y.data(), greatest.data(),
                    total.data());
  });
  bench.product("attention, backward" + name, 5 * flops, [&] {
    cuda::attention_backward(context, shape, qkv.data(), scale, drop, greatest.data(), total.data(),
                             y.data(), dqkv.data());
  });
}

void rows(Bench& bench) {
  cuda::Context& context = bench.context;
  const std::size_t M = kSizes.M(), C = kSizes.C(), tokens = kSizes.tokens;
  const std::size_t bytes = M * C * sizeof(float);
  const Floats x = bench.values(M * C), gamma = bench.values(C), beta = bench.values(C);
  Floats y(context, M * C), mean(context, M), inverse(context, M), table = bench.values(tokens * C);
  bench.memory("layer norm", 2 * bytes, [&] {
    cuda::layer_norm(context, M, C, x.data(), gamma.data(), beta.data(), 1e-5F, mean.data(),
                     inverse.data(), y.data());
  });
  bench.memory("GELU", 2 * bytes, [&] { cuda::gelu(context, M * C, x.data(), y.data()); });
  kernels::Memory<std::int32_t> own(context, M);
  for (std::size_t m = 0; m < M; ++m) {
    own.data()[m] = static_cast<std::int32_t>(m * 7919 % tokens);
  }
  bench.memory("rows of tokens", 2 * bytes, [&] {
    cuda::add_token_rows(context, M, C, {0, tokens}, own.data(), x.data(), table.data());
  });
  Floats logits(context, M * tokens), loss(context, M), correct(context, M);
  bench.memory("softmax of the vocabulary", 2 * M * tokens * sizeof(float), [&] {
    cuda::softmax_cross_entropy(context, M, tokens, own.data(), 1.0F, true, logits.data(),
                                loss.data(), correct.data());
  });
}

/// As a training does it: values and gradients from and to the host's own memory, samples and
/// losses by pages that go where they are touched.
void copies(Bench& bench) {
  cuda::Context& context = bench.context;
  const std::size_t bytes = kSizes.copied, count = bytes / sizeof(float);
  std::vector<float> host(count, 1.0F);
  Floats device(context, count);
  const auto compute = [&] { cuda::scale(context, count, 0.5F, device.data()); };
  const auto touch = [&] { std::fill_n(device.data(), count, 1.0F); };
  bench.once("host to device", bytes, compute,
             [&] { context.put(device.data(), host.data(), bytes); });
  bench.once("device to host", bytes, compute,
             [&] { context.fetch(context.keep_pace(), host.data(), device.data(), bytes); });
  bench.once("pages the host wrote, read by the device", bytes, touch, compute);
  bench.once("pages the device wrote, read by the host", bytes, compute,
             [&] { std::memcpy(host.data(), device.data(), bytes); });
  void* fresh = nullptr;
  const auto take = [&] {
    context.release(fresh);
    fresh = context.allocate(bytes);
  };
  bench.once("fresh memory made zero", bytes, take, [&] { context.zero(fresh, bytes); });
  context.release(fresh);
}

}  // namespace

int main() {
  if (const char* const why = cuda::why_no_device(); why != nullptr) {
    std::fprintf(stderr, "cuda_bench: there is no GPU: %s\n", why);
    return 1;
  }
  std::printf("| %zu sequences of %zu | milliseconds | speed, median of %d |\n|---|---|---|\n",
              kSizes.sequences, kSizes.T, kSamples);
  const std::size_t C = kSizes.C();
  Bench bench;
  linear(bench, "", 3 * C, C);
  linear(bench, "", 4 * C, C);
  linear(bench, "", C, 4 * C);
  linear(bench, "", kSizes.tokens, C);
  for (const float dropped : {0.0F, 0.1F}) attention(bench, dropped);
  rows(bench);
  copies(bench);
  Bench in_bfloat16(kernels::Products::kBfloat16);
  linear(in_bfloat16, "bfloat16 ", 4 * C, C);
  return 0;
}
