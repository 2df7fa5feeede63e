// When a trainer counts as one that hangs.
#include "worker/sentinel/trainer_process.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

using namespace muster;
using namespace muster::sentinel;

namespace {

/// A trainer that was told a view of two, and whose training thread beats when the test says so.
class Watched {
 public:
  Watched() {
    auto monitor = PulseMonitor::make();
    REQUIRE(monitor);
    process_.pulse = *std::move(monitor);
    auto pulse = Pulse::open(dup(process_.pulse->fd()));
    REQUIRE(pulse);
    pulse_ = std::make_unique<Pulse>(*std::move(pulse));
    process_.is_running = true;
    process_.told_epoch = 1;
    process_.set_members(2);
  }
  void beats() {
    pulse_->beat();
    beaten_ = now_;
    CHECK_FALSE(process_.is_hung(now_));
  }
  void is_told_of(int members) { process_.set_members(members); }
  void evaluates(bool is_evaluating) { pulse_->set_evaluating(is_evaluating); }
  void makes(StepRecord step) {
    StepsMessage message;
    message.steps.push_back(step);
    process_.take_steps(message);
    beats();
  }
  /// Whether it is hung after so many seconds without a beat, of which the sentinel sleeps none.
  bool hangs_after(double silent) {
    const MonoTime until =
        beaten_ + std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(silent));
    bool is_hung = false;
    while (now_ < until) {
      now_ = std::min(until, now_ + milliseconds(50));
      is_hung = process_.is_hung(now_);
    }
    return is_hung;
  }
  /// Whether it is hung when the sentinel looks again after it has slept for so long.
  bool hangs_after_sleep(milliseconds slept) {
    now_ += slept;
    return process_.is_hung(now_);
  }

 private:
  TrainerProcess process_;
  std::unique_ptr<Pulse> pulse_;
  MonoTime now_{seconds(3600)}, beaten_{now_};
};

StepRecord step_of(double seconds) {
  StepRecord step;
  step.step_seconds = seconds;
  return step;
}

StepRecord evaluated_for(double seconds) {
  StepRecord step = step_of(0.1);
  step.evaluate_seconds = seconds;
  return step;
}

}  // namespace

TEST_CASE("a trainer may stand still for three of its longest steps, and two seconds at least") {
  Watched trainer;
  trainer.beats();
  CHECK_FALSE(trainer.hangs_after(59));
  CHECK(trainer.hangs_after(61));
  trainer.makes(step_of(0.1));
  CHECK_FALSE(trainer.hangs_after(1.9));
  CHECK(trainer.hangs_after(2.1));
  trainer.makes(step_of(5));
  trainer.makes(step_of(0.1));
  CHECK_FALSE(trainer.hangs_after(14.9));
  CHECK(trainer.hangs_after(15.1));
}

TEST_CASE("before its first step a trainer hangs only where others wait for it") {
  Watched trainer;
  trainer.is_told_of(1);
  trainer.beats();
  CHECK_FALSE(trainer.hangs_after(600));
  trainer.is_told_of(8);  // of however many workers
  CHECK_FALSE(trainer.hangs_after(659));
  CHECK(trainer.hangs_after(661));
}

TEST_CASE("who is left of many has the time to make their shares of a step, too") {
  Watched trainer;
  trainer.is_told_of(16);
  trainer.makes(step_of(0.6));
  trainer.is_told_of(8);
  CHECK_FALSE(trainer.hangs_after(3.5));
  CHECK(trainer.hangs_after(3.7));
  trainer.beats();
  trainer.is_told_of(1);
  CHECK_FALSE(trainer.hangs_after(28.7));
  CHECK(trainer.hangs_after(28.9));
  // Those who join take shares over after this step at the earliest.
  trainer.makes(step_of(6));
  trainer.is_told_of(16);
  CHECK_FALSE(trainer.hangs_after(17.9));
  CHECK(trainer.hangs_after(18.1));
  // However often they come and go.
  trainer.beats();
  trainer.is_told_of(1);
  CHECK_FALSE(trainer.hangs_after(28.7));
  CHECK(trainer.hangs_after(28.9));
}

TEST_CASE("a sentinel that has slept itself does not hold its sleep against the trainers") {
  Watched trainer;
  trainer.makes(step_of(0.1));
  CHECK_FALSE(trainer.hangs_after(1));
  CHECK_FALSE(trainer.hangs_after_sleep(seconds(600)));
  CHECK_FALSE(trainer.hangs_after_sleep(milliseconds(400)));
  CHECK(trainer.hangs_after_sleep(milliseconds(200)));  // it was awake for more than 2 s of them
  // One that is always late to look still notices in the end.
  trainer.makes(step_of(0.1));
  for (int i = 0; i < 4; ++i) CHECK_FALSE(trainer.hangs_after_sleep(seconds(10)));
  CHECK(trainer.hangs_after_sleep(seconds(10)));
}

TEST_CASE("a long evaluation or checkpoint gives no step more time than steps take") {
  Watched trainer;
  StepRecord step = evaluated_for(300);
  step.checkpoint_seconds = 300;
  step.record_seconds = 30;
  trainer.makes(step);
  trainer.makes(step_of(0.1));
  CHECK_FALSE(trainer.hangs_after(1.9));
  CHECK(trainer.hangs_after(2.1));
}

TEST_CASE(
    "while it evaluates a trainer has the time of an evaluation, and half a minute at first") {
  Watched trainer;
  trainer.makes(step_of(0.1));
  trainer.evaluates(true);
  CHECK_FALSE(trainer.hangs_after(29));
  CHECK(trainer.hangs_after(31));
  trainer.makes(evaluated_for(3));
  CHECK_FALSE(trainer.hangs_after(8.9));
  CHECK(trainer.hangs_after(9.1));
  // It beats more often than once an evaluation.
  trainer.makes(evaluated_for(300));
  CHECK(trainer.hangs_after(31));
  trainer.makes(step_of(20));
  CHECK_FALSE(trainer.hangs_after(59));
  trainer.evaluates(false);
  trainer.makes(step_of(0.1));
  CHECK_FALSE(trainer.hangs_after(59));
}
