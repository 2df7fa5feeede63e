#include "worker/engine/shard.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"

namespace muster::engine {
namespace {

/// Those who share, so that the ranks of one worker stand together, the largest group first.
struct Ring {
  std::vector<int> ranks;
  std::size_t group = 0;  ///< how large that is
};

Ring by_worker(const std::vector<int>& slots, const std::vector<int>& owners) {
  const auto slot = [&](int rank) { return slots[static_cast<std::size_t>(rank)]; };
  const auto group = [&](int rank) {
    return std::count_if(owners.begin(), owners.end(),
                         [&](int other) { return slot(other) == slot(rank); });
  };
  Ring ring{owners};
  std::stable_sort(ring.ranks.begin(), ring.ranks.end(), [&](int a, int b) {
    return group(a) != group(b) ? group(a) > group(b) : slot(a) < slot(b);
  });
  ring.group = static_cast<std::size_t>(group(ring.ranks[0]));
  return ring;
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

void add_first_buddies(const Ring& ring, Shards& shards) {
  const std::size_t processes = ring.ranks.size();
  const std::size_t group = ring.group;
  const std::size_t others = processes - group;
  for (std::size_t i = 0; i < processes; ++i) {
    // A step as long as the largest group leaves every group; where the first is more than half of
    // all, its processes share the few others.
    std::size_t to = (i + group) % processes;
    if (others == 0) to = (i + 1) % processes;
    if (others > 0 && i < group && group > others) to = group + i % others;
    shards.buddies[static_cast<std::size_t>(ring.ranks[i])].push_back(ring.ranks[to]);
  }
}

/// One more for each: of the worker that has fewest of the owner's copies, then who has fewest
/// copies of anybody's, then who comes next in the ring.
void add_buddies(const std::vector<int>& slots, const std::vector<int>& ring, Shards& shards) {
  const std::size_t processes = ring.size();
  std::vector<int> load(slots.size());
  for (const auto& buddies : shards.buddies) {
    for (const int buddy : buddies) ++load[static_cast<std::size_t>(buddy)];
  }
  const auto slot = [&](int rank) { return slots[static_cast<std::size_t>(rank)]; };
  for (std::size_t i = 0; i < processes; ++i) {
    auto& own = shards.buddies[static_cast<std::size_t>(ring[i])];
    std::optional<std::pair<int, int>> least;
    int best = -1;
    for (std::size_t step = 1; step < processes; ++step) {
      const int rank = ring[(i + step) % processes];
      if (std::find(own.begin(), own.end(), rank) != own.end()) continue;
      int there = slot(ring[i]) == slot(rank) ? 1 : 0;
      for (const int buddy : own) there += slot(buddy) == slot(rank) ? 1 : 0;
      const std::pair<int, int> cost{there, load[static_cast<std::size_t>(rank)]};
      if (least && *least <= cost) continue;
      least = cost;
      best = rank;
    }
    own.push_back(best);
    ++load[static_cast<std::size_t>(best)];
  }
}

}  // namespace

bool Shards::is_buddy(int owner, int rank) const {
  const auto& own = buddies[static_cast<std::size_t>(owner)];
  return std::find(own.begin(), own.end(), rank) != own.end();
}

std::vector<int> Shards::wards(int rank) const {
  std::vector<int> all;
  for (int other = 0; other < processes(); ++other) {
    if (is_buddy(other, rank)) all.push_back(other);
  }
  return all;
}

Ranges Shards::held(int rank) const {
  Ranges all = owned[static_cast<std::size_t>(rank)];
  for (const int ward : wards(rank)) all = united(all, owned[static_cast<std::size_t>(ward)]);
  return all;
}

Shards make_shards(const std::vector<int>& slots, const ShardPlan& plan) {
  const Ownership& ownership = plan.ownership;
  MUSTER_CHECK(std::ssize(slots) == ownership.processes());
  MUSTER_CHECK(plan.trained <= ownership.buckets().elements() && plan.buddies >= 1);
  Shards shards;
  shards.trained = plan.trained;
  for (int rank = 0; rank < ownership.processes(); ++rank) {
    shards.owned.push_back(within(ownership.of(rank), {0, plan.trained}));
  }
  shards.buddies.resize(slots.size());
  const Ring ring = by_worker(slots, ownership.owners());
  const int copies = std::min(plan.buddies, static_cast<int>(ring.ranks.size()) - 1);
  if (copies > 0) add_first_buddies(ring, shards);
  for (int more = 1; more < copies; ++more) add_buddies(slots, ring.ranks, shards);
  return shards;
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
