#include "worker/engine/exchange.h"

#include <doctest/doctest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <functional>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/engine/ranks.h"

using namespace muster;
using namespace muster::engine;

namespace {

constexpr int kLogicalRanks = 16;
/// The digits example: 64-128-10 and three statistics.
constexpr std::size_t kDigits = 64 * 128 + 128 + 128 * 10 + 10 + 3;

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

/// Payload and headers that each rank sends in `times` sums; checks every sum's bits.
std::vector<std::uint64_t> sum_on_all(OnAllRanks on_all_ranks, int processes, std::size_t elements,
                                      int times) {
  std::vector<float> expected(elements);
  for (std::size_t i = 0; i < elements; ++i) expected[i] = tree(0, kLogicalRanks, i);
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(processes));
  std::atomic<int> wrong = 0;
  const Assignment assignment = *assign(kLogicalRanks, processes);
  on_all_ranks(processes, [&](comm::Communicator& communicator) {
    kernels::cpu::Context context;
    GradientExchange exchange(assignment, communicator.rank(), elements);
    const std::uint64_t before = communicator.sent_bytes();
    for (int time = 0; time < times; ++time) {
      for (std::size_t k = 0; k < exchange.nodes().size(); ++k) {
        const RankRange node = exchange.nodes()[k];
        for (std::size_t i = 0; i < elements; ++i) {
          exchange.buffer(k)[i] = tree(node.first, node.size(), i);
        }
      }
      const Status summed =
          exchange.sum(communicator, context, static_cast<std::uint64_t>(time), soon());
      if (!summed) ++wrong;
      for (std::size_t i = 0; i < elements; ++i) {
        wrong += std::bit_cast<std::uint32_t>(exchange.total()[i]) !=
                 std::bit_cast<std::uint32_t>(expected[i]);
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
      sum_on_all(test::on_all_ranks, processes, elements, 1);
    }
  }
}

namespace {

/// Sums over TCP, holds every rank's bytes against expected_bytes, and returns all bytes of one sum
/// relative to the mean formula (c + 1) M (P - 1) / P.
double wire_over_formula(int processes, std::size_t elements, int times) {
  const auto sent = sum_on_all(test::on_all_ranks_by_tcp, processes, elements, times);
  const Assignment assignment = *assign(kLogicalRanks, processes);
  double total = 0;
  double formula = 0;
  for (int rank = 0; rank < processes; ++rank) {
    const auto measured = static_cast<double>(sent[static_cast<std::size_t>(rank)]) / times;
    const auto expected = static_cast<double>(expected_bytes(assignment, rank, elements));
    CHECK(measured >= expected);
    CHECK(measured <= expected * 1.02);
    total += measured;
    const auto nodes = covers(assignment.ranges[static_cast<std::size_t>(rank)]).size();
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
    const double ratio = wire_over_formula(processes, kDigits, 5);
    // With 3 processes the mean formula itself is 1.7 % below the payload: the digits model has 3
    // blocks, and the process with the short one holds more nodes than that with a full one.
    if (processes != 3) CHECK(std::abs(ratio - 1) < 0.02);
  }
  CHECK(std::abs(wire_over_formula(3, 24 * kernels::kBlockElements, 1) - 1) < 0.02);
}
