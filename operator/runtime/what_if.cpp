#include "operator/runtime/what_if.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>

#include "common/check.h"
#include "operator/api/training_queue.h"
#include "operator/core/status_edit.h"
#include "operator/core/step_forecast.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::runtime {
namespace {

constexpr std::array kWatched{api::Kind::kTrainingJob,
                              api::Kind::kPod,
                              api::Kind::kNode,
                              api::Kind::kPersistentVolume,
                              api::Kind::kPersistentVolumeClaim,
                              api::Kind::kTrainingQueue,
                              api::Kind::kPriorityClass,
                              api::Kind::kTopologyConfig,
                              api::Kind::kKueueTopology,
                              api::Kind::kKaiTopology,
                              api::Kind::kHyperNode};

/// Nothing is missed here, so nothing has to be looked at again soon.
constexpr seconds kResync{24 * 3600};
/// However far is looked ahead, a pod that is starting has its place, as nobody here starts it, and
/// one that is only implied is not missed.
constexpr seconds kNever{10LL * 365 * 24 * 3600};
/// Turns of the loop in one run(): a bound, far above what any cluster takes.
constexpr int kMostTurns = 100'000;
/// Of a model whose step is foretold.
constexpr double kMostParameters = 1e15;

std::optional<api::Kind> watched_kind_of(const Json& object) {
  const std::string kind = text_at(object, {"kind"});
  const std::string api_version = text_at(object, {"apiVersion"});
  for (const api::Kind one : kWatched) {
    const api::KindInfo& info = api::info_of(one);
    if (kind == info.kind && api_version == info.api_version) return one;
  }
  return std::nullopt;
}

/// An empty name: it has none.
api::ObjectKey key_of(const Json& object) {
  return {text_at(object, {"metadata", "namespace"}), text_at(object, {"metadata", "name"})};
}

bool belongs_to(const Json& pod, const std::string& uid) {
  const Json& owners = member(pod, {"metadata", "ownerReferences"});
  return owners.is_array() && std::any_of(owners.begin(), owners.end(), [&](const Json& owner) {
           return owner.is_object() && text_at(owner, {"uid"}) == uid;
         });
}

/// Whether the pod is deleted, and should not have been gone long ago.
bool leaves_in_time(const Json& pod, WallTime now) {
  const auto gone_at = parse_time(text_at(pod, {"metadata", "deletionTimestamp"}));
  return gone_at && now - *gone_at <= core::words::kOverdue;
}

/// Whether a worker of both computes the same in a step, where as many train.
bool computes_alike(const api::TrainingJobSpec& a, const api::TrainingJobSpec& b) {
  const auto training = [](const api::TrainingSpec& one) {
    return std::tie(one.algorithm, one.mode, one.logical_ranks, one.batch_size,
                    one.micro_batch_size, one.model, one.data, one.optimizer_state, one.buddies,
                    one.activations, one.precision, one.parallelism_mode, one.split);
  };
  const auto worker = [](const api::WorkerSpec& one) {
    return std::tie(one.processes, one.threads, one.resources);
  };
  return a.training && b.training && training(*a.training) == training(*b.training) &&
         worker(a.worker) == worker(b.worker);
}

/// Whether its newest steps were divided among so many. Of a job that is over nobody trains any
/// more; while members lack in another, each that trains computes more than its part.
bool has_trained_with(const api::TrainingJobStatus& status, int workers) {
  if (status.target_workers != workers) return false;
  return status.finished() || status.replicas == workers;
}

}  // namespace

bool is_of_kind(const Json& object, std::string_view kind) {
  return text_at(object, {"kind"}) == kind;
}

std::vector<api::Node> nodes_among(const std::vector<Json>& objects) {
  std::vector<api::Node> nodes;
  for (const Json& object : objects) {
    if (!is_of_kind(object, "Node")) continue;
    if (auto node = api::parse_node(object)) nodes.push_back(std::move(node).value());
  }
  return nodes;
}

std::optional<WallTime> deadline_of(const api::TrainingJob& job) {
  const auto& start = job.status.start_time;
  const auto left = start ? core::deadline_left(job, *start) : std::nullopt;
  return left ? std::optional(*start + *left) : std::nullopt;
}

WhatIf::WhatIf(WallTime now, NewPods new_pods, const api::PriceList* prices)
    : new_pods_(new_pods),
      prices_(prices),
      clock_(now),
      mailbox_(std::numeric_limits<std::size_t>::max()),
      loop_(loop_options()) {}

LoopOptions WhatIf::loop_options() {
  LoopOptions options;
  options.clock = &clock_;
  options.mailbox = &mailbox_;
  options.executor = &hands_;
  options.pods.default_image = "muster-worker";
  // Whose it is to say is told to operators and stands in no object.
  options.pods.host_network_namespaces = {"*"};
  options.sees_volumes = true;
  options.sees_queues = true;
  options.sees_topologies = true;
  options.resync = kResync;
  options.pod_start_timeout = kNever;
  if (new_pods_ == NewPods::kImplied) options.create_again_after = kNever;
  options.prices = prices_;
  return options;
}

bool WhatIf::put(Json object) {
  if (!object.is_object()) return false;
  const auto kind = watched_kind_of(object);
  api::ObjectKey key = key_of(object);
  if (!kind || key.name.empty()) return false;
  if (*kind == api::Kind::kPod && leaves_in_time(object, now())) {
    remove(*kind, key);
    return true;
  }
  if (has_begun_) tell(*kind, kube::WatchEvent::Type::kApply, object);
  objects_[*kind].insert_or_assign(std::move(key), std::move(object));
  return true;
}

void WhatIf::remove(api::Kind kind, const api::ObjectKey& key) {
  const auto found = objects_[kind].find(key);
  if (found == objects_[kind].end()) return;
  if (has_begun_) tell(kind, kube::WatchEvent::Type::kDelete, found->second);
  objects_[kind].erase(found);
}

void WhatIf::end_job(const api::ObjectKey& job) {
  const auto found = objects_[api::Kind::kTrainingJob].find(job);
  if (found == objects_[api::Kind::kTrainingJob].end()) return;
  const std::string uid = text_at(found->second, {"metadata", "uid"});
  std::vector<api::ObjectKey> pods;
  for (const auto& [key, pod] : objects_[api::Kind::kPod]) {
    if (belongs_to(pod, uid)) pods.push_back(key);
  }
  for (const auto& pod : pods) remove(api::Kind::kPod, pod);
  remove(api::Kind::kTrainingJob, job);
}

void WhatIf::report(ProgressReport report) { MUSTER_CHECK(mailbox_.try_post(std::move(report))); }

void WhatIf::tell(api::Kind kind, kube::WatchEvent::Type type, const Json& object) {
  WatchBatch batch{kind, {}};
  batch.events.push_back({type, object});
  MUSTER_CHECK(mailbox_.try_post(std::move(batch)));
}

void WhatIf::begin() {
  using Type = kube::WatchEvent::Type;
  has_begun_ = true;
  for (const api::Kind kind : kWatched) {
    WatchBatch batch{kind, {{Type::kInitStart, nullptr}}};
    for (const auto& [key, object] : objects_[kind]) {
      batch.events.push_back({Type::kInitApply, object});
    }
    batch.events.push_back({Type::kInitDone, nullptr});
    MUSTER_CHECK(mailbox_.try_post(std::move(batch)));
  }
}

int WhatIf::run(nanoseconds time, bool ends_with_write) {
  if (!has_begun_) begin();
  const MonoTime end = clock_.mono_now() + time;
  for (int turn = 1; turn <= kMostTurns; ++turn) {
    const MonoTime due = loop_.step();
    if (work() || due <= clock_.mono_now()) continue;
    if (ends_with_write && !written_.empty()) return turn;
    clock_.advance(std::min(due, end) - clock_.mono_now());
    if (due > end) return turn;
  }
  return kMostTurns;
}

bool WhatIf::work() {
  const bool had_any = !hands_.works.empty();
  for (auto works = std::exchange(hands_.works, {}); Work & one : works) apply(std::move(one));
  return had_any;
}

void WhatIf::apply(Work work) {
  ApplyDone done;
  done.key = work.key;
  done.uid = work.uid;
  done.pass = work.plan.pass;
  for (const core::Action& action : work.plan.actions) {
    if (const auto* patch = std::get_if<core::PatchStatus>(&action)) {
      write_status(api::Kind::kTrainingJob, patch->key, patch->patch, done);
    } else if (const auto* queue = std::get_if<core::PatchQueueStatus>(&action)) {
      write_status(api::Kind::kTrainingQueue, queue->key, queue->patch, done);
    } else if (const auto* gone = std::get_if<core::DeletePod>(&action)) {
      remove(api::Kind::kPod, gone->key);
      done.deleted.push_back(gone->uid);
    } else if (const auto* over = std::get_if<core::DeleteJob>(&action)) {
      end_job(over->key);
    } else if (const auto* made = std::get_if<core::CreatePod>(&action)) {
      if (new_pods_ == NewPods::kRun) create(made->pod);
      done.created.push_back(made->pod.meta.name);
    } else if (const auto* service = std::get_if<core::CreateService>(&action)) {
      done.created.push_back(service->service.meta.name);
    } else if (const auto* group = std::get_if<core::CreatePodGroup>(&action)) {
      done.created.push_back(group->group.meta.name);
    }
  }
  MUSTER_CHECK(mailbox_.try_post(std::move(done)));
}

void WhatIf::create(const api::Pod& pod) {
  Json object = api::to_json(pod);
  const std::string number = std::to_string(++writes_);
  object["metadata"]["uid"] = object["metadata"]["resourceVersion"] = "what-if-" + number;
  object["metadata"]["creationTimestamp"] = format_time(now());
  object["spec"]["nodeName"] = pod.required_node;
  object["status"] = Json{{"phase", "Running"},
                          {"podIP", "10.0.0.1"},
                          {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}};
  put(std::move(object));
}

void WhatIf::write_status(api::Kind kind, const api::ObjectKey& key, const Json& patch,
                          ApplyDone& done) {
  const auto found = objects_[kind].find(key);
  if (found == objects_[kind].end()) return;
  Json& object = found->second;
  done.version_before = text_at(object, {"metadata", "resourceVersion"});
  if (patch.contains("status")) object["status"].merge_patch(patch["status"]);
  object["metadata"]["resourceVersion"] = "what-if-" + std::to_string(++writes_);
  done.version_after = text_at(object, {"metadata", "resourceVersion"});
  if (kind == api::Kind::kTrainingJob) written_.insert(key);
  tell(kind, kube::WatchEvent::Type::kApply, object);
}

std::map<api::ObjectKey, api::TrainingJob> WhatIf::jobs() const {
  std::map<api::ObjectKey, api::TrainingJob> jobs;
  const auto all = objects_.find(api::Kind::kTrainingJob);
  if (all == objects_.end()) return jobs;
  for (const auto& [key, object] : all->second) {
    jobs.emplace(key, api::read_training_job(object).first);
  }
  return jobs;
}

std::optional<api::TrainingJob> WhatIf::job(const api::ObjectKey& key) const {
  const auto all = objects_.find(api::Kind::kTrainingJob);
  if (all == objects_.end()) return std::nullopt;
  const auto found = all->second.find(key);
  if (found == all->second.end()) return std::nullopt;
  return api::read_training_job(found->second).first;
}

seconds WhatIf::longest_sparing() const {
  seconds longest = core::words::kSparedFor;
  const auto queues = objects_.find(api::Kind::kTrainingQueue);
  if (queues == objects_.end()) return longest;
  for (const auto& [key, object] : queues->second) {
    const auto& rules = api::read_training_queue(object).first.spec.preemption;
    longest = std::max(longest, seconds(rules.minimum_run_seconds));
  }
  return longest;
}

std::optional<api::JobCost> WhatIf::cost_until(const api::ObjectKey& key, WallTime then) const {
  const auto found = job(key);
  if (!found || !found->status.cost) return std::nullopt;
  return core::cost_until(*found->status.cost, prices_, then);
}

std::optional<StepForecast> WhatIf::step_of(
    const api::ObjectKey& key, const std::map<api::ObjectKey, api::TrainingJob>& known) {
  const auto planned = job(key);
  const auto topology = loop_.topology_of_forecast();
  if (!planned || !topology || planned->status.placement.empty()) return std::nullopt;
  const auto workers = static_cast<int>(planned->status.placement.size());
  const api::TrainingJob* newest = nullptr;
  for (const auto& [other, one] : known) {
    const bool is_alike = other != key && has_trained_with(one.status, workers) &&
                          computes_alike(one.spec, planned->spec);
    if (!is_alike || !one.status.progress || one.status.progress->step_milliseconds.empty()) {
      continue;
    }
    const bool is_newer =
        newest == nullptr || one.status.progress->updated_at > newest->status.progress->updated_at;
    if (is_newer) newest = &one;
  }
  if (newest == nullptr) return std::nullopt;
  const core::StepFacts told = core::running_gang(*newest, {}).step;
  ProgressReport report;
  report.step_seconds = told.step_seconds;
  report.exchange_seconds = told.exchange_seconds;
  report.model_parameters = newest->status.model_parameters;
  const auto seconds_of_step = core::forecast_seconds(*planned, report, {}, *topology);
  if (!seconds_of_step) return std::nullopt;
  return StepForecast{core::decimal(*seconds_of_step * 1e3, 3), newest->meta.key()};
}

std::optional<std::string> WhatIf::exchange_of(const api::ObjectKey& key) {
  const auto planned = job(key);
  const auto topology = loop_.topology_of_forecast();
  if (!planned || !topology || planned->status.placement.empty()) return std::nullopt;
  const auto bytes = core::known_gradient_bytes_of(*planned);
  if (!bytes) return std::nullopt;
  ProgressReport report;
  report.step_seconds = report.exchange_seconds = 1;  // all of the step
  report.model_parameters =
      static_cast<std::int64_t>(std::clamp(*bytes / sizeof(float), 0.0, kMostParameters));
  const auto seconds_of_it = core::forecast_seconds(*planned, report, {}, *topology);
  if (!seconds_of_it) return std::nullopt;
  return core::decimal(*seconds_of_it * 1e3, 3);
}

}  // namespace muster::runtime
