// Operations with sums over rows or columns, held against kernels/cpu.
#include <algorithm>
#include <limits>

#include "tests/unit/cuda/cases.h"

using namespace muster;
using namespace muster::test;
namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;

namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kNoEnd = std::numeric_limits<float>::infinity();

/// As some(), a value in sixteen as large or small as floats are.
Floats wild(Rng& rng, std::size_t n) {
  Floats values = some(rng, n);
  const Floats bits = any_bits(rng, n);
  for (std::size_t i = 0; i < n; ++i) {
    if (rng.below(16) == 0) values[i] = bits[i];
  }
  return values;
}

Floats values_of(Rng& rng, std::size_t n, bool is_wild) {
  return is_wild ? wild(rng, n) : some(rng, n);
}

void check_layer_norm(Rng& rng, std::size_t M, std::size_t C, bool is_wild) {
  CAPTURE(M);
  CAPTURE(C);
  cuda::Context gpu;
  cpu::Context host;
  const Floats x = values_of(rng, M * C, is_wild), dy = values_of(rng, M * C, is_wild);
  const Floats gamma = some(rng, C), beta = some(rng, C), skip = some(rng, M * C);
  Floats mean(M), inverse(M), y(M * C), dx(M * C), dx_skip(M * C);
  cpu::layer_norm(host, M, C, x.data(), gamma.data(), beta.data(), 1e-5F, mean.data(),
                  inverse.data(), y.data());
  cpu::layer_norm_backward_input(host, M, C, x.data(), mean.data(), inverse.data(), gamma.data(),
                                 dy.data(), nullptr, dx.data());
  cpu::layer_norm_backward_input(host, M, C, x.data(), mean.data(), inverse.data(), gamma.data(),
                                 dy.data(), skip.data(), dx_skip.data());

  DeviceFloats in(gpu, x), g(gpu, gamma), b(gpu, beta), m(gpu, Floats(M)), v(gpu, Floats(M)),
      out(gpu, Floats(M * C)), d(gpu, dy), s(gpu, skip);
  cuda::layer_norm(gpu, M, C, in.data(), g.data(), b.data(), 1e-5F, m.data(), v.data(), out.data());
  CHECK(different(m.values(), mean) == 0);
  CHECK(different(v.values(), inverse) == 0);
  CHECK(different(out.values(), y) == 0);
  cuda::layer_norm_backward_input(gpu, M, C, in.data(), m.data(), v.data(), g.data(), d.data(),
                                  s.data(), s.data());
  CHECK(different(s.values(), dx_skip) == 0);
  cuda::layer_norm_backward_input(gpu, M, C, in.data(), m.data(), v.data(), g.data(), d.data(),
                                  nullptr, d.data());
  CHECK(different(d.values(), dx) == 0);
  cuda::layer_norm(gpu, M, C, in.data(), g.data(), b.data(), 1e-5F, m.data(), v.data(), in.data());
  CHECK(different(in.values(), y) == 0);
}

/// Shape: as layer_norm_backward_weights.
struct NormInput {
  Floats x, mean, inverse, dy;
};

void check_layer_norm_weights(std::size_t ranks, std::size_t rows, std::size_t C,
                              const NormInput& of) {
  CAPTURE(ranks);
  CAPTURE(rows);
  CAPTURE(C);
  cuda::Context gpu;
  cpu::Context host;
  Floats dgamma(C), dbeta(C);
  cpu::layer_norm_backward_weights(host, ranks, rows, C, of.x.data(), of.mean.data(),
                                   of.inverse.data(), of.dy.data(), dgamma.data(), dbeta.data());
  DeviceFloats in(gpu, of.x), m(gpu, of.mean), v(gpu, of.inverse), d(gpu, of.dy), g(gpu, Floats(C)),
      b(gpu, Floats(C));
  cuda::layer_norm_backward_weights(gpu, ranks, rows, C, in.data(), m.data(), v.data(), d.data(),
                                    g.data(), b.data());
  CHECK(different(g.values(), dgamma) == 0);
  CHECK(different(b.values(), dbeta) == 0);
}

void check_batch_norm(Rng& rng, std::size_t ranks, std::size_t rows, std::size_t C, bool is_wild) {
  CAPTURE(ranks);
  CAPTURE(rows);
  CAPTURE(C);
  cuda::Context gpu;
  cpu::Context host;
  const std::size_t n = ranks * rows * C, each = ranks * C;
  const Floats x = values_of(rng, n, is_wild), dy = values_of(rng, n, is_wild);
  const Floats gamma = some(rng, C), beta = some(rng, C);
  Floats mean(each), inverse(each), variance(each), y(n), relu(n), dgamma(each), dbeta(each), dx(n);
  cpu::batch_statistics(host, ranks, rows, C, x.data(), 1e-5F,
                        {mean.data(), inverse.data(), variance.data()});
  const cpu::Normalisation by{mean.data(), inverse.data(), gamma.data(), beta.data()};
  cpu::batch_normalise(host, ranks, rows, C, x.data(), by, kernels::Activation::kNone, y.data());
  cpu::batch_normalise(host, ranks, rows, C, x.data(), by, kernels::Activation::kRelu, relu.data());
  cpu::batch_normalise_backward(host, ranks, rows, C, x.data(), by, dy.data(), dgamma.data(),
                                dbeta.data(), dx.data());

  DeviceFloats in(gpu, x), g(gpu, gamma), b(gpu, beta), m(gpu, Floats(each)), i(gpu, Floats(each)),
      v(gpu, Floats(each)), out(gpu, Floats(n)), d(gpu, dy), dg(gpu, Floats(each)),
      db(gpu, Floats(each));
  cuda::batch_statistics(gpu, ranks, rows, C, in.data(), 1e-5F, {m.data(), i.data(), v.data()});
  CHECK(different(m.values(), mean) == 0);
  CHECK(different(i.values(), inverse) == 0);
  CHECK(different(v.values(), variance) == 0);
  const cpu::Normalisation device_by{m.data(), i.data(), g.data(), b.data()};
  cuda::batch_normalise(gpu, ranks, rows, C, in.data(), device_by, kernels::Activation::kNone,
                        out.data());
  CHECK(different(out.values(), y) == 0);
  cuda::batch_normalise(gpu, ranks, rows, C, in.data(), device_by, kernels::Activation::kRelu,
                        out.data());
  CHECK(different(out.values(), relu) == 0);
  cuda::batch_normalise_backward(gpu, ranks, rows, C, in.data(), device_by, d.data(), dg.data(),
                                 db.data(), d.data());
  CHECK(different(dg.values(), dgamma) == 0);
  CHECK(different(db.values(), dbeta) == 0);
  CHECK(different(d.values(), dx) == 0);
}

using Labels = std::vector<std::int32_t>;

void check_softmax(std::size_t N, const Floats& logits, const Labels& labels) {
  CAPTURE(N);
  const std::size_t M = labels.size();
  CAPTURE(M);
  cuda::Context gpu;
  cpu::Context host;
  for (const bool gradient : {false, true}) {
    CAPTURE(gradient);
    Floats expected = logits, loss(M), correct(M);
    cpu::softmax_cross_entropy(host, M, N, labels.data(), 0.3F, gradient, expected.data(),
                               loss.data(), correct.data());
    DeviceFloats l(gpu, logits), device_loss(gpu, Floats(M)), device_correct(gpu, Floats(M));
    DeviceInts device_labels(gpu, labels);
    cuda::softmax_cross_entropy(gpu, M, N, device_labels.data(), 0.3F, gradient, l.data(),
                                device_loss.data(), device_correct.data());
    CHECK(different(l.values(), expected) == 0);
    CHECK(different(device_loss.values(), loss) == 0);
    CHECK(different(device_correct.values(), correct) == 0);
  }
}

Labels some_labels(Rng& rng, std::size_t M, std::size_t N) {
  Labels labels(M);
  for (std::int32_t& label : labels) label = static_cast<std::int32_t>(rng.below(N));
  return labels;
}

}  // namespace

TEST_CASE("layer normalisation gives the bits of the processor, in place, too") {
  if (!has_gpu("layer_norm")) return;
  Rng rng(seed());
  for (const std::size_t C : {1, 15, 16, 17, 100, 4095, 4096, 4097, 9000}) {
    for (const std::size_t M : {1, 3, 33}) check_layer_norm(rng, M, C, false);
    check_layer_norm(rng, 5, C, true);
  }
  check_layer_norm(rng, 2, 5 * 4096 + 7, false);
}

TEST_CASE("the weights of layer normalisation get the bits of the processor") {
  if (!has_gpu("layer_norm_backward_weights")) return;
  Rng rng(seed());
  for (const std::size_t C : {1, 31, 32, 33, 100, 4097}) {
    for (const std::size_t ranks : {1, 2, 8}) {
      for (const std::size_t rows : {1, 15, 16, 37}) {
        const std::size_t M = ranks * rows;
        check_layer_norm_weights(ranks, rows, C,
                                 {some(rng, M * C), some(rng, M), wild(rng, M), wild(rng, M * C)});
      }
    }
  }
  // Products that vanish below zero: the sums are -0.
  check_layer_norm_weights(
      2, 3, 1, {Floats(6, 1e-30F), Floats(6, 0.0F), Floats(6, 1.0F), Floats(6, -1e-30F)});
}

TEST_CASE("batch normalisation gives the bits of the processor, in place, too") {
  if (!has_gpu("batch normalisation")) return;
  Rng rng(seed());
  for (const std::size_t C : {1, 15, 16, 17, 33, 100}) {
    for (const std::size_t ranks : {1, 2, 8}) {
      for (const std::size_t rows : {2, 16, 50}) {
        check_batch_norm(rng, ranks, rows, C, rows == 50);
      }
    }
  }
  for (const std::size_t rows : {4095, 4096, 4097, 9000, 5 * 4096 + 7}) {
    check_batch_norm(rng, 2, rows, 3, false);
  }
  check_batch_norm(rng, 1, 3, 4097, false);
}

TEST_CASE("the inverse of a deviation and sums over ranks have the bits of the processor") {
  if (!has_gpu("inverse_deviation and sum_ranks")) return;
  Rng rng(seed());
  cuda::Context gpu;
  cpu::Context host;
  for (const std::size_t n : {1, 255, 257, 9000}) {
    const Floats variance = any_bits(rng, n);
    Floats expected(n);
    cpu::inverse_deviation(host, n, variance.data(), 1e-5F, expected.data());
    DeviceFloats v(gpu, variance), out(gpu, Floats(n));
    cuda::inverse_deviation(gpu, n, v.data(), 1e-5F, out.data());
    CHECK(different(out.values(), expected) == 0);
    for (const std::size_t ranks : {1, 2, 8, 64}) {
      Floats values = some(rng, ranks * n);
      DeviceFloats device(gpu, values);
      cpu::sum_ranks(host, ranks, n, values.data(), expected.data());
      cuda::sum_ranks(gpu, ranks, n, device.data(), out.data());
      CHECK(different(out.values(), expected) == 0);
    }
  }
}

TEST_CASE("softmax cross-entropy gives the bits of the processor") {
  if (!has_gpu("softmax_cross_entropy")) return;
  Rng rng(seed());
  for (const std::size_t N : {1, 2, 10, 15, 16, 17, 100, 4095, 4096, 4097, 9000}) {
    for (const std::size_t M : {1, 3, 33}) {
      if (M > 3 && N > 4097) continue;
      Floats logits = some(rng, M * N);
      for (float& logit : logits) logit = logit * 20.0F;
      check_softmax(N, logits, some_labels(rng, M, N));
      check_softmax(N, wild(rng, M * N), some_labels(rng, M, N));
    }
  }
  // A vocabulary, and more blocks than a block of threads sums at once.
  for (const std::size_t N : {50'257, 17 * 4096 + 1}) {
    check_softmax(N, some(rng, 2 * N), some_labels(rng, 2, N));
  }
}

TEST_CASE("which logit is the greatest is told as the processor tells") {
  if (!has_gpu("softmax_cross_entropy")) return;
  for (const std::size_t N : {10, 5000}) {
    const std::size_t a = N / 3, b = N / 2;  // the label is b but in the last two rows
    Floats logits;
    const auto row = [&](float of_a, float of_b, float others) {
      Floats one(N, others);
      one[a] = of_a;
      one[b] = of_b;
      logits.insert(logits.end(), one.begin(), one.end());
    };
    row(0.0F, 1.0F, 0.5F);
    row(1.0F, 1.0F, 0.5F);
    row(-0.0F, 0.0F, -1.0F);
    row(kNoNumber, 1.0F, 0.5F);
    row(1.0F, kNoNumber, 0.5F);
    row(0.0F, kNoEnd, 0.0F);
    row(-kNoEnd, -kNoEnd, -kNoEnd);
    row(3e38F, -3e38F, 0.0F);
    row(1.0F, 1.0F, 0.5F);
    row(0.0F, 0.0F, 0.0F);
    Labels labels(logits.size() / N, static_cast<std::int32_t>(b));
    labels[labels.size() - 2] = static_cast<std::int32_t>(a);
    labels.back() = 0;
    check_softmax(N, logits, labels);
  }
}
