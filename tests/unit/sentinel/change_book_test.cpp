#include "worker/sentinel/change_book.h"

#include <doctest/doctest.h>

#include "common/contract.h"

namespace muster::sentinel {
namespace {

namespace kind = contract::change;

Seat seat(int slot, std::int64_t incarnation = 0) {
  return {{slot, 0}, "10.0.0." + std::to_string(slot), 7000, 1, {{0, incarnation, 7100}}};
}

View view(std::int64_t epoch, std::vector<Seat> seats, std::vector<Departure> departed = {}) {
  View made;
  made.epoch = epoch;
  made.seats = std::move(seats);
  made.departed = std::move(departed);
  return made;
}

/// With so many trainers.
Seat wide_seat(int slot, int trainers) {
  Seat made = seat(slot);
  made.processes = trainers;
  for (int rank = 1; rank < trainers; ++rank) made.trainers.push_back({rank, 0, 7100 + rank});
  return made;
}

EnteredMessage entered(std::int64_t epoch, std::int64_t step, double stall_seconds) {
  EnteredMessage message;
  message.epoch = epoch;
  message.step = step;
  message.stall_seconds = stall_seconds;
  return message;
}

StepRecord step_in(std::int64_t epoch, double delay_seconds) {
  StepRecord step;
  step.membership_epoch = epoch;
  step.change_delay_seconds = delay_seconds;
  return step;
}

/// So that all is told, and long ago.
void tell_all(ChangeBook& book) {
  book.set_told(book.newest(), MonoTime(seconds(1)));
  book.set_told(book.newest(), MonoTime(seconds(1)) + kTellFor);
}

}  // namespace

TEST_CASE("of one who was put off before it had entered nothing is told until it enters") {
  ChangeBook book;
  const View three = view(1, {seat(0), seat(1), seat(2)});
  book.add({}, three, {0, 0});
  book.add(entered(1, 1, 0));
  const View four = view(2, {seat(0), seat(1), seat(2), seat(3)});
  book.add(three, four, {0, 0});
  Seat waiting = seat(3);
  waiting.trainers.clear();
  const View without = view(3, {seat(0), seat(1), waiting}, {{{2, 0}, Fate::kDied}});
  book.add(four, without, {0, 0});
  book.add(entered(3, 41, 0.01));
  book.add(step_in(3, 0.02));
  const auto lost = book.to_tell();
  REQUIRE(lost.size() == 1);
  CHECK(lost[0].kind == kind::kLost);
  CHECK(lost[0].slot == 2);
  tell_all(book);
  book.add(without, view(4, {seat(0), seat(1), seat(3)}), {0, 0});
  book.add(entered(4, 45, 0.01));
  book.add(step_in(4, 0.02));
  const auto joined = book.to_tell();
  REQUIRE(joined.size() == 1);
  CHECK(joined[0].kind == kind::kJoined);
  CHECK(joined[0].slot == 3);
}

TEST_CASE("of many workers that join with many processes each is told of, once") {
  ChangeBook book;
  std::vector<Seat> seats{wide_seat(0, 8)};
  const View one = view(1, seats);
  for (int slot = 1; slot <= 5; ++slot) seats.push_back(wide_seat(slot, 8));
  const View six = view(2, seats);
  book.add(one, six, {0, 0});
  book.add(entered(2, 41, 0.01));
  book.add(step_in(2, 0.02));
  const auto joined = book.to_tell();
  REQUIRE(joined.size() == 5);
  for (std::size_t i = 0; i < joined.size(); ++i) {
    CHECK(joined[i].kind == kind::kJoined);
    CHECK(joined[i].slot == static_cast<int>(i) + 1);
    CHECK(joined[i].delay_ms == 20);
  }
  tell_all(book);
  // Two of a worker's end and are started again, while a third one's first start has taken longer.
  seats[3].trainers[1].incarnation = seats[3].trainers[2].incarnation = 1;
  View before = six;
  before.seats[3].trainers.erase(before.seats[3].trainers.begin() + 5);
  book.add(before, view(3, seats), {0, 0});
  book.add(entered(3, 50, 0.01));
  book.settle();
  const auto again = book.to_tell();
  REQUIRE(again.size() == 2);
  CHECK(again[0].kind == kind::kJoined);
  CHECK(again[1].kind == kind::kRespawned);
  CHECK(again[0].slot == 3);
  CHECK(again[1].slot == 3);
}

TEST_CASE("a worker joins with the processes that are left when one of them ends before") {
  ChangeBook book;
  const View one = view(1, {seat(0)}), both = view(2, {seat(0), wide_seat(1, 3)});
  View less = view(3, both.seats);
  less.seats[1].trainers.pop_back();
  book.add(one, both, {0, 0});
  book.add(both, less, {0, 0});
  book.add(entered(3, 41, 0.01));
  book.settle();
  const auto told = book.to_tell();
  REQUIRE(told.size() == 1);
  CHECK(told[0].kind == kind::kJoined);
  CHECK(told[0].slot == 1);
}

TEST_CASE("changes wait for the step, stall and delay that they cost, and are told once") {
  ChangeBook book;
  const View three = view(1, {seat(0), seat(1), seat(2)});
  book.add({}, three, {0, 0});
  const View two = view(2, {seat(0), seat(1, 1)}, {{{2, 0}, Fate::kSilent}});
  book.add(three, two, {0, 0});
  CHECK(book.to_tell().empty());
  book.add(entered(2, 41, 0.0125));
  book.add(step_in(1, -1));  // made before, told late
  CHECK(book.to_tell().empty());
  book.add(step_in(2, 0.0405));
  const auto told = book.to_tell();
  REQUIRE(told.size() == 2);
  CHECK(told[0].kind == kind::kLost);
  CHECK(told[0].slot == 2);
  CHECK(told[0].reason == "not heard by the others");
  CHECK(told[1].kind == kind::kRespawned);
  CHECK(told[1].slot == 1);
  for (const MembershipChange& change : told) {
    CHECK(change.epoch == 2);
    CHECK(change.step == 41);
    CHECK(change.stall_ms == 12);
    CHECK(change.delay_ms == 40);
  }
  tell_all(book);
  CHECK(book.to_tell().empty());
}

TEST_CASE("a change is told on for a while after it has arrived, and then no more") {
  ChangeBook book;
  const View view_of_one = view(1, {seat(0)});
  book.add_slow(view_of_one, 0, 5, "compute");
  const MonoTime arrived(seconds(100));
  book.set_told(book.newest(), arrived);
  book.set_told(book.newest(), arrived + kTellFor / 2);
  CHECK(book.to_tell().size() == 1);
  book.add_slow(view_of_one, 0, 9, "network");
  book.set_told(book.newest(), arrived + kTellFor - milliseconds(1));
  CHECK(book.to_tell().size() == 2);
  book.set_told(book.newest(), arrived + kTellFor);
  REQUIRE(book.to_tell().size() == 1);
  CHECK(book.to_tell()[0].step == 9);
  book.set_told(book.newest(), arrived + 2 * kTellFor);
  CHECK(book.to_tell().empty());
}

TEST_CASE("one worker tells for all, the lowest that trains") {
  ChangeBook book;
  const View before = view(1, {seat(0), seat(1), seat(2)});
  const View after = view(2, {seat(1), seat(2)}, {{{0, 0}, Fate::kDied}});
  book.add(before, after, {2, 0});
  EnteredMessage message = entered(2, 12, 0.1);
  message.returned = "from step 17: a bit had flipped";
  book.add_return(after, message, {2, 0});
  book.add(message);
  book.settle();
  CHECK(book.to_tell().empty());
}

TEST_CASE("a return to a checkpoint is told with its reason, without a new membership too") {
  ChangeBook book;
  const View both = view(3, {seat(0), seat(1)});
  EnteredMessage message = entered(3, 11, 0.25);
  message.returned = "from step 17: a bit had flipped";
  book.add_return(both, message, {0, 0});
  book.add(message);
  book.add(step_in(3, -1));
  const auto told = book.to_tell();
  REQUIRE(told.size() == 1);
  CHECK(told[0].kind == kind::kReturned);
  CHECK(told[0].reason == "from step 17: a bit had flipped");
  CHECK(told[0].step == 11);
  CHECK(told[0].stall_ms == 250);
  CHECK(told[0].delay_ms == -1);
}

TEST_CASE("at the end all that training went on after is told, without a delay") {
  ChangeBook book;
  const View both = view(1, {seat(0), seat(1)});
  book.add(both, view(2, {seat(0)}, {{{1, 0}, Fate::kDied}}), {0, 0});
  book.add(entered(2, 41, 0.0125));
  book.add(view(2, {seat(0)}), view(3, {seat(0), seat(1)}), {0, 0});
  book.settle();
  const auto told = book.to_tell();
  REQUIRE(told.size() == 1);
  CHECK(told[0].epoch == 2);
  CHECK(told[0].delay_ms == -1);
}

TEST_CASE("a stranger is told of at once, with its address, by the lowest that trains") {
  const View both = view(4, {seat(0), seat(1)});
  ChangeBook first, second;
  first.add_stranger(both, "10.0.0.7", {0, 0});
  second.add_stranger(both, "10.0.0.7", {1, 0});
  CHECK(second.to_tell().empty());
  const auto told = first.to_tell();
  REQUIRE(told.size() == 1);
  CHECK(told[0].kind == kind::kStranger);
  CHECK(told[0].epoch == 4);
  CHECK(told[0].slot == 0);
  CHECK(told[0].reason == "10.0.0.7: it has another key, or is of another job");
  CHECK(told[0].delay_ms == -1);
}

TEST_CASE("what is no change of members waits for those before it alone") {
  ChangeBook book;
  const View both = view(1, {seat(0), seat(1)});
  book.add_slow(both, 0, 12, "by 40 %: compute");
  CHECK(book.to_tell().size() == 1);
  book.add(both, view(2, {seat(0)}, {{{1, 0}, Fate::kDied}}), {0, 0});
  book.add(entered(2, 41, 0.0125));
  book.add_slow(view(2, {seat(0)}), 0, 41, "by 50 %: compute");
  CHECK(book.to_tell().size() == 1);
  book.add(step_in(2, 0.25));
  const auto told = book.to_tell();
  REQUIRE(told.size() == 3);
  CHECK(told[1].delay_ms == 250);
  CHECK(told[2].delay_ms == -1);
}

TEST_CASE("what is told between a change and going on after it stood nobody still") {
  ChangeBook book;
  const View both = view(1, {seat(0), seat(1)});
  const View one = view(2, {seat(0)}, {{{1, 0}, Fate::kDied}});
  book.add(both, one, {0, 0});
  book.add_slow(one, 0, 40, "by 40 %: compute");
  book.add_refused(one, {3, 0}, "another job");
  book.add_stranger(one, "10.0.0.7", {0, 0});
  book.add(entered(2, 41, 0.0125));
  book.add(step_in(2, 0.25));
  const auto told = book.to_tell();
  REQUIRE(told.size() == 4);
  CHECK(told[0].kind == kind::kLost);
  CHECK(told[0].step == 41);
  CHECK(told[0].stall_ms == 12);
  for (const std::size_t i : {1, 2, 3}) {
    CAPTURE(i);
    CHECK(told[i].step == (i == 1 ? 40 : 0));
    CHECK(told[i].stall_ms == 0);
  }
}

}  // namespace muster::sentinel
