#include "worker/engine/keeping.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kernels/ops.h"

namespace muster::engine {
namespace {

constexpr std::size_t kPortionsOfAll = 32;

std::size_t as_index(int rank) { return static_cast<std::size_t>(rank); }

/// Whoever of `keepers` has least in `load`.
int least_loaded(const std::vector<int>& keepers, const std::vector<std::size_t>& load) {
  return *std::min_element(keepers.begin(), keepers.end(),
                           [&](int a, int b) { return load[as_index(a)] < load[as_index(b)]; });
}

bool is_one_of(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

/// Stretches by who keeps them and by who is to: first the keepers, then the others.
struct PlannedStretch {
  Stretch stretch;  ///< with who keeps it
  std::vector<int> to_keep;
};

std::vector<PlannedStretch> planned_stretches(const Shards& shards,
                                              const std::vector<Ranges>& kept) {
  std::vector<Ranges> both = kept;
  const int processes = shards.processes();
  MUSTER_CHECK(std::ssize(kept) == processes);
  for (Ranges& ranges : shards.held()) both.push_back(std::move(ranges));
  std::vector<PlannedStretch> all;
  for (const Stretch& stretch : stretches_of(shards.trained, both)) {
    PlannedStretch one{{stretch.range, {}}, {}};
    for (const int place : stretch.keepers) {
      if (place < processes) {
        one.stretch.keepers.push_back(place);
      } else {
        one.to_keep.push_back(place - processes);
      }
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace

std::vector<Stretch> stretches_of(std::size_t trained, const std::vector<Ranges>& kept) {
  std::vector<std::size_t> places{0, trained};
  for (const Ranges& ranges : kept) {
    for (const ElementRange range : ranges) {
      places.push_back(std::min(range.begin, trained));
      places.push_back(std::min(range.end, trained));
    }
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  std::vector<Stretch> all;
  for (std::size_t i = 0; i + 1 < places.size(); ++i)
    all.push_back({{places[i], places[i + 1]}, {}});
  for (std::size_t rank = 0; rank < kept.size(); ++rank) {
    for (const ElementRange range : kept[rank]) {
      auto at = std::lower_bound(
          all.begin(), all.end(), range.begin,
          [](const Stretch& one, std::size_t begin) { return one.range.begin < begin; });
      for (; at != all.end() && at->range.end <= range.end; ++at) {
        at->keepers.push_back(static_cast<int>(rank));
      }
    }
  }
  return all;
}

Keeping keeping_of(const Shards& shards, std::vector<Ranges> kept) {
  Keeping keeping{shards.trained, std::move(kept), {}};
  const auto processes = as_index(shards.processes());
  MUSTER_CHECK(keeping.kept.size() == processes);
  std::vector<Ranges> cut = keeping.kept;
  cut.insert(cut.end(), shards.owned.begin(), shards.owned.end());
  keeping.given.resize(processes);
  std::vector<std::size_t> load(processes);
  for (const Stretch& stretch : stretches_of(shards.trained, cut)) {
    std::vector<int> keepers;
    int owner = -1;
    for (const int place : stretch.keepers) {
      if (as_index(place) < processes) keepers.push_back(place);
      if (as_index(place) >= processes) owner = place - shards.processes();
    }
    MUSTER_CHECK_MSG(!keepers.empty(), "nobody keeps the state of some blocks");
    const int giver = is_one_of(keepers, owner) ? owner : least_loaded(keepers, load);
    load[as_index(giver)] += stretch.range.size();
    keeping.given[as_index(giver)].push_back(stretch.range);
  }
  for (Ranges& given : keeping.given) given = united(std::move(given));
  return keeping;
}

std::vector<Ranges> without_surplus(const Shards& shards, std::vector<Ranges> kept) {
  std::vector<Ranges> left(kept.size());
  for (const PlannedStretch& one : planned_stretches(shards, kept)) {
    const auto& keepers = one.stretch.keepers;
    const bool is_lacking = std::any_of(one.to_keep.begin(), one.to_keep.end(),
                                        [&](int rank) { return !is_one_of(keepers, rank); });
    for (const int rank : keepers) {
      if (is_lacking || is_one_of(one.to_keep, rank)) {
        left[as_index(rank)].push_back(one.stretch.range);
      }
    }
  }
  for (Ranges& ranges : left) ranges = united(std::move(ranges));
  return left;
}

std::vector<Move> next_portion(const Shards& shards, const std::vector<Ranges>& kept,
                               std::size_t elements_most) {
  MUSTER_CHECK(elements_most >= kernels::kBlockElements);
  std::vector<PlannedStretch> planned = planned_stretches(shards, kept);
  std::stable_sort(planned.begin(), planned.end(),
                   [](const PlannedStretch& a, const PlannedStretch& b) {
                     return a.stretch.keepers.size() < b.stretch.keepers.size();
                   });
  std::vector<Move> moves;
  std::vector<std::size_t> given(kept.size()), taken(kept.size());
  for (const PlannedStretch& one : planned) {
    for (const int to : one.to_keep) {
      if (is_one_of(one.stretch.keepers, to)) continue;
      MUSTER_CHECK_MSG(!one.stretch.keepers.empty(), "a copy is to be made of what nobody keeps");
      const int from = least_loaded(one.stretch.keepers, given);
      const std::size_t room = elements_most - std::max(given[as_index(from)], taken[as_index(to)]);
      std::size_t size = one.stretch.range.size();
      if (size > room) size = room / kernels::kBlockElements * kernels::kBlockElements;
      if (size == 0) continue;
      given[as_index(from)] += size;
      taken[as_index(to)] += size;
      const std::size_t begin = one.stretch.range.begin;
      moves.push_back({from, to, {begin, begin + size}, true, false});
    }
  }
  return moves;
}

std::size_t portion_most(std::size_t trained, std::size_t blocks_least) {
  return std::max(blocks_least, blocks_of(trained) / kPortionsOfAll) * kernels::kBlockElements;
}

std::size_t blocks_short(const Shards& shards, const std::vector<Ranges>& kept) {
  std::size_t blocks = 0;
  for (const PlannedStretch& one : planned_stretches(shards, kept)) {
    const bool is_short = one.stretch.keepers.size() < one.to_keep.size();
    blocks += is_short ? blocks_of(one.stretch.range.size()) : 0;
  }
  return blocks;
}

}  // namespace muster::engine
