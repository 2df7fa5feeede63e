// What lays out a convolution as a product of matrices, held against kernels/cpu.
#include "tests/unit/cuda/cases.h"

using namespace muster;
using namespace muster::test;
namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;
using kernels::Extent;

namespace {

struct Case {
  std::size_t M;
  Extent image;
  std::size_t side;
};

constexpr Case kCases[] = {{1, {1, 1, 1}, 1},   {2, {1, 1, 1}, 3}, {3, {5, 4, 3}, 3},
                           {2, {4, 5, 8}, 3},   {1, {3, 7, 4}, 5}, {2, {2, 3, 6}, 7},
                           {2, {9, 11, 12}, 1}, {0, {3, 3, 3}, 3}, {1, {2, 40, 40}, 3},
                           {1, {40, 2, 5}, 5}};

/// Floats before each buffer's values, so that they begin at a multiple of 16 bytes or do not.
constexpr std::size_t kShifts[] = {0, 3};

void check_gather(cuda::Context& gpu, Rng& rng, const Case& c, std::size_t shift) {
  cpu::Context host;
  const Floats x = any_bits(rng, shift + c.M * c.image.size());
  Floats patches = some(rng, shift + c.M * c.image.size() * c.side * c.side);
  DeviceFloats device_x(gpu, x), device_patches(gpu, patches);
  cuda::gather_patches(gpu, c.M, c.image, c.side, device_x.data() + shift,
                       device_patches.data() + shift);
  cpu::gather_patches(host, c.M, c.image, c.side, x.data() + shift, patches.data() + shift);
  CHECK(different(device_patches.values(), patches) == 0);
}

void check_scatter(cuda::Context& gpu, Rng& rng, const Case& c, std::size_t shift,
                   Floats (*make)(Rng&, std::size_t)) {
  cpu::Context host;
  const std::size_t size = shift + c.M * c.image.size();
  const Floats patches = make(rng, shift + c.M * c.image.size() * c.side * c.side);
  const Floats output = make(rng, size);
  DeviceFloats device_patches(gpu, patches), device_output(gpu, output);
  for (const bool has_output : {false, true}) {
    CAPTURE(has_output);
    Floats dx = make(rng, size);
    DeviceFloats device_dx(gpu, dx);
    cuda::scatter_patches(gpu, c.M, c.image, c.side, device_patches.data() + shift,
                          has_output ? device_output.data() + shift : nullptr,
                          device_dx.data() + shift);
    cpu::scatter_patches(host, c.M, c.image, c.side, patches.data() + shift,
                         has_output ? output.data() + shift : nullptr, dx.data() + shift);
    CHECK(different(device_dx.values(), dx) == 0);
  }
}

}  // namespace

TEST_CASE("patches are gathered as the processor does") {
  if (!has_gpu("gather_patches")) return;
  Rng rng(seed());
  cuda::Context gpu;
  for (const Case& c : kCases) {
    CAPTURE(c.image.width);
    CAPTURE(c.side);
    for (const std::size_t shift : kShifts) check_gather(gpu, rng, c, shift);
  }
  check_gather(gpu, rng, {33'000, {2, 1, 1}, 1}, 0);  // more lines than blocks
}

TEST_CASE("patches are scattered with the bits of the processor") {
  if (!has_gpu("scatter_patches")) return;
  Rng rng(seed());
  cuda::Context gpu;
  for (const Case& c : kCases) {
    CAPTURE(c.image.width);
    CAPTURE(c.side);
    for (const std::size_t shift : kShifts) {
      check_scatter(gpu, rng, c, shift, some);
      check_scatter(gpu, rng, c, shift, any_bits);
    }
  }
  check_scatter(gpu, rng, {33'000, {2, 1, 1}, 1}, 0, some);  // more lines than blocks
}
