// Keys that need a look, each at most once: dirty while waiting, processing while in hand, and
// dirty again when something changed meanwhile. Delays and per-key back-off; time is a parameter.
// Source: the semantics of client-go's workqueue.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/clock.h"
#include "common/rng.h"
#include "operator/api/object_meta.h"

namespace muster::core {

/// Told what becomes of keys, for metrics. Called on the queue's thread; must return at once.
class WorkQueueObserver {
 public:
  virtual ~WorkQueueObserver() = default;
  virtual void on_add(const api::ObjectKey& key) = 0;    ///< waits now, and did not before
  virtual void on_retry(const api::ObjectKey& key) = 0;  ///< comes back after a failure
  virtual void on_pop(const api::ObjectKey& key) = 0;
  virtual void on_done(const api::ObjectKey& key) = 0;
};

struct WorkQueueOptions {
  milliseconds backoff_least{50};
  milliseconds backoff_most{60'000};
  WorkQueueObserver* observer = nullptr;  ///< outlives the queue
};

/// Threads: one. Size is bounded by the number of distinct keys.
class WorkQueue {
 public:
  explicit WorkQueue(std::uint64_t seed, WorkQueueOptions options = {});

  /// Now, whatever its back-off: there is news about it.
  void add(const api::ObjectKey& key);
  /// At `at`, or when its back-off is over then; of several delayed adds of a key the earliest
  /// counts.
  void add_at(const api::ObjectKey& key, MonoTime at);
  /// After this key's back-off: doubled from failure to failure, with jitter, until forget().
  /// At least `asked` from now.
  void add_backed_off(const api::ObjectKey& key, MonoTime now, seconds asked = seconds(0));
  /// Now, or when the key's back-off is over if it is in one, or comes into one while it is in
  /// hand: for what is no news about the key itself.
  void add_after_back_off(const api::ObjectKey& key, MonoTime now) { add_at(key, now); }
  void forget(const api::ObjectKey& key);
  int failures(const api::ObjectKey& key) const;
  bool backs_off(const api::ObjectKey& key, MonoTime now) const;

  /// The next key, now in processing: it is not given out again before done().
  std::optional<api::ObjectKey> pop(MonoTime now);
  /// Ends processing; a key that was added meanwhile waits again.
  void done(const api::ObjectKey& key);

  /// When the next delayed key is due; absent: none.
  std::optional<MonoTime> next_due() const;
  bool ready() const { return !order_.empty(); }
  std::size_t size() const { return order_.size() + due_.size(); }

 private:
  void release(MonoTime now);
  void drop_due(const api::ObjectKey& key);

  WorkQueueOptions options_;
  Rng rng_;
  std::deque<api::ObjectKey> order_;
  std::set<api::ObjectKey> dirty_, processing_;
  std::map<api::ObjectKey, MonoTime> due_;
  std::set<std::pair<MonoTime, api::ObjectKey>> due_by_time_;  ///< the same, soonest first
  /// Whose time came while they were in hand: when they return depends on what comes of that.
  std::map<api::ObjectKey, MonoTime> overdue_;
  std::map<api::ObjectKey, int> failures_;
  std::map<api::ObjectKey, MonoTime> backs_off_until_;
};

}  // namespace muster::core
