#include "operator/core/queue_backfill.h"

#include <algorithm>

#include "operator/core/gang_place.h"

namespace muster::core {
namespace {

/// Those whose end is known, by it.
std::vector<const QueueHolder*> ending(const ClusterSnapshot& cluster) {
  std::vector<const QueueHolder*> holders;
  const auto is_stuck = [](const HeldSlot& slot) { return slot.is_stuck; };
  for (const QueueHolder& one : cluster.holders) {
    const bool leaves = std::none_of(one.leaving.begin(), one.leaving.end(), is_stuck) &&
                        std::none_of(one.slots.begin(), one.slots.end(), is_stuck);
    if (one.ends_within && leaves) holders.push_back(&one);
  }
  std::sort(holders.begin(), holders.end(), [](const QueueHolder* a, const QueueHolder* b) {
    return std::tie(*a->ends_within, a->job) < std::tie(*b->ends_within, b->job);
  });
  return holders;
}

void end(const QueueHolder& holder, QuotaLedger& ledger, Rooms& rooms) {
  const int queue = ledger.index_of(holder.turn.queue);
  if (queue >= 0) ledger.charge(queue, amounts_of(holder.per_worker), -holder.workers());
  for (const auto* slots : {&holder.slots, &holder.leaving}) {
    for (const HeldSlot& slot : *slots) rooms.give_back(slot.node, holder.per_worker);
  }
}

}  // namespace

std::optional<seconds> starts_within(const ClusterSnapshot& cluster, const QuotaLedger& ledger,
                                     const Rooms& rooms, int queue, const WaitingGang& gang) {
  const std::vector<const QueueHolder*> holders = ending(cluster);
  WaitingGang least = gang;
  least.count = gang.min;
  const auto fits_after = [&](std::size_t ends) {
    QuotaLedger later = ledger;
    Rooms free = rooms;
    for (std::size_t i = 0; i < ends; ++i) end(*holders[i], later, free);
    const std::int64_t within =
        later.workers_within(queue, amounts_of(gang.per_worker), QuotaLedger::Place::kFirst);
    return within >= gang.min && place(least, free).placement.has_value();
  };
  if (holders.empty() || !fits_after(holders.size())) return std::nullopt;
  // What fits after some ends fits after more.
  std::size_t low = 0, high = holders.size();
  while (low + 1 < high) {
    const std::size_t middle = low + (high - low) / 2;
    (fits_after(middle) ? high : low) = middle;
  }
  return *holders[high - 1]->ends_within;
}

}  // namespace muster::core
