#include "kernels/cpu/exp_f32.h"
#include "kernels/cpu/log_f64.h"
#include "kernels/cuda/row_sum.h"

namespace muster::kernels::cuda {
namespace {

struct Softmax {
  std::size_t M, N;
  const std::int32_t* labels;
  float scale;
  bool gradient;
  float *logits, *loss, *correct;
};

/// Of some of a row's logits: the greatest, NaNs passed over, and whether none keeps the label's
/// from being the greatest and the first such; a NaN does.
struct Greatest {
  float max = -HUGE_VALF;
  int is_label = 1;

  __device__ void meet(std::size_t i, float logit, std::size_t label, float of_label) {
    max = logit > max ? logit : max;
    if (!(i < label ? logit < of_label : logit <= of_label)) is_label = 0;
  }
  __device__ void meet(const Greatest& other) {
    max = other.max > max ? other.max : max;
    is_label &= other.is_label;
  }
};

/// What `lanes` neighbouring threads, 16 or 32, have found, for all of them.
__device__ Greatest of_lanes(Greatest found, unsigned lanes) {
  for (unsigned half = lanes / 2; half > 0; half /= 2) {
    const int from = static_cast<int>(half);
    const float max = __shfl_xor_sync(kWholeWarp, found.max, from);
    found.meet({max, __shfl_xor_sync(kWholeWarp, found.is_label, from)});
  }
  return found;
}

/// What all of a block of threads have found, for all of them. Another barrier must come before the
/// next call.
__device__ Greatest of_block(Greatest found) {
  __shared__ float max[kThreads / kWarp];
  __shared__ int is_label[kThreads / kWarp];
  found = of_lanes(found, kWarp);
  max[threadIdx.x / kWarp] = found.max;
  is_label[threadIdx.x / kWarp] = found.is_label;
  __syncthreads();
  for (unsigned warp = 0; warp < kThreads / kWarp; ++warp) found.meet({max[warp], is_label[warp]});
  return found;
}

__device__ void store(const Softmax& of, std::size_t m, const Greatest& greatest, float of_label,
                      float total) {
  const auto log = static_cast<float>(cpu::log_one(static_cast<double>(total)));
  of.loss[m] = (log + greatest.max) - of_label;
  of.correct[m] = greatest.is_label != 0 ? 1.0F : 0.0F;
}

__device__ float gradient_of(float exponential, float total, bool is_label, float scale) {
  const float share = exponential / total;
  return (is_label ? share - 1.0F : share) * scale;
}

/// Half a warp a row.
__global__ void softmax_kernel(Softmax of) {
  for_each_row(of.M, of.N, [&](const Row& row) {
    const std::size_t m = row.number;
    float* logits = of.logits + m * of.N;
    const auto label = row.exists() ? static_cast<std::size_t>(of.labels[m]) : 0;
    const float of_label = row.exists() ? logits[label] : 0.0F;
    Greatest greatest;
    for_each_own(row, [&](std::size_t i) { greatest.meet(i, logits[i], label, of_label); });
    greatest = of_lanes(greatest, kHalfWarp);
    __syncwarp();  // all have the label's logit before it is overwritten
    const float total = row_sum(row, [&](std::size_t i) {
      const float exponential = cpu::exp_one(logits[i] - greatest.max);
      if (of.gradient) logits[i] = exponential;
      return exponential;
    });
    if (row.exists() && half_warp_lane() == 0) store(of, m, greatest, of_label, total);
    if (!of.gradient) return;
    for_each_own(row, [&](std::size_t i) {
      logits[i] = gradient_of(logits[i], total, i == label, of.scale);
    });
  });
}

/// A block of threads a row.
__global__ void wide_softmax_kernel(Softmax of) {
  for (std::size_t m = blockIdx.x; m < of.M; m += gridDim.x) {
    float* logits = of.logits + m * of.N;
    const auto label = static_cast<std::size_t>(of.labels[m]);
    const float of_label = logits[label];
    Greatest greatest;
    for (std::size_t i = threadIdx.x; i < of.N; i += kThreads) {
      greatest.meet(i, logits[i], label, of_label);
    }
    greatest = of_block(greatest);
    const float total = wide_row_sum(of.N, [&](std::size_t i) {
      const float exponential = cpu::exp_one(logits[i] - greatest.max);
      if (of.gradient) logits[i] = exponential;
      return exponential;
    });
    if (threadIdx.x == 0) store(of, m, greatest, of_label, total);
    if (!of.gradient) continue;
    for (std::size_t i = threadIdx.x; i < of.N; i += kThreads) {
      logits[i] = gradient_of(logits[i], total, i == label, of.scale);
    }
  }
}

}  // namespace

void softmax_cross_entropy(Context& context, std::size_t M, std::size_t N,
                           const std::int32_t* labels, float scale, bool gradient, float* logits,
                           float* loss, float* correct) {
  if (M == 0 || N == 0) return;
  const Softmax of{M, N, labels, scale, gradient, logits, loss, correct};
  if (N <= kBlockElements) {
    launch(context, blocks_for(M, kHalfWarps), kThreads, softmax_kernel, of);
  } else {
    launch(context, blocks_for(M, 1), kThreads, wide_softmax_kernel, of);
  }
}

}  // namespace muster::kernels::cuda
