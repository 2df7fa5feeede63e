// Embedding, layer normalisation, dropout, GELU and addition against their definitions, bit by bit.
#include "doctest/doctest.h"
#include "kernels/dropout.h"
#include "tests/unit/kernels/transformer_reference.h"

namespace muster::test {
namespace {

std::vector<std::int32_t> tokens_below(Random& random, std::size_t V, std::size_t M) {
  std::vector<std::int32_t> tokens(M);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random.below(V));
  return tokens;
}

std::size_t row_of(const std::vector<std::int32_t>& tokens, std::size_t i) {
  return static_cast<std::size_t>(tokens[i]);
}

/// check(context) on every target with one to three threads.
template <typename Check>
void everywhere(Check check) {
  for (const cpu::Target target : targets()) {
    const Forced forced(target);
    CAPTURE(cpu::name_of(target));
    for (const int threads : {1, 2, 3}) {
      cpu::Context context(threads);
      check(context);
    }
  }
}

struct Text {
  std::size_t V, M, T, C;
};

const Text kTexts[] = {
    {1, 1, 1, 1}, {7, 12, 3, 5}, {3, 40, 8, 33}, {50, 64, 64, 130}, {9, 300, 100, 100}};

TEST_CASE("an embedding is its token's row plus its position's") {
  Random random(seed());
  for (const Text& text : kTexts) {
    Guarded<float> table(text.V * text.C), positions(text.T * text.C), y(text.M * text.C);
    fill(table, random, true);
    fill(positions, random, true);
    const auto tokens = tokens_below(random, text.V, text.M);
    Floats expected;
    for (std::size_t m = 0; m < text.M; ++m) {
      for (std::size_t c = 0; c < text.C; ++c) {
        expected.push_back(table[row_of(tokens, m) * text.C + c] +
                           positions[m % text.T * text.C + c]);
      }
    }
    everywhere([&](cpu::Context& context) {
      cpu::embed(context, text.M, text.T, text.C, tokens.data(), table.data(), positions.data(),
                 y.data());
      CHECK(mismatches(y, expected, y.size()) == 0);
      CHECK(y.untouched());
    });
  }
}

TEST_CASE("a token's row gets its gradients one after the other, in the order of the text") {
  Random random(seed());
  for (const Text& text : kTexts) {
    Guarded<float> dy(text.M * text.C), start(text.V * text.C), dtable(text.V * text.C);
    fill(dy, random);
    fill(start, random);
    const auto tokens = tokens_below(random, text.V, text.M);
    Floats expected = copy_of(start);
    for (std::size_t i = 0; i < dy.size(); ++i) {
      float& sum = expected[row_of(tokens, i / text.C) * text.C + i % text.C];
      sum = sum + dy[i];
    }
    everywhere([&](cpu::Context& context) {
      for (std::size_t i = 0; i < start.size(); ++i) dtable[i] = start[i];
      cpu::add_token_rows(context, text.M, text.C, {0, text.V}, tokens.data(), dy.data(),
                          dtable.data());
      CHECK(mismatches(dtable, expected, dtable.size()) == 0);
      CHECK(dtable.untouched());
    });
  }
}

struct Batch {
  std::size_t ranks, rows, T, C;
};

TEST_CASE("a position's gradient is a chain in each logical rank, and the tree over the ranks") {
  Random random(seed());
  for (const Batch& batch : {Batch{1, 1, 1, 1}, Batch{1, 5, 3, 7}, Batch{4, 3, 9, 60},
                             Batch{16, 2, 5, 111}, Batch{2, 1, 20, 64}}) {
    const std::size_t n = batch.T * batch.C;
    Guarded<float> dy(batch.ranks * batch.rows * n), out(n);
    fill(dy, random);
    dy[0] = -0.0F;
    Floats expected;
    for (std::size_t i = 0; i < n; ++i) {
      Floats sums;
      for (std::size_t rank = 0; rank < batch.ranks; ++rank) {
        float sum = 0.0F;
        for (std::size_t row = 0; row < batch.rows; ++row) {
          sum = sum + dy[(rank * batch.rows + row) * n + i];
        }
        sums.push_back(sum);
      }
      expected.push_back(tree(sums.data(), sums.size()));
    }
    everywhere([&](cpu::Context& context) {
      cpu::position_gradient(context, batch.ranks, batch.rows, batch.T, batch.C, dy.data(),
                             out.data());
      CHECK(mismatches(out, expected, n) == 0);
      CHECK(out.untouched());
    });
  }
}

struct NormCase {
  std::size_t ranks, rows, C;
  std::size_t M() const { return ranks * rows; }
};

const NormCase kNorms[] = {{1, 1, 1},   {1, 1, 16},  {1, 3, 5},    {2, 4, 33},
                           {8, 2, 130}, {4, 30, 64}, {1, 2, 9000}, {32, 1, 49}};

/// Inputs of layer normalisation and what the definition makes of them.
struct NormWorld {
  NormWorld(const NormCase& of, Random& random, bool wild)
      : shape(of),
        x(of.M() * of.C),
        dy(x.size()),
        skip(x.size()),
        y(x.size()),
        dx(x.size()),
        gamma(of.C),
        beta(of.C),
        dgamma(of.C),
        dbeta(of.C),
        mean(of.M()),
        inverse(of.M()) {
    for (Guarded<float>* buffer : {&x, &dy, &skip, &gamma, &beta}) fill(*buffer, random, wild);
    expected = layer_norm_of<float>(of.C, copy_of(x), copy_of(gamma), copy_of(beta), 1e-5F);
  }
  Floats expected_dx(bool with_skip) {
    Floats result;
    const auto n = static_cast<float>(shape.C);
    for (std::size_t m = 0; m < shape.M(); ++m) {
      Floats g, products;
      for (std::size_t c = 0; c < shape.C; ++c) {
        const std::size_t at = m * shape.C + c;
        g.push_back(dy[at] * gamma[c]);
        products.push_back(g[c] * expected.h[at]);
      }
      const float a = rule_sum(g) / n;
      const float b = rule_sum(products) / n;
      for (std::size_t c = 0; c < shape.C; ++c) {
        const std::size_t at = m * shape.C + c;
        const float value = ((g[c] - a) - expected.h[at] * b) * expected.inverse[m];
        result.push_back(with_skip ? value + skip[at] : value);
      }
    }
    return result;
  }

  NormCase shape;
  Guarded<float> x, dy, skip, y, dx, gamma, beta, dgamma, dbeta, mean, inverse;
  NormResult<float> expected;
};

TEST_CASE("layer normalisation is its definition's, also in place") {
  Random random(seed());
  for (const bool wild : {false, true}) {
    for (const NormCase& shape : kNorms) {
      NormWorld world(shape, random, wild);
      everywhere([&](cpu::Context& context) {
        cpu::layer_norm(context, shape.M(), shape.C, world.x.data(), world.gamma.data(),
                        world.beta.data(), 1e-5F, world.mean.data(), world.inverse.data(),
                        world.y.data());
        CAPTURE(shape.C);
        CHECK(mismatches(world.mean, world.expected.mean, shape.M()) == 0);
        CHECK(mismatches(world.inverse, world.expected.inverse, shape.M()) == 0);
        CHECK(mismatches(world.y, world.expected.y, world.y.size()) == 0);
        for (const Guarded<float>* buffer : {&world.y, &world.mean, &world.inverse}) {
          CHECK(buffer->untouched());
        }
        const Floats x = copy_of(world.x);
        for (std::size_t i = 0; i < x.size(); ++i) world.y[i] = x[i];
        cpu::layer_norm(context, shape.M(), shape.C, world.y.data(), world.gamma.data(),
                        world.beta.data(), 1e-5F, world.mean.data(), world.inverse.data(),
                        world.y.data());
        CHECK(mismatches(world.y, world.expected.y, x.size()) == 0);
      });
    }
  }
}

TEST_CASE("the input's gradient goes through a row's statistics, and joins what went past") {
  Random random(seed());
  for (const NormCase& shape : kNorms) {
    NormWorld world(shape, random, shape.C == 33);
    const Floats plain = world.expected_dx(false);
    const Floats joined = world.expected_dx(true);
    const Floats dy = copy_of(world.dy);
    const Floats skip = copy_of(world.skip);
    everywhere([&](cpu::Context& context) {
      const auto back = [&](const float* past, float* dx) {
        cpu::layer_norm_backward_input(context, shape.M(), shape.C, world.x.data(),
                                       world.expected.mean.data(), world.expected.inverse.data(),
                                       world.gamma.data(), world.dy.data(), past, dx);
      };
      CAPTURE(shape.C);
      back(nullptr, world.dx.data());
      CHECK(mismatches(world.dx, plain, plain.size()) == 0);
      back(world.skip.data(), world.dx.data());
      CHECK(mismatches(world.dx, joined, joined.size()) == 0);
      CHECK(world.dx.untouched());
      back(world.skip.data(), world.skip.data());
      CHECK(mismatches(world.skip, joined, joined.size()) == 0);
      for (std::size_t i = 0; i < skip.size(); ++i) world.skip[i] = skip[i];
      back(world.skip.data(), world.dy.data());
      CHECK(mismatches(world.dy, joined, joined.size()) == 0);
      for (std::size_t i = 0; i < dy.size(); ++i) world.dy[i] = dy[i];
    });
  }
}

TEST_CASE("the weights' gradients are chains in each logical rank, and the tree over the ranks") {
  Random random(seed());
  for (const NormCase& shape : kNorms) {
    NormWorld world(shape, random, shape.C == 130);
    Floats gammas, betas;
    for (std::size_t c = 0; c < shape.C; ++c) {
      Floats gamma(shape.ranks, 0.0F), beta(shape.ranks, 0.0F);
      for (std::size_t m = 0; m < shape.M(); ++m) {
        const std::size_t at = m * shape.C + c;
        const std::size_t rank = m / shape.rows;
        gamma[rank] = std::fma(world.dy[at], world.expected.h[at], gamma[rank]);
        beta[rank] = beta[rank] + world.dy[at];
      }
      gammas.push_back(tree(gamma.data(), shape.ranks));
      betas.push_back(tree(beta.data(), shape.ranks));
    }
    everywhere([&](cpu::Context& context) {
      cpu::layer_norm_backward_weights(context, shape.ranks, shape.rows, shape.C, world.x.data(),
                                       world.expected.mean.data(), world.expected.inverse.data(),
                                       world.dy.data(), world.dgamma.data(), world.dbeta.data());
      CAPTURE(shape.C);
      CHECK(mismatches(world.dgamma, gammas, shape.C) == 0);
      CHECK(mismatches(world.dbeta, betas, shape.C) == 0);
      CHECK(world.dgamma.untouched());
      CHECK(world.dbeta.untouched());
    });
  }
}

TEST_CASE("a row of equal values is normalised to the bias") {
  cpu::Context context;
  const std::size_t C = 37;
  Floats x(C, 4.0F), gamma(C, 3.0F), beta(C, -2.0F), y(C);
  float mean = 0.0F, inverse = 0.0F;
  everywhere([&](cpu::Context& own) {
    cpu::layer_norm(own, 1, C, x.data(), gamma.data(), beta.data(), 1e-5F, &mean, &inverse,
                    y.data());
    CHECK(mean == 4.0F);
    CHECK(static_cast<double>(inverse) == doctest::Approx(316.2277).epsilon(1e-6));
    for (const float value : y) CHECK(value == -2.0F);
  });
}

TEST_CASE("a dropout drops by its definition, of parts of rows, too") {
  Random random(seed());
  // Columns whose numbers' counter is about to have 33 bits.
  const std::size_t far = (std::size_t{1} << 34) - 10;
  for (const std::size_t columns : {1, 3, 4, 6, 16, 31, 32, 63, 257}) {
    for (const std::size_t first : {std::size_t{0}, std::size_t{1}, std::size_t{7}, far}) {
      const std::size_t rows = 5;
      const cpu::Drop by{random.bits(), columns, first, static_cast<std::uint32_t>(random.bits()),
                         0.3F,          1 / 0.7F};
      Guarded<float> x(rows * columns), y(rows * columns);
      fill(x, random, true);
      Floats expected;
      for (std::size_t i = 0; i < rows * columns; ++i) {
        const std::size_t column = first + i % columns;
        const auto words = kernels::drop_words(by, i / columns, column / 4);
        expected.push_back(kernels::dropped(by, words[column % 4], x[i]));
      }
      everywhere([&](cpu::Context& context) {
        CAPTURE(columns);
        CAPTURE(first);
        for (std::size_t i = 0; i < rows * columns; ++i) y[i] = x[i];
        cpu::drop(context, rows, by, y.data());
        CHECK(mismatches(y, expected, rows * columns) == 0);
        CHECK(y.untouched());
      });
    }
  }
}

TEST_CASE("GELU, its gradient and addition are their definitions', also in place") {
  Random random(seed());
  for (const std::size_t n : {1, 3, 16, 31, 257, 20'011}) {
    Guarded<float> x(n), dy(n), y(n), dx(n);
    fill(x, random, true);
    fill(dy, random);
    for (std::size_t i = 0; i < n; i += 2) x[i] = x[i] * 12.0F;
    Floats expected, expected_dx, sums;
    for (std::size_t i = 0; i < n; ++i) {
      expected.push_back(gelu_of(x[i]));
      expected_dx.push_back(dy[i] * gelu_slope_of(x[i]));
      sums.push_back(x[i] + dy[i]);
    }
    everywhere([&](cpu::Context& context) {
      CAPTURE(n);
      cpu::gelu(context, n, x.data(), y.data());
      CHECK(mismatches(y, expected, n) == 0);
      for (std::size_t i = 0; i < n; ++i) y[i] = x[i];
      cpu::gelu(context, n, y.data(), y.data());
      CHECK(mismatches(y, expected, n) == 0);
      cpu::gelu_backward(context, n, x.data(), dy.data(), dx.data());
      CHECK(mismatches(dx, expected_dx, n) == 0);
      for (std::size_t i = 0; i < n; ++i) dx[i] = dy[i];
      cpu::gelu_backward(context, n, x.data(), dx.data(), dx.data());
      CHECK(mismatches(dx, expected_dx, n) == 0);
      cpu::add(context, n, x.data(), dy.data(), y.data());
      CHECK(mismatches(y, sums, n) == 0);
      for (std::size_t i = 0; i < n; ++i) y[i] = x[i];
      cpu::add(context, n, y.data(), dy.data(), y.data());
      CHECK(mismatches(y, sums, n) == 0);
      CHECK(y.untouched());
      CHECK(dx.untouched());
    });
  }
}

TEST_CASE("GELU is near x times the normal distribution's share below x, and NaN stays NaN") {
  const Floats x{0.0F, 1e-6F, -1e-6F, 0.5F,  -0.5F,  1.0F,       -3.0F,
                 3.0F, 40.0F, -40.0F, 1e30F, -1e30F, kInfinityF, kNanF};
  everywhere([&](cpu::Context& context) {
    Floats y(x.size());
    cpu::gelu(context, x.size(), x.data(), y.data());
    for (std::size_t i = 0; i < 10; ++i) {
      const auto at = static_cast<double>(x[i]);
      // The tanh form is within 5e-4 of the exact one; that is the form's error, not the kernel's.
      CHECK(std::abs(static_cast<double>(y[i]) - at * 0.5 * std::erfc(-at / std::sqrt(2.0))) <
            5e-4);
    }
    CHECK(y[0] == 0.0F);
    CHECK(y[8] == 40.0F);
    CHECK(y[9] == 0.0F);
    CHECK(y[10] == 1e30F);
    CHECK(y[11] == 0.0F);
    CHECK(y[12] == kInfinityF);
    CHECK(std::isnan(y[13]));
  });
}

}  // namespace
}  // namespace muster::test
