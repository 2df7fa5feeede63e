#include "worker/engine/shard.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "common/check.h"

namespace muster::engine {
namespace {

/// What is above it in the number of a domain is the rack's.
constexpr int kRackShift = 32;

/// By rank: its worker, and the lowest slot of its node and of its rack, which are its own where
/// they are not known.
struct Places {
  std::vector<int> slots, nodes, racks;
};

std::vector<int> lowest_slots(const std::vector<int>& slots,
                              const std::vector<std::uint64_t>& domains, int shift) {
  std::map<std::uint64_t, int> lowest;
  for (std::size_t r = 0; r < domains.size(); ++r) {
    if (domains[r] == 0) continue;
    const auto [at, is_new] = lowest.try_emplace(domains[r] >> shift, slots[r]);
    at->second = std::min(at->second, slots[r]);
  }
  std::vector<int> found = slots;
  for (std::size_t r = 0; r < domains.size(); ++r) {
    if (domains[r] != 0) found[r] = lowest[domains[r] >> shift];
  }
  return found;
}

/// Those who share, so that the ranks of one rack stand together, the largest rack first, in it
/// those of one node, and in that those of one worker, the largest first.
struct Ring {
  std::vector<int> ranks;
  std::size_t rack = 0, node = 0, group = 0;  ///< processes of the largest; group: worker
};

Ring make_ring(const Places& places, const std::vector<int>& owners) {
  std::map<int, std::ptrdiff_t> of_slot, of_node, of_rack;
  const auto at = [](const std::vector<int>& all, int rank) {
    return all[static_cast<std::size_t>(rank)];
  };
  for (const int rank : owners) {
    ++of_slot[at(places.slots, rank)];
    ++of_node[at(places.nodes, rank)];
    ++of_rack[at(places.racks, rank)];
  }
  const auto key = [&](int rank) {
    const int slot = at(places.slots, rank), node = at(places.nodes, rank);
    const int rack = at(places.racks, rank);
    return std::tuple(-of_rack[rack], rack, -of_node[node], node, -of_slot[slot], slot);
  };
  Ring ring{owners};
  std::stable_sort(ring.ranks.begin(), ring.ranks.end(),
                   [&](int a, int b) { return key(a) < key(b); });
  const auto largest = [](const std::map<int, std::ptrdiff_t>& counts) {
    std::size_t most = 0;
    for (const auto& [one, count] : counts) most = std::max(most, static_cast<std::size_t>(count));
    return most;
  };
  ring.rack = largest(of_rack);
  ring.node = largest(of_node);
  ring.group = largest(of_slot);
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

/// A step as long as the largest node leaves every node. Where that is more than half of all, the
/// step that is as long as the rest takes as many out of it as there are elsewhere, and all of
/// those into it; one as long as the largest worker leaves every worker. With racks it is the same,
/// and the longest of the three does for all: a rack is no smaller than a node in it, so that a
/// step that leaves racks leaves nodes, too.
std::size_t first_step(const Ring& ring) {
  const auto leaving = [&](std::size_t largest) {
    return std::min(largest, ring.ranks.size() - largest);
  };
  return std::max({ring.group, leaving(ring.node), leaving(ring.rack)});
}

void add_first_buddies(const Ring& ring, Shards& shards) {
  const std::size_t processes = ring.ranks.size();
  const std::size_t group = ring.group;
  const std::size_t others = processes - group;
  const std::size_t step = first_step(ring);
  for (std::size_t i = 0; i < processes; ++i) {
    // Where one worker is more than half of all, its processes share the few others.
    std::size_t to = (i + step) % processes;
    if (others == 0) to = (i + 1) % processes;
    if (others > 0 && i < group && group > others) to = group + i % others;
    shards.buddies[static_cast<std::size_t>(ring.ranks[i])].push_back(ring.ranks[to]);
  }
}

/// How many of an owner and its buddies are where `rank` is.
std::ptrdiff_t count_beside(const std::vector<int>& places, int rank, int owner,
                            const std::vector<int>& buddies) {
  const auto place = [&](int one) { return places[static_cast<std::size_t>(one)]; };
  return (place(owner) == place(rank) ? 1 : 0) +
         std::count_if(buddies.begin(), buddies.end(),
                       [&](int buddy) { return place(buddy) == place(rank); });
}

/// One more for each, all by the same step around the ring, so that all keep as many: the step that
/// leaves fewest owners with all copies in their own node, then in their own rack, then fewest
/// copies in one node, then in one rack. Whether there is a step that takes everybody to a worker
/// without a copy.
bool add_by_step(const Places& places, const std::vector<int>& ring, Shards& shards) {
  using Cost = std::array<std::ptrdiff_t, 4>;
  const std::size_t processes = ring.size();
  std::optional<Cost> least;
  std::size_t best = 0;
  for (std::size_t step = 1; step < processes; ++step) {
    std::ptrdiff_t clashes = 0;
    Cost cost{};
    for (std::size_t i = 0; i < processes && clashes == 0; ++i) {
      const int rank = ring[(i + step) % processes];
      const auto& own = shards.buddies[static_cast<std::size_t>(ring[i])];
      clashes += count_beside(places.slots, rank, ring[i], own);
      const auto add = [&](const std::vector<int>& of, std::size_t all, std::size_t some) {
        const auto beside = count_beside(of, rank, ring[i], own);
        const auto at_home = count_beside(of, ring[i], ring[i], own);
        cost[all] += at_home == std::ssize(own) + 1 && beside == at_home ? 1 : 0;
        cost[some] += beside;
      };
      add(places.nodes, 0, 2);
      add(places.racks, 1, 3);
    }
    if (clashes > 0 || (least && *least <= cost)) continue;
    least = cost;
    best = step;
  }
  for (std::size_t i = 0; best > 0 && i < processes; ++i) {
    shards.buddies[static_cast<std::size_t>(ring[i])].push_back(ring[(i + best) % processes]);
  }
  return best > 0;
}

/// One more for each: of the worker that has fewest of the owner's copies, then who has fewest
/// copies of anybody's, then of the node and of the rack that have fewest of the owner's, then who
/// comes next in the ring.
void add_buddies(const Places& places, const std::vector<int>& ring, Shards& shards) {
  const std::size_t processes = ring.size();
  std::vector<int> load(places.slots.size());
  for (const auto& buddies : shards.buddies) {
    for (const int buddy : buddies) ++load[static_cast<std::size_t>(buddy)];
  }
  for (std::size_t i = 0; i < processes; ++i) {
    auto& own = shards.buddies[static_cast<std::size_t>(ring[i])];
    std::optional<std::array<std::ptrdiff_t, 4>> least;
    int best = -1;
    for (std::size_t step = 1; step < processes; ++step) {
      const int rank = ring[(i + step) % processes];
      if (std::find(own.begin(), own.end(), rank) != own.end()) continue;
      const std::array<std::ptrdiff_t, 4> cost{count_beside(places.slots, rank, ring[i], own),
                                               load[static_cast<std::size_t>(rank)],
                                               count_beside(places.nodes, rank, ring[i], own),
                                               count_beside(places.racks, rank, ring[i], own)};
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

std::vector<Ranges> Shards::held() const {
  std::vector<Ranges> all;
  for (int rank = 0; rank < processes(); ++rank) all.push_back(held(rank));
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
  MUSTER_CHECK(plan.domains.empty() || plan.domains.size() == slots.size());
  const Places places{slots, lowest_slots(slots, plan.domains, 0),
                      lowest_slots(slots, plan.domains, kRackShift)};
  const Ring ring = make_ring(places, ownership.owners());
  const int copies = std::min(plan.buddies, static_cast<int>(ring.ranks.size()) - 1);
  if (copies > 0) add_first_buddies(ring, shards);
  // One rack for all says no more than none.
  const bool are_racks_known = places.racks != slots && ring.rack < ring.ranks.size();
  const bool is_anything_known = places.nodes != slots || are_racks_known;
  for (int more = 1; more < copies; ++more) {
    const bool is_done = is_anything_known && add_by_step(places, ring.ranks, shards);
    if (!is_done) add_buddies(places, ring.ranks, shards);
  }
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
  return plan_moves(shards.trained, shards.held(), keepers);
}

std::vector<Move> plan_moves(std::size_t trained, const std::vector<Ranges>& targets,
                             const std::vector<Keeper>& keepers) {
  MUSTER_CHECK(keepers.size() == targets.size());
  const std::vector<std::size_t> places = borders(targets, keepers, trained);
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
