// One membership, whose peers are played by the test.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "tests/unit/sentinel/seat_of.h"
#include "worker/sentinel/membership.h"

namespace muster::test {

using namespace muster::sentinel;

inline constexpr std::uint64_t kDigest = (std::uint64_t{3} << 32) + 7;
inline constexpr std::int64_t kEpoch = 2;

inline View view_of(std::int64_t epoch, const std::vector<int>& slots) {
  View view;
  view.epoch = epoch;
  view.digest = kDigest;
  for (const int slot : slots) view.seats.push_back(seat_of(slot));
  return view;
}

/// Of a job that trains in view kEpoch.
class Table {
 public:
  using Tweak = std::function<void(Beat&)>;

  Table(int self, const std::vector<int>& slots, const MembershipOptions& options = {})
      : self_(make(self, slots, options)) {
    self_.set_trainers(now_, seat_of(self).trainers, kDigest);
    const int other = slots[0] == self ? slots[1] : slots[0];
    say(other, Commit{view_of(kEpoch, slots)}, kEpoch);
    for (const int slot : slots) {
      if (slot != self) beat(slot);
    }
    outputs.clear();
  }

  void say_as(WorkerId from, MessageBody body, std::int64_t told) {
    self_.receive(now_, Message{from, ++sequence_, told, std::move(body)});
    keep();
  }
  void say(int from, MessageBody body, std::int64_t told) {
    say_as({from, 0}, std::move(body), told);
  }
  void say(int from, MessageBody body) { say(from, std::move(body), epoch); }
  void beat(int from, const Tweak& tweak = nullptr) { beat(from, tweak, epoch); }
  void beat(int from, const Tweak& tweak, std::int64_t told) {
    Beat one;
    one.self = seat_of(from);
    one.digest = kDigest;
    if (tweak) tweak(one);
    say(from, one, told);
  }
  /// Time goes by; each of `heard` beats all the while.
  void pass(milliseconds time, const std::map<int, Tweak>& heard) {
    for (milliseconds gone{0}; gone < time; gone += milliseconds(25)) {
      now_ += milliseconds(25);
      for (const auto& [slot, tweak] : heard) beat(slot, tweak);
      tick();
    }
  }
  void sleep(milliseconds time) {
    now_ += time;
    tick();
  }
  /// These of the own trainers are ready.
  void have_trainers(const std::vector<TrainerPlace>& ready) {
    self_.set_trainers(now_, ready, kDigest);
    keep();
  }
  /// The own trainer dies.
  void lose_trainer() { have_trainers({}); }
  /// The own trainer dies and comes back without the state. Returns what is ready now.
  std::vector<TrainerPlace> restart_trainer() {
    Seat seat = seat_of(self_.self().slot);
    ++seat.trainers[0].incarnation;
    self_.set_trainers(now_, seat.trainers, kDigest);
    keep();
    return seat.trainers;
  }
  void note_backlog() { self_.note_backlog(); }
  void refuse(int slot) {
    self_.refused(now_, {slot, 0});
    keep();
  }
  void break_communicator() {
    self_.broken(now_, epoch);
    keep();
  }
  /// The own trainers have just made a step in this view.
  void step(std::int64_t made_in) { self_.stepped(now_, made_in); }
  /// The own trainers have told that they train in this view.
  void enter(std::int64_t entered) { self_.entered(entered); }
  /// And that those of these workers who leave take nothing along.
  void spare(std::int64_t entered, const std::vector<int>& slots) {
    self_.spares(now_, entered, slots);
    keep();
  }
  /// The own worker is asked to leave.
  void leave() {
    self_.leave(now_);
    keep();
  }
  void deny(int slot) {
    self_.unauthorized(now_, {slot, 0});
    keep();
  }
  void answer(const Membership::WitnessAnswer& answer) {
    self_.witness(now_, answer);
    keep();
  }
  /// `from` promises what it was asked for last, having accepted `before`.
  void promise(int from, Ballot accepted = {}, const View& before = {}) {
    const auto prepares = sent<Prepare>(from);
    REQUIRE_FALSE(prepares.empty());
    say(from, Promise{prepares.back().ballot, epoch, accepted, before});
  }
  void accept(int from) {
    const auto accepts = sent<Accept>(from);
    REQUIRE_FALSE(accepts.empty());
    say(from, Accepted{accepts.back().ballot});
  }

  /// Messages of a kind to a slot, oldest first.
  template <typename Body>
  std::vector<Body> sent(int to) const {
    std::vector<Body> all;
    for (const Output& output : outputs) {
      const auto* send = std::get_if<Send>(&output);
      if (send == nullptr || send->to.slot != to) continue;
      if (const auto* body = std::get_if<Body>(&send->message.body)) all.push_back(*body);
    }
    return all;
  }
  template <typename Kind>
  std::vector<Kind> told() const {
    std::vector<Kind> all;
    for (const Output& output : outputs) {
      if (const auto* one = std::get_if<Kind>(&output)) all.push_back(*one);
    }
    return all;
  }
  const Membership& self() const { return self_; }

  std::vector<Output> outputs;
  std::int64_t epoch = kEpoch;  ///< of the view that the others are in

 private:
  static Membership make(int self, const std::vector<int>& slots,
                         const MembershipOptions& options) {
    View first = view_of(1, slots);
    first.digest = 0;
    for (Seat& seat : first.seats) seat.trainers.clear();
    Seat own = seat_of(self);
    own.trainers.clear();
    return {options, own, first, MonoTime{} + seconds(100)};
  }
  void tick() {
    self_.tick(now_);
    keep();
  }
  void keep() {
    for (Output& output : self_.take_outputs()) outputs.push_back(std::move(output));
  }

  MonoTime now_ = MonoTime{} + seconds(100);
  std::uint64_t sequence_ = 0;
  Membership self_;
};

/// One that was told where some members are.
struct Newcomer {
  explicit Newcomer(const std::vector<int>& slots, int slot = 9)
      : self(MembershipOptions{}, seat_of(slot), contacts_of(slots), kEpoch, now) {}

  static std::vector<Contact> contacts_of(const std::vector<int>& slots) {
    std::vector<Contact> contacts;
    for (const int slot : slots) contacts.push_back({{slot, 0}, "127.0.0.1", 1'000 + slot});
    return contacts;
  }
  void hear(WorkerId from, std::int64_t epoch) {
    Beat beat;
    beat.self = seat_of(from.slot);
    self.receive(now, Message{from, 1, epoch, beat});
  }
  /// Time goes by, in which `happens` all the while.
  void pass(milliseconds time, const std::function<void()>& happens) {
    for (milliseconds gone{0}; gone < time; gone += milliseconds(25)) {
      now += milliseconds(25);
      happens();
      self.tick(now);
      for (Output& output : self.take_outputs()) {
        if (!std::holds_alternative<Send>(output)) outputs.push_back(std::move(output));
      }
    }
  }
  template <typename Kind>
  std::ptrdiff_t told() const {
    return std::count_if(outputs.begin(), outputs.end(),
                         [](const Output& output) { return std::holds_alternative<Kind>(output); });
  }

  MonoTime now = MonoTime{} + seconds(100);
  Membership self;
  std::vector<Output> outputs;
};

/// 9 has come with the view after kEpoch, in which the others train.
struct Entering {
  explicit Entering(int self) : table(self, {0, 1, 2}) {
    table.enter(kEpoch);
    View next = view_of(kEpoch + 1, {0, 1, 2, 9});
    next.base = kEpoch;
    next.previous = {{0, 0}, {1, 0}, {2, 0}};
    table.say(self == 0 ? 1 : 0, Commit{next}, next.epoch);
    table.epoch = next.epoch;
    for (const int slot : {0, 1, 2, 9}) {
      if (slot != self) table.beat(slot);
    }
    table.outputs.clear();
  }
  /// What is decided next, the own seat's among them; 2 is not asked any more.
  View decide(const std::map<int, Table::Tweak>& heard) {
    table.outputs.clear();
    table.pass(milliseconds(300), heard);
    for (const auto& [slot, tweak] : heard) table.promise(slot);
    REQUIRE_FALSE(table.sent<Accept>(heard.begin()->first).empty());
    for (const auto& [slot, tweak] : heard) {
      if (table.epoch != table.self().view().epoch) break;  // enough have accepted it
      table.accept(slot);
    }
    const View view = table.self().view();
    table.epoch = view.epoch;
    return view;
  }

  Table table;
};

inline std::vector<TrainerPlace> trainers_of(const View& view, int slot) {
  const Seat* seat = find_slot(view, slot);
  REQUIRE(seat != nullptr);
  return seat->trainers;
}

inline const Table::Tweak kPlain = nullptr;

inline Table::Tweak unheard(std::vector<int> slots) {
  return [slots](Beat& beat) { beat.unheard = slots; };
}

inline Table::Tweak knows_newcomer(int slot) {
  return [slot](Beat& beat) { beat.newcomers = {{slot, 0}}; };
}

inline void leaves(Beat& beat) { beat.is_leaving = true; }

}  // namespace muster::test
