// What is known of the others, what they are told, and what a decided view changes here.
#include "worker/sentinel/membership.h"

#include <algorithm>
#include <iterator>

#include "common/check.h"
#include "common/sha256.h"

namespace muster::sentinel {
namespace {

/// Workers that are known, seats and others; a job has far fewer.
constexpr std::size_t kMaxPeers = 8192;
constexpr milliseconds kTellAgain{20};
/// In the time of one, while it is not known what broke the communicator.
constexpr int kBrokenBeats = 5;
/// Said more rarely than this, "your key is another one" is a stray answer and proves nothing.
constexpr milliseconds kUnauthorizedPause{1'000};

bool is_same_but_paces(const Beat& a, const Beat& b) {
  return a.self == b.self && a.digest == b.digest && a.is_leaving == b.is_leaving &&
         a.is_done == b.is_done && a.broken_epoch == b.broken_epoch && a.unheard == b.unheard &&
         a.dead == b.dead && a.newcomers == b.newcomers;
}

bool holds(const std::vector<WorkerId>& all, WorkerId id) {
  return std::find(all.begin(), all.end(), id) != all.end();
}

}  // namespace

Domain domain_of(std::string_view node, std::string_view rack) {
  if (node.empty()) return kUnknownDomain;
  Domain domain = 0;
  for (const std::string_view name : {rack.empty() ? node : rack, node}) {
    const Sha256Digest digest = sha256(name);
    for (std::size_t i = 0; i < sizeof domain / 2; ++i) domain = domain << 8 | digest[i];
  }
  return domain;
}

std::uint64_t make_digest(std::uint64_t outline, std::optional<std::uint64_t> contents) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 32;
  const std::uint64_t upper = std::max(outline_of(outline), kHalf);
  return contents ? upper | std::max<std::uint64_t>(*contents % kHalf, 1) : upper;
}

bool is_same_training(std::uint64_t a, std::uint64_t b) {
  if (a == 0 || b == 0) return a == b;
  if (has_contents(a) && has_contents(b)) return a == b;
  return outline_of(a) == outline_of(b);
}

const Seat* find_seat(const View& view, WorkerId id) {
  const Seat* seat = find_slot(view, id.slot);
  return seat != nullptr && seat->id == id ? seat : nullptr;
}

const Seat* find_slot(const View& view, int slot) {
  const auto found =
      std::lower_bound(view.seats.begin(), view.seats.end(), slot,
                       [](const Seat& seat, int wanted) { return seat.id.slot < wanted; });
  return found != view.seats.end() && found->id.slot == slot ? &*found : nullptr;
}

bool has_domains(const View& view) {
  return std::any_of(view.seats.begin(), view.seats.end(),
                     [](const Seat& seat) { return seat.domain != kUnknownDomain; });
}

bool has_trainers(const View& view) {
  return std::any_of(view.seats.begin(), view.seats.end(),
                     [](const Seat& seat) { return !seat.trainers.empty(); });
}

std::vector<int> slots_of(const View& view) {
  std::vector<int> slots;
  for (const Seat& seat : view.seats) slots.push_back(seat.id.slot);
  return slots;
}

Membership::Membership(const MembershipOptions& options, Seat self, View first, MonoTime now)
    : options_(options),
      self_(std::move(self)),
      own_domain_(self_.domain),
      view_(std::move(first)) {
  MUSTER_CHECK(find_seat(view_, self_.id) != nullptr);
  is_member_ = true;
  epoch_max_ = view_.epoch;
  last_evaluated_ = next_beat_ = not_before_ = now;
  for (const Seat& seat : view_.seats) {
    if (seat.id != self_.id) peer(seat.id, now).seat = seat;
  }
}

Membership::Membership(const MembershipOptions& options, Seat self, std::vector<Contact> contacts,
                       std::int64_t epoch_seen, MonoTime now)
    : options_(options),
      self_(std::move(self)),
      own_domain_(std::exchange(self_.domain, kUnknownDomain)),
      epoch_max_(epoch_seen) {
  last_evaluated_ = next_beat_ = not_before_ = newcomer_since_ = now;
  for (Contact& contact : contacts) {
    if (contact.id == self_.id || peers_.size() >= kMaxPeers) continue;
    peer(contact.id, now).seat = {contact.id, std::move(contact.host), contact.sentinel_port};
  }
}

Membership::Peer& Membership::peer(WorkerId id, MonoTime now) {
  const auto [at, is_new] = peers_.try_emplace(id);
  if (is_new) {
    at->second.seat.id = id;
    at->second.heard = at->second.heard_really = at->second.clean_since = now;
  }
  return at->second;
}

const Membership::Peer* Membership::known(WorkerId id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

void Membership::tick(MonoTime now) { evaluate(now); }

void Membership::receive(MonoTime now, std::span<const Message> messages) {
  forgive_own_sleep(now);
  for (const Message& message : messages) take(now, message);
  is_backlog_ = false;
  if (is_news_ || is_beat_due_ || now >= next_beat_) evaluate(now);
}

void Membership::take(MonoTime now, const Message& message) {
  if (message.from == self_.id) return;
  epoch_max_ = std::max(epoch_max_, message.epoch);
  if (peers_.size() >= kMaxPeers && known(message.from) == nullptr) return;
  Peer& from = peer(message.from, now);
  if (from.is_dead) {
    // Of a seat it is a late message: a certain death stays one for as long as it matters.
    if (find_seat(view_, message.from) != nullptr) return;
    from.is_dead = false;
    is_news_ = true;
  }
  // Most of what is said are beats that say what the ones before said.
  const bool is_beat = std::holds_alternative<Beat>(message.body);
  is_news_ = is_news_ || !is_beat || !from.is_heard_once || is_silent(from, now) ||
             from.epoch < message.epoch;
  // Who was silent was away, and not late.
  if (from.is_heard_once && !is_silent(from, now)) {
    from.lateness.note(now, std::chrono::ceil<milliseconds>(now - from.heard));
  }
  from.heard = now;
  // A datagram of before a sleep proves nothing of a peer that died meanwhile: it may have decided
  // with others in between, and what would tell of that was dropped for want of room.
  if (!is_backlog_ && now > woke_) from.heard_really = now;
  from.is_heard_once = true;
  from.epoch = std::max(from.epoch, message.epoch);
  std::visit([&](const auto& body) { handle(now, message, body); }, message.body);
  if (message.epoch < view_.epoch) tell_view(now, message.from);
}

void Membership::handle(MonoTime now, const Message& message, const Beat& beat) {
  Peer& from = peer(message.from, now);
  if (beat.self.id != message.from) return;
  if (from.has_beat && message.sequence <= from.beat_sequence) return;
  is_news_ = is_news_ || !from.has_beat || !is_same_but_paces(from.beat, beat);
  from.has_beat = true;
  from.beat = beat;
  from.beat_sequence = message.sequence;
  from.seat = beat.self;
  if (message.epoch != view_.epoch || !is_member_ || find_seat(view_, message.from) == nullptr) {
    return;
  }
  for (const WorkerId& id : beat.dead) {
    if (id != self_.id && find_seat(view_, id) != nullptr) mark_dead(now, id);
  }
}

void Membership::handle(MonoTime now, const Message& message, const Bye&) {
  mark_dead(now, message.from);
}

void Membership::handle(MonoTime, const Message&, const Refusal& refusal) {
  if (is_member_ || is_out_ || is_lost_told_) return;
  is_lost_told_ = true;
  outputs_.emplace_back(Refused{refusal.reason});
}

void Membership::handle(MonoTime now, const Message&, const Commit& commit) {
  adopt(now, commit.view);
}

void Membership::refused(MonoTime now, WorkerId id) {
  if (known(id) == nullptr) return;
  forgive_own_sleep(now);
  mark_dead(now, id);
  evaluate(now);
}

void Membership::unauthorized(MonoTime now, WorkerId id) {
  if (is_member_ || is_out_ || known(id) == nullptr) return;
  if (!unauthorized_ || now - unauthorized_->newest > kUnauthorizedPause) {
    unauthorized_ = Unauthorized{now, now};
  }
  unauthorized_->newest = now;
}

void Membership::mark_dead(MonoTime now, WorkerId id) {
  Peer& one = peer(id, now);
  if (one.is_dead) return;
  one.is_dead = true;
  const bool complained =
      one.has_beat && one.epoch == view_.epoch &&
      std::binary_search(one.beat.unheard.begin(), one.beat.unheard.end(), self_.id.slot);
  one.is_fresh =
      now - one.heard_really <= options_.silence && one.epoch <= view_.epoch && !complained;
  is_beat_due_ = true;
}

void Membership::set_trainers(MonoTime now, std::vector<TrainerPlace> ready, std::uint64_t digest) {
  std::sort(ready.begin(), ready.end());
  self_.trainers = std::move(ready);
  digest_ = digest;
  is_beat_due_ = true;
  evaluate(now);
}

void Membership::entered(std::int64_t epoch) {
  if (epoch <= entered_epoch_) return;
  entered_epoch_ = epoch;
  spared_.clear();
}

void Membership::spares(MonoTime now, std::int64_t epoch, std::vector<int> slots) {
  if (epoch != entered_epoch_) return;
  std::sort(slots.begin(), slots.end());
  spared_ = std::move(slots);
  evaluate(now);
}

void Membership::stepped(MonoTime began, std::int64_t epoch) {
  if (epoch == view_.epoch) stepped_ = std::max(stepped_, began);
}

void Membership::broken(MonoTime now, std::int64_t epoch) {
  if (epoch <= broken_epoch_) return;
  broken_epoch_ = epoch;
  is_beat_due_ = true;
  evaluate(now);
}

void Membership::leave(MonoTime now) {
  if (is_leaving_) return;
  is_leaving_ = is_beat_due_ = true;
  evaluate(now);
}

void Membership::done(MonoTime now) {
  if (is_done_) return;
  is_done_ = is_beat_due_ = true;
  evaluate(now);
}

void Membership::goodbye(MonoTime) {
  for (const auto& [id, one] : peers_) {
    if (!one.is_dead && (find_seat(view_, id) != nullptr || one.has_beat)) send(id, Bye{});
  }
}

std::vector<Output> Membership::take_outputs() { return std::exchange(outputs_, {}); }

void Membership::send(WorkerId to, MessageBody body) {
  const Peer* one = known(to);
  if (one == nullptr) return;
  outputs_.emplace_back(Send{to, one->seat.host, one->seat.sentinel_port,
                             Message{self_.id, ++sequence_, view_.epoch, std::move(body)}});
}

Beat Membership::make_beat(MonoTime now) const {
  Beat beat;
  beat.self = self_;
  beat.digest = digest_;
  beat.is_leaving = is_leaving_;
  beat.is_done = is_done_;
  beat.broken_epoch = broken_epoch_;
  beat.paces = paces_;
  for (const auto& [id, one] : peers_) {
    if (find_seat(view_, id) != nullptr) {
      if (one.is_dead) beat.dead.push_back(id);
      if (!one.is_dead && is_silent(one, now)) beat.unheard.push_back(id.slot);
    } else if (is_awaited(id) && !one.is_dead && is_silent(one, now)) {
      beat.unheard.push_back(id.slot);
    } else if (!one.is_dead && one.has_beat && !is_silent(one, now)) {
      beat.newcomers.push_back(id);
    }
  }
  return beat;
}

std::vector<Pace> Membership::paces() const {
  std::vector<Pace> all;
  const auto add = [&](const std::vector<Pace>& paces) {
    std::copy_if(paces.begin(), paces.end(), std::back_inserter(all),
                 [this](const Pace& pace) { return pace.epoch == view_.epoch; });
  };
  add(paces_);
  for (const Seat& seat : view_.seats) {
    const Peer* one = known(seat.id);
    if (one != nullptr && seat.id != self_.id) add(one->beat.paces);
  }
  return all;
}

void Membership::send_beats() {
  const MonoTime now = last_evaluated_;
  is_beat_due_ = false;
  // A break is a death as a rule, and a kernel refuses only once all threads of the process are
  // gone.
  const bool is_broken = is_member_ && broken_epoch_ == view_.epoch;
  next_beat_ = now + (is_broken ? options_.beat / kBrokenBeats : options_.beat);
  const Beat beat = make_beat(now);
  for (const auto& [id, one] : peers_) {
    if (one.is_dead) continue;
    const bool is_contact = !is_member_ && !is_out_;
    const bool is_newcomer = one.has_beat && now - one.heard <= seconds(5);
    if (is_contact || is_newcomer || find_seat(view_, id) != nullptr) send(id, beat);
  }
}

bool Membership::may_be_told(WorkerId id) const {
  if (find_seat(view_, id) == nullptr || holds(view_.previous, id)) return true;
  // Who has left, and skipped views, had no seat in the one before this: those who had decide
  // without it, and it cannot tell whom of them the others hear.
  if (is_out_) return false;
  // A newcomer learns that it counts only when all who counted before know it: else those who do
  // could die, and the others decide without it. One who is silent to us for long cannot think any
  // more that we lived with it in the old view until we died.
  const bool is_old = last_evaluated_ - adopted_ > 2 * options_.silence;
  return std::all_of(view_.previous.begin(), view_.previous.end(), [&](const WorkerId& before) {
    const Peer* one = known(before);
    return before == self_.id || one == nullptr || one->is_dead || one->epoch >= view_.epoch ||
           (is_old && is_silent(*one, last_evaluated_));
  });
}

void Membership::tell_view(MonoTime now, WorkerId id) {
  if (!may_be_told(id)) return;
  Peer& one = peer(id, now);
  if (one.told != MonoTime{} && now - one.told < std::max(kTellAgain, time_to_tell_all())) return;
  if (!may_send_view(now)) return;
  one.told = now;
  send(id, Commit{view_});
}

void Membership::adopt(MonoTime now, const View& view) {
  if (view.epoch <= view_.epoch) return;
  if (is_out_) return follow(view);
  const bool was_member = is_member_;
  const View before = std::exchange(view_, view);
  stepped_ = {};
  note_arrivals(before);
  if (!was_member && has_domains(view_)) self_.domain = own_domain_;
  epoch_max_ = std::max(epoch_max_, view.epoch);
  acceptor_ = {};
  proposal_.reset();
  round_max_ = 0;
  held_off_since_.clear();
  not_before_ = adopted_ = now;
  joins_since_ = start_since_ = broken_since_ = overtaken_since_ = std::nullopt;
  // While others come one after the other, those who are asked to leave have not for ever.
  const auto has_left = [](const Departure& gone) { return gone.fate == Fate::kLeft; };
  if (std::ranges::any_of(view_.departed, has_left)) leaves_since_.reset();
  count_evictions(now);
  // Workers are replaced as long as a job lasts: of those who are gone nothing is kept.
  std::erase_if(peers_, [this, now](const auto& entry) {
    const auto& [id, one] = entry;
    return find_seat(view_, id) == nullptr && (one.is_dead || now - one.heard > options_.lost);
  });
  note_leavers(before);
  for (const Seat& seat : view_.seats) {
    if (seat.id == self_.id) continue;
    Peer& one = peer(seat.id, now);
    if (!one.has_beat) one.seat = seat;
  }
  // Of many members whoever decided tells all; if each told all who do not know it yet, they would
  // drown in it.
  const bool is_large = time_to_tell_all() > kTellAgain;
  for (auto& [id, one] : peers_) {
    one.told = is_large ? now : MonoTime{};
    one.evictable_since.reset();
  }
  is_beat_due_ = true;
  is_member_ = find_seat(view_, self_.id) != nullptr;
  if (is_member_) {
    outputs_.emplace_back(Decided{view_});
  } else if (was_member) {
    is_out_ = is_leaving_ && may_have_left(before);
    if (is_out_) outputs_.emplace_back(Decided{view_});
    if (!is_out_) become_newcomer(now);
  }
}

/// Where views were skipped, none tells how this worker has come out, but its trainers are out one
/// way or the other: the others await them in the step under way, unless something urgent has ended
/// that, which they are told, too.
bool Membership::may_have_left(const View& before) const {
  return view_.base != before.epoch ||
         std::any_of(view_.departed.begin(), view_.departed.end(), [this](const Departure& gone) {
           return gone.id == self_.id && gone.fate == Fate::kLeft;
         });
}

/// The trainers of one who has left make the step under way with the others, and all leave it once
/// they are prepared for the same view, which is the newest. To the others it speaks of the view
/// that it has left with, as before: what came after that one was decided without it.
void Membership::follow(const View& view) {
  if (view.epoch <= followed_epoch_) return;
  followed_epoch_ = view.epoch;
  outputs_.emplace_back(Decided{view});
}

void Membership::note_arrivals(const View& before) {
  std::map<std::pair<WorkerId, TrainerPlace>, std::int64_t> came;
  for (const Seat& seat : view_.seats) {
    const Seat* const old = find_seat(before, seat.id);
    // Who skips views knows of workers alone who is new.
    const bool is_seen = before.epoch == view_.base || !holds(view_.previous, seat.id);
    for (const TrainerPlace& one : seat.trainers) {
      const auto known = came_.find({seat.id, one});
      if (known != came_.end()) {
        came.insert(*known);
      } else if (is_seen && (old == nullptr || std::find(old->trainers.begin(), old->trainers.end(),
                                                         one) == old->trainers.end())) {
        came[{seat.id, one}] = view_.epoch;
      }
    }
  }
  came_ = std::move(came);
}

/// Whoever leaves takes part in the step that is under way, unless a loss has ended that one.
void Membership::note_leavers(const View& before) {
  for (const Seat& seat : before.seats) {
    const bool is_gone = find_seat(view_, seat.id) == nullptr;
    if (is_gone && !seat.trainers.empty() && is_leaving(seat.id) && !is_done(seat.id)) {
      left_[seat.id] = view_.epoch;
    }
  }
  std::erase_if(left_, [this](const auto& entry) {
    const auto& [id, epoch] = entry;
    return epoch <= std::max(view_.urgent_epoch, entered_epoch_) || known(id) == nullptr;
  });
}

void Membership::count_evictions(MonoTime now) {
  for (const Departure& gone : view_.departed) {
    if (gone.fate != Fate::kSilent) continue;
    Eviction& past = evictions_[gone.id];
    if (past.in_since && now - *past.in_since >= options_.forgiveness) past.count = 0;
    ++past.count;
    past.in_since.reset();
  }
  for (auto& [id, past] : evictions_) {
    if (!past.in_since && find_seat(view_, id) != nullptr) past.in_since = now;
  }
  std::erase_if(evictions_, [this](const auto& entry) {
    const Seat* const seat = find_slot(view_, entry.first.slot);
    return seat != nullptr && seat->id.attempt > entry.first.attempt;
  });
}

void Membership::become_newcomer(MonoTime now) {
  is_member_ = false;
  proposal_.reset();
  self_.trainers.clear();
  broken_epoch_ = 0;
  newcomer_since_ = now;
  is_lost_told_ = false;
  outputs_.emplace_back(Fenced{});
}

void Membership::forgive_own_sleep(MonoTime now) {
  const auto slept = now - last_evaluated_;
  last_evaluated_ = now;
  if (slept <= options_.silence / 2) return;
  is_backlog_ = true;
  woke_ = now;
  // What was not heard meanwhile says nothing about the others.
  for (auto& [id, one] : peers_) one.heard = std::min(now, one.heard + slept);
}

void Membership::evaluate(MonoTime now) {
  forgive_own_sleep(now);
  is_news_ = false;
  if (is_member_) {
    if (!is_lost_told_ && is_left_behind()) {
      is_lost_told_ = true;
      outputs_.emplace_back(LeftBehind{});
    }
    give_up_misfit(now);
    drive(now);
  } else if (!is_out_) {
    evaluate_newcomer(now);
  }
  if (!is_beat_due_ && now < next_beat_) return;
  // Not with each message: of many workers, each of whom has news of one that is silent, it would
  // be most of the work.
  if (is_member_) describe_waiting(now);
  send_beats();
  if (!proposal_) return;
  proposal_->is_accepting ? send_accepts(now) : send_prepares();
}

/// Nobody is left to give it the state: all who may have made a step are done. Not slot 0, which
/// has the files and does alone what may be left.
bool Membership::is_left_behind() const {
  if (self_.id.slot == 0 || is_done_) return false;
  bool is_any_done = false;
  for (const Seat& seat : view_.seats) {
    if (is_done(seat.id)) {
      is_any_done = true;
      continue;
    }
    for (const TrainerPlace& one : seat.trainers) {
      if (is_in(seat.id, one)) return false;
    }
  }
  return is_any_done;
}

/// Whether this worker's trainers are about something else than those of the view, which was agreed
/// without them: nothing here will make them fit.
bool Membership::is_misfit() const {
  return view_.digest != 0 && !self_.trainers.empty() && !is_done_ &&
         !is_same_training(digest_, view_.digest);
}

const char* Membership::why_misfit(std::uint64_t digest, std::uint64_t right) {
  return outline_of(digest) == outline_of(right) ? kOtherPictures : kOtherJob;
}

void Membership::give_up_misfit(MonoTime now) {
  if (!is_misfit()) {
    misfit_since_.reset();
    return;
  }
  if (!misfit_since_) {
    misfit_since_ = now;
    outputs_.emplace_back(RefusedNewcomer{self_.id, why_misfit(digest_, view_.digest)});
  }
  if (is_lost_told_ || now - *misfit_since_ < options_.misfit) return;
  is_lost_told_ = true;
  outputs_.emplace_back(Refused{why_misfit(digest_, view_.digest)});
}

void Membership::evaluate_newcomer(MonoTime now) {
  waiting_ = "waiting to be let in by the workers that train";
  if (is_lost_told_) return;
  if (has_other_key(now)) {
    is_lost_told_ = true;
    outputs_.emplace_back(OtherKey{});
    return;
  }
  bool is_any_left = false, is_any_heard = view_.epoch > 0;
  for (const auto& [id, one] : peers_) {
    is_any_heard = is_any_heard || one.is_heard_once;
    if (one.is_dead) continue;
    const bool is_seat =
        view_.epoch > 0 ? find_seat(view_, id) != nullptr : !one.has_beat || one.epoch > 0;
    const MonoTime since =
        std::max(one.is_heard_once ? one.heard : newcomer_since_, newcomer_since_);
    if (is_seat && now - since < options_.lost) is_any_left = true;
  }
  if (is_any_left) return;
  is_lost_told_ = true;
  // Older builds do not tell whose key is another one.
  outputs_.emplace_back(PeersLost{
      is_any_heard ? "none of the workers that trained is left to join"
                   : "none of the workers that train has answered: they are gone, cannot be "
                     "reached, or have another key"});
}

bool Membership::has_other_key(MonoTime now) const {
  if (!unauthorized_ || now - unauthorized_->newest > kUnauthorizedPause) return false;
  // One address may be another job's by now: whoever trains and was heard speaks for this job.
  const bool is_heard =
      view_.epoch > 0 || std::any_of(peers_.begin(), peers_.end(), [](const auto& entry) {
        return entry.second.is_heard_once && entry.second.epoch > 0;
      });
  return !is_heard && now - unauthorized_->first >= options_.other_key;
}

void Membership::describe_waiting(MonoTime now) {
  std::size_t present = 1;
  std::string silent;
  for (const Seat& seat : view_.seats) {
    if (seat.id == self_.id) continue;
    const Peer* one = known(seat.id);
    if (one != nullptr && !one->is_dead && !is_silent(*one, now)) ++present;
    const bool is_explained = one != nullptr && one->is_dead && one->is_fresh;
    if (one != nullptr && !is_explained && (one->is_dead || is_silent(*one, now))) {
      silent += (silent.empty() ? "" : ", ") + std::to_string(seat.id.slot);
    }
  }
  if (silent.empty() || present * 2 > view_.seats.size()) {
    waiting_.clear();
    if (!is_misfit()) return;
    waiting_ =
        std::string("not let in by the workers that train: ") + why_misfit(digest_, view_.digest);
  } else {
    waiting_ = "waiting for the operator's word: " + std::to_string(present) + " of " +
               std::to_string(view_.seats.size()) + " workers hear each other, silent are slots " +
               silent.substr(0, 200);
  }
}

}  // namespace muster::sentinel
