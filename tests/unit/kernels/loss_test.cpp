#include <algorithm>
#include <cmath>

#include "doctest/doctest.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {
namespace {

struct Loss {
  Floats loss, correct, gradient;
};

/// The formulas of kernels/ops.h, one operation after another.
Loss reference_loss(std::size_t M, std::size_t N, const std::int32_t* labels, float scale,
                    const float* logits) {
  Loss result{Floats(M), Floats(M), Floats(M * N)};
  for (std::size_t m = 0; m < M; ++m) {
    const float* row = logits + m * N;
    const auto label = static_cast<std::size_t>(labels[m]);
    float max = -std::numeric_limits<float>::infinity();
    for (std::size_t n = 0; n < N; ++n) max = row[n] > max ? row[n] : max;
    Floats exps(N);
    for (std::size_t n = 0; n < N; ++n) exps[n] = cpu::exp_f32(row[n] - max);
    const float total = reference_sum(exps.data(), N);
    result.loss[m] = (cpu::log_f32(total) + max) - row[label];
    bool greatest = true;
    for (std::size_t n = 0; n < N; ++n) {
      greatest = greatest && (n < label ? row[n] < row[label] : row[n] <= row[label]);
      const float target = n == label ? 1.0F : 0.0F;
      result.gradient[m * N + n] = (exps[n] / total - target) * scale;
    }
    result.correct[m] = greatest ? 1.0F : 0.0F;
  }
  return result;
}

TEST_CASE("softmax cross-entropy equals its formulas in every bit") {
  Random random(seed());
  cpu::Context contexts[] = {cpu::Context(1), cpu::Context(3)};
  for (int round = 0; round < 120; ++round) {
    const std::size_t M = 1 + random.below(20);
    const std::size_t N = round < 20 ? 1 + static_cast<std::size_t>(round)
                                     : 1 + random.below(round % 30 == 0 ? 9000 : 60);
    Guarded<float> logits(M * N), loss(M), correct(M);
    Guarded<std::int32_t> labels(M);
    for (std::size_t i = 0; i < M * N; ++i) {
      logits[i] = round % 5 == 0 ? random.wild() : 20.0F * random.value();
    }
    if (round % 4 == 0) logits[0] = logits[N - 1];
    for (std::size_t m = 0; m < M; ++m) labels[m] = static_cast<std::int32_t>(random.below(N));
    const float scale = round % 2 == 0 ? 1.0F : 0.015625F;
    const Floats before(logits.data(), logits.data() + M * N);
    const Loss expected = reference_loss(M, N, labels.data(), scale, before.data());
    for (const cpu::Target target : targets()) {
      const Forced forced(target);
      for (cpu::Context& context : contexts) {
        CAPTURE(M);
        CAPTURE(N);
        CAPTURE(round);
        CAPTURE(std::string(cpu::name_of(target)));
        std::memcpy(logits.data(), before.data(), M * N * sizeof(float));
        cpu::softmax_cross_entropy(context, M, N, labels.data(), scale, false, logits.data(),
                                   loss.data(), correct.data());
        CHECK(mismatches(logits, before, M * N) == 0);
        CHECK(mismatches(loss, expected.loss, M) == 0);
        CHECK(mismatches(correct, expected.correct, M) == 0);
        cpu::softmax_cross_entropy(context, M, N, labels.data(), scale, true, logits.data(),
                                   loss.data(), correct.data());
        CHECK(mismatches(logits, expected.gradient, M * N) == 0);
        CHECK(mismatches(loss, expected.loss, M) == 0);
        CHECK(mismatches(correct, expected.correct, M) == 0);
      }
    }
  }
}

/// softmax_cross_entropy by slices that end at these classes.
Loss sliced_loss(cpu::Context& context, std::size_t M, const std::vector<std::size_t>& ends,
                 Guarded<std::int32_t>& labels, float scale, const Floats& logits) {
  const std::size_t N = ends.back();
  std::vector<cpu::Slice> slices;
  std::vector<Floats> rows, maxima, sums;
  std::vector<std::size_t> blocks;
  Floats max(M, -HUGE_VALF), of_label(M), told, total(M);
  for (std::size_t first = 0; const std::size_t end : ends) {
    slices.push_back({first, end - first});
    blocks.push_back((end - first + kernels::kBlockElements - 1) / kernels::kBlockElements);
    auto& own = rows.emplace_back();
    for (std::size_t m = 0; m < M; ++m) {
      const auto row = logits.begin() + static_cast<std::ptrdiff_t>(m * N);
      own.insert(own.end(), row + static_cast<std::ptrdiff_t>(first),
                 row + static_cast<std::ptrdiff_t>(end));
    }
    maxima.emplace_back(2 * M);
    sums.emplace_back((1 + blocks.back()) * M);
    first = end;
  }
  for (std::size_t p = 0; p < slices.size(); ++p) {
    cpu::softmax_slice_max(context, M, slices[p], labels.data(), rows[p].data(), maxima[p].data());
    for (std::size_t m = 0; m < M; ++m) {
      if (maxima[p][2 * m] > max[m]) max[m] = maxima[p][2 * m];
      const bool is_own = slices[p].has(static_cast<std::size_t>(labels[m]));
      if (is_own) of_label[m] = maxima[p][2 * m + 1];
    }
  }
  const cpu::RowLogits of{max.data(), of_label.data()};
  for (std::size_t p = 0; p < slices.size(); ++p) {
    cpu::softmax_slice_sums(context, M, slices[p], labels.data(), of, true, rows[p].data(),
                            sums[p].data());
    told.insert(told.end(), sums[p].begin(), sums[p].end());
  }
  Loss result{Floats(M), Floats(M), Floats(M * N)};
  cpu::softmax_slices_loss(M, blocks, told.data(), of, result.loss.data(), result.correct.data(),
                           total.data());
  for (std::size_t p = 0; p < slices.size(); ++p) {
    cpu::softmax_slice_gradient(context, M, slices[p], labels.data(), total.data(), scale,
                                rows[p].data());
    for (std::size_t m = 0; m < M; ++m) {
      std::copy_n(rows[p].data() + m * slices[p].count, slices[p].count,
                  result.gradient.data() + m * N + slices[p].first);
    }
  }
  return result;
}

TEST_CASE("softmax cross-entropy of divided classes has the bits of whole rows") {
  Random random(seed());
  cpu::Context context(2);
  constexpr std::size_t kBlock = kernels::kBlockElements, M = 7;
  for (int round = 0; round < 12; ++round) {
    const std::size_t N = 3 * kBlock + 1 + random.below(kBlock);
    Guarded<std::int32_t> labels(M);
    Floats logits(M * N);
    for (float& logit : logits) logit = round % 4 == 0 ? random.wild() : 20.0F * random.value();
    for (std::size_t m = 0; m < M; ++m) labels[m] = static_cast<std::int32_t>(random.below(N));
    // The greatest of two rows are equal: before the label, and behind it.
    if (round % 3 == 0) {
      labels[0] = static_cast<std::int32_t>(kBlock);
      logits[kBlock] = logits[kBlock - 1] = 99.0F;
      labels[1] = static_cast<std::int32_t>(kBlock - 1);
      logits[N + kBlock] = logits[N + kBlock - 1] = 99.0F;
    }
    const Loss expected = reference_loss(M, N, labels.data(), 0.25F, logits.data());
    for (const auto& ends : {std::vector{2 * kBlock, N}, {kBlock, 2 * kBlock, 3 * kBlock, N}}) {
      for (const cpu::Target target : targets()) {
        const Forced forced(target);
        CAPTURE(round);
        CAPTURE(ends.size());
        CAPTURE(std::string(cpu::name_of(target)));
        const Loss found = sliced_loss(context, M, ends, labels, 0.25F, logits);
        CHECK(mismatches(found.loss, expected.loss, M) == 0);
        CHECK(mismatches(found.correct, expected.correct, M) == 0);
        CHECK(mismatches(found.gradient, expected.gradient, M * N) == 0);
      }
    }
  }
}

TEST_CASE("of equal logits the first counts as the answer, and a NaN is never one") {
  cpu::Context context(1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  float logits[] = {1, 2, 2, 1, 2, 2, nan, 1, 2, 3, -3, -3};
  const std::int32_t labels[] = {1, 2, 2, 0};
  float loss[4], correct[4];
  cpu::softmax_cross_entropy(context, 4, 3, labels, 1.0F, false, logits, loss, correct);
  CHECK(correct[0] == 1.0F);
  CHECK(correct[1] == 0.0F);
  CHECK(correct[2] == 0.0F);
  CHECK(correct[3] == 1.0F);
}

/// Mean loss of softmax(relu(x w1 + b1) w2 + b2) in double, for finite differences.
struct Net {
  static constexpr std::size_t M = 12, D = 9, H = 11, N = 7;
  std::vector<double> x, w1, b1, w2, b2;
  std::vector<std::int32_t> labels;
  double loss() const {
    double total = 0.0;
    for (std::size_t m = 0; m < M; ++m) {
      std::vector<double> h(b1), z(b2);
      for (std::size_t j = 0; j < H; ++j) {
        for (std::size_t d = 0; d < D; ++d) h[j] += x[m * D + d] * w1[d * H + j];
        h[j] = h[j] > 0.0 ? h[j] : 0.0;
      }
      double sum = 0.0;
      for (std::size_t n = 0; n < N; ++n) {
        for (std::size_t j = 0; j < H; ++j) z[n] += h[j] * w2[j * N + n];
        sum += std::exp(z[n]);
      }
      total += std::log(sum) - z[static_cast<std::size_t>(labels[m])];
    }
    return total / static_cast<double>(M);
  }
};

std::vector<double> values(Random& random, std::size_t n) {
  std::vector<double> result(n);
  for (double& value : result) value = static_cast<double>(random.value());
  return result;
}

Floats rounded(const std::vector<double>& from) {
  Floats result;
  for (const double value : from) result.push_back(static_cast<float>(value));
  return result;
}

/// Central differences in double with h = 1e-5 are exact to about 1e-9; the gradient in single
/// precision, a sum of at most 12 x 11 terms of order 1, to about 1e-6.
void check_gradient(Net& net, std::vector<double>& parameters, const Floats& gradient) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double kept = parameters[i];
    parameters[i] = kept + 1e-5;
    const double above = net.loss();
    parameters[i] = kept - 1e-5;
    const double below = net.loss();
    parameters[i] = kept;
    CHECK(static_cast<double>(gradient[i]) ==
          doctest::Approx((above - below) / 2e-5).epsilon(1e-5).scale(1.0));
  }
}

TEST_CASE("gradients of a two-layer net agree with finite differences in double") {
  Random random(seed());
  Net net;
  net.x = values(random, Net::M * Net::D);
  net.w1 = values(random, Net::D * Net::H);
  net.b1 = values(random, Net::H);
  net.w2 = values(random, Net::H * Net::N);
  net.b2 = values(random, Net::N);
  for (std::size_t m = 0; m < Net::M; ++m) {
    net.labels.push_back(static_cast<std::int32_t>(random.below(Net::N)));
  }
  const Floats x = rounded(net.x), w1 = rounded(net.w1), b1 = rounded(net.b1);
  const Floats w2 = rounded(net.w2), b2 = rounded(net.b2);
  Floats h(Net::M * Net::H), z(Net::M * Net::N), loss(Net::M), correct(Net::M);
  Floats dw1(w1.size()), db1(b1.size()), dw2(w2.size()), db2(b2.size()), dh(h.size());
  Floats dx(x.size());
  cpu::Context context(2);
  cpu::linear_forward(context, Net::M, Net::H, Net::D, x.data(), w1.data(), b1.data(),
                      kernels::Activation::kRelu, h.data());
  cpu::linear_forward(context, Net::M, Net::N, Net::H, h.data(), w2.data(), b2.data(),
                      kernels::Activation::kNone, z.data());
  cpu::softmax_cross_entropy(context, Net::M, Net::N, net.labels.data(),
                             1.0F / static_cast<float>(Net::M), true, z.data(), loss.data(),
                             correct.data());
  cpu::linear_backward_weights(context, 4, 3, Net::N, Net::H, h.data(), z.data(), dw2.data(),
                               db2.data());
  cpu::linear_backward_input(context, Net::M, Net::N, Net::H, z.data(), w2.data(), h.data(),
                             dh.data());
  cpu::linear_backward_weights(context, 4, 3, Net::H, Net::D, x.data(), dh.data(), dw1.data(),
                               db1.data());
  cpu::linear_backward_input(context, Net::M, Net::H, Net::D, dh.data(), w1.data(), nullptr,
                             dx.data());
  check_gradient(net, net.w1, dw1);
  check_gradient(net, net.b1, db1);
  check_gradient(net, net.w2, dw2);
  check_gradient(net, net.b2, db2);
  check_gradient(net, net.x, dx);
}

}  // namespace
}  // namespace muster::test
