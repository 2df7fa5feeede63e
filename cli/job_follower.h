// Gathers what happens to one job from the threads that see it, for the one thread that waits.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/file.h"
#include "common/json.h"
#include "common/messages.h"
#include "operator/kube/watcher.h"

namespace muster::cli {

/// Threads: post_* from any; the others from one.
class JobFollower {
 public:
  static constexpr std::size_t kWarningsMost = 32;
  explicit JobFollower(std::string job_name);

  void post_event(const kube::WatchEvent& event);
  /// Of events: warnings about the job, each once though it is told again. That it failed is
  /// said by its condition.
  void post_note(const kube::WatchEvent& event);
  void post_progress(const ProgressReport& report);

  /// Readable when there is something to take.
  int fd() const { return wake_.get(); }

  struct News {
    std::optional<Json> job;                 ///< newest state, when it changed
    bool is_deleted = false;                 ///< the job is no longer in the API
    std::optional<ProgressReport> progress;  ///< newest of slot 0, when there is one
    std::vector<std::string> warnings;       ///< in their order; the newest kWarningsMost
  };
  News take();

  /// Sums over the last report of every worker that there was (slot and attempt).
  struct Totals {
    std::uint64_t sent_bytes = 0, logical_rank_computations = 0;
  };
  Totals totals() const;

 private:
  void wake() const;

  const std::string job_name_;
  UniqueFd wake_;
  mutable std::mutex mutex_;
  News news_;                                                     // guarded by mutex_
  std::string last_warning_;                                      // guarded by mutex_
  std::map<std::pair<int, int>, ProgressReport> last_of_worker_;  // guarded by mutex_
};

}  // namespace muster::cli
