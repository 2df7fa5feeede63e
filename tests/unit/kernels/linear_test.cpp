// Every element of the three matrix products against scalar chains of std::fma, bit by bit.
#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>

#include "doctest/doctest.h"
#include "kernels/cpu/bfloat16.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {
namespace {

using kernels::Products;

struct Shape {
  std::size_t M, N, K;
};

/// What a matrix holds for a product.
Floats operands(Products products, const float* values, std::size_t n) {
  Floats rounded(values, values + n);
  if (products == Products::kFloat32) return rounded;
  for (float& value : rounded) {
    if (std::isnan(value)) continue;
    if (std::fpclassify(value) == FP_SUBNORMAL) value = std::copysign(0.0F, value);
    if (!std::isfinite(value)) continue;
    // To 8 bits, ties to even, by arithmetic rather than by bits.
    int exponent = 0;
    const double fraction = std::frexp(static_cast<double>(value), &exponent) * 256.0;
    const double near = std::ldexp(std::nearbyint(fraction), exponent - 8);
    value = static_cast<float>(near);
  }
  return rounded;
}

/// One step of a chain.
float chain_step(Products products, float a, float b, float acc) {
  const float sum = std::fma(a, b, acc);
  if (products == Products::kFloat32 || !(std::fabs(sum) <= 0x1p-126F)) return sum;
  // With 24 bits and no least exponent, halfway between the two greatest below it goes up.
  const long double exact = static_cast<long double>(a) * b + acc;
  return std::fabs(exact) >= 0x1p-126L - 0x1p-151L ? sum : std::copysign(0.0F, sum);
}

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

/// Denormals, or what has become of them.
std::size_t tiny_of(Products products, const Floats& values) {
  const int kind = products == Products::kFloat32 ? FP_SUBNORMAL : FP_ZERO;
  return static_cast<std::size_t>(std::count_if(
      values.begin(), values.end(), [kind](float x) { return std::fpclassify(x) == kind; }));
}

void poison(Guarded<float>& buffer) {
  for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] = -12345.0F;
}

Floats reference_forward(Products products, const Shape& s, const float* x_given,
                         const float* w_given, const float* bias, bool relu) {
  const Floats x = operands(products, x_given, s.M * s.K);
  const Floats w = operands(products, w_given, s.K * s.N);
  Floats y(s.M * s.N);
  for (std::size_t m = 0; m < s.M; ++m) {
    for (std::size_t n = 0; n < s.N; ++n) {
      float acc = 0.0F;
      for (std::size_t k = 0; k < s.K; ++k) {
        acc = chain_step(products, x[m * s.K + k], w[k * s.N + n], acc);
      }
      if (bias != nullptr) acc = acc + bias[n];
      if (relu) acc = acc > 0.0F ? acc : 0.0F;
      y[m * s.N + n] = acc;
    }
  }
  return y;
}

Floats reference_input(Products products, const Shape& s, const float* dy_given,
                       const float* w_given, const float* relu_output) {
  const Floats dy = operands(products, dy_given, s.M * s.N);
  const Floats w = operands(products, w_given, s.K * s.N);
  Floats dx(s.M * s.K);
  for (std::size_t m = 0; m < s.M; ++m) {
    for (std::size_t k = 0; k < s.K; ++k) {
      float acc = 0.0F;
      for (std::size_t n = 0; n < s.N; ++n) {
        acc = chain_step(products, dy[m * s.N + n], w[k * s.N + n], acc);
      }
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

Floats reference_weights(Products products, std::size_t ranks, const Shape& s, const float* x_given,
                         const float* dy_given) {
  const Floats x = operands(products, x_given, s.M * s.K);
  const Floats dy = operands(products, dy_given, s.M * s.N);
  Floats dw(s.K * s.N);
  for (std::size_t k = 0; k < s.K; ++k) {
    for (std::size_t n = 0; n < s.N; ++n) {
      dw[k * s.N + n] = ranks_sum(ranks, s.M / ranks, [&](std::size_t row, float acc) {
        return chain_step(products, x[row * s.K + k], dy[row * s.N + n], acc);
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

/// Calls check(context) for every target, in each way in which it multiplies, with 1, 2 and 3
/// threads.
void everywhere(Products products, const std::function<void(cpu::Context&)>& check) {
  static cpu::Context single[] = {cpu::Context(1), cpu::Context(2), cpu::Context(3)};
  static cpu::Context half[] = {cpu::Context(1, Products::kBfloat16),
                                cpu::Context(2, Products::kBfloat16),
                                cpu::Context(3, Products::kBfloat16)};
  const auto in = [&](cpu::Context& context) {
    CAPTURE(std::string(cpu::name_of(cpu::best_target())));
    CAPTURE(context.threads());
    check(context);
  };
  for (const cpu::Target target : targets()) {
    const Forced forced(target);
    if (products == Products::kFloat32) {
      for (cpu::Context& context : single) in(context);
      continue;
    }
    for (const cpu::PairTable* table : cpu::runnable_pairs()) {
      cpu::force_pairs(table);
      for (cpu::Context& context : half) in(context);
      cpu::force_pairs(nullptr);
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
  // With bfloat16 a thousand steps at a time.
  for (const std::size_t k : {1023, 1025, 2100}) {
    shapes.push_back({11, 50, k});
    shapes.push_back({5, k, 7});
  }
  for (int i = 0; i < 150; ++i) {
    shapes.push_back({1 + random.below(40), 1 + random.below(120), 1 + random.below(90)});
  }
  return shapes;
}

void check_forward(Products products) {
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
    const Floats expected = reference_forward(products, s, x.data(), w.data(), b, relu);
    tiny += tiny_of(products, expected);
    everywhere(products, [&](cpu::Context& context) {
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

void check_input(Products products) {
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
    const Floats expected = reference_input(products, s, dy.data(), w.data(), mask);
    tiny += tiny_of(products, expected);
    everywhere(products, [&](cpu::Context& context) {
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

void check_weights(Products products) {
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
    const Floats expected = reference_weights(products, ranks, s, x.data(), dy.data());
    const Floats expected_bias = reference_bias(ranks, s, dy.data());
    tiny += tiny_of(products, expected);
    everywhere(products, [&](cpu::Context& context) {
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

void check_rows_alone(Products products) {
  Random random(seed() + 3);
  const Shape s{61, 77, 300};
  Guarded<float> x(s.M * s.K), w(s.K * s.N), bias(s.N), all(s.M * s.N), some(s.M * s.N);
  fill_buffer(x, random, Values::kWild);
  fill_buffer(w, random, Values::kWild);
  fill_buffer(bias, random, Values::kPlain);
  everywhere(products, [&](cpu::Context& context) {
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

void check_further_rows(Products products) {
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
    everywhere(products, [&](cpu::Context& context) {
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

/// Chains that are made in three parts, maybe empty ones, as by processes that hand them on.
void check_parts(Products products) {
  Random random(seed() + 6);
  for (int i = 0; i < 60; ++i) {
    const std::size_t long_chain = i % 6 == 0 ? 1'200 : 90;
    Shape s{1 + random.below(i % 5 == 0 ? 300 : 40), 1 + random.below(130), 1 + random.below(70)};
    (i % 2 == 0 ? s.K : s.N) = 1 + random.below(long_chain);
    Guarded<float> x(s.M * s.K), w(s.K * s.N), bias(s.N), dy(s.M * s.N), out(s.M * s.K);
    Guarded<float> y(s.M * s.N), dx(s.M * s.K);
    for (auto* buffer : {&x, &w, &dy, &out}) fill_buffer(*buffer, random, any_values(random));
    fill_buffer(bias, random, Values::kPlain);
    const auto cuts_of = [&](std::size_t chain) {
      const std::size_t cut = random.below(chain + 1);
      return std::array{std::size_t{0}, cut, cut + random.below(chain - cut + 1), chain};
    };
    const auto cuts_k = cuts_of(s.K), cuts_n = cuts_of(s.N);
    CAPTURE(s.M);
    CAPTURE(s.N);
    CAPTURE(s.K);
    everywhere(products, [&](cpu::Context& context) {
      Floats whole_y(y.size()), whole_dx(dx.size());
      cpu::linear_forward(context, s.M, s.N, s.K, x.data(), w.data(), bias.data(),
                          kernels::Activation::kRelu, whole_y.data());
      cpu::linear_backward_input(context, s.M, s.N, s.K, dy.data(), w.data(), out.data(),
                                 whole_dx.data());
      poison(y);
      poison(dx);
      for (std::size_t p = 0; p < 3; ++p) {
        const bool is_last = p == 2;
        cpu::linear_forward_part(
            context, s.M, s.N, s.K, {cuts_k[p], cuts_k[p + 1] - cuts_k[p], p > 0}, x.data(),
            w.data(), is_last ? bias.data() : nullptr,
            is_last ? kernels::Activation::kRelu : kernels::Activation::kNone, y.data());
        cpu::linear_backward_input_part(context, s.M, s.N, s.K,
                                        {cuts_n[p], cuts_n[p + 1] - cuts_n[p], p > 0}, dy.data(),
                                        w.data(), is_last ? out.data() : nullptr, dx.data());
      }
      CHECK(mismatches(y, whole_y, y.size()) == 0);
      CHECK(mismatches(dx, whole_dx, dx.size()) == 0);
      CHECK(y.untouched());
      CHECK(dx.untouched());
    });
  }
}

void check_halves(Products products) {
  Random random(seed() + 4);
  const Shape s{64, 37, 29};
  Guarded<float> x(s.M * s.K), dy(s.M * s.N), whole(s.K * s.N), left(s.K * s.N), right(s.K * s.N);
  Guarded<float> db(s.N);
  fill_buffer(x, random, Values::kPlain);
  fill_buffer(dy, random, Values::kPlain);
  everywhere(products, [&](cpu::Context& context) {
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

TEST_CASE("a forward product equals scalar chains in every bit") {
  check_forward(Products::kFloat32);
}

TEST_CASE("bfloat16: a forward product equals scalar chains in every bit") {
  check_forward(Products::kBfloat16);
}

TEST_CASE("an input gradient equals scalar chains in every bit") {
  check_input(Products::kFloat32);
}

TEST_CASE("bfloat16: an input gradient equals scalar chains in every bit") {
  check_input(Products::kBfloat16);
}

TEST_CASE("a weight gradient is cut at the logical ranks and equals scalar chains in every bit") {
  check_weights(Products::kFloat32);
}

TEST_CASE(
    "bfloat16: a weight gradient is cut at the logical ranks and equals scalar chains in every "
    "bit") {
  check_weights(Products::kBfloat16);
}

TEST_CASE("a row's result does not depend on how many rows are computed with it") {
  check_rows_alone(Products::kFloat32);
}

TEST_CASE("bfloat16: a row's result does not depend on how many rows are computed with it") {
  check_rows_alone(Products::kBfloat16);
}

TEST_CASE("a rank's weight gradient goes on with further rows as if they had come at once") {
  check_further_rows(Products::kFloat32);
}

TEST_CASE(
    "bfloat16: a rank's weight gradient goes on with further rows as if they had come at once") {
  check_further_rows(Products::kBfloat16);
}

TEST_CASE("chains that are made in parts equal those that are made at once") {
  check_parts(Products::kFloat32);
}

TEST_CASE("bfloat16: chains that are made in parts equal those that are made at once") {
  check_parts(Products::kBfloat16);
}

TEST_CASE("the weight gradients of two halves add up to that of the whole") {
  check_halves(Products::kFloat32);
}

TEST_CASE("bfloat16: the weight gradients of two halves add up to that of the whole") {
  check_halves(Products::kBfloat16);
}

TEST_CASE("bfloat16: a product is as far from the exact one as rounding its operands may take it") {
  Random random(seed() + 7);
  // Of a rounded operand 2^-8 of its size, of a sum of K steps K 2^-24.
  for (const std::size_t K : {1, 3, 64, 1000}) {
    const Shape s{19, 23, K};
    Guarded<float> x(s.M * s.K), w(s.K * s.N), y(s.M * s.N);
    fill_buffer(x, random, Values::kPlain);
    fill_buffer(w, random, Values::kPlain);
    cpu::Context context(2, Products::kBfloat16);
    cpu::linear_forward(context, s.M, s.N, s.K, x.data(), w.data(), nullptr,
                        kernels::Activation::kNone, y.data());
    double worst = 0;
    for (std::size_t at = 0; at < s.M * s.N; ++at) {
      double exact = 0, sizes = 0;
      for (std::size_t k = 0; k < K; ++k) {
        const double part = static_cast<double>(x[at / s.N * K + k]) * w[k * s.N + at % s.N];
        exact += part;
        sizes += std::fabs(part);
      }
      const double bound = (0x1.01p-7 + static_cast<double>(K) * 0x1p-24) * sizes;
      worst = std::max(worst, std::fabs(y[at] - exact) / bound);
    }
    CAPTURE(K);
    CHECK(worst < 1);
    CHECK(worst > 0.001);  // they were rounded
  }
}

TEST_CASE("bfloat16: sums about the least normal number are flushed as the processor does") {
  Random random(seed() + 6);
  const Shape s{40, 50, 8};
  Guarded<float> x(s.M * s.K), w(s.K * s.N), y(s.M * s.N);
  std::size_t least = 0, below = 0;
  for (int round = 0; round < 40; ++round) {
    // First steps that make 2^-126 or little more of either sign, then products of up to half of
    // the distance to the next number below.
    const auto power = [&](int exponent) {
      const float sign = random.below(2) == 0 ? 1.0F : -1.0F;
      const auto bits = static_cast<float>(128 + random.below(128));
      return sign * std::ldexp(bits, exponent - 7);
    };
    for (std::size_t k = 0; k < s.K; ++k) {
      for (std::size_t m = 0; m < s.M; ++m) {
        x[m * s.K + k] = k == 0 ? 0x1p-63F : power(-70 - static_cast<int>(random.below(8)));
      }
      for (std::size_t n = 0; n < s.N; ++n) {
        w[k * s.N + n] = k == 0 ? (random.below(2) == 0 ? 0x1p-63F : -0x1p-63F)
                                : power(-79 + static_cast<int>(random.below(4)));
      }
    }
    const Floats expected =
        reference_forward(Products::kBfloat16, s, x.data(), w.data(), nullptr, false);
    for (const float value : expected) {
      least += std::fabs(value) == 0x1p-126F ? 1 : 0;
      below += value == 0.0F ? 1 : 0;
    }
    everywhere(Products::kBfloat16, [&](cpu::Context& context) {
      poison(y);
      cpu::linear_forward(context, s.M, s.N, s.K, x.data(), w.data(), nullptr,
                          kernels::Activation::kNone, y.data());
      CHECK(mismatches(y, expected, expected.size()) == 0);
      poison(y);
      for (const cpu::ChainPart part : {cpu::ChainPart{0, 3, false}, {3, s.K - 3, true}}) {
        cpu::linear_forward_part(context, s.M, s.N, s.K, part, x.data(), w.data(), nullptr,
                                 kernels::Activation::kNone, y.data());
      }
      CHECK(mismatches(y, expected, expected.size()) == 0);
    });
  }
  CHECK(least > 300);
  CHECK(below > 1000);
}

}  // namespace
}  // namespace muster::test
