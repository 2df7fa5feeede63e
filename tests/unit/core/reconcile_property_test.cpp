// What holds for every snapshot, also those that no API server would give.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "common/contract.h"
#include "common/rng.h"
#include "operator/core/gang_view.h"
#include "tests/test_main.h"
#include "tests/unit/core/builders.h"

using namespace muster;
using namespace muster::test;

namespace {

constexpr int kSnapshots = test::tries(10'000);
constexpr int kMaxPasses = 10;

class Generator {
 public:
  explicit Generator(std::uint64_t seed) : rng_(seed) {}

  core::JobSnapshot snapshot() {
    core::JobSnapshot made = make_job("j").workers(count(1, 4)).snapshot();
    made.now = kNow + microseconds(rng_.below(3'000'000'000));
    spec(made.job.spec);
    status(made.job);
    made.job.meta.generation = count(0, 3);
    if (chance(20)) made.job.meta.deletion_time = time();
    if (chance(12)) {
      made.spec_verdict =
          Error(ErrorCode::kInvalid, (chance(2) ? "spec.training.steps: " : "") + text());
    }
    for (int i = count(0, 6); i > 0; --i) made.pods.push_back(pod(made.job, i));
    for (int i = count(0, 2); i > 0; --i) report(made);
    if (chance(2)) made.gang = verdict();
    if (chance(3)) made.kueue_says = text();
    if (chance(6)) {
      made.take_back =
          core::TakeBack{count(0, 2), count(0, 3), {"team", "x"}, "u", text(), count(-9, 99)};
    }
    if (chance(8)) made.gone_nodes.insert(node());
    if (chance(10)) made.create_failure = core::CreateFailure{"CreateFailed", text()};
    if (chance(6)) made.not_ready_nodes.insert(node());
    if (chance(8)) made.unschedulable_nodes.insert(node());
    for (const auto& name : made.unschedulable_nodes) {
      if (chance(2)) made.emptied_by[name] = "Karpenter (taint x)";
    }
    for (const auto& [fact, already] : core::lasting_facts(made)) {
      if (chance(2)) made.lasted[fact] = seconds(count(0, 100));
    }
    return made;
  }

  /// Turns the order of everything that has none.
  core::JobSnapshot shuffled(core::JobSnapshot made) {
    for (std::size_t i = made.pods.size(); i > 1; --i) {
      std::swap(made.pods[i - 1], made.pods[rng_.below(i)]);
    }
    return made;
  }

 private:
  bool chance(std::uint64_t one_in) { return rng_.below(one_in) == 0; }
  int count(int least, int most) {
    return least + static_cast<int>(rng_.below(static_cast<std::uint64_t>(most - least + 1)));
  }
  WallTime time() { return kNow + seconds(count(-4000, 4000)); }
  std::string node() { return chance(4) ? "" : std::string("n") + std::to_string(count(0, 2)); }
  std::string text() {
    std::string bytes(rng_.below(60), ' ');
    for (char& byte : bytes) byte = static_cast<char>(rng_.below(256));
    return bytes;
  }

  void spec(api::TrainingJobSpec& spec) {
    if (chance(2)) spec.training.emplace();
    if (chance(10)) spec.worker.count = count(-2, 5000);
    if (chance(10)) spec.worker.min = count(-2, 9);
    spec.restart.policy = chance(4) ? "Never" : chance(9) ? "nonsense" : "OnFailure";
    spec.restart.max_restarts = count(-1, 4);
    spec.restart.backoff_seconds = chance(9) ? count(-100, 2'000'000'000) : count(0, 20);
    spec.suspend = chance(4);
    if (chance(4)) spec.active_deadline_seconds = chance(5) ? INT64_MAX : count(-1, 5000);
    if (chance(4)) spec.ttl_seconds_after_finished = chance(5) ? INT64_MAX : count(-1, 5000);
    if (chance(12)) spec.managed_by = "else/where";
  }

  void status(api::TrainingJob& job) {
    auto& status = job.status;
    status.membership_epoch = chance(20) ? INT64_MAX - count(0, 1) : count(-1, 4);
    status.restarts = chance(20) ? INT32_MAX : count(0, 4);
    for (int i = count(0, 4); i > 0; --i) {
      const int attempt = chance(8) ? count(-2, 9) : std::max(0, count(0, 3));
      status.placement.push_back({chance(8) ? count(-2, 99) : i - 1, attempt, node(), ""});
    }
    status.target_workers = count(0, 4);
    if (chance(3)) status.kueue_queue = chance(4) ? text() : "team";
    if (chance(4)) job.meta.labels["kueue.x-k8s.io/queue-name"] = "team";
    for (const char* type :
         {"Admitted", "Running", "Restarting", "Suspended", "Complete", "Failed"}) {
      const bool end = std::string(type) == "Complete" || std::string(type) == "Failed";
      if (!chance(end ? 5 : 2)) continue;
      const std::string reason = chance(3) ? "InvalidSpec" : "Test";
      status.conditions.push_back(
          {type, chance(end ? 3 : 2) ? "True" : "False", reason, "", 1, time()});
    }
    if (chance(2)) status.start_time = time();
    if (chance(3)) status.completion_time = time();
    if (chance(4)) status.restart_at = time();
    if (chance(4)) status.checkpoint = api::CheckpointStatus{count(0, 9), time(), false, "/c"};
    if (chance(4)) {
      status.progress.emplace();
      status.progress->step = count(0, 9);
      if (chance(2)) status.progress->updated_at = time();
    }
  }

  api::Pod pod(const api::TrainingJob& job, int number) {
    api::Pod made = api::make_pod(job, {count(0, 3), count(0, 3), node(), ""}, {});
    made.spec = Json::object();
    made.meta.uid = "pod-" + std::to_string(number);
    made.node_name = node();
    made.phase = static_cast<api::PodPhase>(rng_.below(5));
    if (chance(3)) {
      made.termination =
          api::Termination{chance(3) ? 0 : count(-1, 140), count(0, 9), text(), text()};
    }
    if (chance(4)) made.meta.deletion_time = time();
    if (chance(5)) made.reason = text();
    if (chance(8)) made.meta.labels[std::string(contract::kLabelSlot)] = text();
    if (chance(8)) made.meta.labels.erase(std::string(contract::kLabelAttempt));
    if (chance(6)) made.held_by_kueue = true;
    if (chance(6)) made.is_disrupted = true;
    if (chance(9)) made.kueue_stop = chance(2) ? text() : "WorkloadEvictedDueToDeactivated";
    if (chance(6)) made.meta.owner_references[0].uid = "stranger";
    if (chance(12)) made.meta.owner_references.clear();
    return made;
  }

  void report(core::JobSnapshot& made) {
    ProgressReport report;
    report.slot = count(0, 3);
    report.attempt = count(0, 3);
    report.step = count(0, 100);
    report.loss = chance(3) ? text() : "0.5";
    report.samples_per_second = chance(3) ? 1e308 : 12.5;
    report.eta_seconds = chance(3) ? 1e308 : -1;
    report.checkpoint_step = count(-1, 9);
    report.checkpoint_path = text();
    report.model_sha256 = chance(2) ? std::string(64, 'c') : text();
    made.reports[report.slot] = report;
  }

  core::GangVerdict verdict() {
    if (chance(3)) return {std::nullopt, text()};
    return {
        core::GangPlacement{std::vector<std::string>(static_cast<std::size_t>(count(1, 3)), "n1")},
        ""};
  }

  Rng rng_;
};

bool writes_and_acts(const core::Plan& plan) {
  return std::any_of(plan.actions.begin(), plan.actions.end(), [](const core::Action& action) {
    return std::holds_alternative<core::CreatePod>(action) ||
           std::holds_alternative<core::DeletePod>(action) ||
           std::holds_alternative<core::CreateService>(action) ||
           std::holds_alternative<core::CreatePodGroup>(action) ||
           std::holds_alternative<core::DeleteJob>(action);
  });
}

void check_pod_created(const core::JobSnapshot& before, const api::Pod& pod) {
  const auto& status = before.job.status;
  CHECK_FALSE(status.finished());
  CHECK_FALSE(before.job.spec.suspend);
  CHECK((before.spec_verdict || !api::is_about_pods(before.spec_verdict.error())));
  CHECK(core::is_served(before));
  const bool stored = std::any_of(
      status.placement.begin(), status.placement.end(), [&](const api::SlotPlacement& placement) {
        return placement.slot == pod.slot() && placement.attempt == pod.attempt() &&
               placement.node == pod.required_node;
      });
  CHECK(stored);
  const api::WorkerSpec& worker = before.job.spec.worker;
  CHECK(pod.slot() < std::max({worker.count, worker.max, 1}));
  for (const auto& other : before.pods) {
    const bool same = core::is_owned(other, before.job) && other.slot() == pod.slot() &&
                      other.attempt() == pod.attempt();
    CHECK_FALSE(same);
  }
}

void check_status(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
  CHECK(after.restarts >= before.restarts);
  CHECK((after.membership_epoch >= before.membership_epoch ||
         before.membership_epoch > 1'000'000'000));
  CHECK(after.observed_generation >= before.observed_generation);
  if (before.is_true("Complete")) CHECK(after.is_true("Complete"));
  // Another start may have begun below what the last one had saved.
  if (before.checkpoint && before.checkpoint->start_attempt == before.start_attempt) {
    REQUIRE(after.checkpoint.has_value());
    CHECK(after.checkpoint->step >= before.checkpoint->step);
  }
  if (after.failure) CHECK(after.failure->log_tail.size() <= 2048);
}

/// What must hold for the plan of any snapshot.
void check_plan(const core::JobSnapshot& before, const core::Plan& plan) {
  int writes = 0;
  std::set<std::string> names;
  for (const auto& action : plan.actions) {
    if (const auto* create = std::get_if<core::CreatePod>(&action)) {
      check_pod_created(before, create->pod);
      CHECK(names.insert(create->pod.meta.name).second);
    } else if (const auto* remove = std::get_if<core::DeletePod>(&action)) {
      const auto pod =
          std::find_if(before.pods.begin(), before.pods.end(),
                       [&](const api::Pod& one) { return one.meta.uid == remove->uid; });
      REQUIRE(pod != before.pods.end());
      CHECK(core::is_owned(*pod, before.job));
      CHECK_FALSE(pod->meta.deletion_time.has_value());
    } else if (const auto* patch = std::get_if<core::PatchStatus>(&action)) {
      ++writes;
      check_status(before.job.status, patch->status);
    }
  }
  CHECK(writes <= 1);
  CHECK((writes == 1) == (plan.pass != core::Pass::kNone));
  if (plan.pass == core::Pass::kDecision) {
    CHECK_FALSE(writes_and_acts(plan));
    CHECK(std::holds_alternative<core::PatchStatus>(plan.actions.front()));
  }
  if (before.job.meta.deletion_time) CHECK(plan.empty());
}

}  // namespace

TEST_CASE("over random snapshots: total, deterministic, order-free, and within the rules") {
  Generator generate(seed());
  int empty = 0, decisions = 0, acting = 0;
  for (int i = 0; i < kSnapshots; ++i) {
    const auto snapshot = generate.snapshot();
    const auto plan = core::reconcile(snapshot);
    CHECK(plan == core::reconcile(snapshot));
    CHECK(plan == core::reconcile(generate.shuffled(snapshot)));
    check_plan(snapshot, plan);
    empty += plan.empty() ? 1 : 0;
    decisions += plan.pass == core::Pass::kDecision ? 1 : 0;
    acting += writes_and_acts(plan) ? 1 : 0;
  }
  MESSAGE(kSnapshots << " snapshots: " << empty << " without a plan, " << decisions
                     << " decisions, " << acting << " with pods");
  CHECK(empty > kSnapshots / 20);
  CHECK(decisions > kSnapshots / 20);
  CHECK(acting > kSnapshots / 20);
}

TEST_CASE("over random snapshots: a plan that is carried out leaves nothing to do") {
  Generator generate(seed() + 1);
  int longest = 0;
  for (int i = 0; i < kSnapshots; ++i) {
    auto snapshot = generate.snapshot();
    snapshot.job.status = read_status(api::status_to_json(snapshot.job.status));
    int passes = 0;
    while (true) {
      const auto plan = core::reconcile(snapshot);
      if (plan.empty()) break;
      REQUIRE_MESSAGE(++passes <= kMaxPasses, "case " << i << " goes on: " << plan.reason);
      check_plan(snapshot, plan);
      apply(snapshot, plan);
      // Schedule takes nothing from who waits.
      if (snapshot.job.status.placement.empty()) snapshot.take_back.reset();
    }
    longest = std::max(longest, passes);
  }
  MESSAGE("longest way to rest: " << longest << " passes");
  CHECK(longest >= 3);
}
