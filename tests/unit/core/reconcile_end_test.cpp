// How a gang ends: success, failures and the restart policy, deadline, time to live.
#include <doctest/doctest.h>

#include <algorithm>

#include "common/contract.h"
#include "operator/core/end_policy.h"
#include "operator/core/schedule.h"
#include "operator/core/status_edit.h"
#include "tests/unit/core/builders.h"

using namespace muster;
using namespace muster::test;
using Words = std::vector<std::string>;
using api::PodPhase;
namespace codes = contract::exit_code;

TEST_CASE("the status of an ended job follows changes of its spec") {
  auto job = make_job("j").workers(1).placed().ended(0, 0).condition("Running", true);
  while (!job.snapshot().job.status.finished()) apply(job.edit(), job.plan());
  job.edit().job.meta.generation = 2;
  const auto plan = job.plan();
  CHECK(status_of(plan).observed_generation == 2);
  // What became of it was decided by the spec before.
  CHECK(status_of(plan).condition("Complete")->observed_generation == 1);
  apply(job.edit(), plan);
  CHECK(job.snapshot().job.status.finished());
  for (const auto& word : words_of(job.plan())) CHECK(word != "status");
}

TEST_CASE("a job is complete when every member ended with 0") {
  auto job = make_job("j").workers(2).placed().ended(0, 0).running(1).condition("Running", true);
  CHECK_FALSE(status_of(job.plan()).finished());
  job.edit().pods.pop_back();
  const auto plan = job.ended(1, 0).plan();
  CHECK(words_of(plan) == Words{"status", "event Completed"});
  const auto& status = status_of(plan);
  CHECK(status.is_true("Complete"));
  CHECK(status.phase == "Complete");
  CHECK_FALSE(status.is_true("Running"));
  CHECK(status.completion_time == kNow);
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
}

TEST_CASE("the last word of slot 0 gives the facts of the model") {
  ProgressReport last;
  last.job = "default/j";
  last.step = last.total_steps = 440;
  last.loss = "0.01";
  last.accuracy = "0.98";
  last.model_parameters = 9610;
  last.model_sha256 = std::string(64, 'a');
  last.data_sha256 = std::string(64, 'b');
  last.checkpoint_step = 440;
  auto job = make_job("j").engine().workers(1).placed().ended(0, 0, dump_json(to_json(last)));
  const auto plan = job.plan();
  const auto& status = status_of(plan);
  CHECK(status.progress->step == 440);
  CHECK(status.progress->accuracy == "0.98");
  CHECK(status.model_parameters == 9610);
  CHECK(status.model_sha256 == std::string(64, 'a'));
  CHECK(status.data_sha256 == std::string(64, 'b'));
  CHECK(status.checkpoint->step == 440);
}

TEST_CASE("a last word that is none falls back to the newest report") {
  ProgressReport report;
  report.step = 439;
  const std::string deep(4000, '[');
  for (const std::string& word :
       {std::string("bye"), std::string("[]"), deep, std::string("{}"), std::string(5000, 'x')}) {
    auto job = make_job("j").engine().workers(1).placed().ended(0, 0, word).report(report);
    CHECK(status_of(job.plan()).progress->step == 439);
  }
}

TEST_CASE("a failed worker restarts the whole gang: decision, pods, back-off, new pods") {
  auto job = make_job("j").workers(2).all_running().condition("Admitted", true);
  job.edit().pods.pop_back();
  job.ended(1, 137, "killed");
  job.edit().pods[1].node_name = "m";
  auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event WorkerLost", "event Restarting"});
  CHECK(plan.pass == core::Pass::kDecision);
  auto status = status_of(plan);
  CHECK(status.restarts == 1);
  CHECK(status.membership_epoch == 2);
  CHECK(status.placement == std::vector<api::SlotPlacement>{{0, 1, "n", ""}, {1, 1, "n", ""}});
  CHECK(status.failure->slot == 1);
  CHECK(status.failure->exit_code == 137);
  CHECK(status.failure->reason == "Signaled");
  CHECK(status.failure->log_tail == "killed");
  CHECK(status.failure->node == "m");
  CHECK(status.failure->attempt == 0);
  CHECK(status.is_true("Restarting"));
  CHECK(status.is_true("Admitted"));  // the places are kept
  CHECK_FALSE(status.is_true("Running"));
  apply(job.edit(), plan);
  plan = job.plan();
  CHECK(words_of(plan) == Words{"delete pod-1-0", "delete pod-0-0"});
  job.deleting(0).deleting(1);
  CHECK(job.at(kNow + seconds(11)).plan().empty());  // they are still there
  job.edit().pods.clear();
  plan = job.at(kNow + seconds(5)).plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(6));
  const std::string stem = api::service_name(job.snapshot().job);
  CHECK(words_of(job.at(kNow + seconds(11)).plan()) ==
        Words{"service", "create " + stem + "-0-1", "create " + stem + "-1-1"});
}

TEST_CASE("a pod that cannot end is superseded after its time, not waited for") {
  auto job = make_job("j").workers(1).placed(0).running(0).placed(1);
  job.deleting(0);
  job.edit().pods[0].meta.deletion_grace_seconds = 7;
  // Its time is measured, not read from a clock that may leap.
  CHECK(job.at(kNow + seconds(9000)).lasting(seconds(36)).plan().empty());
  CHECK(job.plan().requeue_after == seconds(1));
  CHECK(words_of(job.at(kNow).lasting(seconds(37)).plan()).size() == 2);  // service and pod
}

TEST_CASE("back-off doubles per restart up to five minutes") {
  api::RestartSpec restart;
  restart.backoff_seconds = 10;
  CHECK(core::restart_backoff(restart, 0) == seconds(10));
  CHECK(core::restart_backoff(restart, 1) == seconds(20));
  CHECK(core::restart_backoff(restart, 4) == seconds(160));
  CHECK(core::restart_backoff(restart, 5) == seconds(300));
  CHECK(core::restart_backoff(restart, 1'000'000) == seconds(300));
  restart.backoff_seconds = -5;
  CHECK(core::restart_backoff(restart, -3) == seconds(0));
}

TEST_CASE("the job has failed when its policy says so") {
  struct Row {
    std::string policy;
    int most, done, code;
    bool typed;
    std::string reason;  ///< empty: restarted
  };
  const std::vector<Row> rows{
      {"OnFailure", 3, 0, 1, false, ""},
      {"OnFailure", 3, 2, 1, false, ""},
      {"OnFailure", 3, 3, 1, false, "RestartLimitReached"},
      {"OnFailure", 0, 0, 1, false, "RestartLimitReached"},
      {"Never", 3, 0, 1, false, "WorkerFailed"},
      {"OnFailure", 3, 0, codes::kData, true, "DataInvalid"},
      {"OnFailure", 3, 0, codes::kNumerics, true, "Numerics"},
      {"OnFailure", 3, 0, codes::kPeerLost, true, ""},
      {"OnFailure", 3, 0, codes::kDisk, true, ""},
      {"OnFailure", 3, 0, codes::kPlannedLeave, true, ""},
      // Codes mean something only where the engine is ours.
      {"OnFailure", 3, 0, codes::kData, false, ""},
  };
  for (const auto& row : rows) {
    CAPTURE(row.policy);
    CAPTURE(row.code);
    auto job = make_job("j").workers(1).restarts(row.policy, row.most, row.done);
    if (row.typed) job.engine();
    job.placed().ended(0, row.code, "what happened");
    const auto plan = job.plan();
    const auto& status = status_of(plan);
    CHECK(status.is_true("Failed") == !row.reason.empty());
    CHECK(status.failure->exit_code == row.code);
    if (row.reason.empty()) {
      CHECK(status.restarts == row.done + (row.code == codes::kPlannedLeave ? 0 : 1));
      continue;
    }
    CHECK(status.condition("Failed")->reason == row.reason);
    CHECK(status.condition("Failed")->message.find("what happened") != std::string::npos);
    CHECK(status.restarts == row.done);
    CHECK(words_of(plan) == Words{"status", "event Failed", "event WorkerLost"});
    apply(job.edit(), plan);
    CHECK(job.plan().empty());
  }
}

TEST_CASE("the failure told is the cause, not those who lost their peer") {
  auto job = make_job("j").engine().workers(3).placed();
  job.ended(0, codes::kPeerLost).ended(1, codes::kPeerLost).ended(2, codes::kOutOfMemory);
  CHECK(status_of(job.plan()).failure->slot == 2);
  auto final = make_job("j").engine().workers(3).placed();
  final.ended(0, codes::kPeerLost).ended(1, 137).ended(2, codes::kNumerics);
  CHECK(status_of(final.plan()).failure->slot == 2);
  CHECK(status_of(final.plan()).is_true("Failed"));
}

TEST_CASE("a follower's end alone is not judged before the cause had time to show") {
  auto job = make_job("j").engine().workers(2).placed().ended(0, codes::kPeerLost).running(1);
  auto plan = job.plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(2));
  job.lasting(seconds(2));
  CHECK(status_of(job.plan()).failure->slot == 0);
  auto all_ended = make_job("j").engine().workers(2).placed();
  all_ended.ended(0, codes::kPeerLost).ended(1, codes::kPeerLost);
  CHECK(status_of(all_ended.plan()).restarts == 1);
}

TEST_CASE("a pod that is lost brings the gang back; its absence is confirmed first") {
  auto job = make_job("j").workers(2).all_running();
  job.edit().pods.pop_back();
  const auto plan = job.plan();
  const auto& patch = std::get<core::PatchStatus>(plan.actions.front());
  REQUIRE(patch.confirm_absent.size() == 1);
  CHECK(patch.confirm_absent[0].name == api::service_name(job.snapshot().job) + "-1-0");
  CHECK(patch.status.failure->reason == "WorkerLost");
  CHECK(patch.status.restarts == 1);

  auto deleted = make_job("j").workers(2).all_running().deleting(0);
  CHECK(status_of(deleted.plan()).failure->slot == 0);
  CHECK(std::get<core::PatchStatus>(deleted.plan().actions.front()).confirm_absent.empty());
}

TEST_CASE("a gang whose node is gone is placed elsewhere") {
  auto job = make_job("j").workers(2).all_running();
  job.condition("Admitted", true);
  job.edit().gone_nodes = {"n"};
  auto plan = job.plan();
  CHECK(status_of(plan).placement.empty());
  CHECK(status_of(plan).condition("Admitted")->status == "False");
  CHECK(status_of(plan).condition("Admitted")->reason == "Restarting");
  CHECK(status_of(plan).membership_epoch == 2);
  apply(job.edit(), plan);
  // It stands in line, so that nobody younger gets its room meanwhile.
  const auto waits = [&] { return core::wanted_places(job.snapshot()).value().not_yet; };
  CHECK(waits());
  apply(job.edit(), job.plan());
  CHECK(waits());
  job.at(kNow + seconds(11)).fits_on("m");
  CHECK_FALSE(waits());
  plan = job.plan();
  CHECK(status_of(plan).placement[0].node == "m");
  CHECK(status_of(plan).placement[0].attempt == 2);
  CHECK(status_of(plan).is_true("Admitted"));
  CHECK(status_of(plan).is_true("Restarting"));
}

namespace {

/// Worker 1 has failed in a container that runs before it.
test::SnapshotBuilder failed_before_it_began(const std::string& container, int code) {
  auto job = make_job("j").workers(2).placed();
  job.edit().job.spec.worker.init_containers = {{"fetch", {}, {}, Json::object()}};
  job.pod(0, PodPhase::kPending).pod(1, PodPhase::kFailed);
  job.edit().pods[1].init_failure =
      api::Termination{code, 0, "Error", "no such bucket\n", container};
  return job;
}

}  // namespace

TEST_CASE("a worker that fails in an init container of its job has failed by the job's own doing") {
  auto job = failed_before_it_began("fetch", 7);
  const auto plan = job.plan();
  const auto status = status_of(plan);
  CHECK(status.restarts == 1);
  CHECK(status.failure->container == "fetch");
  CHECK(status.failure->exit_code == 7);
  CHECK(status.failure->reason == "Error");
  CHECK(status.failure->log_tail == "no such bucket\n");
  CHECK(plan.avoid.empty());
  CHECK(
      plan.reason ==
      "worker 1 (attempt 0) on node n failed in init container fetch with exit code 7 (Error): no "
      "such bucket; the gang starts again in 10 s (restart 1 of 3)");
  apply(job.edit(), plan);
  CHECK(job.snapshot().job.status.failure->container == "fetch");
  job = failed_before_it_began("fetch", 7).restarts("OnFailure", 3, 3);
  CHECK(status_of(job.plan()).condition("Failed")->reason == "RestartLimitReached");
  // Its codes are its own, also where the workers' have a meaning: 20 would be InvalidSpec.
  job = failed_before_it_began("fetch", 20).engine();
  CHECK(status_of(job.plan()).restarts == 1);
  CHECK(status_of(job.plan()).failure->reason == "Error");
  api::FailureStatus last = *status_of(job.plan()).failure;
  CHECK_FALSE(core::is_unfit(job.snapshot().job, last));
  last.container.clear();
  CHECK(core::is_unfit(job.snapshot().job, last));
  job = failed_before_it_began("fetch", 137);
  CHECK(status_of(job.plan()).failure->reason == "Signaled");
  job.edit().pods[1].init_failure->reason = "OOMKilled";
  CHECK(status_of(job.plan()).failure->reason == "OutOfMemory");
}

TEST_CASE("a worker that fails in what a webhook put before it is not started for ever") {
  auto job = failed_before_it_began("proxy", 7);
  const auto plan = job.plan();
  CHECK(status_of(plan).restarts == 1);
  CHECK(status_of(plan).failure->container == "proxy");
  CHECK(status_of(plan).failure->exit_code == 7);
  CHECK(plan.avoid.empty());
  CHECK(
      plan.reason ==
      "worker 1 (attempt 0) on node n failed in init container proxy, which is none of the job's, "
      "with exit code 7 (Error): no such bucket; the gang starts again in 10 s (restart 1 of 3)");
  job = failed_before_it_began("proxy", 7).restarts("OnFailure", 3, 3);
  CHECK(status_of(job.plan()).condition("Failed")->reason == "RestartLimitReached");
  // Its codes are none of the engine's: 20 would be InvalidSpec.
  job = failed_before_it_began("proxy", 20).engine();
  CHECK(status_of(job.plan()).restarts == 1);
  CHECK(status_of(job.plan()).failure->reason == "Error");
}

TEST_CASE("a pod that the cluster ended is not judged by a container before its worker") {
  // A pod that the node took away says so, whatever its containers ended with.
  auto job = failed_before_it_began("fetch", 137);
  job.edit().pods[1].reason = "Evicted";
  CHECK(status_of(job.plan()).restarts == 0);
  CHECK(status_of(job.plan()).failure->reason == "Evicted");
  CHECK(status_of(job.plan()).failure->container == "");
}

TEST_CASE("an evicted pod is a failure with the node's reason") {
  auto job = make_job("j").workers(1).placed().pod(0, PodPhase::kFailed);
  job.edit().pods[0].reason = "Evicted";
  job.edit().pods[0].message = "low on disk";
  CHECK(status_of(job.plan()).failure->reason == "Evicted");
  CHECK(status_of(job.plan()).failure->log_tail == "low on disk");
}

TEST_CASE("what a worker wrote at its end is cut to 2,048 bytes of clean text") {
  const std::string message = std::string(3000, '\xFF') + std::string(100, 'x');
  auto job = make_job("j").workers(1).placed().ended(0, 1, message);
  const auto plan = job.plan();
  CHECK(status_of(plan).failure->log_tail.size() == 2048);
  apply(job.edit(), plan);
}

TEST_CASE("of a log's end in place of a last word the sentence gives the line that says why") {
  const std::string log =
      R"(ime":"2026","level":"error","message":"is cut in the middle"}
{"level":"error","message":"a view was dropped","error":"an older one"}
{"level":"error","message":"worker failed","exit_code":21,"error":"/data/a.png: is damaged"}
{"level":"warning","message":"cannot write the termination log","error":"Read-only file system"}
)";
  const std::string traceback =
      "Traceback (most recent call last):\n  File \"train.py\", line 3\nValueError: no data\n \n";
  struct Row {
    bool is_engine;
    std::string left, said;
  };
  const std::vector<Row> rows{
      {true, log, "/data/a.png: is damaged"},
      {true, R"({"level":"error","message":"a trainer has died"})", "a trainer has died"},
      {true, R"({"level":"info","message":"step 7"})", R"({"level":"info","message":"step 7"})"},
      {true, "/data/a.png: is damaged", "/data/a.png: is damaged"},
      {true, R"({"level":7,"error":{}})", R"({"level":7,"error":{}})"},
      {false, traceback, "ValueError: no data"},
      // What its lines mean is its own affair.
      {false, log + "  Segmentation fault\n", "Segmentation fault"},
      {false, "loss is NaN", "loss is NaN"},
      // What torchrun ends with.
      {false, "ValueError: no data\n" + std::string(60, '=') + "\n", "ValueError: no data"},
      {false, "\xC3\xA4\n---\n", "\xC3\xA4"},
      {true, "{\"level\":\"error\",\"error\":\"an older one\"}\n{\"level\":\"error\"}",
       "an older one"},
      {false, "why\n" + std::string(400, 'x'), std::string(256, 'x')},
  };
  for (const auto& row : rows) {
    CAPTURE(row.left);
    auto job = make_job("j").workers(1).restarts("Never", 0);
    if (row.is_engine) job.engine();
    const auto plan = job.placed().ended(0, codes::kData, row.left).plan();
    const std::string& message = status_of(plan).condition("Failed")->message;
    CHECK(message.find("): " + row.said + "; ") != std::string::npos);
    // Others read what the engine says, too.
    CHECK(status_of(plan).failure->log_tail == (row.is_engine ? row.said : row.left));
  }
  auto silent = make_job("j").workers(1).restarts("Never", 0).placed().ended(0, 1, " \n\n ");
  CHECK(status_of(silent.plan()).condition("Failed")->message.find("(Error);") !=
        std::string::npos);
}

TEST_CASE("a finished job owns no live pod, and keeps those that ended") {
  auto job = make_job("j").workers(3).placed().ended(0, 1).running(1).pod(2, PodPhase::kPending);
  job.restarts("Never", 0);
  apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().job.status.finished());
  CHECK(words_of(job.plan()) == Words{"delete pod-1-0", "delete pod-2-0"});
}

TEST_CASE(
    "a finished job keeps the pods whose containers have ended while their phase lags behind") {
  auto job = make_job("j").workers(2).placed().ended(0, 0).ended(1, 0);
  for (auto& pod : job.edit().pods) pod.phase = PodPhase::kRunning;
  apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().job.status.finished());
  CHECK(words_of(job.plan()).empty());
  CHECK(job.plan().requeue_after == seconds(30));
  CHECK(words_of(job.lasting(seconds(29)).plan()).empty());
}

TEST_CASE("what others put into a pod does not hold the resources of a job that has ended") {
  for (const int code : {0, 1}) {
    auto job = make_job("j").restarts("Never", 0).workers(3).placed();
    job.ended(0, code).ended(1, code).ended(2, code);
    for (const std::size_t runs_on : {0u, 2u}) {
      job.edit().pods[runs_on].phase = PodPhase::kRunning;
    }
    apply(job.edit(), job.plan());
    REQUIRE(job.snapshot().job.status.finished());
    const auto plan = job.lasting(seconds(30)).plan();
    CHECK(words_of(plan) == Words{"delete pod-0-0", "delete pod-2-0"});
    CHECK(plan.reason.find("run on: deleted") != std::string::npos);
    job.deleting(0).deleting(2);
    CHECK(words_of(job.plan()).empty());
  }
}

TEST_CASE("a pod that runs on after its worker stays while the job has not ended") {
  auto job = make_job("j").workers(2).placed().ended(0, 0).running(1);
  job.edit().pods[0].phase = PodPhase::kRunning;
  const auto deletes = [](const core::Plan& plan) {
    const Words words = words_of(plan);
    return std::count(words.begin(), words.end(), "delete pod-0-0");
  };
  CHECK(deletes(job.lasting(seconds(600)).plan()) == 0);
}

TEST_CASE("the deadline ends the job, counted from its start") {
  auto job = make_job("j").workers(1).all_running();
  job.edit().job.spec.active_deadline_seconds = 60;
  auto plan = job.at(kNow + seconds(59)).plan();
  CHECK_FALSE(status_of(plan).finished());
  CHECK(plan.requeue_after == seconds(1));
  plan = job.at(kNow + seconds(60)).plan();
  CHECK(words_of(plan) == Words{"status", "event Failed"});
  CHECK(status_of(plan).condition("Failed")->reason == "DeadlineExceeded");
  apply(job.edit(), plan);
  CHECK(words_of(job.plan()) == Words{"delete pod-0-0"});
}

TEST_CASE("no deadline runs while a gang that never ran has given its places back") {
  auto job = make_job("j").workers(2).placed();
  job.edit().job.spec.active_deadline_seconds = 60;
  job.edit().create_failure = core::CreateFailure{"QuotaExceeded", "exceeded quota: gpus"};
  apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().job.status.placement.empty());
  CHECK(job.at(kNow + seconds(3600)).plan().empty());
  job.edit().create_failure.reset();
  apply(job.edit(), job.fits_on("n").plan());
  CHECK(job.snapshot().job.status.start_time == kNow + seconds(3600));
}

TEST_CASE("the deadline of a gang that has run goes on while it waits for another place") {
  for (const bool was_restarted : {false, true}) {
    CAPTURE(was_restarted);
    auto job = make_job("j").workers(2).all_running();
    job.edit().job.spec.active_deadline_seconds = 60;
    job.edit().pods.pop_back();
    if (was_restarted) {
      apply(job.edit(), job.ended(1, 1).plan());
      job.edit().pods.clear();
      job.at(kNow + seconds(20));
    } else {
      job.edit().job.status.conditions.clear();  // the whole gang was not seen to run yet
    }
    job.edit().create_failure = core::CreateFailure{"QuotaExceeded", "exceeded quota: gpus"};
    apply(job.edit(), job.plan());
    REQUIRE(job.snapshot().job.status.placement.empty());
    job.edit().pods.clear();
    job.edit().create_failure.reset();
    const auto waiting = job.does_not_fit("no room").at(kNow + seconds(59)).plan();
    CHECK(waiting.requeue_after == seconds(1));
    CHECK(status_of(job.at(kNow + seconds(60)).plan()).is_true("Failed"));
  }
}

TEST_CASE("however often a gang gives way, its deadline counts all the time that it ran") {
  auto job = make_job("j").workers(1).all_running();
  job.edit().job.spec.active_deadline_seconds = 100;
  WallTime now = kNow;
  for (int run = 0; run < 3; ++run) {
    const bool is_for_a_job = run != 1;  // else its queue's budget is spent
    CAPTURE(run);
    const seconds ran(30 * run);
    job.edit().take_back = core::TakeBack{};
    if (is_for_a_job) job.edit().take_back->job = {"team", "x"};
    apply(job.edit(), job.at(now += seconds(30)).plan());
    CHECK_FALSE(job.snapshot().job.status.start_time);
    CHECK(job.snapshot().job.status.past_active_seconds == ran.count() + 30);
    job.edit().take_back.reset();
    job.edit().pods.clear();
    // While it waits no time of it passes.
    now += seconds(1000);
    const auto waiting = job.does_not_fit("no room").at(now).plan();
    CHECK_FALSE(status_of(waiting).finished());
    CHECK_FALSE(waiting.requeue_after);
    CHECK(core::gang_of(job.snapshot().job).ends_within == seconds(70) - ran);
    apply(job.edit(), job.fits_on("n").plan());
    CHECK(job.snapshot().job.status.start_time == now);
    CHECK(core::deadline_left(job.snapshot().job, now) == seconds(70) - ran);
    apply(job.edit(), job.plan());
    for (auto& pod : job.edit().pods) pod.phase = api::PodPhase::kRunning;
  }
  CHECK_FALSE(status_of(job.at(now + seconds(9)).plan()).finished());
  const auto over = status_of(job.at(now + seconds(10)).plan());
  CHECK(over.condition("Failed")->reason == "DeadlineExceeded");
  CHECK(over.condition("Failed")->message ==
        "spec.activeDeadlineSeconds (100) have passed since the start, 90 s before it last gave "
        "its places up among them");
}

TEST_CASE("who suspends a job gives it all of its time again, also where it was preempted before") {
  auto job = make_job("j").workers(1).all_running();
  job.edit().job.spec.active_deadline_seconds = 100;
  job.edit().job.status.past_active_seconds = 70;
  job.edit().job.spec.suspend = true;
  SUBCASE("while it runs") {}
  SUBCASE("while it waits") {
    job.edit().pods.clear();
    job.edit().job.status.placement.clear();
    job.edit().job.status.start_time.reset();
  }
  for (int pass = 0; pass < 3; ++pass) apply(job.edit(), job.at(kNow + seconds(20)).plan());
  CHECK(job.snapshot().job.status.past_active_seconds == 0);
}

TEST_CASE("a deadline that was lowered below what a waiting job has had ends it at once") {
  auto job = make_job("j").workers(1).does_not_fit("no room");
  job.edit().job.status.membership_epoch = 1;
  job.edit().job.status.past_active_seconds = 70;
  job.edit().job.spec.active_deadline_seconds = 71;
  CHECK_FALSE(status_of(job.plan()).finished());
  job.edit().job.spec.active_deadline_seconds = 70;
  CHECK(status_of(job.plan()).condition("Failed")->reason == "DeadlineExceeded");
}

TEST_CASE("times and amounts that nobody can have run stay within what a status may say") {
  auto job = make_job("j").workers(1).all_running();
  job.edit().job.status.start_time = WallTime{} + seconds(1);
  job.edit().job.status.past_active_seconds = INT32_MAX - 5;
  job.edit().take_back = core::TakeBack{};
  CHECK(status_of(job.plan()).past_active_seconds == INT32_MAX);
  job.edit().job.status.past_active_seconds = 3;
  job.edit().job.status.start_time = kNow + seconds(3600);  // a clock that was set back
  CHECK(status_of(job.plan()).past_active_seconds == 3);
}

TEST_CASE("a job whose last worker ended in time is complete, deadline or not") {
  auto job = make_job("j").workers(1).placed().ended(0, 0).at(kNow + seconds(100));
  job.edit().job.spec.active_deadline_seconds = 60;
  CHECK(status_of(job.plan()).is_true("Complete"));
}

TEST_CASE("an ended job is deleted when its time to live has passed") {
  auto job = make_job("j").workers(1).placed().ended(0, 0);
  job.edit().job.spec.ttl_seconds_after_finished = 100;
  apply(job.edit(), job.plan());
  auto plan = job.at(kNow + seconds(99)).plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(1));
  plan = job.at(kNow + seconds(100)).plan();
  CHECK(words_of(plan) == Words{"delete job"});
  const auto& deletion = std::get<core::DeleteJob>(plan.actions[0]);
  CHECK(deletion.uid == "uid-j");
  CHECK(deletion.resource_version == job.snapshot().job.meta.resource_version);
  // A status write makes another object of it; what that shows is looked at first.
  job.edit().job.meta.generation += 1;
  CHECK(words_of(job.plan()) == Words{"status"});
  apply(job.edit(), job.plan());
  CHECK(words_of(job.plan()) == Words{"delete job"});
}

TEST_CASE("the transition time of a condition moves only when it flips") {
  auto job = make_job("j").workers(1).placed().condition("Restarting", false).ended(0, 1);
  const auto plan = job.plan();
  CHECK(status_of(plan).condition("Restarting")->last_transition_time == kNow);
  auto again = make_job("j").workers(1).placed().condition("Restarting", true).ended(0, 1);
  CHECK(status_of(again.plan()).condition("Restarting")->last_transition_time ==
        kNow - seconds(60));
}

TEST_CASE("a status write carries uid and version as preconditions and only what changed") {
  auto job = make_job("j").workers(1).placed().running(0);
  const auto plan = job.plan();
  const auto& patch = std::get<core::PatchStatus>(plan.actions.front()).patch;
  CHECK(patch["metadata"] == Json{{"uid", "uid-j"}, {"resourceVersion", "1"}});
  CHECK(patch["status"].contains("conditions"));
  CHECK_FALSE(patch["status"].contains("placement"));
}
