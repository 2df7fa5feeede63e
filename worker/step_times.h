// Where the time of a process's steps goes. Pure.
#pragma once

#include <array>
#include <cstddef>

#include "worker/engine/training.h"

namespace muster::worker {

/// Threads: one.
class StepTimes {
 public:
  /// In seconds.
  struct Times {
    double step = 0, data = 0, compute = 0, communicate = 0, update = 0;
  };

  void add(const engine::StepReport& report);

  /// Of the medians of the newest kKept steps, of each part by itself: what a few took longer for,
  /// as the first ones do, does not show. All 0 before the first step.
  Times medians() const;
  /// Steps that they are of.
  std::size_t steps() const;

  static constexpr std::size_t kKept = 101;

 private:
  double median(double Times::* part) const;

  std::array<Times, kKept> newest_{};  ///< in any order
  std::size_t count_ = 0;              ///< of all that were added
};

}  // namespace muster::worker
