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
};
const std::vector<Sizes> kSizes = {
    {5, 1}, {kB + 4, kB}, {kB + 4, kB + 1}, {9 * kB + 7, 9 * kB - 3}, {30 * kB, 20 * kB + 5}};

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
    for (const Sizes size : kSizes) {
      const Shards shards = make_shards(slots, size.elements, size.trained);
      std::size_t next = 0;
      std::size_t kept = 0;
      for (int r = 0; r < processes; ++r) {
        const ElementRange own = shards.owned[static_cast<std::size_t>(r)];
        if (own.size() > 0) {
          CHECK(own.begin == next);
          next = own.end;
        }
        CHECK(intersection(own, owned_elements(r, processes, size.elements)) == own);
        kept += size_of(shards.held(r));
      }
      CHECK(next == size.trained);
      CHECK(kept == size.trained * (processes > 1 ? 2 : 1));
    }
  }
}

TEST_CASE("a buddy is of another worker wherever there is one") {
  for (const auto& slots : gangs()) {
    CAPTURE(slots.size());
    const Shards shards = make_shards(slots, 9 * kB, 9 * kB);
    std::size_t most = 0;
    std::size_t group = 0;
    for (int r = 0; r < shards.processes(); ++r) {
      const auto rank = static_cast<std::size_t>(r);
      const auto buddy = static_cast<std::size_t>(shards.buddy[rank]);
      if (slots.size() > 1) CHECK(buddy != rank);
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

TEST_CASE("after any change of members everybody has its share, and nothing moves in vain") {
  Rng rng(test::seed() + 1);
  const auto all = gangs();
  for (int trial = 0; trial < 400; ++trial) {
    CAPTURE(trial);
    const Sizes size = kSizes[rng.below(kSizes.size())];
    const auto& before = all[rng.below(all.size())];
    const Shards old = make_shards(before, size.elements, size.trained);
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
    const Shards shards = make_shards(slots, size.elements, size.trained);
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
  const Shards shards = make_shards({0, 1, 2, 3}, 8 * kB, 8 * kB);
  std::vector<Keeper> keepers;
  for (int r = 0; r < 4; ++r) keepers.push_back(keeper_of(shards, r));
  CHECK(plan_moves(shards, keepers).empty());
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) {
      auto left = keepers;
      left[static_cast<std::size_t>(a)] = left[static_cast<std::size_t>(b)] = {};
      const bool are_buddies = shards.buddy[static_cast<std::size_t>(a)] == b ||
                               shards.buddy[static_cast<std::size_t>(b)] == a;
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
      const Shards now = make_shards(slots, 9 * kB + 7, 9 * kB);
      const Shards target = shards_among(slots, stays, 9 * kB + 7, 9 * kB);
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
