#include "worker/engine/shard.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "common/check.h"

namespace muster::engine {
namespace {

/// Ranks of one worker stand together; the largest group comes first.
std::vector<int> by_worker(const std::vector<int>& slots) {
  const auto group = [&](int rank) {
    return std::count(slots.begin(), slots.end(), slots[static_cast<std::size_t>(rank)]);
  };
  std::vector<int> ranks(slots.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    const auto slot = [&](int rank) { return slots[static_cast<std::size_t>(rank)]; };
    return group(a) != group(b) ? group(a) > group(b) : slot(a) < slot(b);
  });
  return ranks;
}

bool contains(const Ranges& ranges, ElementRange part) {
  return std::any_of(ranges.begin(), ranges.end(), [&](ElementRange range) {
    return range.begin <= part.begin && part.end <= range.end;
  });
}

/// Ascending places in [0, trained) where anybody's share begins or ends.
std::vector<std::size_t> borders(const std::vector<Ranges>& targets,
                                 const std::vector<Keeper>& keepers, std::size_t trained) {
  std::vector<std::size_t> places{0, trained};
  const auto add = [&](const Ranges& ranges) {
    for (const ElementRange range : ranges) {
      places.push_back(std::min(range.begin, trained));
      places.push_back(std::min(range.end, trained));
    }
  };
  for (const Ranges& target : targets) add(target);
  for (const Keeper& keeper : keepers) add(keeper.held);
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}

/// Whoever has `part` and has least to send so far.
int giver(ElementRange part, const std::vector<Keeper>& keepers,
          const std::vector<std::size_t>& load) {
  std::optional<std::size_t> best;
  for (std::size_t r = 0; r < keepers.size(); ++r) {
    if (!contains(keepers[r].held, part)) continue;
    if (!best || load[r] < load[*best]) best = r;
  }
  MUSTER_CHECK_MSG(best.has_value(), "a shard is to be moved that nobody has");
  return static_cast<int>(*best);
}

}  // namespace

std::vector<int> Shards::wards(int rank) const {
  std::vector<int> all;
  for (int other = 0; other < processes(); ++other) {
    if (other != rank && buddy[static_cast<std::size_t>(other)] == rank) all.push_back(other);
  }
  return all;
}

Ranges Shards::held(int rank) const {
  Ranges all{owned[static_cast<std::size_t>(rank)]};
  for (const int ward : wards(rank)) all.push_back(owned[static_cast<std::size_t>(ward)]);
  return united(std::move(all));
}

Shards make_shards(const std::vector<int>& slots, std::size_t elements, std::size_t trained) {
  MUSTER_CHECK(!slots.empty() && trained <= elements);
  const std::size_t processes = slots.size();
  Shards shards;
  shards.trained = trained;
  for (std::size_t r = 0; r < processes; ++r) {
    const auto all = owned_elements(static_cast<int>(r), static_cast<int>(processes), elements);
    shards.owned.push_back(intersection(all, {0, trained}));
  }
  const std::vector<int> ring = by_worker(slots);
  const auto group = static_cast<std::size_t>(
      std::count(slots.begin(), slots.end(), slots[static_cast<std::size_t>(ring[0])]));
  const std::size_t others = processes - group;
  shards.buddy.resize(processes);
  for (std::size_t i = 0; i < processes; ++i) {
    // A step as long as the largest group leaves every group; where the first is more than half of
    // all, its processes share the few others.
    std::size_t to = (i + group) % processes;
    if (others == 0) to = (i + 1) % processes;
    if (others > 0 && i < group && group > others) to = group + i % others;
    shards.buddy[static_cast<std::size_t>(ring[i])] = ring[to];
  }
  return shards;
}

Shards shards_among(const std::vector<int>& slots, const std::vector<std::uint8_t>& stays,
                    std::size_t elements, std::size_t trained) {
  std::vector<int> ranks, slots_left;
  for (std::size_t r = 0; r < slots.size(); ++r) {
    if (stays[r] == 0) continue;
    ranks.push_back(static_cast<int>(r));
    slots_left.push_back(slots[r]);
  }
  const Shards among = make_shards(slots_left, elements, trained);
  Shards all;
  all.trained = trained;
  all.owned.resize(slots.size());
  all.buddy.resize(slots.size());
  std::iota(all.buddy.begin(), all.buddy.end(), 0);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto rank = static_cast<std::size_t>(ranks[i]);
    all.owned[rank] = among.owned[i];
    all.buddy[rank] = ranks[static_cast<std::size_t>(among.buddy[i])];
  }
  return all;
}

bool is_complete(std::size_t trained, const std::vector<Keeper>& keepers) {
  Ranges all;
  for (const Keeper& keeper : keepers) {
    all.insert(all.end(), keeper.held.begin(), keeper.held.end());
  }
  return without({{0, trained}}, united(std::move(all))).empty();
}

std::vector<Move> plan_moves(const Shards& shards, const std::vector<Keeper>& keepers) {
  MUSTER_CHECK(keepers.size() == shards.owned.size());
  std::vector<Ranges> targets;
  for (int rank = 0; rank < shards.processes(); ++rank) targets.push_back(shards.held(rank));
  const std::vector<std::size_t> places = borders(targets, keepers, shards.trained);
  std::vector<Move> moves;
  std::vector<std::size_t> load(keepers.size());
  for (std::size_t to = 0; to < keepers.size(); ++to) {
    for (std::size_t i = 0; i + 1 < places.size(); ++i) {
      const ElementRange part{places[i], places[i + 1]};
      if (contains(keepers[to].held, part)) continue;
      const bool is_state = contains(targets[to], part);
      const bool is_parameters = !keepers[to].has_parameters;
      if (!is_state && !is_parameters) continue;
      const int from = giver(part, keepers, load);
      load[static_cast<std::size_t>(from)] += part.size();
      moves.push_back({from, static_cast<int>(to), part, is_state, is_parameters});
    }
  }
  return moves;
}

}  // namespace muster::engine
