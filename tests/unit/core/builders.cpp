#include "tests/unit/core/builders.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace muster::test {
namespace {

template <typename... Ts>
struct Overload : Ts... {
  using Ts::operator()...;
};
template <typename... Ts>
Overload(Ts...) -> Overload<Ts...>;

/// The status goes through its JSON, as it does on its way to the API server and back.
void merge_status(core::JobSnapshot& snapshot, const core::PatchStatus& patch) {
  Json status = api::status_to_json(snapshot.job.status);
  status.merge_patch(*parse_json(dump_json(patch.patch["status"])));
  snapshot.job.status = read_status(status);
  const bool same = snapshot.job.status == patch.status;
  CHECK_MESSAGE(same, dump_json(status).substr(0, 1000));
  snapshot.job.meta.resource_version += "+";
}

}  // namespace

api::TrainingJobStatus read_status(const Json& status) {
  const Json object{{"apiVersion", "muster.dev/v1alpha1"},
                    {"kind", "TrainingJob"},
                    {"metadata", {{"name", "j"}}},
                    {"status", status}};
  return api::read_training_job(object).first.status;
}

std::vector<std::string> words_of(const core::Plan& plan) {
  std::vector<std::string> words;
  for (const auto& action : plan.actions) {
    words.push_back(std::visit(
        Overload{[](const core::CreatePod& a) { return "create " + a.pod.meta.name; },
                 [](const core::DeletePod& a) { return "delete " + a.uid; },
                 [](const core::CreateService&) { return std::string("service"); },
                 [](const core::KeepService&) { return std::string("keep service"); },
                 [](const core::CreatePodGroup& a) {
                   return "group of " + std::to_string(a.group.min_count);
                 },
                 [](const core::SetDisruptionBudget& a) {
                   return "budget " + std::to_string(a.budget.min_available);
                 },
                 [](const core::RemoveDisruptionBudget&) { return std::string("no budget"); },
                 [](const core::PatchStatus&) { return std::string("status"); },
                 [](const core::PatchQueueStatus& a) { return "queue " + a.key.name; },
                 [](const core::EmitEvent& a) { return "event " + a.event.reason; },
                 [](const core::DeleteJob&) { return std::string("delete job"); }},
        action));
  }
  return words;
}

const api::TrainingJobStatus& status_of(const core::Plan& plan) {
  for (const auto& action : plan.actions) {
    if (const auto* patch = std::get_if<core::PatchStatus>(&action)) return patch->status;
  }
  FAIL("the plan writes no status: " << plan.reason);
  std::abort();
}

void apply(core::JobSnapshot& snapshot, const core::Plan& plan) {
  for (const auto& action : plan.actions) {
    if (const auto* create = std::get_if<core::CreatePod>(&action)) {
      api::Pod pod = create->pod;
      pod.meta.uid = "made-" + pod.meta.name;
      snapshot.pods.push_back(std::move(pod));
    } else if (const auto* remove = std::get_if<core::DeletePod>(&action)) {
      std::erase_if(snapshot.pods,
                    [&](const api::Pod& pod) { return pod.meta.uid == remove->uid; });
    } else if (const auto* patch = std::get_if<core::PatchStatus>(&action)) {
      merge_status(snapshot, *patch);
    } else if (const auto* budget = std::get_if<core::SetDisruptionBudget>(&action)) {
      snapshot.budget = budget->budget.min_available;
    } else if (std::holds_alternative<core::KeepService>(action)) {
      snapshot.service_is_doubted = false;
    } else if (std::holds_alternative<core::RemoveDisruptionBudget>(action)) {
      snapshot.budget = 0;
    } else if (std::holds_alternative<core::DeleteJob>(action)) {
      snapshot.job.meta.deletion_time = snapshot.now;
    }
  }
}

}  // namespace muster::test
