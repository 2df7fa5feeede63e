#include "worker/change_delay.h"

#include <doctest/doctest.h>

#include <array>

using muster::ManualClock;
using muster::milliseconds;
using muster::worker::ChangeDelay;

namespace {

/// A process that makes one step after the other.
class Maker {
 public:
  /// The next step, in the membership that it is in.
  std::optional<double> make(milliseconds time, double between_seconds = 0) {
    clock_.advance(time);
    return delay_.add({clock_.mono_now(), ++step, epoch, between_seconds});
  }
  std::int64_t step = 0, epoch = 4;

 private:
  ManualClock clock_;
  ChangeDelay delay_;
};

/// As many usual steps of 10 ms as are needed, and two that took longer for themselves.
void make_usual(Maker& maker) {
  for (const int ms : {250, 10, 10, 90, 10, 10, 70, 10}) {
    CHECK_FALSE(maker.make(milliseconds(ms)));
  }
}

}  // namespace

TEST_CASE("the step in which the membership changed is held against the median of those before") {
  Maker maker;
  make_usual(maker);
  ++maker.epoch;
  const auto delay = maker.make(milliseconds(145));
  REQUIRE(delay);
  CHECK(*delay == doctest::Approx(0.135));
  // The disturbed step is no usual one, and the next is undisturbed.
  CHECK_FALSE(maker.make(milliseconds(10)));
  maker.epoch += 2;  // two changes in one step
  CHECK(*maker.make(milliseconds(30)) == doctest::Approx(0.02));
}

TEST_CASE("a change that costs nothing has no delay, never a negative one") {
  Maker maker;
  make_usual(maker);
  ++maker.epoch;
  CHECK(*maker.make(milliseconds(4)) == 0);
}

TEST_CASE("files and evaluations behind a step are no delay of the change, nor usual time") {
  Maker maker;
  (void)maker.make(milliseconds(10));
  for (int i = 0; i < 5; ++i) (void)maker.make(milliseconds(510), 0.5);
  ++maker.epoch;
  CHECK(*maker.make(milliseconds(2'025), 2.0) == doctest::Approx(0.015));
}

TEST_CASE("steps that the others made without this process count as usual ones") {
  Maker maker;
  make_usual(maker);
  ++maker.epoch;
  maker.step += 2;
  CHECK(*maker.make(milliseconds(50)) == doctest::Approx(0.02));
}

TEST_CASE("without usual steps nothing is known, nor where steps are made once more") {
  Maker joiner;
  for (std::size_t i = 0; i < ChangeDelay::kLeast; ++i) (void)joiner.make(milliseconds(10));
  ++joiner.epoch;
  CHECK_FALSE(joiner.make(milliseconds(100)));
  Maker maker;
  make_usual(maker);
  ++maker.epoch;
  maker.step -= 5;
  CHECK_FALSE(maker.make(milliseconds(100)));
}

TEST_CASE("only the newest steps are usual ones") {
  Maker maker;
  make_usual(maker);
  for (int i = 0; i < 40; ++i) (void)maker.make(milliseconds(100));
  ++maker.epoch;
  CHECK(*maker.make(milliseconds(150)) == doctest::Approx(0.05));
}
