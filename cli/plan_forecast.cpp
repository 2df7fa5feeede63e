#include "cli/plan_forecast.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "common/contract.h"
#include "operator/runtime/what_if.h"

namespace muster::cli {
namespace {

/// What the operator does at once is done within this; what it does only when something lasts
/// (a gang that grows) is not.
constexpr seconds kAtOnce{20};
/// Writes of the operator looked at until one end, before the rest of the way is run at once.
constexpr int kMostWritesToAnEnd = 10'000;
/// A status may hold any number: what is past between two looks is no longer.
constexpr std::int64_t kMostPastSeconds = 10LL * 366 * 24 * 3600;

/// Times that lie in the past of whoever wrote them.
constexpr std::array<std::string_view, 7> kPastTimes{
    "creationTimestamp", "lastHeartbeatTime", "lastTransitionTime", "updatedAt",
    "startTime",         "startedAt",         "lastUpdateTime"};

void note_times(const Json& json, std::optional<WallTime>& newest) {
  if (json.is_array()) {
    for (const Json& one : json) note_times(one, newest);
    return;
  }
  if (!json.is_object()) return;
  for (const auto& [name, value] : json.items()) {
    if (value.is_structured()) {
      note_times(value, newest);
    } else if (value.is_string() &&
               std::find(kPastTimes.begin(), kPastTimes.end(), name) != kPastTimes.end()) {
      const auto time = parse_time(value.get<std::string>());
      if (time) newest = std::max(newest.value_or(*time), *time);
    }
  }
}

/// When a running job ends by its own word, or at the latest by its deadline; if nobody stops it.
std::optional<WallTime> end_of(const api::TrainingJob& job) {
  std::optional<WallTime> end;
  const auto& progress = job.status.progress;
  if (progress && progress->eta_seconds >= 0 && progress->updated_at) {
    end = *progress->updated_at + seconds(progress->eta_seconds);
  }
  if (const auto over = runtime::deadline_of(job)) end = std::min(end.value_or(*over), *over);
  return end;
}

/// A run that says when it ends, as it was when somebody looked first.
struct KnownRun {
  WallTime end, start;
  std::int64_t past_active = 0;
};

/// When it ends now: what was left of it when it was stopped begins with its next start.
WallTime end_now(const KnownRun& run, const api::TrainingJob& job) {
  const seconds past(std::clamp<std::int64_t>(job.status.past_active_seconds - run.past_active, 0,
                                              kMostPastSeconds));
  return run.end + (job.status.start_time.value_or(run.start) - run.start) - past;
}

bool holds_places(const api::TrainingJob& job) {
  return !job.status.finished() && !job.status.placement.empty();
}

std::string admitted_message(const api::TrainingJob& job) {
  const api::Condition* admitted = job.status.condition("Admitted");
  return admitted == nullptr ? "" : admitted->message;
}

/// Of a job that gave way; empty: its status does not say.
std::string why_preempted(const api::TrainingJob& job) {
  const api::Condition* running = job.status.condition("Running");
  const bool says = running != nullptr && running->reason == contract::reason::kPreempted;
  return says ? running->message : "";
}

/// The nodes alone, without whoever is on them or may be due something there.
bool is_of_empty_cluster(const Json& object) {
  constexpr std::array<std::string_view, 3> kUsers{"TrainingJob", "TrainingQueue", "Pod"};
  return std::none_of(kUsers.begin(), kUsers.end(),
                      [&](std::string_view kind) { return runtime::is_of_kind(object, kind); });
}

/// As PlanForecast::why_never, by the operator's own rules. Queues, quotas and claims of volumes
/// are left out: they may change while the nodes stay as they are.
std::string why_never_on(const PlanCluster& cluster, Json manifest, const api::ObjectKey& key) {
  runtime::WhatIf empty(cluster.now, runtime::WhatIf::NewPods::kImplied, nullptr);
  for (const Json& object : cluster.objects) {
    if (is_of_empty_cluster(object)) empty.put(object);
  }
  for (const char* field : {"labels", "annotations"}) manifest["metadata"].erase(field);
  Json& spec = manifest["spec"];
  for (const char* field : {"queueName", "priorityClassName"}) spec.erase(field);
  for (const auto& [part, field] :
       {std::pair("/worker", "volumes"), std::pair("/worker", "volumeMounts"),
        std::pair("/training/checkpoint", "volumeClaimName")}) {
    const Json::json_pointer at(part);
    if (spec.contains(at) && spec[at].is_object()) spec[at].erase(field);
  }
  empty.put(std::move(manifest));
  empty.run(kAtOnce);
  const auto job = empty.job(key);
  return !job || holds_places(*job) ? "" : admitted_message(*job);
}

class Forecaster {
 public:
  explicit Forecaster(const PlanCluster& cluster)
      : cluster_(cluster),
        what_if_(cluster.now, runtime::WhatIf::NewPods::kImplied,
                 cluster.prices ? &*cluster.prices : nullptr) {
    for (const Json& object : cluster.objects) what_if_.put(object);
    know_runs();
  }
  PlanForecast plan(Json manifest);
  Result<PlanForecast> wait(const api::ObjectKey& job);

 private:
  void look_ahead();
  bool settles();
  void note_displaced();
  void know_runs();
  void know_run(const api::ObjectKey& key, const api::TrainingJob& job, WallTime end);
  void follow_runs();
  void await_ends();
  std::optional<std::pair<WallTime, api::ObjectKey>> next_end() const;
  bool starts_with_write(WallTime end, int writes);
  bool starts_before_next_end();
  void tell_cost();
  api::TrainingJob planned() const { return what_if_.job(key_).value_or(api::TrainingJob{}); }

  const PlanCluster& cluster_;
  runtime::WhatIf what_if_;
  api::ObjectKey key_;
  std::map<api::ObjectKey, int> workers_before_;
  std::map<api::ObjectKey, KnownRun> runs_;  ///< also of jobs that have given way since
  std::map<api::ObjectKey, WallTime> ends_;  ///< of those of them that have places
  PlanForecast forecast_;
};

/// Whether the planned job has places once the operator has done what it does at once.
bool Forecaster::settles() {
  what_if_.run(kAtOnce);
  follow_runs();
  return holds_places(planned());
}

PlanForecast Forecaster::plan(Json object) {
  // Their words of steps are of who trained then, not of what the operator does with them next.
  const auto measured = what_if_.jobs();
  what_if_.run(kAtOnce);
  const auto known = what_if_.jobs();
  for (const auto& [key, job] : known) {
    if (holds_places(job)) workers_before_[key] = static_cast<int>(job.status.placement.size());
  }
  object["metadata"]["uid"] = "planned";
  object["metadata"]["resourceVersion"] = "planned";
  object["metadata"]["generation"] = 1;
  object["metadata"]["creationTimestamp"] = format_time(what_if_.now());
  key_ = api::read_training_job(object).first.meta.key();
  what_if_.put(object);
  look_ahead();
  const bool may_never = !forecast_.starts_now && !forecast_.starts_at;
  if (may_never) forecast_.why_never = why_never_on(cluster_, std::move(object), key_);
  tell_cost();
  forecast_.step = what_if_.step_of(key_, measured);
  if (!forecast_.step) forecast_.exchange = what_if_.exchange_of(key_);
  note_displaced();
  return std::move(forecast_);
}

Result<PlanForecast> Forecaster::wait(const api::ObjectKey& job) {
  key_ = job;
  if (!what_if_.job(key_)) {
    return Error(ErrorCode::kNotFound, "the cluster has no job " + job.text() + " any more");
  }
  look_ahead();
  return std::move(forecast_);
}

void Forecaster::look_ahead() {
  forecast_.starts_now = settles();
  forecast_.why = admitted_message(planned());
  if (forecast_.starts_now) {
    forecast_.awaited.clear();
  } else {
    await_ends();
  }
  forecast_.job = planned();
}

void Forecaster::tell_cost() {
  forecast_.over_by =
      holds_places(forecast_.job) ? runtime::deadline_of(forecast_.job) : std::nullopt;
  if (!forecast_.over_by) return;
  forecast_.cost_at_most = what_if_.cost_until(key_, *forecast_.over_by);
}

void Forecaster::note_displaced() {
  if (!forecast_.starts_now && !forecast_.starts_at) return;
  for (const auto& [key, job] : what_if_.jobs()) {
    const auto before = workers_before_.find(key);
    if (before == workers_before_.end() || key == key_ || job.status.finished()) continue;
    const int after = static_cast<int>(job.status.placement.size());
    if (after >= before->second) continue;
    forecast_.displaced.push_back({key, before->second, after, why_preempted(job)});
  }
}

void Forecaster::know_run(const api::ObjectKey& key, const api::TrainingJob& job, WallTime end) {
  const WallTime start = job.status.start_time.value_or(what_if_.now());
  runs_.emplace(key, KnownRun{end, start, job.status.past_active_seconds});
  ends_.emplace(key, end);
}

/// Of the cluster as it was read.
void Forecaster::know_runs() {
  for (const auto& [key, job] : what_if_.jobs()) {
    const auto end = holds_places(job) ? end_of(job) : std::nullopt;
    if (end) know_run(key, job, *end);
  }
}

/// Who was stopped ends later, who is over has ended, and who starts is over by its deadline: what
/// it has said of itself is of an earlier run.
void Forecaster::follow_runs() {
  for (const api::ObjectKey& key : what_if_.take_written()) {
    if (key == key_) continue;
    const auto job = what_if_.job(key);
    const bool is_placed = job && holds_places(*job);
    const auto run = runs_.find(key);
    ends_.erase(key);
    if (run == runs_.end()) {
      const auto end = is_placed ? runtime::deadline_of(*job) : std::nullopt;
      if (end) know_run(key, *job, *end);
    } else if (is_placed) {
      ends_.emplace(key, end_now(run->second, *job));
    } else if (!job || job->status.finished()) {
      runs_.erase(run);
      forecast_.awaited.push_back(key);
    }
  }
}

std::optional<std::pair<WallTime, api::ObjectKey>> Forecaster::next_end() const {
  std::optional<std::pair<WallTime, api::ObjectKey>> next;
  for (const auto& [key, end] : ends_) {
    if (!next || end < next->first) next.emplace(end, key);
  }
  return next;
}

/// Runs up to the operator's next write, at most to `end`: whether the planned job has places then.
/// `writes`: so many were looked at one by one on the way there.
bool Forecaster::starts_with_write(WallTime end, int writes) {
  const auto left = std::chrono::ceil<seconds>(end - what_if_.now());
  if (writes < kMostWritesToAnEnd) {
    what_if_.run_to_write(left);
  } else {
    what_if_.run(left);
  }
  follow_runs();
  if (!holds_places(planned())) return false;
  forecast_.starts_at = what_if_.now();
  return true;
}

/// The same up to the next known end, which may be put off on the way, or be another's. While none
/// is known, until whoever is spared now may have given way.
bool Forecaster::starts_before_next_end() {
  WallTime known_at = what_if_.now();
  for (int writes = 0; writes <= kMostWritesToAnEnd; ++writes) {
    const auto next = next_end();
    if (next) known_at = what_if_.now();
    const WallTime end = next ? next->first : known_at + what_if_.longest_sparing();
    if (end <= what_if_.now()) return false;
    if (starts_with_write(end, writes)) return true;
  }
  return false;
}

void Forecaster::await_ends() {
  std::set<api::ObjectKey> held_places;
  for (const auto& [key, job] : what_if_.jobs()) {
    if (key == key_ || !holds_places(job)) continue;
    held_places.insert(key);
    if (!runs_.contains(key)) forecast_.unending.push_back(key);
  }
  for (int ends = 0; ends < kMostPlanEnds; ++ends) {
    if (starts_before_next_end()) return;
    const auto next = next_end();
    if (!next) break;
    const api::ObjectKey& key = next->second;
    what_if_.end_job(key);
    runs_.erase(key);
    ends_.erase(key);
    forecast_.awaited.push_back(key);
    const WallTime at = what_if_.now();
    if (!settles()) continue;
    forecast_.starts_at = at;
    return;
  }
  forecast_.awaited.clear();
  // Who waits longer has got what became free.
  for (const auto& [key, job] : what_if_.jobs()) {
    const bool is_known = held_places.contains(key) || runs_.contains(key);
    if (key != key_ && holds_places(job) && !is_known) forecast_.unending.push_back(key);
  }
}

Status check_has_nodes(const PlanCluster& cluster) {
  const bool has_nodes =
      std::any_of(cluster.objects.begin(), cluster.objects.end(),
                  [](const Json& object) { return runtime::is_of_kind(object, "Node"); });
  if (has_nodes) return {};
  return Error(ErrorCode::kInvalid,
               "the cluster has no Node among its objects, so nothing can be said about room");
}

}  // namespace

Result<PlanForecast> forecast(const PlanCluster& cluster, const Json& manifest) {
  MUSTER_RETURN_IF_ERROR(check_has_nodes(cluster));
  return Forecaster(cluster).plan(manifest);
}

Result<PlanForecast> forecast_waiting(const PlanCluster& cluster, const api::ObjectKey& job) {
  MUSTER_RETURN_IF_ERROR(check_has_nodes(cluster));
  return Forecaster(cluster).wait(job);
}

Result<WallTime> newest_time(const std::vector<Json>& objects) {
  std::optional<WallTime> newest;
  for (const Json& object : objects) note_times(object, newest);
  if (newest) return *newest;
  return Error(ErrorCode::kInvalid, "no object has a creationTimestamp or another time");
}

}  // namespace muster::cli
