#include <doctest/doctest.h>

#include "operator/api/kueue.h"
#include "operator/core/elastic_policy.h"
#include "operator/core/facts.h"
#include "operator/core/schedule.h"
#include "tests/unit/core/builders.h"
#include "tests/unit/core/elastic_gang.h"

using namespace muster;
using namespace muster::test;

namespace {

constexpr const char* kQueueLabel = "kueue.x-k8s.io/queue-name";
constexpr const char* kPreempted = "WorkloadEvictedDueToPreempted";

/// A gang of two whose pods are made and held back.
SnapshotBuilder held() {
  SnapshotBuilder job("j");
  job.workers(2).restarts("Never", 0).fits_on("");
  job.edit().job.meta.labels[kQueueLabel] = "team";
  job.edit().job.spec.active_deadline_seconds = 60;
  apply(job.edit(), job.plan());
  job.edit().gang.reset();
  apply(job.edit(), job.plan());
  for (auto& pod : job.edit().pods) pod.held_by_kueue = true;
  apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().pods.size() == 2);
  return job;
}

SnapshotBuilder& release(SnapshotBuilder& job) {
  for (auto& pod : job.edit().pods) {
    pod.held_by_kueue = false;
    pod.phase = api::PodPhase::kRunning;
    pod.node_name = "n";
  }
  return job;
}

SnapshotBuilder running() {
  SnapshotBuilder job = held();
  apply(job.edit(), release(job).plan());
  return job;
}

const api::Condition& condition(const SnapshotBuilder& job, const char* type) {
  const auto* found = job.snapshot().job.status.condition(type);
  REQUIRE(found != nullptr);
  return *found;
}

}  // namespace

TEST_CASE("a gang that Kueue holds back waits in peace, says so, and starts when it is let go") {
  SnapshotBuilder job = held();
  CHECK(job.snapshot().job.status.kueue_queue == "team");
  CHECK(condition(job, "Running").reason == "WaitingForKueue");
  CHECK(condition(job, "Running").message ==
        "the gang waits for Kueue: queue team has not admitted it yet");
  job.at(kNow + seconds(86'400)).lasting(seconds(86'400));
  CHECK(job.plan().empty());
  CHECK_FALSE(job.snapshot().job.status.start_time);
  apply(job.edit(), release(job).plan());
  CHECK(condition(job, "Running").message == "2 of 2 workers run");
  CHECK(job.snapshot().job.status.start_time == kNow + seconds(86'400));
  job.at(kNow + seconds(86'400 + 61));
  CHECK(status_of(job.plan()).condition("Failed")->reason == "DeadlineExceeded");
}

TEST_CASE("Kueue's reason is told at once, and other words once a minute, numbers less often") {
  SnapshotBuilder job = held();
  job.edit().kueue_says = "2 more cpu needed";
  apply(job.edit(), job.plan());
  CHECK(condition(job, "Running").message ==
        "the gang waits for Kueue: queue team has not admitted it yet (2 more cpu needed)");
  job.edit().kueue_says = "1 more cpu needed";
  job.lasting(seconds(290));
  const auto plan = job.plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(10));
  job.lasting(seconds(300));
  CHECK(status_of(job.plan()).condition("Running")->message.ends_with("(1 more cpu needed)"));
  job.edit().kueue_says = "no more memory";
  job.lasting(seconds(60));
  CHECK(status_of(job.plan()).condition("Running")->message.ends_with("(no more memory)"));
}

TEST_CASE("a gang that Kueue stops is no failure: it waits anew, as another group") {
  SnapshotBuilder job = running();
  const std::string group = api::kueue_group_name(job.snapshot().job);
  api::Pod& pod = job.edit().pods[1];
  pod.kueue_stop = kPreempted;
  pod.kueue_stop_message = "for another";
  job.at(kNow + seconds(40));
  SUBCASE("while it is asked to leave") { pod.meta.deletion_time = kNow + seconds(30); }
  SUBCASE("when it has ended") {
    pod.phase = api::PodPhase::kFailed;
    pod.termination = api::Termination{143, 0, "Error", ""};
  }
  const auto plan = job.plan();
  CHECK(words_of(plan) == std::vector<std::string>{"status", "event Preempted"});
  apply(job.edit(), plan);
  CHECK(condition(job, "Admitted").message ==
        "Kueue stopped the gang (WorkloadEvictedDueToPreempted): for another; it waits for Kueue "
        "anew");
  CHECK(job.snapshot().job.status.restarts == 0);
  CHECK_FALSE(job.snapshot().job.status.failure);
  CHECK_FALSE(job.snapshot().job.status.start_time);
  CHECK(job.snapshot().job.status.past_active_seconds == 40);  // of its deadline
  apply(job.edit(), job.plan());
  job.edit().pods.clear();
  job.fits_on("");
  apply(job.edit(), job.plan());
  CHECK(job.snapshot().job.status.placement.size() == 2);
  CHECK(api::kueue_group_name(job.snapshot().job) != group);
}

TEST_CASE(
    "a pod that is deleted while it is held back makes another group, and nobody waits for it") {
  SnapshotBuilder job = held();
  job.deleting(0);
  apply(job.edit(), job.plan());
  CHECK(job.snapshot().job.status.placement.empty());
  CHECK(job.snapshot().job.status.restarts == 0);
  job.edit().pods.pop_back();
  job.fits_on("");
  CHECK(status_of(job.plan()).placement.size() == 2);
}

TEST_CASE("a deactivated gang waits until it was suspended and resumed") {
  SnapshotBuilder job = running();
  for (auto& pod : job.edit().pods) pod.kueue_stop = "WorkloadEvictedDueToDeactivated";
  apply(job.edit(), job.plan());
  CHECK(condition(job, "Admitted").reason == "KueueDeactivated");
  job.edit().pods.clear();
  job.fits_on("");
  CHECK(job.plan().empty());
  CHECK_FALSE(core::wanted_places(job.snapshot()));  // nor has it a turn in a queue
  job.edit().job.spec.suspend = true;
  apply(job.edit(), job.plan());
  job.edit().job.spec.suspend = false;
  CHECK(status_of(job.plan()).placement.size() == 2);
}

TEST_CASE("pods marked or gated by others than Kueue change nothing outside of it") {
  SnapshotBuilder job("j");
  job.workers(2).all_running();
  job.edit().job.status.start_attempt = 0;
  job.edit().pods[0].kueue_stop = kPreempted;
  CHECK_FALSE(status_of(job.plan()).placement.empty());
}

TEST_CASE("another queue in the label is meant for the next start") {
  SnapshotBuilder job = running();
  job.edit().job.meta.labels[kQueueLabel] = "other";
  CHECK(job.plan().empty());
  job.restarts("OnFailure", 3);
  job.at(kNow + seconds(50));
  job.edit().pods[0].phase = api::PodPhase::kFailed;
  job.edit().pods[0].termination = api::Termination{1, 0, "Error", ""};
  apply(job.edit(), job.plan());
  CHECK(job.snapshot().job.status.restarts == 1);
  // Not the same places: they are a group of the first queue.
  CHECK(job.snapshot().job.status.placement.empty());
  // Time spent waiting for Kueue is none of its own; what it ran counts on.
  CHECK_FALSE(job.snapshot().job.status.start_time);
  CHECK(job.snapshot().job.status.past_active_seconds == 50);
}

TEST_CASE("a gang that Kueue has let go is not asked to shrink") {
  auto job = training(4);
  CHECK(core::shrinks_to(job.snapshot()) == 1);
  job.edit().job.status.kueue_queue = "team";
  CHECK(core::shrinks_to(job.snapshot()) == 0);
}

TEST_CASE("a size that nobody was admitted with asks for no workers beyond spec.worker.max") {
  auto job = training(2);
  job.edit().job.status.kueue_queue = "team";
  job.edit().job.status.target_workers = 77;
  CHECK(wanted(job) == std::vector<int>{2, 3, 4, 5, 6, 7});
}

TEST_CASE("an elastic job in a queue of Kueue starts with all of its workers or not at all") {
  api::TrainingJob job;
  job.spec.worker.count = 4;
  job.spec.worker.min = 2;
  CHECK(core::gang_of(job).min == 2);
  job.meta.labels[kQueueLabel] = "team";
  CHECK(core::gang_of(job).min == 4);
  // And starts again so after it had to give way.
  CHECK(core::holder_of(job, {}, {{0, 0, "", ""}}, {}, {})->min == 4);
  // One that is lost is replaced, whoever else is there.
  CHECK(core::gang_of(job, {{3}, {"a"}, false}).min == 1);
  // A TrainingQueue may hold it, too.
  core::ClusterSnapshot cluster{{}, {}, {}, {core::gang_of(job)}};
  core::WaitingGang& gang = cluster.gangs[0];
  gang.per_worker.cpu_millis = 1000;
  gang.turn.queue = "default";
  cluster.queues.resize(1);
  cluster.queues[0].name = "default";
  cluster.queues[0].quota = {{"cpu", 3000, {}, {}}};
  const auto why_not = [&] { return core::schedule(cluster).verdicts.at(gang.job).why_not; };
  CHECK_FALSE(core::schedule(cluster).verdicts.at(gang.job).placement);
  CHECK(why_not().find("at least, and queue default may never hold more than 3; lower "
                       "spec.worker.count or its resources") != std::string::npos);
  // Others use what is missing.
  cluster.queues[0].quota = {{"cpu", 5000, {}, {}}};
  core::QueueHolder other{{"team", "other"}, gang.turn, gang.per_worker, 1, {{0, "", false}}, {}};
  other.per_worker.cpu_millis = 2000;
  cluster.holders = {other};
  CHECK(why_not().find("its quota would do for spec.worker.count 3") != std::string::npos);
  cluster.holders.clear();
  cluster.queues[0].quota = {{"cpu", 4000, {}, {}}};
  const auto verdicts = core::schedule(cluster).verdicts;
  REQUIRE(verdicts.at(gang.job).placement);
  CHECK(verdicts.at(gang.job).placement->node_of_slot.size() == 4);
}
