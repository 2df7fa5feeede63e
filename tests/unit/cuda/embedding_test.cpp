// Embedding and pooling, held against kernels/cpu.
#include <algorithm>
#include <cmath>

#include "tests/unit/cuda/cases.h"

using namespace muster;
using namespace muster::test;
namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;

namespace {

/// Below `bound`; half of them are the same few.
std::vector<std::int32_t> some_tokens(Rng& rng, std::size_t n, std::size_t bound) {
  std::vector<std::int32_t> tokens(n);
  for (std::int32_t& token : tokens) {
    const std::size_t few = std::min<std::size_t>(bound, 3);
    token = static_cast<std::int32_t>(rng.below(rng.below(2) == 0 ? few : bound));
  }
  return tokens;
}

/// Values of which many are equal, zeros of either sign, or infinite.
Floats with_ties(Rng& rng, std::size_t n) {
  Floats values = some(rng, n);
  for (float& value : values) {
    const std::uint64_t kind = rng.below(8);
    if (kind < 3) value = static_cast<float>(kind) - 1.0F;
    if (kind == 3) value = -0.0F;
    if (kind == 4) value = -HUGE_VALF;
    if (kind == 5 && rng.below(4) == 0) value = std::nanf("");
  }
  return values;
}

void check_pooling(std::size_t M, const kernels::Extent& image, Rng& rng) {
  CAPTURE(M);
  CAPTURE(image.height);
  CAPTURE(image.width);
  CAPTURE(image.channels);
  cuda::Context gpu;
  cpu::Context host;
  const std::size_t pooled = M * (image.height / 2) * (image.width / 2) * image.channels;
  const Floats x = with_ties(rng, M * image.size()), dy = some(rng, pooled);
  Floats y(pooled), dx(x.size(), 7.0F);
  DeviceFloats device_x(gpu, x), device_dy(gpu, dy), device_y(gpu, y), device_dx(gpu, dx);
  cuda::max_pool(gpu, M, image, device_x.data(), device_y.data());
  cuda::max_pool_backward(gpu, M, image, device_x.data(), device_dy.data(), device_dx.data());
  cpu::max_pool(host, M, image, x.data(), y.data());
  cpu::max_pool_backward(host, M, image, x.data(), dy.data(), dx.data());
  CHECK(different(device_y.values(), y) == 0);
  CHECK(different(device_dx.values(), dx) == 0);
}

}  // namespace

TEST_CASE("an embedding gives the bits of the processor") {
  if (!has_gpu("embed")) return;
  Rng rng(seed());
  cuda::Context gpu;
  cpu::Context host;
  for (const std::size_t C : {1, 64, 300}) {
    const std::size_t rows = 3, T = 7, M = rows * T, V = 11;
    const auto tokens = some_tokens(rng, M, V);
    const Floats table = some(rng, V * C), positions = some(rng, T * C);
    Floats y(M * C);
    DeviceInts device_tokens(gpu, tokens);
    DeviceFloats device_table(gpu, table), device_positions(gpu, positions), device_y(gpu, y);
    cuda::embed(gpu, M, T, C, device_tokens.data(), device_table.data(), device_positions.data(),
                device_y.data());
    cpu::embed(host, M, T, C, tokens.data(), table.data(), positions.data(), y.data());
    CHECK(different(device_y.values(), y) == 0);
  }
}

TEST_CASE("rows of tokens are added in the order of the processor, of the own slice only") {
  if (!has_gpu("add_token_rows")) return;
  Rng rng(seed());
  cuda::Context gpu;
  cpu::Context host;
  const std::size_t V = 1100;
  struct Case {
    std::size_t M, C;
    cpu::Slice own;
  };
  for (const auto& [M, C, own] : {Case{1, 130, {0, 50}},
                                  {32, 300, {1, 2}},
                                  {33, 4, {0, V}},
                                  {500, 129, {40, 50}},
                                  {500, 1, {0, 5}},
                                  {31, 3, {V, 0}}}) {
    CAPTURE(M);
    CAPTURE(C);
    const auto tokens = some_tokens(rng, M, V);
    const Floats dy = some(rng, M * C);
    Floats dtable = some(rng, own.count * C);
    DeviceInts device_tokens(gpu, tokens);
    DeviceFloats device_dy(gpu, dy), device_dtable(gpu, dtable);
    cuda::add_token_rows(gpu, M, C, own, device_tokens.data(), device_dy.data(),
                         device_dtable.data());
    cpu::add_token_rows(host, M, C, own, tokens.data(), dy.data(), dtable.data());
    CHECK(different(device_dtable.values(), dtable) == 0);
  }
}

TEST_CASE("the gradient of positions gives the bits of the processor") {
  if (!has_gpu("position_gradient")) return;
  Rng rng(seed());
  cuda::Context gpu;
  cpu::Context host;
  for (const std::size_t ranks : {1, 2, 8, 64}) {
    for (const std::size_t rows : {1, 3}) {
      const std::size_t T = 5, C = 67;
      const Floats dy = some(rng, ranks * rows * T * C);
      Floats dpositions(T * C);
      DeviceFloats device_dy(gpu, dy), device_dpositions(gpu, dpositions);
      cuda::position_gradient(gpu, ranks, rows, T, C, device_dy.data(), device_dpositions.data());
      cpu::position_gradient(host, ranks, rows, T, C, dy.data(), dpositions.data());
      CHECK(different(device_dpositions.values(), dpositions) == 0);
    }
  }
}

TEST_CASE("pooling takes the values of the processor, the first of equals") {
  if (!has_gpu("max_pool")) return;
  Rng rng(seed());
  check_pooling(1, {2, 2, 1}, rng);
  check_pooling(3, {5, 7, 3}, rng);
  check_pooling(2, {6, 4, 33}, rng);
  check_pooling(4, {1, 9, 2}, rng);
  check_pooling(1, {1, 1, 1}, rng);
  check_pooling(0, {4, 4, 2}, rng);
}
