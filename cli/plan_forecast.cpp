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

/// When a running job ends by its own word, or at the latest by its deadline.
std::optional<WallTime> end_of(const api::TrainingJob& job) {
  std::optional<WallTime> end;
  const auto& progress = job.status.progress;
  if (progress && progress->eta_seconds >= 0 && progress->updated_at) {
    end = *progress->updated_at + seconds(progress->eta_seconds);
  }
  if (const auto over = runtime::deadline_of(job)) end = std::min(end.value_or(*over), *over);
  return end;
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
  }
  PlanForecast plan(Json manifest);
  Result<PlanForecast> wait(const api::ObjectKey& job);

 private:
  void look_ahead();
  bool settles();
  void note_displaced();
  void await_ends();
  bool starts_before(WallTime end);
  bool has_given_way(const api::ObjectKey& key) const;
  void tell_cost();
  api::TrainingJob planned() const { return what_if_.job(key_).value_or(api::TrainingJob{}); }

  const PlanCluster& cluster_;
  runtime::WhatIf what_if_;
  api::ObjectKey key_;
  std::map<api::ObjectKey, int> workers_before_;
  PlanForecast forecast_;
};

/// Whether the planned job has places once the operator has done what it does at once.
bool Forecaster::settles() {
  what_if_.run(kAtOnce);
  return holds_places(planned());
}

PlanForecast Forecaster::plan(Json object) {
  what_if_.run(kAtOnce);
  for (const auto& [key, job] : what_if_.jobs()) {
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
  if (!forecast_.starts_now) await_ends();
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

/// Runs up to `end`, or until the planned job has places before then.
bool Forecaster::starts_before(WallTime end) {
  for (int writes = 0; what_if_.now() < end; ++writes) {
    const auto left = std::chrono::ceil<seconds>(end - what_if_.now());
    what_if_.take_written();
    if (writes == kMostWritesToAnEnd) {
      what_if_.run(left);
      break;
    }
    what_if_.run_to_write(left);
    if (what_if_.now() >= end || !holds_places(planned())) continue;
    forecast_.starts_at = what_if_.now();
    return true;
  }
  return false;
}

/// Its end, when that comes, gives nothing back.
bool Forecaster::has_given_way(const api::ObjectKey& key) const {
  const auto job = what_if_.job(key);
  return job && !job->status.finished() && !holds_places(*job);
}

void Forecaster::await_ends() {
  std::vector<std::pair<WallTime, api::ObjectKey>> ends;
  std::set<api::ObjectKey> runs;
  for (const auto& [key, job] : what_if_.jobs()) {
    if (key == key_ || !holds_places(job)) continue;
    runs.insert(key);
    if (const auto end = end_of(job)) {
      ends.emplace_back(*end, key);
    } else {
      forecast_.unending.push_back(key);
    }
  }
  std::sort(ends.begin(), ends.end());
  if (ends.size() > kMostPlanEnds) ends.resize(kMostPlanEnds);
  for (const auto& [end, key] : ends) {
    if (starts_before(end)) return;
    if (has_given_way(key)) continue;
    what_if_.end_job(key);
    forecast_.awaited.push_back(key);
    const WallTime at = what_if_.now();
    if (!settles()) continue;
    forecast_.starts_at = at;
    return;
  }
  if (starts_before(what_if_.now() + what_if_.longest_sparing())) return;
  forecast_.awaited.clear();
  // Who waits longer has got what became free.
  for (const auto& [key, job] : what_if_.jobs()) {
    if (key != key_ && holds_places(job) && !runs.contains(key)) forecast_.unending.push_back(key);
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
