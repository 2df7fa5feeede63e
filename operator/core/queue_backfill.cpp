#include "operator/core/queue_backfill.h"

#include <algorithm>
#include <tuple>

#include "operator/core/gang_place.h"

namespace muster::core {

KnownEnds::KnownEnds(const ClusterSnapshot& cluster, const QuotaLedger& ledger,
                     const Rooms& rooms) {
  const Inventory& inventory = rooms.inventory();
  const auto is_stuck = [](const HeldSlot& slot) { return slot.is_stuck; };
  for (const QueueHolder& one : cluster.holders) {
    const bool leaves = std::none_of(one.leaving.begin(), one.leaving.end(), is_stuck) &&
                        std::none_of(one.slots.begin(), one.slots.end(), is_stuck);
    if (!one.ends_within || !leaves) continue;
    End end{&one, ledger.index_of(one.turn.queue), amounts_of(one.per_worker), {}, {}};
    end.numbered = inventory.numbered(end.per_worker);
    for (const auto* slots : {&one.slots, &one.leaving}) {
      for (const HeldSlot& slot : *slots) {
        const int node = inventory.index_of(slot.node);
        if (node >= 0) end.nodes.push_back(node);
      }
    }
    ends_.push_back(std::move(end));
  }
  std::sort(ends_.begin(), ends_.end(), [](const End& a, const End& b) {
    return std::tie(*a.holder->ends_within, a.holder->job) <
           std::tie(*b.holder->ends_within, b.holder->job);
  });
}

void KnownEnds::move(const End& end, Direction direction, QuotaLedger& ledger, Rooms& rooms) {
  const int sign = direction == Direction::kForth ? 1 : -1;
  if (end.queue >= 0) ledger.charge(end.queue, end.per_worker, -sign * end.holder->workers());
  for (const int node : end.nodes) rooms.inventory().give_back(node, end.numbered, sign);
}

std::optional<seconds> KnownEnds::starts_within(const QuotaLedger& ledger, const Rooms& rooms,
                                                int queue, const WaitingGang& gang,
                                                const Caps& caps) const {
  WaitingGang least = gang;
  least.count = gang.min;
  const ResourceAmounts per_worker = amounts_of(gang.per_worker);
  QuotaLedger later = ledger;
  Rooms free = rooms;
  std::vector<const End*> others;
  for (const End& end : ends_) {
    // By its deadline nobody waits for its own old pods: it starts again as soon as they are gone.
    if (end.holder->uid == gang.uid) {
      move(end, Direction::kForth, later, free);
    } else {
      others.push_back(&end);
    }
  }
  std::size_t ended = 0;
  const auto fits_after = [&](std::size_t ends) {
    while (ended < ends) move(*others[ended++], Direction::kForth, later, free);
    while (ended > ends) move(*others[--ended], Direction::kBack, later, free);
    if (later.workers_within(queue, per_worker, QuotaLedger::Place::kFirst) < gang.min)
      return false;
    const auto left = caps(free);
    const GangVerdict verdict = place(least, free, left ? &*left : nullptr);
    if (verdict.placement) free.give_back(*verdict.placement, gang.per_worker);
    return verdict.placement.has_value();
  };
  if (others.empty() || fits_after(0) || !fits_after(others.size())) return std::nullopt;
  // What fits after some ends fits after more.
  std::size_t low = 0, high = others.size();
  while (low + 1 < high) {
    const std::size_t middle = low + (high - low) / 2;
    (fits_after(middle) ? high : low) = middle;
  }
  return *others[high - 1]->holder->ends_within;
}

}  // namespace muster::core
