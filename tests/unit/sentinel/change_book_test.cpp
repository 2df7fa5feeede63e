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

EnteredMessage entered(std::int64_t epoch, std::int64_t step, double stall_seconds) {
  EnteredMessage message;
  message.epoch = epoch;
  message.step = step;
  message.stall_seconds = stall_seconds;
  return message;
}

}  // namespace

TEST_CASE("changes wait for the step and the stall that they cost, and are told once") {
  ChangeBook book;
  const View three = view(1, {seat(0), seat(1), seat(2)});
  book.add({}, three, {0, 0});
  const View two = view(2, {seat(0), seat(1, 1)}, {{{2, 0}, Fate::kSilent}});
  book.add(three, two, {0, 0});
  CHECK(book.untold().empty());
  book.add(entered(2, 41, 0.0125));
  const auto told = book.untold();
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
  }
  book.set_told(book.newest());
  CHECK(book.untold().empty());
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
  CHECK(book.untold().empty());
}

TEST_CASE("a return to a checkpoint is told with its reason, without a new membership too") {
  ChangeBook book;
  const View both = view(3, {seat(0), seat(1)});
  EnteredMessage message = entered(3, 11, 0.25);
  message.returned = "from step 17: a bit had flipped";
  book.add_return(both, message, {0, 0});
  book.add(message);
  const auto told = book.untold();
  REQUIRE(told.size() == 1);
  CHECK(told[0].kind == kind::kReturned);
  CHECK(told[0].reason == "from step 17: a bit had flipped");
  CHECK(told[0].step == 11);
  CHECK(told[0].stall_ms == 250);
}

}  // namespace muster::sentinel
