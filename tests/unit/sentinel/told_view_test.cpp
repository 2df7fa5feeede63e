#include "worker/sentinel/told_view.h"

#include <doctest/doctest.h>

using namespace muster::sentinel;

namespace {

View three_workers() {
  View view;
  view.epoch = 7;
  view.urgent_epoch = 6;
  for (int slot = 0; slot < 3; ++slot) {
    view.seats.push_back({{slot, 0}, "10.0.0.1", 7'000, 1, {{0, 4, 7'100 + slot}}});
  }
  return view;
}

}  // namespace

TEST_CASE("a trainer is told who trains with it, and whether it leaves its step for that") {
  const View view = three_workers();
  const auto told = message_of(view, {{1, 0}, 0, 4, 5});
  REQUIRE(told);
  CHECK(told->epoch == 7);
  CHECK(told->rank == 1);
  CHECK(told->peers.size() == 3);
  CHECK(told->urgent);  // it has not heard of the view in which somebody was lost
  CHECK_FALSE(message_of(view, {{1, 0}, 0, 4, 6})->urgent);
  CHECK_FALSE(message_of(view, {{1, 0}, 0, 4, 0})->urgent);  // it leaves nothing
}

TEST_CASE(
    "one that is out is told so, but neither one that was never in nor one that was put off") {
  View view = three_workers();
  view.seats[1].trainers.clear();
  CHECK_FALSE(message_of(view, {{1, 0}, 0, 4, 6}));  // its worker stays
  view.stop = true;
  REQUIRE(message_of(view, {{1, 0}, 0, 4, 6}));  // there will be no later view
  CHECK(message_of(view, {{1, 0}, 0, 4, 6})->rank == -1);
  view.stop = false;
  view.seats.erase(view.seats.begin() + 1);
  REQUIRE(message_of(view, {{1, 0}, 0, 4, 6}));
  CHECK(message_of(view, {{1, 0}, 0, 4, 6})->rank == -1);
  CHECK_FALSE(message_of(view, {{1, 0}, 0, 4, 0}));
  // Again, of each view that follows while it makes its last step: all leave that for the same one.
  view.epoch = 8;
  const auto again = message_of(view, {{1, 0}, 0, 4, 7});
  REQUIRE(again);
  CHECK(again->epoch == 8);
  CHECK(again->rank == -1);
  CHECK_FALSE(again->urgent);
  view.urgent_epoch = 8;
  CHECK(message_of(view, {{1, 0}, 0, 4, 7})->urgent);
}
