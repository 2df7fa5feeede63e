// Admission, start, running, suspension: one TrainingJob on its way up.
#include <doctest/doctest.h>

#include "common/contract.h"
#include "operator/core/progress.h"
#include "operator/core/status_edit.h"
#include "operator/core/words.h"
#include "tests/unit/core/builders.h"
#include "tests/unit/core/trees.h"

using namespace muster;
using namespace muster::test;
using Words = std::vector<std::string>;
using api::PodPhase;

TEST_CASE("a job that fits is placed by a decision that does nothing else") {
  auto job = make_job("j").workers(2).fits_on("n");
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event GangScheduled"});
  CHECK(plan.pass == core::Pass::kDecision);
  const auto& status = status_of(plan);
  CHECK(status.membership_epoch == 1);
  CHECK(status.placement == std::vector<api::SlotPlacement>{{0, 0, "n", ""}, {1, 0, "n", ""}});
  CHECK(status.target_workers == 2);
  CHECK(status.workers == "0/2");
  CHECK(status.selector == "muster.dev/job-uid=" + job.snapshot().job.meta.uid);
  CHECK(status.start_time == kNow);
  CHECK(status.is_true("Admitted"));
  CHECK(status.condition("Admitted")->observed_generation == 1);
  CHECK(status.observed_generation == 1);
}

TEST_CASE("status says by which contract a job trains") {
  auto job = make_job("j").workers(1).fits_on("n").engine();
  CHECK(status_of(job.plan()).contract == "fp32-chain/1");
  auto snapshot = job.snapshot();
  snapshot.job.spec.training->precision = "BFloat16";
  CHECK(status_of(core::reconcile(snapshot)).contract == "bf16-chain/1");
}

TEST_CASE("who holds or waits for GPUs is told which workers train on them") {
  const auto admitted = [](core::JobSnapshot snapshot) {
    snapshot.job.spec.worker.resources.gpus = 2;
    return status_of(core::reconcile(snapshot)).condition("Admitted")->message;
  };
  const std::string about = "; spec.worker.resources.gpus is 2: of the built-in engine";
  const auto placed = make_job("j").engine().workers(1).fits_on("n").snapshot();
  CHECK(admitted(placed).starts_with("1 worker on n (1)" + about));
  const auto waiting = make_job("j").engine().workers(1).does_not_fit("no room").snapshot();
  CHECK(admitted(waiting).starts_with("no room" + about));
  CHECK(admitted(make_job("j").workers(1).fits_on("n").snapshot()) == "1 worker on n (1)");
}

TEST_CASE("the first status is written whole, zeroes too: columns must not be blank") {
  const auto plan = make_job("j").workers(2).fits_on("n").plan();
  const auto* patch = std::get_if<core::PatchStatus>(&plan.actions.front());
  REQUIRE(patch != nullptr);
  CHECK(patch->patch["status"]["restarts"] == 0);
}

TEST_CASE("pods follow only from a stored placement, all of them, after the Service") {
  const auto job = make_job("j").workers(2).placed().snapshot();
  const std::string stem = api::service_name(job.job);
  CHECK(words_of(core::reconcile(job)) ==
        Words{"service", "create " + stem + "-0-0", "create " + stem + "-1-0"});
  auto engine = make_job("j").engine().workers(1).placed();
  CHECK(words_of(engine.plan()) == Words{"create " + stem + "-0-0"});
}

TEST_CASE("the Service of a gang that lives is looked after, once nothing else is to be done") {
  auto job = make_job("j").workers(2).all_running();
  job.edit().service_is_doubted = true;
  CHECK(words_of(job.plan()) == Words{"status"});
  apply(job.edit(), job.plan());
  CHECK(words_of(job.plan()) == Words{"keep service"});
  SUBCASE("one that has none") { job.engine(); }
  SUBCASE("of a job that is being deleted") { job.edit().job.meta.deletion_time = kNow; }
  SUBCASE("without pods") {
    job.edit().job.status.placement.clear();
    job.edit().pods.clear();
  }
  SUBCASE("a moment ago") { apply(job.edit(), job.plan()); }
  for (const auto& word : words_of(job.plan())) CHECK(word != "keep service");
}

TEST_CASE("where the cluster has pod groups the gang's is there before its pods, once a start") {
  const auto pods_of = [](core::JobSnapshot snapshot) {
    snapshot.job.status.start_attempt = 0;
    snapshot.pod_options.pod_groups = api::Kind::kPodGroup;
    return words_of(core::reconcile(snapshot));
  };
  auto job = make_job("j").engine().workers(2).placed();
  const std::string stem = api::service_name(job.snapshot().job);
  CHECK(pods_of(job.snapshot()) ==
        Words{"group of 2", "create " + stem + "-0-0", "create " + stem + "-1-0"});
  CHECK(pods_of(job.pod(1, PodPhase::kPending).snapshot()) == Words{"create " + stem + "-0-0"});
}

TEST_CASE("only missing pods are created while the gang starts") {
  auto job = make_job("j").workers(2).placed().pod(1, PodPhase::kPending);
  const std::string stem = api::service_name(job.snapshot().job);
  CHECK(words_of(job.plan()) == Words{"create " + stem + "-0-0"});
}

TEST_CASE("a gang that does not fit says why, once") {
  auto job = make_job("j").workers(4).does_not_fit("needs more");
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK(plan.pass == core::Pass::kObservation);
  CHECK(status_of(plan).phase == "Waiting");
  CHECK(status_of(plan).condition("Admitted")->reason == "GangWaiting");
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
  job.does_not_fit("needs even more");
  CHECK(words_of(job.lasting(seconds(60)).plan()) == Words{"status"});
}

TEST_CASE("without a verdict of the scheduler nothing is done") {
  auto job = make_job("j");
  CHECK(job.plan().empty());
  CHECK(core::wanted_places(job.snapshot()).has_value());
}

TEST_CASE("what was found for one slot of a gang that trained is no place for one that starts") {
  auto job = make_job("j").workers(2).fits_on("n");
  job.edit().gang->slots = {1};
  CHECK(job.plan().empty());
  job.edit().gang->slots.clear();
  CHECK(words_of(job.plan()) == Words{"status", "event GangScheduled"});
}

TEST_CASE("once every worker runs, status says so in one write") {
  auto job = make_job("j").workers(2).placed().running(0);
  job.pod(1, PodPhase::kPending);
  CHECK(job.plan().empty());
  job.edit().pods[1].phase = PodPhase::kRunning;
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK(status_of(plan).is_true("Running"));
  CHECK(status_of(plan).workers == "2/2");
  CHECK(status_of(plan).condition("Running")->last_transition_time == kNow);
  apply(job.edit(), plan);
  CHECK(job.at(kNow + seconds(100)).plan().empty());
}

TEST_CASE("a worker that ended with 0 before the others changes nothing yet") {
  auto job = make_job("j").workers(2).placed().running(0).running(1);
  apply(job.edit(), job.plan());
  job.edit().pods[0].phase = PodPhase::kSucceeded;
  CHECK(job.plan().empty());
}

TEST_CASE("a worker that ended with 0 has, although its pod is gone, once that is stored") {
  std::size_t slot = 0;
  SUBCASE("the first worker") {}
  SUBCASE("another") { slot = 1; }
  auto job = make_job("j").workers(3).placed().running(0).running(1).running(2);
  apply(job.edit(), job.plan());
  auto& pods = job.edit().pods;
  pods[slot].phase = PodPhase::kSucceeded;
  auto plan = job.lasting(seconds(10)).plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(20));
  plan = job.lasting(seconds(30)).plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK(status_of(plan).placement[slot].ended);
  CHECK_FALSE(status_of(plan).placement[2].ended);
  apply(job.edit(), plan);
  pods.erase(pods.begin() + static_cast<std::ptrdiff_t>(slot));
  plan = job.lasting(seconds(60)).plan();
  CHECK(plan.empty());
  CHECK_FALSE(plan.requeue_after);
  pods[0].phase = pods[1].phase = PodPhase::kSucceeded;
  CHECK(status_of(job.plan()).is_true("Complete"));
  // Should another one fail, all start again, and it has not ended in that attempt.
  pods[1].phase = PodPhase::kFailed;
  pods[1].termination = api::Termination{1, 0, "Error", ""};
  plan = job.plan();
  CHECK(status_of(plan).restarts == 1);
  REQUIRE(status_of(plan).placement.size() == 3);
  CHECK_FALSE(status_of(plan).placement[slot].ended);
}

TEST_CASE("an end with 0 that nobody has stored is lost with its pod") {
  auto job = make_job("j").workers(2).placed().running(0).running(1);
  apply(job.edit(), job.plan());
  job.edit().pods[1].phase = PodPhase::kSucceeded;
  CHECK(job.plan().empty());
  job.edit().pods.pop_back();
  CHECK(status_of(job.plan()).restarts == 1);
}

TEST_CASE("of workers of the built-in engine no end is stored: they end together") {
  auto job = make_job("j").engine().workers(2).placed().running(0).running(1);
  apply(job.edit(), job.plan());
  job.edit().pods[1].phase = PodPhase::kSucceeded;
  CHECK(job.lasting(seconds(60)).plan().empty());
}

TEST_CASE("why a pod waits is said where a user looks") {
  auto job = make_job("j").workers(1).placed().pod(0, PodPhase::kPending);
  job.edit().pods[0].reason = "CreateContainerError";
  job.edit().pods[0].message = "no such image";
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK_FALSE(status_of(plan).is_true("Running"));
  CHECK(status_of(plan).condition("Running")->message ==
        "worker 0 waits: CreateContainerError no such image");
}

TEST_CASE("suspension releases the placement first, then the pods, then says so") {
  auto job = make_job("j").workers(2).all_running().condition("Admitted", true).suspended_spec();
  auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK(plan.pass == core::Pass::kDecision);
  CHECK(status_of(plan).placement.empty());
  CHECK_FALSE(status_of(plan).is_true("Running"));
  apply(job.edit(), plan);
  plan = job.plan();
  // Worker 0 has the files: it is to be there while the others are asked to stop.
  CHECK(words_of(plan) == Words{"delete pod-1-0", "delete pod-0-0"});
  job.deleting(0).deleting(1);
  CHECK(job.plan().empty());
  job.edit().pods.clear();
  plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event Suspended"});
  CHECK(status_of(plan).is_true("Suspended"));
  CHECK(status_of(plan).restarts == 0);
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
}

TEST_CASE("a planned leave of a suspended gang is no failure") {
  auto job = make_job("j").engine().workers(1).all_running().suspended_spec();
  apply(job.edit(), job.plan());
  job.deleting(0);
  job.edit().pods[0].phase = PodPhase::kFailed;
  job.edit().pods[0].termination = api::Termination{31, 0, "Error", "left"};
  CHECK(job.plan().empty());  // still terminating
  job.edit().pods.clear();
  const auto plan = job.plan();
  CHECK(status_of(plan).is_true("Suspended"));
  CHECK_FALSE(status_of(plan).is_true("Failed"));
}

TEST_CASE("a resumed job is placed anew, with attempts that were never used") {
  auto job = make_job("j").workers(1).fits_on("n").condition("Suspended", true);
  job.edit().job.status.membership_epoch = 3;
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event Resumed", "event GangScheduled"});
  CHECK(status_of(plan).membership_epoch == 4);
  CHECK(status_of(plan).placement[0].attempt == 3);
  CHECK_FALSE(status_of(plan).is_true("Suspended"));
}

TEST_CASE("a resumed job does not say any more that it is suspended, waiting or with its places") {
  auto job = make_job("j").workers(1).all_running().condition("Admitted", true).suspended_spec();
  apply(job.edit(), job.plan());
  job.edit().pods.clear();
  apply(job.edit(), job.plan());
  const auto running = [&] {
    const auto* condition = job.snapshot().job.status.condition("Running");
    return condition->status + " " + condition->reason + ": " + condition->message;
  };
  REQUIRE(running() == "False Suspending: spec.suspend is true");
  job.edit().job.spec.suspend = false;
  job.does_not_fit("1st in queue research: no room");
  apply(job.edit(), job.plan());
  CHECK(running() == "False GangWaiting: the gang waits for its places");
  job.fits_on("n");
  apply(job.edit(), job.plan());
  CHECK(running() == "False GangScheduled: the gang has its places, and its workers start");
}

TEST_CASE("progress is written at most every 15 seconds, and only when it changed") {
  ProgressReport report;
  report.job = "default/j";
  report.step = 5;
  report.total_steps = 100;
  report.loss = "0.5";
  auto job = make_job("j").workers(1).placed().running(0).report(report);
  auto plan = job.plan();
  CHECK(status_of(plan).progress->step == 5);
  apply(job.edit(), plan);
  report.step = 6;
  job.report(report).at(kNow + seconds(4));
  plan = job.plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(11));
  plan = job.at(kNow + seconds(15)).plan();
  CHECK(plan.pass == core::Pass::kProgress);
  CHECK(status_of(plan).progress->step == 6);
  apply(job.edit(), plan);
  CHECK(job.at(kNow + seconds(500)).plan().empty());
}

TEST_CASE("a time thousands of years off is looked at again within a day, and overflows no clock") {
  auto deleted = make_job("j").workers(1).placed().running(0).suspended_spec();
  apply(deleted.edit(), deleted.plan());
  deleted.edit().pods.at(0).meta.deletion_time = kNow;
  deleted.edit().pods.at(0).meta.deletion_grace_seconds = 9'223'372'000;
  CHECK(deleted.plan().requeue_after.value_or(seconds(0)) == seconds(86'400));
  auto ended = make_job("j");
  ended.edit().job.status.conditions.push_back({"Complete", "True", "Forged", "", 1, kNow});
  ended.edit().job.status.completion_time = *parse_time("9999-12-31T23:59:59Z");
  ended.edit().job.spec.ttl_seconds_after_finished = 0;
  CHECK(ended.plan().requeue_after.value_or(seconds(0)) == seconds(86'400));
}

TEST_CASE("reports of an earlier attempt, or of nobody, are not believed") {
  ProgressReport report;
  report.step = 5;
  report.attempt = 7;
  auto job = make_job("j").workers(1).all_running().report(report);
  apply(job.edit(), job.plan());
  CHECK_FALSE(job.snapshot().job.status.progress.has_value());
}

TEST_CASE("one that only says what it waits for leaves the progress as it is") {
  ProgressReport report;
  report.waiting = "waiting to be let in";
  auto job = make_job("j").engine().workers(1).all_running();
  api::TrainingJobStatus& status = job.edit().job.status;
  status.progress.emplace().step = 500;
  core::take_report(status, report, job.snapshot());
  CHECK(status.progress->step == 500);
  report.total_steps = 900;
  core::take_report(status, report, job.snapshot());
  CHECK(status.progress->step == 0);
}

TEST_CASE("loss and accuracy stay known while who goes on from a checkpoint has none of its own") {
  ProgressReport report;
  report.step = 450;
  report.total_steps = 900;
  report.loss = "0.25";
  report.accuracy = "0.97";
  auto job = make_job("j").engine().workers(1).all_running().report(report);
  apply(job.edit(), job.plan());
  job.edit().now += core::words::kProgressInterval;
  const auto told = [&] {
    const core::Plan plan = job.report(report).plan();
    const api::Progress& progress = *status_of(plan).progress;
    return std::to_string(progress.step) + ": " + progress.loss + ", " + progress.accuracy;
  };
  report.step = report.restored_step = 400;
  report.loss = report.accuracy = "";
  CHECK(told() == "400: 0.25, 0.97");
  report.step = 401;
  report.loss = "0.5";
  CHECK(told() == "401: 0.5, 0.97");
  // Of a state that is lost nothing is known any more.
  report.restored_step = -1;
  CHECK(told() == "401: 0.5, ");
}

TEST_CASE("what a step should take stands in status beside what it takes") {
  core::TopologyInput input = tree_of({"rack"});
  input.levels[0].latency_seconds = 0.5;
  input.host.bytes_per_second = 1e9;
  add_hosts(input, {"r1"}, 2);
  ProgressReport report;
  report.step = 5;
  report.step_seconds = 2;
  report.exchange_seconds = 1.5;
  report.model_parameters = 1;
  auto job = make_job("j").engine().workers(2).all_running().report(report);
  const auto predicted = [&] {
    return status_of(job.plan()).progress->predicted_step_milliseconds;
  };
  CHECK(predicted().empty());  // Nobody says where the nodes stand.
  job.edit().topology = std::make_shared<const core::Topology>(built(std::move(input)));
  CHECK(predicted().empty());  // Node n is none of them.
  auto& placement = job.edit().job.status.placement;
  for (std::size_t slot = 0; slot < 2; ++slot) {
    placement[slot].domain = "r1";
    placement[slot].node = "n0000" + std::to_string(slot);
  }
  // Half a second of computing, and twice the way through the rack.
  CHECK(predicted() == "1500.000");
  // Foretold anew with the next progress that is due, not with each report.
  core::take_report(job.edit().job.status, report, job.snapshot());
  REQUIRE(job.snapshot().job.status.progress->predicted_step_milliseconds == "1500.000");
  report.exchange_seconds = 1;
  api::TrainingJobStatus soon = job.snapshot().job.status;
  core::take_report(soon, report, job.snapshot());
  CHECK(soon.progress->predicted_step_milliseconds == "1500.000");
  job.edit().now += core::words::kProgressInterval;
  core::take_report(soon, report, job.snapshot());
  CHECK(soon.progress->predicted_step_milliseconds == "2000.000");
  // What is written without a look at the nodes keeps what was foretold before.
  job.edit().topology = nullptr;
  core::take_report(soon, report, job.snapshot());
  CHECK(soon.progress->predicted_step_milliseconds == "1500.000");
}

TEST_CASE("hostile numbers and texts of a report stay out of status") {
  ProgressReport report;
  report.step = 1;
  report.loss = "<script>";
  report.accuracy = "0.9";
  report.samples_per_second = report.step_seconds = 1e300;
  report.exchange_seconds = -1;
  report.eta_seconds = 1e300;
  report.checkpoint_step = 3;
  report.checkpoint_path = std::string(5000, '\xFF');
  report.model_sha256 = "nonsense";
  auto job = make_job("j").workers(1).all_running().report(report);
  const auto plan = job.plan();
  const auto& status = status_of(plan);
  CHECK(status.progress->loss.empty());
  CHECK(status.progress->accuracy == "0.9");
  CHECK(status.progress->samples_per_second == "0");
  CHECK(status.progress->step_milliseconds == "0");
  CHECK(status.progress->exchange_milliseconds == "0.000");
  CHECK(status.progress->eta_seconds == -1);
  CHECK(status.checkpoint->path.size() == 512);
  CHECK(status.model_sha256.empty());
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
}

TEST_CASE("the checkpoint's step never goes back within a start") {
  ProgressReport report;
  report.checkpoint_step = 10;
  auto job = make_job("j").workers(1).all_running();
  job.edit().job.status.checkpoint = api::CheckpointStatus{20, kNow, true, "/ckpt"};
  apply(job.edit(), job.report(report).plan());
  CHECK(job.snapshot().job.status.checkpoint->step == 20);
}

TEST_CASE("what an earlier start had saved is forgotten where training begins below it") {
  ProgressReport report;
  report.attempt = 1;
  report.step = report.total_steps = 900;
  report.checkpoint_path = "/other";
  const auto said = [&](std::int64_t restored, std::int64_t saved, int start_of_known = 0) {
    auto job = make_job("j").engine().workers(1).placed(1).running(0).condition("Running", true);
    job.edit().job.status.start_attempt = 1;
    job.edit().job.status.checkpoint =
        api::CheckpointStatus{20, kNow - seconds(60), true, "/ckpt", start_of_known};
    report.restored_step = restored;
    report.checkpoint_step = saved;
    apply(job.edit(), job.report(report).plan());
    return job.snapshot().job.status.checkpoint;
  };
  CHECK_FALSE(said(-1, -1).has_value());                                       // From nothing.
  CHECK(said(10, -1) == api::CheckpointStatus{10, kNow, false, "/other", 1});  // An older one.
  CHECK(said(10, 15) == api::CheckpointStatus{15, kNow, false, "/other", 1});
  CHECK(said(20, -1) == api::CheckpointStatus{20, kNow - seconds(60), false, "/other", 1});
  CHECK(said(20, 30)->step == 30);
  // Of this start a lower one is late.
  CHECK(said(10, 15, 1)->step == 20);
  CHECK(said(-1, -1, 1)->step == 20);
  // What an operator stored that did not tell of starts counts as of an earlier one.
  CHECK(said(10, 15, -1)->step == 15);
  // Who was of an earlier start, or has not begun, says nothing of this one.
  report.attempt = 0;
  CHECK(said(10, 15)->step == 20);
  report.attempt = 1;
  report.step = report.total_steps = 0;
  CHECK(said(-1, -1)->step == 20);
}

TEST_CASE("the checkpoint of a job that waits or is suspended stays known") {
  auto job = make_job("j").engine().workers(1).placed(0).running(0);
  api::TrainingJobStatus& status = job.edit().job.status;
  status.start_attempt = 0;
  status.checkpoint = api::CheckpointStatus{20, kNow, true, "/ckpt", 0};
  ProgressReport report;
  report.step = report.total_steps = 900;
  report.checkpoint_step = 10;
  job.report(report);
  job.edit().job.spec.suspend = true;
  for (int pass = 0; pass < 3; ++pass) apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().job.status.is_true("Suspended"));
  CHECK(job.snapshot().job.status.checkpoint->step == 20);
  job.edit().job.spec.suspend = false;
  apply(job.edit(), job.fits_on("n").plan());
  REQUIRE(job.snapshot().job.status.start_attempt == 1);
  CHECK(job.snapshot().job.status.checkpoint->step == 20);
}

TEST_CASE("jobs of other controllers and jobs being deleted are left alone") {
  auto foreign = make_job("j").workers(2).fits_on("n");
  foreign.edit().job.spec.managed_by = "somebody.else/operator";
  CHECK(foreign.plan().empty());
  CHECK_FALSE(core::wanted_places(foreign.snapshot()).has_value());
  auto gone = make_job("j").workers(2).fits_on("n");
  gone.edit().job.meta.deletion_time = kNow;
  CHECK(gone.plan().empty());
}

TEST_CASE("strangers' pods are neither counted nor deleted") {
  auto job = make_job("j").workers(1).placed().running(0);
  job.edit().pods[0].meta.owner_references[0].uid = "somebody";
  const std::string stem = api::service_name(job.snapshot().job);
  CHECK(words_of(job.plan()) == Words{"service", "create " + stem + "-0-0"});
  auto posing = make_job("j").workers(1).placed().running(0);
  posing.edit().pods[0].meta.owner_references[0].api_version = "v1";
  posing.edit().pods[0].meta.owner_references[0].kind = "ConfigMap";
  CHECK(words_of(posing.plan()) == Words{"service", "create " + stem + "-0-0"});
  job.edit().job.status.placement.clear();
  CHECK(job.plan().empty());
  auto nameless = make_job("j").workers(1).all_running();
  nameless.pod(0, PodPhase::kRunning);
  nameless.edit().pods[1].meta.labels["muster.dev/slot"] = "minus one";
  for (const auto& word : words_of(nameless.plan())) CHECK(word == "status");
}

TEST_CASE("a name that is taken gives everything back and says whose it is") {
  auto job = make_job("j").workers(2).placed().pod(0, PodPhase::kPending).fits_on("n");
  job.edit().create_failure = core::CreateFailure{"NameConflict", "Pod j-1 belongs to another"};
  auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK(status_of(plan).placement.empty());
  CHECK(status_of(plan).condition("Admitted")->reason == "NameConflict");
  apply(job.edit(), plan);
  plan = job.plan();
  CHECK(words_of(plan) == Words{"delete pod-0-0"});
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
  CHECK_FALSE(core::wanted_places(job.snapshot()).has_value());
  job.edit().create_failure.reset();
  CHECK(core::wanted_places(job.snapshot()).has_value());
  CHECK(words_of(job.plan()) == Words{"status", "event GangScheduled"});
}

TEST_CASE("a job whose pods would leave their box is refused with the reason, and gets no place") {
  auto job = make_job("j").workers(2).fits_on("n");
  const Json host{{"name", "d"}, {"hostPath", {{"path", "/"}}}};
  job.edit().job.spec.worker.pod_fields["volumes"] = Json::array({host});
  CHECK_FALSE(core::wanted_places(job.snapshot()).has_value());
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  const auto* admitted = status_of(plan).condition("Admitted");
  CHECK(admitted->status == "False");
  CHECK(admitted->reason == "Refused");
  CHECK(admitted->message.find("hostPath") != std::string::npos);
  CHECK(status_of(plan).placement.empty());
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
  job.edit().job.spec.worker.pod_fields.erase("volumes");
  CHECK(core::wanted_places(job.snapshot()).has_value());
  CHECK(words_of(job.plan()) == Words{"status", "event GangScheduled"});
}

TEST_CASE("a job in its nodes' network gets a place where its namespace may be there") {
  auto job = make_job("j").workers(2).fits_on("n");
  job.edit().job.spec.worker.host_network = true;
  job.edit().pod_options.host_network_namespaces = {"other"};
  CHECK_FALSE(core::wanted_places(job.snapshot()).has_value());
  const auto plan = job.plan();
  const auto* admitted = status_of(plan).condition("Admitted");
  CHECK(admitted->status == "False");
  CHECK(admitted->reason == "Refused");
  CHECK(admitted->message ==
        "its pods are not made: one is to be in the network of its node (spec.worker.hostNetwork), "
        "which pods of namespace default may not: leave that out, or have the namespace added to "
        "the operator's --host-network-namespaces (in the chart worker.hostNetworkNamespaces)");
  job.edit().pod_options.host_network_namespaces = {"other", "default"};
  CHECK(core::wanted_places(job.snapshot()).has_value());
  CHECK(words_of(job.plan()) == Words{"status", "event GangScheduled"});
}

TEST_CASE("a gang whose pods would leave their box gives its places back without a pod") {
  auto job = make_job("j").workers(2).placed().pod(0, PodPhase::kPending).fits_on("n");
  job.edit().job.spec.worker.pod_fields["ports"] =
      Json::array({Json{{"name", "x"}, {"containerPort", 1}, {"hostPort", 1}}});
  auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK(status_of(plan).placement.empty());
  CHECK(status_of(plan).condition("Admitted")->reason == "Refused");
  apply(job.edit(), plan);
  plan = job.plan();
  CHECK(words_of(plan) == Words{"delete pod-0-0"});
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
}

TEST_CASE("a job that runs is told that its queue is gone, until there is one again") {
  auto job = make_job("j").workers(1).all_running().condition("Admitted", true, "GangScheduled");
  job.edit().job.status.conditions.back().message = "1 worker on n (1)";
  for (int i = 0; i < 2; ++i) apply(job.edit(), job.plan());
  const auto told = [&] { return *job.snapshot().job.status.condition("Admitted"); };
  const auto before = told();
  CHECK(before.message == "1 worker on n (1)");
  job.edit().gone_queue = "research";
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK(plan.pass == core::Pass::kObservation);
  apply(job.edit(), plan);
  CHECK(told().message.starts_with(
      "1 worker on n (1); there is no TrainingQueue research any more: the job keeps its places"));
  CHECK(told().reason == before.reason);
  CHECK(told().last_transition_time == before.last_transition_time);
  CHECK(job.plan().pass == core::Pass::kNone);
  // A new leader that has not read the queues yet takes nothing back.
  job.edit().gone_queue.reset();
  CHECK(job.plan().pass == core::Pass::kNone);
  job.edit().gone_queue = "";
  apply(job.edit(), job.plan());
  CHECK(told() == before);
  // Who waits hears of it from schedule.
  auto waits = make_job("w").workers(1).does_not_fit("no room");
  waits.edit().gone_queue = "research";
  CHECK(status_of(waits.plan()).condition("Admitted")->message == "no room");
}

TEST_CASE("nothing follows from a job that is older than its pods") {
  auto job = make_job("j").workers(1).placed(0).pod(0, PodPhase::kRunning, 1);
  CHECK(job.plan().empty());
  CHECK_FALSE(core::wanted_places(job.snapshot()).has_value());
}

TEST_CASE("the same news of a job has one event, whenever and after whatever it is told") {
  const auto event_of = [](const core::JobSnapshot& snapshot, const char* type, const char* reason,
                           const std::string& note) {
    core::Plan plan;
    core::add_event(plan, snapshot, type, reason, note);
    return std::get<core::EmitEvent>(plan.actions.front()).event;
  };
  auto snapshot = make_job("j").snapshot();
  const api::Event first = event_of(snapshot, "Warning", "GangWaiting", "no room");
  snapshot.now += seconds(10);
  snapshot.job.meta.resource_version = "7";
  const api::Event again = event_of(snapshot, "Warning", "GangWaiting", "no room");
  CHECK(again.meta.name == first.meta.name);
  CHECK(again.event_time > first.event_time);
  CHECK(event_of(snapshot, "Normal", "GangWaiting", "no room").meta.name != first.meta.name);
  CHECK(event_of(snapshot, "Warning", "WorkerLost", "no room").meta.name != first.meta.name);
  CHECK(event_of(snapshot, "Warning", "GangWaiting", "no rooms").meta.name != first.meta.name);
  snapshot.job.meta.uid = "another";
  CHECK(event_of(snapshot, "Warning", "GangWaiting", "no room").meta.name != first.meta.name);
}
