#include "operator/core/queue.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "common/contract.h"
#include "operator/core/copies.h"
#include "operator/core/elastic.h"
#include "operator/core/kueue_policy.h"
#include "operator/core/queue_quota.h"
#include "operator/core/rooms.h"
#include "operator/core/spending.h"
#include "operator/core/status_edit.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {

Queue queue_of(const api::TrainingQueue& object, const Status& verdict) {
  const api::TrainingQueueSpec& spec = object.spec;
  Queue queue{
      object.meta.name, spec.cohort, spec.resources, spec.weight, spec.namespaces, "", "", false};
  queue.least_run = seconds(spec.preemption.minimum_run_seconds);
  queue.is_refused = !verdict;
  if (queue.is_refused) {
    queue.closed = "its spec is refused (" + verdict.error().message() + ")";
  } else if (object.meta.deletion_time) {
    queue.closed = "it is being deleted";
  } else if (spec.suspend) {
    queue.closed = "its spec.suspend is true";
  }
  return queue;
}

bool is_open_to(const Queue& queue, const std::string& namespace_name) {
  const auto& open = queue.namespaces;
  return open.empty() || std::find(open.begin(), open.end(), namespace_name) != open.end();
}

std::vector<QueueHolder> holders_of_gone(const std::vector<const api::Pod*>& pods,
                                         const std::vector<Queue>& queues) {
  std::map<std::string, const Queue*> named;
  for (const Queue& queue : queues) named.emplace(queue.name, &queue);
  std::map<std::pair<api::ObjectKey, std::string>, QueueHolder> holders;
  for (const api::Pod* pod : pods) {
    const auto label = pod->meta.labels.find(std::string(contract::kLabelQueue));
    if (label == pod->meta.labels.end() || !pod->is_of_job()) continue;
    const auto queue = named.find(label->second);
    const std::string& of = pod->meta.namespace_name;
    if (queue == named.end() || !is_open_to(*queue->second, of)) continue;
    const api::OwnerReference& owner = *pod->meta.controller();
    const api::ObjectKey job{of, owner.name};
    const auto [found, is_new] = holders.try_emplace({job, owner.uid});
    QueueHolder& holder = found->second;
    if (is_new) {
      holder.job = job;
      holder.uid = owner.uid;
      holder.turn.queue = queue->second->name;
      holder.comes_back = false;
      holder.per_worker.cpu_millis = holder.per_worker.memory_bytes = 0;
    }
    // They are alike, but for what webhooks add: the most of them counts for each.
    api::raise_to(holder.per_worker, pod->requests);
  }
  std::vector<QueueHolder> all;
  for (auto& [key, holder] : holders) all.push_back(std::move(holder));
  return all;
}

namespace {

int workers_with(const QueueHolder& holder, const std::vector<HeldSlot>& leaving) {
  std::set<int> slots;
  for (const HeldSlot& one : holder.slots) slots.insert(one.slot);
  for (const HeldSlot& one : leaving) slots.insert(one.slot);
  return static_cast<int>(slots.size());
}

/// Times in status are anybody's: a difference that cannot be is none.
seconds since(WallTime then, WallTime now) {
  constexpr seconds kMost{366 * 24 * 3600};
  return then > now ? seconds(0) : std::min(kMost, std::chrono::floor<seconds>(now - then));
}

/// What would be computed anew, were the job to start again.
void add_unsaved(QueueHolder& holder, const api::TrainingJobStatus& status, WallTime now) {
  const auto* running = status.condition(std::string(words::kRunning));
  if (running == nullptr || running->status != "True") return;
  holder.unsaved = since(running->last_transition_time, now);
  const bool is_kept = status.checkpoint && status.checkpoint->durable && status.checkpoint->time;
  if (!is_kept || *status.checkpoint->time < running->last_transition_time) return;
  holder.unsaved = since(*status.checkpoint->time, now);
  holder.has_saved = true;
}

}  // namespace

int QueueHolder::workers() const { return workers_with(*this, leaving); }

int QueueHolder::workers_that_stay() const {
  std::vector<HeldSlot> stuck;
  std::copy_if(leaving.begin(), leaving.end(), std::back_inserter(stuck),
               [](const HeldSlot& one) { return one.is_stuck; });
  return workers_with(*this, stuck);
}

seconds spared_for(const QueueHolder& holder, const Queue* queue) {
  if (queue == nullptr || !holder.ran) return holder.spared;
  return std::max(holder.spared, queue->least_run - *holder.ran);
}

HeldSlot leaving_slot(const api::Pod& pod, int slot, WallTime now) {
  const auto& since = pod.meta.deletion_time;
  return {slot, pod.node_name.empty() ? pod.required_node : pod.node_name,
          since && now - *since > words::kOverdue};
}

namespace {

/// What somebody wrote into a status holds nothing of a queue, unless there is a pod.
bool may_hold(const api::TrainingJob& job, const api::SlotPlacement& place,
              const std::vector<const api::Pod*>& pods) {
  if (may_have_pod(job, place)) return true;
  const std::string name = api::pod_name(job, place.slot, place.attempt);
  return std::any_of(pods.begin(), pods.end(),
                     [&](const api::Pod* pod) { return pod->meta.name == name; });
}

}  // namespace

std::optional<QueueHolder> holder_of(const api::TrainingJob& job, const QueueTurn& turn,
                                     const std::vector<api::SlotPlacement>& places,
                                     const std::vector<const api::Pod*>& pods, WallTime now) {
  const api::TrainingJobStatus& status = job.status;
  QueueHolder holder{job.meta.key(), turn, api::pod_resources(job.spec.worker), 1, {}, {}};
  holder.min = least_to_start(job);
  holder.count = std::max(holder.min, job.spec.worker.count);
  holder.uid = job.meta.uid;
  holder.processes = std::max(1, job.spec.worker.processes);
  holder.together = workers_together(job);
  holder.started = status.start_time.value_or(WallTime{});
  holder.ends_within = deadline_left(job, now);
  add_unsaved(holder, status, now);
  // By a start that a wrong clock has written nobody is spared until the clock has come there.
  if (status.start_time && *status.start_time - now <= words::kClocksDiffer) {
    holder.ran = since(*status.start_time, now);
  }
  // Its start is decided and on its way into status. Of a gang in Kueue others decide it.
  if (!status.start_time && !places.empty() && !is_in_kueue(job)) {
    holder.started = now;
    holder.ran = seconds(0);
  }
  if (status.taken_back.preemptions > 0 && holder.ran) {
    holder.spared = std::max(seconds(0), words::kSparedFor - *holder.ran);
  }
  // Kubernetes deletes its pods when it is gone itself, which somebody's finalizer may hold up.
  const auto& deleted = job.meta.deletion_time;
  const bool is_stuck = deleted && now - *deleted > grace_of(job) + words::kOverdue;
  const bool leaves = job.spec.suspend || deleted;
  holder.comes_back = !status.finished() && !leaves;
  // Whoever has ended, or is asked to leave, gives back with its last pod.
  for (const auto& placement : places) {
    if (status.finished()) break;
    if (!may_hold(job, placement, pods)) continue;
    (leaves ? holder.leaving : holder.slots).push_back({placement.slot, placement.node, is_stuck});
  }
  for (const api::Pod* pod : pods) {
    if (pod->ended() || pod->termination) continue;
    const auto is_it = [&](const api::SlotPlacement& one) {
      return pod->meta.name == api::pod_name(job, one.slot, one.attempt);
    };
    const bool has_place = !status.finished() && std::any_of(places.begin(), places.end(), is_it);
    if (has_place) continue;
    holder.leaving.push_back(leaving_slot(*pod, slot_of(*pod, job), now));
  }
  // A place that was given back by a decision that is not stored yet may still be kept.
  for (const auto& placement : status.placement) {
    const auto is_it = [&](const auto& one) { return one.slot == placement.slot; };
    const bool is_kept = status.finished() || std::any_of(places.begin(), places.end(), is_it) ||
                         std::any_of(holder.leaving.begin(), holder.leaving.end(), is_it);
    if (!is_kept && may_hold(job, placement, pods)) {
      holder.leaving.push_back({placement.slot, placement.node});
    }
  }
  if (holder.slots.empty() && holder.leaving.empty()) return std::nullopt;
  std::sort(holder.slots.begin(), holder.slots.end(),
            [](const HeldSlot& a, const HeldSlot& b) { return a.slot < b.slot; });
  const int counted = counted_workers(job);
  holder.beyond =
      static_cast<int>(std::count_if(holder.slots.begin(), holder.slots.end(),
                                     [&](const HeldSlot& one) { return one.slot >= counted; }));
  return holder;
}

namespace {

api::Condition active_condition(const api::TrainingQueue& object, const Queue& queue,
                                WallTime now) {
  api::Condition active;
  active.type = words::kActive;
  active.status = queue.closed.empty() ? "True" : "False";
  active.reason = queue.closed.empty() ? words::kActive : words::kClosed;
  active.message = head_of(queue.closed.empty() ? "its jobs start in their turn"
                                                : "no further job starts: " + queue.closed,
                           words::kMaxMessageBytes);
  active.observed_generation = object.meta.generation;
  active.last_transition_time = whole_seconds(now);
  for (const auto& before : object.status.conditions) {
    if (before.type != active.type || before.status != active.status) continue;
    active.last_transition_time = before.last_transition_time;
  }
  return active;
}

}  // namespace

api::TrainingQueueStatus queue_status(const api::TrainingQueue& object, const Queue& queue,
                                      const std::vector<QueueHolder>& holders, int waiting,
                                      WallTime now) {
  QuotaLedger ledger({queue});
  api::TrainingQueueStatus status;
  for (const QueueHolder& holder : holders) {
    if (holder.turn.queue != queue.name) continue;
    ledger.charge(0, amounts_of(holder.per_worker), holder.workers());
    ++status.admitted;
  }
  status.waiting = waiting;
  status.observed_generation = object.meta.generation;
  status.phase = queue.closed.empty() ? "Active" : "Closed";
  status.conditions = {active_condition(object, queue, now)};
  for (const api::QueueResource& one : queue.quota) {
    const std::int64_t held = ledger.held(0, one.name);
    status.resources.push_back({one.name, amount_text(one.name, held),
                                amount_text(one.name, ledger.borrowed(0, one.name))});
    if (!status.use.empty()) status.use += ", ";
    status.use +=
        one.name + " " + amount_text(one.name, held) + "/" + amount_text(one.name, one.nominal);
  }
  status.use = head_of(status.use, words::kMaxMessageBytes);
  // What was spent outlives a spec that cannot be read for a while.
  status.budget = queue.is_refused ? object.status.budget : queue_spending(object, holders, now);
  return status;
}

Json queue_status_patch(const api::TrainingQueue& object, const api::TrainingQueueStatus& status) {
  const bool is_first = object.status == api::TrainingQueueStatus{};
  Json patch = merge_patch(is_first ? Json::object() : api::status_to_json(object.status),
                           api::status_to_json(status));
  return {
      {"metadata", {{"uid", object.meta.uid}, {"resourceVersion", object.meta.resource_version}}},
      {"status", std::move(patch)}};
}

}  // namespace muster::core
