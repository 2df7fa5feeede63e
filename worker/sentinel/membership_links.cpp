// Who hears whom, and who should go because of it. A silent worker is reported by all others, so
// two observers are enough to be quick; a single broken pair may be a passing fault of either side
// and is given more time, and then one of the two goes, not both.
#include <algorithm>

#include "worker/sentinel/membership.h"

namespace muster::sentinel {

bool Membership::is_silent(const Peer& peer, MonoTime now) const {
  return now - peer.heard > options_.silence;
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

bool Membership::complains(const Seat& who, const Seat& about, MonoTime now) const {
  const Peer* one = known(who.id);
  return one != nullptr && one->has_beat && one->epoch == view_.epoch && is_linked(who, now) &&
         std::binary_search(one->beat.unheard.begin(), one->beat.unheard.end(), about.id.slot);
}

bool Membership::hear_each_other(const Seat& a, const Seat& b, MonoTime now) const {
  if (a.id == self_.id) return is_linked(b, now);
  if (b.id == self_.id) return is_linked(a, now);
  return !complains(a, b, now) && !complains(b, a, now);
}

/// Those who do not hear it, each for itself. What it says of them does not count: a worker whose
/// last word is of those who were silent until now is not the one who was silent.
int Membership::count_observers(const Seat& seat, MonoTime now) const {
  const Peer* about = known(seat.id);
  int observers = about != nullptr && (about->is_dead || is_silent(*about, now)) ? 1 : 0;
  for (const Seat& other : view_.seats) {
    if (other.id == seat.id || other.id == self_.id || !is_linked(other, now)) continue;
    if (complains(other, seat, now)) ++observers;
  }
  return observers;
}

std::set<int> Membership::find_cut_off(MonoTime now) const {
  std::set<int> cut_off;
  std::vector<const Seat*> kept;
  for (const Seat& seat : view_.seats) {
    const Peer* one = known(seat.id);
    if (one != nullptr && one->is_dead) continue;
    if (is_linked(seat, now)) {
      kept.push_back(&seat);
    } else {
      cut_off.insert(seat.id.slot);
    }
  }
  while (true) {
    // The one whom most of the kept do not hear goes; of two alike, the higher slot.
    auto worst = kept.end();
    std::ptrdiff_t worst_count = 0;
    for (auto at = kept.begin(); at != kept.end(); ++at) {
      if ((*at)->id == self_.id) continue;
      const auto count = std::count_if(kept.begin(), kept.end(), [&](const Seat* other) {
        return other != *at && !hear_each_other(*other, **at, now);
      });
      if (count > 0 && count >= worst_count) {
        worst = at;
        worst_count = count;
      }
    }
    if (worst == kept.end()) return cut_off;
    cut_off.insert((*worst)->id.slot);
    kept.erase(worst);
  }
}

std::set<int> Membership::find_evictable(MonoTime now) {
  const std::set<int> cut_off = find_cut_off(now);
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
    const bool is_seen_by_two = count_observers(seat, now) >= 2 || living == 2;
    if (is_seen_by_two || now - *one.evictable_since >= options_.one_observer) {
      evictable.insert(seat.id.slot);
    }
  }
  return evictable;
}

}  // namespace muster::sentinel
