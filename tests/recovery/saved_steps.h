// What those have saved who have left or stopped, in the simulation of trainers: it is not lost any
// more.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>
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
  /// Likewise. `slots`: of the members of `newest`; so many next to each other have a copy of the
  /// model. Whoever stops in a membership that has slot 0's copy has seen it saved.
  std::string see_stopped(const Trainer& self, const engine::TrainingSummary& stopped,
                          const Round& newest, const std::set<int>& slots, int of_copy) {
    const auto is_whole = [&](int copy) {
      for (int slot = copy * of_copy; slot < (copy + 1) * of_copy; ++slot) {
        if (!slots.contains(slot)) return false;
      }
      return true;
    };
    const bool is_in =
        newest.stop && self.entered_epoch == newest.epoch && slots.contains(self.slot);
    // Who only waits for its copy has nothing to save.
    if (!is_in || stopped.step < 0 || !is_whole(self.slot / of_copy) || !is_whole(0)) return "";
    newest_ = std::max(newest_, stopped.checkpoint_step);
    if (stopped.checkpoint_step == stopped.step) return "";
    return "slot " + std::to_string(self.slot) + " has stopped at step " +
           std::to_string(stopped.step) + ", and its newest checkpoint is of " +
           std::to_string(stopped.checkpoint_step);
  }
  /// Likewise.
  std::string see_entered(std::int64_t step) const {
    if (step >= newest_) return "";
    return "a membership begins at step " + std::to_string(step) + ", and " +
           std::to_string(newest_) + " was saved by those who have left or stopped";
  }
  /// Planned ones, with the files.
  std::int64_t leaves() const { return leaves_; }

 private:
  std::int64_t newest_ = -1, leaves_ = 0;
};

}  // namespace muster::sim
