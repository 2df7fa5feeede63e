// One decision: what follows the view. Lamport's Paxos with the quorums that membership.h names.
// Source: Lamport, Paxos Made Simple (2001).
#include <algorithm>

#include "worker/sentinel/membership.h"

namespace muster::sentinel {
namespace {

/// Of a seat in a message, and of messages in the time of one.
constexpr std::size_t kSeatBytes = 128, kViewBytesPerMs = 62'500;

View numbered(View view, std::int64_t epoch) {
  const bool is_urgent =
      view.urgent_epoch < 0 || (view.epoch > 0 && view.urgent_epoch == view.epoch);
  view.epoch = epoch;
  if (is_urgent) view.urgent_epoch = epoch;
  return view;
}

}  // namespace

bool Membership::is_leading(MonoTime now) const {
  if (!is_member_) return false;
  return std::none_of(view_.seats.begin(), view_.seats.end(), [&](const Seat& seat) {
    return seat.id.slot < self_.id.slot && is_abreast(seat, now);
  });
}

/// A view is as long as it has seats, and goes to each of them: of 567, 40 MB. So that nothing is
/// lost of it on the way, and beats come through, it is sent at half of 1 Gbit/s at most.
milliseconds Membership::time_to_tell_all() const {
  const std::size_t seats = view_.seats.size();
  return milliseconds(seats * seats * kSeatBytes / kViewBytesPerMs);
}

bool Membership::may_send_view(MonoTime now) {
  if (now - views_since_ >= options_.beat) {
    views_since_ = now;
    views_sent_ = 0;
  }
  const auto most = static_cast<std::size_t>(options_.beat.count()) * kViewBytesPerMs;
  if (views_sent_ * view_.seats.size() * kSeatBytes >= most) return false;
  ++views_sent_;
  return true;
}

bool Membership::is_about_this(const Message& message) const {
  return is_member_ && message.epoch == view_.epoch && find_seat(view_, message.from) != nullptr;
}

bool Membership::has_better_leader(MonoTime now, int slot) {
  const bool is_better = std::any_of(view_.seats.begin(), view_.seats.end(), [&](const Seat& seat) {
    return seat.id.slot < slot && is_abreast(seat, now);
  });
  if (!is_better) {
    held_off_since_.erase(slot);
    return false;
  }
  // For ever only if the better one does it: it may be cut off from all but us.
  const auto [since, is_new] = held_off_since_.try_emplace(slot, now);
  return now - since->second < options_.one_observer;
}

void Membership::handle(MonoTime now, const Message& message, const Prepare& prepare) {
  if (!is_about_this(message) || prepare.ballot.slot != message.from.slot) return;
  round_max_ = std::max(round_max_, prepare.ballot.round);
  if (prepare.ballot < acceptor_.promised) {
    send(message.from, Nack{acceptor_.promised});
    return;
  }
  if (prepare.ballot > acceptor_.promised && has_better_leader(now, message.from.slot)) return;
  acceptor_.promised = prepare.ballot;
  if (proposal_ && proposal_->ballot < prepare.ballot) proposal_.reset();
  send(message.from,
       Promise{prepare.ballot, epoch_max_, acceptor_.accepted_ballot, acceptor_.accepted});
}

void Membership::handle(MonoTime, const Message& message, const Promise& promise) {
  epoch_max_ = std::max(epoch_max_, promise.epoch_max);
  if (!is_about_this(message) || !proposal_ || proposal_->is_accepting ||
      promise.ballot != proposal_->ballot) {
    return;
  }
  proposal_->promises[message.from.slot] = promise;
}

void Membership::handle(MonoTime now, const Message& message, const Nack& nack) {
  if (!is_about_this(message)) return;
  round_max_ = std::max(round_max_, nack.promised.round);
  if (!proposal_ || nack.promised <= proposal_->ballot) return;
  proposal_.reset();
  // The lower slots first: two who try by turns would never end.
  const Seat* own = find_seat(view_, self_.id);
  not_before_ = now + options_.beat * (1 + (own - view_.seats.data()));
}

void Membership::handle(MonoTime, const Message& message, const Accept& accept) {
  epoch_max_ = std::max(epoch_max_, accept.view.epoch);
  if (!is_about_this(message) || accept.view.base != view_.epoch ||
      accept.view.epoch <= view_.epoch) {
    return;
  }
  round_max_ = std::max(round_max_, accept.ballot.round);
  if (accept.ballot < acceptor_.promised) {
    send(message.from, Nack{acceptor_.promised});
    return;
  }
  acceptor_.promised = acceptor_.accepted_ballot = accept.ballot;
  acceptor_.accepted = accept.view;
  send(message.from, Accepted{accept.ballot});
}

void Membership::handle(MonoTime now, const Message& message, const Accepted& accepted) {
  if (!is_about_this(message) || !proposal_ || !proposal_->is_accepting ||
      accepted.ballot != proposal_->ballot) {
    return;
  }
  proposal_->accepted.insert(message.from.slot);
  try_deciding(now);
}

bool Membership::is_enough(const std::set<int>& slots) const {
  if (slots.size() * 2 > view_.seats.size()) return true;
  return std::all_of(view_.seats.begin(), view_.seats.end(), [&](const Seat& seat) {
    const Peer* one = known(seat.id);
    return slots.contains(seat.id.slot) || (one != nullptr && one->is_dead && one->is_fresh);
  });
}

void Membership::propose(MonoTime now) {
  proposal_ = Proposal();
  proposal_->ballot = {++round_max_, self_.id.slot};
  proposal_->began = now;
  acceptor_.promised = proposal_->ballot;
  proposal_->promises[self_.id.slot] =
      Promise{proposal_->ballot, epoch_max_, acceptor_.accepted_ballot, acceptor_.accepted};
  send_prepares();
}

void Membership::send_prepares() {
  for (const Seat& seat : view_.seats) {
    if (!proposal_->promises.contains(seat.id.slot)) send(seat.id, Prepare{proposal_->ballot});
  }
}

void Membership::send_accepts(MonoTime now) {
  std::size_t& next = proposal_->next_seat;
  for (std::size_t i = 0; i < view_.seats.size(); ++i) {
    const WorkerId id = view_.seats[next % view_.seats.size()].id;
    if (!proposal_->accepted.contains(id.slot)) {
      if (!may_send_view(now)) return;
      send(id, Accept{proposal_->ballot, proposal_->value});
    }
    ++next;
  }
}

void Membership::drive(MonoTime now) {
  if (!is_leading(now)) {
    proposal_.reset();
    leaves_since_.reset();
    between_since_.reset();
    return;
  }
  const Wish wish = make_wish(now);
  if (proposal_ && !proposal_->is_accepting && !wish.is_change && newest_accepted() == nullptr) {
    proposal_.reset();
  }
  // What is accepted by too few is tried anew: somebody of them may have gone meanwhile.
  const milliseconds ballot = options_.ballot + 2 * time_to_tell_all();
  if (proposal_ && proposal_->is_accepting && now - proposal_->began >= ballot) {
    proposal_.reset();
  }
  if (!proposal_ && wish.is_change && now >= not_before_) propose(now);
  if (proposal_ && !proposal_->is_accepting) try_accepting(now, wish.view);
}

const Promise* Membership::newest_accepted() const {
  const Promise* newest = nullptr;
  for (const auto& [slot, promise] : proposal_->promises) {
    if (promise.accepted_ballot.round == 0) continue;
    if (newest == nullptr || promise.accepted_ballot > newest->accepted_ballot) newest = &promise;
  }
  return newest;
}

void Membership::try_accepting(MonoTime now, const View& wish) {
  std::set<int> promised;
  for (const auto& [slot, promise] : proposal_->promises) promised.insert(slot);
  const Promise* earlier = newest_accepted();
  if (is_enough(promised)) {
    proposal_->is_granted = false;
    proposal_->value = earlier != nullptr ? earlier->accepted : numbered(wish, epoch_max_ + 1);
    start_accepting(now);
    return;
  }
  if (!may_ask(now, promised)) return;
  Proposal& own = *proposal_;
  const std::vector<int> voters(promised.begin(), promised.end());
  if (earlier != nullptr) {
    own.value = earlier->accepted;
  } else {
    own.value = numbered(wish, own.has_value ? own.value.epoch : epoch_max_ + 1);
  }
  own.has_value = true;
  if (own.voters != voters || own.asked_epoch <= view_.epoch) {
    own.asked.reset();
    own.asked_epoch = own.value.epoch;
  }
  own.voters = voters;
  if (own.asked && now - *own.asked < options_.ask_again) return;
  own.asked = now;
  outputs_.emplace_back(AskWitness{view_.epoch, own.asked_epoch, voters, slots_of(view_)});
}

bool Membership::may_ask(MonoTime now, const std::set<int>& promised) const {
  const auto tried = now - proposal_->began;
  return std::all_of(view_.seats.begin(), view_.seats.end(), [&](const Seat& seat) {
    if (promised.contains(seat.id.slot) || !is_linked(seat, now)) return tried >= options_.beat;
    // Who is heard answers soon, or once it may know this view.
    return tried >= options_.one_observer && !is_abreast(seat, now);
  });
}

void Membership::start_accepting(MonoTime now) {
  proposal_->is_accepting = true;
  proposal_->began = now;
  epoch_max_ = std::max(epoch_max_, proposal_->value.epoch);
  acceptor_.accepted_ballot = proposal_->ballot;
  acceptor_.accepted = proposal_->value;
  proposal_->accepted.insert(self_.id.slot);
  send_accepts(now);
  try_deciding(now);
}

void Membership::try_deciding(MonoTime now) {
  const Proposal& own = *proposal_;
  const bool is_through =
      own.is_granted
          ? std::all_of(own.promises.begin(), own.promises.end(),
                        [&](const auto& entry) { return own.accepted.contains(entry.first); })
          : is_enough(own.accepted);
  if (!is_through) return;
  const View view = own.value;
  adopt(now, view);
  for (const WorkerId& id : view.previous) {
    if (id == self_.id) continue;
    peer(id, now).told = {};
    tell_view(now, id);
  }
}

void Membership::witness(MonoTime now, const WitnessAnswer& answer) {
  epoch_max_ = std::max(epoch_max_, answer.epoch);
  forgive_own_sleep(now);
  if (!is_member_ || !proposal_ || proposal_->is_accepting || !proposal_->has_value) return;
  Proposal& own = *proposal_;
  if (answer.granted) {
    if (answer.epoch != own.asked_epoch || answer.members != own.voters) return;
    own.is_granted = true;
    start_accepting(now);
  } else if (answer.members == own.voters && answer.epoch > view_.epoch &&
             answer.epoch != own.asked_epoch) {
    // It said yes to the same workers before, to one who did not get it through.
    own.asked_epoch = answer.epoch;
    own.asked.reset();
  } else if (answer.epoch > view_.epoch) {
    // Others went on. They tell us once they hear us; if they never do, we are of no use.
    if (!overtaken_since_) overtaken_since_ = now;
    if (now - *overtaken_since_ >= options_.lost && !is_lost_told_) {
      is_lost_told_ = true;
      outputs_.emplace_back(PeersLost{"the others went on without this worker, as epoch " +
                                      std::to_string(answer.epoch) + ", and are not heard"});
    }
  }
  evaluate(now);
}

}  // namespace muster::sentinel
