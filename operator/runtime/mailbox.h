// The one door into the loop: watch threads, the applier and the workers' endpoint post, the loop
// drains. Bounded, so that whoever is faster than the loop waits.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/messages.h"
#include "common/result.h"
#include "operator/core/reconcile.h"
#include "operator/kube/watch_pump.h"
#include "operator/runtime/workers_endpoint.h"

namespace muster::runtime {

using kube::WatchBatch;

/// What became of a plan.
struct ApplyDone {
  api::ObjectKey key;
  std::string uid;
  /// Of the action that failed, and the ones after it were not tried; or, when all else was done,
  /// of the last deletion of a pod that was refused.
  Status status;
  bool only_deletions_refused = false;
  /// uids of pods, and why each may not be deleted, in the API server's words.
  std::map<std::string, std::string> deletions_refused;
  std::optional<core::CreateFailure> create_failure;
  /// Why something was not made where trying again may help: worth saying only when it goes on.
  std::optional<core::CreateFailure> create_delay;
  /// resourceVersions around the status write; equal or empty when nothing was written.
  std::string version_before, version_after;
  core::Pass pass = core::Pass::kNone;  ///< of the plan
  std::vector<std::string> created;     ///< names of pods and services
  std::vector<std::string> deleted;     ///< uids of pods
  /// minAvailable of the disruption budget it has left; 0 = none, core::kBudgetUnsure: who knows.
  std::optional<int> budget;
  bool budget_failed = false;  ///< it is refused, and trying again soon is of no use
};

/// This process leads from now on, until it ends.
struct Lead {};

/// A worker's question to the witness; `answer` is called once, by whoever takes it.
struct WitnessPost {
  WitnessRequest request;
  WitnessAnswer answer;
};

using Message = std::variant<WatchBatch, ApplyDone, ProgressReport, Lead, WitnessPost>;

/// Text of what watches have brought and that waits, beyond which the next batch waits outside:
/// parsed, it takes about as much, and ten times as much where somebody is bent on it. A batch by
/// itself may be larger (a page of a list).
inline constexpr std::size_t kWatchedBytesMost = std::size_t{2} << 20;

/// Threads: any.
class Mailbox {
 public:
  explicit Mailbox(std::size_t capacity) : capacity_(capacity) {}

  /// Blocks: while full, or while too much of watches waits beside this batch, until close().
  /// False: closed, the message is dropped.
  bool post(Message message);
  /// As post() to one that only counts messages, but gives up when full.
  bool try_post(Message message);
  /// Everything there is, in order.
  std::deque<Message> drain();
  /// Blocks: until there is something, close() or `most` has passed.
  void wait(nanoseconds most);
  void close();

 private:
  /// The caller holds mutex_.
  void put(Message message);

  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable space_, news_;
  std::deque<Message> messages_;  // guarded by mutex_
  std::size_t bytes_ = 0;         ///< of watches, in messages_; guarded by mutex_
  bool closed_ = false;           // guarded by mutex_
};

}  // namespace muster::runtime
