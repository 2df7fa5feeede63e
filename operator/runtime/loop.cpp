#include "operator/runtime/loop.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/contract.h"
#include "common/log.h"
#include "operator/core/drain_taints.h"
#include "operator/core/elastic_policy.h"
#include "operator/core/gang_view.h"
#include "operator/core/node_terms.h"
#include "operator/core/pod_shape.h"
#include "operator/core/progress.h"
#include "operator/core/witness.h"
#include "operator/core/words.h"
#include "operator/runtime/job_key.h"

namespace muster::runtime {
namespace {

/// A deletion may have to be repeated with another grace.
constexpr seconds kDeleteAgainAfter{5};
/// Twice as long each time that it is refused; nothing else of its job waits for that.
constexpr seconds kRefusedAgainAfterLeast{5}, kRefusedAgainAfterMost{60};
constexpr seconds kCreateBackoffLeast{10};
constexpr seconds kCreateBackoffMost{40};  // and up to half of it more
/// For a job whose pods are refused again and again somebody is preempted so rarely.
constexpr seconds kNoPreemptionMost{3600};
/// An API server, or a webhook before it, that takes no pods for so long is told to the job, which
/// lets go of its places until it is tried again.
constexpr seconds kCreateDelayMost{30};
constexpr int kProgressWritesPerSecond = 10;
/// Every worker reports once a second, and a look at a job costs what all its workers cost.
constexpr seconds kProgressLook{1};
constexpr int kScheduleRounds = 3;
constexpr std::size_t kToldChangesMost = 256;
constexpr int kChangesPerMinute = 60;
constexpr seconds kChangesWindow{60};
constexpr seconds kBudgetRetryAfter{300};

std::string message_of(const Status& status) { return status ? "" : status.error().message(); }

Result<JobRecord> parse_record(const Json& json) {
  auto [job, verdict] = api::read_training_job(json);
  if (job.meta.name.empty() || job.meta.uid.empty()) {
    return Error(ErrorCode::kInvalid, "a TrainingJob without name or uid");
  }
  api::ObjectMeta meta = job.meta;
  return JobRecord{std::move(meta), std::move(job), std::move(verdict)};
}

/// Of a node whose newest version cannot be read nobody knows what it has: no further worker comes
/// to it, whatever its job tolerates, and those that are there stay.
bool outdate_node(api::Node& node) {
  bool is_news = !std::exchange(node.unschedulable, true);
  const api::Node::Taint unread{std::string(core::kUnreadTaint), "", "NoSchedule"};
  if (std::find(node.taints.begin(), node.taints.end(), unread) == node.taints.end()) {
    node.taints.push_back(unread);
    is_news = true;
  }
  return is_news;
}

template <typename T>
void tell_unreadable(kube::Store<T>& store, api::Kind kind) {
  for (const auto& [key, why] : store.take_news_of_unreadable()) {
    log_warning("an object cannot be read; what was known of it stays",
                {{"kind", api::info_of(kind).kind}, {"object", key.text()}, {"why", why}});
  }
}

/// By which what was done is known again; empty: it is never left out.
std::string name_of_deed(const core::Action& action) {
  if (const auto* create = std::get_if<core::CreatePod>(&action)) return create->pod.meta.name;
  // Services and groups are not watched: they are seen by their pods alone.
  if (const auto* create = std::get_if<core::CreateService>(&action)) {
    return create->service.meta.name;
  }
  if (const auto* create = std::get_if<core::CreatePodGroup>(&action)) {
    return create->group.meta.name;
  }
  const auto* remove = std::get_if<core::DeletePod>(&action);
  return remove != nullptr ? remove->uid : "";
}

/// That is done alone, and mostly finds that all is well.
bool looks_after_service(const core::Plan& plan) {
  return !plan.empty() && std::holds_alternative<core::KeepService>(plan.actions.front());
}

/// The job a pod says it belongs to.
std::optional<api::ObjectKey> job_of(const api::Pod& pod) {
  if (!pod.is_of_job()) return std::nullopt;
  return api::ObjectKey{pod.meta.namespace_name, pod.meta.controller()->name};
}

/// Those that placement and pods name.
std::set<std::string> named_nodes(const core::JobSnapshot& snapshot) {
  std::set<std::string> names;
  for (const auto& placement : snapshot.job.status.placement) names.insert(placement.node);
  for (const auto& pod : snapshot.pods) names.insert(pod.node_name);
  names.erase("");
  return names;
}

enum class ReportNews { kNone, kProgress, kMore };

/// What a report whose changes are known says more than the one before it: how far the training has
/// come, or more than that.
ReportNews news_of(const ProgressReport& before, ProgressReport now) {
  now.changes = before.changes;
  if (now == before) return ReportNews::kNone;
  now.step = before.step;
  now.epoch = before.epoch;
  now.loss = before.loss;
  now.samples_per_second = before.samples_per_second;
  now.step_seconds = before.step_seconds;
  now.exchange_seconds = before.exchange_seconds;
  now.eta_seconds = before.eta_seconds;
  now.sent_bytes = before.sent_bytes;
  now.logical_rank_computations = before.logical_rank_computations;
  now.parts = before.parts;
  return now == before ? ReportNews::kProgress : ReportNews::kMore;
}

}  // namespace

bool JobRecord::operator==(const JobRecord& other) const {
  return job == other.job && message_of(verdict) == message_of(other.verdict);
}

OperatorLoop::OperatorLoop(LoopOptions options)
    : options_(std::move(options)),
      jobs_(parse_record),
      pods_(api::parse_pod),
      nodes_(api::parse_node, outdate_node),
      volumes_(api::parse_persistent_volume),
      claims_(api::parse_persistent_volume_claim),
      queue_(options_.seed, core::WorkQueueOptions{.observer = options_.metrics}),
      jitter_(options_.seed),
      queue_book_(options_.clock->mono_now()),
      topology_book_(options_.clock->mono_now()),
      is_leader_(options_.is_leader),
      now_(options_.clock->mono_now()),
      next_resync_(now_ + options_.resync),
      progress_window_(now_) {
  know_key();
}

bool OperatorLoop::synced() const {
  const bool sees_nodes = nodes_.synced() || !options_.sees_nodes;
  const bool sees_volumes = (volumes_.synced() && claims_.synced()) || !options_.sees_volumes;
  return jobs_.synced() && pods_.synced() && sees_nodes && sees_volumes;
}

void OperatorLoop::take_trust(WorkerTrust trust) {
  options_.pods.ca_certificate = std::move(trust.ca_bundle);
  if (options_.master_keys == trust.master_keys) return;
  options_.master_keys = std::move(trust.master_keys);
  know_key();
  // Secrets come to one replica later than to another, which may have started gangs meanwhile.
  for (const auto& [key, memory] : memory_) {
    if (memory.gang && !memory.gang->is_key_sure) queue_.add(key);
  }
}

void OperatorLoop::know_key() {
  if (options_.endpoint == nullptr) return;
  const auto id = key_id(options_.master_keys.current);
  // Operator::start has refused a wrong master key, and so does who replaces it.
  MUSTER_CHECK_MSG(id.has_value(), "master key");
  key_id_ = *id;
}

MonoTime OperatorLoop::step() {
  now_ = options_.clock->mono_now();
  if (options_.trust) take_trust(options_.trust());
  for (auto& message : options_.mailbox->drain()) {
    std::visit([this](auto& one) { take(std::move(one)); }, message);
  }
  if (!synced() || !is_leader_) return now_ + seconds(1);
  if (!was_synced_ || now_ >= next_resync_) resync();
  // Before held_ is used, which is not while there are no queues.
  if (!knows_gone_jobs_ && !queue_book_.empty()) know_gone_jobs();
  look_at_turned();
  call_progress_line();
  if (options_.sees_queues && queue_book_.turned_unknown(now_)) schedule_is_old_ = true;
  if (options_.sees_topologies && topology_book_.turned_unknown(now_)) schedule_is_old_ = true;
  if (schedule_due_ && *schedule_due_ <= now_) schedule_is_old_ = true;
  // Looking at jobs tells who waits; the verdicts then are looked at in turn.
  for (int round = 0; round < kScheduleRounds; ++round) {
    if (schedule_is_old_ && schedule_from_ <= options_.clock->mono_now()) run_schedule();
    while (const auto key = queue_.pop(now_)) look_apart_at(*key);
    if (!schedule_is_old_) break;
  }
  if (const auto due = queue_book_.due(); due && *due <= now_) write_queues();
  if (queue_.ready()) return now_;
  MonoTime due = queue_.next_due().value_or(next_resync_);
  // What is not seen never comes, and nothing is due of it.
  if (options_.sees_queues) due = std::min(due, queue_book_.due().value_or(due));
  if (options_.sees_topologies) due = std::min(due, topology_book_.due().value_or(due));
  const MonoTime pass =
      schedule_is_old_ ? std::max(now_, schedule_from_) : schedule_due_.value_or(next_resync_);
  const MonoTime turn = progress_line_.empty() ? next_resync_ : progress_window_ + seconds(1);
  return std::min({due, next_resync_, pass, turn});
}

// ---- What arrives

void OperatorLoop::take(const WatchBatch& batch) {
  take_events(batch);
  if (batch.kind == api::Kind::kTrainingJob) tell_unreadable(jobs_, batch.kind);
  if (batch.kind == api::Kind::kPod) tell_unreadable(pods_, batch.kind);
  if (batch.kind == api::Kind::kNode) tell_unreadable(nodes_, batch.kind);
  if (batch.kind == api::Kind::kPersistentVolume) tell_unreadable(volumes_, batch.kind);
  if (batch.kind == api::Kind::kPersistentVolumeClaim) tell_unreadable(claims_, batch.kind);
}

void OperatorLoop::take_events(const WatchBatch& batch) {
  for (const auto& event : batch.events) {
    switch (batch.kind) {
      case api::Kind::kTrainingJob:
        take_jobs(event);
        break;
      case api::Kind::kPod:
        take_pods(event);
        break;
      case api::Kind::kNode:
        take_nodes(event);
        break;
      case api::Kind::kPersistentVolume:
        if (!volumes_.apply(event).empty()) schedule_is_old_ = true;
        break;
      case api::Kind::kPersistentVolumeClaim:
        if (!claims_.apply(event).empty()) schedule_is_old_ = true;
        break;
      case api::Kind::kService:
      case api::Kind::kEvent:
      case api::Kind::kLease:
      case api::Kind::kTokenReview:
      case api::Kind::kSubjectAccessReview:
      case api::Kind::kPodDisruptionBudget:
      case api::Kind::kPodGroup:
      case api::Kind::kPodGroupV1Alpha2:
      case api::Kind::kWorkload:
      case api::Kind::kWorkloadV1Alpha2:
        break;  // Written, never watched.
      case api::Kind::kTrainingQueue:
      case api::Kind::kPriorityClass:
        take_queues(event, batch.kind);
        break;
      case api::Kind::kTopologyConfig:
      case api::Kind::kKueueTopology:
      case api::Kind::kKaiTopology:
      case api::Kind::kHyperNode:
        if (topology_book_.take(event, batch.kind)) schedule_is_old_ = true;
        break;
      case api::Kind::kKueueWorkload:
        for (const auto& pod : kueue_book_.take(event)) {
          if (const auto job = job_of_pod_.find(pod); job != job_of_pod_.end())
            look_again_at(job->second);
        }
        break;
    }
  }
}

void OperatorLoop::take_jobs(const kube::WatchEvent& event) {
  for (const auto& key : jobs_.apply(event)) {
    look_again_at(key);
    schedule_is_old_ = true;
    queue_book_.touch();
  }
}

void OperatorLoop::take_pods(const kube::WatchEvent& event) {
  for (const auto& key : pods_.apply(event)) {
    reindex_pod(key);
    note_leaving(key);
    inventory_.take_pod(key, pods_.find(key));
    schedule_is_old_ = true;
    queue_book_.touch();
  }
}

void OperatorLoop::take_nodes(const kube::WatchEvent& event) {
  for (const auto& key : nodes_.apply(event)) {
    const api::Node* node = nodes_.find(key);
    // Most of what nodes say is that they are still there.
    using News = core::KeptInventory::News;
    const News news = inventory_.take_node(key.name, node);
    if (news != News::kNothing) schedule_is_old_ = true;
    if (news == News::kPlaces) topology_book_.take_nodes();
    const auto before = seen_nodes_.find(key.name);
    const bool was_seen = before != seen_nodes_.end();
    const bool was_ready = was_seen && before->second.ready;
    const bool is_ready = node != nullptr && node->ready;
    const bool was_any_ready = ready_nodes_ > 0;
    ready_nodes_ += static_cast<int>(is_ready) - static_cast<int>(was_ready);
    // While none is ready, none counts as not ready.
    if (was_any_ready != (ready_nodes_ > 0)) turned_all_ = true;
    SeenNode now;
    if (node != nullptr) now = {is_ready, node->unschedulable, core::who_empties(*node)};
    const bool is_news = node == nullptr || (was_seen && before->second != now);
    if (node == nullptr) {
      seen_nodes_.erase(key.name);
    } else {
      seen_nodes_[key.name] = now;
    }
    if (is_news && is_leader_) turned_nodes_.insert(key.name);
  }
}

/// Whoever has a place or a pod on a node that came, went, turned ready or not, or that somebody
/// began or ceased to empty, must hear of it.
void OperatorLoop::look_at_turned() {
  if (turned_nodes_.empty() && !turned_all_) return;
  update_assumed();
  const auto is_turned = [this](const std::string& node) {
    return turned_all_ || turned_nodes_.contains(node);
  };
  for (const api::ObjectKey& job : may_hold_) {
    const auto& places = jobs_.find(job)->job.status.placement;
    const auto pods = pods_of_job_.find(job);
    const bool is_there =
        std::any_of(places.begin(), places.end(),
                    [&](const api::SlotPlacement& one) { return is_turned(one.node); }) ||
        (pods != pods_of_job_.end() &&
         std::any_of(pods->second.begin(), pods->second.end(), [&](const api::ObjectKey& pod) {
           return is_turned(pods_.find(pod)->node_name);
         }));
    if (is_there) queue_.add(job);
  }
  turned_nodes_.clear();
  turned_all_ = false;
}

void OperatorLoop::reindex_pod(const api::ObjectKey& pod_key) {
  if (const auto old = job_of_pod_.find(pod_key); old != job_of_pod_.end()) {
    look_again_at(old->second);
    const auto pods = pods_of_job_.find(old->second);
    pods->second.erase(pod_key);
    if (pods->second.empty()) pods_of_job_.erase(pods);
    job_of_pod_.erase(old);
  }
  const api::Pod* pod = pods_.find(pod_key);
  if (pod == nullptr) return;
  const auto job = job_of(*pod);
  if (!job) return;
  job_of_pod_[pod_key] = *job;
  pods_of_job_[*job].insert(pod_key);
  look_again_at(*job);
}

/// Who does not lead looks at none, and at all of them when it leads.
void OperatorLoop::look_again_at(const api::ObjectKey& job) {
  if (!is_leader_) return;
  queue_.add(job);
  outdate(job);
}

/// What the job holds, or is about to, may be another thing now.
void OperatorLoop::outdate(const api::ObjectKey& job) {
  assumed_is_old_.insert(job);
  claim_uses_are_old_.insert(job);
}

void OperatorLoop::take(ProgressReport report) {
  const auto slash = report.job.find('/');
  if (slash == std::string::npos) return;
  const api::ObjectKey key{report.job.substr(0, slash), report.job.substr(slash + 1)};
  const JobRecord* record = jobs_.find(key);
  if (record == nullptr || record->job.status.finished()) return;
  // Bounded by what was placed; the last words of a gang that was asked to leave count too.
  // One that stands in for others while nodes are emptied has a slot beyond the size.
  int slots = std::max(record->job.status.target_workers, 1);
  for (const auto& one : record->job.status.placement) slots = std::max(slots, one.slot + 1);
  if (report.slot < 0 || report.slot >= slots) return;
  if (options_.metrics != nullptr) options_.metrics->on_progress(key, report);
  Memory& memory = memory_of(*record);
  const bool has_changes = note_changes(report.changes, memory);
  const auto before = memory.reports.find(report.slot);
  const bool is_new = has_changes || before == memory.reports.end();
  const ReportNews news = is_new ? ReportNews::kMore : news_of(before->second, report);
  const int slot = report.slot;
  memory.reports.insert_or_assign(slot, std::move(report));
  // Who stands still says the same every few seconds, for an operator that has not heard it.
  if (!is_leader_ || news == ReportNews::kNone) return;
  // Either is no reason to try a write again of which the API server says when.
  if (news == ReportNews::kProgress) {
    queue_.add_at(key, now_ + kProgressLook);
  } else {
    queue_.add_after_back_off(key, now_);
  }
}

/// Every worker tells of a change; it is news once. Of more than so many a minute only their number
/// is told, when the minute is over. Whether any was news.
bool OperatorLoop::note_changes(const std::vector<MembershipChange>& changes,
                                Memory& memory) const {
  bool has_news = false;
  if (now_ - memory.changes_window >= kChangesWindow) {
    memory.changes_window = now_;
    memory.changes_in_window = 0;
  }
  for (const auto& change : changes) {
    std::string name =
        std::to_string(change.epoch) + "/" + std::to_string(change.slot) + "/" + change.kind;
    // A stranger has no slot, and its address stands in the reason.
    if (change.kind == contract::change::kStranger) name += "/" + change.reason;
    // Training may go back more than once without a new membership.
    if (change.kind == contract::change::kReturned) name += "/" + std::to_string(change.step);
    auto& told = memory.told_changes;
    if (std::find(told.begin(), told.end(), name) != told.end()) continue;
    has_news = true;
    told.push_back(name);
    if (told.size() > kToldChangesMost) told.pop_front();
    if (memory.changes_in_window < kChangesPerMinute) {
      ++memory.changes_in_window;
      memory.changes.push_back(change);
      continue;
    }
    ++memory.changes_untold;
    memory.untold_due = memory.changes_window + kChangesWindow;
  }
  return has_news;
}

/// A plan's events are put when all of it was carried out, and workers tell of a change that is
/// known here no second time.
void OperatorLoop::settle_changes(bool told, Memory& memory) {
  const auto telling = std::exchange(memory.telling, {});
  const std::size_t untold = std::exchange(memory.telling_untold, 0);
  if (told) return;
  auto& changes = memory.changes;
  changes.insert(changes.begin(), telling.begin(), telling.end());
  const std::size_t over = changes.size() - std::min(changes.size(), kToldChangesMost);
  changes.erase(changes.begin(), changes.begin() + static_cast<std::ptrdiff_t>(over));
  memory.changes_untold += untold + over;
}

void OperatorLoop::take(Lead) {
  if (std::exchange(is_leader_, true)) return;
  for (const auto& [key, record] : jobs_.all()) outdate(key);
}

void OperatorLoop::take(WitnessPost post) {
  const auto slash = post.request.job.find('/');
  const JobRecord* record =
      slash == std::string::npos
          ? nullptr
          : jobs_.find({post.request.job.substr(0, slash), post.request.job.substr(slash + 1)});
  if (!is_leader_ || !synced() || record == nullptr) {
    return post.answer(Error(ErrorCode::kUnavailable, "the operator is not ready; ask again"));
  }
  // At most one a slot, and the endpoint lets only the gang's own slots ask.
  auto& waiting = memory_of(*record).questions;
  if (const auto earlier = waiting.find(post.request.slot); earlier != waiting.end()) {
    earlier->second.answer(Error(ErrorCode::kUnavailable, "another question came after this one"));
    waiting.erase(earlier);
  }
  const int slot = post.request.slot;
  waiting.emplace(slot, std::move(post));
  queue_.add(record->meta.key());
}

void OperatorLoop::drop_questions(Memory& memory, const std::string& why) {
  const Error error(ErrorCode::kUnavailable, why);
  for (auto& [slot, post] : memory.questions) post.answer(error);
  memory.questions.clear();
  if (memory.granting) memory.granting->second(error);
  memory.granting.reset();
}

bool OperatorLoop::answer_witness(const JobRecord& record, const core::JobSnapshot& snapshot,
                                  Memory& memory) {
  while (!memory.questions.empty()) {
    WitnessPost post = std::move(memory.questions.begin()->second);
    memory.questions.erase(memory.questions.begin());
    core::WitnessVerdict verdict = core::decide_witness(snapshot, post.request);
    if (verdict.plan) {
      // The other questions are looked at when this one is stored.
      if (!memory.questions.empty()) queue_.add(record.meta.key());
      memory.granting.emplace(std::move(verdict.response), std::move(post.answer));
      hand_over(record, std::move(*verdict.plan), memory);
      return true;
    }
    post.answer(std::move(verdict.response));
  }
  return false;
}

void OperatorLoop::take(ApplyDone done) {
  if (done.key.namespace_name.empty()) return queue_book_.take(done, now_);
  queue_.done(done.key);
  if (options_.metrics != nullptr) {
    if (!done.version_after.empty()) options_.metrics->on_status_written(done.pass);
    options_.metrics->on_reconciled(done.status ? ReconcileResult::kSuccess
                                                : ReconcileResult::kError);
  }
  const auto found = memory_.find(done.key);
  if (found == memory_.end() || found->second.uid != done.uid) return;
  Memory& memory = found->second;
  if (memory.granting) {
    auto [response, answer] = *std::exchange(memory.granting, std::nullopt);
    if (done.status) {
      answer(std::move(response));
    } else {
      answer(Error(ErrorCode::kUnavailable, "the API server did not take it; ask again"));
    }
  }
  const bool is_done = done.status || done.only_deletions_refused;
  settle_changes(is_done, memory);
  note_deeds(done, memory);
  if (done.budget) {
    memory.budget = done.budget;
    memory.budget_seen_at = now_;
  }
  if (done.budget_failed) {
    memory.budget_retry_at = now_ + kBudgetRetryAfter;
    queue_.add_at(done.key, memory.budget_retry_at);
  }
  if (!done.version_after.empty() && done.version_after != done.version_before) {
    memory.unseen = Unseen{done.version_before, now_};
  }
  if (is_done) {
    if (!done.created.empty()) memory.create_delayed_since.reset();
    queue_.forget(done.key);
    if (memory.unseen) queue_.add_at(done.key, now_ + kUnseenMost);
    // The job is to say so, and when it is tried again comes of the look.
    if (!done.status) queue_.add(done.key);
    return;
  }
  drop_decided_places(done, memory);
  outdate(done.key);
  schedule_is_old_ = true;
  drop_wish_beside_places(done.key);
  const Error& error = done.status.error();
  log_warning("a plan was not carried out", {{"job", done.key.text()}, {"error", error.message()}});
  if (done.create_delay) {
    // What had no answer has been waited for since then.
    const bool is_late = error.code() == ErrorCode::kDeadlineExceeded;
    const MonoTime since = is_late ? memory.handed_over_at : now_;
    if (!memory.create_delayed_since) memory.create_delayed_since = since;
    const bool goes_on = now_ - *memory.create_delayed_since >= kCreateDelayMost;
    if (goes_on) done.create_failure = std::move(done.create_delay);
  }
  if (done.create_failure) {
    const int doublings = std::min(memory.create_failures++, 10);
    memory.create_failure = std::move(done.create_failure);
    note_refused_start(memory);
    const seconds least = std::min(kCreateBackoffLeast * (1 << doublings), kCreateBackoffMost);
    // Two gangs that took what the other lacked, as of a quota, are not to do so again and again.
    const auto spread = static_cast<std::uint64_t>(milliseconds(least).count() / 2);
    memory.create_failure_until = now_ + least + milliseconds(jitter_.below(spread));
    queue_.add(done.key);
    queue_.add_at(done.key, memory.create_failure_until);
    return;
  }
  queue_.add_backed_off(done.key, now_, seconds(error.retry_after_seconds()));
  leave_progress_line(done.key);
}

void OperatorLoop::note_deeds(const ApplyDone& done, Memory& memory) const {
  for (const auto& name : done.created) {
    memory.acted.insert_or_assign(name, now_ + options_.create_again_after);
  }
  for (const auto& uid : done.deleted) {
    memory.refusals.erase(uid);
    memory.acted.insert_or_assign(uid, now_ + kDeleteAgainAfter);
  }
  for (const auto& [uid, why] : done.deletions_refused) {
    log_warning("a pod may not be deleted", {{"job", done.key.text()}, {"error", why}});
    Refusal& refusal = memory.refusals[uid];
    const int doublings = std::min(refusal.times++, 10);
    refusal.why = why;
    const seconds again =
        std::min(kRefusedAgainAfterLeast * (1 << doublings), kRefusedAgainAfterMost);
    memory.acted.insert_or_assign(uid, now_ + again);
  }
}

// ---- Looking at one job

OperatorLoop::Memory& OperatorLoop::memory_of(const JobRecord& record) {
  Memory& memory = memory_[record.meta.key()];
  if (memory.uid != record.meta.uid) {
    if (memory.gang && options_.endpoint != nullptr) {
      options_.endpoint->remove_gang(memory.gang->job);
    }
    drop_questions(memory, "the job is another one now");
    if (memory.decided_places) outdate(record.meta.key());
    memory = Memory{};
    memory.uid = record.meta.uid;
    // A new leader has other things to do than to ask for every Service there is.
    memory.service_due = now_ + options_.resync;
  }
  return memory;
}

void OperatorLoop::forget(const api::ObjectKey& key) {
  const auto found = memory_.find(key);
  if (found != memory_.end()) {
    if (found->second.gang && options_.endpoint != nullptr) {
      options_.endpoint->remove_gang(found->second.gang->job);
    }
    drop_questions(found->second, "the job is gone");
    memory_.erase(found);
  }
  if (options_.metrics != nullptr) options_.metrics->on_job_gone(key);
  waiting_.erase(key);
  verdicts_.erase(key);
  outdate(key);
  queue_.forget(key);
  leave_progress_line(key);
}

bool OperatorLoop::is_unseen(const JobRecord& record, Memory& memory) {
  if (!memory.unseen) return false;
  const bool seen = record.meta.resource_version != memory.unseen->version_before;
  if (seen || now_ - memory.unseen->since >= kUnseenMost) {
    memory.unseen.reset();
    if (memory.decided_places) outdate(record.meta.key());
    memory.decided_places.reset();
    return false;
  }
  return true;
}

core::JobSnapshot OperatorLoop::snapshot_of(const JobRecord& record, const Memory& memory) const {
  const api::ObjectKey key = record.meta.key();
  core::JobSnapshot snapshot;
  snapshot.job = record.job;
  snapshot.spec_verdict = record.verdict;
  if (const auto pods = pods_of_job_.find(key); pods != pods_of_job_.end()) {
    for (const auto& pod : pods->second) snapshot.pods.push_back(*pods_.find(pod));
  }
  const auto verdict = verdicts_.find(key);
  if (verdict != verdicts_.end()) snapshot.gang = verdict->second;
  const auto taken = taken_.find(key);
  if (taken != taken_.end()) snapshot.take_back = taken->second;
  snapshot.reports = memory.reports;
  snapshot.changes = memory.changes;
  if (now_ >= memory.untold_due) snapshot.changes_untold = memory.changes_untold;
  if (options_.sees_nodes) add_nodes(snapshot);
  if (options_.prices != nullptr) add_prices(snapshot);
  snapshot.create_failure = memory.create_failure;
  // Nobody watches budgets, and others write them: a leader before this one, late, or a user.
  const bool is_doubted =
      memory.budget.value_or(0) > 0 && now_ - memory.budget_seen_at >= options_.resync;
  snapshot.budget = is_doubted ? core::kBudgetUnsure : memory.budget;
  snapshot.budget_failed = now_ < memory.budget_retry_at;
  snapshot.service_is_doubted = now_ >= memory.service_due;
  snapshot.kueue_says = kueue_book_.says(record.job);
  snapshot.gone_queue = "";  // Where no queues are in force a job is in none.
  if (options_.sees_queues) {
    snapshot.queue = queue_book_.queue_of(record.job);
    snapshot.gone_queue = queue_book_.gone_queue_of(record.job);
  }
  snapshot.now = options_.clock->wall_now();
  snapshot.start_timeout = options_.pod_start_timeout;
  snapshot.pod_options = options_.pods;
  snapshot.key_id = key_id_;
  return snapshot;
}

void OperatorLoop::add_nodes(core::JobSnapshot& snapshot) const {
  snapshot.ready_nodes = ready_nodes_;
  for (const std::string& name : named_nodes(snapshot)) {
    const api::Node* node = nodes_.find({"", name});
    if (node == nullptr) {
      snapshot.gone_nodes.insert(name);
      continue;
    }
    if (!node->ready && ready_nodes_ > 0) snapshot.not_ready_nodes.insert(name);
    std::string emptied_by = core::who_empties(*node);
    if (node->unschedulable || !emptied_by.empty()) snapshot.unschedulable_nodes.insert(name);
    if (!emptied_by.empty()) snapshot.emptied_by.emplace(name, std::move(emptied_by));
  }
}

void OperatorLoop::add_prices(core::JobSnapshot& snapshot) const {
  snapshot.prices = options_.prices;
  snapshot.sees_nodes = options_.sees_nodes;
  std::set<std::string> names = named_nodes(snapshot);
  if (snapshot.gang && snapshot.gang->placement) {
    const auto& wanted = snapshot.gang->placement->node_of_slot;
    names.insert(wanted.begin(), wanted.end());
  }
  for (const std::string& name : names) {
    const api::Node* node = nodes_.find({"", name});
    if (node != nullptr) snapshot.priced_nodes.emplace(name, node);
  }
}

void OperatorLoop::time_facts(core::JobSnapshot& snapshot, Memory& memory) const {
  std::map<std::string, MonoTime> facts;
  for (const auto& [fact, already] : core::lasting_facts(snapshot)) {
    const auto before = memory.facts.find(fact);
    // The clocks of others are asked once, for what was so before this operator looked.
    const MonoTime first = memory.has_timed ? now_ : now_ - already;
    const MonoTime since = before == memory.facts.end() ? first : before->second;
    facts.emplace(fact, since);
    snapshot.lasted.emplace(fact, std::chrono::floor<seconds>(now_ - since));
  }
  memory.facts = std::move(facts);
  memory.has_timed = true;
}

void OperatorLoop::add_pods_verdict(core::JobSnapshot& snapshot, Memory& memory) const {
  if (!core::is_served(snapshot) || snapshot.job.status.finished()) return;
  if (memory.pods_verdict_of != snapshot.job.meta.generation) {
    memory.pods_verdict = core::pods_verdict(snapshot);
    memory.pods_verdict_of = snapshot.job.meta.generation;
  }
  if (options_.checks_inventory) {
    MUSTER_CHECK(memory.pods_verdict->has_value() == core::pods_verdict(snapshot).has_value());
  }
  snapshot.pods_verdict = memory.pods_verdict;
}

/// Nodes that refused a pod are left out for a while, then tried again.
void OperatorLoop::note_avoided(const core::JobSnapshot& snapshot, const core::Plan& plan,
                                Memory& memory) {
  if (memory.avoid.end_those_over(now_)) schedule_is_old_ = true;
  if (!memory.avoid.empty()) {
    std::vector<AvoidedNodes::Run> runs;
    for (const core::Member& member : core::view_gang(snapshot).members) {
      if (member.state != core::MemberState::kRunning) continue;
      runs.push_back({member.pod->node_name, member.placement.attempt});
    }
    const auto is_there = [&](const std::string& node) {
      return !options_.sees_nodes || nodes_.find({"", node}) != nullptr;
    };
    memory.avoid.forget(runs, is_there, now_);
  }
  if (memory.avoid.add(plan.avoid, now_)) note_refused_start(memory);
  if (const auto end = memory.avoid.next_end()) queue_.add_at(snapshot.job.meta.key(), *end);
}

/// Whoever has given way for it is spared as long the first time.
void OperatorLoop::note_refused_start(Memory& memory) const {
  // While nobody is preempted for it, no refusal costs another one its work.
  if (now_ < memory.preempts_from) return;
  const int doublings = std::min(memory.refused_starts++, 10);
  memory.preempts_from =
      now_ + std::min<seconds>(core::words::kSparedFor * (1 << doublings), kNoPreemptionMost);
}

/// Drops what was done a moment ago and only is not seen yet. After a while it is done again: names
/// and uids make the repetition harmless, and memory alone must never hold a job up.
void OperatorLoop::drop_repeats(core::Plan& plan, Memory& memory) const {
  std::erase_if(memory.acted, [&](const auto& entry) { return now_ >= entry.second; });
  std::erase_if(plan.actions, [&](const core::Action& action) {
    const auto done = memory.acted.find(name_of_deed(action));
    if (done == memory.acted.end()) return false;
    const seconds again = std::chrono::ceil<seconds>(done->second - now_);
    plan.requeue_after = std::min(plan.requeue_after.value_or(again), again);
    return true;
  });
}

/// Nobody waits any more for pods that are gone, that leave after all, or that are to stay.
void OperatorLoop::add_refusals(core::JobSnapshot& snapshot, Memory& memory) {
  if (memory.refusals.empty()) return;
  const std::set<std::string> unwanted = core::unwanted_pods(snapshot);
  std::erase_if(memory.refusals, [&](const auto& one) { return !unwanted.contains(one.first); });
  if (!memory.refusals.empty()) snapshot.deletion_refused = memory.refusals.begin()->second.why;
}

/// Those whose turn it is are looked at, and no other for that: of thousands that train, most wait
/// for minutes.
void OperatorLoop::call_progress_line() {
  if (now_ - progress_window_ < seconds(1)) return;
  progress_window_ = now_;
  progress_writes_ = 0;
  int left = kProgressWritesPerSecond;
  for (auto next = progress_line_.begin(); left > 0 && next != progress_line_.end(); ++next) {
    // It may be in hand, and fail.
    queue_.add_after_back_off(next->second, now_);
    --left;
  }
}

/// Whether it is the job's turn, or would be if it stood in the line.
bool OperatorLoop::is_in_turn(const api::ObjectKey& key) const {
  const auto ticket = progress_tickets_.find(key);
  int left = kProgressWritesPerSecond - progress_writes_;
  for (auto first = progress_line_.begin(); left > 0 && first != progress_line_.end(); ++first) {
    if (ticket != progress_tickets_.end() && first->first == ticket->second) return true;
    --left;
  }
  return left > 0;
}

bool OperatorLoop::has_progress_turn(const api::ObjectKey& key) {
  if (is_in_turn(key)) {
    leave_progress_line(key);
    ++progress_writes_;
    return true;
  }
  const auto [ticket, is_new] = progress_tickets_.try_emplace(key, next_progress_ticket_);
  if (is_new) progress_line_.emplace(next_progress_ticket_++, key);
  return false;
}

void OperatorLoop::leave_progress_line(const api::ObjectKey& key) {
  const auto ticket = progress_tickets_.find(key);
  if (ticket == progress_tickets_.end()) return;
  progress_line_.erase(ticket->second);
  progress_tickets_.erase(ticket);
}

void OperatorLoop::look_at(const api::ObjectKey& key) {
  const JobRecord* record = jobs_.find(key);
  if (record == nullptr) {
    forget(key);
    update_claim_uses();
    queue_.done(key);
    return;
  }
  Memory& memory = memory_of(*record);
  if (is_unseen(*record, memory)) {
    leave_progress_line(key);
    queue_.done(key);
    queue_.add_at(key, memory.unseen->since + kUnseenMost);
    return;
  }
  if (memory.create_failure && now_ >= memory.create_failure_until) memory.create_failure.reset();
  tell_metrics(*record);
  core::JobSnapshot snapshot = snapshot_of(*record, memory);
  add_claim_of(snapshot);
  add_refusals(snapshot, memory);
  // A step is foretold with progress that is written alone, for that asks all nodes.
  const bool may_tell = !snapshot.reports.empty() && !core::is_recent(snapshot) && is_in_turn(key);
  if (options_.sees_nodes && may_tell) {
    snapshot.topology = topology_of_forecast();
  }
  add_pods_verdict(snapshot, memory);
  time_facts(snapshot, memory);
  update_endpoint(*record, memory);
  note_waiting(key, snapshot, memory);
  if (!verdicts_.contains(key)) snapshot.gang.reset();
  if (answer_witness(*record, snapshot, memory)) return;
  core::Plan plan = core::reconcile(snapshot);
  note_avoided(snapshot, plan, memory);
  drop_repeats(plan, memory);
  if (memory.changes_untold > snapshot.changes_untold) queue_.add_at(key, memory.untold_due);
  if (memory.create_failure) queue_.add_at(key, memory.create_failure_until);
  if (plan.requeue_after) queue_.add_at(key, now_ + *plan.requeue_after);
  if (plan.pass != core::Pass::kProgress) {
    leave_progress_line(key);
  } else if (queue_.backs_off(key, now_)) {
    plan = core::without_progress(snapshot, std::move(plan));
    queue_.add_after_back_off(key, now_);
  } else if (!has_progress_turn(key)) {
    plan = core::without_progress(snapshot, std::move(plan));
  }
  memory.changes_untold -= snapshot.changes_untold;
  if (plan.empty()) {
    queue_.done(key);
    if (options_.metrics != nullptr) {
      options_.metrics->on_reconciled(plan.requeue_after ? ReconcileResult::kRequeueAfter
                                                         : ReconcileResult::kSuccess);
    }
    return;
  }
  memory.telling = std::exchange(memory.changes, {});
  memory.telling_untold = snapshot.changes_untold;
  hand_over(*record, std::move(plan), memory);
}

void OperatorLoop::tell_metrics(const JobRecord& record) {
  if (options_.metrics == nullptr) return;
  if (record.job.spec.managed_by == contract::kManagedBy) {
    const std::string& queue = queue_book_.queue_of(record.job);
    options_.metrics->on_job(record.job,
                             queue_book_.has(queue) ? std::string_view(queue) : std::string_view());
    if (const auto& cost = record.job.status.cost) {
      // Status is written when something else is; the metric is as young as the last look.
      options_.metrics->on_cost(
          record.meta.key(), core::cost_until(*cost, options_.prices, options_.clock->wall_now()));
    }
  } else {
    options_.metrics->on_job_gone(record.meta.key());
  }
}

void OperatorLoop::hand_over(const JobRecord& record, core::Plan plan, Memory& memory) {
  const api::ObjectKey key = record.meta.key();
  memory.decided_places.reset();
  memory.handed_over_at = now_;
  outdate(key);
  for (const auto& action : plan.actions) {
    const auto* patch = std::get_if<core::PatchStatus>(&action);
    if (patch == nullptr || plan.pass != core::Pass::kDecision) continue;
    const auto& places = patch->status.placement;
    memory.decided_places = places;
    memory.decided_size = core::sized_workers(record.job, patch->status).size;
    // A pass that sees this write comes before the look at it, and would give its room to others.
    // Who lets go of it for others writes another phase, though it ran once.
    if (places.empty() && patch->status.phase == core::words::kPhaseRestarting) {
      core::PlaceWish again;
      again.uid = record.meta.uid;
      again.generation = record.meta.generation;
      again.not_yet = true;
      waiting_.insert_or_assign(key, std::move(again));
      verdicts_.erase(key);
    }
    const bool takes = std::any_of(places.begin(), places.end(), [&](const auto& placement) {
      return !has_placement(record.job.status, placement);
    });
    if (!takes) continue;
    waiting_.erase(key);
    verdicts_.erase(key);
  }
  const bool creates = std::any_of(
      plan.actions.begin(), plan.actions.end(),
      [](const auto& action) { return std::holds_alternative<core::CreatePod>(action); });
  // Between two tries nothing is made either.
  const bool lacks_none = !creates && !memory.create_failure;
  if (lacks_none && record.job.status.is_true(std::string(core::words::kRunning))) {
    memory.create_failures = memory.refused_starts = 0;
    memory.preempts_from = {};
    memory.create_delayed_since.reset();
  }
  if (looks_after_service(plan)) {
    memory.service_due = now_ + options_.resync;
  } else if (plan.pass != core::Pass::kProgress) {
    log_info("a plan", {{"job", key.text()},
                        {"reason", plan.reason},
                        {"actions", static_cast<std::int64_t>(plan.actions.size())}});
  }
  options_.executor->execute(Work{key, record.meta.uid, std::move(plan),
                                  options_.reporting_instance,
                                  options_.pods.host_network_namespaces});
}

// ---- The workers' endpoint

void OperatorLoop::update_endpoint(const JobRecord& record, Memory& memory) {
  if (options_.endpoint == nullptr) return;
  const api::TrainingJob& job = record.job;
  const api::ObjectKey key = record.meta.key();
  const bool foreign = job.spec.managed_by != contract::kManagedBy;
  if (job.status.placement.empty() || job.status.finished() || foreign) {
    // A gang that was asked to leave may report until its last pod is gone.
    const bool leaving = !job.status.finished() && pods_of_job_.contains(key);
    if (memory.gang && !leaving) {
      options_.endpoint->remove_gang(memory.gang->job);
      memory.gang.reset();
    }
    return;
  }
  GangInfo gang;
  gang.job = key.text();
  gang.job_uid = job.meta.uid;
  gang.epoch = job.status.membership_epoch;
  gang.start_attempt = job.status.start_attempt;
  for (const auto& placement : job.status.placement) {
    gang.attempt_of_slot[placement.slot] = placement.attempt;
    if (placement.checks_data) gang.checking_slots.insert(placement.slot);
    const std::string pod_name = api::pod_name(job, placement.slot, placement.attempt);
    const api::Pod* pod = pods_.find({key.namespace_name, pod_name});
    // Anybody may make a pod of this name; ours alone is this job's.
    if (pod != nullptr && core::is_owned(*pod, job)) {
      gang.pod_of_slot[placement.slot] = {pod_name, pod->meta.uid};
    }
  }
  const bool same = memory.gang && memory.gang->epoch == gang.epoch &&
                    memory.gang->start_attempt == gang.start_attempt &&
                    memory.gang->attempt_of_slot == gang.attempt_of_slot &&
                    memory.gang->pod_of_slot == gang.pod_of_slot;
  if (same && memory.gang->is_key_sure) return;
  const std::string& master_key = key_of(options_.master_keys, job.status.key_id);
  const auto id = key_id(master_key);
  const auto secret = job_key(master_key, job.meta.uid);
  MUSTER_CHECK_MSG(id.has_value() && secret.has_value(), "job key");
  gang.is_key_sure = *id == job.status.key_id;
  if (same && !gang.is_key_sure) return;
  gang.job_key = *secret;
  gang.processes = job.spec.worker.processes;
  gang.threads = job.spec.worker.threads;
  if (job.spec.training) {
    api::TrainingSpec training = *job.spec.training;
    training.split = api::split_of(job);
    gang.training = dump_json(api::training_to_json(training));
  }
  memory.gang = gang;
  memory.gang->job_key.clear();
  memory.gang->training.clear();
  options_.endpoint->set_gang(std::move(gang));
}

}  // namespace muster::runtime
