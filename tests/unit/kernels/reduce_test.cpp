#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "doctest/doctest.h"
#include "kernels/running_sum.h"
#include "tests/unit/kernels/reference.h"

namespace muster::test {
namespace {

namespace {

/// Of `n` values from `start` on, on every instruction set.
void check_sum(Guarded<float>& values, std::size_t start, std::size_t n) {
  const float expected = reference_sum(values.data() + start, n);
  for (const cpu::Target target : targets()) {
    const Forced forced(target);
    CAPTURE(n);
    CAPTURE(start);
    CAPTURE(std::string(cpu::name_of(target)));
    CHECK(same_bits(cpu::sum(values.data() + start, n), expected));
  }
}

}  // namespace

TEST_CASE("a sum follows the lanes, blocks and tree of the contract wherever it starts") {
  Random random(seed());
  Guarded<float> values(40000);
  for (const bool wild : {false, true}) {
    fill(values, random, wild);
    for (const std::size_t n :
         {0, 1, 7, 15, 16, 17, 31, 100, 4095, 4096, 4097, 8192, 12289, 28672, 28673, 39990}) {
      for (const std::size_t start : {0, 1, 3}) {
        check_sum(values, start, n);
      }
    }
  }
}

TEST_CASE("a sum follows the contract when a block's end moves by one element, and anywhere else") {
  Random random(seed());
  Guarded<float> values(40000);
  fill(values, random);
  std::vector<std::pair<std::size_t, std::size_t>> sums;  // start and length
  for (std::size_t blocks = 1; blocks <= 9; ++blocks) {
    for (const std::size_t n : {4096 * blocks - 1, 4096 * blocks, 4096 * blocks + 1}) {
      sums.emplace_back(random.below(64), n);
    }
  }
  for (int i = 0; i < tries(200); ++i) {
    const std::size_t n = random.below(values.size() + 1);
    sums.emplace_back(random.below(values.size() - n + 1), n);
  }
  for (const auto& [start, n] : sums) {
    check_sum(values, start, n);
  }
}

TEST_CASE("a sum of values that come piece by piece has the same bits, and holds one block") {
  static_assert(std::is_trivially_copyable_v<cpu::RunningSum>);  // nothing lies elsewhere
  static_assert(sizeof(cpu::RunningSum) < 2 * kernels::kBlockElements * sizeof(float));
  Random random(seed());
  Guarded<float> values(40000);
  fill(values, random);
  for (const std::size_t most : {1, 3, 300, 4096, 9000, 40000}) {
    CAPTURE(most);
    cpu::RunningSum running;
    CHECK(same_bits(running.value(), 0.0F));
    for (std::size_t at = 0; at < values.size();) {
      const std::size_t taken = std::min(values.size() - at, 1 + random.below(most));
      running.add({values.data() + at, taken});
      at += taken;
      if (most > 1 || at % 512 < 2) {
        CHECK(same_bits(running.value(), cpu::sum(values.data(), at)));
      }
    }
  }
}

TEST_CASE("a sum of nothing and of minus zero is plus zero") {
  const float zeros[3] = {-0.0F, -0.0F, -0.0F};
  for (const cpu::Target target : targets()) {
    const Forced forced(target);
    CHECK(same_bits(cpu::sum(zeros, 0), 0.0F));
    CHECK(same_bits(cpu::sum(zeros, 3), 0.0F));
  }
}

TEST_CASE("a momentum step moves no bit when the chunk boundary moves by one element") {
  Random random(seed());
  cpu::Context context(2);
  const std::size_t n = 70001;
  Guarded<float> g(n), v(n), w(n);
  fill(g, random, true);
  fill(v, random, false);
  fill(w, random, false);
  const Floats old_v(v.data(), v.data() + n);
  const Floats old_w(w.data(), w.data() + n);
  Floats expected_v(n), expected_w(n);
  for (std::size_t i = 0; i < n; ++i) {
    expected_v[i] = std::fma(0.9F, old_v[i], g[i]);
    expected_w[i] = std::fma(-0.1F, expected_v[i], old_w[i]);
  }
  for (const cpu::Target target : targets()) {
    const Forced forced(target);
    for (const std::size_t cut : {0, 1, 16, 17, 4096, 70000}) {
      std::memcpy(v.data(), old_v.data(), n * sizeof(float));
      std::memcpy(w.data(), old_w.data(), n * sizeof(float));
      cpu::sgd_momentum(context, cut, {0.1F, 0.9F}, g.data(), v.data(), w.data());
      cpu::sgd_momentum(context, n - cut, {0.1F, 0.9F}, g.data() + cut, v.data() + cut,
                        w.data() + cut);
      CAPTURE(cut);
      CAPTURE(std::string(cpu::name_of(target)));
      CHECK(mismatches(v, expected_v, n) == 0);
      CHECK(mismatches(w, expected_w, n) == 0);
    }
  }
}

/// The post-order program of the fixed tree over inputs [first, first + n).
void tree_order(std::size_t first, std::size_t n, std::vector<std::int8_t>& order) {
  if (n == 1) {
    order.push_back(static_cast<std::int8_t>(first));
    return;
  }
  const std::size_t left = std::bit_floor(n - 1);
  tree_order(first, left, order);
  tree_order(first + left, n - left, order);
  order.push_back(-1);
}

struct NodeShape {
  std::size_t nodes, elements;
  bool is_wild;
};

/// Adds random nodes by the program of their tree, into another buffer and into one of themselves.
void check_sum_of_nodes(const NodeShape& shape, Random& random, cpu::Context& context) {
  const auto [count, n, is_wild] = shape;
  std::vector<std::unique_ptr<Guarded<float>>> nodes;
  for (std::size_t k = 0; k < count; ++k) {
    nodes.push_back(std::make_unique<Guarded<float>>(n));
    fill(*nodes.back(), random, is_wild);
  }
  std::vector<std::int8_t> order;
  tree_order(0, count, order);
  Floats expected(n), column(count);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < count; ++k) column[k] = (*nodes[k])[i];
    expected[i] = tree(column.data(), count);
  }
  std::vector<const float*> pointers;
  for (const auto& node : nodes) pointers.push_back(node->data());
  for (const cpu::Target target : targets()) {
    const Forced forced(target);
    CAPTURE(count);
    CAPTURE(n);
    CAPTURE(std::string(cpu::name_of(target)));
    Guarded<float> out(n);
    cpu::sum_nodes(context, pointers.data(), order.data(), order.size(), n, out.data());
    CHECK(mismatches(out, expected, n) == 0);
    CHECK(out.untouched());
    Guarded<float>& into = *nodes[random.below(count)];
    const Floats kept(into.data(), into.data() + n);
    cpu::sum_nodes(context, pointers.data(), order.data(), order.size(), n, into.data());
    CHECK(mismatches(into, expected, n) == 0);
    std::memcpy(into.data(), kept.data(), n * sizeof(float));
  }
}

TEST_CASE("nodes are added in the order of the program, also into one of themselves") {
  Random random(seed());
  cpu::Context contexts[] = {cpu::Context(1), cpu::Context(3)};
  for (cpu::Context& context : contexts) {
    for (const std::size_t count : {1, 2, 3, 5, 8, 64, 127}) {
      const std::size_t n = 1 + random.below(300) + (count == 5 ? 150000 : 0);
      check_sum_of_nodes({count, n, count % 2 == 0}, random, context);
    }
    for (int i = 0; i < tries(100) / 2; ++i) {
      check_sum_of_nodes({1 + random.below(127), 1 + random.below(5000), false}, random, context);
    }
  }
}

TEST_CASE("a program that leans right is followed as it stands") {
  cpu::Context context(1);
  const float a = 1.0F, b = 0x1p-24F, c = 0x1p-24F;
  const float* nodes[] = {&a, &b, &c};
  float out = 0.0F;
  const std::int8_t right[] = {0, 1, 2, -1, -1};
  cpu::sum_nodes(context, nodes, right, 5, 1, &out);
  CHECK(out == 1.0F + 0x1p-23F);
  const std::int8_t left[] = {0, 1, -1, 2, -1};
  cpu::sum_nodes(context, nodes, left, 5, 1, &out);
  CHECK(out == 1.0F);
}

TEST_CASE("a byte becomes its 255th part") {
  std::uint8_t bytes[256];
  float out[256];
  for (int i = 0; i < 256; ++i) bytes[i] = static_cast<std::uint8_t>(i);
  cpu::bytes_to_unit(bytes, 256, out);
  for (int i = 0; i < 256; ++i) {
    CHECK(same_bits(out[i], static_cast<float>(static_cast<double>(i) / 255.0)));
  }
}

}  // namespace
}  // namespace muster::test
