// What a trainer does with files for so long that somebody should be told. It does not judge: a
// disk may take any time.
#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "worker/sentinel/channel.h"

namespace muster::worker {

/// Threads: any.
class FilesWatch {
 public:
  /// The training thread, for which all others wait in the end, or those that write checkpoints
  /// and the record beside it, which are told of as one.
  enum class Thread { kTraining, kSaving, kRecording };

  /// It is busy with files at `path` from now on; of an empty one: not any more.
  void set(Thread thread, std::string_view path, MonoTime now);
  bool is_busy(Thread thread) const;
  /// What is to be told now: of each thread when it has been busy for long, each time that this has
  /// doubled, and its end.
  std::optional<sentinel::FilesMessage> take(MonoTime now);

 private:
  struct Work {
    std::string path;  ///< empty: none
    MonoTime since{};
    seconds told{0};  ///< since when it was told that it takes long; 0: not yet
    bool is_end_due = false;
  };
  mutable std::mutex mutex_;
  Work& work(Thread thread) { return work_[static_cast<std::size_t>(thread)]; }
  std::array<Work, 3> work_;  ///< by thread
};

}  // namespace muster::worker
