// Every element of the three matrix products against scalar chains of std::fma, bit by bit.
#include <algorithm>
#include <cstdio>
#include <functional>

#include "doctest/doctest.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {
namespace {

struct Shape {
  std::size_t M, N, K;
};

/// What matrices hold: values below 1, now and then what breaks careless code, or values so small
/// that their products are denormal.
enum class Values { kPlain, kWild, kTiny };
Values any_values(Random& random) { return static_cast<Values>(random.below(3)); }

void fill_buffer(Guarded<float>& buffer, Random& random, Values values) {
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    buffer[i] = values == Values::kWild ? random.wild() : random.value();
    if (values == Values::kTiny) buffer[i] *= 1e-20F;
  }
}

std::size_t denormals(const Floats& values) {
  return static_cast<std::size_t>(std::count_if(
      values.begin(), values.end(), [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; }));
}

void poison(Guarded<float>& buffer) {
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = -12345.0F;
}

Floats reference_forward(const Shape& s, const float* x, const float* w, const float* bias,
                         bool relu) {
  Floats y(s.M * s.N);
  for (std::size_t m = 0; m < s.M; ++m) {
    for (std::size_t n = 0; n < s.N; ++n) {
      float acc = 0.0F;
      for (std::size_t k = 0; k < s.K; ++k) acc = std::fma(x[m * s.K + k], w[k * s.N + n], acc);
      if (bias != nullptr) acc = acc + bias[n];
      if (relu) acc = acc > 0.0F ? acc : 0.0F;
      y[m * s.N + n] = acc;
    }
  }
  return y;
}

Floats reference_input(const Shape& s, const float* dy, const float* w, const float* relu_output) {
  Floats dx(s.M * s.K);
  for (std::size_t m = 0; m < s.M; ++m) {
    for (std::size_t k = 0; k < s.K; ++k) {
      float acc = 0.0F;
      for (std::size_t n = 0; n < s.N; ++n) acc = std::fma(dy[m * s.N + n], w[k * s.N + n], acc);
      if (relu_output != nullptr && !(relu_output[m * s.K + k] > 0.0F)) acc = 0.0F;
      dx[m * s.K + k] = acc;
    }
  }
  return dx;
}

/// term(row) of each rank in one chain, the ranks on the tree.
float ranks_sum(std::size_t ranks, std::size_t rows,
                const std::function<float(std::size_t, float)>& step) {
  Floats sums;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    float acc = 0.0F;
    for (std::size_t row = rank * rows; row < (rank + 1) * rows; ++row) acc = step(row, acc);
    sums.push_back(acc);
  }
  return tree(sums.data(), sums.size());
}

Floats reference_weights(std::size_t ranks, const Shape& s, const float* x, const float* dy) {
  Floats dw(s.K * s.N);
  for (std::size_t k = 0; k < s.K; ++k) {
    for (std::size_t n = 0; n < s.N; ++n) {
      dw[k * s.N + n] = ranks_sum(ranks, s.M / ranks, [&](std::size_t row, float acc) {
        return std::fma(x[row * s.K + k], dy[row * s.N + n], acc);
      });
    }
  }
  return dw;
}

Floats reference_bias(std::size_t ranks, const Shape& s, const float* dy) {
  Floats db(s.N);
  for (std::size_t n = 0; n < s.N; ++n) {
    db[n] = ranks_sum(ranks, s.M / ranks,
                      [&](std::size_t row, float acc) { return acc + dy[row * s.N + n]; });
  }
  return db;
}

/// Calls check(context) for every target with 1, 2 and 3 threads.
void everywhere(const std::function<void(cpu::Context&)>& check) {
  static cpu::Context contexts[] = {cpu::Context(1), cpu::Context(2), cpu::Context(3)};
  for (const cpu::Target target : targets()) {
    const Forced forced(target);
    for (cpu::Context& context : contexts) {
      CAPTURE(std::string(cpu::name_of(target)));
      CAPTURE(context.threads());
      check(context);
    }
  }
}

std::vector<Shape> forward_shapes(Random& random) {
  std::vector<Shape> shapes = {{0, 3, 4},     {3, 5, 0},     {1, 1, 1},    {64, 10, 128},
                               {9, 49, 257},  {17, 97, 513}, {8, 48, 256}, {16, 144, 300},
                               {33, 160, 70}, {300, 7, 20},  {520, 50, 9}, {2, 300, 300}};
  for (std::size_t n = 1; n <= 16; ++n) shapes.push_back({1 + random.below(30), n, 37});
  // One more and one less than what is computed at once: steps of a chain, rows, columns.
  for (const std::size_t k : {255, 256, 511, 512}) shapes.push_back({7, 18, k});
  for (const std::size_t m : {11, 12, 13, 15, 255, 256, 257, 511, 512, 513}) {
    shapes.push_back({m, 17, 12});
  }
  for (const std::size_t n : {23, 24, 25, 31, 32, 33, 47, 49, 63, 64, 65, 95, 96}) {
    shapes.push_back({13, n, 20});
  }
  for (int i = 0; i < 150; ++i) {
    shapes.push_back({1 + random.below(40), 1 + random.below(120), 1 + random.below(90)});
  }
  return shapes;
}

TEST_CASE("a forward product equals scalar chains in every bit") {
  Random random(seed());
  std::size_t compared = 0, tiny = 0;
  for (const Shape& s : forward_shapes(random)) {
    Guarded<float> x(s.M * s.K), w(s.K * s.N), bias(s.N), y(s.M * s.N);
    const Values values = any_values(random);
    const bool relu = random.below(2) == 0;
    const bool with_bias = random.below(3) != 0;
    fill_buffer(x, random, values);
    fill_buffer(w, random, values);
    fill_buffer(bias, random, values);
    const float* b = with_bias ? bias.data() : nullptr;
    const Floats expected = reference_forward(s, x.data(), w.data(), b, relu);
    tiny += denormals(expected);
    everywhere([&](cpu::Context& context) {
      CAPTURE(s.M);
      CAPTURE(s.N);
      CAPTURE(s.K);
      CAPTURE(relu);
      CAPTURE(with_bias);
      poison(y);
      cpu::linear_forward(context, s.M, s.N, s.K, x.data(), w.data(), b,
                          relu ? kernels::Activation::kRelu : kernels::Activation::kNone, y.data());
      CHECK(mismatches(y, expected, expected.size()) == 0);
      CHECK(y.untouched());
      compared += expected.size();
    });
  }
  std::printf("forward: %zu elements compared\n", compared);
  CHECK(tiny > 1000);
}

TEST_CASE("an input gradient equals scalar chains in every bit") {
  Random random(seed() + 1);
  std::size_t compared = 0, tiny = 0;
  for (const Shape& s : forward_shapes(random)) {
    Guarded<float> dy(s.M * s.N), w(s.K * s.N), out(s.M * s.K), dx(s.M * s.K);
    const Values values = any_values(random);
    const bool masked = random.below(2) == 0;
    fill_buffer(dy, random, values);
    fill_buffer(w, random, values);
    fill_buffer(out, random, Values::kWild);
    const float* mask = masked ? out.data() : nullptr;
    const Floats expected = reference_input(s, dy.data(), w.data(), mask);
    tiny += denormals(expected);
    everywhere([&](cpu::Context& context) {
      CAPTURE(s.M);
      CAPTURE(s.N);
      CAPTURE(s.K);
      CAPTURE(masked);
      poison(dx);
      cpu::linear_backward_input(context, s.M, s.N, s.K, dy.data(), w.data(), mask, dx.data());
      CHECK(mismatches(dx, expected, expected.size()) == 0);
      CHECK(dx.untouched());
      compared += expected.size();
    });
  }
  std::printf("input gradient: %zu elements compared\n", compared);
  CHECK(tiny > 1000);
}

TEST_CASE("a weight gradient is cut at the logical ranks and equals scalar chains in every bit") {
  Random random(seed() + 2);
  std::size_t compared = 0, tiny = 0;
  std::vector<std::pair<std::size_t, Shape>> cases = {
      {1, {64, 10, 128}},   {8, {64, 50, 33}},   {16, {128, 49, 17}},  {64, {64, 20, 9}},
      {4, {0, 3, 5}},       {8, {264, 60, 41}},  {2, {130, 100, 40}},  {16, {160, 13, 300}},
      {1, {1100, 60, 9}},   {2, {1040, 10, 17}}, {16, {1024, 100, 7}}, {8, {4800, 17, 5}},
      {64, {320, 200, 11}}, {4, {1200, 150, 8}}, {4, {136, 150, 512}}, {2, {1060, 150, 9}},
      {1, {1030, 150, 13}}};
  for (std::size_t n = 1; n <= 16; ++n) cases.push_back({4, {12, n, 1 + random.below(30)}});
  // Chains of one rank, and of two, one step longer and shorter than the blocks they are cut into.
  for (const std::size_t block : {128, 256, 512, 1024}) {
    for (const std::size_t rows : {block - 1, block, block + 1}) {
      cases.push_back({1, {rows, 33, 13}});
      cases.push_back({2, {2 * rows, 100, 7}});
      cases.push_back({1, {rows, 10, 512}});
    }
  }
  for (int i = 0; i < 120; ++i) {
    const std::size_t ranks = std::size_t{1} << random.below(6);
    const std::size_t rows = 1 + random.below(ranks > 8 ? 5 : 20);
    cases.push_back({ranks, {ranks * rows, 1 + random.below(110), 1 + random.below(40)}});
  }
  for (const auto& [ranks, s] : cases) {
    Guarded<float> x(s.M * s.K), dy(s.M * s.N), dw(s.K * s.N), db(s.N);
    const Values values = any_values(random);
    fill_buffer(x, random, values);
    fill_buffer(dy, random, values);
    const Floats expected = reference_weights(ranks, s, x.data(), dy.data());
    const Floats expected_bias = reference_bias(ranks, s, dy.data());
    tiny += denormals(expected);
    everywhere([&](cpu::Context& context) {
      CAPTURE(ranks);
      CAPTURE(s.M);
      CAPTURE(s.N);
      CAPTURE(s.K);
      poison(dw);
      poison(db);
      cpu::linear_backward_weights(context, ranks, s.M / ranks, s.N, s.K, x.data(), dy.data(),
                                   dw.data(), db.data());
      CHECK(mismatches(dw, expected, expected.size()) == 0);
      CHECK(mismatches(db, expected_bias, expected_bias.size()) == 0);
      CHECK(dw.untouched());
      CHECK(db.untouched());
      compared += expected.size() + expected_bias.size();
    });
  }
  std::printf("weight gradient: %zu elements compared\n", compared);
  CHECK(tiny > 1000);
}

TEST_CASE("a row's result does not depend on how many rows are computed with it") {
  Random random(seed() + 3);
  const Shape s{61, 77, 300};
  Guarded<float> x(s.M * s.K), w(s.K * s.N), bias(s.N), all(s.M * s.N), some(s.M * s.N);
  fill_buffer(x, random, Values::kWild);
  fill_buffer(w, random, Values::kWild);
  fill_buffer(bias, random, Values::kPlain);
  everywhere([&](cpu::Context& context) {
    cpu::linear_forward(context, s.M, s.N, s.K, x.data(), w.data(), bias.data(),
                        kernels::Activation::kNone, all.data());
    for (const std::size_t rows : {1, 2, 7, 8, 9, 30}) {
      const std::size_t first = random.below(s.M - rows + 1);
      cpu::linear_forward(context, rows, s.N, s.K, x.data() + first * s.K, w.data(), bias.data(),
                          kernels::Activation::kNone, some.data());
      CHECK(mismatches(some.data(), all.data() + first * s.N, rows * s.N) == 0);
    }
  });
}

TEST_CASE("a rank's weight gradient goes on with further rows as if they had come at once") {
  Random random(seed() + 5);
  for (int i = 0; i < 60; ++i) {
    const Shape s{2 + random.below(i % 6 == 0 ? 1'200 : 60), 1 + random.below(130),
                  1 + random.below(70)};
    Guarded<float> x(s.M * s.K), dy(s.M * s.N), whole(s.K * s.N), parts(s.K * s.N);
    fill_buffer(x, random, any_values(random));
    fill_buffer(dy, random, any_values(random));
    const std::size_t cut = random.below(s.M + 1);
    const std::size_t next = cut + random.below(s.M - cut + 1);
    CAPTURE(s.M);
    CAPTURE(s.N);
    CAPTURE(s.K);
    CAPTURE(cut);
    CAPTURE(next);
    everywhere([&](cpu::Context& context) {
      poison(whole);
      poison(parts);
      cpu::linear_backward_weights(context, 1, s.M, s.N, s.K, x.data(), dy.data(), whole.data(),
                                   nullptr);
      cpu::linear_backward_weights(context, 1, cut, s.N, s.K, x.data(), dy.data(), parts.data(),
                                   nullptr);
      cpu::linear_backward_weights_further(context, next - cut, s.N, s.K, x.data() + cut * s.K,
                                           dy.data() + cut * s.N, parts.data());
      cpu::linear_backward_weights_further(context, s.M - next, s.N, s.K, x.data() + next * s.K,
                                           dy.data() + next * s.N, parts.data());
      CHECK(mismatches(parts, whole, whole.size()) == 0);
      CHECK(parts.untouched());
    });
  }
}

TEST_CASE("the weight gradients of two halves add up to that of the whole") {
  Random random(seed() + 4);
  const Shape s{64, 37, 29};
  Guarded<float> x(s.M * s.K), dy(s.M * s.N), whole(s.K * s.N), left(s.K * s.N), right(s.K * s.N);
  Guarded<float> db(s.N);
  fill_buffer(x, random, Values::kPlain);
  fill_buffer(dy, random, Values::kPlain);
  everywhere([&](cpu::Context& context) {
    const std::size_t half = s.M / 2;
    cpu::linear_backward_weights(context, 8, 8, s.N, s.K, x.data(), dy.data(), whole.data(),
                                 db.data());
    cpu::linear_backward_weights(context, 4, 8, s.N, s.K, x.data(), dy.data(), left.data(),
                                 db.data());
    cpu::linear_backward_weights(context, 4, 8, s.N, s.K, x.data() + half * s.K,
                                 dy.data() + half * s.N, right.data(), db.data());
    for (std::size_t i = 0; i < whole.size(); ++i) left[i] = left[i] + right[i];
    CHECK(mismatches(left, whole, whole.size()) == 0);
  });
}

}  // namespace
}  // namespace muster::test
