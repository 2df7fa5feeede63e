#include "worker/engine/exchange.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <latch>
#include <numeric>
#include <span>

#include "common/rng.h"
#include "tests/test_main.h"
#include "tests/unit/engine/exchange_bytes.h"
#include "tests/unit/engine/ranks.h"
#include "worker/comm/shared_communicator.h"
#include "worker/engine/node_sums.h"
#include "worker/engine/sharded_exchange.h"

using namespace muster;
using namespace muster::engine;
using test::expected_bytes;
using test::expected_step_bytes;

namespace {

constexpr int kLogicalRanks = 16;
constexpr std::size_t kBlock = kernels::kBlockElements;
/// The digits example: 64-128-10, and four statistics behind it.
constexpr std::size_t kDigits = 64 * 128 + 128 + 128 * 10 + 10;

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
using OnAllRanks = std::function<void(int, const std::function<void(comm::Communicator&)>&)>;

/// Sums of squares of the first `measured` values, block by block.
std::vector<float> squares_of(std::span<const float> values, std::size_t measured) {
  std::vector<float> squares((measured + 4095) / 4096);
  kernels::cpu::Context context;
  kernels::cpu::block_squares(context, measured, values.data(), squares.data());
  return squares;
}

/// What is summed.
struct Size {
  std::size_t trained = 0, tail = 0;
  bool is_measured = false;
  /// Where layers begin; each is a bucket of its own where it has a whole block.
  std::vector<std::size_t> layers{};
  std::size_t elements() const { return trained + tail; }
  Buckets buckets() const { return Buckets(elements(), layers, 1); }
};

/// Layers of about one block, some shorter and some longer.
std::vector<std::size_t> layers_of(std::size_t trained) {
  std::vector<std::size_t> starts;
  for (std::size_t at = 0, next = 0; at < trained; at += next) {
    starts.push_back(at);
    next = 1 + random_bits(test::seed(), RngStream::kPermutation, 1, at) % (2 * kBlock);
  }
  return starts;
}

Reduction reduction_of(const Size& size, int processes) {
  return {Ownership(size.buckets(), processes), size.trained, size.is_measured};
}

Reduction reduction_of(const Size& size, const std::vector<int>& slots, int buddies) {
  Reduction reduction = reduction_of(size, static_cast<int>(slots.size()));
  const Shards shards = make_shards(slots, {reduction.ownership, size.trained, buddies});
  reduction.keeping = keeping_of(shards, shards.held());
  return reduction;
}

/// What all logical ranks sum up to.
std::vector<float> whole_sum(std::size_t elements) {
  std::vector<float> all(elements);
  for (std::size_t i = 0; i < elements; ++i) all[i] = tree(0, kLogicalRanks, i);
  return all;
}

/// The node sums of one process, of which the values below some place are still to be computed.
class Nodes {
 public:
  Nodes(const Assignment& assignment, int rank, std::size_t elements)
      : nodes_(assignment.nodes[static_cast<std::size_t>(rank)]), values_(nodes_.size()) {
    for (auto& values : values_) values.assign(elements, kUnknown);
    known_ = elements;
  }
  std::vector<float*> buffers() {
    std::vector<float*> all;
    for (auto& values : values_) all.push_back(values.data());
    return all;
  }
  void forget() {
    known_ = values_.empty() ? 0 : values_[0].size();
    for (auto& values : values_) std::fill(values.begin(), values.end(), kUnknown);
  }
  void compute_from(std::size_t first) {
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      for (std::size_t i = first; i < known_; ++i) {
        values_[k][i] = tree(nodes_[k].first, nodes_[k].size(), i);
      }
    }
    known_ = std::min(known_, first);
  }
  /// Whether all are computed and nobody has written over them.
  bool are_right() const {
    for (std::size_t k = 0; k < nodes_.size(); ++k) {
      for (std::size_t i = 0; i < values_[k].size(); ++i) {
        if (values_[k][i] != tree(nodes_[k].first, nodes_[k].size(), i)) return false;
      }
    }
    return true;
  }

 private:
  static constexpr float kUnknown = 1e30f;
  std::vector<RankRange> nodes_;
  std::vector<std::vector<float>> values_;
  std::size_t known_ = 0;
};

/// What is wrong with what came out for `rank`.
int wrong_results(const GradientExchange& exchange, const Reduction& reduction, int rank,
                  std::span<const float> expected) {
  int wrong = 0;
  Ranges have;
  std::size_t elements = 0;
  for (const Gradient& gradient : exchange.gradients()) {
    have = united(have, {gradient.range});
    elements += gradient.range.size();
    wrong += !std::equal(gradient.values, gradient.values + gradient.range.size(),
                         expected.begin() + static_cast<std::ptrdiff_t>(gradient.range.begin));
  }
  wrong += have != (reduction.keeping ? reduction.keeping->kept[static_cast<std::size_t>(rank)]
                                      : Ranges{{0, reduction.trained}});
  wrong += elements != size_of(have);
  const auto tail = expected.subspan(reduction.trained);
  wrong += !std::equal(tail.begin(), tail.end(), exchange.tail().begin(), exchange.tail().end());
  const auto squares = squares_of(expected, reduction.is_measured ? reduction.trained : 0);
  const auto own = exchange.block_squares();
  return wrong + !std::equal(squares.begin(), squares.end(), own.begin(), own.end());
}

/// How one process comes to its node sums: "finished" is called when they are computed from an
/// element on. Those with nothing to compute do not call it at all.
void compute_in_layers(Nodes& nodes, const Size& size, Rng& rng,
                       const std::function<void(std::size_t first)>& finished) {
  for (auto layer = size.layers.rbegin(); layer != size.layers.rend(); ++layer) {
    nodes.compute_from(*layer);
    if (rng.below(4) != 0) finished(*layer);  // what is told late is sent late
  }
}

/// Makes `times` sums on all ranks, some of which compute while the sum is under way, and checks
/// them. By rank, what a sharded step's exchange or the sum alone has sent.
std::vector<std::uint64_t> sum_on_all(const OnAllRanks& on_all_ranks, const Assignment& assignment,
                                      const Reduction& reduction, const Size& size, int times) {
  const int processes = assignment.processes();
  const std::vector<float> expected = whole_sum(size.elements());
  std::vector<std::uint64_t> sent(static_cast<std::size_t>(processes));
  std::atomic<int> wrong = 0;
  on_all_ranks(processes, [&](comm::Communicator& communicator) {
    kernels::cpu::Context context;
    const int rank = communicator.rank();
    Rng rng(test::seed() + static_cast<std::uint64_t>(rank));
    Nodes nodes(assignment, rank, size.elements());
    std::vector<float> memory(rng.below(2) * 100'000, 1e30f);
    GradientExchange exchange(assignment, rank, reduction, nodes.buffers(), memory);
    const std::uint64_t before = communicator.sent_bytes();
    for (int time = 0; time < times; ++time) {
      const auto step = static_cast<std::uint64_t>(time);
      nodes.forget();
      exchange.begin(communicator, context, step, nullptr);
      compute_in_layers(nodes, size, rng,
                        [&](std::size_t first) { exchange.advance(first, soon()); });
      nodes.compute_from(0);
      wrong += !exchange.finish(soon());
      wrong += !nodes.are_right();  // another membership may need them again
      wrong += wrong_results(exchange, reduction, rank, expected);
      if (!reduction.keeping) continue;
      std::vector<std::uint8_t> said(static_cast<std::size_t>(communicator.size()));
      said[static_cast<std::size_t>(rank)] = static_cast<std::uint8_t>(rank + 1);
      wrong += !confirm(communicator, said, step, soon(), nullptr);
      for (std::size_t peer = 0; peer < said.size(); ++peer) wrong += said[peer] != peer + 1;
      // Each has what it keeps; all others are to come.
      std::vector<float> parameters(size.trained, -1.0f);
      for (const ElementRange range : reduction.keeping->kept[static_cast<std::size_t>(rank)]) {
        for (std::size_t i = range.begin; i < range.end; ++i) parameters[i] = expected[i];
      }
      wrong +=
          !gather_parameters(communicator, plan_gifts({*reduction.keeping, reduction.hosts}, rank),
                             step, parameters, soon(), nullptr);
      wrong += !std::equal(parameters.begin(), parameters.end(), expected.begin());
    }
    sent[static_cast<std::size_t>(rank)] = communicator.sent_bytes() - before;
  });
  CHECK(wrong == 0);
  return sent;
}

void sum_on_all(const Assignment& assignment, const Size& size, int times) {
  sum_on_all(test::on_all_ranks, assignment, reduction_of(size, assignment.processes()), size,
             times);
}

}  // namespace

TEST_CASE("buckets begin with layers, from the end on, and are whole blocks") {
  const Buckets one(3 * kBlock + 5);
  REQUIRE(one.count() == 1);
  CHECK(one[0] == ElementRange{0, 3 * kBlock + 5});
  // The second layer begins inside a block, which is complete with the first layer.
  const Buckets two(10 * kBlock + 7, {0, 3 * kBlock + 1, 8 * kBlock}, 2);
  REQUIRE(two.count() == 3);
  CHECK(two[0] == ElementRange{8 * kBlock, 10 * kBlock + 7});
  CHECK(two[1] == ElementRange{4 * kBlock, 8 * kBlock});
  CHECK(two[2] == ElementRange{0, 4 * kBlock});
  // What is too small goes with the layers before it; only the last bucket may be smaller.
  CHECK(Buckets(10 * kBlock + 7, {0, 3 * kBlock + 1, 8 * kBlock}, 4).count() == 2);
  CHECK(Buckets(10 * kBlock + 7, {0, kBlock, 8 * kBlock}, 5).count() == 2);
  CHECK(Buckets(10 * kBlock + 7, {0, 3 * kBlock + 1, 8 * kBlock}, 100).count() == 1);
  CHECK(Buckets(kBlock, {0, 5, 77}, 1).count() == 1);
}

TEST_CASE("there are no more buckets than two groups each may be under way for") {
  for (const std::size_t blocks : {1u, 22u, 23u, 24u, 25u, 48u, 500u, 5'000u}) {
    std::vector<std::size_t> layers;
    for (std::size_t block = 0; block < blocks; ++block) layers.push_back(block * kBlock);
    const Buckets buckets(blocks * kBlock, layers, 1);
    CAPTURE(blocks);
    CHECK(buckets.count() <= Buckets::kCountMax);
    CHECK(buckets.count() >= std::min<std::size_t>(blocks, 12));
    std::size_t next = blocks * kBlock;
    for (std::size_t k = 0; k < buckets.count(); ++k) {
      CHECK(buckets[k].end == next);
      next = buckets[k].begin;
    }
    CHECK(next == 0);
  }
}

TEST_CASE("blocks are divided whole, evenly and without gaps, among those who are to own some") {
  for (const std::size_t elements : {1u, 4095u, 4096u, 4097u, 9613u, 100'000u}) {
    for (std::uint32_t mask = 1; mask < 512; mask += mask < 16 ? 1 : 37) {
      std::vector<std::uint8_t> owns(9);
      for (std::size_t rank = 0; rank < 9; ++rank) owns[rank] = (mask >> rank) & 1;
      const Ownership ownership(Buckets(elements, layers_of(elements), 1), owns);
      Ranges all;
      std::size_t blocks_most = 0, blocks_least = elements;
      for (int rank = 0; rank < 9; ++rank) {
        const Ranges own = ownership.of(rank);
        if (owns[static_cast<std::size_t>(rank)] == 0) {
          CHECK(own.empty());
          continue;
        }
        CHECK(without(own, all) == own);
        all = united(all, own);
        std::size_t blocks = 0;
        for (const ElementRange range : own) {
          CHECK(range.begin % kBlock == 0);
          blocks += blocks_of(range.size());
        }
        blocks_most = std::max(blocks_most, blocks);
        blocks_least = std::min(blocks_least, blocks);
      }
      CHECK(all == Ranges{{0, elements}});
      CHECK(blocks_most - blocks_least <= ownership.buckets().count());
    }
  }
}

TEST_CASE("blocks are divided in proportion to weights, whole and without gaps") {
  const std::size_t elements = 999 * kBlock + 7;
  for (const std::size_t buckets_least : {1u, 250u}) {
    const Ownership ownership(Buckets(elements, layers_of(elements), buckets_least),
                              std::vector<std::uint8_t>{8, 0, 1, 3, 8});
    Ranges all;
    for (int rank = 0; rank < 5; ++rank) {
      const Ranges own = ownership.of(rank);
      CHECK(without(own, all) == own);
      all = united(all, own);
      const std::vector<std::size_t> expected = {400, 0, 50, 150, 400};
      const auto blocks = static_cast<double>(size_of(own)) / kBlock;
      const auto slack = static_cast<double>(ownership.buckets().count());
      CHECK(std::abs(blocks - static_cast<double>(expected[static_cast<std::size_t>(rank)])) <=
            slack);
    }
    CHECK(all == Ranges{{0, elements}});
  }
}

TEST_CASE("the sum has the same bits for every number of processes and however it is cut") {
  for (const int processes : {1, 2, 3, 4, 5, 7, 16}) {
    for (const std::size_t elements :
         {std::size_t{1}, kBlock, kBlock + 1, 3 * kBlock + 5, 9 * kBlock + 3}) {
      for (const bool is_cut : {false, true}) {
        CAPTURE(processes);
        CAPTURE(elements);
        Size size{elements};
        if (is_cut) size.layers = layers_of(elements);
        sum_on_all(*assign(kLogicalRanks, processes), size, 2);
      }
    }
  }
}

TEST_CASE("every process has the tail and every block's sum of squares, of the trained alone") {
  for (const int processes : {1, 2, 3, 4, 5, 7, 16}) {
    for (const std::size_t trained :
         {std::size_t{1}, kBlock - 1, kBlock, kBlock + 1, 2 * kBlock - 2, 5 * kBlock}) {
      CAPTURE(processes);
      CAPTURE(trained);
      // The tail stands in the last block or in one of its own, or both.
      sum_on_all(*assign(kLogicalRanks, processes), {trained, 4, true, layers_of(trained)}, 2);
    }
  }
  std::vector<std::vector<RankRange>> held = (*assign(kLogicalRanks, 5)).nodes;
  held.pop_back();
  sum_on_all(repair(kLogicalRanks, held), {3 * kBlock, 4, true, layers_of(3 * kBlock)}, 2);
}

TEST_CASE("the sum has the same bits after a repair, and with spares") {
  std::vector<std::vector<RankRange>> held = (*assign(kLogicalRanks, 5)).nodes;
  held[1].clear();  // a joiner in the place of a dead one
  held.pop_back();
  const Size size{2 * kBlock + 1, 0, false, {0, kBlock / 2, kBlock}};
  sum_on_all(repair(kLogicalRanks, held), size, 2);
  sum_on_all(*assign(kLogicalRanks, 18), {3 * kBlock, 0, false, {0, kBlock, 2 * kBlock}}, 2);
  // One process that has every node but not the whole sum.
  sum_on_all(repair(kLogicalRanks, {{{0, 4}}}), size, 2);
  // One process that holds the whole sum, beside a spare.
  sum_on_all(repair(kLogicalRanks, {{{0, 16}}, {}}), size, 2);
}

namespace {

/// Counts what goes to other hosts.
class CountedCommunicator final : public comm::SharedCommunicator {
 public:
  CountedCommunicator(comm::Communicator& real, const Hosts& hosts)
      : SharedCommunicator(std::shared_ptr<comm::Communicator>(&real, [](auto*) {})),
        hosts_(hosts) {}
  Result<std::unique_ptr<comm::Work>> start_on(
      int channel, std::uint64_t step, comm::Memory memory, std::span<const comm::SendBuffer> sends,
      std::span<const comm::ReceiveBuffer> receives) override {
    for (const comm::SendBuffer& send : sends) {
      if (!hosts_.are_together(rank(), send.peer)) bytes += send.bytes;
    }
    return SharedCommunicator::start_on(channel, step, memory, sends, receives);
  }
  std::uint64_t bytes = 0;

 private:
  const Hosts& hosts_;
};

/// By rank, of one sum.
struct SumBytes {
  std::vector<std::uint64_t> sent, to_other_hosts;
};

/// What one sum sends, after it has come out right; `on` are the hosts that are counted, of which
/// the exchange knows those of the reduction.
SumBytes bytes_of_sum(const Assignment& assignment, const Reduction& reduction, const Size& size,
                      const Hosts& on) {
  const auto processes = static_cast<std::size_t>(assignment.processes());
  SumBytes all{std::vector<std::uint64_t>(processes), std::vector<std::uint64_t>(processes)};
  const auto counted = [&](int, const std::function<void(comm::Communicator&)>& body) {
    test::on_all_ranks(assignment.processes(), [&](comm::Communicator& communicator) {
      CountedCommunicator watched(communicator, on);
      body(watched);
      const auto rank = static_cast<std::size_t>(communicator.rank());
      all.sent[rank] = communicator.sent_bytes();
      all.to_other_hosts[rank] = watched.bytes;
    });
  };
  sum_on_all(counted, assignment, reduction, size, 1);
  return all;
}

/// So many on each host, one host after the other.
Hosts hosts_of(const std::vector<int>& sizes) {
  std::vector<int> host_of;
  for (std::size_t host = 0; host < sizes.size(); ++host) {
    host_of.insert(host_of.end(), static_cast<std::size_t>(sizes[host]), static_cast<int>(host));
  }
  return Hosts(std::move(host_of));
}

}  // namespace

TEST_CASE("the sum has the same bits whoever shares a host, and sends what it is expected to") {
  Rng rng(test::seed());
  int saved = 0, shared_hosts = 0;
  for (int trial = 0; trial < 60; ++trial) {
    CAPTURE(trial);
    const int processes = static_cast<int>(2 + rng.below(7));
    std::vector<int> host_of, slots;
    const int beside = static_cast<int>(1 + rng.below(4));
    for (int rank = 0; rank < processes; ++rank) {
      // One after the other, or mixed, as where somebody was started anew elsewhere.
      host_of.push_back(rng.below(5) == 0 ? static_cast<int>(rng.below(3)) : rank / beside);
      slots.push_back(host_of.back());
    }
    const std::size_t trained = 1 + rng.below(9 * kBlock);
    const Size size{trained, rng.below(2) * 4, rng.below(2) == 0, layers_of(trained)};
    Assignment assignment = *assign(kLogicalRanks, processes);
    if (rng.below(2) == 0) {
      auto held = (*assign(kLogicalRanks, processes + 1)).nodes;
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(rng.below(held.size())));
      assignment = repair(kLogicalRanks, held);
    }
    const bool is_sharded = rng.below(3) == 0;
    Reduction reduction = is_sharded ? reduction_of(size, slots, 1) : reduction_of(size, processes);
    if (!is_sharded && rng.below(3) == 0) {
      std::vector<std::uint8_t> owns;
      for (int rank = 0; rank < processes; ++rank)
        owns.push_back(static_cast<std::uint8_t>(rng.below(4)));
      owns[rng.below(owns.size())] = kWeightMost;
      reduction.ownership = Ownership(size.buckets(), owns);
    }
    const Hosts hosts(host_of);
    const SumBytes flat = bytes_of_sum(assignment, reduction, size, hosts);
    reduction.hosts = hosts;
    const SumBytes shared = bytes_of_sum(assignment, reduction, size, hosts);
    std::uint64_t flat_bytes = 0, shared_bytes = 0;
    for (int rank = 0; rank < processes; ++rank) {
      const auto of = static_cast<std::size_t>(rank);
      CHECK(shared.sent[of] == (is_sharded ? expected_step_bytes(assignment, rank, reduction)
                                           : expected_bytes(assignment, rank, reduction)));
      flat_bytes += flat.to_other_hosts[of];
      shared_bytes += shared.to_other_hosts[of];
    }
    CHECK(shared_bytes <= flat_bytes);
    if (!hosts.is_any_shared()) CHECK(shared.sent == flat.sent);
    saved += shared_bytes < flat_bytes ? 1 : 0;
    shared_hosts += hosts.is_any_shared() ? 1 : 0;
  }
  CHECK(shared_hosts > 20);
  CHECK(saved > shared_hosts * 3 / 4);
}

TEST_CASE("a gradient leaves each host once, and comes to each once, however many share it") {
  const Size size{96 * kBlock, 0, false, {0, 32 * kBlock, 64 * kBlock}};
  const std::uint64_t whole = size.elements() * sizeof(float);
  for (const int hosts : {2, 4}) {
    for (const int beside : {1, 2, 4}) {
      CAPTURE(hosts);
      CAPTURE(beside);
      const int processes = hosts * beside;
      Reduction reduction = reduction_of(size, processes);
      reduction.hosts = hosts_of(std::vector<int>(static_cast<std::size_t>(hosts), beside));
      const SumBytes bytes =
          bytes_of_sum(*assign(kLogicalRanks, processes), reduction, size, reduction.hosts);
      // Each host has one node, of which it sends what other hosts own, and has a part of what
      // comes out, which it sends to each of them; its processes in turn.
      const auto others = static_cast<std::uint64_t>(hosts - 1);
      for (const std::uint64_t of_rank : bytes.to_other_hosts) {
        const double even = 2.0 * static_cast<double>(whole * others) / processes;
        CHECK(static_cast<double>(of_rank) == doctest::Approx(even).epsilon(0.001));
      }
    }
  }
}

TEST_CASE("parameters come to a host from its own process that has made the update") {
  const Size size{96 * kBlock, 0, false, {0, 32 * kBlock, 64 * kBlock}};
  const double whole = static_cast<double>(size.elements() * sizeof(float));
  for (const int beside : {2, 4}) {
    CAPTURE(beside);
    std::vector<int> slots;
    for (int rank = 0; rank < 2 * beside; ++rank) slots.push_back(rank / beside);
    Reduction reduction = reduction_of(size, slots, 1);
    reduction.hosts = Hosts(slots);
    const SumBytes bytes =
        bytes_of_sum(*assign(kLogicalRanks, 2 * beside), reduction, size, reduction.hosts);
    // Each of two hosts sends half of its node and the gradients of its half, to buddies.
    const double sent = static_cast<double>(std::accumulate(
        bytes.to_other_hosts.begin(), bytes.to_other_hosts.end(), std::uint64_t{0}));
    CHECK(sent == doctest::Approx(2 * whole).epsilon(0.001));
  }
}

TEST_CASE("nobody adds but those who own something, and all have what comes out") {
  for (const std::vector<std::uint8_t>& owns : std::vector<std::vector<std::uint8_t>>{
           {1, 0, 0}, {0, 1, 1}, {0, 0, 1}, {8, 1, 0}, {5, 8, 1}}) {
    const Size size{7 * kBlock + 1, 4, true, layers_of(7 * kBlock + 1)};
    const Assignment assignment = *assign(kLogicalRanks, 3);
    const Reduction reduction{Ownership(size.buckets(), owns), size.trained, true};
    sum_on_all(test::on_all_ranks, assignment, reduction, size, 2);
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<float> memory;
      Nodes nodes(assignment, rank, size.elements());
      const GradientExchange exchange(assignment, rank, reduction, nodes.buffers(), memory);
      CHECK(exchange.owns_elements() == (owns[static_cast<std::size_t>(rank)] > 0));
    }
  }
}

TEST_CASE("more node sums than one pass of the sum takes") {
  // 128 logical ranks of which one process holds every second one.
  std::vector<std::vector<RankRange>> held(2);
  for (int rank = 0; rank < 128; ++rank) held[rank % 2].push_back({rank, rank + 1});
  const Size size{2 * kBlock + 1, 4, true, {0, kBlock}};
  const Assignment assignment = repair(128, held);
  const auto nodes = [](int rank) {
    std::vector<std::vector<float>> values;
    for (int first = rank; first < 128; first += 2) {
      auto& one = values.emplace_back(size_t{2 * kBlock + 5});
      for (std::size_t i = 0; i < one.size(); ++i) one[i] = gradient(first, i);
    }
    return values;
  };
  std::vector<float> expected(size.elements());
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = tree(0, 128, i);
  for (const bool is_alone : {false, true}) {
    const Assignment whole = is_alone ? repair(128, {[] {
                                                 std::vector<RankRange> all;
                                                 for (int rank = 0; rank < 128; ++rank)
                                                   all.push_back({rank, rank + 1});
                                                 return all;
                                               }()})
                                      : assignment;
    const Reduction reduction = reduction_of(size, whole.processes());
    std::atomic<int> wrong = 0;
    test::on_all_ranks(whole.processes(), [&](comm::Communicator& communicator) {
      kernels::cpu::Context context;
      std::vector<std::vector<float>> values = nodes(communicator.rank());
      if (is_alone) {
        values.clear();
        for (int rank = 0; rank < 128; ++rank) values.push_back(nodes(rank % 2)[rank / 2]);
      }
      std::vector<float*> buffers;
      for (auto& one : values) buffers.push_back(one.data());
      const auto untouched = values;
      std::vector<float> memory;
      GradientExchange exchange(whole, communicator.rank(), reduction, buffers, memory);
      for (int time = 0; time < 2; ++time) {
        wrong += !exchange.sum(communicator, context, 1, soon(), nullptr);
        wrong += values != untouched;
        wrong += wrong_results(exchange, reduction, communicator.rank(), expected);
      }
    });
    CHECK(wrong == 0);
  }
}

namespace {

/// Sums over TCP, holds every rank's bytes against expected_bytes, and returns all bytes of one sum
/// relative to the mean formula (c + 1) M (P - 1) / P.
double wire_over_formula(int processes, const Size& size, int times) {
  const Assignment assignment = *assign(kLogicalRanks, processes);
  const Reduction reduction = reduction_of(size, processes);
  const auto sent = sum_on_all(test::on_all_ranks_by_tcp, assignment, reduction, size, times);
  double total = 0;
  double formula = 0;
  for (int rank = 0; rank < processes; ++rank) {
    const auto measured = static_cast<double>(sent[static_cast<std::size_t>(rank)]) / times;
    const auto expected = static_cast<double>(expected_bytes(assignment, rank, reduction));
    CHECK(measured >= expected);
    CHECK(measured <= expected * 1.02);
    total += measured;
    const auto nodes = assignment.nodes[static_cast<std::size_t>(rank)].size();
    formula += static_cast<double>((nodes + 1) * size.elements() * sizeof(float)) *
               (processes - 1) / processes;
  }
  MESSAGE("P = " << processes << ", " << size.elements() << " elements: " << total
                 << " bytes a sum by TCP, formula " << formula);
  return total / formula;
}

}  // namespace

TEST_CASE("bytes on the wire are those of the formula, within 2 %") {
  for (const int processes : {2, 3, 4}) {
    CAPTURE(processes);
    const double ratio = wire_over_formula(processes, {kDigits, 4}, 5);
    // With 3 processes the mean formula itself is 1.7 % below the payload: the digits model has 3
    // blocks, and the process with the short one holds more nodes than that with a full one.
    if (processes != 3) CHECK(std::abs(ratio - 1) < 0.02);
  }
  CHECK(std::abs(wire_over_formula(3, {24 * kBlock}, 1) - 1) < 0.02);
  // With the norm, one float more for each block to each of the others; cut into buckets, only
  // headers.
  const Size cut{24 * kBlock - 4, 4, true, {0, 9 * kBlock, 15 * kBlock, 21 * kBlock}};
  CHECK(std::abs(wire_over_formula(3, cut, 1) - 1) < 0.02);
}

TEST_CASE("owners and buddies have the sum's bits, all have tail and squares, then parameters") {
  for (const std::vector<int>& slots : std::vector<std::vector<int>>{{0},
                                                                     {0, 1},
                                                                     {0, 0, 1},
                                                                     {0, 1, 2},
                                                                     {0, 0, 0, 1},
                                                                     {0, 0, 1, 1, 2},
                                                                     {0, 1, 2, 3, 4, 5, 6}}) {
    for (const std::size_t trained :
         {std::size_t{1}, kBlock - 4, kBlock - 2, kBlock, 5 * kBlock, 9 * kBlock + 3}) {
      for (const bool is_measured : {false, true}) {
        CAPTURE(slots.size());
        CAPTURE(trained);
        const Size size{trained, 4, is_measured, layers_of(trained)};
        const Reduction reduction = reduction_of(size, slots, is_measured ? 1 : 2);
        const int processes = static_cast<int>(slots.size());
        sum_on_all(test::on_all_ranks, *assign(kLogicalRanks, processes), reduction, size, 2);
        // After a death: the first holds what the dead one had beside its own.
        std::vector<std::vector<RankRange>> held = (*assign(kLogicalRanks, processes + 1)).nodes;
        held.pop_back();
        sum_on_all(test::on_all_ranks, repair(kLogicalRanks, held), reduction, size, 1);
      }
    }
  }
}

TEST_CASE("a sharded step has the bytes of a replicated one on the wire, copies included") {
  constexpr std::size_t kTrained = 24 * kBlock - 9;
  for (const int processes : {2, 3, 4}) {
    CAPTURE(processes);
    std::vector<int> slots;
    for (int r = 0; r < processes; ++r) slots.push_back(r);
    const Size size{kTrained, 4, true, {0, 7 * kBlock, 15 * kBlock}};
    const Assignment assignment = *assign(kLogicalRanks, processes);
    const Reduction reduction = reduction_of(size, slots, 1 + processes % 2);
    const auto sent = sum_on_all(test::on_all_ranks_by_tcp, assignment, reduction, size, 3);
    for (int rank = 0; rank < processes; ++rank) {
      const auto measured = static_cast<double>(sent[static_cast<std::size_t>(rank)]) / 3;
      const auto expected = static_cast<double>(expected_step_bytes(assignment, rank, reduction));
      CHECK(measured >= expected);
      CHECK(measured <= expected * 1.02);
      const Reduction for_all = reduction_of(size, processes);
      CHECK(expected == doctest::Approx(expected_bytes(assignment, rank, for_all)).epsilon(0.001));
    }
  }
}

TEST_CASE("a bucket is with its owner while the others still compute the rest") {
  const Size size{6 * kBlock, 4, false, {0, 2 * kBlock, 4 * kBlock}};
  const Assignment assignment = *assign(kLogicalRanks, 3);
  const Reduction reduction = reduction_of(size, 3);
  const std::vector<float> expected = whole_sum(size.elements());
  for (const OnAllRanks& on_all_ranks :
       {OnAllRanks(test::on_all_ranks), OnAllRanks(test::on_all_ranks_by_tcp)}) {
    std::latch one_is_reduced(2);
    std::atomic<int> wrong = 0;
    on_all_ranks(3, [&](comm::Communicator& communicator) {
      kernels::cpu::Context context;
      Nodes nodes(assignment, communicator.rank(), size.elements());
      std::vector<float> memory;
      GradientExchange exchange(assignment, communicator.rank(), reduction, nodes.buffers(),
                                memory);
      std::vector<std::string> points;
      exchange.begin(communicator, context, 1, [&](std::string_view point) -> Status {
        points.emplace_back(point);
        return {};
      });
      const std::uint64_t before = communicator.sent_bytes();
      nodes.compute_from(4 * kBlock);
      exchange.advance(4 * kBlock, soon());
      wrong += communicator.sent_bytes() == before;
      if (communicator.rank() == 0) {
        one_is_reduced.wait();  // both others have added up a bucket that this one takes part in
      } else {
        nodes.compute_from(2 * kBlock);
        exchange.advance(2 * kBlock, soon());
        const auto own = reduction.ownership.of(0, communicator.rank());
        for (const Gradient& gradient : exchange.gradients()) {
          if (gradient.range.begin != own.begin) continue;
          wrong += !std::equal(gradient.values, gradient.values + gradient.range.size(),
                               expected.begin() + static_cast<std::ptrdiff_t>(own.begin));
        }
        wrong += own.size() == 0;
        one_is_reduced.count_down();
      }
      nodes.compute_from(0);
      wrong += !exchange.finish(soon());
      wrong += wrong_results(exchange, reduction, communicator.rank(), expected);
      wrong +=
          points != std::vector<std::string>{"bucket", "bucket", "scatter", "reduced", "gather"};
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE(
    "one is lost when some buckets are under way: the others end, their node sums as they were") {
  const Size size{9 * kBlock + 3, 4, true, layers_of(9 * kBlock + 3)};
  const Assignment assignment = *assign(kLogicalRanks, 4);
  const std::vector<float> expected = whole_sum(size.elements());
  const auto buckets = static_cast<int>(size.buckets().count());
  REQUIRE(buckets >= 4);
  for (const bool is_sharded : {false, true}) {
    Reduction reduction = is_sharded ? reduction_of(size, {0, 1, 2, 3}, 1) : reduction_of(size, 4);
    // The point where the third of four is lost: at a bucket, or after all of them.
    for (int lost_at = 1; lost_at <= buckets + 2; ++lost_at) {
      for (const OnAllRanks& on_all_ranks :
           {OnAllRanks(test::on_all_ranks), OnAllRanks(test::on_all_ranks_by_tcp)}) {
        CAPTURE(lost_at);
        const bool are_shared = lost_at % 2 == 1;
        reduction.hosts = are_shared ? Hosts({0, 0, 1, 1}) : Hosts();
        std::atomic<int> wrong = 0, survivors = 0;
        on_all_ranks(4, [&](comm::Communicator& communicator) {
          const int rank = communicator.rank();
          kernels::cpu::Context context;
          Nodes nodes(assignment, rank, size.elements());
          Rng rng(test::seed() + static_cast<std::uint64_t>(rank));
          // Nobody is lost before all are connected.
          static_cast<void>(comm::barrier(communicator, 0, soon()));
          {
            std::vector<float> memory;
            GradientExchange exchange(assignment, rank, reduction, nodes.buffers(), memory);
            int points = 0;
            exchange.begin(communicator, context, 1, [&](std::string_view) -> Status {
              if (rank != 2 || ++points < lost_at) return {};
              return Error(ErrorCode::kInternal, "killed");
            });
            compute_in_layers(nodes, size, rng,
                              [&](std::size_t first) { exchange.advance(first, soon()); });
            nodes.compute_from(0);
            const Status summed = exchange.finish(soon());
            if (!summed) communicator.abort();
            wrong += rank == 2 && summed;
            // Who is a step ahead has all of it.
            if (summed) wrong += wrong_results(exchange, reduction, rank, expected);
          }
          wrong += !nodes.are_right();
          if (rank != 2) ++survivors;
        });
        CHECK(survivors == 3);
        CHECK(wrong == 0);
      }
    }
  }
}
