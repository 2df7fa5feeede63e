#include "tests/unit/core/elastic_gang.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace muster::test {

ProgressReport member_report(int slot, int attempt, std::int64_t epoch, std::vector<int> members) {
  ProgressReport report;
  report.job = "default/j";
  report.slot = slot;
  report.attempt = attempt;
  report.step = 100;
  report.membership_epoch = epoch;
  report.members = std::move(members);
  return report;
}

SnapshotBuilder training(int count) {
  SnapshotBuilder job("j");
  job.engine().workers(count).all_running();
  auto& spec = job.edit().job.spec;
  spec.worker.min = 1;
  spec.worker.max = 8;
  spec.restart.backoff_seconds = 10;
  auto& status = job.edit().job.status;
  status.start_attempt = 0;
  job.edit().budget = 1;
  std::vector<int> members;
  for (int slot = 0; slot < count; ++slot) members.push_back(slot);
  for (int slot = 0; slot < count; ++slot) {
    job.report(member_report(slot, 0, 1, members));
    status.placement[static_cast<std::size_t>(slot)].member = true;
  }
  // What is seen is stored already.
  for (int i = 0; i < 3; ++i) apply(job.edit(), job.plan());
  REQUIRE(job.plan().empty());
  return job;
}

std::string running_message(const api::TrainingJobStatus& status) {
  return status.condition("Running")->message;
}

api::Pod& pod_of(SnapshotBuilder& job, int slot) {
  for (auto& pod : job.edit().pods)
    if (pod.slot() == slot) return pod;
  FAIL("no pod of slot " << slot);
  std::abort();
}

void end_pod(SnapshotBuilder& job, int slot, int code) {
  api::Pod& pod = pod_of(job, slot);
  pod.phase = code == 0 ? api::PodPhase::kSucceeded : api::PodPhase::kFailed;
  pod.termination = api::Termination{code, 0, code == 0 ? "Completed" : "Error", ""};
}

void remove_pod(SnapshotBuilder& job, int slot) {
  std::erase_if(job.edit().pods, [&](const auto& pod) { return pod.slot() == slot; });
}

void answer(SnapshotBuilder& job, const std::string& node, std::size_t most) {
  const auto wish = core::wanted_places(job.snapshot());
  REQUIRE(wish.has_value());
  core::GangPlacement placement;
  for (std::size_t i = 0; i < std::min(most, wish->slots.size()); ++i) {
    placement.node_of_slot.push_back(node);
  }
  job.edit().gang = core::GangVerdict{placement, "", wish->slots};
  if (placement.node_of_slot.empty()) {
    job.edit().gang = core::GangVerdict{std::nullopt, "no room", wish->slots};
  }
}

std::vector<int> wanted(const SnapshotBuilder& job) {
  const auto wish = core::wanted_places(job.snapshot());
  return wish ? wish->slots : std::vector<int>{};
}

std::string placement_of(const api::TrainingJobStatus& status) {
  std::string text;
  for (const auto& one : status.placement) {
    text += (text.empty() ? "" : " ") + std::to_string(one.slot) + "/" +
            std::to_string(one.attempt) + "@" + one.node + (one.member ? "*" : "");
  }
  return text;
}

void join_all(SnapshotBuilder& job, std::int64_t epoch) {
  std::vector<int> members;
  for (auto& pod : job.edit().pods) {
    if (pod.ended()) continue;
    pod.phase = api::PodPhase::kRunning;
    pod.node_name = "n";
    members.push_back(pod.slot());
  }
  std::sort(members.begin(), members.end());
  for (const auto& pod : job.snapshot().pods) {
    if (!pod.ended()) job.report(member_report(pod.slot(), pod.attempt(), epoch, members));
  }
}

}  // namespace muster::test
