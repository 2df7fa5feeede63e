// What a leader would have next: the view less the dead, the cut off and those who leave, with the
// trainers that are ready and the newcomers that fit.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "worker/sentinel/membership.h"

namespace muster::sentinel {
namespace {

bool holds(const std::vector<TrainerPlace>& all, const TrainerPlace& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

bool has_departed(const View& view, Fate fate) {
  return std::any_of(view.departed.begin(), view.departed.end(),
                     [fate](const Departure& gone) { return gone.fate == fate; });
}

/// What is there most often; of two as often the first; of none 0.
std::uint64_t most_of(const std::vector<std::uint64_t>& digests) {
  std::map<std::uint64_t, int> counts;
  int most = 0;
  for (const std::uint64_t digest : digests) most = std::max(most, ++counts[digest]);
  for (const std::uint64_t digest : digests) {
    if (counts[digest] == most) return digest;
  }
  return 0;
}

void sort_departed(View& view) {
  std::sort(view.departed.begin(), view.departed.end(),
            [](const Departure& a, const Departure& b) { return a.id < b.id; });
}

}  // namespace

bool Membership::is_leaving(WorkerId id) const {
  if (id == self_.id) return is_leaving_;
  const Peer* one = known(id);
  return one != nullptr && one->has_beat && one->beat.is_leaving;
}

bool Membership::is_done(WorkerId id) const {
  if (id == self_.id) return is_done_;
  const Peer* one = known(id);
  return one != nullptr && one->has_beat && one->beat.is_done;
}

std::vector<TrainerPlace> Membership::ready_of(const Seat& seat) const {
  if (is_done(seat.id)) return seat.trainers;
  if (seat.id == self_.id) return self_.trainers;
  const Peer* one = known(seat.id);
  return one != nullptr && one->has_beat ? one->beat.self.trainers : seat.trainers;
}

std::uint64_t Membership::digest_of(WorkerId id) const {
  if (id == self_.id) return digest_;
  const Peer* one = known(id);
  return one != nullptr && one->has_beat ? one->beat.digest : 0;
}

Membership::Wish Membership::make_wish(MonoTime now) {
  Wish wish;
  View& next = wish.view;
  next.base = view_.epoch;
  next.digest = view_.digest;
  next.stop = view_.stop;
  const std::set<int> evictable = find_evictable(now);
  for (const Seat& seat : view_.seats) {
    next.previous.push_back(seat.id);
    const Peer* one = known(seat.id);
    if (one != nullptr && one->is_dead) {
      next.departed.push_back({seat.id, Fate::kDied});
    } else if (evictable.contains(seat.id.slot)) {
      next.departed.push_back({seat.id, Fate::kSilent});
    } else {
      next.seats.push_back(seat);
    }
  }
  drop_leavers(now, next);
  set_trainers_of(now, next);
  // Newcomers come only with those who counted before: nobody who may be out there, cut off, is
  // left out in the same breath.
  const bool is_quiet = !has_departed(next, Fate::kSilent) && !has_departed(next, Fate::kLeft);
  if (is_quiet && !next.stop) add_newcomers(now, next);
  const bool is_hit = is_anybody_lost(next) || is_broken_long(now) || is_leaver_lost(now);
  if (is_hit || next.stop) put_off_joiners(next);
  finish_wish(now, wish);
  return wish;
}

/// Whether a trainer of the view is gone, and nobody had planned it.
bool Membership::is_anybody_lost(const View& next) const {
  for (const Seat& before : view_.seats) {
    if (is_done(before.id)) continue;
    const Seat* after = find_seat(next, before.id);
    for (const TrainerPlace& one : before.trainers) {
      if (after != nullptr && holds(after->trainers, one)) continue;
      const bool is_planned = is_leaving(before.id) && holds(ready_of(before), one);
      if (!is_planned) return true;
    }
  }
  return false;
}

/// Whether a trainer of the view may have made a step in it: not one that has come with a view that
/// this worker's own trainers, who are in it, have not entered yet. Nobody makes a step in a view
/// without all of its members.
bool Membership::is_in(WorkerId id, const TrainerPlace& one) const {
  const Seat* const own = find_seat(view_, self_.id);
  if (own == nullptr || own->trainers.empty()) return true;  // nothing is known of it
  const auto came = came_.find({id, one});
  return came == came_.end() || came->second <= entered_epoch_;
}

/// Those who train stand still until they are connected again, or are about to stop, and wait for
/// nobody who is not in yet: who joins, or was about to enter, does so with a view after this one,
/// and not at all where all stop. But without slot 0, and whoever has its copy of the model with
/// it, a stop would save nothing.
void Membership::put_off_joiners(View& next) const {
  const auto stays = [this](const Seat& seat, const TrainerPlace& one) {
    const Seat* const before = find_seat(view_, seat.id);
    if (before == nullptr || !holds(before->trainers, one)) return false;
    return view_.stop || is_in(seat.id, one);
  };
  const auto staying = [&](const Seat& seat) {
    return std::count_if(seat.trainers.begin(), seat.trainers.end(),
                         [&](const TrainerPlace& one) { return stays(seat, one); });
  };
  const auto is_any_in = [&](const Seat& seat) { return staying(seat) > 0; };
  if (std::none_of(next.seats.begin(), next.seats.end(), is_any_in)) return;
  std::erase_if(next.seats,
                [this](const Seat& seat) { return find_seat(view_, seat.id) == nullptr; });
  for (Seat& seat : next.seats) {
    // Of a split model each part is needed. Once all stop, those who save wait for nobody.
    const std::ptrdiff_t needed = view_.stop ? 1 : seat.processes;
    if (next.stop && has_files(seat.id) && staying(seat) < needed) continue;
    std::erase_if(seat.trainers, [&](const TrainerPlace& one) { return !stays(seat, one); });
  }
}

/// By copy of the model, which are numbered along the slots: what there is of each.
std::map<int, Membership::CopyState> Membership::copies_of(const View& next) const {
  std::map<int, CopyState> copies;
  for (const Seat& seat : next.seats) {
    const std::vector<TrainerPlace> ready = ready_of(seat);
    const bool goes = is_leaving(seat.id);
    for (int rank = 0; rank < seat.processes; ++rank) {
      const int number = seat.id.slot * seat.processes + rank;
      CopyState& copy = copies[number / options_.copy_processes];
      const auto has_rank = [rank](const TrainerPlace& one) { return one.local_rank == rank; };
      const auto one = std::ranges::find_if(seat.trainers, has_rank);
      const bool is_there = one != seat.trainers.end() && holds(ready, *one);
      copy.staying += goes ? 0 : 1;
      copy.there += is_there ? 1 : 0;
      copy.in += is_there && is_in(seat.id, *one) ? 1 : 0;
    }
  }
  return copies;
}

/// Whether the state stays without those who leave. Only a copy that is whole has it: what others
/// have of one is of no use. Whoever was let in is given it when all enter with it, and not before;
/// where none of those who leave has entered, they take nothing along.
bool Membership::is_held_without_leavers(const View& next) const {
  if (!has_trainers(view_)) return true;
  const int whole = options_.copy_processes;
  bool leaves = false, stays = false, comes = false, may_come = false, is_in_parts = false;
  const std::map<int, CopyState> copies = copies_of(next);
  for (const auto& [number, copy] : copies) {
    const bool is_whole = copy.there == whole, has_state = copy.in == whole;
    const bool is_staying = copy.staying == whole;
    leaves = leaves || (has_state && !is_staying);
    stays = stays || (has_state && is_staying);
    comes = comes || (is_whole && !has_state && is_staying);
    may_come = may_come || is_staying;
    is_in_parts = is_in_parts || (copy.there > 0 && !is_whole);
  }
  if (stays || !leaves) return stays || comes || is_in_parts;
  // The copy with the files is saved when it is left; then nobody waits for what cannot come.
  const CopyState& files = copies.begin()->second;
  return !may_come && copies.begin()->first == 0 && files.in == whole;
}

/// Whether it is slot 0, which has the files, or has a part of the only copy that slot 0 can save.
bool Membership::has_files(WorkerId id) const {
  return id.slot < file_workers(options_, self_.processes);
}

/// Whether nobody might be able to save if all stopped now: others train, and one with the files
/// lacks a trainer, which may be the only one there with its part of the model, but may be starting
/// it.
bool Membership::lacks_files(const View& next) const {
  const auto lacks = [this](const Seat& seat) {
    return has_files(seat.id) && std::ssize(ready_of(seat)) < seat.processes;
  };
  const auto is_other = [this](const Seat& seat) {
    return !has_files(seat.id) && !seat.trainers.empty();
  };
  return std::ranges::any_of(next.seats, lacks) && std::ranges::any_of(next.seats, is_other);
}

/// Whether a stop would save: all trainers of those with the files are in the view, where they have
/// had the time to enter, and they are ready.
bool Membership::can_save(const View& next) const {
  int able = 0;
  for (const Seat& seat : next.seats) {
    if (!has_files(seat.id)) continue;
    const std::vector<TrainerPlace> ready = ready_of(seat);
    const auto is_ready = [&](const TrainerPlace& one) { return holds(ready, one); };
    if (std::ssize(seat.trainers) < seat.processes) return false;
    if (!std::ranges::all_of(seat.trainers, is_ready)) return false;
    ++able;
  }
  return able == file_workers(options_, self_.processes);
}

/// Whether a trainer of this worker may have made a step in the view: what it tells is known.
bool Membership::has_trained() const {
  const Seat* const own = find_seat(view_, self_.id);
  const auto was_in = [this](const TrainerPlace& one) { return is_in(self_.id, one); };
  return own != nullptr && std::ranges::any_of(own->trainers, was_in);
}

/// Whether a loss has ended the step under way, or is about to, and this worker's trainers, which
/// were in it, have not entered the view after it yet. Who left now would do so without the end of
/// a step, at which it saves and hands over.
bool Membership::is_between_steps(const View& next) const {
  if (!has_trained()) return false;
  const auto has_lost = [this](const Seat& seat) {
    const std::vector<TrainerPlace> ready = ready_of(seat);
    return std::ranges::any_of(seat.trainers,
                               [&](const TrainerPlace& one) { return !holds(ready, one); });
  };
  return entered_epoch_ < view_.urgent_epoch || broken_since_ || has_departed(next, Fate::kDied) ||
         std::ranges::any_of(next.seats, has_lost);
}

/// Whether the one with the files might leave without a checkpoint: it saves only before a view
/// that all have agreed to enter, which is this one until it is entered. A joiner may pass it over
/// for a newer one, and then all enter that without a step.
bool Membership::would_leave_unsaved(const View& next) const {
  return has_trained() && entered_epoch_ < view_.epoch &&
         std::ranges::any_of(
             next.seats,
             [this](const Seat& seat) { return is_leaving(seat.id) && has_files(seat.id); });
}

/// Whether somebody who leaves keeps a part of the state of which others lack copies, or has files
/// and nothing yet that all agree it can save, as this worker's trainers see it: it is copied, or
/// compared, while all are in the view. Once one is decided without those who leave, and a loss
/// ends the step before it, they cannot give anything any more, nor compare.
bool Membership::takes_state_along(const View& next) const {
  if (!has_trained()) return false;
  return std::ranges::any_of(next.seats, [this](const Seat& seat) {
    const bool has_any = options_.is_sharded || (options_.compares_files && has_files(seat.id));
    const auto has_part = [&](const TrainerPlace& one) { return is_in(seat.id, one); };
    return has_any && is_leaving(seat.id) && std::ranges::any_of(seat.trainers, has_part) &&
           !std::ranges::binary_search(spared_, seat.id.slot);
  });
}

void Membership::drop_leavers(MonoTime now, View& next) {
  std::size_t leaving = 0, done = 0;
  // Where all are asked, one after the other, those who are left without the files could not save.
  milliseconds gather = options_.gather_leaves;
  for (const Seat& seat : next.seats) {
    if (is_leaving(seat.id)) {
      ++leaving;
      if (has_files(seat.id)) gather = options_.gather_files;
      continue;
    }
    if (is_done(seat.id)) ++done;
  }
  const std::optional<MonoTime> between_since = std::exchange(between_since_, std::nullopt);
  if (leaving == 0) {
    leaves_since_.reset();
    return;
  }
  if (!leaves_since_) leaves_since_ = now;
  if (leaving + done == next.seats.size()) {
    const bool is_late = now - *leaves_since_ >= options_.gather_files;
    next.stop = next.stop || is_late || !lacks_files(next);
    return;
  }
  const bool is_turbulent = has_departed(next, Fate::kSilent);
  if (is_turbulent || now - *leaves_since_ < gather) return;
  if (!is_held_without_leavers(next)) {
    // Without them nobody holds the state: first another must, and if none comes, all stop. Where
    // that would save nothing, they wait for whoever comes, at most until they are killed.
    const bool is_late = now - std::max(*leaves_since_, adopted_) >= options_.holder;
    next.stop = next.stop || (is_late && can_save(next));
    return;
  }
  if (is_between_steps(next)) {
    // However long ago they were asked: from what has ended the step, or from the last view.
    between_since_ = between_since.value_or(now);
    if (now - std::max(*between_since_, adopted_) < options_.holder) return;
  }
  // Who is asked to leave has a grace of its own, and waits neither for ever.
  const auto overdue = now - *leaves_since_ - gather;
  if (overdue < options_.holder && would_leave_unsaved(next)) return;
  if (overdue < options_.relief && takes_state_along(next)) return;
  std::erase_if(next.seats, [&](const Seat& seat) {
    if (!is_leaving(seat.id)) return false;
    next.departed.push_back({seat.id, Fate::kLeft});
    return true;
  });
  sort_departed(next);
}

/// What those are about whose trainers are ready: of most seats, of two as many the lowest's. Their
/// data may be known to some of them alone, and to none at a start; then who trains comes first,
/// for what was made already is made of those.
std::uint64_t Membership::digest_of_most(const View& next) const {
  std::vector<std::uint64_t> outlines, training, ready;
  for (const Seat& seat : next.seats) {
    if (!ready_of(seat).empty()) outlines.push_back(outline_of(digest_of(seat.id)));
  }
  const std::uint64_t outline = next.digest != 0 ? outline_of(next.digest) : most_of(outlines);
  for (const Seat& seat : next.seats) {
    const std::uint64_t digest = digest_of(seat.id);
    if (ready_of(seat).empty() || outline_of(digest) != outline || !has_contents(digest)) continue;
    ready.push_back(digest);
    const Seat* const before = find_seat(view_, seat.id);
    if (before != nullptr && !before->trainers.empty()) training.push_back(digest);
  }
  if (!training.empty()) return most_of(training);
  return ready.empty() ? outline : most_of(ready);
}

void Membership::set_trainers_of(MonoTime now, View& next) {
  const auto take_ready = [&](Seat& seat) {
    seat.trainers = ready_of(seat);
    if (next.digest != 0 && !seat.trainers.empty() && !is_done(seat.id) &&
        !is_same_training(digest_of(seat.id), next.digest)) {
      seat.trainers.clear();
    }
  };
  bool is_held = false;
  if (!has_contents(next.digest)) next.digest = digest_of_most(next);
  for (Seat& seat : next.seats) {
    const std::vector<TrainerPlace> before = seat.trainers;
    take_ready(seat);
    for (const TrainerPlace& one : seat.trainers) is_held = is_held || holds(before, one);
  }
  if (is_held || !should_wait_for_start(now, next)) return;
  for (Seat& seat : next.seats) seat.trainers.clear();
  next.digest = view_.digest;
}

bool Membership::should_wait_for_start(MonoTime now, const View& next) {
  if (!has_trainers(next)) {
    start_since_.reset();
    return true;
  }
  if (!start_since_) start_since_ = now;
  if (now - *start_since_ >= options_.gather_start) return false;
  // Not for those that are ready and do not fit.
  return std::any_of(next.seats.begin(), next.seats.end(), [this](const Seat& seat) {
    return static_cast<int>(ready_of(seat).size()) < seat.processes;
  });
}

bool Membership::fits(MonoTime now, const View& next, WorkerId id, Peer& one) {
  bool is_clean = one.has_beat && !one.is_dead && !is_silent(one, now) &&
                  one.epoch == view_.epoch && one.beat.unheard.empty();
  for (const Seat& seat : view_.seats) {
    const Peer* member = known(seat.id);
    if (member == nullptr || member->is_dead) continue;
    const auto& heard = member->beat.newcomers;
    is_clean = is_clean && is_linked(seat, now) && member->has_beat &&
               std::find(heard.begin(), heard.end(), id) != heard.end();
  }
  if (!is_clean) {
    one.clean_since = now;
    return false;
  }
  if (one.refused != nullptr && now - one.told >= options_.silence) {
    one.told = now;
    send(id, Refusal{one.refused});
  }
  if (one.refused != nullptr || one.beat.is_leaving || one.beat.is_done) return false;
  if (static_cast<int>(one.beat.self.trainers.size()) < one.beat.self.processes) return false;
  if (next.digest != 0 && !is_same_training(one.beat.digest, next.digest)) {
    one.refused = why_misfit(one.beat.digest, next.digest);
    one.told = now;
    send(id, Refusal{one.refused});
    outputs_.emplace_back(RefusedNewcomer{id, one.refused});
    return false;
  }
  const auto cut_off = evictions_.find(id);
  if (cut_off == evictions_.end()) return true;
  return now - one.clean_since >=
         options_.probation * (1 << std::min(cut_off->second.count - 1, 6));
}

void Membership::add_newcomers(MonoTime now, View& next) {
  // Descending, so that the newest attempt of a slot comes first.
  for (auto at = peers_.rbegin(); at != peers_.rend(); ++at) {
    auto& [id, one] = *at;
    if (find_seat(view_, id) != nullptr || !fits(now, next, id, one)) continue;
    if (find_slot(next, id.slot) != nullptr) continue;
    Seat seat = one.beat.self;
    if (!has_trainers(next)) continue;
    next.seats.insert(
        std::lower_bound(next.seats.begin(), next.seats.end(), id.slot,
                         [](const Seat& other, int slot) { return other.id.slot < slot; }),
        std::move(seat));
  }
}

bool Membership::is_broken_long(MonoTime now) {
  bool is_broken = broken_epoch_ == view_.epoch, is_unclear = false;
  for (const Seat& seat : view_.seats) {
    const Peer* one = known(seat.id);
    if (one == nullptr || one->is_dead) continue;
    is_broken = is_broken || (one->has_beat && one->beat.broken_epoch == view_.epoch);
    is_unclear = is_unclear || now - one->heard > 3 * options_.beat || !is_linked(seat, now);
  }
  if (!is_broken || !has_trainers(view_)) {
    broken_since_.reset();
    return false;
  }
  if (!broken_since_) broken_since_ = now;
  // A silence that is under way may explain it: then one change is enough.
  return now - *broken_since_ >= (is_unclear ? options_.one_observer : options_.reform);
}

void Membership::finish_wish(MonoTime now, Wish& wish) {
  View& next = wish.view;
  bool is_join = false, is_drop = false;
  const bool is_lost = is_anybody_lost(next);
  for (const Seat& before : view_.seats) {
    is_drop = is_drop || (find_seat(next, before.id) == nullptr && !is_done(before.id));
  }
  for (const Seat& after : next.seats) {
    const Seat* before = find_seat(view_, after.id);
    for (const TrainerPlace& one : after.trainers) {
      is_join = is_join || before == nullptr || !holds(before->trainers, one);
    }
  }
  if (!is_join) joins_since_.reset();
  if (is_join && !joins_since_) joins_since_ = now;
  const bool is_start = !has_trainers(view_);
  const bool is_join_due = is_join && (is_start || now - *joins_since_ >= options_.gather_joins);
  // That the step under way is left does it.
  const bool is_reform = is_broken_long(now) || is_leaver_lost(now);
  // Nobody with other data is to wait for those who train, and not know why it does.
  const bool is_known_now = !is_start && next.digest != view_.digest;
  const bool has_any = has_trainers(next) || next.stop;
  wish.is_change = next.stop != view_.stop ||
                   (has_any && (is_lost || is_drop || is_join_due || is_reform || is_known_now));
  // -1 stands for the number that the view will get.
  next.urgent_epoch = is_lost || is_reform ? -1 : view_.urgent_epoch;
}

}  // namespace muster::sentinel
