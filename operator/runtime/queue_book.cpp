#include "operator/runtime/queue_book.h"

#include <algorithm>

#include "common/contract.h"
#include "common/log.h"
#include "operator/core/spending.h"
#include "operator/core/words.h"

namespace muster::runtime {
namespace {

/// Adding up what all jobs hold costs the number of jobs.
constexpr seconds kLookInterval{1};
/// A write that the store does not show by then is lost to it.
constexpr seconds kQueueUnseenMost{30};

Result<QueueRecord> parse_queue_record(const Json& json) {
  auto [object, verdict] = api::read_training_queue(json);
  if (object.meta.name.empty()) return Error(ErrorCode::kInvalid, "a TrainingQueue without a name");
  core::Queue queue = core::queue_of(object, verdict);
  api::ObjectMeta meta = object.meta;
  return QueueRecord{std::move(meta), std::move(object), std::move(queue)};
}

}  // namespace

QueueBook::QueueBook(MonoTime now)
    : queues_(parse_queue_record), priorities_(api::parse_priority_class), wait_(now) {}

bool QueueBook::take(const kube::WatchEvent& event, api::Kind kind) {
  const bool was_synced = synced();
  bool changed = false;
  if (kind == api::Kind::kPriorityClass) {
    changed = !priorities_.apply(event).empty();
  } else {
    for (const auto& key : queues_.apply(event)) {
      const bool is_there = queues_.find(key) != nullptr;
      if (!is_there) writing_.erase(key);
      const bool is_other = is_there ? names_.insert(key).second : names_.erase(key) > 0;
      are_others_ = are_others_ || is_other;
      changed = true;
    }
  }
  if (was_synced != synced()) changed = are_others_ = true;
  if (changed) touch();
  return changed;
}

const std::string& QueueBook::queue_of(const api::TrainingJob& job) const {
  static const api::ObjectKey kFallback{"", std::string(contract::kDefaultQueue)};
  if (!job.spec.queue_name.empty() || are_given_up()) return job.spec.queue_name;
  // A quota that is evaded by leaving a line out would be none.
  return queues_.find(kFallback) != nullptr ? kFallback.name : job.spec.queue_name;
}

std::optional<std::string> QueueBook::gone_queue_of(const api::TrainingJob& job) const {
  const std::string& queue = queue_of(job);
  if (has(job.status.queue) || has(queue)) return "";
  if (!synced()) return std::nullopt;
  return queue;
}

core::QueueTurn QueueBook::turn_of(const api::TrainingJob& job, bool holds) const {
  core::QueueTurn turn;
  const bool runs_as_ever = job.spec.queue_name.empty() && are_given_up();
  const bool stays = holds && has(job.status.queue) && !runs_as_ever;
  turn.queue = stays ? job.status.queue : queue_of(job);
  turn.created = job.meta.creation_time.value_or(WallTime{});
  if (const api::PriorityClass* one = priority_of(job); one != nullptr) {
    turn.priority = one->value;
    turn.preempts = one->preempts;
  }
  return turn;
}

const api::PriorityClass* QueueBook::priority_of(const api::TrainingJob& job) const {
  const std::string& named = job.spec.priority_class_name;
  if (!named.empty()) return priorities_.find({"", named});
  // Of several defaults Kubernetes gives pods the lowest.
  const api::PriorityClass* found = nullptr;
  for (const auto& [key, one] : priorities_.all()) {
    if (one.is_default && (found == nullptr || one.value < found->value)) found = &one;
  }
  return found;
}

std::string QueueBook::why_unknown(MonoTime now) const {
  if (synced() || !wait_.is_over(now)) return "";
  return "spec.queueName: the operator could not list queues or priority classes until now; is "
         "crds/trainingqueue.yaml applied, and may the operator read it?";
}

std::vector<core::Queue> QueueBook::queues(WallTime now) const {
  std::vector<core::Queue> queues;
  for (const auto& [key, record] : queues_.all()) {
    queues.push_back(core::queue_at(record.queue, record.object, now));
  }
  return queues;
}

bool QueueBook::has_budget(const std::string& queue) const {
  const QueueRecord* record = queues_.find({"", queue});
  return record != nullptr && record->object.spec.budget;
}

bool QueueBook::is_any_spent(WallTime now) const {
  return std::any_of(queues_.all().begin(), queues_.all().end(), [&](const auto& one) {
    return !core::queue_at(one.second.queue, one.second.object, now).spent.empty();
  });
}

bool QueueBook::turned_unknown(MonoTime now) { return !synced() && wait_.turned_over(now); }

std::optional<MonoTime> QueueBook::due() const {
  if (!synced()) return wait_.due();
  std::optional<MonoTime> due;
  // Once the last queue is gone, the figures are still to be emptied.
  if (is_old_ && (!empty() || !figures_.empty())) due = not_before_;
  for (const auto& [key, one] : writing_) {
    if (one.look_at) due = std::min(due.value_or(*one.look_at), *one.look_at);
  }
  return due ? std::optional(std::max(*due, not_before_)) : std::nullopt;
}

std::vector<Work> QueueBook::writes(MonoTime now, WallTime wall_now,
                                    const std::vector<core::QueueHolder>& holders,
                                    const std::map<std::string, int>& waiting) {
  is_old_ = false;
  not_before_ = now + kLookInterval;
  figures_.clear();
  std::vector<Work> works;
  for (const auto& [key, record] : queues_.all()) {
    Writing& writing = writing_[key];
    writing.look_at.reset();
    const auto found = waiting.find(key.name);
    const int count = found == waiting.end() ? 0 : found->second;
    const core::Queue queue = core::queue_at(record.queue, record.object, wall_now);
    const auto status = core::queue_status(record.object, queue, holders, count, wall_now);
    figures_.push_back(queue_figures(record.object, status));
    if (writing.is_under_way) continue;
    if (const auto left = core::until_spending_news(record.object, wall_now)) {
      writing.look_at = now + *left;
    }
    if (status == record.object.status) continue;
    // An own write that the store does not show yet is on its way back, or lost.
    const bool is_unseen = record.meta.resource_version == writing.unseen_version;
    const MonoTime from =
        is_unseen ? std::max(writing.unseen_until, writing.not_before) : writing.not_before;
    if (now < from) {
      writing.look_at = from;
      continue;
    }
    core::Plan plan;
    plan.pass = core::Pass::kObservation;
    plan.reason = "queue status";
    plan.actions.push_back(
        core::PatchQueueStatus{key, core::queue_status_patch(record.object, status)});
    writing.is_under_way = true;
    works.push_back(Work{key, record.meta.uid, std::move(plan), {}});
  }
  return works;
}

void QueueBook::take(const ApplyDone& done, MonoTime now) {
  const auto found = writing_.find(done.key);
  if (found == writing_.end()) return;
  Writing& writing = found->second;
  writing.is_under_way = false;
  writing.not_before = now + core::words::kQueueInterval;
  writing.unseen_until = now + kQueueUnseenMost;
  const bool was_written = !done.version_after.empty() && done.version_after != done.version_before;
  writing.unseen_version = was_written ? done.version_before : "";
  touch();
  if (done.status) return;
  log_warning("a queue's status was not written",
              {{"queue", done.key.name}, {"error", done.status.error().message()}});
}

}  // namespace muster::runtime
