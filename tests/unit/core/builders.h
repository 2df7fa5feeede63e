// Snapshots with only what matters to a test: make_job("j").workers(2).placed().running(0)...
#pragma once

#include <string>
#include <vector>

#include "operator/core/reconcile.h"

namespace muster::test {

inline constexpr WallTime kNow{seconds(1'700'000'000)};

class SnapshotBuilder {
 public:
  explicit SnapshotBuilder(const std::string& name) {
    auto& job = snapshot_.job;
    job.meta.name = name;
    job.meta.namespace_name = "default";
    job.meta.uid = "uid-" + name;
    job.meta.resource_version = "1";
    job.meta.generation = 1;
    job.spec.worker.command = {"train"};
    snapshot_.now = kNow;
    workers(1);
  }

  SnapshotBuilder& workers(int count) {
    auto& worker = snapshot_.job.spec.worker;
    worker.count = worker.min = worker.max = count;
    return *this;
  }
  /// The built-in engine: exit codes have their meaning.
  SnapshotBuilder& engine() {
    snapshot_.job.spec.training.emplace();
    snapshot_.job.spec.worker.command.clear();
    return *this;
  }
  SnapshotBuilder& restarts(const std::string& policy, int most, int done = 0) {
    snapshot_.job.spec.restart.policy = policy;
    snapshot_.job.spec.restart.max_restarts = most;
    snapshot_.job.status.restarts = done;
    return *this;
  }
  SnapshotBuilder& suspended_spec() {
    snapshot_.job.spec.suspend = true;
    return *this;
  }
  SnapshotBuilder& fits_on(const std::string& node) {
    const auto count = static_cast<std::size_t>(snapshot_.job.spec.worker.count);
    snapshot_.gang =
        core::GangVerdict{core::GangPlacement{std::vector<std::string>(count, node)}, ""};
    return *this;
  }
  SnapshotBuilder& does_not_fit(const std::string& why) {
    snapshot_.gang = core::GangVerdict{std::nullopt, why};
    return *this;
  }
  /// The decision is stored: every slot on node `n`, with the first attempt (epoch 1) by default.
  SnapshotBuilder& placed(int attempt = 0) {
    auto& status = snapshot_.job.status;
    status.membership_epoch = attempt + 1;
    status.target_workers = snapshot_.job.spec.worker.count;
    status.placement.clear();
    for (int slot = 0; slot < status.target_workers; ++slot) {
      status.placement.push_back({slot, attempt, "n", ""});
    }
    status.start_time = kNow;
    status.observed_generation = 1;
    status.workers = "0/" + std::to_string(status.target_workers);
    return *this;
  }
  SnapshotBuilder& condition(const std::string& type, bool value,
                             const std::string& reason = "Test") {
    snapshot_.job.status.conditions.push_back(
        {type, value ? "True" : "False", reason, "", 1, kNow - seconds(60)});
    return *this;
  }
  SnapshotBuilder& pod(int slot, api::PodPhase phase, int attempt = -1) {
    const int of =
        attempt >= 0 ? attempt : static_cast<int>(snapshot_.job.status.membership_epoch) - 1;
    api::Pod made = api::make_pod(snapshot_.job, {slot, of, "n", ""}, {});
    made.meta.uid = "pod-" + std::to_string(slot) + "-" + std::to_string(of);
    made.spec = Json::object();
    made.node_name = "n";
    made.phase = phase;
    snapshot_.pods.push_back(std::move(made));
    return *this;
  }
  SnapshotBuilder& running(int slot) { return pod(slot, api::PodPhase::kRunning); }
  SnapshotBuilder& ended(int slot, int code, const std::string& message = "") {
    pod(slot, code == 0 ? api::PodPhase::kSucceeded : api::PodPhase::kFailed);
    snapshot_.pods.back().termination =
        api::Termination{code, 0, code == 0 ? "Completed" : "Error", message};
    return *this;
  }
  /// All workers run and status says so.
  SnapshotBuilder& all_running() {
    placed();
    for (int slot = 0; slot < snapshot_.job.status.target_workers; ++slot) running(slot);
    return condition("Running", true);
  }
  SnapshotBuilder& deleting(int slot, WallTime when = kNow + seconds(30)) {
    for (auto& pod : snapshot_.pods) {
      if (pod.slot() == slot) pod.meta.deletion_time = when;
    }
    return *this;
  }
  SnapshotBuilder& report(ProgressReport report) {
    snapshot_.reports[report.slot] = report;
    return *this;
  }
  SnapshotBuilder& at(WallTime now) {
    snapshot_.now = now;
    return *this;
  }

  /// Whatever is true now has been seen for so long.
  SnapshotBuilder& lasting(seconds time) {
    snapshot_.lasted.clear();
    for (const auto& [fact, already] : core::lasting_facts(snapshot_)) {
      snapshot_.lasted[fact] = time;
    }
    return *this;
  }

  core::JobSnapshot& edit() { return snapshot_; }
  const core::JobSnapshot& snapshot() const { return snapshot_; }
  core::Plan plan() const { return core::reconcile(snapshot_); }

 private:
  core::JobSnapshot snapshot_;
};

inline SnapshotBuilder make_job(const std::string& name) { return SnapshotBuilder(name); }

/// What a plan says, shortened for comparison: "create digits-ab1cd-0-0", "delete pod-0-0",
/// "status", "event Completed".
std::vector<std::string> words_of(const core::Plan& plan);

/// The status that a plan writes; the test fails without one.
const api::TrainingJobStatus& status_of(const core::Plan& plan);

/// A status as it is read back from the API server.
api::TrainingJobStatus read_status(const Json& status);

/// What the API server and an obedient cluster make of a plan: pods appear and vanish, status is
/// merged as JSON and read back.
void apply(core::JobSnapshot& snapshot, const core::Plan& plan);

}  // namespace muster::test
