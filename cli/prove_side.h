// One of the two runs of `muster prove`.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cli/job_follower.h"
#include "cli/job_state.h"
#include "cli/local_run.h"
#include "cli/prove_plan.h"

namespace muster::cli {

/// Threads: one owner.
class ProveSide {
 public:
  /// `directory` is made anew: a proof does not go on from an earlier one.
  static Result<std::unique_ptr<ProveSide>> start(const LocalRunOptions& options, LocalJob job,
                                                  const std::string& directory, int pace_ms);
  ~ProveSide() { stop(); }

  /// Readable when take_news() has something.
  int fd() const { return follower_.fd(); }
  /// Whether a worker has told of a step, other than that which it told of before.
  bool take_news();
  bool is_over() const { return ending_.has_value(); }
  const Ending& ending() const { return *ending_; }

  /// The furthest report of any worker.
  const ProgressReport& progress() const { return progress_; }
  /// The last step that is known to be made: by the record sooner than by reports, which come once
  /// a second. Blocks: on the disk.
  std::int64_t newest_step() const;
  const std::vector<MembershipChange>& changes() const { return changes_; }
  std::string workers() const { return status_.workers; }

  /// Strikes one of the workers there are; what was done, in words, or nothing when there is nobody
  /// to strike now.
  std::optional<std::string> strike(const Disturbance& disturbance);
  /// SIGCONT for those whose freeze is over.
  void thaw(MonoTime now);

  /// Ends all processes and threads. Idempotent.
  void stop();
  Result<RunRecord> record() const;
  /// The bytes of the model, and of the optimiser's state in the newest checkpoint, which is that
  /// of the last step where the run is complete; empty when there is none. Block: on the disk.
  std::string model_bytes() const;
  std::string optimizer_bytes() const;
  const OutputDirectory& directory() const { return directory_; }

 private:
  ProveSide(const LocalRunOptions& options, LocalJob job, OutputDirectory directory);
  Status create(int pace_ms);
  void post_progress(const ProgressReport& report);
  void freeze(int pid, MonoTime until);
  std::string record_path() const;

  LocalRunOptions options_;
  LocalJob job_;
  OutputDirectory directory_;
  JobFollower follower_;
  LocalRun run_;
  api::TrainingJobStatus status_;
  std::optional<Ending> ending_;
  ProgressReport progress_;
  SignsOfLife signs_;
  std::vector<MembershipChange> changes_;
  std::map<int, MonoTime> frozen_;  ///< process id and when it goes on

  std::mutex mutex_;
  std::vector<ProgressReport> reports_;  ///< guarded by mutex_
};

}  // namespace muster::cli
