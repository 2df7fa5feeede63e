// The updates and the norm: formulas word by word, on every target, wherever buffers are cut.
#include <algorithm>

#include "doctest/doctest.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {
namespace {

const kernels::AdamwStep kStep{.beta1 = 0.9F,
                               .beta2 = 0.999F,
                               .one_minus_beta1 = 1.0F - 0.9F,
                               .one_minus_beta2 = 1.0F - 0.999F,
                               .step_size = 0.0173F,
                               .root_scale = 7.07F,
                               .epsilon = 1e-8F,
                               .decay = 0.001F,
                               .gradient_scale = 0.37F};

/// Buffers of one update.
struct State {
  Floats g, m, v, w;
};

State random_state(Random& random, std::size_t n) {
  State state{Floats(n), Floats(n), Floats(n), Floats(n)};
  for (std::size_t i = 0; i < n; ++i) {
    state.g[i] = random.wild();
    state.m[i] = random.value();
    const float root = random.wild();
    state.v[i] = root * root;  // what it can become: not negative, also 0, infinite and NaN
    state.w[i] = random.value();
  }
  return state;
}

State after_adamw(const kernels::AdamwStep& step, State state) {
  for (std::size_t i = 0; i < state.g.size(); ++i) {
    const float x = step.gradient_scale * state.g[i];
    const float kept = step.one_minus_beta1 * x;
    state.m[i] = std::fma(step.beta1, state.m[i], kept);
    const float part = step.one_minus_beta2 * x;
    const float square = part * x;
    state.v[i] = std::fma(step.beta2, state.v[i], square);
    const float root = std::sqrt(state.v[i]);
    const float divisor = std::fma(root, step.root_scale, step.epsilon);
    const float direction = state.m[i] / divisor;
    const float decayed = std::fma(-step.decay, state.w[i], state.w[i]);
    state.w[i] = std::fma(-step.step_size, direction, decayed);
  }
  return state;
}

TEST_CASE("an AdamW step moves no bit when the chunk boundary moves by one element") {
  Random random(seed());
  cpu::Context contexts[] = {cpu::Context(1), cpu::Context(3)};
  const std::size_t n = 70001;
  const State before = random_state(random, n);
  const State expected = after_adamw(kStep, before);
  Guarded<float> g(n), m(n), v(n), w(n);
  for (const cpu::Target target : targets()) {
    const Forced forced(target);
    for (cpu::Context& context : contexts) {
      for (const std::size_t cut : {0, 1, 16, 17, 4096, 70000}) {
        std::copy(before.g.begin(), before.g.end(), g.data());
        std::copy(before.m.begin(), before.m.end(), m.data());
        std::copy(before.v.begin(), before.v.end(), v.data());
        std::copy(before.w.begin(), before.w.end(), w.data());
        cpu::adamw(context, cut, kStep, g.data(), m.data(), v.data(), w.data());
        cpu::adamw(context, n - cut, kStep, g.data() + cut, m.data() + cut, v.data() + cut,
                   w.data() + cut);
        CAPTURE(cut);
        CAPTURE(std::string(cpu::name_of(target)));
        CHECK(mismatches(g, before.g, n) == 0);
        CHECK(mismatches(m, expected.m, n) == 0);
        CHECK(mismatches(v, expected.v, n) == 0);
        CHECK(mismatches(w, expected.w, n) == 0);
        CHECK(w.untouched());
      }
    }
  }
}

TEST_CASE("a scaled momentum step scales the gradient first, and by 1 nothing changes") {
  Random random(seed());
  cpu::Context context(1);
  const std::size_t n = 1003;
  const State before = random_state(random, n);
  for (const float scale : {1.0F, 0.37F}) {
    Floats expected_v(n), expected_w(n);
    for (std::size_t i = 0; i < n; ++i) {
      const float x = scale == 1.0F ? before.g[i] : scale * before.g[i];
      expected_v[i] = std::fma(0.9F, before.m[i], x);
      expected_w[i] = std::fma(-0.1F, expected_v[i], before.w[i]);
    }
    for (const cpu::Target target : targets()) {
      const Forced forced(target);
      State after = before;
      cpu::sgd_momentum(context, n, {0.1F, 0.9F, scale}, after.g.data(), after.m.data(),
                        after.w.data());
      CAPTURE(scale);
      CAPTURE(std::string(cpu::name_of(target)));
      CHECK(mismatches(after.m, expected_v, n) == 0);
      CHECK(mismatches(after.w, expected_w, n) == 0);
    }
  }
}

TEST_CASE("squares are summed block by block, and the tree over the blocks is the sum's") {
  Random random(seed());
  cpu::Context contexts[] = {cpu::Context(1), cpu::Context(3)};
  const std::size_t most = 70 * 4096 + 3;
  Guarded<float> values(most);
  for (const bool wild : {false, true}) {
    for (std::size_t i = 0; i < most; ++i) values[i] = wild ? random.wild() : random.value();
    for (const std::size_t n :
         {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{17}, std::size_t{4095},
          std::size_t{4096}, std::size_t{4097}, std::size_t{3 * 4096}, most}) {
      const float* const start = values.data() + (most - n);
      Floats expected;
      for (std::size_t first = 0; first < n; first += 4096) {
        float lanes[16] = {};
        for (std::size_t i = first; i < std::min(n, first + 4096); ++i) {
          lanes[(i - first) % 16] = std::fma(start[i], start[i], lanes[(i - first) % 16]);
        }
        for (std::size_t half : {8, 4, 2, 1}) {
          for (std::size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
        }
        expected.push_back(lanes[0]);
      }
      for (const cpu::Target target : targets()) {
        const Forced forced(target);
        for (cpu::Context& context : contexts) {
          CAPTURE(n);
          CAPTURE(std::string(cpu::name_of(target)));
          Floats out(expected.size() + 1, -1.0F);
          cpu::block_squares(context, n, start, out.data());
          CHECK(mismatches(out, expected, expected.size()) == 0);
          CHECK(out.back() == -1.0F);
          CHECK(same_bits(cpu::tree_sum(out.data(), expected.size()),
                          tree(expected.data(), expected.size())));
        }
      }
    }
  }
}

}  // namespace
}  // namespace muster::test
