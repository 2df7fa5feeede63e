// Work on files may take any time, and is not to be judged by the pace of steps.
#pragma once

#include <string_view>

#include "worker/engine/training.h"

namespace muster::engine {

/// As long as it lives, the training thread is busy with files at `path`, which is not empty.
/// `hooks` outlives it.
class OnFiles {
 public:
  OnFiles(const TrainingHooks& hooks, std::string_view path) : hooks_(hooks) {
    if (hooks_.on_files) hooks_.on_files(path);
  }
  ~OnFiles() {
    if (hooks_.on_files) hooks_.on_files({});
  }
  OnFiles(const OnFiles&) = delete;
  OnFiles& operator=(const OnFiles&) = delete;

 private:
  const TrainingHooks& hooks_;
};

}  // namespace muster::engine
