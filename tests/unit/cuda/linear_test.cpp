// Products of matrices, held against kernels/cpu. Which of three tiles a product is cut into
// depends on its size: 32 wide for the small ones here, 64 from about 530 rows and columns on, 128
// from about 1,200 on.
#include <cmath>
#include <iterator>

#include "tests/unit/cuda/cases.h"

using namespace muster;
using namespace muster::test;
namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;
using kernels::Activation;

namespace {

struct Shape {
  std::size_t M, N, K;
};

using MakeValues = Floats (*)(Rng& rng, std::size_t n);

/// Both devices, and where matrices begin: `shift` values behind a multiple of 16 bytes.
struct Bench {
  explicit Bench(kernels::Products products = kernels::Products::kFloat32)
      : gpu(kernels::cuda::DeviceShare(), products), host(1, products) {}

  cuda::Context gpu;
  cpu::Context host;
  Rng rng{seed()};
  MakeValues make = some;
  std::size_t shift = 0;

  Floats values(std::size_t n) { return make(rng, shift + n); }
};

/// An operation's output on both: on the device and as it must be.
struct Output {
  Output(Bench& bench, std::size_t n)
      : shift(bench.shift), expected(bench.values(n)), device(bench.gpu, expected) {}
  float* on_gpu() { return device.data() + shift; }
  float* on_host() { return expected.data() + shift; }
  std::size_t errors() { return different(device.values(), expected); }

  std::size_t shift;
  Floats expected;
  DeviceFloats device;
};

/// An input on both.
struct Input {
  Input(Bench& bench, std::size_t n)
      : shift(bench.shift), values(bench.values(n)), device(bench.gpu, values) {}
  const float* on_gpu() { return device.data() + shift; }
  const float* on_host() { return values.data() + shift; }

  std::size_t shift;
  Floats values;
  DeviceFloats device;
};

/// Zeros, infinities and values whose products underflow, of both signs.
Floats special(Rng& rng, std::size_t n) {
  constexpr float kValues[] = {0.0F, 0.0F, 1.0F, 1.5F, 1e-30F, 1e-30F, 1e-44F};
  Floats values(n);
  for (float& value : values) {
    value = rng.below(32) == 0 ? HUGE_VALF : kValues[rng.below(std::size(kValues))];
    if (rng.below(2) == 0) value = -value;
  }
  return values;
}

/// Values whose products lie about the least normal number, and zeros.
Floats least_normal(Rng& rng, std::size_t n) {
  Floats values(n);
  for (float& value : values) {
    value = static_cast<float>((1 + rng.unit()) * 0x1p-63);
    if (rng.below(4) == 0) value = 0x1p-63F;
    if (rng.below(8) == 0) value = 0.0F;
    if (rng.below(2) == 0) value = -value;
  }
  return values;
}

void check_forward(Bench& bench, const Shape& s, bool has_bias, Activation activation) {
  CAPTURE(s.M);
  CAPTURE(s.N);
  CAPTURE(s.K);
  Input x(bench, s.M * s.K), w(bench, s.K * s.N), bias(bench, s.N);
  Output y(bench, s.M * s.N);
  cuda::linear_forward(bench.gpu, s.M, s.N, s.K, x.on_gpu(), w.on_gpu(),
                       has_bias ? bias.on_gpu() : nullptr, activation, y.on_gpu());
  cpu::linear_forward(bench.host, s.M, s.N, s.K, x.on_host(), w.on_host(),
                      has_bias ? bias.on_host() : nullptr, activation, y.on_host());
  CHECK(y.errors() == 0);
}

void check_backward_input(Bench& bench, const Shape& s, bool has_mask) {
  CAPTURE(s.M);
  CAPTURE(s.N);
  CAPTURE(s.K);
  Input dy(bench, s.M * s.N), w(bench, s.K * s.N), mask(bench, s.M * s.K);
  Output dx(bench, s.M * s.K);
  cuda::linear_backward_input(bench.gpu, s.M, s.N, s.K, dy.on_gpu(), w.on_gpu(),
                              has_mask ? mask.on_gpu() : nullptr, dx.on_gpu());
  cpu::linear_backward_input(bench.host, s.M, s.N, s.K, dy.on_host(), w.on_host(),
                             has_mask ? mask.on_host() : nullptr, dx.on_host());
  CHECK(dx.errors() == 0);
}

/// M: rows of each logical rank.
void check_weights(Bench& bench, std::size_t ranks, const Shape& s, bool has_bias) {
  CAPTURE(ranks);
  CAPTURE(s.M);
  CAPTURE(s.N);
  CAPTURE(s.K);
  Input x(bench, ranks * s.M * s.K), dy(bench, ranks * s.M * s.N);
  Output dw(bench, s.K * s.N), db(bench, s.N);
  cuda::linear_backward_weights(bench.gpu, ranks, s.M, s.N, s.K, x.on_gpu(), dy.on_gpu(),
                                dw.on_gpu(), has_bias ? db.on_gpu() : nullptr);
  cpu::linear_backward_weights(bench.host, ranks, s.M, s.N, s.K, x.on_host(), dy.on_host(),
                               dw.on_host(), has_bias ? db.on_host() : nullptr);
  CHECK(dw.errors() == 0);
  CHECK(db.errors() == 0);
}

constexpr Shape kSmall[] = {{1, 1, 1},    {1, 1, 0},  {3, 5, 0},    {0, 4, 4},   {4, 0, 4},
                            {1, 40, 3},   {40, 1, 3}, {3, 5, 2},    {4, 4, 4},   {31, 33, 31},
                            {32, 32, 32}, {36, 4, 8}, {33, 30, 33}, {6, 36, 65}, {68, 3, 300}};

}  // namespace

TEST_CASE("linear_forward gives the bits of the processor") {
  if (!has_gpu("linear_forward")) return;
  Bench bench;
  for (const std::size_t shift : {0, 1}) {
    bench.shift = shift;
    for (const Shape& s : kSmall) {
      check_forward(bench, s, true, Activation::kRelu);
      check_forward(bench, s, false, Activation::kNone);
    }
  }
}

TEST_CASE("linear_forward gives the bits of the processor with larger tiles") {
  if (!has_gpu("linear_forward")) return;
  Bench bench;
  check_forward(bench, {530, 540, 17}, true, Activation::kNone);
  check_forward(bench, {531, 541, 21}, false, Activation::kRelu);
  check_forward(bench, {1190, 1300, 9}, true, Activation::kRelu);
  check_forward(bench, {1191, 1301, 11}, false, Activation::kNone);
}

TEST_CASE("linear_backward_input gives the bits of the processor") {
  if (!has_gpu("linear_backward_input")) return;
  Bench bench;
  for (const std::size_t shift : {0, 1}) {
    bench.shift = shift;
    for (const Shape& s : kSmall) {
      check_backward_input(bench, s, true);
      check_backward_input(bench, s, false);
    }
  }
}

TEST_CASE("linear_backward_input gives the bits of the processor with larger tiles") {
  if (!has_gpu("linear_backward_input")) return;
  Bench bench;
  check_backward_input(bench, {530, 20, 540}, true);
  check_backward_input(bench, {531, 21, 541}, false);
  check_backward_input(bench, {1190, 12, 1300}, true);
  check_backward_input(bench, {1191, 11, 1301}, false);
}

TEST_CASE("linear_backward_weights gives the bits of the processor") {
  if (!has_gpu("linear_backward_weights")) return;
  Bench bench;
  for (const std::size_t shift : {0, 1}) {
    bench.shift = shift;
    for (const Shape& s : kSmall) {
      for (const std::size_t ranks : {1, 2, 8}) check_weights(bench, ranks, s, true);
      check_weights(bench, 4, s, false);
    }
  }
  bench.shift = 0;
  check_weights(bench, 1, {300, 33, 5}, true);  // several rounds of the bias, too
}

TEST_CASE("linear_backward_weights sums ranks within blocks and between them") {
  if (!has_gpu("linear_backward_weights")) return;
  Bench bench;
  check_weights(bench, 64, {1, 3, 2}, true);       // 32 wide, 64 groups of 1
  check_weights(bench, 8, {1, 4300, 2}, true);     // 32 wide, 2 groups of 4
  check_weights(bench, 4, {18, 500, 520}, true);   // 64 wide, 4 groups of 1
  check_weights(bench, 4, {1, 1500, 1500}, true);  // 128 wide, 2 groups of 2
}

TEST_CASE("further rows of linear_backward_weights go on from what is there") {
  if (!has_gpu("linear_backward_weights_further")) return;
  Bench bench;
  for (const Shape& s : {Shape{0, 5, 4}, Shape{1, 1, 1}, Shape{35, 33, 36}, Shape{7, 530, 540},
                         Shape{3, 1300, 1191}}) {
    CAPTURE(s.N);
    Input x(bench, s.M * s.K), dy(bench, s.M * s.N);
    Output dw(bench, s.K * s.N);
    cuda::linear_backward_weights_further(bench.gpu, s.M, s.N, s.K, x.on_gpu(), dy.on_gpu(),
                                          dw.on_gpu());
    cpu::linear_backward_weights_further(bench.host, s.M, s.N, s.K, x.on_host(), dy.on_host(),
                                         dw.on_host());
    CHECK(dw.errors() == 0);
  }
}

TEST_CASE("products of any values give the processor's bits") {
  if (!has_gpu("products of any values")) return;
  Bench bench;
  for (const MakeValues make : {any_bits, special}) {
    bench.make = make;
    for (const std::size_t steps : {1, 2, 5}) {
      for (const bool flag : {false, true}) {
        check_forward(bench, {40, 50, steps}, flag, Activation::kRelu);
        check_forward(bench, {40, 50, steps}, flag, Activation::kNone);
        check_backward_input(bench, {40, steps, 50}, flag);
      }
      check_weights(bench, 2, {steps, 40, 50}, true);
    }
  }
  check_weights(bench, 2, {1, 8500, 32}, false);  // 32 wide, 1 group of 2
}

TEST_CASE("products of bfloat16 give the bits of the processor") {
  if (!has_gpu("products of bfloat16")) return;
  Bench bench(kernels::Products::kBfloat16);
  for (const MakeValues make : {some, any_bits, special, least_normal}) {
    bench.make = make;
    for (const Shape& s : {Shape{1, 1, 0}, Shape{3, 5, 1}, Shape{31, 33, 7}, Shape{40, 50, 64}}) {
      check_forward(bench, s, true, Activation::kRelu);
      check_forward(bench, s, false, Activation::kNone);
      check_backward_input(bench, s, true);
      for (const std::size_t ranks : {1, 4}) check_weights(bench, ranks, s, true);
    }
  }
  bench.make = some;
  check_forward(bench, {531, 541, 5}, true, Activation::kNone);
  check_forward(bench, {1191, 1301, 3}, true, Activation::kNone);
}
