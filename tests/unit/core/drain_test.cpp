// Nodes that are emptied under a gang which has no more than its least: one more comes first.
#include <doctest/doctest.h>

#include "common/contract.h"
#include "operator/core/drain_policy.h"
#include "operator/core/drain_taints.h"
#include "operator/core/elastic_policy.h"
#include "operator/core/words.h"
#include "tests/unit/core/builders.h"
#include "tests/unit/core/elastic_gang.h"

using namespace muster;
using test::answer;
using test::end_pod;
using test::make_job;
using test::member_report;
using test::placement_of;
using test::pod_of;
using test::remove_pod;
using test::running_message;
using test::SnapshotBuilder;
using test::status_of;
using test::training;
using test::wanted;
using test::words_of;
using Words = std::vector<std::string>;

namespace {

constexpr const char* kCordoned = "cordoned/n";
constexpr const char* kIdle = "spare idle";

/// Two workers train on node n, and no fewer may.
SnapshotBuilder least_gang() {
  auto job = training(2);
  job.edit().job.spec.worker.min = 2;
  job.edit().job.spec.worker.max = 4;
  for (int i = 0; i < 3; ++i) test::apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().budget == 2);
  REQUIRE(job.plan().empty());
  return job;
}

/// The same, whose node has been cordoned long enough.
SnapshotBuilder cordoned_gang() {
  auto job = least_gang();
  job.edit().unschedulable_nodes = {"n"};
  job.edit().lasted[kCordoned] = core::words::kCordonedFor;
  return job;
}

/// Words alone wait for the next progress: it is due.
SnapshotBuilder& due(SnapshotBuilder& job) {
  job.edit().job.status.progress->updated_at = test::kNow - seconds(20);
  return job;
}

/// What is decided is done at once, until nothing is left to do.
void settle(SnapshotBuilder& job) {
  for (int i = 0; i < 9 && !job.plan().empty(); ++i) {
    test::apply(job.edit(), job.plan());
    job.edit().gang.reset();
  }
  REQUIRE(job.plan().empty());
}

/// The pod of the slot runs on the node, and all that run say that they train together.
void join(SnapshotBuilder& job, int slot, const std::string& node, std::int64_t epoch) {
  for (auto& pod : job.edit().pods) {
    if (pod.slot() != slot || pod.ended()) continue;
    pod.phase = api::PodPhase::kRunning;
    pod.node_name = node;
  }
  std::vector<int> members;
  for (const auto& pod : job.snapshot().pods) {
    if (pod.phase == api::PodPhase::kRunning) members.push_back(pod.slot());
  }
  std::sort(members.begin(), members.end());
  for (const auto& pod : job.snapshot().pods) {
    if (pod.phase != api::PodPhase::kRunning) continue;
    job.report(member_report(pod.slot(), pod.attempt(), epoch, members));
  }
}

/// A spare, worker 2, trains on node m with the two on the cordoned node n.
SnapshotBuilder gang_with_spare() {
  auto job = cordoned_gang();
  answer(job, "m");
  settle(job);
  join(job, 2, "m", 3);
  settle(job);
  return job;
}

std::string event_of(const core::Plan& plan) {
  for (const auto& action : plan.actions) {
    const auto* event = std::get_if<core::EmitEvent>(&action);
    if (event != nullptr) return event->event.reason + ": " + event->event.note;
  }
  return "";
}

}  // namespace

TEST_CASE("a node is cordoned under a gang of the least size: one more joins elsewhere") {
  auto job = least_gang();
  job.edit().unschedulable_nodes = {"n"};
  CHECK(core::lasting_facts(job.snapshot()).contains(kCordoned));
  CHECK(wanted(job).empty());
  CHECK(job.plan().empty());
  CHECK(job.plan().requeue_after == core::words::kCordonedFor);
  job.edit().lasted[kCordoned] = core::words::kCordonedFor;
  const auto wish = core::wanted_places(job.snapshot());
  REQUIRE(wish.has_value());
  CHECK(wish->slots == std::vector<int>{2});
  // After all others, and in room that nobody waits for.
  CHECK(wish->only_grows);
  CHECK(wish->is_beyond);
  CHECK(job.plan().empty());
  answer(job, "m");
  const core::Plan plan = job.plan();
  CHECK(plan.pass == core::Pass::kDecision);
  CHECK(words_of(plan) == Words{"status", "event Resized"});
  CHECK(placement_of(status_of(plan)) == "0/0@n* 1/0@n* 2/1@m");
  CHECK(status_of(plan).target_workers == 2);
  CHECK(event_of(plan) ==
        "Resized: node n is cordoned and nobody can be spared there: worker 2 to join; the others "
        "train on");
  CHECK(running_message(status_of(plan)) ==
        "2 of 2 workers run; worker 2 beyond spec.worker.count while node n is cordoned");
}

TEST_CASE("a taint that says that a node is being emptied brings one at once, and is named") {
  using Known = std::pair<const char*, const char*>;
  constexpr const char* kAws = "AWS's node termination handler";
  for (const auto& [key, whose] :
       {Known{"ToBeDeletedByClusterAutoscaler", "the cluster autoscaler"},
        Known{"karpenter.sh/disrupted", "Karpenter"}, Known{"karpenter.sh/disruption", "Karpenter"},
        Known{"aws-node-termination-handler/spot-itn", kAws},
        Known{"aws-node-termination-handler/scheduled-maintenance", kAws},
        Known{"aws-node-termination-handler/asg-lifecycle-termination", kAws},
        Known{"aws-node-termination-handler/rebalance-recommendation", kAws},
        Known{"cloud.google.com/impending-node-termination", "GKE"},
        Known{"remediator.kubernetes.azure.com/unschedulable", "AKS"},
        Known{"autoscaling.cast.ai/draining", "CAST AI"}}) {
    CAPTURE(key);
    api::Node node;
    node.taints = {{"team", "a", "NoSchedule"}, {key, "x", "NoSchedule"}};
    const std::string who = std::string(whose) + " (taint " + key + ")";
    CHECK(core::who_empties(node) == who);
    auto job = least_gang();
    job.edit().unschedulable_nodes = {"n"};
    job.edit().emptied_by = {{"n", who}};
    CHECK(wanted(job) == std::vector<int>{2});
    answer(job, "m");
    const core::Plan plan = job.plan();
    CHECK(event_of(plan) == "Resized: node n is being emptied by " + who +
                                " and nobody can be spared there: worker 2 to join; the others "
                                "train on");
    CHECK(
        running_message(status_of(plan)) ==
        "2 of 2 workers run; worker 2 beyond spec.worker.count while node n is being emptied by " +
            who);
  }
}

TEST_CASE("taints of other kinds empty no node") {
  const auto is_emptied = [](const char* key, const char* effect) {
    api::Node node;
    node.taints = {{key, "", effect}};
    return !core::who_empties(node).empty();
  };
  CHECK(is_emptied("karpenter.sh/disrupted", "NoExecute"));
  CHECK_FALSE(is_emptied("karpenter.sh/disrupted", "PreferNoSchedule"));
  CHECK_FALSE(is_emptied("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"));
  CHECK_FALSE(is_emptied("karpenter.sh/unregistered", "NoExecute"));
  CHECK_FALSE(is_emptied("nvidia.com/gpu", "NoSchedule"));
  // Who was on a machine that is off is lost, and replaced for that.
  CHECK_FALSE(is_emptied("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule"));
}

TEST_CASE("nodes that are emptied in several ways are told apart") {
  auto job = cordoned_gang();
  pod_of(job, 1).node_name = "b";
  job.edit().unschedulable_nodes = {"b", "n"};
  job.edit().emptied_by = {{"b", "Karpenter (taint x)"}};
  answer(job, "m");
  CHECK(event_of(job.plan()) ==
        "Resized: node b is being emptied by Karpenter (taint x) and node n is cordoned and nobody "
        "can be spared there: worker 2 to join; the others train on");
}

TEST_CASE("no eviction counts on a spare before it trains") {
  auto job = cordoned_gang();
  answer(job, "m");
  settle(job);
  CHECK(job.snapshot().budget == 3);
  join(job, 2, "m", 3);
  settle(job);
  CHECK(job.snapshot().budget == 2);
  CHECK(job.snapshot().job.status.workers == "3/2");
  CHECK(job.snapshot().job.status.replicas == 3);
}

TEST_CASE("whoever is evicted comes back elsewhere, and the spare goes when it is not needed") {
  auto job = gang_with_spare();
  // The drain takes one, and then the other one.
  for (const int slot : {1, 0}) {
    end_pod(job, slot, contract::exit_code::kPlannedLeave);
    CHECK(wanted(job) == std::vector<int>{slot});
    CHECK_FALSE(core::wanted_places(job.snapshot())->is_beyond);
    answer(job, "m");
    CHECK(status_of(job.plan()).target_workers == 2);
    settle(job);
    remove_pod(job, slot);
    settle(job);
    CHECK(job.snapshot().budget == 3);
    CHECK_FALSE(core::lasting_facts(job.snapshot()).contains(kIdle));
    join(job, slot, "m", 5 + slot);
    settle(job);
    CHECK(job.snapshot().budget == 2);
  }
  CHECK(core::lasting_facts(job.snapshot()).contains(kIdle));
  CHECK(job.plan().requeue_after == core::words::kSpareFor);
  job.edit().lasted[kIdle] = core::words::kSpareFor - seconds(1);
  CHECK(job.plan().empty());
  job.edit().lasted[kIdle] = core::words::kSpareFor;
  const core::Plan plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event Resized"});
  const auto& status = status_of(plan);
  CHECK(status.placement.size() == 2);
  CHECK(status.target_workers == 2);
  CHECK(event_of(plan) ==
        "Resized: no node with workers of the job is being emptied any more: worker 2 to leave; "
        "the others train on");
  CHECK(running_message(status) == "2 of 2 workers run");
  test::apply(job.edit(), plan);
  CHECK(words_of(job.plan()) == Words{"delete " + pod_of(job, 2).meta.uid});
  settle(job);
  CHECK(wanted(job).empty());
}

TEST_CASE("a cordon that is lifted: the spare stays a moment longer, and another cordon keeps it") {
  auto job = gang_with_spare();
  job.edit().unschedulable_nodes.clear();
  job.edit().lasted.clear();
  CHECK(core::lasting_facts(job.snapshot()).contains(kIdle));
  CHECK(job.plan().empty());
  job.edit().lasted[kIdle] = core::words::kSpareFor - seconds(1);
  job.edit().unschedulable_nodes = {"n"};
  CHECK_FALSE(core::lasting_facts(job.snapshot()).contains(kIdle));
  CHECK(job.plan().empty());
  job.edit().lasted.clear();
  job.edit().unschedulable_nodes.clear();
  job.edit().lasted[kIdle] = core::words::kSpareFor;
  CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/0@n*");
}

TEST_CASE("the spare stands in while there is no room for others, but for worker 0") {
  auto job = gang_with_spare();
  end_pod(job, 1, contract::exit_code::kPlannedLeave);
  answer(job, "", 0);
  test::apply(job.edit(), job.plan());
  CHECK(wanted(job) == std::vector<int>{1});
  CHECK(core::spare_slots(job.snapshot(), core::view_gang(job.snapshot())) == 1);
  CHECK(job.snapshot().job.status.workers == "2/2");

  auto first = gang_with_spare();
  end_pod(first, 0, contract::exit_code::kPlannedLeave);
  answer(first, "", 0);
  CHECK(placement_of(status_of(first.plan())) == "0/0@n* 1/0@n*");
  test::apply(first.edit(), first.plan());
  // Room that is there and out of reach of its volumes is no better without the spare.
  auto bound = gang_with_spare();
  end_pod(bound, 0, contract::exit_code::kPlannedLeave);
  answer(bound, "", 0);
  bound.edit().gang->lacks_volumes = true;
  CHECK(core::spare_slots(bound.snapshot(), core::view_gang(bound.snapshot())) == 1);
}

TEST_CASE("whoever is kept by a cordon says so, and when the cordon is gone") {
  auto job = gang_with_spare();
  CHECK(running_message(job.snapshot().job.status) ==
        "3 of 2 workers run; worker 2 beyond spec.worker.count while node n is cordoned");
  // A new leader has seen no cordon for long, and writes nothing for that.
  job.edit().lasted.clear();
  CHECK(due(job).plan().empty());
  job.edit().unschedulable_nodes.clear();
  CHECK(running_message(status_of(due(job).plan())) ==
        "3 of 2 workers run; worker 2 beyond spec.worker.count for a moment longer");
}

TEST_CASE("a spare that leaves says why") {
  const auto said_of = [](SnapshotBuilder& job) {
    const core::Plan plan = job.plan();
    CHECK(placement_of(status_of(plan)) == "0/0@n* 1/0@n*");
    return event_of(plan);
  };
  const std::string leaves = ": worker 2 to leave; the others train on";
  auto first = gang_with_spare();
  end_pod(first, 0, contract::exit_code::kPlannedLeave);
  answer(first, "", 0);
  CHECK(said_of(first) == "Resized: worker 0 has no other room" + leaves);
  auto lower = gang_with_spare();
  lower.edit().job.spec.worker.min = 1;
  CHECK(said_of(lower) == "Resized: spec.worker.min is 1 now, and needs nobody beyond" + leaves);
  auto full = gang_with_spare();
  full.edit().job.spec.worker.max = 2;
  CHECK(said_of(full) == "Resized: spec.worker.max is 2 now" + leaves);
}

TEST_CASE("a quota of pods that the spare has taken is given back to worker 0") {
  auto job = gang_with_spare();
  end_pod(job, 0, contract::exit_code::kPlannedLeave);
  answer(job, "k");
  test::apply(job.edit(), job.plan());
  job.edit().gang.reset();
  job.edit().create_failure = core::CreateFailure{"QuotaExceeded", "exceeded quota: pods"};
  CHECK(placement_of(status_of(job.plan())) == "0/3@k 1/0@n*");
  test::apply(job.edit(), job.plan());
  // And it does not come back before worker 0 runs: each might take what the other needs.
  job.edit().create_failure.reset();
  CHECK(wanted(job).empty());
  // Of the others it stands in for those who find none.
  auto other = gang_with_spare();
  end_pod(other, 1, contract::exit_code::kPlannedLeave);
  answer(other, "k");
  test::apply(other.edit(), other.plan());
  other.edit().gang.reset();
  other.edit().create_failure = core::CreateFailure{"QuotaExceeded", "exceeded quota: pods"};
  CHECK(core::spare_slots(other.snapshot(), core::view_gang(other.snapshot())) == 1);
}

TEST_CASE("a place that the cluster's scheduler gave the spare is given back to worker 0") {
  auto job = gang_with_spare();
  end_pod(job, 0, contract::exit_code::kPlannedLeave);
  answer(job, "");
  settle(job);
  remove_pod(job, 0);
  settle(job);
  api::Pod& pod = pod_of(job, 0);
  pod.reason = "Unschedulable";
  pod.message = "0/3 nodes are available";
  settle(job);
  const std::string unbound = "unbound/" + pod.meta.uid;
  REQUIRE(core::lasting_facts(job.snapshot()).contains(unbound));
  CHECK(core::spare_slots(job.snapshot(), core::view_gang(job.snapshot())) == 1);
  job.edit().lasted[unbound] = core::words::kUnboundMost;
  CHECK(placement_of(status_of(job.plan())) == "0/3@ 1/0@n*");
}

TEST_CASE("a spare that the cluster's scheduler does not bind is no reason to be silent") {
  auto job = cordoned_gang();
  answer(job, "");
  settle(job);
  api::Pod& pod = pod_of(job, 2);
  pod.reason = "Unschedulable";
  pod.message = "0/3 nodes are available";
  CHECK(running_message(status_of(due(job).plan())) ==
        "2 of 2 workers run; worker 2 beyond spec.worker.count while node n is cordoned; worker 2 "
        "waits: Unschedulable 0/3 nodes are available");
}

TEST_CASE("a spare that does not come to train fails no job") {
  auto job = cordoned_gang();
  job.edit().job.spec.restart.policy = "Never";
  answer(job, "m");
  settle(job);
  end_pod(job, 2, 137);
  CHECK(core::view_gang(job.snapshot()).find(2)->state == core::MemberState::kFailed);
  CHECK(wanted(job) == std::vector<int>{2});
  answer(job, "k");
  CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/0@n* 2/2@k");
  // One that has trained is like all others.
  auto member = gang_with_spare();
  member.edit().job.spec.restart.policy = "Never";
  end_pod(member, 2, 137);
  CHECK(status_of(member.plan()).is_true("Failed"));
}

TEST_CASE("a spare that dies is replaced while it is needed, with the back-off of all") {
  auto job = gang_with_spare();
  end_pod(job, 2, 137);
  CHECK(wanted(job) == std::vector<int>{2});
  CHECK(core::wanted_places(job.snapshot())->is_beyond);
  answer(job, "k");
  const auto status = status_of(job.plan());
  CHECK(placement_of(status).starts_with("0/0@n* 1/0@n* 2/"));
  CHECK(status.placement[2].replacements == 1);
  // And not when it is not.
  auto over = gang_with_spare();
  over.edit().unschedulable_nodes.clear();
  over.edit().lasted[kIdle] = core::words::kSpareFor;
  end_pod(over, 2, 137);
  CHECK(placement_of(status_of(over.plan())) == "0/0@n* 1/0@n*");
}

TEST_CASE("a spare is given back as soon as it is taken back for another job") {
  auto job = gang_with_spare();
  core::TakeBack taken;
  taken.workers = taken.slots_below = 2;
  taken.job = {"default", "other"};
  taken.why = "for another";
  job.edit().take_back = taken;
  const core::Plan plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event Shrunk"});
  CHECK(placement_of(status_of(plan)) == "0/0@n* 1/0@n*");
  CHECK(status_of(plan).target_workers == 2);
}

TEST_CASE("no spare comes to a gang whose budget lets somebody go, or that has none") {
  SUBCASE("its least is smaller") {
    auto job = cordoned_gang();
    job.edit().job.spec.worker.min = 1;
    job.edit().budget = 1;
    CHECK(wanted(job).empty());
    CHECK(job.plan().empty());
  }
  SUBCASE("it has one size") {
    auto job = cordoned_gang();
    job.edit().job.spec.worker.max = 2;
    job.edit().budget = 0;
    CHECK(wanted(job).empty());
    CHECK(job.plan().empty());
  }
  SUBCASE("the node is another one") {
    auto job = cordoned_gang();
    job.edit().unschedulable_nodes = {"k"};
    CHECK(wanted(job).empty());
    CHECK(job.plan().empty());
  }
}

TEST_CASE("a smaller count is followed at once, cordon or not") {
  auto job = training(3);
  job.edit().job.spec.worker.min = 2;
  job.edit().job.spec.worker.count = 2;
  job.edit().unschedulable_nodes = {"n"};
  job.edit().lasted[kCordoned] = core::words::kCordonedFor;
  CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/0@n*");
  CHECK(status_of(job.plan()).target_workers == 2);
  // And a spare becomes one of the others where the count is raised.
  auto raised = gang_with_spare();
  raised.edit().job.spec.worker.count = 3;
  CHECK(placement_of(status_of(raised.plan())) == "0/0@n* 1/0@n* 2/1@m*");
  CHECK(status_of(raised.plan()).target_workers == 3);
}

TEST_CASE("a model that is split gets a whole copy to spare") {
  auto job = training(2);
  job.edit().job.spec.training->split.pipeline = 2;
  job.edit().job.spec.worker.min = 2;
  job.edit().budget = 2;
  job.edit().unschedulable_nodes = {"n"};
  job.edit().lasted[kCordoned] = core::words::kCordonedFor;
  CHECK(wanted(job) == std::vector<int>{2, 3});
  answer(job, "m", 1);
  const core::Plan half = due(job).plan();
  CHECK(placement_of(status_of(half)) == "0/0@n* 1/0@n*");
  CHECK(
      running_message(status_of(half)).find("there is no room for one more: there is room for 1") !=
      std::string::npos);
  answer(job, "m");
  CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/0@n* 2/1@m 3/1@m");
}

TEST_CASE("a copy that lost a part when the cordon was lifted is filled up with a whole sentence") {
  auto job = training(2);
  job.edit().job.spec.training->split.pipeline = 2;
  job.edit().job.spec.worker.min = 2;
  job.edit().unschedulable_nodes = {"n"};
  job.edit().lasted[kCordoned] = core::words::kCordonedFor;
  answer(job, "m");
  test::apply(job.edit(), job.plan());
  std::erase_if(job.edit().job.status.placement, [](const auto& one) { return one.slot == 3; });
  job.edit().unschedulable_nodes.clear();
  answer(job, "k");
  CHECK(event_of(job.plan()) ==
        "Resized: nodes were being emptied a moment ago: worker 3 to join; the others train on");
}

TEST_CASE("a drain that has to wait for a job is told in its condition, and once in an event") {
  auto job = cordoned_gang();
  answer(job, "", 0);
  const core::Plan plan = due(job).plan();
  const std::string sentence =
      "node n is cordoned, and the disruption budget lets no drain take a worker from there, "
      "because no more than spec.worker.min (2) run: there is no room for one more: no room; to "
      "have it emptied now, set spec.worker.min lower or spec.suspend to true";
  CHECK(words_of(plan) == Words{"status", "event DrainWaits"});
  CHECK(running_message(status_of(plan)) == "2 of 2 workers run; " + sentence);
  CHECK(event_of(plan) == "DrainWaits: " + sentence);
  test::apply(job.edit(), plan);
  CHECK(job.plan().empty());
  // Other words about the room are not worth a write, nor is the moment in which it is asked anew.
  job.edit().gang->why_not = "other words";
  CHECK(due(job).plan().empty());
  job.edit().gang.reset();
  CHECK(job.plan().empty());
  // A new leader has seen the cordon for a moment only: what is said already is not told anew.
  job.edit().lasted.clear();
  CHECK(due(job).plan().empty());
  job.edit().unschedulable_nodes.clear();
  CHECK(running_message(status_of(due(job).plan())) == "2 of 2 workers run");
}

TEST_CASE("what helps a drain is said of each kind of job") {
  const auto said_of = [](SnapshotBuilder& job) {
    job.edit().unschedulable_nodes = {"n"};
    job.edit().lasted[kCordoned] = core::words::kCordonedFor;
    if (job.snapshot().job.status.progress) due(job);
    return running_message(status_of(job.plan()));
  };
  SUBCASE("a program of one's own starts anew when it gets another size") {
    auto job = make_job("j").workers(2).all_running();
    job.edit().job.spec.worker.max = 3;
    for (int i = 0; i < 3; ++i) test::apply(job.edit(), job.plan());
    REQUIRE(job.plan().empty());
    const std::string said = said_of(job);
    CHECK(said.find("(2) run: workers of one's own program cannot join while it runs; to have") !=
          std::string::npos);
    CHECK(said.ends_with("set spec.worker.min lower or spec.suspend to true"));
  }
  SUBCASE("a gang that waits for more is told so; of one that is the least nothing is less") {
    auto job = training(1);
    job.edit().job.spec.worker.count = 2;
    answer(job, "", 0);
    test::apply(job.edit(), job.plan());
    const std::string said = said_of(job);
    CHECK(said.find("it waits for workers that it wishes for; to have it emptied now, set "
                    "spec.suspend to true; 1 worker waits for a place: no room") !=
          std::string::npos);
    test::apply(job.edit(), job.plan());
    CHECK(due(job).plan().empty());
  }
  SUBCASE("a gang of Kueue's has the size that was admitted") {
    auto job = least_gang();
    job.edit().job.status.kueue_queue = "q";
    CHECK(said_of(job).find("Kueue holds the job to the size that it admitted") !=
          std::string::npos);
  }
}
