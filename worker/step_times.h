// Where the time of a process's steps goes, and how much is computed in it. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "worker/engine/training.h"

namespace muster::worker {

/// Threads: one.
class StepTimes {
 public:
  /// In seconds.
  struct Times {
    double step = 0, data = 0, compute = 0, communicate = 0, update = 0;
    double ranks = 0;  ///< logical ones that the process has computed
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
  std::uint64_t ranks_ = 0;            ///< computed so far
};

/// Multiplications and additions that a model asks for to learn from one sample, as llm.c counts
/// them: six for each parameter and token, and in attention six for each layer, position and value
/// of the stream. What is computed again is no more. 0: of a cnn, whose parameters count for each
/// pixel.
double flops_of_sample(const engine::TrainingConfig& config, std::int64_t parameters);

}  // namespace muster::worker
