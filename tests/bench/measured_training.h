// What the programs share that time the engine's steps.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "common/clock.h"
#include "worker/comm/communicator.h"
#include "worker/engine/training.h"

namespace muster::bench {

/// More than any measurement makes.
inline constexpr std::int64_t kStepsMax = 1'000'000'000;

struct Measured {
  std::int64_t steps = 0;
  double seconds = 0;
};

/// Trains with one worker until the steps after the first `warm_up` have taken so many seconds.
inline Measured measure(const engine::TrainingConfig& config, std::int64_t warm_up,
                        double seconds_wanted) {
  const SystemClock clock;
  const auto group = comm::make_local_communicators(1, clock);
  std::atomic<bool> stop = false;
  Measured measured;
  MonoTime start;
  engine::TrainingHooks hooks;
  hooks.stop = &stop;
  hooks.on_step = [&](const engine::StepReport& report) {
    const MonoTime now = clock.mono_now();
    if (report.step == warm_up) start = now;
    if (report.step <= warm_up) return;
    measured = {report.step - warm_up, std::chrono::duration<double>(now - start).count()};
    if (measured.seconds >= seconds_wanted) stop = true;
  };
  const auto result = engine::run_training(config, *group[0], clock, hooks);
  if (!result) {
    std::fprintf(stderr, "training failed: %s\n", result.error().message().c_str());
    std::exit(1);
  }
  return measured;
}

inline double peak_rss_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace muster::bench
