// Attention and its gradient, held against kernels/cpu.
#include <cmath>

#include "tests/unit/cuda/cases.h"

using namespace muster;
using namespace muster::test;
namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;

namespace {

// The processor is slow in a GPU's place.
#ifdef MUSTER_CUDA_ON_HOST
constexpr bool kIsSlow = true;
#else
constexpr bool kIsSlow = false;
#endif

struct Inputs {
  Floats qkv, dy;
};

std::size_t outputs_of(const cpu::AttentionShape& shape) {
  return shape.rows * shape.T * shape.heads * shape.D;
}

void check(const cpu::AttentionShape& shape, const Inputs& in, bool backward = true,
           const cpu::WeightDrop& drop = {}) {
  CAPTURE(shape.rows);
  CAPTURE(shape.T);
  CAPTURE(shape.heads);
  CAPTURE(shape.D);
  cuda::Context gpu;
  cpu::Context host;
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.D));
  Floats y(in.dy.size()), dqkv(in.qkv.size());
  Floats greatest(shape.rows * shape.heads * shape.T), total(greatest.size());
  DeviceFloats device_qkv(gpu, in.qkv), device_dy(gpu, in.dy), device_y(gpu, y),
      device_greatest(gpu, greatest), device_total(gpu, total), device_dqkv(gpu, dqkv);
  cuda::attention(gpu, shape, device_qkv.data(), scale, drop, device_y.data(),
                  device_greatest.data(), device_total.data());
  cpu::attention(host, shape, in.qkv.data(), scale, drop, y.data(), greatest.data(), total.data());
  CHECK(different(device_greatest.values(), greatest) == 0);
  CHECK(different(device_total.values(), total) == 0);
  CHECK(different(device_y.values(), y) == 0);
  if (!backward) return;
  cuda::attention_backward(gpu, shape, device_qkv.data(), scale, drop, device_greatest.data(),
                           device_total.data(), device_dy.data(), device_dqkv.data());
  cpu::attention_backward(host, shape, in.qkv.data(), scale, drop, greatest.data(), total.data(),
                          in.dy.data(), dqkv.data());
  CHECK(different(device_dqkv.values(), dqkv) == 0);
}

Inputs some_inputs(const cpu::AttentionShape& shape, Rng& rng) {
  return {some(rng, 3 * outputs_of(shape)), some(rng, outputs_of(shape))};
}

}  // namespace

TEST_CASE("attention gives the bits of the processor") {
  if (!has_gpu("attention")) return;
  Rng rng(seed());
  for (const cpu::AttentionShape& shape : {cpu::AttentionShape{1, 1, 1, 1},
                                           {2, 2, 3, 7},
                                           {1, 17, 1, 64},
                                           {2, 33, 3, 16},
                                           {1, 64, 1, 32},
                                           {1, 65, 2, 33},
                                           {1, 100, 3, 80},
                                           {2, 130, 1, 64},
                                           {1, 200, 1, 1},
                                           {1, 70, 1, 256}}) {
    check(shape, some_inputs(shape, rng));
  }
}

TEST_CASE("attention drops what the processor drops, of parts of a model, too") {
  if (!has_gpu("attention")) return;
  Rng rng(seed());
  for (const cpu::AttentionShape& shape : {cpu::AttentionShape{1, 1, 1, 1},
                                           {2, 3, 3, 7},
                                           {1, 65, 2, 33},
                                           {2, 130, 2, 16},
                                           {1, 198, 1, 70}}) {
    for (const float share : {0.1F, 0.75F}) {
      const cpu::WeightDrop drop{rng(), rng.below(3), static_cast<std::uint32_t>(rng.below(9)),
                                 share, 1.0F / (1.0F - share)};
      check(shape, some_inputs(shape, rng), true, drop);
      const std::size_t n = outputs_of(shape);
      check(shape, {any_bits(rng, 3 * n), any_bits(rng, n)}, true, drop);
    }
  }
}

TEST_CASE("attention over more than a block of the reduction rule gives the same bits") {
  if (!has_gpu("attention")) return;
  Rng rng(seed());
  const cpu::AttentionShape shape{1, 4099, 1, 1};
  check(shape, some_inputs(shape, rng), !kIsSlow);
}

TEST_CASE("blocks of attention that have several tiles in turn give the same bits") {
  if (!has_gpu("attention")) return;
  Rng rng(seed());
  const std::size_t rows = kIsSlow ? 2 : 300;
  for (const cpu::AttentionShape& shape :
       {cpu::AttentionShape{rows, 2, 4, 2}, {rows, 65, 4, 1}, {rows, 129, 1, 3}}) {
    check(shape, some_inputs(shape, rng));
  }
}

TEST_CASE("attention takes zeros, infinities, denormals and large values as the processor does") {
  if (!has_gpu("attention")) return;
  Rng rng(seed());
  const cpu::AttentionShape shape{2, 70, 2, 5};
  const std::size_t n = outputs_of(shape);
  check(shape, {any_bits(rng, 3 * n), any_bits(rng, n)});
  check(shape, {Floats(3 * n, -0.0F), Floats(n, -0.0F)});
  Inputs of_signed_zeros{Floats(3 * n), some(rng, n)};
  for (float& value : of_signed_zeros.qkv) value = rng.below(2) == 0 ? 0.0F : -0.0F;
  check(shape, of_signed_zeros);
  Inputs large{some(rng, 3 * n), some(rng, n)};
  for (float& value : large.qkv) value *= 1e3F;
  check(shape, large);
  // Products that round to a zero of either sign.
  Inputs tiny{some(rng, 3 * n), some(rng, n)};
  for (float& value : tiny.qkv) value *= 1e-30F;
  for (float& value : tiny.dy) value *= 1e-30F;
  check(shape, tiny);
}

TEST_CASE("attention without rows, heads or positions writes nothing") {
  if (!has_gpu("attention")) return;
  cuda::Context gpu;
  for (const cpu::AttentionShape& shape :
       {cpu::AttentionShape{0, 3, 2, 4}, {3, 0, 2, 4}, {3, 2, 0, 4}}) {
    cuda::attention(gpu, shape, nullptr, 1.0F, {}, nullptr, nullptr, nullptr);
    cuda::attention_backward(gpu, shape, nullptr, 1.0F, {}, nullptr, nullptr, nullptr, nullptr);
  }
  CHECK(gpu.finish() == nullptr);
}
