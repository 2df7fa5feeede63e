// Work on files may take any time, and is not to be judged by the pace of steps.
#pragma once

#include "worker/engine/training.h"

namespace muster::engine {

/// As long as it lives, the training thread is busy with files. `hooks` outlives it.
class OnFiles {
 public:
  explicit OnFiles(const TrainingHooks& hooks) : hooks_(hooks) {
    if (hooks_.on_files) hooks_.on_files(true);
  }
  ~OnFiles() {
    if (hooks_.on_files) hooks_.on_files(false);
  }
  OnFiles(const OnFiles&) = delete;
  OnFiles& operator=(const OnFiles&) = delete;

 private:
  const TrainingHooks& hooks_;
};

}  // namespace muster::engine
