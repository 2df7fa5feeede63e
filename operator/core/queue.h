// Queues as the rules of operator/core see them: what a queue may use, which jobs hold some of it,
// and in whose turn a gang waits. Plain data; the rules are in queue_quota (amounts), queue_line
// (whose turn), queue_pass (what each turn gets) and queue_reclaim (what is taken back for it).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "operator/api/object_meta.h"
#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/api/training_queue.h"

namespace muster::core {

struct Queue {
  std::string name;
  std::string cohort;  ///< empty: alone
  std::vector<api::QueueResource> quota;
  int weight = 1;
  std::vector<std::string> namespaces;  ///< empty: all
  std::string closed;                   ///< why no further job starts from it; empty: open
  std::string spent{};                  ///< why its jobs stop: the budget; empty: they do not
  bool is_refused = false;              ///< its spec; nothing of it is known
  seconds least_run{0};                 ///< so long after their start none of its jobs is preempted
  bool operator==(const Queue&) const = default;
};

/// A queue from its object. `verdict` is that of its spec.
Queue queue_of(const api::TrainingQueue& object, const Status& verdict);
/// Whether it is there for jobs of the namespace.
bool is_open_to(const Queue& queue, const std::string& namespace_name);

/// Where a gang stands in its queue.
struct QueueTurn {
  std::string queue;     ///< empty: in none; the gang is placed as it comes
  int priority = 0;      ///< value of its priority class; larger is more
  WallTime created;      ///< of the job
  bool preempts = true;  ///< false: its priority class says preemptionPolicy: Never
  bool operator==(const QueueTurn&) const = default;
};

/// A worker that holds some of a queue's quota, and stands or will stand on a node.
struct HeldSlot {
  int slot = 0;
  std::string node;
  bool is_stuck = false;  ///< it should have left long ago: nobody counts on its leaving
  bool operator==(const HeldSlot&) const = default;
};

/// A job that has places, or pods that still leave.
struct QueueHolder {
  api::ObjectKey job;
  QueueTurn turn;
  api::Resources per_worker;
  int min = 1;                    ///< fewest workers that it starts with
  std::vector<HeldSlot> slots;    ///< its places, ascending
  std::vector<HeldSlot> leaving;  ///< pods of places that it has no more
  std::string uid{};
  /// To so many workers it can be asked to shrink now, with nothing computed anew; 0: it cannot.
  int shrinks_to = 0;
  int processes = 1;   ///< of a worker
  int together = 1;    ///< it can use a multiple of so many workers
  int count = 1;       ///< workers that it wishes for at its start
  WallTime started{};  ///< since when it has places
  /// For how long; absent: it has not started.
  std::optional<seconds> ran{};
  seconds unsaved{0};      ///< since its newest durable checkpoint, or since it runs
  bool has_saved = false;  ///< there is such a checkpoint of this run
  seconds spared{0};       ///< so long it is not preempted: it was a while ago
  /// By then it is over, whatever happens: what is left of its deadline. Absent: it has none.
  std::optional<seconds> ends_within{};
  /// What an hour of it costs now, and in what; absent: that is not known, or nobody asks.
  std::optional<api::Billionths> rate_per_hour{};
  std::string currency{};
  int beyond = 0;  ///< of its slots, the last: more than it wishes for, anyone's who waits
  /// Once it holds nothing it waits to start again. False: it has ended, is suspended, or goes.
  bool comes_back = true;
  bool operator==(const QueueHolder&) const = default;

  /// Workers that count against the quota: a slot counts once, and until its pod is gone.
  int workers() const;
  /// Those of them that still count when all have left that leave in time.
  int workers_that_stay() const;
};

/// So long it is not preempted for others: it gave way a while ago, or has not run for the least
/// time of its queue (nullptr: it is in none).
seconds spared_for(const QueueHolder& holder, const Queue* queue);

/// What a pod that leaves still holds, counted as that slot's.
HeldSlot leaving_slot(const api::Pod& pod, int slot, WallTime now);

/// `places`: those in its status, or on their way into it; `pods`: its own that are there. Absent:
/// it holds nothing. Whether it can shrink is not set.
std::optional<QueueHolder> holder_of(const api::TrainingJob& job, const QueueTurn& turn,
                                     const std::vector<api::SlotPlacement>& places,
                                     const std::vector<const api::Pod*>& pods, WallTime now);

/// Whose quota pods hold whose jobs are gone, by what their labels say; one for each job, without
/// the pods. Anybody who may make pods in a namespace may label them: it counts where the queue is
/// open to that namespace. A pod that says nothing of a queue that is there counts nowhere.
std::vector<QueueHolder> holders_of_gone(const std::vector<const api::Pod*>& pods,
                                         const std::vector<Queue>& queues);

/// What its status shall say. `waiting`: jobs that wait for their turn.
api::TrainingQueueStatus queue_status(const api::TrainingQueue& object, const Queue& queue,
                                      const std::vector<QueueHolder>& holders, int waiting,
                                      WallTime now);
/// The merge patch that writes it under the object's uid and version.
Json queue_status_patch(const api::TrainingQueue& object, const api::TrainingQueueStatus& status);

}  // namespace muster::core
