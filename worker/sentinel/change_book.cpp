#include "worker/sentinel/change_book.h"

#include <algorithm>

#include "common/contract.h"

namespace muster::sentinel {
namespace {

namespace kind = contract::change;

constexpr std::size_t kMaxKept = 256;
constexpr std::size_t kMaxToldReasonBytes = 256;

/// -1 for what is no time.
std::int64_t whole_ms(double seconds) {
  constexpr double kMost = 1e12;
  const double ms = seconds * 1000;
  return ms >= 0 ? static_cast<std::int64_t>(std::min(ms, kMost)) : -1;
}

int lowest_training_slot(const View& view) {
  for (const Seat& seat : view.seats) {
    if (!seat.trainers.empty()) return seat.id.slot;
  }
  return -1;
}

bool had(const View& view, WorkerId id, const TrainerPlace& one) {
  const Seat* seat = find_seat(view, id);
  return seat != nullptr &&
         std::find(seat->trainers.begin(), seat->trainers.end(), one) != seat->trainers.end();
}

bool is_held_on(const View& before, const View& after) {
  for (const Seat& seat : after.seats) {
    for (const TrainerPlace& one : seat.trainers) {
      if (had(before, seat.id, one)) return true;
    }
  }
  return false;
}

}  // namespace

void ChangeBook::push(std::int64_t epoch, std::string_view called, int slot,
                      std::string_view reason) {
  if (changes_.size() >= kMaxKept) {
    changes_.erase(changes_.begin());
    if (entered_ > 0) --entered_;
    if (settled_ > 0) --settled_;
    ++told_;
  }
  MembershipChange change;
  change.epoch = epoch;
  change.kind = called;
  change.slot = slot;
  change.reason = reason.substr(0, kMaxToldReasonBytes);
  changes_.push_back(std::move(change));
}

bool ChangeBook::is_entering(WorkerId id, const TrainerPlace& one) const {
  return std::find(entering_.begin(), entering_.end(), std::pair(id, one)) != entering_.end();
}

void ChangeBook::forget_join(int slot) {
  const auto first = changes_.begin() + static_cast<std::ptrdiff_t>(entered_);
  const auto is_join = [slot](const MembershipChange& one) {
    return one.slot == slot && (one.kind == kind::kJoined || one.kind == kind::kRespawned);
  };
  changes_.erase(std::remove_if(first, changes_.end(), is_join), changes_.end());
}

void ChangeBook::note_entering(const View& before, const View& after) {
  std::vector<std::pair<WorkerId, TrainerPlace>> entering;
  for (const Seat& seat : after.seats) {
    for (const TrainerPlace& one : seat.trainers) {
      const bool is_new = has_trainers(before) && !had(before, seat.id, one);
      if (is_new || is_entering(seat.id, one)) entering.emplace_back(seat.id, one);
    }
  }
  for (const auto& [id, one] : entering_) {
    const bool is_any_left =
        std::any_of(entering_.begin(), entering_.end(), [&, of = id](const auto& other) {
          return other.first == of && had(after, of, other.second);
        });
    if (find_seat(after, id) != nullptr && !is_any_left) forget_join(id.slot);
  }
  entering_ = std::move(entering);
}

void ChangeBook::add(const View& before, const View& after, WorkerId own) {
  const auto entering = entering_;
  note_entering(before, after);
  newest_epoch_ = after.epoch;
  if (lowest_training_slot(after) != own.slot) return;
  for (const Departure& gone : after.departed) {
    if (gone.fate == Fate::kLeft) push(after.epoch, kind::kLeft, gone.id.slot, "asked to leave");
    if (gone.fate == Fate::kDied) {
      push(after.epoch, kind::kLost, gone.id.slot, "its worker ended");
    }
    if (gone.fate == Fate::kSilent) {
      push(after.epoch, kind::kLost, gone.id.slot, "not heard by the others");
    }
  }
  if (!has_trainers(before)) return;  // the start of training is nobody's joining
  const bool is_held = is_held_on(before, after);
  for (const Seat& seat : after.seats) {
    const Seat* old = find_seat(before, seat.id);
    bool is_any_new = false, is_any_again = false;
    for (const TrainerPlace& one : seat.trainers) {
      if (had(before, seat.id, one)) continue;
      (one.incarnation > 0 && old != nullptr ? is_any_again : is_any_new) = true;
    }
    // Once a worker, however many processes it has: a report has room for few changes.
    const char* const why =
        is_held ? "" : "nobody held the state any more: it comes from the checkpoint";
    if (is_any_new) push(after.epoch, kind::kJoined, seat.id.slot, why);
    if (is_any_again) push(after.epoch, kind::kRespawned, seat.id.slot, why);
    if (old == nullptr) continue;
    const bool is_gone =
        std::any_of(old->trainers.begin(), old->trainers.end(), [&](const TrainerPlace& one) {
          const bool was_entering = std::find(entering.begin(), entering.end(),
                                              std::pair(seat.id, one)) != entering.end();
          return !was_entering && std::none_of(seat.trainers.begin(), seat.trainers.end(),
                                               [&](const TrainerPlace& now) {
                                                 return now.local_rank == one.local_rank;
                                               });
        });
    if (is_gone) push(after.epoch, kind::kLost, seat.id.slot, "its trainer process ended");
  }
}

void ChangeBook::add_refused(const View& view, WorkerId id, const std::string& reason) {
  push(view.epoch, kind::kRefused, id.slot, reason);
  settle_newest();
}

void ChangeBook::add_stranger(const View& view, const std::string& host, WorkerId own) {
  if (lowest_training_slot(view) != own.slot) return;
  push(view.epoch, kind::kStranger, own.slot, host + ": it has another key, or is of another job");
  settle_newest();
}

void ChangeBook::add_slow(const View& view, int slot, std::int64_t step, std::string_view reason) {
  push(view.epoch, kind::kSlow, slot, reason);
  changes_.back().step = std::max<std::int64_t>(step, 0);
  settle_newest();
}

void ChangeBook::add_return(const View& view, const EnteredMessage& entered, WorkerId own) {
  if (lowest_training_slot(view) != own.slot) return;
  push(entered.epoch, kind::kReturned, own.slot, entered.returned);
}

void ChangeBook::add(const EnteredMessage& entered) {
  if (entered.epoch >= newest_epoch_) entering_.clear();
  for (; entered_ < changes_.size() && changes_[entered_].epoch <= entered.epoch; ++entered_) {
    MembershipChange& change = changes_[entered_];
    if (!change.is_of_members()) continue;
    change.step = std::max<std::int64_t>(entered.step, 0);
    change.stall_ms = std::max<std::int64_t>(whole_ms(entered.stall_seconds), 0);
  }
}

void ChangeBook::add(const StepRecord& step) {
  for (; settled_ < entered_ && changes_[settled_].epoch <= step.membership_epoch; ++settled_) {
    MembershipChange& change = changes_[settled_];
    if (change.is_of_members()) change.delay_ms = whole_ms(step.change_delay_seconds);
  }
}

void ChangeBook::settle_newest() {
  if (entered_ + 1 < changes_.size()) return;
  entered_ = changes_.size();
  if (settled_ + 1 == entered_) settled_ = entered_;
}

std::vector<MembershipChange> ChangeBook::to_tell() const {
  const std::size_t first = settled_ > kMaxReportedChanges ? settled_ - kMaxReportedChanges : 0;
  return {changes_.begin() + static_cast<std::ptrdiff_t>(first),
          changes_.begin() + static_cast<std::ptrdiff_t>(settled_)};
}

void ChangeBook::set_told(std::uint64_t number, MonoTime now) {
  const bool is_news = number > told_ && (arrived_.empty() || number > arrived_.back().first);
  if (is_news) arrived_.emplace_back(number, now);
  while (!arrived_.empty() && now - arrived_.front().second >= kTellFor) {
    forget(arrived_.front().first);
    arrived_.pop_front();
  }
}

void ChangeBook::forget(std::uint64_t number) {
  if (number <= told_) return;
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(number - told_, settled_));
  changes_.erase(changes_.begin(), changes_.begin() + static_cast<std::ptrdiff_t>(count));
  entered_ -= count;
  settled_ -= count;
  told_ += count;
}

}  // namespace muster::sentinel
