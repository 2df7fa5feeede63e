// Who hears whom, and who should go because of it. A silent worker is reported by all others, so
// two observers are enough to be quick; a single broken pair may be a passing fault of either side
// and is given more time, and then one of the two goes, not both.
#include <algorithm>

#include "worker/sentinel/membership.h"

namespace muster::sentinel {
namespace {

constexpr int kLateTimes = 3;

}  // namespace

bool Membership::is_silent(const Peer& peer, MonoTime now) const {
  const auto silent = now - peer.heard;
  if (silent <= options_.silence) return false;
  if (silent > options_.silence_most) return true;
  // Where processors are short a sentinel may wait for one while its trainers have theirs.
  const Seat* const seat = find_seat(view_, peer.seat.id);
  const bool trains = seat != nullptr && !seat->trainers.empty();
  if (trains && now - stepped_ <= options_.silence) return false;
  return silent > kLateTimes * peer.lateness.longest();
}

bool Membership::is_linked(const Seat& seat, MonoTime now) const {
  if (seat.id == self_.id) return true;
  const Peer* one = known(seat.id);
  if (one == nullptr || one->is_dead || is_silent(*one, now)) return false;
  return !one->has_beat || one->epoch != view_.epoch ||
         !std::binary_search(one->beat.unheard.begin(), one->beat.unheard.end(), self_.id.slot);
}

bool Membership::is_abreast(const Seat& seat, MonoTime now) const {
  if (seat.id == self_.id) return true;
  const Peer* one = known(seat.id);
  return one != nullptr && one->epoch == view_.epoch && is_linked(seat, now);
}

const std::vector<int>& Membership::unheard_by(const Seat& who, MonoTime now) const {
  static const std::vector<int> kNone;
  const Peer* one = who.id == self_.id ? nullptr : known(who.id);
  const bool counts =
      one != nullptr && one->has_beat && one->epoch == view_.epoch && is_linked(who, now);
  return counts ? one->beat.unheard : kNone;
}

/// By slot, how many do not hear it, each for itself. What it says of them does not count: a worker
/// whose last word is of those who were silent until now is not the one who was silent.
std::map<int, int> Membership::count_observers(MonoTime now) const {
  std::map<int, int> observers;
  for (const Seat& seat : view_.seats) {
    const Peer* about = known(seat.id);
    if (about != nullptr && (about->is_dead || is_silent(*about, now))) ++observers[seat.id.slot];
    for (const int slot : unheard_by(seat, now)) observers[slot] += slot == seat.id.slot ? 0 : 1;
  }
  return observers;
}

std::set<int> Membership::find_cut_off(MonoTime now) const {
  std::set<int> cut_off, kept;
  for (const Seat& seat : view_.seats) {
    const Peer* one = known(seat.id);
    if (one != nullptr && one->is_dead) continue;
    (is_linked(seat, now) ? kept : cut_off).insert(seat.id.slot);
  }
  // Of the kept, those with whom each is not in touch, whichever of the two does not hear the
  // other. All is well as a rule, and nobody in it.
  std::map<int, std::set<int>> apart;
  for (const Seat& seat : view_.seats) {
    for (const int slot : unheard_by(seat, now)) {
      const bool is_other = slot != seat.id.slot && slot != self_.id.slot;
      if (!is_other || !kept.contains(slot)) continue;
      apart[seat.id.slot].insert(slot);
      apart[slot].insert(seat.id.slot);
    }
  }
  while (!apart.empty()) {
    // The one whom most of the kept do not hear goes; of two alike, the higher slot.
    const auto worst =
        std::max_element(apart.begin(), apart.end(), [](const auto& a, const auto& b) {
          return std::pair(a.second.size(), a.first) < std::pair(b.second.size(), b.first);
        });
    cut_off.insert(worst->first);
    for (const int other : worst->second) {
      const auto at = apart.find(other);
      at->second.erase(worst->first);
      if (at->second.empty()) apart.erase(at);
    }
    apart.erase(worst);
  }
  return cut_off;
}

std::set<int> Membership::find_evictable(MonoTime now) {
  const std::set<int> cut_off = find_cut_off(now);
  std::map<int, int> observers;
  if (!cut_off.empty()) observers = count_observers(now);
  const auto living =
      std::count_if(view_.seats.begin(), view_.seats.end(), [this](const Seat& seat) {
        const Peer* one = known(seat.id);
        return one == nullptr || !one->is_dead;
      });
  std::set<int> evictable;
  for (const Seat& seat : view_.seats) {
    if (seat.id == self_.id) continue;
    Peer& one = peer(seat.id, now);
    if (!cut_off.contains(seat.id.slot)) {
      one.evictable_since.reset();
      continue;
    }
    if (!one.evictable_since) one.evictable_since = now;
    const bool is_seen_by_two = observers[seat.id.slot] >= 2 || living == 2;
    if (is_seen_by_two || now - *one.evictable_since >= options_.one_observer) {
      evictable.insert(seat.id.slot);
    }
  }
  return evictable;
}

/// Whether this worker's trainers may still make a step with it: they have not entered the view
/// that it has left with. Its slot is nobody else's by then.
bool Membership::is_awaited(WorkerId id) const {
  const Seat* const own = find_seat(view_, self_.id);
  if (own == nullptr || own->trainers.empty()) return false;  // nothing is known of the step
  const auto left = left_.find(id);
  return left != left_.end() && left->second > entered_epoch_ &&
         find_slot(view_, id.slot) == nullptr;
}

/// Whether the step under way waits for one who has left since it began, and is not heard: it has
/// no seat any more that it could lose. Of a dead one the kernel tells those who wait for it.
bool Membership::is_leaver_lost(MonoTime now) const {
  return std::any_of(left_.begin(), left_.end(), [&](const auto& entry) {
    const WorkerId id = entry.first;
    const Peer* const one = known(id);
    if (!is_awaited(id) || one == nullptr || one->is_dead || !is_silent(*one, now)) return false;
    int observers = 1, living = 0;
    for (const Seat& seat : view_.seats) {
      const Peer* const other = known(seat.id);
      living += other == nullptr || !other->is_dead ? 1 : 0;
      const std::vector<int>& unheard = unheard_by(seat, now);
      observers += std::binary_search(unheard.begin(), unheard.end(), id.slot) ? 1 : 0;
    }
    return observers >= 2 || living == 1 || now - one->heard >= options_.one_observer;
  });
}

}  // namespace muster::sentinel
