// Jobs whose spec this operator refuses: who starts is told so, who trains goes on.
#include <doctest/doctest.h>

#include "operator/core/reconcile.h"
#include "tests/unit/core/builders.h"

using namespace muster;
using namespace muster::test;
using api::PodPhase;
using Words = std::vector<std::string>;

namespace {

/// So many workers of the built-in engine that train together, stored as such.
SnapshotBuilder training_on(int count) {
  SnapshotBuilder job("j");
  job.engine().workers(count).all_running();
  job.edit().job.spec.worker.min = 1;
  job.edit().budget = 1;
  job.edit().job.status.start_attempt = 0;
  ProgressReport report;
  report.job = "default/j";
  report.attempt = 0;
  report.step = 100;
  report.membership_epoch = 1;
  for (int slot = 0; slot < count; ++slot) report.members.push_back(slot);
  for (report.slot = 0; report.slot < count; ++report.slot) job.report(report);
  for (int i = 0; i < 3; ++i) apply(job.edit(), job.plan());
  REQUIRE(job.plan().empty());
  return job;
}

}  // namespace

TEST_CASE("an invalid spec is refused with the field named, and repaired without a new job") {
  auto job = make_job("j").workers(2).fits_on("n");
  job.edit().spec_verdict = Error(ErrorCode::kInvalid, "spec.worker.count: must be an integer");
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event InvalidSpec"});
  CHECK(status_of(plan).condition("Failed")->reason == "InvalidSpec");
  CHECK(status_of(plan).condition("Failed")->message == "spec.worker.count: must be an integer");
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
  job.edit().spec_verdict = Status();
  apply(job.edit(), job.plan());
  CHECK_FALSE(job.snapshot().job.status.finished());
  CHECK(words_of(job.plan()) == Words{"status", "event GangScheduled"});
}

TEST_CASE("a running job whose spec is refused goes on, and says so") {
  for (const char* field : {"spec.worker.count", "spec.training.optimizer", "metadata.labels"}) {
    auto job = make_job("j").workers(1).all_running();
    job.edit().spec_verdict = Error(ErrorCode::kInvalid, std::string(field) + ": must be less");
    const auto plan = job.plan();
    CHECK(words_of(plan) == Words{"status", "event InvalidSpec"});
    const auto* admitted = status_of(plan).condition("Admitted");
    CHECK(admitted->status == "True");
    CHECK(admitted->reason == "InvalidSpec");
    CHECK(admitted->message ==
          std::string(field) + ": must be less; the gang goes on, for it was admitted before");
    apply(job.edit(), plan);
    CHECK(job.plan().empty());
    // Its end is seen.
    job.edit().pods.clear();
    job.ended(0, 0);
    CHECK(status_of(job.plan()).is_true("Complete"));
  }
}

TEST_CASE("a gang with a refused spec starts again, but not with pods of what is refused") {
  const auto failed = [](const char* refusal) {
    auto job = make_job("j").workers(2).placed().condition("Running", true);
    job.running(0).ended(1, 1).fits_on("n");
    job.edit().spec_verdict = Error(ErrorCode::kInvalid, refusal);
    apply(job.edit(), job.plan());
    CHECK(job.snapshot().job.status.is_true("Restarting"));
    CHECK(job.snapshot().job.status.placement.size() == 2);
    job.edit().pods.clear();
    job.edit().now += seconds(60);
    return job;
  };
  auto trains = failed("spec.training.steps: must be less");
  const std::string stem = api::service_name(trains.snapshot().job);
  CHECK(words_of(trains.plan()) == Words{"service", "create " + stem + "-0-1",
                                         "create " + stem + "-1-1", "status", "event InvalidSpec"});
  auto waits = failed("spec.worker.env[0].name: is closed to jobs");
  apply(waits.edit(), waits.plan());
  CHECK(waits.snapshot().job.status.placement.empty());
  CHECK_FALSE(core::wanted_places(waits.snapshot()).has_value());
  const auto* admitted = waits.snapshot().job.status.condition("Admitted");
  CHECK(admitted->reason == "InvalidSpec");
  CHECK(admitted->message == "its pods are not made: spec.worker.env[0].name: is closed to jobs");
  waits.edit().spec_verdict = Status();
  CHECK(core::wanted_places(waits.snapshot()).has_value());
}

TEST_CASE("a suspended job starts with no spec that is refused") {
  auto job = make_job("j").workers(1).fits_on("n").suspended_spec();
  job.edit().job.status.membership_epoch = 5;
  apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().job.status.is_true("Suspended"));
  job.edit().job.spec.suspend = false;
  job.edit().spec_verdict = Error(ErrorCode::kInvalid, "spec.training.steps: must be less");
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event InvalidSpec"});
  CHECK(status_of(plan).condition("Admitted")->message ==
        "spec.training.steps: must be less; no gang is started until the spec is repaired");
  CHECK_FALSE(core::wanted_places(job.snapshot()).has_value());
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
  job.edit().spec_verdict = Status();
  CHECK(words_of(job.plan()) == Words{"status", "event Resumed", "event GangScheduled"});
}

TEST_CASE("a job that has trained is not ended by a spec that is not understood while it waits") {
  auto job = make_job("j").workers(1).fits_on("n");
  job.edit().job.status.membership_epoch = 5;
  job.edit().spec_verdict = Error(ErrorCode::kInvalid, "spec.worker.count: must be less");
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK_FALSE(status_of(plan).finished());
  CHECK(status_of(plan).condition("Admitted")->message ==
        "its pods are not made: spec.worker.count: must be less");
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
  CHECK_FALSE(core::wanted_places(job.snapshot()).has_value());
  job.edit().spec_verdict = Status();
  CHECK(words_of(job.plan()) == Words{"status", "event GangScheduled"});
}

TEST_CASE("a gang whose spec was refused and is understood again says so no longer") {
  auto job = make_job("j").workers(2).all_running();
  apply(job.edit(), job.plan());
  job.edit().spec_verdict = Error(ErrorCode::kInvalid, "spec.worker.count: must be less");
  apply(job.edit(), job.plan());
  CHECK(job.snapshot().job.status.condition("Admitted")->reason == "InvalidSpec");
  job.edit().spec_verdict = Status();
  apply(job.edit(), job.plan());
  CHECK(job.snapshot().job.status.is_true("Admitted"));
  CHECK(job.snapshot().job.status.condition("Admitted")->reason == "GangScheduled");
  CHECK(job.plan().empty());
}

TEST_CASE("what a job with a refused spec holds is taken back as from any other") {
  auto job = make_job("j").workers(2).all_running();
  job.edit().spec_verdict = Error(ErrorCode::kInvalid, "metadata.labels: must not");
  apply(job.edit(), job.plan());
  job.edit().take_back = core::TakeBack{0, 0, {"ns", "high"}, "uid-h", "for high", 0};
  const auto plan = job.plan();
  CHECK(status_of(plan).placement.empty());
  CHECK(words_of(plan) == Words{"status", "event Preempted"});
  apply(job.edit(), plan);
  CHECK_FALSE(job.snapshot().job.status.finished());
}

TEST_CASE(
    "a worker of a job whose spec is refused is replaced, but not by a pod of what is refused") {
  for (const bool is_of_pods : {false, true}) {
    CAPTURE(is_of_pods);
    auto job = training_on(3);
    const std::string field = is_of_pods ? "spec.worker.env" : "spec.training.optimizer";
    job.edit().spec_verdict = Error(ErrorCode::kInvalid, field + ": is refused");
    apply(job.edit(), job.plan());
    REQUIRE(job.snapshot().job.status.condition("Admitted")->reason == "InvalidSpec");
    REQUIRE(job.plan().empty());
    std::erase_if(job.edit().pods, [](const auto& pod) { return pod.slot() == 1; });
    job.ended(1, 137);
    const auto wish = core::wanted_places(job.snapshot());
    CHECK(wish.has_value() == !is_of_pods);
    if (is_of_pods) {
      const auto plan = job.plan();
      CHECK(words_of(plan) == Words{"status"});
      CHECK(status_of(plan).condition("Running")->message.starts_with("2 of 3 workers run"));
      CHECK(status_of(plan).placement.size() == 3);
      CHECK(status_of(plan).membership_epoch == 1);
      continue;
    }
    job.edit().gang = core::GangVerdict{core::GangPlacement{{"n"}}, "", wish->slots};
    apply(job.edit(), job.plan());
    job.edit().gang.reset();
    CHECK(words_of(job.plan()) ==
          Words{"delete pod-1-0", "create " + api::pod_name(job.snapshot().job, 1, 1)});
  }
}
