// What those have saved who have left, in the simulation of trainers: it is not lost any more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/recovery/trainer.h"
#include "worker/engine/training.h"

namespace muster::sim {

/// How somebody leaves: without the files, or when something has ended what all do before that;
/// or as planned, and has written what several have together or all by itself.
enum class Leave { kOther, kOfMany, kAlone };

class SavedSteps {
 public:
  /// What is wrong; empty: nothing.
  std::string see_left(const Trainer& self, const engine::TrainingSummary& left, Leave how) {
    newest_ = std::max(newest_, left.checkpoint_step);
    const bool is_planned = how != Leave::kOther && self.broken_epoch < self.entered_epoch &&
                            self.has_made_step_in(self.entered_epoch);
    if (!is_planned) return "";
    ++leaves_;
    // Those who write together begin none while lines of the record wait.
    if (how == Leave::kOfMany || left.checkpoint_step == left.step) return "";
    return "slot 0 has left at step " + std::to_string(left.step) +
           ", and its newest checkpoint is of " + std::to_string(left.checkpoint_step);
  }
  /// Likewise.
  std::string see_entered(std::int64_t step) const {
    if (step >= newest_) return "";
    return "a membership begins at step " + std::to_string(step) + ", and " +
           std::to_string(newest_) + " was saved by one that has left";
  }
  /// Planned ones, with the files.
  std::int64_t leaves() const { return leaves_; }

 private:
  std::int64_t newest_ = -1, leaves_ = 0;
};

}  // namespace muster::sim
