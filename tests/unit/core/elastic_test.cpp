// Gangs that change while they train: what is decided about single workers.
#include "operator/core/elastic.h"

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <string>

#include "common/contract.h"
#include "operator/core/elastic_policy.h"
#include "operator/core/words.h"
#include "tests/unit/core/builders.h"
#include "tests/unit/core/elastic_gang.h"

using namespace muster;
using test::answer;
using test::end_pod;
using test::join_all;
using test::kNow;
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

TEST_CASE("a killed worker alone is replaced while the others train on, with two status writes") {
  auto job = training(3);
  end_pod(job, 1, 137);
  CHECK(wanted(job) == std::vector<int>{1});
  CHECK(job.plan().empty());  // what schedule says comes first, and nothing is written in between
  answer(job, "n");
  const core::Plan decision = job.plan();
  CHECK(decision.pass == core::Pass::kDecision);
  CHECK(words_of(decision) == Words{"status", "event WorkerLost"});
  const auto& status = status_of(decision);
  CHECK(placement_of(status) == "0/0@n* 1/1@n 2/0@n*");
  CHECK(status.membership_epoch == 2);
  CHECK(status.workers == "2/3");
  CHECK(status.restarts == 0);
  CHECK(status.replacements == 1);
  CHECK(status.failure->exit_code == 137);
  CHECK(status.is_true("Running"));
  test::apply(job.edit(), decision);
  job.edit().gang.reset();

  // The old pod goes, the new one comes, and nothing else is written until it is a member.
  const core::Plan made = job.plan();
  CHECK(words_of(made) ==
        Words{"delete pod-1-0", "create " + api::pod_name(job.snapshot().job, 1, 1)});
  test::apply(job.edit(), made);
  CHECK(job.plan().empty());
  join_all(job, 3);
  const core::Plan seen = job.plan();
  CHECK(words_of(seen) == Words{"status"});
  CHECK(status_of(seen).workers == "3/3");
  CHECK(status_of(seen).membership_epoch == 3);
  CHECK(placement_of(status_of(seen)) == "0/0@n* 1/1@n* 2/0@n*");
  test::apply(job.edit(), seen);
  CHECK(job.plan().empty());
}

TEST_CASE("a node that turns a worker away is left out before another place is looked for") {
  auto job = training(2);
  api::Pod& pod = pod_of(job, 1);
  pod.phase = api::PodPhase::kFailed;
  pod.image_id.clear();
  pod.reason = "OutOfcpu";
  REQUIRE(pod.node_name == "n");
  CHECK(job.plan().avoid == std::map<std::string, int>{{"n", 0}});
  answer(job, "m");
  const core::Plan plan = job.plan();
  CHECK(placement_of(status_of(plan)) == "0/0@n* 1/1@m");
  CHECK(plan.avoid == std::map<std::string, int>{{"n", 0}});
  pod.image_id = "sha256:1";  // it was let in
  CHECK(job.plan().avoid.empty());
}

TEST_CASE("what is lost in which way") {
  const std::string deleted = "0/0@n* 1/1@m 2/0@n*";
  SUBCASE("its pod was deleted by force") {
    auto job = training(3);
    remove_pod(job, 1);
    answer(job, "m");
    const core::Plan plan = job.plan();
    CHECK(placement_of(status_of(plan)) == deleted);
    // The cache may only be late.
    const auto& patch = std::get<core::PatchStatus>(plan.actions.front());
    REQUIRE(patch.confirm_absent.size() == 1);
    CHECK(patch.confirm_absent[0].name == api::pod_name(job.snapshot().job, 1, 0));
  }
  SUBCASE("its node is gone") {
    auto job = training(3);
    pod_of(job, 1).node_name = "far";
    job.edit().gone_nodes.insert("far");
    answer(job, "m");
    CHECK(placement_of(status_of(job.plan())) == deleted);
  }
  SUBCASE("it is evicted: it hands over first, and is replaced when it has left") {
    auto job = training(3);
    job.deleting(1);
    pod_of(job, 1).meta.deletion_grace_seconds = 30;
    CHECK(wanted(job).empty());
    const core::Plan waits = job.plan();
    CHECK(waits.empty());
    CHECK(waits.requeue_after.has_value());
    end_pod(job, 1, contract::exit_code::kPlannedLeave);
    answer(job, "m");
    const core::Plan plan = job.plan();
    CHECK(placement_of(status_of(plan)) == deleted);
    CHECK_FALSE(status_of(plan).failure.has_value());
    CHECK(std::get<core::EmitEvent>(plan.actions.back()).event.type == "Normal");
  }
  SUBCASE("it is evicted and never leaves") {
    auto job = training(3);
    job.deleting(1);
    job.lasting(core::words::kOverdue + seconds(1));
    answer(job, "m");
    CHECK(placement_of(status_of(job.plan())) == deleted);
  }
  SUBCASE("it lost its peer: the peer's own end is awaited for a moment") {
    auto job = training(3);
    end_pod(job, 1, contract::exit_code::kPeerLost);
    answer(job, "m");
    CHECK(job.plan().empty());
    CHECK(job.plan().requeue_after == core::words::kSettle);
    job.lasting(core::words::kSettle);
    CHECK(placement_of(status_of(job.plan())) == deleted);
  }
}

TEST_CASE("a replacement that cannot be placed waits and says why, once") {
  auto job = training(3);
  end_pod(job, 1, 137);
  answer(job, "", 0);
  const core::Plan said = job.plan();
  CHECK(said.pass == core::Pass::kObservation);
  CHECK(running_message(status_of(said)) ==
        "2 of 3 workers run; 1 worker waits for a place: no room");
  test::apply(job.edit(), said);
  job.edit().gang->why_not = "no room, in other words";
  CHECK(job.plan().empty());
  answer(job, "m");
  CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/1@m 2/0@n*");
}

TEST_CASE(
    "in a queue of Kueue a gang keeps its size, and a place is taken when its pod has ended") {
  auto job = training(3);
  job.edit().job.status.kueue_queue = "team";
  job.edit().job.meta.labels["kueue.x-k8s.io/queue-name"] = "team";
  job.edit().job.spec.worker.count = 5;
  CHECK(wanted(job).empty());
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  CHECK(running_message(status_of(job.plan())).ends_with("takes effect at the next start"));
  job.edit().job.spec.worker.count = 3;
  // Of a pod that still counts Kueue would delete the replacement, however long it takes to go.
  pod_of(job, 1).meta.deletion_time = kNow - seconds(300);
  job.lasting(seconds(300));
  REQUIRE(wanted(job) == std::vector<int>{1});
  answer(job, "");
  test::apply(job.edit(), job.plan());
  job.edit().gang.reset();
  const auto creates = [&] {
    const auto words = words_of(job.plan());
    return std::count_if(words.begin(), words.end(),
                         [](const std::string& word) { return word.starts_with("create"); });
  };
  CHECK(creates() == 0);
  end_pod(job, 1, 143);
  CHECK(creates() == 1);
  test::apply(job.edit(), job.plan());
  api::Pod& joiner = job.edit().pods.back();
  REQUIRE(joiner.slot() == 1);
  CHECK(joiner.meta.labels.at("kueue.x-k8s.io/pod-group-name") ==
        api::service_name(job.snapshot().job) + "-0");
  CHECK(joiner.meta.annotations.at("kueue.x-k8s.io/pod-group-total-count") == "3");
  joiner.held_by_kueue = true;
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  CHECK(running_message(status_of(job.plan())).find("worker 1 waits for Kueue") !=
        std::string::npos);
}

TEST_CASE("a replacement's pod does not wait for a turn to write progress") {
  auto job = training(2);
  end_pod(job, 1, 137);
  answer(job, "m");
  test::apply(job.edit(), job.plan());
  job.edit().gang.reset();
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  auto report = member_report(0, 0, 1, {0, 1});
  report.step = 200;
  job.report(report);
  const core::Plan plan = job.plan();
  REQUIRE(plan.pass == core::Pass::kProgress);
  Words words = words_of(plan);
  REQUIRE(words.size() > 1);
  CHECK(words.back() == "status");
  words.pop_back();
  CHECK(words.back().starts_with("create "));
  const core::Plan rest = core::without_progress(job.snapshot(), plan);
  CHECK(rest.pass == core::Pass::kNone);
  CHECK(words_of(rest) == words);
  CHECK(rest.requeue_after == plan.requeue_after);
}

TEST_CASE("nobody trains on: the gang starts anew, and that alone is a restart") {
  auto job = training(2);
  end_pod(job, 0, 137);
  end_pod(job, 1, contract::exit_code::kPeerLost);
  job.edit().job.status.key_id = "of-before";
  job.edit().key_id = "of-now";
  const core::Plan plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event WorkerLost", "event Restarting"});
  const auto& status = status_of(plan);
  CHECK(status.restarts == 1);
  CHECK(status.start_attempt == 1);
  CHECK(status.key_id == "of-now");
  CHECK(placement_of(status) == "0/1@n 1/1@n");
}

TEST_CASE("a gang whose start told no master key has one with the next write, and keeps that") {
  auto job = training(2);
  job.edit().key_id = "of-now";
  CHECK(job.plan().empty());
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  auto report = member_report(0, 0, 1, {0, 1});
  report.step = 200;
  job.report(report);
  CHECK(status_of(job.plan()).key_id == "of-now");
  job.edit().job.status.key_id = "of-before";
  CHECK(status_of(job.plan()).key_id == "of-before");
}

TEST_CASE("a replacement that was never let in cannot train on for the others") {
  auto job = training(2);
  end_pod(job, 1, 137);
  answer(job, "n");
  test::apply(job.edit(), job.plan());
  job.edit().gang.reset();
  test::apply(job.edit(), job.plan());
  pod_of(job, 1).phase = api::PodPhase::kRunning;
  end_pod(job, 0, 137);
  CHECK(status_of(job.plan()).restarts == 1);
}

TEST_CASE("who was not let in for its data does not end the job when the others are lost") {
  using contract::exit_code::kData;
  for (const int joiner : {0, 1}) {
    CAPTURE(joiner);
    const int member = 1 - joiner;
    auto job = training(2);
    auto& placement = job.edit().job.status.placement[static_cast<std::size_t>(joiner)];
    placement.member = false;
    placement.attempt = 1;
    job.edit().job.status.membership_epoch = 2;
    job.edit().reports.erase(joiner);
    pod_of(job, joiner).meta.name = api::pod_name(job.snapshot().job, joiner, 1);
    pod_of(job, joiner).meta.labels[std::string(contract::kLabelAttempt)] = "1";
    end_pod(job, joiner, kData);
    end_pod(job, member, 137);
    const auto status = status_of(job.plan());
    CHECK_FALSE(status.is_true("Failed"));
    CHECK(status.restarts == 1);
    CHECK(status.failure->slot == member);
  }
  // Of one that the gang began with nobody knows whose data are wrong.
  auto first = training(2);
  first.edit().job.status.placement[1].member = false;
  first.edit().reports.erase(1);
  end_pod(first, 0, 137);
  end_pod(first, 1, kData);
  CHECK(status_of(first.plan()).is_true("Failed"));
}

TEST_CASE("workers that know of no membership fail as a gang, as they do today") {
  SnapshotBuilder job("j");
  job.engine().workers(2).all_running();
  ProgressReport report;
  report.slot = 0;
  job.report(report);
  end_pod(job, 1, 137);
  CHECK(status_of(job.plan()).restarts == 1);
}

TEST_CASE("a typed verdict of a member fails the job; of one that was not let in it does not") {
  auto job = training(2);
  end_pod(job, 1, contract::exit_code::kNumerics);
  CHECK(status_of(job.plan()).is_true("Failed"));

  auto joiner = training(2);
  joiner.edit().job.status.placement[1].member = false;
  joiner.edit().reports.erase(1);
  end_pod(joiner, 1, contract::exit_code::kCpuOrContract);
  pod_of(joiner, 1).termination->message = "more\nthe endpoint refused this worker: fp32-chain/2";
  answer(joiner, "m");
  CHECK(placement_of(status_of(joiner.plan())) == "0/0@n* 1/1@m");
  CHECK(status_of(joiner.plan()).failure->reason == "CpuOrContractRefused");
  // Why stands in status while its next attempt waits and the others train.
  joiner.edit().job.status.placement[1].replacements = 3;
  joiner.edit().gang.reset();
  joiner.edit().job.status.progress->updated_at = kNow - seconds(20);
  CHECK(running_message(status_of(joiner.plan())) ==
        "1 of 2 workers run; worker 1 was not let in: CpuOrContractRefused the endpoint refused "
        "this worker: fp32-chain/2");

  auto never = training(2);
  never.restarts("Never", 3);
  end_pod(never, 1, 137);
  CHECK(status_of(never.plan()).is_true("Failed"));
}

TEST_CASE("the first replacement comes at once, the next ones wait twice as long each") {
  for (const auto& [before, wait] :
       std::vector<std::pair<int, int>>{{0, 0}, {1, 10}, {2, 20}, {7, 300}}) {
    CAPTURE(before);
    auto job = training(2);
    job.edit().job.status.placement[1].replacements = before;
    end_pod(job, 1, 1);
    if (wait == 0) {
      answer(job, "n");
      CHECK(status_of(job.plan()).placement[1].replacements == 1);
      continue;
    }
    job.lasting(seconds(wait - 1));
    CHECK(wanted(job).empty());
    test::apply(job.edit(), job.plan());
    CHECK(job.plan().requeue_after == seconds(1));
    job.lasting(seconds(wait));
    answer(job, "n");
    CHECK(status_of(job.plan()).placement[1].replacements == before + 1);
  }
  // One that ran for long fails for the first time again, and a lost pod is nobody's failure.
  auto old = training(2);
  old.edit().job.status.placement[1].replacements = 4;
  pod_of(old, 1).meta.creation_time = kNow - core::words::kForgivenAfter;
  end_pod(old, 1, 1);
  answer(old, "n");
  CHECK(status_of(old.plan()).placement[1].replacements == 1);
  auto lost = training(2);
  lost.edit().job.status.placement[1].replacements = 4;
  remove_pod(lost, 1);
  answer(lost, "n");
  CHECK(status_of(lost.plan()).placement[1].replacements == 0);
}

TEST_CASE("who ended for what it read looks at all its data before it is let in again") {
  using namespace contract::exit_code;
  for (const int code : {kData, kDisk, kHung, 137}) {
    CAPTURE(code);
    auto job = training(2);
    if (code == kData) {  // a member's would end the job
      job.edit().job.status.placement[1].member = false;
      job.edit().reports.erase(1);
    }
    end_pod(job, 1, code);
    answer(job, "n");
    CHECK(status_of(job.plan()).placement[1].checks_data == (code == kData || code == kDisk));
  }
  auto lost = training(2);
  remove_pod(lost, 1);
  lost.edit().job.status.placement[1].checks_data = true;
  answer(lost, "n");
  CHECK_FALSE(status_of(lost.plan()).placement[1].checks_data);
  // One that was lost before it was let in has not shown that its data are right.
  auto unseen = training(2);
  auto& placement = unseen.edit().job.status.placement[1];
  placement.member = false;
  placement.checks_data = true;
  unseen.edit().reports.erase(1);
  end_pod(unseen, 1, 137);
  answer(unseen, "n");
  CHECK(status_of(unseen.plan()).placement[1].checks_data);
}

TEST_CASE("whose place was given back has a successor that looks at the data it ended for") {
  for (const int code : {contract::exit_code::kDisk, 137}) {
    CAPTURE(code);
    auto job = training(2);
    end_pod(job, 1, code);
    answer(job, "m");
    test::apply(job.edit(), job.plan());
    remove_pod(job, 1);
    job.edit().reports.erase(1);
    // The cluster's scheduler refuses the successor's pod.
    test::apply(job.edit(), job.plan());
    pod_of(job, 1).reason = "Unschedulable";
    job.lasting(core::words::kUnboundMost);
    test::apply(job.edit(), job.plan());
    REQUIRE(placement_of(job.snapshot().job.status) == "0/0@n*");
    answer(job, "n");
    job.edit().lasted["room"] = core::words::kGrowAfter;
    const auto status = status_of(job.plan());
    REQUIRE(status.placement.size() == 2);
    CHECK(status.placement[1].checks_data == (code == contract::exit_code::kDisk));
  }
}

TEST_CASE("a joiner with another key is named in status, and those who train are let alone") {
  auto job = training(2);
  job.edit().job.status.placement[1].member = false;
  job.edit().job.status.placement[1].replacements = 3;
  job.edit().reports.erase(1);
  end_pod(job, 1, contract::exit_code::kKeyRefused);
  pod_of(job, 1).termination->message = "more\nit has another key than they have";
  SUBCASE("while its next attempt waits") {}
  SUBCASE("whatever the job says of restarts") { job.restarts("Never", 3); }
  SUBCASE("even where they are at once") {
    job.edit().job.spec.restart.backoff_seconds = 0;
    job.lasting(seconds(3));
  }
  CHECK(wanted(job).empty());
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  CHECK(running_message(status_of(job.plan())) ==
        "1 of 2 workers run; worker 1 was not let in: KeyRefused it has another key than they "
        "have");
}

TEST_CASE(
    "why a joiner was not let in is said while its next attempt is under way, until it is in") {
  auto job = training(2);
  job.edit().job.status.placement[1].member = false;
  job.edit().reports.erase(1);
  end_pod(job, 1, contract::exit_code::kKeyRefused);
  pod_of(job, 1).termination->message = "it has another key";
  answer(job, "n");
  const std::string why = "; worker 1 was not let in: KeyRefused it has another key";
  const core::Plan replaced = job.plan();
  CHECK(running_message(status_of(replaced)) == "1 of 2 workers run" + why);
  test::apply(job.edit(), replaced);
  job.edit().gang.reset();
  for (int i = 0; i < 3; ++i) test::apply(job.edit(), job.plan());
  CHECK(running_message(job.snapshot().job.status) == "1 of 2 workers run" + why);
  join_all(job, 4);
  for (int i = 0; i < 3; ++i) test::apply(job.edit(), job.plan());
  CHECK(running_message(job.snapshot().job.status) == "2 of 2 workers run");
}

TEST_CASE("when all start anew, all get one key: whose key was another one does not fail the job") {
  auto job = training(2);
  job.edit().job.status.placement[1].member = false;
  job.edit().reports.erase(1);
  end_pod(job, 1, contract::exit_code::kKeyRefused);
  end_pod(job, 0, 137);
  const auto status = status_of(job.plan());
  CHECK_FALSE(status.is_true("Failed"));
  CHECK(status.restarts == 1);
}

TEST_CASE(
    "who was not let in is tried again after a second or more, even where restarts are at once") {
  auto job = training(2);
  job.edit().job.spec.restart.backoff_seconds = 0;
  job.edit().job.status.placement[1].replacements = 3;
  job.edit().job.status.placement[1].member = false;
  job.edit().reports.erase(1);
  end_pod(job, 1, contract::exit_code::kCpuOrContract);
  job.lasting(seconds(3));
  CHECK(wanted(job).empty());
  job.lasting(seconds(4));
  answer(job, "n");
  CHECK(status_of(job.plan()).placement[1].replacements == 4);
  // One that ended for another reason comes back at once, as the job says.
  auto killed = training(2);
  killed.edit().job.spec.restart.backoff_seconds = 0;
  killed.edit().job.status.placement[1].replacements = 3;
  end_pod(killed, 1, 137);
  answer(killed, "n");
  CHECK(status_of(killed.plan()).placement[1].replacements == 4);
}

TEST_CASE("a larger count adds slots in one decision, and they join with one more write") {
  auto job = training(2);
  job.edit().job.spec.worker.count = 4;
  CHECK(wanted(job) == std::vector<int>{2, 3});
  CHECK(job.plan().empty());
  answer(job, "m");
  const core::Plan plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event Resized"});
  CHECK(placement_of(status_of(plan)) == "0/0@n* 1/0@n* 2/1@m 3/1@m");
  CHECK(status_of(plan).target_workers == 4);
  CHECK(status_of(plan).workers == "2/4");
  CHECK(status_of(plan).replicas == 2);
  CHECK(std::get<core::EmitEvent>(plan.actions.back()).event.note ==
        "spec.worker.count is 4 now; workers 2, 3 to join; the others train on");
  test::apply(job.edit(), plan);
  job.edit().gang.reset();
  const core::Plan made = job.plan();
  CHECK(words_of(made) == Words{"create " + api::pod_name(job.snapshot().job, 2, 1),
                                "create " + api::pod_name(job.snapshot().job, 3, 1)});
  test::apply(job.edit(), made);
  CHECK(job.plan().empty());
  // One is in, the other not yet: that waits for the next progress.
  for (auto& pod : job.edit().pods) pod.phase = api::PodPhase::kRunning;
  job.report(member_report(2, 1, 3, {0, 1, 2}));
  job.edit().job.status.progress->updated_at = kNow;
  CHECK(words_of(job.plan()) == Words{"budget 2"});
  test::apply(job.edit(), job.plan());
  CHECK(job.plan().empty());
  join_all(job, 4);
  const core::Plan seen = job.plan();
  CHECK(words_of(seen) == Words{"status"});
  CHECK(status_of(seen).workers == "4/4");
  CHECK(status_of(seen).replicas == 4);
}

TEST_CASE("as many as fit join now, the rest waits and says why") {
  auto job = training(1);
  job.edit().job.spec.worker.count = 4;
  answer(job, "m", 2);
  const core::Plan some = job.plan();
  CHECK(placement_of(status_of(some)) == "0/0@n* 1/1@m 2/1@m");
  CHECK(status_of(some).target_workers == 4);
  test::apply(job.edit(), some);
  CHECK(wanted(job) == std::vector<int>{3});
  answer(job, "", 0);
  job.edit().job.status.progress->updated_at = kNow - seconds(20);
  test::apply(job.edit(), job.plan());
  CHECK(running_message(job.snapshot().job.status) ==
        "1 of 4 workers run; 1 worker waits for a place: no room");
  CHECK(core::wanted_places(job.snapshot())->beside == std::set<std::string>{"n", "m"});

  auto full = training(1);
  full.edit().job.spec.worker.count = 3;
  answer(full, "", 0);
  const core::Plan target = full.plan();
  CHECK(target.pass == core::Pass::kDecision);
  CHECK(status_of(target).target_workers == 3);
  CHECK(running_message(status_of(target)) ==
        "1 of 3 workers run; 2 workers wait for a place: no room");
  test::apply(full.edit(), target);
  CHECK(full.plan().empty());
}

TEST_CASE("room that opens later must last before a gang grows into it; who is down never waits") {
  auto job = training(2);
  job.edit().job.spec.worker.count = 4;
  answer(job, "", 0);
  test::apply(job.edit(), job.plan());
  REQUIRE(job.snapshot().job.status.target_workers == 4);
  CHECK(core::wanted_places(job.snapshot())->only_grows);
  CHECK_FALSE(core::lasting_facts(job.snapshot()).contains("room"));
  answer(job, "m", 1);
  CHECK(core::lasting_facts(job.snapshot()).contains("room"));
  CHECK(job.plan().requeue_after == core::words::kGrowAfter);
  CHECK(job.plan().empty());
  job.edit().lasted["room"] = core::words::kGrowAfter - seconds(1);
  CHECK(job.plan().requeue_after == seconds(1));
  CHECK(job.plan().empty());
  // Another wish is followed at once.
  job.edit().job.spec.worker.count = 3;
  answer(job, "m");
  CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/0@n* 2/1@m");
  job.edit().job.spec.worker.count = 4;
  answer(job, "m", 1);
  job.edit().lasted["room"] = core::words::kGrowAfter;
  CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/0@n* 2/1@m");
  // A slot that is down comes first, though the room is new; then a larger count is followed.
  job.edit().lasted.clear();
  job.edit().job.spec.worker.count = 5;
  end_pod(job, 1, 137);
  answer(job, "m");
  CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/1@m");
  CHECK(status_of(job.plan()).target_workers == 4);
}

TEST_CASE("a model in stages grows by whole copies, and who waits for its copy is named") {
  auto job = training(2);
  job.edit().job.spec.training->split.pipeline = 2;
  job.edit().job.spec.worker.min = 2;
  job.edit().job.spec.worker.count = 6;
  answer(job, "m", 3);
  CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/0@n* 2/1@m 3/1@m");
  answer(job, "m", 1);
  const core::Plan target = job.plan();
  CHECK(placement_of(status_of(target)) == "0/0@n* 1/0@n*");
  CHECK(running_message(status_of(target)) ==
        "2 of 6 workers run; 4 workers wait for a place: there is room for 1, and a copy of the "
        "model is in 2 workers");
  CHECK_FALSE(core::lasting_facts(job.snapshot()).contains("room"));

  auto halved = training(4);
  halved.edit().job.spec.training->split.pipeline = 2;
  end_pod(halved, 2, 137);
  answer(halved, "n");
  const core::Plan decision = halved.plan();
  CHECK(placement_of(status_of(decision)) == "0/0@n* 1/0@n* 2/1@n 3/0@n*");
  CHECK(
      running_message(status_of(decision))
          .find("; worker 3 waits for the others that have stages of the same copy of the model") !=
      std::string::npos);
}

TEST_CASE("an elastic job's budget comes after everything else, follows min and goes with it") {
  auto job = training(2);
  job.edit().budget.reset();
  CHECK(words_of(job.plan()) == Words{"budget 1"});
  job.edit().budget_failed = true;
  CHECK(job.plan().empty());
  job.edit().budget_failed = false;
  end_pod(job, 1, 137);
  answer(job, "m");
  CHECK(words_of(job.plan()) == Words{"status", "event WorkerLost"});  // first the workers
  auto other = training(3);
  other.edit().job.spec.worker.min = 2;
  CHECK(words_of(other.plan()) == Words{"budget 2"});
  test::apply(other.edit(), other.plan());
  CHECK(other.plan().empty());
  other.edit().job.spec.worker.min = other.edit().job.spec.worker.max = 3;
  CHECK(words_of(other.plan()) == Words{"no budget"});
  other.edit().budget = 0;
  CHECK(other.plan().empty());
  other.edit().budget.reset();  // a fresh operator asks about elastic jobs alone
  CHECK(other.plan().empty());
}

TEST_CASE("no eviction counts on a pod that runs and does not train yet") {
  auto job = training(3);
  job.edit().job.spec.worker.min = 2;
  job.edit().job.spec.worker.count = 4;
  job.edit().budget = 2;
  answer(job, "m");
  test::apply(job.edit(), job.plan());
  job.edit().gang.reset();
  test::apply(job.edit(), job.plan());
  // One that is not there yet is not counted by Kubernetes either, and may never come.
  CHECK(job.plan().empty());
  for (auto& pod : job.edit().pods) pod.phase = api::PodPhase::kRunning;
  CHECK(words_of(job.plan()) == Words{"budget 3"});
  test::apply(job.edit(), job.plan());
  join_all(job, 4);
  test::apply(job.edit(), job.plan());
  CHECK(words_of(job.plan()) == Words{"budget 2"});
  // Of a gang that starts nobody trains, and nobody is kept for that.
  auto starting = make_job("j").engine().workers(2).all_running();
  starting.edit().job.spec.worker.min = 1;
  starting.edit().budget = 1;
  for (int i = 0; i < 3; ++i) test::apply(starting.edit(), starting.plan());
  CHECK(starting.plan().empty());
}

TEST_CASE("what a budget says is asked about where a write of it may have been lost") {
  auto job = training(2);
  job.edit().budget = core::kBudgetUnsure;
  CHECK(words_of(job.plan()) == Words{"budget 1"});
  job.edit().job.spec.worker.min = job.edit().job.spec.worker.max = 2;
  CHECK(words_of(job.plan()) == Words{"no budget"});
}

TEST_CASE("a smaller count sends the highest slots away, in a decision before any deletion") {
  auto job = training(4);
  job.edit().job.spec.worker.count = 2;
  const core::Plan plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event Resized"});
  CHECK(placement_of(status_of(plan)) == "0/0@n* 1/0@n*");
  CHECK(status_of(plan).workers == "2/2");
  CHECK(status_of(plan).target_workers == 2);
  test::apply(job.edit(), plan);
  CHECK(words_of(job.plan()) == Words{"delete pod-2-0", "delete pod-3-0"});
  // How they end is nobody's failure, and their slots' last words are no news.
  end_pod(job, 2, contract::exit_code::kPlannedLeave);
  end_pod(job, 3, 137);
  CHECK(words_of(job.plan()) == Words{"delete pod-2-0", "delete pod-3-0"});
}

TEST_CASE("a count beyond max or below min is taken for the nearest that is allowed") {
  auto job = training(2);
  job.edit().job.spec.worker.max = 3;
  job.edit().job.spec.worker.count = 9;
  CHECK(wanted(job) == std::vector<int>{2});
  auto down = training(3);
  down.edit().job.spec.worker.min = 2;
  down.edit().job.spec.worker.count = 1;
  CHECK(placement_of(status_of(down.plan())) == "0/0@n* 1/0@n*");
}

TEST_CASE("those who hold the training are not sent away before somebody else holds it") {
  auto job = training(2);
  end_pod(job, 0, 137);
  job.edit().job.spec.worker.count = 1;
  answer(job, "n");
  const core::Plan plan = job.plan();
  CHECK(placement_of(status_of(plan)) == "0/1@n 1/0@n*");
  test::apply(job.edit(), plan);
  job.edit().gang.reset();
  test::apply(job.edit(), job.plan());
  CHECK(job.plan().pass != core::Pass::kDecision);
  join_all(job, 4);
  CHECK(placement_of(status_of(job.plan())) == "0/1@n*");
}

TEST_CASE("attempts are given out after whatever epoch the workers have come to") {
  auto job = training(2);
  job.report(member_report(0, 0, 40, {0, 1}));
  end_pod(job, 1, 137);
  answer(job, "n");
  CHECK(status_of(job.plan()).membership_epoch == 41);
  CHECK(status_of(job.plan()).placement[1].attempt == 40);
  // A liar cannot use the numbers up.
  auto liar = training(2);
  liar.report(member_report(0, 0, std::int64_t{1} << 52, {0, 1}));
  end_pod(liar, 1, 137);
  answer(liar, "n");
  CHECK(status_of(liar.plan()).placement[1].attempt == 1);
}

TEST_CASE("a pod of a slot is not made while the one before it may still run") {
  auto job = training(2);
  job.edit().job.status.placement[1] = {1, 5, "n", ""};
  job.edit().job.status.membership_epoch = 6;
  const std::string made = "create " + api::pod_name(job.snapshot().job, 1, 5);
  Words words = words_of(job.plan());
  CHECK(words.front() == "delete pod-1-0");
  CHECK(std::count(words.begin(), words.end(), made) == 0);
  remove_pod(job, 1);
  words = words_of(job.plan());
  CHECK(std::count(words.begin(), words.end(), made) == 1);
}

TEST_CASE("a worker that the cluster's scheduler refuses gets another place, the others stay") {
  auto job = training(2);
  job.edit().job.status.placement[1] = {1, 5, "n", ""};
  job.edit().job.status.membership_epoch = 6;
  remove_pod(job, 1);
  job.edit().reports.erase(1);
  test::apply(job.edit(), job.plan());
  pod_of(job, 1).reason = "Unschedulable";
  job.lasting(core::words::kUnboundMost - seconds(1));
  CHECK(job.plan().pass != core::Pass::kDecision);
  job.lasting(core::words::kUnboundMost);
  const core::Plan plan = job.plan();
  CHECK(placement_of(status_of(plan)) == "0/0@n*");
  CHECK(plan.avoid == std::map<std::string, int>{{"n", 5}});
  test::apply(job.edit(), plan);
  CHECK(wanted(job) == std::vector<int>{1});
}

TEST_CASE("the end: members that ended with 0 are enough, and nobody is replaced on the way") {
  const auto last_word = [](SnapshotBuilder& job, std::vector<int> members) {
    ProgressReport report = member_report(0, 0, 3, std::move(members));
    report.model_sha256 = std::string(64, 'a');
    end_pod(job, 0, 0);
    pod_of(job, 0).termination->message = dump_json(to_json(report));
  };
  auto job = training(3);
  end_pod(job, 2, 137);
  last_word(job, {0, 1});
  CHECK(wanted(job).empty());
  CHECK(job.plan().pass != core::Pass::kDecision);
  // One that was let in too late is awaited for a while.
  CHECK(job.plan().requeue_after.value() <= core::words::kLeftBehindMost);
  CHECK(running_message(status_of(job.lasting(core::words::kLeftBehindMost).plan())) ==
        "worker 0 ended with the model, 1 of 3 workers with 0; the rest had 30 s to follow");
  CHECK(status_of(job.plan()).is_true("Complete"));
  end_pod(job, 1, 0);
  CHECK(status_of(job.plan()).is_true("Complete"));
  CHECK(running_message(status_of(job.plan())) == "every worker (2) ended with 0");
  auto missed = training(3);
  end_pod(missed, 2, 137);
  last_word(missed, {0, 1, 2});
  end_pod(missed, 1, 0);
  CHECK(status_of(missed.plan()).restarts == 1);
}

TEST_CASE("suspension comes before replacement") {
  auto job = training(3);
  end_pod(job, 1, 137);
  job.suspended_spec();
  CHECK(wanted(job).empty());
  CHECK(status_of(job.plan()).placement.empty());
}

TEST_CASE("a gang that dies while it grows starts anew in the size it has") {
  auto job = training(2);
  job.edit().job.status.target_workers = 3;
  end_pod(job, 0, 137);
  end_pod(job, 1, 137);
  const core::Plan plan = job.plan();
  const auto& status = status_of(plan);
  CHECK(placement_of(status) == "0/1@n 1/1@n");
  CHECK(status.target_workers == 2);
  CHECK(status.workers == "0/2");
}

TEST_CASE("a gang that dies in another size than it wishes for starts anew in the places it has") {
  const auto died = [](const std::function<void(api::TrainingJob&)>& edit) {
    auto job = training(3);
    job.edit().job.spec.worker.count = job.edit().job.status.start_count = 4;
    edit(job.edit().job);
    for (const int slot : {0, 1, 2}) end_pod(job, slot, 137);
    return placement_of(status_of(job.plan()));
  };
  const std::string kept = "0/1@n 1/1@n 2/1@n";
  CHECK(died([](auto&) {}) == kept);
  CHECK(died([](auto& job) { job.status.start_count = 3; }).empty());  // its wish has changed
  CHECK(died([](auto& job) { job.spec.worker.min = 4; }).empty());
  CHECK(died([](auto& job) { job.status.placement[2].slot = 3; }).empty());
  // It has grown beyond it.
  const auto grown = [](const std::string& grows_to) {
    return [=](api::TrainingJob& job) {
      job.spec.worker.count = job.status.start_count = 2;
      job.spec.queue_name = "research";
      job.spec.worker.grows_to = grows_to;
    };
  };
  CHECK(died(grown("Max")) == kept);
  CHECK(died(grown("Count")).empty());
}

namespace {

core::TakeBack take_back(int workers) {
  return {workers, workers, {"team", "x"}, "uid-x", "queue product takes back 2 cpu", 24};
}

}  // namespace

TEST_CASE("workers that are taken back leave in one decision, and the wish stays") {
  auto job = training(4);
  job.edit().take_back = take_back(2);
  CHECK(core::shrinks_to(job.snapshot()) == 1);
  const core::Plan plan = job.plan();
  CHECK(plan.pass == core::Pass::kDecision);
  CHECK(words_of(plan) == Words{"status", "event Shrunk"});
  const auto& status = status_of(plan);
  CHECK(placement_of(status) == "0/0@n* 1/0@n*");
  CHECK(status.target_workers == 4);
  CHECK(status.taken_back.shrinks == 1);
  CHECK(status.is_true("Running"));
  CHECK(std::get<core::EmitEvent>(plan.actions.back()).event.note ==
        "workers 2, 3 to leave: queue product takes back 2 cpu; the others train on");
  test::apply(job.edit(), plan);
  // It does not grow into what it gave back while that is taken back.
  answer(job, "n");
  job.lasting(seconds(60));
  CHECK(words_of(job.plan()).front().starts_with("delete "));
  test::apply(job.edit(), job.plan());
  for (const auto& action : job.plan().actions) {
    CHECK_FALSE(std::holds_alternative<core::CreatePod>(action));
  }
  CHECK(job.snapshot().job.status.placement.size() == 2);
  CHECK(job.snapshot().job.status.taken_back.shrinks == 1);
  job.edit().take_back.reset();
  job.lasting(seconds(60));
  const core::Plan grows = job.plan();
  CHECK(placement_of(status_of(grows)).starts_with("0/0@n* 1/0@n* 2/"));
}

TEST_CASE("nobody is sent away for another job while those who stay could not train on") {
  auto job = training(3);
  end_pod(job, 0, 137);
  job.edit().take_back = take_back(1);
  CHECK(core::shrinks_to(job.snapshot()) == 0);
  answer(job, "n", 0);
  for (const auto& action : job.plan().actions) {
    const auto* patch = std::get_if<core::PatchStatus>(&action);
    if (patch != nullptr) CHECK(patch->status.placement.size() == 3);
  }
  auto whole = training(3);
  whole.edit().job.spec.worker.min = 3;
  CHECK(core::shrinks_to(whole.snapshot()) == 0);
  CHECK(core::shrinks_to(make_job("own").workers(3).all_running().snapshot()) == 0);
  // Two and two have a copy of the model together.
  auto split = training(4);
  split.edit().job.spec.training->split.pipeline = split.edit().job.spec.worker.min = 2;
  CHECK(core::shrinks_to(split.snapshot()) == 2);
  end_pod(split, 1, 137);
  CHECK(core::shrinks_to(split.snapshot()) == 0);
}

TEST_CASE("a preempted gang leaves as a whole, and how its workers end is no failure") {
  for (const bool engine : {true, false}) {
    auto job = engine ? training(2) : make_job("own").workers(2).all_running();
    job.edit().job.status.restart_at = kNow;
    job.edit().job.status.taken_back.lost_process_seconds = 6;
    job.edit().take_back = take_back(0);
    const core::Plan plan = job.plan();
    CHECK(words_of(plan) == Words{"status", "event Preempted"});
    const auto& status = status_of(plan);
    CHECK(status.placement.empty());
    CHECK(status.taken_back == api::TakenBack{0, 1, 30, "team/x", "uid-x"});
    CHECK(status.phase == "Waiting");
    CHECK(status.workers == "0/2");
    CHECK_FALSE(status.start_time.has_value());
    CHECK_FALSE(status.restart_at.has_value());
    CHECK_FALSE(status.is_true("Running"));
    CHECK(status.condition("Admitted")->reason == "Preempted");
    test::apply(job.edit(), plan);
    CHECK(words_of(job.plan()).front().starts_with("delete "));
    CHECK(wanted(job).empty());
    CHECK_FALSE(core::wanted_places(job.snapshot()).has_value());
    test::apply(job.edit(), job.plan());
    ProgressReport last = member_report(0, 0, 1, {0, 1});
    last.checkpoint_step = 99;
    job.report(last);
    const auto wish = core::wanted_places(job.snapshot());
    REQUIRE(wish);
    CHECK(wish->slots.empty());  // the whole gang
    job.edit().take_back.reset();
    job.does_not_fit("1st in queue q: no room");
    const auto waits = status_of(job.plan());
    CHECK(waits.condition("Admitted")->reason == "GangWaiting");
    CHECK(waits.checkpoint->step == 99);
    CHECK(waits.restarts == 0);
    job.fits_on("n");
    CHECK(status_of(job.plan()).placement.size() == 2);
  }
}

TEST_CASE("what ends a job comes before its being preempted") {
  auto job = training(1);
  job.edit().take_back = take_back(0);
  end_pod(job, 0, 0);
  CHECK(status_of(job.plan()).is_true("Complete"));
  auto failed = make_job("own").engine().workers(1).all_running();
  failed.edit().pods.clear();
  failed.ended(0, contract::exit_code::kNumerics);
  failed.edit().take_back = take_back(0);
  CHECK(status_of(failed.plan()).is_true("Failed"));
  auto suspended = training(1);
  suspended.edit().job.spec.suspend = true;
  suspended.edit().take_back = take_back(0);
  CHECK(status_of(suspended.plan()).taken_back.preemptions == 0);
}

TEST_CASE(
    "a gang grows beyond its wish into room that lasts, and says nothing where there is none") {
  auto job = training(3);
  job.edit().job.spec.worker.max = 6;
  job.edit().job.spec.worker.grows_to = "Max";
  job.edit().job.spec.queue_name = "research";
  CHECK(wanted(job) == std::vector<int>{3, 4, 5});
  CHECK(core::wanted_places(job.snapshot())->only_grows);
  CHECK(core::wanted_places(job.snapshot())->is_beyond);
  answer(job, "", 0);
  CHECK(job.plan().empty());
  answer(job, "m", 2);
  CHECK(job.plan().empty());
  CHECK(job.plan().requeue_after == core::words::kGrowAfter);
  job.edit().lasted["room"] = core::words::kGrowAfter;
  const core::Plan plan = job.plan();
  CHECK(words_of(plan) == Words{"status", "event Resized"});
  CHECK(placement_of(status_of(plan)) == "0/0@n* 1/0@n* 2/0@n* 3/1@m 4/1@m");
  CHECK(status_of(plan).target_workers == 5);
  CHECK(status_of(plan).workers == "3/5");
  CHECK(std::get<core::EmitEvent>(plan.actions.back()).event.note ==
        "there is room that nobody waits for: workers 3, 4 to join; the others train on");
  test::apply(job.edit(), plan);
  job.edit().gang.reset();
  test::apply(job.edit(), job.plan());
  join_all(job, 4);
  CHECK(wanted(job) == std::vector<int>{5});
  answer(job, "", 0);
  test::apply(job.edit(), job.plan());
  CHECK(job.snapshot().job.status.workers == "5/5");
  CHECK(running_message(job.snapshot().job.status) == "5 of 5 workers run");

  SUBCASE("what is taken back of that is no longer wished for") {
    job.edit().take_back = take_back(3);
    const core::Plan back = job.plan();
    CHECK(placement_of(status_of(back)) == "0/0@n* 1/0@n* 2/0@n*");
    CHECK(status_of(back).target_workers == 3);
    CHECK(status_of(back).taken_back.shrinks == 1);
  }
  SUBCASE("of what is taken back beyond that the wish stays") {
    job.edit().take_back = take_back(2);
    CHECK(status_of(job.plan()).target_workers == 3);
    CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/0@n*");
  }
  SUBCASE("a smaller count sends nobody away, growing to the count does") {
    job.edit().job.spec.worker.count = 2;
    CHECK(job.plan().empty());
    job.edit().job.spec.worker.grows_to = "Count";
    CHECK(placement_of(status_of(job.plan())) == "0/0@n* 1/0@n*");
    CHECK(status_of(job.plan()).target_workers == 2);
  }
  SUBCASE("a larger count is wished for: it waits and says so") {
    job.edit().job.spec.worker.count = 6;
    answer(job, "", 0);
    CHECK(status_of(job.plan()).target_workers == 6);
    CHECK(running_message(status_of(job.plan())).find("1 worker waits for a place: no room") !=
          std::string::npos);
  }
  SUBCASE("who is down is replaced before more come") {
    end_pod(job, 1, 137);
    CHECK(wanted(job) == std::vector<int>{1});
    CHECK_FALSE(core::wanted_places(job.snapshot())->is_beyond);
  }
}
