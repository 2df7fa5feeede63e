#include "worker/sentinel/trainer_process.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace muster::sentinel {
namespace {

constexpr int kNotYetPauseMs = 50;
constexpr milliseconds kDeathWait{200};
constexpr std::size_t kStepsKept = 256;
constexpr double kHangSeconds = 2;
constexpr double kHangSteps = 3;
/// Where no step tells how long one takes: twice what the others wait for it in a step.
constexpr double kFirstStepSeconds = 60;
/// Most that is allowed between two beats of an evaluation, whose passes may have far more rows
/// than a step's; also where none tells yet how long one takes.
constexpr double kEvaluationSeconds = 30;
constexpr std::size_t kEvaluationsKept = 16;
/// What a look counts for at most: the sentinel itself may have slept since the one before, its
/// trainers with it, as in a frozen control group.
constexpr milliseconds kLookMost{500};
constexpr milliseconds kFirstRespawn{100};

/// The longest of some durations; nothing where there are none.
std::optional<double> longest_of(const std::deque<double>& durations) {
  const auto longest = std::max_element(durations.begin(), durations.end());
  return longest == durations.end() ? std::nullopt : std::optional(*longest);
}

template <typename Duration>
void keep_newest(std::deque<Duration>& durations, Duration newest, std::size_t most) {
  durations.push_back(newest);
  if (durations.size() > most) durations.pop_front();
}

}  // namespace

DeathWatch::DeathWatch(PulseMonitor& pulse, int event_fd)
    : pulse_(pulse), event_fd_(event_fd), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!stop_) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    // No thread is left: that the trainer is dead is seen once it has ended, which may take longer.
  }
}

DeathWatch::~DeathWatch() {
  if (!thread_.joinable()) return;
  (void)eventfd_write(stop_.get(), 1);
  thread_.join();
}

void DeathWatch::run() {
  pollfd stop{stop_.get(), POLLIN, 0};
  while (true) {
    const PulseMonitor::Life life = pulse_.wait(kDeathWait);
    if (life == PulseMonitor::Life::kDead) break;
    const bool is_early = life == PulseMonitor::Life::kNotYet;
    if (poll(&stop, 1, is_early ? kNotYetPauseMs : 0) > 0) return;
  }
  (void)eventfd_write(event_fd_, 1);
}

void TrainerProcess::set_members(int told) { members = std::max(1, told); }

void TrainerProcess::take_steps(const StepsMessage& message) {
  has_stepped = has_stepped || !message.steps.empty();
  for (const StepRecord& step : message.steps) {
    keep_newest(steps, {step.step_seconds, members}, kStepsKept);
    if (step.evaluate_seconds > 0) {
      keep_newest(evaluate_seconds, step.evaluate_seconds, kEvaluationsKept);
    }
  }
}

/// Whoever is left makes the shares of those who are gone, too: of the only one that is left a step
/// takes as many times longer as there were others, and nobody else has the state any more.
double TrainerProcess::longest_step() const {
  double longest = 0;
  for (const StepTime& step : steps) {
    const double fewer = static_cast<double>(step.members) / members;
    longest = std::max(longest, step.seconds * std::max(1.0, fewer));
  }
  return longest;
}

/// What comes behind a step counts for no step: work on files beats by itself, and an evaluation
/// before each pass.
double TrainerProcess::seconds_allowed() const {
  if (steps.empty()) return kFirstStepSeconds;
  const double allowed = std::max(kHangSeconds, kHangSteps * longest_step());
  if (!pulse->is_evaluating()) return allowed;
  const double evaluation = kHangSteps * longest_of(evaluate_seconds).value_or(kEvaluationSeconds);
  return std::max(allowed, std::min(kEvaluationSeconds, evaluation));
}

bool TrainerProcess::is_hung(MonoTime now) {
  if (!is_running || !pulse) return false;
  const auto slept = now - std::exchange(looked_at, now) - kLookMost;
  if (slept > nanoseconds(0)) beaten_at = std::min(now, beaten_at + slept);
  const std::uint64_t newest = pulse->beats();
  const bool is_awaited = members > 1;
  const bool is_judged = told_epoch > 0 && (has_stepped || is_awaited);
  if (newest != beats || !is_judged || is_finished || killed_for != KilledFor::kNothing) {
    beats = newest;
    beaten_at = now;
    return false;
  }
  return std::chrono::duration<double>(now - beaten_at).count() > seconds_allowed();
}

bool TrainerProcess::plan_respawn(MonoTime now) {
  while (!respawned.empty() && now - respawned.front() > kRespawnWindow) respawned.pop_front();
  if (respawned.size() >= kMaxRespawns) return false;
  // The first at once; one that keeps dying does not need the machine for itself.
  respawn_at = respawned.empty() ? now : now + kFirstRespawn * (1 << respawned.size());
  respawned.push_back(now);
  return true;
}

}  // namespace muster::sentinel
