#include "worker/engine/exchange.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <span>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/engine/ranks.h"
#include "worker/engine/sharded_exchange.h"

using namespace muster;
using namespace muster::engine;

namespace {

constexpr int kLogicalRanks = 16;
/// The digits example: 64-128-10 and four statistics.
constexpr std::size_t kDigits = 64 * 128 + 128 + 128 * 10 + 10 + 4;

/// Gradient element i of one logical rank: of mixed sizes, so that another order has other bits.
float gradient(int rank, std::size_t i) {
  const std::uint32_t bits =
      random_bits(test::seed(), RngStream::kAugment, static_cast<std::uint32_t>(rank), i);
  return std::bit_cast<float>((bits & 0x807fffffu) | (118u + (bits >> 24) % 16u) << 23);
}

float tree(int first, int length, std::size_t i) {
  if (length == 1) return gradient(first, i);
  return tree(first, length / 2, i) + tree(first + length / 2, length / 2, i);
}

MonoTime soon() { return SystemClock().mono_now() + seconds(60); }

/// Runs `body` on every rank of one transport.
using OnAllRanks = void (*)(int, const std::function<void(comm::Communicator&)>&);

/// Sums of squares of the first `measured` values, block by block.
std::vector<float> squares_of(std::span<const float> values, std::size_t measured) {
  std::vector<float> squares((measured + 4095) / 4096);
  kernels::cpu::Context context;
  kernels::cpu::block_squares(context, measured, values.data(), squares.data());
  return squares;
}

/// Payload and headers that each rank sends in `times` sums; checks every sum's bits.
std::vector<std::uint64_t> sum_on_all(OnAllRanks on_all_ranks, const Assignment& assignment,
                                      ExchangeSize size, int times) {
  const std::size_t elements = size.elements;
  const int processes = assignment.processes();
  std::vector<float> expected(elements);
  for (std::size_t i = 0; i < elements; ++i) expected[i] = tree(0, kLogicalRanks, i);
  const std::vector<float> expected_squares = squares_of(expected, size.measured);
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(processes));
  std::atomic<int> wrong = 0;
  on_all_ranks(processes, [&](comm::Communicator& communicator) {
    kernels::cpu::Context context;
    const auto& nodes = assignment.nodes[static_cast<std::size_t>(communicator.rank())];
    std::vector<std::vector<float>> sums;
    std::vector<float*> buffers;
    for (const RankRange node : nodes) {
      auto& sum = sums.emplace_back(elements);
      for (std::size_t i = 0; i < elements; ++i) sum[i] = tree(node.first, node.size(), i);
    }
    for (auto& sum : sums) buffers.push_back(sum.data());
    const auto untouched = sums;
    std::vector<float> total;
    GradientExchange exchange(assignment, communicator.rank(), size, buffers, total);
    const std::uint64_t before = communicator.sent_bytes();
    for (int time = 0; time < times; ++time) {
      const Status summed =
          exchange.sum(communicator, context, static_cast<std::uint64_t>(time), soon(), nullptr);
      if (sums != untouched) ++wrong;  // another membership may need them again
      if (!summed) ++wrong;
      for (std::size_t i = 0; i < elements; ++i) {
        wrong += std::bit_cast<std::uint32_t>(exchange.total()[i]) !=
                 std::bit_cast<std::uint32_t>(expected[i]);
      }
      const auto squares = exchange.block_squares();
      if (!std::equal(squares.begin(), squares.end(), expected_squares.begin(),
                      expected_squares.end())) {
        ++wrong;
      }
    }
    sent[static_cast<std::size_t>(communicator.rank())] = communicator.sent_bytes() - before;
  });
  CHECK(wrong == 0);
  return sent;
}

}  // namespace

TEST_CASE("blocks are divided whole, evenly and without gaps") {
  for (const std::size_t elements : {1u, 4095u, 4096u, 4097u, 9613u, 100'000u}) {
    for (int processes = 1; processes <= 9; ++processes) {
      std::size_t next = 0;
      for (int rank = 0; rank < processes; ++rank) {
        const ElementRange range = owned_elements(rank, processes, elements);
        CHECK(range.begin == next);
        CHECK((range.begin % 4096 == 0 || range.size() == 0));
        next = range.end;
      }
      CHECK(next == elements);
    }
  }
}

TEST_CASE("the sum has the same bits for every number of processes") {
  for (const int processes : {1, 2, 3, 4, 5, 7, 16}) {
    for (const std::size_t elements : {1u, 4096u, 4097u, 3u * 4096u + 5u}) {
      CAPTURE(processes);
      CAPTURE(elements);
      sum_on_all(test::on_all_ranks, *assign(kLogicalRanks, processes), {elements}, 1);
    }
  }
}

TEST_CASE("every process has every block's sum of squares, of the measured elements alone") {
  for (const int processes : {1, 2, 3, 4, 5, 7, 16}) {
    for (const std::size_t measured : {1u, 4095u, 4096u, 4097u, 2u * 4096u - 2u, 5u * 4096u}) {
      CAPTURE(processes);
      CAPTURE(measured);
      // The tail stands in the last block or in one of its own, or both.
      sum_on_all(test::on_all_ranks, *assign(kLogicalRanks, processes), {measured + 4, measured},
                 2);
    }
  }
  std::vector<std::vector<RankRange>> held = (*assign(kLogicalRanks, 5)).nodes;
  held.pop_back();
  sum_on_all(test::on_all_ranks, repair(kLogicalRanks, held), {3 * 4096 + 4, 3 * 4096}, 2);
}

TEST_CASE("the sum has the same bits after a repair, and with spares") {
  std::vector<std::vector<RankRange>> held = (*assign(kLogicalRanks, 5)).nodes;
  held[1].clear();  // a joiner in the place of a dead one
  held.pop_back();
  sum_on_all(test::on_all_ranks, repair(kLogicalRanks, held), {2 * 4096 + 1}, 2);
  sum_on_all(test::on_all_ranks, *assign(kLogicalRanks, 18), {3 * 4096}, 2);
  // One process that has every node but not the whole sum.
  sum_on_all(test::on_all_ranks, repair(kLogicalRanks, {{{0, 4}}}), {4096}, 2);
  // One process that holds the whole sum, beside a spare.
  sum_on_all(test::on_all_ranks, repair(kLogicalRanks, {{{0, 16}}, {}}), {4096}, 2);
}

namespace {

/// Sums over TCP, holds every rank's bytes against expected_bytes, and returns all bytes of one sum
/// relative to the mean formula (c + 1) M (P - 1) / P.
double wire_over_formula(int processes, ExchangeSize size, int times) {
  const Assignment assignment = *assign(kLogicalRanks, processes);
  const std::size_t elements = size.elements;
  const auto sent = sum_on_all(test::on_all_ranks_by_tcp, assignment, size, times);
  double total = 0;
  double formula = 0;
  for (int rank = 0; rank < processes; ++rank) {
    const auto measured = static_cast<double>(sent[static_cast<std::size_t>(rank)]) / times;
    const auto expected = static_cast<double>(expected_bytes(assignment, rank, size));
    CHECK(measured >= expected);
    CHECK(measured <= expected * 1.02);
    total += measured;
    const auto nodes = assignment.nodes[static_cast<std::size_t>(rank)].size();
    formula +=
        static_cast<double>((nodes + 1) * elements * sizeof(float)) * (processes - 1) / processes;
  }
  MESSAGE("P = " << processes << ", " << elements << " elements: " << total
                 << " bytes a sum by TCP, formula " << formula);
  return total / formula;
}

}  // namespace

TEST_CASE("bytes on the wire are those of the formula, within 2 %") {
  for (const int processes : {2, 3, 4}) {
    CAPTURE(processes);
    const double ratio = wire_over_formula(processes, {kDigits}, 5);
    // With 3 processes the mean formula itself is 1.7 % below the payload: the digits model has 3
    // blocks, and the process with the short one holds more nodes than that with a full one.
    if (processes != 3) CHECK(std::abs(ratio - 1) < 0.02);
  }
  CHECK(std::abs(wire_over_formula(3, {24 * kernels::kBlockElements}, 1) - 1) < 0.02);
  // With the norm, one float more for each block to each of the others.
  const std::size_t elements = 24 * kernels::kBlockElements;
  CHECK(std::abs(wire_over_formula(3, {elements, elements - 4}, 1) - 1) < 0.02);
}

namespace {

/// What rank `rank` is to have of its gradients, tail and squares after ShardedExchange::log, and
/// of the parameters after gather(); returns what is wrong.
int wrong_shards(const ShardedExchange& exchange, const Shards& shards, int rank,
                 std::span<const float> expected, std::size_t measured) {
  int wrong = 0;
  Ranges have;
  for (const Gradient& gradient : exchange.gradients()) {
    have = united(have, {gradient.range});
    wrong += !std::equal(gradient.values, gradient.values + gradient.range.size(),
                         expected.begin() + static_cast<std::ptrdiff_t>(gradient.range.begin));
  }
  wrong += have != shards.held(rank);
  const auto tail = expected.subspan(shards.trained);
  wrong += !std::equal(tail.begin(), tail.end(), exchange.tail().begin(), exchange.tail().end());
  const auto squares = squares_of(expected, measured);
  const auto own = exchange.block_squares();
  return wrong + !std::equal(squares.begin(), squares.end(), own.begin(), own.end());
}

/// One sharded step on all ranks; by rank what was sent.
std::vector<std::uint64_t> shard_on_all(OnAllRanks on_all_ranks, const Assignment& assignment,
                                        const Shards& shards, ExchangeSize size, int times) {
  std::vector<float> expected(size.elements);
  for (std::size_t i = 0; i < size.elements; ++i) expected[i] = tree(0, kLogicalRanks, i);
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(assignment.processes()));
  std::atomic<int> wrong = 0;
  on_all_ranks(assignment.processes(), [&](comm::Communicator& communicator) {
    kernels::cpu::Context context;
    const int rank = communicator.rank();
    std::vector<std::vector<float>> sums;
    std::vector<float*> buffers;
    for (const RankRange node : assignment.nodes[static_cast<std::size_t>(rank)]) {
      auto& sum = sums.emplace_back(size.elements);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = tree(node.first, node.size(), i);
    }
    for (auto& sum : sums) buffers.push_back(sum.data());
    const auto untouched = sums;
    ShardedExchange exchange(assignment, shards, rank, size, buffers);
    const std::uint64_t before = communicator.sent_bytes();
    for (int time = 0; time < times; ++time) {
      const auto step = static_cast<std::uint64_t>(time);
      if (!exchange.log(communicator, context, step, soon(), nullptr)) ++wrong;
      wrong += sums != untouched;
      wrong += wrong_shards(exchange, shards, rank, expected, size.measured);
      if (!exchange.confirm(communicator, step, soon(), nullptr)) ++wrong;
      // Each has what it keeps; all others are to come.
      std::vector<float> parameters(shards.trained, -1.0f);
      for (const ElementRange range : shards.held(rank)) {
        for (std::size_t i = range.begin; i < range.end; ++i) parameters[i] = expected[i];
      }
      if (!exchange.gather(communicator, step, parameters, soon(), nullptr)) ++wrong;
      wrong += !std::equal(parameters.begin(), parameters.end(), expected.begin());
    }
    sent[static_cast<std::size_t>(rank)] = communicator.sent_bytes() - before;
  });
  CHECK(wrong == 0);
  return sent;
}

}  // namespace

TEST_CASE("owners and buddies have the sum's bits, all have tail and squares, then parameters") {
  constexpr std::size_t kB = kernels::kBlockElements;
  for (const std::vector<int>& slots : std::vector<std::vector<int>>{{0},
                                                                     {0, 1},
                                                                     {0, 0, 1},
                                                                     {0, 1, 2},
                                                                     {0, 0, 0, 1},
                                                                     {0, 0, 1, 1, 2},
                                                                     {0, 1, 2, 3, 4, 5, 6}}) {
    for (const std::size_t trained : {std::size_t{1}, kB - 4, kB - 2, kB, 5 * kB, 9 * kB + 3}) {
      for (const bool is_measured : {false, true}) {
        CAPTURE(slots.size());
        CAPTURE(trained);
        const ExchangeSize size{trained + 4, is_measured ? trained : 0};
        const Shards shards = make_shards(slots, size.elements, trained);
        const int processes = shards.processes();
        shard_on_all(test::on_all_ranks, *assign(kLogicalRanks, processes), shards, size, 2);
        // After a death: the first holds what the dead one had beside its own.
        std::vector<std::vector<RankRange>> held = (*assign(kLogicalRanks, processes + 1)).nodes;
        held.pop_back();
        shard_on_all(test::on_all_ranks, repair(kLogicalRanks, held), shards, size, 1);
      }
    }
  }
}

TEST_CASE("a sharded step has the bytes of a replicated one on the wire, copies included") {
  constexpr std::size_t kTrained = 24 * kernels::kBlockElements - 9;
  for (const int processes : {2, 3, 4}) {
    CAPTURE(processes);
    std::vector<int> slots;
    for (int r = 0; r < processes; ++r) slots.push_back(r);
    const ExchangeSize size{kTrained + 4, kTrained};
    const Assignment assignment = *assign(kLogicalRanks, processes);
    const Shards shards = make_shards(slots, size.elements, kTrained);
    const auto sent = shard_on_all(test::on_all_ranks_by_tcp, assignment, shards, size, 3);
    for (int rank = 0; rank < processes; ++rank) {
      const auto measured = static_cast<double>(sent[static_cast<std::size_t>(rank)]) / 3;
      const auto expected = static_cast<double>(expected_bytes(assignment, shards, rank, size));
      CHECK(measured >= expected);
      CHECK(measured <= expected * 1.02);
      CHECK(expected == doctest::Approx(expected_bytes(assignment, rank, size)).epsilon(0.001));
    }
  }
}
