#include "worker/engine/shard.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "common/rng.h"
#include "kernels/ops.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::engine;

namespace {

constexpr std::size_t kB = kernels::kBlockElements;

/// Gangs as they come: one process a worker, several, one worker with most of them, any order.
std::vector<std::vector<int>> gangs() {
  std::vector<std::vector<int>> all;
  for (int processes = 1; processes <= 9; ++processes) {
    for (int per_worker = 1; per_worker <= 4; ++per_worker) {
      auto& slots = all.emplace_back();
      for (int r = 0; r < processes; ++r) slots.push_back(r / per_worker);
    }
  }
  Rng rng(test::seed());
  for (int i = 0; i < 300; ++i) {
    auto& slots = all.emplace_back();
    const auto workers = 1 + rng.below(5);
    for (auto left = 1 + rng.below(10); left > 0; --left) {
      slots.push_back(static_cast<int>(rng.below(workers)));
    }
  }
  return all;
}

struct Sizes {
  std::size_t elements, trained;
  std::vector<std::size_t> layers{};
};
const std::vector<Sizes> kSizes = {{5, 1},
                                   {kB + 4, kB},
                                   {kB + 4, kB + 1},
                                   {9 * kB + 7, 9 * kB - 3},
                                   {9 * kB + 7, 9 * kB - 3, {0, kB, 3 * kB + 5, 8 * kB}},
                                   {30 * kB, 20 * kB + 5},
                                   {30 * kB, 20 * kB + 5, {0, 11 * kB, 13 * kB}}};

Ownership ownership_of(const Sizes& size, std::size_t processes) {
  return {Buckets(size.elements, size.layers, 1), static_cast<int>(processes)};
}

Shards shards_of(const std::vector<int>& slots, const Sizes& size, int buddies = 1) {
  return make_shards(slots, {ownership_of(size, slots.size()), size.trained, buddies});
}

bool has_other_worker(const std::vector<int>& slots) {
  return std::any_of(slots.begin(), slots.end(), [&](int slot) { return slot != slots[0]; });
}

Keeper keeper_of(const Shards& shards, int rank) { return {shards.held(rank), true}; }

/// What everybody has after `moves`.
std::vector<Keeper> after(std::vector<Keeper> keepers, const std::vector<Move>& moves) {
  const std::vector<Keeper> before = keepers;
  for (const Move& move : moves) {
    const Ranges part{move.range};
    CHECK(without(part, before[static_cast<std::size_t>(move.from)].held).empty());
    auto& held = keepers[static_cast<std::size_t>(move.to)].held;
    CHECK(without(part, held) == part);
    if (move.is_state) held = united(held, part);
  }
  return keepers;
}

}  // namespace

TEST_CASE("ranges are united, subtracted and found") {
  const Ranges a = united(Ranges{{8, 12}, {0, 4}, {3, 5}, {20, 20}, {12, 13}});
  CHECK(a == Ranges{{0, 5}, {8, 13}});
  CHECK(without(a, {{4, 9}, {11, 12}}) == Ranges{{0, 4}, {9, 11}, {12, 13}});
  CHECK(without(a, a).empty());
  CHECK(size_of(a) == 10);
  CHECK(offset_of(a, {9, 11}) == 6);
  CHECK(are_ranges(a, 13));
  CHECK_FALSE(are_ranges(a, 12));
  CHECK_FALSE(are_ranges({{0, 4}, {4, 5}}, 9));
  CHECK_FALSE(are_ranges({{4, 4}}, 9));
}

TEST_CASE("every trained element has one owner and one copy, and copies are spread") {
  for (const auto& slots : gangs()) {
    const int processes = static_cast<int>(slots.size());
    for (const Sizes& size : kSizes) {
      const Shards shards = shards_of(slots, size);
      Ranges all;
      std::size_t owned = 0;
      std::size_t kept = 0;
      for (int r = 0; r < processes; ++r) {
        const Ranges& own = shards.owned[static_cast<std::size_t>(r)];
        // Who adds a block keeps its state.
        CHECK(own == within(ownership_of(size, slots.size()).of(r), {0, size.trained}));
        all = united(all, own);
        owned += size_of(own);
        kept += size_of(shards.held(r));
      }
      CHECK(all == Ranges{{0, size.trained}});
      CHECK(owned == size.trained);
      CHECK(kept == size.trained * (processes > 1 ? 2 : 1));
    }
  }
}

TEST_CASE("a buddy is of another worker wherever there is one") {
  for (const auto& slots : gangs()) {
    CAPTURE(slots.size());
    const Shards shards = shards_of(slots, {9 * kB, 9 * kB});
    std::size_t most = 0;
    std::size_t group = 0;
    for (int r = 0; r < shards.processes(); ++r) {
      const auto rank = static_cast<std::size_t>(r);
      REQUIRE(shards.buddies[rank].size() == (slots.size() > 1 ? 1 : 0));
      if (slots.size() == 1) continue;
      const auto buddy = static_cast<std::size_t>(shards.buddies[rank][0]);
      CHECK(buddy != rank);
      if (has_other_worker(slots)) CHECK(slots[buddy] != slots[rank]);
      most = std::max(most, shards.wards(r).size());
      group = std::max(
          group, static_cast<std::size_t>(std::count(slots.begin(), slots.end(), slots[rank])));
    }
    const std::size_t others = slots.size() - group;
    if (group <= others || others == 0) {
      CHECK(most <= 1);
    } else {
      CHECK(most == (group + others - 1) / others);
    }
  }
}

/// Of how many workers the owner and the buddies of `rank` are.
std::size_t count_workers(const std::vector<int>& slots, const Shards& shards, std::size_t rank) {
  std::set<int> workers{slots[rank]};
  for (const int buddy : shards.buddies[rank]) {
    workers.insert(slots[static_cast<std::size_t>(buddy)]);
  }
  return workers.size();
}

TEST_CASE("two buddies are different processes, of as many workers as can be") {
  for (const auto& slots : gangs()) {
    CAPTURE(slots.size());
    const Shards one = shards_of(slots, {9 * kB, 9 * kB});
    const Shards two = shards_of(slots, {9 * kB, 9 * kB}, 2);
    const std::size_t workers = std::set<int>(slots.begin(), slots.end()).size();
    const std::size_t copies = std::min<std::size_t>(2, slots.size() - 1);
    std::size_t kept = 0;
    for (std::size_t rank = 0; rank < slots.size(); ++rank) {
      const auto& buddies = two.buddies[rank];
      REQUIRE(buddies.size() == copies);
      CHECK(two.owned[rank] == one.owned[rank]);
      if (copies > 0) CHECK(buddies[0] == one.buddies[rank][0]);
      if (copies > 1) CHECK(buddies[0] != buddies[1]);
      CHECK_FALSE(two.is_buddy(static_cast<int>(rank), static_cast<int>(rank)));
      CHECK(count_workers(slots, two, rank) == std::min<std::size_t>(workers, 1 + copies));
      kept += size_of(two.held(static_cast<int>(rank)));
    }
    CHECK(kept == 9 * kB * (1 + copies));
  }
}

TEST_CASE("with two buddies each process keeps two copies, where every worker is one process") {
  for (int processes = 3; processes <= 9; ++processes) {
    std::vector<int> slots(static_cast<std::size_t>(processes));
    std::iota(slots.begin(), slots.end(), 0);
    const Shards shards = shards_of(slots, {9 * kB, 9 * kB}, 2);
    for (int rank = 0; rank < processes; ++rank) CHECK(shards.wards(rank).size() == 2);
  }
}

TEST_CASE("with two buddies any two may be gone, and all is there") {
  const Shards shards = shards_of({0, 1, 2, 3, 4}, {9 * kB, 9 * kB}, 2);
  std::vector<Keeper> keepers;
  for (int r = 0; r < 5; ++r) keepers.push_back(keeper_of(shards, r));
  for (std::size_t a = 0; a < 5; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      auto left = keepers;
      left[a] = left[b] = {};
      CHECK(is_complete(9 * kB, left));
      for (std::size_t c = 0; c < b; ++c) {
        auto fewer = left;
        fewer[c] = {};
        bool is_owner_with_buddies = false;
        for (const std::size_t owner : {a, b, c}) {
          std::size_t gone = 1;
          for (const int buddy : shards.buddies[owner]) {
            const auto who = static_cast<std::size_t>(buddy);
            gone += who == a || who == b || who == c ? 1 : 0;
          }
          is_owner_with_buddies = is_owner_with_buddies || gone == 3;
        }
        CHECK(is_complete(9 * kB, fewer) != is_owner_with_buddies);
      }
    }
  }
}

/// Every way of putting `workers` on nodes, at most four: the node of each, numbered as they come.
std::vector<std::vector<int>> placements(int workers) {
  std::vector<std::vector<int>> all{{}};
  for (int worker = 0; worker < workers; ++worker) {
    std::vector<std::vector<int>> longer;
    for (const auto& nodes : all) {
      const int used = nodes.empty() ? 0 : *std::max_element(nodes.begin(), nodes.end()) + 1;
      for (int node = 0; node <= std::min(used, 3); ++node) {
        longer.push_back(nodes);
        longer.back().push_back(node);
      }
    }
    all = std::move(longer);
  }
  return all;
}

struct Gang {
  std::vector<int> slots;
  std::vector<std::uint64_t> domains;
};

/// The nodes are called by numbers that say nothing about their order.
Gang gang_on(const std::vector<int>& nodes, int per_worker, std::uint64_t factor) {
  Gang gang;
  for (std::size_t worker = 0; worker < nodes.size(); ++worker) {
    for (int i = 0; i < per_worker; ++i) {
      gang.slots.push_back(static_cast<int>(worker));
      gang.domains.push_back((static_cast<std::uint64_t>(nodes[worker]) + 1) * factor);
    }
  }
  return gang;
}

Shards shards_of(const Gang& gang, int buddies) {
  const Sizes size{9 * kB + 7, 9 * kB};
  return make_shards(gang.slots,
                     {ownership_of(size, gang.slots.size()), size.trained, buddies, gang.domains});
}

/// How many owners have all their copies where they are themselves.
std::ptrdiff_t count_unsafe(const Gang& gang, const Shards& shards) {
  std::ptrdiff_t unsafe = 0;
  for (std::size_t r = 0; r < gang.slots.size(); ++r) {
    const auto& own = shards.buddies[r];
    unsafe += std::all_of(own.begin(), own.end(), [&](int buddy) {
      return gang.domains[static_cast<std::size_t>(buddy)] == gang.domains[r];
    });
  }
  return unsafe;
}

std::ptrdiff_t largest_domain(const Gang& gang) {
  std::ptrdiff_t most = 0;
  for (const std::uint64_t one : gang.domains) {
    most = std::max(most, std::count(gang.domains.begin(), gang.domains.end(), one));
  }
  return most;
}

TEST_CASE("copies are on another node wherever one has room, and nobody keeps more for it") {
  for (int workers = 2; workers <= 8; ++workers) {
    for (const auto& nodes : placements(workers)) {
      for (const int per_worker : {1, 2}) {
        const Gang gang = gang_on(nodes, per_worker, 0x9e3779b97f4a7c15ull);
        const auto processes = std::ssize(gang.slots);
        const Shards shards = shards_of(gang, 1);
        CAPTURE(nodes);
        CAPTURE(per_worker);
        for (int r = 0; r < shards.processes(); ++r) {
          const auto rank = static_cast<std::size_t>(r);
          REQUIRE(shards.buddies[rank].size() == 1);
          CHECK(gang.slots[static_cast<std::size_t>(shards.buddies[rank][0])] != gang.slots[rank]);
          CHECK(shards.wards(r).size() == 1);
        }
        // Each process elsewhere takes one; more would be more than its share.
        const std::ptrdiff_t most = largest_domain(gang);
        CHECK(count_unsafe(gang, shards) == std::max<std::ptrdiff_t>(0, 2 * most - processes));
        // How the nodes are called changes nothing.
        CHECK(shards_of(gang_on(nodes, per_worker, 0xd1b54a32d192ed03ull), 1).buddies ==
              shards.buddies);
      }
    }
  }
}

TEST_CASE("a node that is lost with all its workers takes no block along") {
  for (int workers = 2; workers <= 8; ++workers) {
    for (const auto& nodes : placements(workers)) {
      const Gang gang = gang_on(nodes, 1, 7);
      if (2 * largest_domain(gang) > std::ssize(gang.slots)) continue;
      CAPTURE(nodes);
      const Shards shards = shards_of(gang, 1);
      for (const std::uint64_t lost : gang.domains) {
        std::vector<Keeper> left;
        for (int r = 0; r < shards.processes(); ++r) {
          const bool is_lost = gang.domains[static_cast<std::size_t>(r)] == lost;
          left.push_back(is_lost ? Keeper() : keeper_of(shards, r));
        }
        CHECK(is_complete(shards.trained, left));
      }
    }
  }
}

TEST_CASE("of two copies one is on another node wherever one has room, and all keep two") {
  for (int workers = 3; workers <= 8; ++workers) {
    for (const auto& nodes : placements(workers)) {
      const Gang gang = gang_on(nodes, 1, 7);
      CAPTURE(nodes);
      const Shards shards = shards_of(gang, 2);
      for (int r = 0; r < shards.processes(); ++r) CHECK(shards.wards(r).size() == 2);
      const std::ptrdiff_t most = largest_domain(gang);
      const std::ptrdiff_t room = 2 * (std::ssize(gang.slots) - most);
      CHECK(count_unsafe(gang, shards) == std::max<std::ptrdiff_t>(0, most - room));
    }
  }
}

TEST_CASE(
    "copies are in another rack wherever one has room, and none goes to its own node for it") {
  for (int workers = 2; workers <= 6; ++workers) {
    for (const auto& nodes : placements(workers)) {
      for (const auto& racks : placements(*std::max_element(nodes.begin(), nodes.end()) + 1)) {
        Gang gang = gang_on(nodes, 1, 1);
        Gang of_racks = gang;
        for (std::size_t r = 0; r < gang.slots.size(); ++r) {
          const auto rack = static_cast<std::uint64_t>(racks[static_cast<std::size_t>(nodes[r])]);
          gang.domains[r] |= (7 - rack) << 32;
          of_racks.domains[r] = rack + 1;
        }
        CAPTURE(nodes);
        CAPTURE(racks);
        const auto processes = std::ssize(gang.slots);
        const std::ptrdiff_t room =
            std::max<std::ptrdiff_t>(0, 2 * largest_domain(gang) - processes);
        const std::ptrdiff_t room_of_racks =
            std::max<std::ptrdiff_t>(0, 2 * largest_domain(of_racks) - processes);
        const Shards one = shards_of(gang, 1), two = shards_of(gang, 2);
        for (int r = 0; r < one.processes(); ++r) CHECK(one.wards(r).size() == 1);
        CHECK(count_unsafe(gang, one) == room);
        // What leaves every rack leaves every node. Where one rack is more than half of all, nodes
        // come first.
        if (room_of_racks == 0) CHECK(count_unsafe(of_racks, one) == 0);
        if (room_of_racks == 0 && workers > 2) CHECK(count_unsafe(of_racks, two) == 0);
      }
    }
  }
}

TEST_CASE("a worker whose node is not known stands alone, and nobody else for it") {
  for (const auto& slots : gangs()) {
    for (const int buddies : {1, 2}) {
      const Sizes size{9 * kB + 7, 9 * kB};
      const auto with = [&](std::vector<std::uint64_t> domains) {
        return make_shards(slots, {ownership_of(size, slots.size()), size.trained, buddies,
                                   std::move(domains)})
            .buddies;
      };
      std::vector<std::uint64_t> own;
      for (const int slot : slots) own.push_back(100 - static_cast<std::uint64_t>(slot));
      const auto plain = with({});
      CHECK(with(std::vector<std::uint64_t>(slots.size(), 0)) == plain);
      CHECK(with(own) == plain);
    }
  }
  const Gang half_known{{0, 1, 2, 3}, {5, 5, 0, 0}};
  CHECK(count_unsafe(half_known, shards_of(half_known, 1)) == 0);
}

TEST_CASE("after any change of members everybody has its share, and nothing moves in vain") {
  Rng rng(test::seed() + 1);
  const auto all = gangs();
  for (int trial = 0; trial < 400; ++trial) {
    CAPTURE(trial);
    const Sizes& size = kSizes[rng.below(kSizes.size())];
    const auto& before = all[rng.below(all.size())];
    const int buddies = 1 + static_cast<int>(rng.below(2));
    const Shards old = shards_of(before, size, buddies);
    // One of the old members may be gone, its buddy is not; some are new.
    std::vector<Keeper> keepers;
    std::vector<int> slots;
    const int dead = before.size() > 1 ? static_cast<int>(rng.below(before.size())) : -1;
    for (int r = 0; r < old.processes(); ++r) {
      if (r == dead) continue;
      keepers.push_back(keeper_of(old, r));
      slots.push_back(before[static_cast<std::size_t>(r)]);
    }
    for (auto joiners = rng.below(4); joiners > 0; --joiners) {
      keepers.emplace_back();
      slots.push_back(static_cast<int>(rng.below(6)));
    }
    REQUIRE(is_complete(size.trained, keepers));
    const Shards shards = shards_of(slots, size, buddies);
    const auto moves = plan_moves(shards, keepers);
    const auto now = after(keepers, moves);
    std::size_t state = 0;
    std::size_t missing = 0;
    for (int r = 0; r < shards.processes(); ++r) {
      const auto rank = static_cast<std::size_t>(r);
      const Ranges target = shards.held(r);
      CHECK(without(target, now[rank].held).empty());
      missing += size_of(without(target, keepers[rank].held));
      Ranges parameters =
          keepers[rank].has_parameters ? Ranges{{0, size.trained}} : keepers[rank].held;
      for (const Move& move : moves) {
        if (move.to == r && move.is_state) state += move.range.size();
        if (move.to == r && move.is_parameters) parameters = united(parameters, {move.range});
      }
      CHECK(parameters == Ranges{{0, size.trained}});
    }
    CHECK(state == missing);
  }
}

TEST_CASE("nothing moves where nothing changes, and an owner with its buddy takes blocks along") {
  const Shards shards = shards_of({0, 1, 2, 3}, {8 * kB, 8 * kB});
  std::vector<Keeper> keepers;
  for (int r = 0; r < 4; ++r) keepers.push_back(keeper_of(shards, r));
  CHECK(plan_moves(shards, keepers).empty());
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) {
      auto left = keepers;
      left[static_cast<std::size_t>(a)] = left[static_cast<std::size_t>(b)] = {};
      const bool are_buddies = shards.is_buddy(a, b) || shards.is_buddy(b, a);
      CHECK(is_complete(8 * kB, left) == !are_buddies);
    }
  }
}

TEST_CASE("those who stay come to have all that those who leave have, with copies") {
  for (const auto& slots : gangs()) {
    for (std::size_t mask = 1; mask < (std::size_t{1} << std::min<std::size_t>(slots.size(), 6));
         ++mask) {
      std::vector<std::uint8_t> stays;
      for (std::size_t r = 0; r < slots.size(); ++r) stays.push_back((mask >> (r % 6)) & 1);
      const Sizes size{9 * kB + 7, 9 * kB, {0, 2 * kB, 7 * kB}};
      const Shards now = shards_of(slots, size);
      const Buckets buckets(size.elements, size.layers, 1);
      const Shards target = make_shards(slots, {Ownership(buckets, stays), size.trained});
      std::vector<Keeper> keepers;
      for (int r = 0; r < now.processes(); ++r) keepers.push_back(keeper_of(now, r));
      auto left = after(keepers, plan_moves(target, keepers));
      for (std::size_t r = 0; r < slots.size(); ++r) {
        if (stays[r] == 0) CHECK(target.held(static_cast<int>(r)).empty());
        if (stays[r] == 0) left[r] = {};
      }
      CHECK(is_complete(9 * kB, left));
      // Nor does any one of them leave a hole.
      const auto staying = std::count(stays.begin(), stays.end(), 1);
      for (std::size_t r = 0; staying > 1 && r < slots.size(); ++r) {
        auto without_one = left;
        without_one[r] = {};
        CHECK(is_complete(9 * kB, without_one));
      }
    }
  }
}
