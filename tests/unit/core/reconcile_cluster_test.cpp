// What a real cluster does to a gang: nodes that fall silent, pods that are not let in or taken
// away, sizes that change, statuses that somebody else wrote.
#include <doctest/doctest.h>

#include <climits>

#include "common/contract.h"
#include "operator/core/words.h"
#include "tests/unit/core/builders.h"
#include "tests/unit/core/elastic_gang.h"

using namespace muster;
using test::apply;
using test::kNow;
using test::make_job;
using test::status_of;
using test::words_of;
using Words = std::vector<std::string>;

namespace {

/// Slot 1 is tied to its node, and the cluster's scheduler does not let it in.
test::SnapshotBuilder refused_gang() {
  auto job = make_job("j").workers(2).placed().running(0);
  job.pod(1, api::PodPhase::kPending);
  job.edit().pods[1].node_name.clear();
  job.edit().pods[1].reason = "Unschedulable";
  job.edit().pods[1].message = "0/3 nodes are available: 1 Insufficient cpu";
  return job;
}

std::string note_of(const core::Plan& plan, const std::string& reason) {
  for (const auto& action : plan.actions) {
    const auto* event = std::get_if<core::EmitEvent>(&action);
    if (event != nullptr && event->event.reason == reason) return event->event.note;
  }
  return "";
}

const api::Condition& condition_of(const api::TrainingJobStatus& status, const std::string& type) {
  REQUIRE(status.condition(type) != nullptr);
  return *status.condition(type);
}

}  // namespace

TEST_CASE("a pod that the cluster's scheduler refuses for long is looked a new place for") {
  auto job = refused_gang();
  auto plan = job.lasting(seconds(29)).plan();
  CHECK(plan.requeue_after == seconds(1));
  CHECK_FALSE(plan.pass == core::Pass::kDecision);
  plan = job.lasting(seconds(30)).plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK(plan.pass == core::Pass::kDecision);
  CHECK(plan.avoid == std::map<std::string, int>{{"n", 0}});
  const auto status = status_of(plan);
  CHECK(status.placement.empty());
  CHECK(status.last_nodes == std::vector<std::string>{"n", "n"});  // the others stay if they can
  CHECK(status.restarts == 0);
  CHECK(condition_of(status, "Admitted").message.find("Insufficient cpu") != std::string::npos);
  apply(job.edit(), plan);
  CHECK(words_of(job.plan()) == Words{"delete pod-1-0", "delete pod-0-0"});
}

TEST_CASE("how long a pod has been refused is told by who refuses it") {
  auto job = refused_gang();
  const auto since = [&] {
    return core::lasting_facts(job.snapshot()).at("unbound/" + job.snapshot().pods[1].meta.uid);
  };
  CHECK(since() == seconds(0));
  job.edit().pods[1].unbound_since = kNow - seconds(40);
  CHECK(since() == seconds(40));
  job.edit().pods[1].unbound_since = kNow + seconds(9);  // by another clock
  CHECK(since() == seconds(0));
}

namespace {

/// Placed nowhere: of the workers the first stand on nodes, and the cluster's scheduler refuses the
/// others.
test::SnapshotBuilder half_bound_gang(const std::string& name, int workers, int on_nodes) {
  auto job = make_job(name).workers(workers).placed();
  for (int slot = 0; slot < workers; ++slot) {
    job.pod(slot, slot < on_nodes ? api::PodPhase::kRunning : api::PodPhase::kPending);
    if (slot < on_nodes) continue;
    job.edit().pods.back().node_name.clear();
    job.edit().pods.back().reason = "Unschedulable";
    job.edit().pods.back().message = "0/3 nodes are available: 3 Insufficient cpu";
  }
  for (auto& placement : job.edit().job.status.placement) placement.node.clear();
  return job;
}

bool holds(test::SnapshotBuilder& job, seconds time) {
  return job.lasting(time).plan().pass != core::Pass::kDecision;
}

/// After how long it lets go of what it has.
seconds held_for(const std::string& name) {
  auto job = half_bound_gang(name, 4, 2);
  for (seconds time(0); time < seconds(10'000); time += seconds(1)) {
    if (!holds(job, time)) return time;
  }
  return seconds::max();
}

}  // namespace

TEST_CASE("pods that may go anywhere wait for the cluster as long as it takes, holding nothing") {
  auto job = half_bound_gang("j", 4, 0);
  CHECK(holds(job, seconds(100'000)));
}

TEST_CASE("a part of a gang that may go anywhere lets go of its nodes after a while") {
  auto job = half_bound_gang("j", 4, 3);
  CHECK(holds(job, core::words::kHalfBoundMost - seconds(1)));
  const auto left = job.plan().requeue_after;
  REQUIRE(left.has_value());
  CHECK(*left > seconds(0));
  CHECK(*left <= core::words::kHalfBoundSpread);
  const auto plan = job.lasting(core::words::kHalfBoundMost + core::words::kHalfBoundSpread).plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK(plan.pass == core::Pass::kDecision);
  const auto status = status_of(plan);
  CHECK(status.placement.empty());
  CHECK(status.restarts == 0);
  CHECK(status.phase == "Waiting");
  CHECK(condition_of(status, "Admitted").reason == "HalfBound");
  CHECK(condition_of(status, "Admitted").message ==
        "the cluster's scheduler found nodes for 3 of 4 workers in 600 s and more (worker 3: "
        "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu); they let go of these, so "
        "that others can have them, and the gang is tried again after 120 s");
  apply(job.edit(), plan);
  CHECK(words_of(job.plan()) ==
        Words{"delete pod-1-0", "delete pod-2-0", "delete pod-3-0", "delete pod-0-0"});
  job.edit().pods.clear();
  job.fits_on("");
  CHECK(job.lasting(seconds(119)).plan().requeue_after == seconds(1));
  CHECK(job.plan().empty());
  CHECK_FALSE(core::wanted_places(job.snapshot()));
  job.lasting(seconds(120));
  CHECK(core::wanted_places(job.snapshot()));
  CHECK(words_of(job.plan()) == Words{"status", "event GangScheduled"});
}

namespace {

/// All workers have nodes; the first run, the others have not started.
test::SnapshotBuilder starting_gang(int workers, int running) {
  auto job = make_job("j").workers(workers).placed();
  for (int slot = 0; slot < workers; ++slot) {
    job.pod(slot, slot < running ? api::PodPhase::kRunning : api::PodPhase::kPending);
  }
  return job;
}

}  // namespace

TEST_CASE("a gang of which a pod does not start lets go of its nodes after an hour") {
  auto job = starting_gang(3, 2);
  job.edit().job.spec.worker.image = "registry.example.com/big:1";
  job.edit().job.status.placement[2].node = job.edit().pods[2].node_name = "n7";
  CHECK(holds(job, core::words::kStartingMost - seconds(1)));
  CHECK(job.plan().requeue_after == seconds(1));
  const auto plan = job.lasting(core::words::kStartingMost).plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK(plan.pass == core::Pass::kDecision);
  CHECK(plan.avoid == std::map<std::string, int>{{"n7", 0}});
  const auto status = status_of(plan);
  CHECK(status.placement.empty());
  CHECK(status.restarts == 0);
  CHECK(condition_of(status, "Admitted").reason == "NotStarted");
  CHECK(condition_of(status, "Admitted").message ==
        "worker 2 on node n7 did not start in 3600 s (image registry.example.com/big:1 is being "
        "pulled, or a volume attached); the gang lets go of its nodes, so that others can have "
        "them, and is tried again after 120 s, on other nodes where there are some");
  apply(job.edit(), plan);
  job.edit().pods.clear();
  job.fits_on("m");
  CHECK(job.lasting(seconds(119)).plan().requeue_after == seconds(1));
  CHECK_FALSE(core::wanted_places(job.snapshot()));
  job.lasting(seconds(120));
  CHECK(core::wanted_places(job.snapshot()));
  CHECK(words_of(job.plan()) == Words{"status", "event GangScheduled"});
}

TEST_CASE("how long a gang waits for a pod to start is told by when the pod got its node") {
  auto job = starting_gang(3, 1);
  const auto since = [&] {
    const auto facts = core::lasting_facts(job.snapshot());
    const auto found = facts.find("starting/-1");
    return found == facts.end() ? seconds(-1) : found->second;
  };
  CHECK(since() == seconds(0));
  job.edit().pods[0].bound_at = kNow - seconds(500);  // it runs
  job.edit().pods[1].bound_at = kNow - seconds(200);
  job.edit().pods[2].bound_at = kNow - seconds(100);
  CHECK(since() == seconds(200));
  job.edit().pods[1].bound_at = kNow + seconds(9);  // by another clock
  CHECK(since() == seconds(100));
  job.edit().start_timeout = seconds(60);
  CHECK(holds(job, seconds(59)));
  CHECK_FALSE(holds(job, seconds(60)));
}

TEST_CASE("a gang of which some pods have not started holds its nodes where it can begin") {
  const seconds long_time = core::words::kStartingMost * 10;
  CHECK_FALSE(holds(starting_gang(3, 2).lasting(long_time), long_time));
  // torchrun with a range begins with the least number of it.
  auto elastic = starting_gang(3, 2);
  elastic.edit().job.spec.worker.min = 2;
  CHECK(holds(elastic, long_time));
  elastic.edit().job.spec.worker.min = 3;
  elastic.edit().job.spec.worker.max = 4;
  CHECK_FALSE(holds(elastic, long_time));
  // Kueue has a bound of its own.
  auto queued = starting_gang(2, 1);
  queued.edit().job.meta.labels["kueue.x-k8s.io/queue-name"] = "team";
  queued.edit().job.status.kueue_queue = "team";
  CHECK(holds(queued, long_time));
}

TEST_CASE("what a job has its workers do first takes as long as it takes, and is named") {
  auto job = make_job("j").workers(2).placed();
  job.edit().job.spec.worker.init_containers = {{"fetch", {}, {}, Json::object()},
                                                {"unpack", {}, {}, Json::object()}};
  job.pod(0, api::PodPhase::kPending).pod(1, api::PodPhase::kPending);
  for (auto& pod : job.edit().pods) pod.initializing = "fetch";
  CHECK(job.lasting(seconds(59)).plan().empty());
  auto plan = job.lasting(seconds(60)).plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK(condition_of(status_of(plan), "Running").message ==
        "worker 1 waits for its init container fetch, which runs on node n");
  CHECK(condition_of(status_of(plan), "Running").reason == "WaitingForPods");
  apply(job.edit(), plan);
  CHECK(job.lasting(core::words::kStartingMost).plan().empty());
  CHECK(holds(job, core::words::kStartingMost * 10));
  // The next one is named, too, once it has run for long.
  job.edit().pods[1].initializing = "unpack";
  plan = job.lasting(seconds(60)).plan();
  CHECK(condition_of(status_of(plan), "Running").message.find("container unpack") !=
        std::string::npos);
  // One that somebody else put there is waited for as an image is.
  for (auto& pod : job.edit().pods) pod.initializing = "proxy";
  CHECK_FALSE(holds(job, core::words::kStartingMost));
}

TEST_CASE("a worker that comes to those who train and does not start lets go of its room alone") {
  auto job = starting_gang(2, 1);
  job.engine();
  job.edit().start_timeout = seconds(900);
  job.edit().job.spec.worker.min = 1;
  job.edit().job.spec.worker.image = "example.com/big:1";
  job.edit().job.status.placement[1].node = job.edit().pods[1].node_name = "m";
  ProgressReport report;
  report.job = "default/j";
  report.attempt = 0;
  report.membership_epoch = 1;
  report.members = {0};
  job.report(report);
  CHECK(holds(job, seconds(899)));
  CHECK(job.plan().requeue_after == seconds(1));
  std::map<std::string, int> avoid{{"m", 0}};
  SUBCASE("on a node that was chosen for it") {}
  SUBCASE("where the cluster's scheduler has put it") {
    job.edit().job.status.placement[1].node.clear();
    avoid.clear();
  }
  const auto plan = job.lasting(seconds(900)).plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK(plan.avoid == avoid);
  REQUIRE(status_of(plan).placement.size() == 1);
  CHECK(status_of(plan).placement[0].slot == 0);
  CHECK(status_of(plan).is_true("Running"));
  const auto* event = std::get_if<core::EmitEvent>(&plan.actions.back());
  REQUIRE(event != nullptr);
  CHECK(event->event.note ==
        "worker 1 on node m did not start in 900 s (image example.com/big:1 is being pulled, or a "
        "volume attached); worker 1 to let go of that room and to be tried again, on another node "
        "where there is one; the others train on");
  apply(job.edit(), plan);
  CHECK(core::wanted_places(job.snapshot())->slots == std::vector<int>{1});
  CHECK(words_of(job.plan())[0] == "delete pod-1-0");
}

TEST_CASE("a worker that comes later has its init containers run as long as they take, too") {
  auto job = starting_gang(2, 1);
  job.engine();
  job.edit().job.spec.worker.min = 1;
  job.edit().job.spec.worker.init_containers = {{"fetch", {}, {}, Json::object()}};
  job.edit().job.status.placement[0].member = true;
  api::Pod& pod = job.edit().pods[1];
  pod.bound_at = job.snapshot().now - core::words::kStartingMost;
  pod.initializing = "fetch";
  CHECK(holds(job, core::words::kStartingMost * 10));
  // Then its own image is pulled, for which it has all of the time that there is.
  pod.initializing.clear();
  CHECK(holds(job, core::words::kStartingMost - seconds(1)));
  CHECK_FALSE(holds(job, core::words::kStartingMost));
  for (const auto& [fact, already] : core::lasting_facts(job.snapshot())) {
    CHECK(already == seconds(0));
  }
}

TEST_CASE("in Kueue's queues its own bound counts, for who comes later, too") {
  auto job = starting_gang(2, 1);
  job.engine();
  job.edit().job.spec.worker.min = 1;
  job.edit().job.status.placement[0].member = true;
  CHECK_FALSE(holds(job, core::words::kStartingMost));
  job.edit().job.status.kueue_queue = "research";
  CHECK(holds(job, core::words::kStartingMost));
}

TEST_CASE("of two gangs that hold each other's nodes one lets go first") {
  std::set<seconds> times;
  for (const char* name : {"a", "b", "c", "d"}) times.insert(held_for(name));
  CHECK(times.size() == 4);
  CHECK(*times.begin() >= core::words::kHalfBoundMost);
  CHECK(*times.rbegin() < core::words::kHalfBoundMost + core::words::kHalfBoundSpread);
}

TEST_CASE("a gang of the engine that may be smaller starts with those that have nodes") {
  auto job = half_bound_gang("j", 4, 3).engine();
  job.edit().job.spec.worker.min = 2;
  const auto plan = job.lasting(core::words::kHalfBoundMost + core::words::kHalfBoundSpread).plan();
  CHECK(words_of(plan) == Words{"status", "event GangScheduled"});
  const auto status = status_of(plan);
  CHECK(status.placement.size() == 3);
  CHECK(status.target_workers == 3);
  CHECK(status.start_attempt == 1);
  CHECK(condition_of(status, "Admitted").message.find("the gang starts with those") !=
        std::string::npos);
  job.edit().job.spec.worker.min = 4;
  CHECK(status_of(job.plan()).placement.empty());
}

TEST_CASE("a program that needs no more than has nodes, and Kueue's gangs, are left alone") {
  constexpr seconds kLong{100'000};
  auto program = half_bound_gang("j", 4, 3);
  program.edit().job.spec.worker.min = 3;
  CHECK(holds(program, kLong));
  program.edit().job.spec.worker.min = program.edit().job.spec.worker.max = 4;
  CHECK_FALSE(holds(program, kLong));
  program.edit().job.status.kueue_queue = "research";
  CHECK(holds(program, kLong));
}

TEST_CASE("a node that was not ready for long is superseded, and not counted as a restart") {
  auto job = make_job("j").workers(2).restarts("OnFailure", 0).all_running();
  apply(job.edit(), job.plan());
  job.edit().not_ready_nodes.insert("n");
  auto plan = job.lasting(seconds(39)).plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(1));
  plan = job.lasting(seconds(40)).plan();
  CHECK(words_of(plan) == Words{"status", "event WorkerLost", "event Restarting"});
  const auto status = status_of(plan);
  CHECK(status.restarts == 0);
  CHECK(status.membership_epoch == 2);
  CHECK(status.placement.empty());
  CHECK(status.failure->reason == "NodeLost");
  CHECK(status.failure->node == "n");
  CHECK(note_of(plan, "WorkerLost") ==
        "worker 0 (attempt 0) on node n was lost: the node is gone or not ready");
  apply(job.edit(), plan);
  // Its pods are asked to leave, and nobody waits for them.
  job.fits_on("m");
  CHECK(words_of(job.lasting(seconds(60)).plan()) == Words{"status", "event GangScheduled"});
}

TEST_CASE("a lost node fails the job only where the policy is Never") {
  auto job = make_job("j").workers(1).restarts("Never", 3).all_running();
  job.edit().gone_nodes.insert("n");
  CHECK(status_of(job.plan()).is_true("Failed"));
}

TEST_CASE("whoever fails beside a node that is not ready is not to blame") {
  auto job = make_job("j").workers(2).all_running();
  job.edit().pods.pop_back();
  job.edit().job.status.placement[1].node = "m";
  job.ended(1, 1);
  job.edit().pods[1].node_name = "m";
  CHECK(status_of(job.plan()).restarts == 1);
  job.edit().not_ready_nodes.insert("n");
  const auto status = status_of(job.plan());
  CHECK(status.restarts == 0);
  CHECK(status.failure->slot == 0);
  CHECK(status.placement.empty());
}

TEST_CASE("a pod that was taken away is told with the reason the cluster gives") {
  auto job = make_job("j").workers(2).all_running().deleting(1);
  job.edit().pods[1].reason = "EvictionByEvictionAPI";
  job.edit().pods[1].is_disrupted = true;
  const auto plan = job.plan();
  CHECK(status_of(plan).failure->reason == "EvictionByEvictionAPI");
  CHECK(note_of(plan, "WorkerLost") ==
        "worker 1 (attempt 0) on node n was lost: its pod was deleted (EvictionByEvictionAPI)");
}

TEST_CASE("what the cluster takes away is no restart of those that the user allows") {
  auto job = make_job("j").workers(2).restarts("OnFailure", 0).all_running();
  bool is_counted = false;
  SUBCASE("evicted, and not ended yet") {
    job.deleting(1);
    job.edit().pods[1].is_disrupted = true;
  }
  SUBCASE("evicted, and ended by the signal, as its peer was that lost it") {
    job.edit().pods.clear();
    job.ended(0, 1).ended(1, 143);
    job.edit().pods[1].is_disrupted = true;
  }
  SUBCASE("deleted from a node that is being emptied") {
    job.deleting(1);
    job.edit().unschedulable_nodes = {"n"};
  }
  SUBCASE("gone from a node that is being emptied") {
    job.edit().pods.pop_back();
    job.edit().unschedulable_nodes = {"n"};
  }
  SUBCASE("asked to leave before it trained") {
    job.engine();
    job.edit().pods.pop_back();
    job.ended(1, contract::exit_code::kPlannedLeave);
  }
  SUBCASE("but a program that ends by itself on such a node is counted") {
    job.edit().pods.pop_back();
    job.ended(1, 1);
    job.edit().unschedulable_nodes = {"n"};
    is_counted = true;
  }
  SUBCASE("and so is a pod that somebody has deleted") {
    job.deleting(1);
    is_counted = true;
  }
  const auto status = status_of(job.plan());
  CHECK(status.is_true("Failed") == is_counted);
  CHECK(status.failure->slot == 1);
  CHECK(status.restarts == 0);
  if (is_counted) return;
  CHECK(condition_of(status, "Restarting").message.find("; the gang starts again in 10 s (not") !=
        std::string::npos);
}

TEST_CASE("a gang does not go back to a node that is being emptied") {
  auto job = make_job("j").workers(2).all_running().deleting(1);
  CHECK(status_of(job.plan()).placement.size() == 2);
  job.edit().unschedulable_nodes = {"n"};
  CHECK(status_of(job.plan()).placement.empty());
}

TEST_CASE("a node that turns a worker away is left out of the next start, and nothing is counted") {
  auto job = make_job("j").workers(2).restarts("OnFailure", 0).placed().running(0);
  job.pod(1, api::PodPhase::kFailed);
  job.edit().job.status.placement[1].node = job.edit().pods[1].node_name = "m";
  job.edit().pods[1].reason = "UnexpectedAdmissionError";
  job.edit().pods[1].message = "Pod was rejected: Allocate failed";
  const auto plan = job.plan();
  CHECK(plan.avoid == std::map<std::string, int>{{"m", 0}});
  CHECK(status_of(plan).placement.empty());
  CHECK(status_of(plan).restarts == 0);
  CHECK(plan.reason ==
        "worker 1 (attempt 0) on node m was not let in (UnexpectedAdmissionError): Pod "
        "was rejected: Allocate failed; the gang starts again in 10 s (not counted: it never ran, "
        "and its node is left out for a while)");
  // Where the cluster's scheduler chooses, it may choose the same again: that is counted.
  job.edit().job.status.placement[1].node.clear();
  CHECK(status_of(job.plan()).is_true("Failed"));
  // One that had a container was let in.
  job.edit().job.status.placement[1].node = "m";
  job.edit().pods[1].image_id = "sha256:1";
  CHECK(status_of(job.plan()).is_true("Failed"));
}

TEST_CASE("of the attempts that a node has turned away the newest counts") {
  std::map<std::string, int> avoid;
  for (const int attempt : {3, 9, 4}) core::leave_out(avoid, "n", attempt);
  CHECK(avoid == std::map<std::string, int>{{"n", 9}});
}

TEST_CASE("a node where the same worker ends twice before the gang runs is left out") {
  auto job = make_job("j").workers(2).placed().running(0).ended(1, 1);
  job.edit().ready_nodes = 2;
  auto plan = job.plan();
  CHECK(plan.avoid.empty());
  apply(job.edit(), plan);
  REQUIRE(job.snapshot().job.status.placement.size() == 2);
  job.edit().pods.clear();
  job.running(0).ended(1, 1);
  plan = job.plan();
  CHECK(plan.avoid == std::map<std::string, int>{{"n", 1}});
  CHECK(status_of(plan).placement.empty());
  CHECK(status_of(plan).restarts == 2);
  SUBCASE("but not where there is no other node") {
    job.edit().ready_nodes = 1;
    CHECK(job.plan().avoid.empty());
  }
  SUBCASE("nor after the gang ran") {
    job.edit().job.status.conditions.clear();
    job.condition("Running", true);
    CHECK(job.plan().avoid.empty());
  }
  SUBCASE("nor for another worker's end") {
    job.edit().pods.clear();
    job.ended(0, 1).running(1);
    CHECK(job.plan().avoid.empty());
  }
}

TEST_CASE("going on from a checkpoint is told once, and stays said without the report") {
  auto job = make_job("j").engine().workers(1).all_running();
  CHECK(words_of(job.plan()) == Words{"status"});  // the condition's words differ from the test's
  apply(job.edit(), job.plan());
  ProgressReport report;
  report.step = 120;
  report.restored_step = 100;
  job.report(report);
  auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event CheckpointRestored"});
  CHECK(note_of(plan, "CheckpointRestored") == "training went on from the checkpoint of step 100");
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
  job.edit().reports.clear();  // a fresh operator
  CHECK(job.plan().empty());
  report.restored_step = -1;
  auto fresh = make_job("k").engine().workers(1).all_running().report(report);
  CHECK(words_of(fresh.plan()) == Words{"status"});
}

TEST_CASE("checkpoints on a claim are told once in ten minutes, those in memory never") {
  ProgressReport report;
  report.step = 120;
  report.checkpoint_step = 100;
  report.checkpoint_durable = true;
  const auto plan_after = [&](core::JobSnapshot& before, seconds time, std::int64_t saved) {
    before.now = test::kNow + time;
    report.step = saved + 20;
    report.checkpoint_step = saved;
    before.reports[0] = report;
    const auto plan = core::reconcile(before);
    apply(before, plan);
    return words_of(plan);
  };
  auto job = make_job("j").engine().workers(1).all_running();
  job.edit().job.spec.training->checkpoint.emplace().volume_claim_name = "digits";
  apply(job.edit(), job.plan());
  const Words told{"status", "event CheckpointSaved"};
  const Words not_told{"status"};
  const auto next = seconds(600 - test::kNow.time_since_epoch() / seconds(1) % 600);
  CHECK(plan_after(job.edit(), seconds(0), 100) == told);
  CHECK(plan_after(job.edit(), seconds(20), 200) == not_told);
  CHECK(plan_after(job.edit(), next, 200) == Words{});  // no news
  CHECK(plan_after(job.edit(), next + seconds(20), 300) == told);
  report.checkpoint_durable = false;
  CHECK(plan_after(job.edit(), next + seconds(640), 400) == not_told);
}

TEST_CASE("an elastic program's gang starts again in the size wished for") {
  auto job = make_job("j").workers(2).all_running();
  auto& worker = job.edit().job.spec.worker;
  worker.min = 1;
  worker.max = 4;
  apply(job.edit(), job.plan());
  worker.count = 3;
  // Of a gang that got fewer than it wished for, nothing changed.
  CHECK_FALSE(job.plan().pass == core::Pass::kDecision);
  job.edit().job.meta.generation = 2;
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event Resized"});
  CHECK(status_of(plan).placement.empty());
  CHECK(status_of(plan).restarts == 0);
  CHECK(status_of(plan).observed_generation == 2);
  CHECK(status_of(plan).condition("Running")->observed_generation == 2);
  CHECK(note_of(plan, "Resized") ==
        "spec.worker.count is 3 now; the gang of 2 starts again in that size (resize 1)");
  CHECK(status_of(plan).resizes == 1);
  // It waits for its old pods in line, unless one of them may stay for ever.
  apply(job.edit(), plan);
  CHECK(core::wanted_places(job.snapshot()).value().not_yet);
  job.edit().deletion_refused = "pods stay for the audit";
  CHECK_FALSE(core::wanted_places(job.snapshot()).has_value());
  job.edit().deletion_refused.clear();
  job.edit().pods.clear();
  CHECK_FALSE(core::wanted_places(job.snapshot()).value().not_yet);
}

TEST_CASE(
    "an elastic program's gang that is smaller than wished lives through changes of other fields") {
  auto job = make_job("j").workers(2).all_running();
  auto& edit = job.edit().job;
  edit.spec.worker.min = 1;
  edit.spec.worker.max = 4;
  edit.spec.worker.count = edit.status.start_count = 3;  // there was no room for the third
  apply(job.edit(), job.plan());
  job.edit().job.spec.active_deadline_seconds = 3600;
  job.edit().job.meta.generation = 2;
  CHECK_FALSE(job.plan().pass == core::Pass::kDecision);
  job.edit().job.spec.worker.count = 4;
  job.edit().job.meta.generation = 3;
  CHECK(words_of(job.plan()) == Words{"status", "event Resized"});
}

TEST_CASE("a gang whose model does not fit starts again with the model split") {
  const auto needs = [](const std::string& splits) {
    return "trainer process 0 (rank 0): spec.training.parallelism: each of 4 processes needs at "
           "least 143 MiB and may have 125 MiB; tensor x pipeline that fit: " +
           splits;
  };
  auto job = make_job("j").engine().workers(4).placed();
  job.edit().job.spec.training->parallelism_mode = "Auto";
  job.ended(1, contract::exit_code::kNeedsSplit, needs("1x3, 2x1, 1x4"));
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event ModelSplit"});
  const auto& status = status_of(plan);
  CHECK(status.split == Split{2, 1});  // three do not divide four
  CHECK(status.placement.empty());
  CHECK(status.restarts == 0);
  CHECK(condition_of(status, "Restarting").status == "True");
  CHECK(note_of(plan, "ModelSplit")
            .ends_with("each of 4 processes needs at least 143 MiB and may have 125 MiB; tensor x "
                       "pipeline that "
                       "fit: 1x3, 2x1, 1x4; the gang starts again with each copy of the model "
                       "split between 2 "
                       "processes (tensor 2, pipeline 1)"));

  SUBCASE("and further where that was not enough") {
    job.edit().job.status.split = Split{2, 1};
    CHECK(status_of(job.plan()).split == Split{1, 4});
    job.edit().job.status.split = Split{1, 4};
    CHECK(status_of(job.plan()).is_true("Failed"));
  }
  SUBCASE("but not where the user has said how") {
    job.edit().job.spec.training->parallelism_mode = "Fixed";
    CHECK(status_of(job.plan()).is_true("Failed"));
  }
  SUBCASE("nor in a size that has no whole copies") {
    job.edit().job.spec.worker.min = 1;
    const auto failed = job.plan();
    CHECK(condition_of(status_of(failed), "Failed").reason == "NeedsSplit");
    CHECK(condition_of(status_of(failed), "Failed")
              .message.ends_with("; not started again, because none of these divides "
                                 "worker.count, min and max times worker.processes"));
  }
  SUBCASE("nor by what no worker would say") {
    job.edit().pods.clear();
    job.ended(1, contract::exit_code::kNeedsSplit, "tensor x pipeline that fit: 2");
    CHECK(status_of(job.plan()).is_true("Failed"));
  }
}

TEST_CASE("a size that cannot change now is said to take effect at the next start") {
  auto job = make_job("j").workers(2).all_running();
  auto& worker = job.edit().job.spec.worker;
  worker.min = worker.max = worker.count = 3;
  job.edit().job.meta.generation = 2;
  job.edit().budget = 0;
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK(condition_of(status_of(plan), "Running").message ==
        "2 of 2 workers run; spec.worker.count is 3, which takes effect at the next start");
  apply(job.edit(), plan);
  CHECK(job.plan().empty());
  job.edit().pods.pop_back();
  job.ended(1, 137);
  CHECK(status_of(job.plan()).placement.empty());  // placed anew, with 3
}

TEST_CASE("an engine's gang that started smaller than wished is not said to stay so: it grows") {
  auto job = make_job("j").engine().workers(2).all_running();
  auto& worker = job.edit().job.spec.worker;
  worker.max = worker.count = 4;
  CHECK(condition_of(status_of(job.plan()), "Running").message == "2 of 2 workers run");
}

TEST_CASE("what a gang waits for is said anew once in a while only") {
  auto job = make_job("j").workers(2).does_not_fit("room for 0");
  apply(job.edit(), job.plan());
  job.does_not_fit("room on node a");
  auto plan = job.lasting(seconds(59)).plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(1));
  plan = job.lasting(seconds(60)).plan();
  CHECK(condition_of(status_of(plan), "Admitted").message == "room on node a");
  CHECK(words_of(plan) == Words{"status"});
}

TEST_CASE("of what a gang waits for numbers alone are said anew still less often") {
  auto job = make_job("j").workers(2).does_not_fit("room for 0; 12 more nodes have less");
  apply(job.edit(), job.plan());
  int writes = 0;
  for (int second = 1; second <= 600; ++second) {
    const std::string number = std::to_string(second);
    job.does_not_fit("room for " + number + "; 9" + number + " more nodes have less");
    const auto plan = job.lasting(seconds(second <= 300 ? second : second - 300)).plan();
    if (plan.empty()) {
      CHECK(plan.requeue_after == seconds(300 - second % 300));
      continue;
    }
    CHECK(words_of(plan) == Words{"status"});
    apply(job.edit(), plan);
    ++writes;
  }
  CHECK(writes == 2);
}

TEST_CASE("a gang behind others of its line says rarely what it waits for, and soon as the first") {
  auto job = make_job("j").workers(2).does_not_fit("7th in queue q: its quota is kept for team/a");
  job.edit().gang->is_behind = true;
  apply(job.edit(), job.plan());
  job.does_not_fit("4th in queue q: its quota is kept for team/b");
  job.edit().gang->is_behind = true;
  auto plan = job.lasting(seconds(299)).plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(1));
  CHECK(words_of(job.lasting(seconds(300)).plan()) == Words{"status"});
  job.does_not_fit("1st in queue q: needs 2 cpu of the queue's quota");
  CHECK(words_of(job.lasting(seconds(60)).plan()) == Words{"status"});
}

TEST_CASE("a worker that its node does not get ready is named after a minute, once") {
  auto job = make_job("j").workers(2).placed().running(0).pod(1, api::PodPhase::kPending);
  auto plan = job.lasting(seconds(59)).plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(1));
  plan = job.lasting(seconds(60)).plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK_FALSE(status_of(plan).is_true("Running"));
  const std::string name = api::pod_name(job.snapshot().job, 1, 0);
  CHECK(condition_of(status_of(plan), "Running").message ==
        "worker 1 waits: its pod has been in preparation on node n for 60 s and more; kubectl "
        "describe pod " +
            name + " says why");
  apply(job.edit(), plan);
  CHECK(job.lasting(seconds(3000)).plan().empty());
  CHECK(job.lasting(seconds(0)).plan().empty());  // a fresh operator
  job.edit().pods[1].phase = api::PodPhase::kRunning;
  CHECK(status_of(job.plan()).is_true("Running"));
}

TEST_CASE("of many that are prepared for long one is named, as long as it is one of them") {
  auto job = make_job("j").workers(3).placed();
  for (int slot = 0; slot < 3; ++slot) job.pod(slot, api::PodPhase::kPending);
  apply(job.edit(), job.lasting(seconds(60)).plan());
  const api::Condition& said = condition_of(job.snapshot().job.status, "Running");
  CHECK(said.message.starts_with("worker 2 waits"));
  job.edit().pods[1].phase = api::PodPhase::kRunning;
  CHECK(job.plan().empty());
  job.edit().pods[2].phase = api::PodPhase::kRunning;
  CHECK(job.plan().empty());
  job.lasting(seconds(60));
  CHECK(condition_of(status_of(job.plan()), "Running").message.starts_with("worker 0 waits"));
  // What a kubelet says of a pod says more.
  job.edit().pods[0].reason = "CreateContainerConfigError";
  CHECK(condition_of(status_of(job.plan()), "Running")
            .message.starts_with("worker 0 waits: CreateContainerConfigError"));
}

TEST_CASE("a joiner that its node does not get ready is named beside those who train") {
  auto job = make_job("j").engine().workers(2).placed().running(0).condition("Running", true);
  job.pod(1, api::PodPhase::kPending);
  job.edit().job.status.placement[0].member = true;
  apply(job.edit(), job.plan());
  CHECK(job.lasting(seconds(59)).plan().requeue_after == seconds(1));
  const auto plan = job.lasting(seconds(60)).plan();
  CHECK(words_of(plan) == Words{"status"});
  CHECK(condition_of(status_of(plan), "Running")
            .message.starts_with("1 of 2 workers run; worker 1 waits: its pod has been in "
                                 "preparation on node n for 60 s and more;"));
  apply(job.edit(), plan);
  CHECK(job.lasting(seconds(0)).plan().empty());  // a fresh operator
}

TEST_CASE("a pod that has no node yet is not said to be prepared") {
  auto job = make_job("j").workers(1).placed().pod(0, api::PodPhase::kPending);
  job.edit().pods[0].node_name.clear();
  CHECK(job.lasting(seconds(6000)).plan().empty());
}

TEST_CASE("an image that cannot be pulled is one reason, however the kubelet words it") {
  auto job = make_job("j").workers(1).placed().pod(0, api::PodPhase::kPending);
  job.edit().pods[0].reason = "ErrImagePull";
  job.edit().pods[0].message = "no such image";
  apply(job.edit(), job.plan());
  CHECK(job.snapshot().job.status.condition("Running")->message.find("spec.suspend") !=
        std::string::npos);
  job.edit().pods[0].reason = "ImagePullBackOff";
  job.edit().pods[0].message = "Back-off pulling image";
  CHECK(job.plan().empty());
}

TEST_CASE("a status that was wiped out is taken up after the pods that are there") {
  auto job = make_job("j").workers(2).all_running().placed(6).running(0).running(1);
  job.edit().job.status = {};
  auto plan = job.lasting(seconds(14)).plan();
  CHECK(plan.empty());
  CHECK(plan.requeue_after == seconds(1));
  plan = job.lasting(seconds(15)).plan();
  CHECK(plan.pass == core::Pass::kDecision);
  CHECK(status_of(plan).membership_epoch == 7);
  apply(job.edit(), plan);
  CHECK(job.plan().actions.size() == 4);  // all are leftovers
  CHECK(words_of(job.plan())[0].starts_with("delete"));
}

TEST_CASE("places beyond spec.worker.max, whoever wrote them, are given back without a pod") {
  auto job = make_job("j").workers(2).placed();
  auto& status = job.edit().job.status;
  status.target_workers = 4096;
  for (int slot = 2; slot < 4096; ++slot) status.placement.push_back({slot, 0, "n", ""});
  const auto plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event GangWaiting"});
  CHECK(plan.pass == core::Pass::kDecision);
  CHECK(status_of(plan).placement.empty());
  apply(job.edit(), plan);
  apply(job.edit(), job.fits_on("n").plan());
  const std::string stem = api::service_name(job.snapshot().job);
  CHECK(words_of(job.plan()) ==
        Words{"service", "create " + stem + "-0-1", "create " + stem + "-1-1"});
}

TEST_CASE("of more places than spec.worker.max allows a gang takes as many as it may") {
  auto job = make_job("j").workers(2);
  job.edit().gang = core::GangVerdict{core::GangPlacement{std::vector<std::string>(5, "n")}, ""};
  const auto status = status_of(job.plan());
  CHECK(status.placement.size() == 2);
  CHECK(status.target_workers == 2);
}

TEST_CASE("a gang that is larger than its new spec.worker.max keeps the pods that it has") {
  auto job = make_job("j").workers(4).all_running();
  apply(job.edit(), job.plan());
  job.workers(2);
  const auto plan = job.plan();
  CHECK(plan.pass != core::Pass::kDecision);
  for (const auto& word : words_of(plan)) CHECK_FALSE(word.starts_with("delete"));
}

TEST_CASE("those who train are joined by nobody beyond spec.worker.max, whoever asks for it") {
  auto job = test::training(2);
  auto& status = job.edit().job.status;
  status.placement.push_back({8, 0, "n", ""});
  SUBCASE("it goes with the next decision") {
    status.target_workers = 77;
    CHECK(test::placement_of(status_of(job.plan())) == "0/0@n* 1/0@n*");
  }
  SUBCASE("where nobody can be sent away, no pod is made for it meanwhile") {
    test::end_pod(job, 0, 137);
    job.edit().job.spec.worker.count = 1;
    for (const auto& word : words_of(job.plan())) CHECK_FALSE(word.starts_with("create"));
  }
  SUBCASE("a count of replacements that is as high as it can be stays so") {
    status.replacements = INT_MAX;
    test::end_pod(job, 0, 137);
    test::answer(job, "n");
    CHECK(status_of(job.plan()).replacements == INT_MAX);
  }
}

TEST_CASE("pods are known by their names, whatever their labels say") {
  auto job = make_job("j").workers(1).all_running();
  apply(job.edit(), job.plan());
  job.edit().pods[0].meta.labels.clear();
  CHECK(job.plan().empty());
  job.edit().pods[0].meta.labels[std::string(contract::kLabelAttempt)] = "99";
  CHECK(job.plan().empty());
}

TEST_CASE("a clock that was set back does not lengthen a back-off") {
  auto job = make_job("j").workers(1).placed(1).restarts("OnFailure", 3, 1);
  job.edit().job.status.restart_at = kNow + seconds(3600);
  CHECK(job.lasting(seconds(10)).plan().requeue_after == seconds(1));
  CHECK(words_of(job.lasting(seconds(11)).plan()).size() == 2);
}

TEST_CASE("a status that was damaged in one place is read in all others") {
  Json status = api::status_to_json(make_job("j").workers(2).all_running().snapshot().job.status);
  status["phase"] = 7;
  status["restarts"] = -4;
  status["membershipEpoch"] = "many";
  status["conditions"].push_back("True");
  status["placement"].push_back(Json{{"slot", "x"}});
  status["startTime"] = "yesterday";
  status["progress"] = Json::array();
  status["model"] = Json{{"parameters", "many"}, {"sha256", "ab"}};
  const auto read = test::read_status(status);
  CHECK(read.placement.size() == 2);
  CHECK(read.is_true("Running"));
  CHECK(read.conditions.size() == 1);
  CHECK(read.target_workers == 2);
  CHECK(read.restarts == 0);
  CHECK(read.membership_epoch == 0);
  CHECK(read.model_sha256 == "ab");
  CHECK_FALSE(read.start_time.has_value());
}

TEST_CASE("numbers that no schema takes are kept out of status") {
  ProgressReport report;
  report.step = -5;
  report.total_steps = INT64_MAX;
  report.checkpoint_step = INT64_MAX;
  report.restored_step = 1;
  report.model_parameters = INT64_MAX;
  auto job = make_job("j").engine().workers(1).all_running().report(report);
  const auto status = status_of(job.plan());
  CHECK(test::read_status(api::status_to_json(status)) == status);
  CHECK(status.progress->step == 0);
  CHECK_FALSE(status.checkpoint.has_value());
}
