#include "operator/core/status_edit.h"

#include <algorithm>

#include "operator/core/pod_shape.h"
#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

/// The schema's bound of spec.activeDeadlineSeconds, and of what counts against it.
constexpr std::int64_t kMostActive = (std::int64_t{1} << 31) - 1;

}  // namespace

WallTime whole_seconds(WallTime time) { return std::chrono::floor<seconds>(time); }

std::string workers_text(int running, int target) {
  return std::to_string(running) + "/" + std::to_string(target);
}

void set_condition(api::TrainingJobStatus& status, const JobSnapshot& snapshot,
                   const ConditionEdit& edit) {
  const auto found = std::find_if(status.conditions.begin(), status.conditions.end(),
                                  [&](const api::Condition& c) { return c.type == edit.type; });
  const bool is_new = found == status.conditions.end();
  if (is_new && !edit.value && !edit.even_if_new) return;
  api::Condition next;
  next.type = edit.type;
  next.status = edit.value ? "True" : "False";
  next.reason = edit.reason;
  next.message = head_of(edit.message, words::kMaxMessageBytes);
  next.observed_generation = snapshot.job.meta.generation;
  next.last_transition_time = whole_seconds(snapshot.now);
  if (is_new) {
    status.conditions.push_back(std::move(next));
    return;
  }
  if (found->status == next.status) {
    next.last_transition_time = found->last_transition_time;
    const bool same = found->reason == next.reason && found->message == next.message;
    if (same) next.observed_generation = found->observed_generation;
  }
  *found = std::move(next);
}

std::string said_from(const api::Condition* condition, const std::string& head) {
  if (condition == nullptr || condition->status != "True") return "";
  const std::string& message = condition->message;
  const auto at = message.rfind(head);
  const bool is_whole = message.size() < words::kMaxMessageBytes;
  return is_whole && at != std::string::npos ? message.substr(at) : "";
}

Json merge_patch(const Json& from, const Json& to) {
  if (!from.is_object() || !to.is_object()) return to;
  Json patch = Json::object();
  for (const auto& [key, value] : from.items()) {
    if (!to.contains(key)) patch[key] = nullptr;
  }
  for (const auto& [key, value] : to.items()) {
    const auto old = from.find(key);
    if (old == from.end()) {
      patch[key] = value;
    } else if (*old != value) {
      patch[key] = merge_patch(*old, value);
    }
  }
  return patch;
}

namespace {

/// Counts the cost of the places that the job has had, and notes which it has with `status`. Only
/// said with what is written anyway: money that runs is no reason for a write.
void count_cost(api::TrainingJobStatus& status, const JobSnapshot& snapshot) {
  std::vector<std::string> nodes;
  if (!status.finished()) {
    for (const api::SlotPlacement& place : status.placement) {
      nodes.push_back(place.node);
      if (!place.node.empty()) continue;
      // The cluster's scheduler has chosen, or will.
      const std::string name = api::pod_name(snapshot.job, place.slot, place.attempt);
      for (const api::Pod& pod : snapshot.pods) {
        if (pod.meta.name == name) nodes.back() = pod.node_name;
      }
    }
  }
  if (!status.cost && (snapshot.prices == nullptr || nodes.empty())) return;
  const api::WorkerSpec workers = sized_workers(snapshot.job, status);
  const CostUse use{workers, nodes, snapshot.priced_nodes, snapshot.sees_nodes};
  api::JobCost cost = std::move(status.cost).value_or(api::JobCost{});
  cost = cost_until(std::move(cost), snapshot.prices, snapshot.now);
  status.cost = with_use(std::move(cost), snapshot.prices, use, snapshot.now);
}

}  // namespace

Plan write_status(const JobSnapshot& snapshot, api::TrainingJobStatus status, Pass pass) {
  Plan plan;
  const api::TrainingJob& job = snapshot.job;
  status.observed_generation = std::max(job.meta.generation, job.status.observed_generation);
  if (status == job.status) return plan;
  // Of a gang that an operator started which did not tell: workers have been given this one.
  if (status.key_id.empty() && !status.placement.empty()) status.key_id = snapshot.key_id;
  count_cost(status, snapshot);
  // One that was never written lacks the zeroes, too; columns would be blank.
  const bool is_first = job.status == api::TrainingJobStatus{};
  Json patch = merge_patch(is_first ? Json::object() : api::status_to_json(job.status),
                           api::status_to_json(status));
  if (patch.empty()) return plan;
  plan.pass = pass;
  plan.actions.push_back(PatchStatus{
      job.meta.key(),
      Json{{"metadata", {{"uid", job.meta.uid}, {"resourceVersion", job.meta.resource_version}}},
           {"status", std::move(patch)}},
      std::move(status),
      {}});
  return plan;
}

void add_event(Plan& plan, const JobSnapshot& snapshot, std::string_view type,
               std::string_view reason, const std::string& note) {
  const api::TrainingJob& job = snapshot.job;
  api::Event event;
  const std::string what =
      job.meta.uid + "/" + std::string(type) + "/" + std::string(reason) + "/" + note;
  event.meta.name = job.meta.name + "." + hex_text(hash_text(what));
  event.meta.namespace_name = job.meta.namespace_name;
  event.regarding = job.meta.key();
  event.regarding_uid = job.meta.uid;
  event.type = type;
  event.reason = reason;
  event.action = "Reconcile";
  event.note = head_of(note, words::kMaxMessageBytes);
  event.event_time = snapshot.now;
  plan.actions.push_back(EmitEvent{std::move(event)});
}

std::optional<seconds> deadline_left(const api::TrainingJob& job, WallTime now) {
  const auto& limit = job.spec.active_deadline_seconds;
  if (!limit) return std::nullopt;
  const std::int64_t past =
      std::clamp<std::int64_t>(job.status.past_active_seconds, 0, kMostActive);
  const seconds bounded(std::clamp<std::int64_t>(*limit, 0, kMostActive) - past);
  const auto left = job.status.start_time.value_or(now) + bounded - now;
  return std::max(seconds(0), std::chrono::ceil<seconds>(left));
}

void give_up_places(api::TrainingJobStatus& status) {
  status.last_nodes.clear();
  for (const api::SlotPlacement& place : status.placement) {
    if (place.node.empty() || place.slot < 0 || place.slot >= kMaxWorkers) continue;
    const auto slot = static_cast<std::size_t>(place.slot);
    if (slot >= status.last_nodes.size()) status.last_nodes.resize(slot + 1);
    status.last_nodes[slot] = place.node;
  }
  status.placement.clear();
}

void stop_clock(api::TrainingJobStatus& status, WallTime now) {
  if (!status.start_time) return;
  const seconds ran = std::chrono::floor<seconds>(now - *status.start_time);
  const auto in_bounds = [](std::int64_t time) {
    return std::clamp<std::int64_t>(time, 0, kMostActive);
  };
  status.past_active_seconds =
      in_bounds(in_bounds(status.past_active_seconds) + in_bounds(ran.count()));
  status.start_time.reset();
}

}  // namespace muster::core
