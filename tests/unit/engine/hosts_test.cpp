#include "worker/engine/hosts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <set>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::engine;

namespace {

/// Who trains after some have died and others have come, each on one of a few hosts.
struct Place {
  Assignment assignment;
  std::vector<int> host_of;
};

Place some_place(Rng& rng) {
  const int processes = static_cast<int>(1 + rng.below(9));
  const int ranks = 1 << rng.below(7);
  Place place{*assign(ranks, processes), {}};
  const bool is_repaired = rng.below(2) == 0;
  if (is_repaired) {
    auto held = place.assignment.nodes;
    for (auto& nodes : held) {
      if (rng.below(3) == 0) nodes.clear();
    }
    std::rotate(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(rng.below(held.size())),
                held.end());
    place.assignment = repair(ranks, held);
  }
  const std::uint64_t beside = 1 + rng.below(4);
  const bool is_mixed = rng.below(4) == 0;
  for (int rank = 0; rank < processes; ++rank) {
    const std::uint64_t at = is_mixed ? rng.below(9) : static_cast<std::uint64_t>(rank);
    place.host_of.push_back(static_cast<int>(at / beside));
  }
  return place;
}

/// The sums that have to leave the hosts, found from the top of the tree.
std::size_t fewest_nodes(const std::vector<HeldNode>& held, const Hosts& hosts, RankRange subtree) {
  std::set<int> holders;
  std::size_t nodes = 0;
  for (const HeldNode& node : held) {
    if (node.ranks.last <= subtree.first || node.ranks.first >= subtree.last) continue;
    holders.insert(node.process);
    ++nodes;
  }
  const int first = *holders.begin();
  if (std::ranges::all_of(holders, [&](int one) { return hosts.are_together(first, one); })) {
    return holders.size() > 1 ? 1 : nodes;
  }
  const int middle = (subtree.first + subtree.last) / 2;
  return fewest_nodes(held, hosts, {subtree.first, middle}) +
         fewest_nodes(held, hosts, {middle, subtree.last});
}

}  // namespace

TEST_CASE("hosts are told apart by any numbers, and without any each process is alone") {
  const Hosts hosts({7, 3, 7, 7, 3, 9});
  CHECK(hosts.is_any_shared());
  CHECK(hosts.count(6) == 3);
  CHECK(hosts.are_together(0, 3));
  CHECK_FALSE(hosts.are_together(0, 1));
  CHECK(hosts.beside(2) == std::vector<int>{0, 2, 3});
  CHECK(hosts.beside(5) == std::vector<int>{5});
  CHECK(hosts.first_of(3, 0) == 0);
  CHECK(hosts.first_of(3, 4) == 2);
  CHECK_FALSE(Hosts({1, 1, 1}).is_any_shared());
  CHECK_FALSE(Hosts({0, 1, 2}).is_any_shared());
  CHECK_FALSE(Hosts().is_any_shared());
  CHECK(Hosts().count(4) == 4);
  CHECK(Hosts().are_together(2, 2));
  CHECK_FALSE(Hosts().are_together(2, 3));
  CHECK(Hosts().beside(2) == std::vector<int>{2});
  CHECK(Hosts().first_of(2, 5) == 2);
}

TEST_CASE("each node leaves its host once, in the fewest complete subtrees") {
  Rng rng(test::seed());
  for (int trial = 0; trial < 2'000; ++trial) {
    CAPTURE(trial);
    const Place place = some_place(rng);
    const Hosts hosts(place.host_of);
    const std::vector<HeldNode> held = held_nodes(place.assignment);
    const std::vector<HostNode> nodes = host_nodes(place.assignment, hosts);
    std::vector<HeldNode> parts;
    for (const HostNode& node : nodes) {
      REQUIRE(!node.parts.empty());
      REQUIRE(std::has_single_bit(static_cast<unsigned>(node.ranks.size())));
      REQUIRE(node.ranks.first % node.ranks.size() == 0);
      REQUIRE(node.parts.front().ranks.first == node.ranks.first);
      REQUIRE(node.parts.back().ranks.last == node.ranks.last);
      std::set<int> holders;
      for (const HeldNode& part : node.parts) {
        REQUIRE(hosts.are_together(part.process, node.parts[0].process));
        holders.insert(part.process);
        parts.push_back(part);
      }
      REQUIRE(node.holders == std::vector<int>(holders.begin(), holders.end()));
      REQUIRE((node.is_made() || node.parts.size() == 1));
      for (std::size_t turn = 0; turn < 5; ++turn) REQUIRE(holders.contains(node.maker(turn)));
    }
    REQUIRE(parts.size() == held.size());
    for (std::size_t k = 0; k < parts.size(); ++k) {
      REQUIRE(parts[k].process == held[k].process);
      REQUIRE(parts[k].ranks == held[k].ranks);
    }
    REQUIRE(nodes.size() == fewest_nodes(held, hosts, {0, place.assignment.logical_ranks}));
  }
}

TEST_CASE("nobody is sent more sums of nodes than was foreseen, in whatever bucket") {
  Rng rng(test::seed());
  std::size_t most_alike = 0, foreseen = 0;
  for (int trial = 0; trial < 500; ++trial) {
    CAPTURE(trial);
    const Place place = some_place(rng);
    const Hosts hosts(place.host_of);
    const std::vector<HostNode> nodes = host_nodes(place.assignment, hosts);
    const int rank =
        static_cast<int>(rng.below(static_cast<std::uint64_t>(place.assignment.processes())));
    const std::size_t at_most = chunks_received(place.assignment, hosts, rank);
    std::size_t most = 0;
    for (std::size_t bucket = 0; bucket < 9; ++bucket) {
      std::size_t received = 0;
      for (const HostNode& node : nodes) {
        const auto sent = static_cast<std::size_t>(std::ranges::count_if(
            node.parts, [&](const HeldNode& part) { return part.process != rank; }));
        const int maker = node.maker(turn_of(rank, bucket));
        const bool comes_made = node.is_made() && !hosts.are_together(rank, maker);
        received += comes_made ? 1 : sent;
        for (int owner = 0; node.is_made() && owner < place.assignment.processes(); ++owner) {
          if (hosts.are_together(owner, maker)) continue;
          if (node.maker(turn_of(owner, bucket)) == rank) received += sent;
        }
      }
      most = std::max(most, received);
    }
    REQUIRE(most <= at_most);
    most_alike += most == at_most ? 1 : 0;
    ++foreseen;
  }
  CHECK(most_alike > foreseen * 9 / 10);  // and mostly no more than that
}

TEST_CASE("a host of several has one node where processes are as even as hosts") {
  for (const int hosts : {2, 4, 8}) {
    for (const int beside : {1, 2, 4}) {
      std::vector<int> host_of;
      for (int rank = 0; rank < hosts * beside; ++rank) host_of.push_back(rank / beside);
      const auto nodes = host_nodes(*assign(64, hosts * beside), Hosts(host_of));
      CHECK(std::ssize(nodes) == hosts);
    }
  }
  // Who is alone sends what it holds, whatever that could be added up to.
  const Assignment repaired{4, {{{0, 1}, {1, 2}}, {{2, 3}}, {{3, 4}}}};
  CHECK(host_nodes(repaired, Hosts()).size() == 4);
  CHECK(host_nodes(repaired, Hosts({0, 1, 1})).size() == 3);
  CHECK(host_nodes(repaired, Hosts({0, 0, 0})).size() == 1);
}

TEST_CASE("whoever of another host is late is waited for as long as those who send for it") {
  const Hosts hosts({7, 3, 7, 3, 9});
  const std::vector<double> waited{0.5, 1, 2, 4, 8};
  CHECK(waits_by_host(hosts, 0, waited) == std::vector<double>{0.5, 5, 2, 5, 8});
  CHECK(waits_by_host(hosts, 4, waited) == std::vector<double>{2.5, 5, 2.5, 5, 8});
  // Where each sends its own, and where nobody has measured it.
  CHECK(waits_by_host(Hosts(), 0, waited) == waited);
  CHECK(waits_by_host(Hosts({1, 1, 1, 1, 1}), 0, waited) == waited);
  CHECK(waits_by_host(hosts, 0, {}).empty());
}
