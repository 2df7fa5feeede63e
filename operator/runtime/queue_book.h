// What the loop knows of queues and priority classes, and the writes of the queues' own status. The
// rules are in operator/core/queue*.h.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "operator/core/schedule.h"
#include "operator/kube/store.h"
#include "operator/runtime/applier.h"
#include "operator/runtime/list_wait.h"
#include "operator/runtime/mailbox.h"
#include "operator/runtime/metrics_queues.h"

namespace muster::runtime {

struct QueueRecord {
  api::ObjectMeta meta;
  api::TrainingQueue object;
  core::Queue queue;  ///< as the rules see it
  bool operator==(const QueueRecord&) const = default;
};

/// Threads: one.
class QueueBook {
 public:
  explicit QueueBook(MonoTime now);

  /// Whether what was seen changes anything for jobs.
  bool take(const kube::WatchEvent& event, api::Kind kind);
  /// Whether queues and priority classes are all known.
  bool synced() const { return queues_.synced() && priorities_.synced(); }
  bool empty() const { return queues_.all().empty(); }

  /// The queue it waits in; empty: none, as of all that name none where queues or priority classes
  /// were awaited in vain: nobody could say whose turn it is.
  const std::string& queue_of(const api::TrainingJob& job) const;
  /// Whether there is a queue of that name.
  bool has(const std::string& queue) const { return queues_.find({"", queue}) != nullptr; }
  /// The queue that the job's workers would count in, if it has places, and that is gone; empty:
  /// it is there, or it is in none; absent: nobody knows, for not all are known.
  std::optional<std::string> gone_queue_of(const api::TrainingJob& job) const;
  /// Once: whether a queue has come or gone, or all are known, since this was last asked.
  bool are_others() { return std::exchange(are_others_, false); }
  /// Where the job stands in its queue: who `holds` places in the one it has started from, as long
  /// as there is one of that name, so that nobody leaves what is held behind by naming another. Who
  /// names none is in none where queue_of() says so.
  core::QueueTurn turn_of(const api::TrainingJob& job, bool holds) const;
  /// Why the job cannot be given a turn yet although its spec is right: what it names is not known.
  /// Empty for a while, too, in which nothing need be said.
  std::string why_unknown(MonoTime now) const;
  /// Whether all are about to be known, or to be given up: until then nobody knows which queue a
  /// job that names none is in.
  bool are_awaited() const { return !synced() && wait_.due().has_value(); }
  /// Once: whether that has begun.
  bool turned_unknown(MonoTime now);
  std::vector<core::Queue> queues(WallTime now) const;
  /// Whether what its jobs cost counts.
  bool has_budget(const std::string& queue) const;
  bool is_any_spent(WallTime now) const;

  // ---- The queues' status
  /// Something changed that may show in it.
  void touch() { is_old_ = true; }
  /// When it is to be looked at again; absent: not before something changes.
  std::optional<MonoTime> due() const;
  /// What is to be written now. `waiting`: jobs that wait for their turn, by queue.
  std::vector<Work> writes(MonoTime now, WallTime wall_now,
                           const std::vector<core::QueueHolder>& holders,
                           const std::map<std::string, int>& waiting);
  void take(const ApplyDone& done, MonoTime now);
  /// Of all queues, as of the last look.
  const std::vector<QueueFigures>& figures() const { return figures_; }

 private:
  /// About one queue's status; a fresh operator learns it anew.
  struct Writing {
    bool is_under_way = false;
    std::string unseen_version;  ///< the store shows this one until it has seen the write
    MonoTime unseen_until{}, not_before{};
    std::optional<MonoTime> look_at;  ///< there was more to say, and not the time for it
  };

  bool are_given_up() const { return !synced() && !wait_.due(); }
  /// nullptr: there is none of that name, or no default.
  const api::PriorityClass* priority_of(const api::TrainingJob& job) const;

  kube::Store<QueueRecord> queues_;
  kube::Store<api::PriorityClass> priorities_;
  ListWait wait_;
  std::map<api::ObjectKey, Writing> writing_;
  std::set<api::ObjectKey> names_;
  bool are_others_ = false;
  bool is_old_ = false;
  MonoTime not_before_{};  ///< all together
  std::vector<QueueFigures> figures_;
};

}  // namespace muster::runtime
