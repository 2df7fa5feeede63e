// What status and events say of a gang that trains, from what its workers tell.
#include <doctest/doctest.h>

#include <string>
#include <variant>
#include <vector>

#include "common/contract.h"
#include "tests/unit/core/builders.h"
#include "tests/unit/core/elastic_gang.h"

using namespace muster;
using test::answer;
using test::end_pod;
using test::kNow;
using test::member_report;
using test::pod_of;
using test::running_message;
using test::SnapshotBuilder;
using test::status_of;
using test::training;
using test::words_of;
using Words = std::vector<std::string>;

TEST_CASE("a return to a checkpoint is one event with its reason") {
  SnapshotBuilder job = training(3);
  job.edit().changes = {{4, 101, "Returned", 0, "from step 117: copies differed", 42}};
  const core::Plan plan = job.plan();
  CHECK(words_of(plan) == Words{"event TrainingReturned"});
  CHECK(std::get<core::EmitEvent>(plan.actions.back()).event.note ==
        "training went back to a checkpoint at step 101 (from step 117: copies differed); training "
        "stood still for 42 ms; membership epoch 4");
}

TEST_CASE("who slows the gang is named in status with its cause, and in one event") {
  SnapshotBuilder job = training(3);
  auto report = member_report(2, 0, 1, {0, 1, 2});
  report.slow_percent = 43;
  report.slow_cause = "compute";
  job.report(report);
  job.edit().changes = {{1, 120, "Slow", 2, "by 43 %: compute", 0}};
  // The event is at once; words alone wait for the next progress.
  CHECK(words_of(job.plan()) == Words{"event WorkerSlow"});
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  const core::Plan plan = job.plan();
  CHECK(running_message(status_of(plan)) ==
        "3 of 3 workers run; worker 2 slows the gang by 40 %: compute");
  CHECK(words_of(plan) == Words{"status", "event WorkerSlow"});
  CHECK(std::get<core::EmitEvent>(plan.actions.back()).event.note ==
        "worker 2 slows the gang by 43 %: compute; seen at step 120");
  test::apply(job.edit(), plan);
  job.edit().changes.clear();
  CHECK(job.plan().empty());
  // A little more or less is no news, nor is a cause that nobody knows believed.
  report.slow_percent = 38;
  job.report(report);
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  CHECK(running_message(job.snapshot().job.status) == running_message(status_of(plan)));
  CHECK(job.plan().empty());
  report.slow_cause = "\nevil";
  job.report(report);
  const core::Plan even = job.plan();
  CHECK(running_message(status_of(even)) == "3 of 3 workers run");
}

TEST_CASE("of several processes of a worker the one that slows the gang is named with its rank") {
  SnapshotBuilder job = training(3);
  auto report = member_report(2, 0, 1, {0, 1, 2});
  report.slow_percent = 43;
  report.slow_cause = "compute";
  report.slow_process = 1;
  report.slow_rank = 5;
  job.report(report);
  job.edit().changes = {{1, 120, "Slow", 2, "by 43 %: compute (process 1, rank 5)", 0}};
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  const core::Plan plan = job.plan();
  CHECK(running_message(status_of(plan)) ==
        "3 of 3 workers run; worker 2 slows the gang by 40 %: compute (process 1, rank 5)");
  CHECK(std::get<core::EmitEvent>(plan.actions.back()).event.note ==
        "worker 2 slows the gang by 43 %: compute (process 1, rank 5); seen at step 120");
}

TEST_CASE("changes that workers tell of are events with step and stall, bounded") {
  auto job = training(2);
  job.edit().changes = {{5, 17, "Lost", 1, "its trainer was killed", 12},
                        {6, 18, "Joined", 1, "", 3, 250},
                        {6, 19, "Respawned", 0, "", 4},
                        {7, 20, "Nonsense", 0, "", 4}};
  const core::Plan plan = job.plan();
  CHECK(words_of(plan) == Words{"event WorkerLost", "event WorkerJoined", "event WorkerRespawned"});
  CHECK(std::get<core::EmitEvent>(plan.actions.front()).event.note ==
        "worker 1 was lost at step 17 (its trainer was killed); training stood still for 12 ms; "
        "membership epoch 5");
  CHECK(
      std::get<core::EmitEvent>(plan.actions[1]).event.note ==
      "worker 1 joined at step 18; training stood still for 3 ms, the step took 250 ms longer than "
      "usual; membership epoch 6");
  std::set<std::string> names;
  for (int i = 0; i < 100; ++i) job.edit().changes.push_back({10 + i, 1, "Joined", 1, "", 0});
  for (const auto& action : job.plan().actions) {
    names.insert(std::get<core::EmitEvent>(action).event.meta.name);
  }
  CHECK(names.size() == 9);
}

TEST_CASE("each kind of change has its sentence: who, when, why, for how long") {
  auto job = training(2);
  job.edit().changes = {{5, 17, "Lost", 1, "its trainer was killed", 12},
                        {6, 18, "Joined", 1, "", 3},
                        {7, 19, "Left", 0, "asked to leave", 0},
                        {8, 20, "Respawned", 0, "", 4},
                        {8, 0, "Refused", 2, "contract fp32-chain/9\nmore", 0},
                        {8, 0, "Stranger", 0, "10.0.0.7: it has another key\nmore", 0}};
  const std::vector<std::array<std::string, 3>> expected = {
      {"Warning", "WorkerLost",
       "worker 1 was lost at step 17 (its trainer was killed); training stood still for 12 ms; "
       "membership epoch 5"},
      {"Normal", "WorkerJoined",
       "worker 1 joined at step 18; training stood still for 3 ms; membership epoch 6"},
      {"Normal", "WorkerLost",
       "worker 0 left at step 19 (asked to leave); training stood still for 0 ms; membership epoch "
       "7"},
      {"Warning", "WorkerRespawned",
       "the trainer of worker 0 was respawned at step 20; training stood still for 4 ms; "
       "membership epoch 8"},
      {"Warning", "WorkerLost",
       "worker 2 was not let in (contract fp32-chain/9); membership epoch 8"},
      {"Warning", "WorkerLost", "refused 10.0.0.7: it has another key; membership epoch 8"}};
  const core::Plan plan = job.plan();
  REQUIRE(plan.actions.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const api::Event& event = std::get<core::EmitEvent>(plan.actions[i]).event;
    CHECK(std::array{event.type, event.reason, event.note} == expected[i]);
  }
}

TEST_CASE("what came too fast to be told one by one is told as a number") {
  auto job = training(2);
  job.edit().changes_untold = 1;
  core::Plan plan = job.plan();
  REQUIRE(words_of(plan) == Words{"event Resized"});
  CHECK(std::get<core::EmitEvent>(plan.actions.back()).event.note ==
        "1 more change of the workers' membership");
  for (int i = 0; i < 10; ++i) job.edit().changes.push_back({10 + i, 1, "Joined", 1, "", 0});
  plan = job.plan();
  CHECK(std::get<core::EmitEvent>(plan.actions.back()).event.note ==
        "3 more changes of the workers' membership");
}

TEST_CASE("what the workers wait for is said") {
  auto job = training(2);
  ProgressReport report = member_report(0, 0, 1, {0, 1});
  report.waiting = "the witness";
  job.report(report);
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  CHECK(running_message(status_of(job.plan())) ==
        "2 of 2 workers run; the workers wait: the witness");
}

TEST_CASE("that a pod may not be deleted is said, whatever waits for it") {
  const std::string refusal = "delete pod default/j-1: pods stay for the audit";
  const std::string said = "; a pod that is to go may not be deleted (" + refusal +
                           "): let the operator delete it, or delete it yourself";
  SnapshotBuilder trains = training(2);
  trains.edit().job.status.progress->updated_at = kNow - seconds(20);
  trains.edit().deletion_refused = refusal;
  CHECK(running_message(status_of(trains.plan())) == "2 of 2 workers run" + said);

  // Slot 1 of the first attempt is still there.
  const auto waiting = [&] {
    auto job = test::make_job("j").workers(2).placed(1).condition("Running", false);
    job.pod(1, api::PodPhase::kRunning, 0);
    job.edit().deletion_refused = refusal;
    return job;
  };
  const std::string waits = "waiting for the last attempt's pods to go";
  auto placed = waiting();
  CHECK(words_of(placed.plan()).back() == "status");
  CHECK(running_message(status_of(placed.plan())) == waits + said);
  auto homeless = waiting();
  homeless.edit().job.status.placement.clear();
  CHECK(status_of(homeless.plan()).condition("Admitted")->message == waits + said);

  auto suspended = waiting();
  suspended.edit().job.spec.suspend = true;
  test::apply(suspended.edit(), suspended.plan());  // The decision.
  test::apply(suspended.edit(), [&] {
    // As a policy has it: the pod stays.
    core::Plan plan = suspended.plan();
    std::erase_if(plan.actions, [](const core::Action& action) {
      return std::holds_alternative<core::DeletePod>(action);
    });
    return plan;
  }());
  CHECK(running_message(suspended.snapshot().job.status) ==
        "waiting for the workers to leave" + said);
  suspended.edit().deletion_refused.clear();
  suspended.edit().pods.clear();
  test::apply(suspended.edit(), suspended.plan());
  CHECK(suspended.snapshot().job.status.is_true("Suspended"));
  CHECK(running_message(suspended.snapshot().job.status) == "spec.suspend is true");
}

TEST_CASE("who ends again and again is named with why, and no more once it trains") {
  auto job = training(2);
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  const std::string why =
      "; worker 1 ends again and again: DiskFull /out/record.jsonl: cannot write: No space left";
  auto& placement = job.edit().job.status.placement[1];
  placement.member = false;
  job.edit().reports.erase(1);
  SUBCASE("while its next attempt waits") {
    placement.replacements = 2;
    end_pod(job, 1, contract::exit_code::kDisk);
    pod_of(job, 1).termination->message = "/out/record.jsonl: cannot write: No space left";
    CHECK(running_message(status_of(job.plan())) == "1 of 2 workers run" + why);
  }
  SUBCASE("while its next attempt is on its way in") {
    placement.replacements = 2;
    job.edit().job.status.failure = api::FailureStatus{};
    auto& failure = *job.edit().job.status.failure;
    failure.slot = 1;
    failure.exit_code = contract::exit_code::kDisk;
    failure.reason = "DiskFull";
    failure.log_tail = "/out/record.jsonl: cannot write: No space left";
    CHECK(running_message(status_of(job.plan())) == "1 of 2 workers run" + why);
    placement.member = true;
    CHECK(job.plan().empty());  // "2 of 2 workers run", as before
    placement.member = false;
    placement.replacements = 1;
    CHECK(running_message(status_of(job.plan())) == "1 of 2 workers run");
  }
  SUBCASE("not the first time, which is mended at once") {
    end_pod(job, 1, contract::exit_code::kDisk);
    answer(job, "", 0);
    CHECK(running_message(status_of(job.plan())) ==
          "1 of 2 workers run; 1 worker waits for a place: no room");
  }
}

namespace {

/// Words alone wait for the next progress: it is due.
std::string said_now(SnapshotBuilder& job) {
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  const core::Plan plan = job.plan();
  if (!plan.empty()) test::apply(job.edit(), plan);
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  CHECK(job.plan().empty());
  return running_message(job.snapshot().job.status);
}

/// The pod of a slot that trains no more cannot start where it is.
void cannot_start(SnapshotBuilder& job, int slot, const std::string& reason) {
  job.edit().reports.erase(slot);
  for (auto& placement : job.edit().job.status.placement) {
    if (placement.slot == slot) placement.member = false;
  }
  api::Pod& pod = pod_of(job, slot);
  pod.phase = api::PodPhase::kPending;
  pod.reason = reason;
  pod.message = "in words";
}

}  // namespace

TEST_CASE("a size that has to wait is said once, however long somebody else waits") {
  auto job = training(3);
  job.edit().job.status.kueue_queue = "team";
  job.edit().job.meta.labels["kueue.x-k8s.io/queue-name"] = "team";
  job.edit().job.spec.worker.count = 5;
  cannot_start(job, 1, "CreateContainerError");
  CHECK(said_now(job) ==
        "2 of 3 workers run; spec.worker.count is 5, which takes effect at the next start; worker "
        "1 waits: CreateContainerError in words");
}

TEST_CASE("who waits for something else than before says so, and the kubelet's two words are one") {
  auto job = training(2);
  cannot_start(job, 1, "CreateContainerConfigError");
  const std::string waits = "1 of 2 workers run; worker 1 waits: ";
  CHECK(said_now(job) == waits + "CreateContainerConfigError in words");
  pod_of(job, 1).message = "in other words";
  CHECK(said_now(job) == waits + "CreateContainerConfigError in words");
  pod_of(job, 1).reason = "ErrImagePull";
  CHECK(said_now(job) == waits + "ImagePullBackOff in other words");
  pod_of(job, 1).reason = "ImagePullBackOff";
  pod_of(job, 1).message = "back-off";
  CHECK(said_now(job) == waits + "ImagePullBackOff in other words");
}

TEST_CASE("a worker that says what its gang's message says makes that no longer with each look") {
  auto job = training(3);
  cannot_start(job, 2, "CreateContainerError");
  pod_of(job, 2).message = "no such file";
  auto report = member_report(0, 0, 1, {0, 1, 2});
  report.waiting = "x; worker 2 waits: CreateContainerError y";
  job.report(report);
  CHECK(said_now(job) ==
        "2 of 3 workers run; the workers wait: x; worker 2 waits: CreateContainerError y; worker 2 "
        "waits: CreateContainerError no such file");
}

TEST_CASE("words that did not fit are said whole when there is room, and no longer than they are") {
  auto job = training(3);
  job.edit().job.spec.worker.min = 3;
  job.edit().budget = 3;
  job.edit().unschedulable_nodes = {"n"};
  job.edit().lasted["cordoned/n"] = core::words::kCordonedFor;
  cannot_start(job, 2, "CreateContainerError");
  pod_of(job, 2).message = std::string(200, 'm');
  job.edit().create_failure = core::CreateFailure{"CreateFailed", std::string(500, 'c')};
  auto busy = member_report(0, 0, 1, {0, 1, 2});
  busy.waiting = std::string(250, 'w');
  busy.busy_seconds = 60;
  busy.busy_path = std::string(250, 'p');
  job.report(busy);
  CHECK(said_now(job).size() == core::words::kMaxMessageBytes);
  job.report(member_report(0, 0, 1, {0, 1, 2}));
  CHECK(said_now(job) ==
        "2 of 3 workers run; node n is cordoned, and the disruption budget lets no drain take a "
        "worker from there, because no more than spec.worker.min (3) run: " +
            std::string(500, 'c') +
            "; to have it emptied now, set spec.worker.min lower or spec.suspend to true; worker 2 "
            "waits: CreateContainerError " +
            std::string(200, 'm'));
}
