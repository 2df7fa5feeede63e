// Convolution's patches, pooling and batch normalisation against plain loops, bit by bit.
#include "doctest/doctest.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {
namespace {

using kernels::Extent;

const Extent kExtents[] = {{1, 1, 1},  {8, 8, 1}, {4, 4, 16}, {5, 3, 2},
                           {2, 7, 33}, {1, 6, 3}, {28, 28, 5}};

/// The pixel that tap (ky, kx) of the patch at (y, x) meets, or -1 outside the image.
std::ptrdiff_t met(const Extent& image, std::size_t side, std::size_t pixel, std::size_t tap) {
  const auto signed_of = [](std::size_t v) { return static_cast<std::ptrdiff_t>(v); };
  const std::ptrdiff_t y = signed_of(pixel / image.width + tap / side) - signed_of(side / 2);
  const std::ptrdiff_t x = signed_of(pixel % image.width + tap % side) - signed_of(side / 2);
  if (y < 0 || x < 0 || y >= signed_of(image.height) || x >= signed_of(image.width)) return -1;
  return y * signed_of(image.width) + x;
}

TEST_CASE("patches hold what the kernel meets, and zeros outside the image") {
  Random random(seed());
  cpu::Context context(2);
  for (const Extent& image : kExtents) {
    for (const std::size_t side : {1, 3, 5, 7}) {
      const std::size_t M = 3;
      Guarded<float> x(M * image.size());
      Guarded<float> patches(M * image.size() * side * side);
      fill(x, random, true);
      cpu::gather_patches(context, M, image, side, x.data(), patches.data());
      std::size_t wrong = 0;
      std::size_t at = 0;
      for (std::size_t m = 0; m < M; ++m) {
        for (std::size_t pixel = 0; pixel < image.pixels(); ++pixel) {
          for (std::size_t tap = 0; tap < side * side; ++tap) {
            const std::ptrdiff_t from = met(image, side, pixel, tap);
            for (std::size_t c = 0; c < image.channels; ++c, ++at) {
              const float expected =
                  from < 0
                      ? 0.0F
                      : x[m * image.size() + static_cast<std::size_t>(from) * image.channels + c];
              wrong += same_bits(patches[at], expected) ? 0 : 1;
            }
          }
        }
      }
      CAPTURE(side);
      CAPTURE(image.width);
      CHECK(wrong == 0);
      CHECK(patches.untouched());
    }
  }
}

TEST_CASE("a value's gradient is the sum over the taps that met it, in ascending order") {
  Random random(seed());
  cpu::Context context(2);
  for (const Extent& image : kExtents) {
    for (const std::size_t side : {1, 3, 5}) {
      const std::size_t M = 2;
      const std::size_t taps = side * side;
      Guarded<float> dpatches(M * image.size() * taps), dx(M * image.size()), y(M * image.size());
      fill(dpatches, random);
      fill(y, random, true);
      Floats expected(dx.size(), 0.0F);
      for (std::size_t m = 0; m < M; ++m) {
        // Tap by tap, so that every value gets its terms in the order of the taps.
        for (std::size_t tap = 0; tap < taps; ++tap) {
          for (std::size_t pixel = 0; pixel < image.pixels(); ++pixel) {
            const std::ptrdiff_t to = met(image, side, pixel, tap);
            for (std::size_t c = 0; to >= 0 && c < image.channels; ++c) {
              const std::size_t patch = (m * image.pixels() + pixel) * taps + tap;
              expected[m * image.size() + static_cast<std::size_t>(to) * image.channels + c] +=
                  dpatches[patch * image.channels + c];
            }
          }
        }
      }
      cpu::scatter_patches(context, M, image, side, dpatches.data(), nullptr, dx.data());
      CHECK(mismatches(dx, expected, dx.size()) == 0);
      cpu::scatter_patches(context, M, image, side, dpatches.data(), y.data(), dx.data());
      for (std::size_t i = 0; i < dx.size(); ++i) expected[i] = y[i] > 0 ? expected[i] : 0.0F;
      CHECK(mismatches(dx, expected, dx.size()) == 0);
      CHECK(dx.untouched());
    }
  }
}

TEST_CASE("pooling takes the greatest, the first of equals, and gives the gradient to it alone") {
  Random random(seed());
  cpu::Context context(2);
  for (const Extent& image : kExtents) {
    const Extent out{image.height / 2, image.width / 2, image.channels};
    const std::size_t M = 3;
    Guarded<float> x(M * image.size()), dx(M * image.size());
    Guarded<float> y(M * out.size()), dy(M * out.size());
    // Few values, so that many are equal.
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.below(3));
    fill(dy, random);
    Floats expected(x.size(), 0.0F);
    Floats expected_y(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t c = i % out.channels;
      const std::size_t pixel = i / out.channels % out.pixels();
      const std::size_t m = i / out.size();
      std::size_t taken = 0;
      for (std::size_t k = 0; k < 4; ++k) {
        const std::size_t row = pixel / out.width * 2 + k / 2;
        const std::size_t column = pixel % out.width * 2 + k % 2;
        const std::size_t at =
            ((m * image.height + row) * image.width + column) * image.channels + c;
        if (k == 0 || x[at] > x[taken]) taken = at;
      }
      expected_y[i] = x[taken];
      expected[taken] = dy[i];
    }
    cpu::max_pool(context, M, image, x.data(), y.data());
    cpu::max_pool_backward(context, M, image, x.data(), dy.data(), dx.data());
    CAPTURE(image.height);
    CAPTURE(image.width);
    CHECK(mismatches(y, expected_y, y.size()) == 0);
    CHECK(mismatches(dx, expected, dx.size()) == 0);
    CHECK(dx.untouched());
    CHECK(y.untouched());
  }
}

struct NormShape {
  std::size_t ranks, rows, channels;
};

const NormShape kNormShapes[] = {{1, 2, 1}, {4, 16, 3}, {2, 100, 33}, {8, 17, 64}, {1, 5000, 5}};

/// The values of one channel of one rank.
Floats column(const float* x, const NormShape& shape, std::size_t rank, std::size_t c) {
  Floats values;
  for (std::size_t i = 0; i < shape.rows; ++i) {
    values.push_back(x[(rank * shape.rows + i) * shape.channels + c]);
  }
  return values;
}

TEST_CASE("batch normalisation and its gradient follow their formulas in the contract's order") {
  Random random(seed());
  constexpr float kEpsilon = 1e-5F;
  for (const NormShape& shape : kNormShapes) {
    const std::size_t C = shape.channels;
    const std::size_t n = shape.ranks * shape.rows * C;
    Guarded<float> x(n), y(n), dy(n), dx(n), gamma(C), beta(C);
    const std::size_t all = shape.ranks * C;
    Guarded<float> mean(all), inverse(all), variance(all), dgamma(all), dbeta(all);
    for (Guarded<float>* buffer : {&x, &dy, &gamma, &beta}) fill(*buffer, random);
    Floats expected_y(n), expected_dx(n);
    std::size_t wrong = 0;
    cpu::Context context(3);
    cpu::batch_statistics(context, shape.ranks, shape.rows, C, x.data(), kEpsilon,
                          {mean.data(), inverse.data(), variance.data()});
    const cpu::Normalisation by{mean.data(), inverse.data(), gamma.data(), beta.data()};
    cpu::batch_normalise(context, shape.ranks, shape.rows, C, x.data(), by,
                         kernels::Activation::kRelu, y.data());
    cpu::batch_normalise_backward(context, shape.ranks, shape.rows, C, x.data(), by, dy.data(),
                                  dgamma.data(), dbeta.data(), dx.data());
    const auto rows = static_cast<float>(shape.rows);
    for (std::size_t rank = 0; rank < shape.ranks; ++rank) {
      for (std::size_t c = 0; c < C; ++c) {
        const Floats own = column(x.data(), shape, rank, c);
        const Floats gradient = column(dy.data(), shape, rank, c);
        const float own_mean = reference_sum(own.data(), own.size()) / rows;
        Floats squares, products, normal;
        for (std::size_t i = 0; i < own.size(); ++i) {
          const float off = own[i] - own_mean;
          squares.push_back(off * off);
        }
        const float total = reference_sum(squares.data(), squares.size());
        const float own_inverse = 1.0F / std::sqrt(total / rows + kEpsilon);
        for (std::size_t i = 0; i < own.size(); ++i) {
          normal.push_back((own[i] - own_mean) * own_inverse);
          products.push_back(gradient[i] * normal[i]);
        }
        const float own_beta = reference_sum(gradient.data(), gradient.size());
        const float own_gamma = reference_sum(products.data(), products.size());
        const std::size_t at = rank * C + c;
        wrong += same_bits(mean[at], own_mean) ? 0 : 1;
        wrong += same_bits(inverse[at], own_inverse) ? 0 : 1;
        wrong += same_bits(variance[at], total / (rows - 1)) ? 0 : 1;
        wrong += same_bits(dbeta[at], own_beta) ? 0 : 1;
        wrong += same_bits(dgamma[at], own_gamma) ? 0 : 1;
        for (std::size_t i = 0; i < own.size(); ++i) {
          const std::size_t k = (rank * shape.rows + i) * C + c;
          const float value = normal[i] * gamma[c] + beta[c];
          expected_y[k] = value > 0 ? value : 0.0F;
          expected_dx[k] = ((gradient[i] - own_beta / rows) - normal[i] * (own_gamma / rows)) *
                           (gamma[c] * own_inverse);
        }
      }
    }
    CAPTURE(shape.rows);
    CHECK(wrong == 0);
    CHECK(mismatches(y, expected_y, n) == 0);
    CHECK(mismatches(dx, expected_dx, n) == 0);
    for (const Guarded<float>* buffer : {&y, &dx, &mean, &inverse, &variance, &dgamma, &dbeta}) {
      CHECK(buffer->untouched());
    }
    // In the place of the gradient, as a model has it that keeps no buffer for it.
    cpu::batch_normalise_backward(context, shape.ranks, shape.rows, C, x.data(), by, dy.data(),
                                  dgamma.data(), dbeta.data(), dy.data());
    CHECK(mismatches(dy, expected_dx, n) == 0);
  }
}

TEST_CASE("values by rank are summed on the complete tree") {
  Random random(seed());
  for (const cpu::Target target : targets()) {
    const Forced forced(target);
    for (const std::size_t ranks : {1, 2, 16, 64}) {
      const std::size_t n = 37;
      Guarded<float> values(ranks * n), out(n);
      fill(values, random);
      Floats expected(n);
      for (std::size_t i = 0; i < n; ++i) {
        Floats own;
        for (std::size_t rank = 0; rank < ranks; ++rank) own.push_back(values[rank * n + i]);
        expected[i] = tree(own.data(), ranks);
      }
      cpu::Context context;
      cpu::sum_ranks(context, ranks, n, values.data(), out.data());
      CHECK(mismatches(out, expected, n) == 0);
    }
  }
}

}  // namespace
}  // namespace muster::test
