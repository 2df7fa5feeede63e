// Operations of one element each, held against kernels/cpu.
#include "tests/unit/cuda/cases.h"

using namespace muster;
using namespace muster::test;
namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;

TEST_CASE("GELU and its slope give the bits of the processor, in place, too") {
  if (!has_gpu("gelu")) return;
  Rng rng(seed());
  cuda::Context gpu;
  cpu::Context host;
  for (const std::size_t n : {1, 255, 256, 257, 100'003}) {
    // Of any bits few lie where the exponential neither vanishes nor overflows.
    for (const float size : {0.0F, 1.0F, 8.0F}) {
      Floats x = size == 0.0F ? any_bits(rng, n) : some(rng, n);
      if (size > 0.0F) {
        for (float& value : x) value = value * size;
      }
      const Floats dy = any_bits(rng, n);
      Floats y(n), dx(n);
      cpu::gelu(host, n, x.data(), y.data());
      cpu::gelu_backward(host, n, x.data(), dy.data(), dx.data());
      DeviceFloats device_x(gpu, x), device_dy(gpu, dy), device_y(gpu, Floats(n)),
          device_dx(gpu, Floats(n));
      cuda::gelu(gpu, n, device_x.data(), device_y.data());
      cuda::gelu_backward(gpu, n, device_x.data(), device_dy.data(), device_dx.data());
      CHECK(different(device_y.values(), y) == 0);
      CHECK(different(device_dx.values(), dx) == 0);
      cuda::gelu_backward(gpu, n, device_x.data(), device_dy.data(), device_dy.data());
      cuda::gelu(gpu, n, device_x.data(), device_x.data());
      CHECK(different(device_dy.values(), dx) == 0);
      CHECK(different(device_x.values(), y) == 0);
    }
  }
}

TEST_CASE("sums and products of elements give the bits of the processor, in place, too") {
  if (!has_gpu("add and scale")) return;
  Rng rng(seed());
  cuda::Context gpu;
  cpu::Context host;
  for (const std::size_t n : {1, 255, 256, 257, 100'003}) {
    const Floats a = any_bits(rng, n), b = some(rng, n);
    Floats sum(n), scaled = b;
    cpu::add(host, n, a.data(), b.data(), sum.data());
    cpu::scale(host, n, 0.3F, scaled.data());
    DeviceFloats device_a(gpu, a), device_b(gpu, b), device_sum(gpu, Floats(n));
    cuda::add(gpu, n, device_a.data(), device_b.data(), device_sum.data());
    CHECK(different(device_sum.values(), sum) == 0);
    cuda::add(gpu, n, device_a.data(), device_b.data(), device_a.data());
    CHECK(different(device_a.values(), sum) == 0);
    cuda::scale(gpu, n, 0.3F, device_b.data());
    CHECK(different(device_b.values(), scaled) == 0);
  }
}

TEST_CASE("a dropout drops what the processor drops, of parts of rows, too") {
  if (!has_gpu("drop")) return;
  Rng rng(seed());
  cuda::Context gpu;
  cpu::Context host;
  for (const std::size_t rows : {1, 9, 70}) {
    for (const std::size_t columns : {1, 2, 4, 5, 129, 1000}) {
      for (const std::size_t first : {0, 1, 6, 4096}) {
        const kernels::cpu::Drop by{rng(), columns, first, static_cast<std::uint32_t>(rng()),
                                    0.3F,  1 / 0.7F};
        Floats values = any_bits(rng, rows * columns);
        DeviceFloats device(gpu, values);
        cuda::drop(gpu, rows, by, device.data());
        cpu::drop(host, rows, by, values.data());
        CHECK(different(device.values(), values) == 0);
      }
    }
  }
}
