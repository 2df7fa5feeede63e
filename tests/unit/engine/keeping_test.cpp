#include "worker/engine/keeping.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "common/rng.h"
#include "kernels/ops.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::engine;

namespace {

constexpr std::size_t kBlockSize = kernels::kBlockElements;
constexpr std::size_t kKeptElements = 9 * kBlockSize - 5;  // the last block is short

Shards shared_by(const std::vector<int>& slots, int buddies) {
  const auto processes = static_cast<int>(slots.size());
  const Buckets buckets(kKeptElements + 3, {0, 2 * kBlockSize, 7 * kBlockSize}, 1);
  return make_shards(slots, {Ownership(buckets, processes), kKeptElements, buddies});
}

std::vector<int> slots_of(int processes) {
  std::vector<int> slots;
  for (int slot = 0; slot < processes; ++slot) slots.push_back(slot);
  return slots;
}

/// What is left to those who go on where one of `before` dies, and `joiners` more come.
struct Change {
  Shards target;
  std::vector<Ranges> kept;
};
Change change_of(int before, int dead, int joiners, int buddies) {
  Change change;
  const Shards old = shared_by(slots_of(before), buddies);
  std::vector<int> slots;
  for (int rank = 0; rank < before; ++rank) {
    if (rank == dead) continue;
    slots.push_back(rank);
    change.kept.push_back(old.held(rank));
  }
  for (int joiner = 0; joiner < joiners; ++joiner) {
    slots.push_back(before + joiner);
    change.kept.emplace_back();
  }
  change.target = shared_by(slots, buddies);
  return change;
}

/// Of each block, by how many it is kept.
std::vector<int> count_copies(const std::vector<Ranges>& kept) {
  std::vector<int> copies;
  for (std::size_t block = 0; block < blocks_of(kKeptElements); ++block) {
    const ElementRange range{block * kBlockSize, std::min((block + 1) * kBlockSize, kKeptElements)};
    copies.push_back(
        static_cast<int>(std::count_if(kept.begin(), kept.end(), [&](const Ranges& one) {
          return within(one, range) == Ranges{range};
        })));
  }
  return copies;
}

std::vector<Ranges> after(std::vector<Ranges> kept, const std::vector<Move>& copies) {
  const auto before = kept;
  for (const Move& copy : copies) {
    CHECK(copy.is_state);
    CHECK_FALSE(copy.is_parameters);
    const Ranges part{copy.range};
    CHECK(without(part, before[static_cast<std::size_t>(copy.from)]).empty());
    auto& theirs = kept[static_cast<std::size_t>(copy.to)];
    CHECK(intersection(theirs, part).empty());  // nothing is sent twice
    theirs = united(theirs, part);
  }
  return kept;
}

}  // namespace

TEST_CASE("stretches are cut where anybody's share is, and say who keeps them") {
  const std::vector<Ranges> kept{{{0, 4}, {8, 10}}, {{2, 10}}, {}};
  const std::vector<Stretch> expected{
      {{0, 2}, {0}}, {{2, 4}, {0, 1}}, {{4, 8}, {1}}, {{8, 10}, {0, 1}}, {{10, 12}, {}}};
  CHECK(stretches_of(12, kept) == expected);
  CHECK(stretches_of(3, {}) == std::vector<Stretch>{{{0, 3}, {}}});
}

TEST_CASE(
    "the parameters of everything are given by one of those who keep it, as a rule the owner") {
  for (int before = 2; before <= 6; ++before) {
    for (int dead = 0; dead < before; ++dead) {
      const Change change = change_of(before, dead, before % 3, 1);
      const Keeping keeping = keeping_of(change.target, change.kept);
      Ranges all;
      std::size_t size = 0;
      for (std::size_t rank = 0; rank < keeping.kept.size(); ++rank) {
        CHECK(without(keeping.given[rank], keeping.kept[rank]).empty());
        const Ranges own = intersection(change.target.owned[rank], change.kept[rank]);
        CHECK(without(own, keeping.given[rank]).empty());
        all = united(all, keeping.given[rank]);
        size += size_of(keeping.given[rank]);
      }
      CHECK(all == Ranges{{0, kKeptElements}});
      CHECK(size == kKeptElements);
    }
  }
  const Shards settled = shared_by(slots_of(5), 2);
  CHECK(keeping_of(settled, settled.held()).given == settled.owned);
}

TEST_CASE(
    "portion by portion all come to keep what is theirs, and nobody gives or takes too much") {
  for (int before = 2; before <= 6; ++before) {
    for (int dead = -1; dead < before; ++dead) {
      for (const int buddies : {1, 2}) {
        for (const std::size_t most : {kBlockSize, 3 * kBlockSize}) {
          CAPTURE(before);
          CAPTURE(dead);
          Change change = change_of(before, dead, 2, buddies);
          const std::size_t processes = change.kept.size();
          int portions = 0;
          for (;; ++portions) {
            REQUIRE(portions <= 60);
            const auto copies = next_portion(change.target, change.kept, most);
            if (copies.empty()) break;
            std::vector<std::size_t> given(processes), taken(processes);
            for (const Move& copy : copies) {
              given[static_cast<std::size_t>(copy.from)] += copy.range.size();
              taken[static_cast<std::size_t>(copy.to)] += copy.range.size();
            }
            CHECK(*std::max_element(given.begin(), given.end()) <= most);
            CHECK(*std::max_element(taken.begin(), taken.end()) <= most);
            const auto had = count_copies(change.kept);
            change.kept = without_surplus(change.target, after(change.kept, copies));
            const auto has = count_copies(change.kept);
            // Nobody lets go of a copy that is needed until the one in its place is there.
            const int enough = 1 + std::min(buddies, static_cast<int>(processes) - 1);
            for (std::size_t block = 0; block < has.size(); ++block) {
              CHECK(has[block] >= std::min(had[block], enough));
            }
          }
          if (most == kBlockSize) CHECK(portions > 1);
          CHECK(change.kept == change.target.held());
          CHECK(blocks_short(change.target, change.kept) == 0);
        }
      }
    }
  }
}

TEST_CASE("what has fewest copies is copied first") {
  // The first of three has died: what it owned and kept has one copy, all else two.
  const Change change = change_of(3, 0, 1, 1);
  const auto had = count_copies(change.kept);
  const auto single = std::count(had.begin(), had.end(), 1);
  REQUIRE(single > 0);
  REQUIRE(single < std::ssize(had));
  CHECK(blocks_short(change.target, change.kept) == static_cast<std::size_t>(single));
  const auto copies = next_portion(change.target, change.kept, kBlockSize);
  REQUIRE_FALSE(copies.empty());
  CHECK(had[copies[0].range.begin / kBlockSize] == 1);
  CHECK(blocks_short(change.target, after(change.kept, copies)) < static_cast<std::size_t>(single));
}

TEST_CASE("where nobody is lost no block is short of copies while they move") {
  for (int joiners = 1; joiners <= 3; ++joiners) {
    Change change = change_of(4, -1, joiners, 1);
    CHECK(blocks_short(change.target, change.kept) == 0);
    const auto copies = next_portion(change.target, change.kept, kBlockSize);
    CHECK_FALSE(copies.empty());
    change.kept = without_surplus(change.target, after(change.kept, copies));
    CHECK(blocks_short(change.target, change.kept) == 0);
  }
}

TEST_CASE("a portion is a thirty-second of all, in whole blocks, and not too few") {
  CHECK(portion_most(1, 1) == kBlockSize);
  CHECK(portion_most(63 * kBlockSize, 1) == kBlockSize);
  CHECK(portion_most(64 * kBlockSize, 1) == 2 * kBlockSize);
  CHECK(portion_most(64 * kBlockSize, 64) == 64 * kBlockSize);
  CHECK(portion_most(3'200 * kBlockSize + 1, 64) == 100 * kBlockSize);
}
