// What the loop keeps of jobs between two looks at them.
#include <doctest/doctest.h>

#include <functional>
#include <iterator>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "operator/core/plan.h"
#include "operator/runtime/loop.h"
#include "operator/runtime/metrics.h"
#include "tests/test_main.h"
#include "tests/unit/runtime/jobs_fixture.h"

using namespace muster;
using test::first_step;
using test::JobsFixture;
using test::kTrain;
using test::let_train;
using test::only_pod;
using test::ready_node;

namespace {

/// How many looks at jobs the loop has been asked for.
int looks_by(const runtime::Metrics& metrics) {
  const std::string page = metrics.render();
  const std::string of = "workqueue_adds_total{name=\"trainingjob\"} ";
  const auto at = page.find(of);
  REQUIRE(at != std::string::npos);
  return std::stoi(page.substr(at + of.size()));
}

}  // namespace

TEST_CASE("a place that comes into status while others are placed is taken once") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "4")});
  loop.step();
  REQUIRE(fixture.planned.places_of("a") == std::vector<std::string>{"n"});
  // What was written is seen in the moment in which the second job comes.
  fixture.list(api::Kind::kTrainingJob,
               {JobsFixture::job("a", "2", "4", R"({"membershipEpoch": 1, "targetWorkers": 1,
                  "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})"),
                JobsFixture::job("b", "1", "8")});
  loop.step();
  CHECK(fixture.planned.places_of("b") == std::vector<std::string>{"n"});
}

TEST_CASE("the room of a worker that has ended stays its gang's until the gang has decided") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob,
               {JobsFixture::job("a", "1", "8", R"({"membershipEpoch": 1, "targetWorkers": 1,
                  "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})"),
                JobsFixture::job("b", "1", "8")});
  loop.step();
  const auto made = fixture.planned.actions_on<core::CreatePod>("a");
  REQUIRE(made.size() == 1);
  Json pod = api::to_json(made.front()->pod);
  pod["metadata"]["uid"] = "u-pod";
  pod["status"] = *parse_json(R"({"phase": "Failed", "containerStatuses": [{"name": "worker",
      "state": {"terminated": {"exitCode": 1}}}]})");
  fixture.carry_out();
  fixture.list(api::Kind::kPod, {dump_json(pod)});
  loop.step();
  CHECK(fixture.planned.places_of("a") == std::vector<std::string>{"n"});
  for (const std::string& nodes : fixture.planned.places_of("b")) CHECK(nodes.empty());
}

TEST_CASE("places beyond spec.worker.max take no room from others") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  Json status{{"membershipEpoch", 1}, {"targetWorkers", 50}, {"placement", Json::array()}};
  for (int slot = 1; slot < 50; ++slot) {
    status["placement"].push_back({{"slot", slot}, {"attempt", 0}, {"node", "n"}});
  }
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "1", dump_json(status)),
                                         JobsFixture::job("b", "1", "1")});
  loop.step();
  CHECK(fixture.planned.places_of("b") == std::vector<std::string>{"n"});
}

TEST_CASE("a gang that node after node refuses comes to every node in the end") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  std::vector<std::string> nodes;
  for (const std::string name : {"n1", "n2", "n3", "n4", "n5", "n6", "n7"}) {
    nodes.push_back(R"({"metadata": {"name": ")" + name + R"(", "uid": "u-)" + name +
                    R"("}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi"},
      "conditions": [{"type": "Ready", "status": "True"}]}})");
  }
  fixture.list(api::Kind::kNode, nodes);
  fixture.list(api::Kind::kPod, {});
  fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "1")});
  std::set<std::string> tried;
  // What is written is seen at once, and no pod is ever bound.
  for (int second = 0; second < 1'500 && tried.size() < nodes.size(); ++second) {
    loop.step();
    fixture.clock.advance(seconds(1));
    for (const runtime::Work& work : std::exchange(fixture.planned.works, {})) {
      runtime::ApplyDone done = JobsFixture::done_of(work);
      for (const auto& action : work.plan.actions) {
        if (const auto* made = std::get_if<core::CreatePod>(&action)) {
          Json pod = api::to_json(made->pod);
          pod["metadata"]["uid"] = "u-" + made->pod.meta.name;
          pod["status"] = *parse_json(R"({"phase": "Pending", "conditions": [{"type":
            "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no"}]})");
          fixture.list(api::Kind::kPod, {dump_json(pod)});
        }
        if (std::get_if<core::DeletePod>(&action) != nullptr) fixture.list(api::Kind::kPod, {});
        const auto* patch = std::get_if<core::PatchStatus>(&action);
        if (patch == nullptr) continue;
        for (const auto& slot : patch->status.placement) tried.insert(slot.node);
        fixture.see_at_once(done, *patch, "1");
      }
      REQUIRE(fixture.mailbox.post(std::move(done)));
    }
  }
  CHECK(tried.size() == nodes.size());
}

TEST_CASE("a gang whose pods nobody makes for long says so, lets go, and is tried again") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "4")});
  std::vector<std::pair<int, api::TrainingJobStatus>> written;
  // What is written is seen at once, and a webhook lets no pod be made.
  for (int second = 0; second < 300 && written.size() < 4; ++second) {
    loop.step();
    fixture.clock.advance(seconds(1));
    for (const runtime::Work& work : std::exchange(fixture.planned.works, {})) {
      runtime::ApplyDone done = JobsFixture::done_of(work);
      for (const auto& action : work.plan.actions) {
        if (std::holds_alternative<core::CreatePod>(action)) {
          done.status = Error(ErrorCode::kUnavailable, "create Pod: failed calling webhook");
          done.create_delay = {"CreateFailed", done.status.error().message()};
        }
        const auto* patch = std::get_if<core::PatchStatus>(&action);
        if (patch == nullptr) continue;
        written.emplace_back(second, patch->status);
        fixture.see_at_once(done, *patch, "4");
      }
      REQUIRE(fixture.mailbox.post(std::move(done)));
    }
  }
  REQUIRE(written.size() == 4);
  CHECK(written[0].second.placement.size() == 1);
  CHECK(written[1].first >= 30);
  CHECK(written[1].first <= 90);
  CHECK(written[1].second.placement.empty());
  const api::Condition* admitted = written[1].second.condition("Admitted");
  REQUIRE(admitted != nullptr);
  CHECK(admitted->reason == "CreateFailed");
  CHECK(admitted->message == "create Pod: failed calling webhook");
  // What is known to go on is told at once the next time.
  CHECK(written[2].second.placement.size() == 1);
  CHECK(written[2].first - written[1].first >= 10);
  CHECK(written[3].second.placement.empty());
  CHECK(written[3].first - written[2].first <= 2);
}

TEST_CASE("a gang whose pods had no answer for half a minute says so after the first try") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "4")});
  std::vector<api::TrainingJobStatus> written;
  int tries = 0;
  for (int second = 0; second < 60 && written.size() < 2; ++second) {
    loop.step();
    fixture.clock.advance(seconds(1));
    for (const runtime::Work& work : std::exchange(fixture.planned.works, {})) {
      runtime::ApplyDone done = JobsFixture::done_of(work);
      for (const auto& action : work.plan.actions) {
        if (std::holds_alternative<core::CreatePod>(action)) {
          ++tries;
          fixture.clock.advance(seconds(40));
          done.status = Error(ErrorCode::kDeadlineExceeded, "create Pod: no answer in time");
          done.create_delay = {"CreateFailed", done.status.error().message()};
        }
        const auto* patch = std::get_if<core::PatchStatus>(&action);
        if (patch == nullptr) continue;
        written.push_back(patch->status);
        fixture.see_at_once(done, *patch, "4");
      }
      REQUIRE(fixture.mailbox.post(std::move(done)));
    }
  }
  CHECK(tries == 1);
  REQUIRE(written.size() == 2);
  CHECK(written[1].placement.empty());
  const api::Condition* admitted = written[1].condition("Admitted");
  REQUIRE(admitted != nullptr);
  CHECK(admitted->reason == "CreateFailed");
}

TEST_CASE("gangs that stand in each other's quota do not try at the same moments for ever") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "4")});
  std::vector<int> tries;
  for (int second = 0; second < 1'200 && tries.size() < 10; ++second) {
    loop.step();
    fixture.clock.advance(seconds(1));
    for (const runtime::Work& work : std::exchange(fixture.planned.works, {})) {
      runtime::ApplyDone done = JobsFixture::done_of(work);
      for (const auto& action : work.plan.actions) {
        if (std::holds_alternative<core::CreatePod>(action)) {
          tries.push_back(second);
          done.status = Error(ErrorCode::kForbidden, "create Pod: exceeded quota: team");
          done.create_failure = {"QuotaExceeded", done.status.error().message()};
        }
        const auto* patch = std::get_if<core::PatchStatus>(&action);
        if (patch != nullptr) fixture.see_at_once(done, *patch, "4");
      }
      REQUIRE(fixture.mailbox.post(std::move(done)));
    }
  }
  REQUIRE(tries.size() == 10);
  std::set<int> pauses;  // those that have grown to their longest
  for (std::size_t i = 5; i < tries.size(); ++i) pauses.insert(tries[i] - tries[i - 1]);
  CHECK(pauses.size() > 1);
  CHECK(*pauses.begin() >= 40);
  CHECK(*pauses.rbegin() <= 62);
}

TEST_CASE("a worker that is drained is no restart: the loop tells that its node is emptied") {
  std::string spec = R"({"unschedulable": true})";
  SUBCASE("by a cordon") {}
  SUBCASE("by a taint alone") {
    spec = R"({"taints": [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]})";
  }
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  fixture.list(api::Kind::kNode, {ready_node("n", spec)});
  const Json leaving{{"deletionTimestamp", "2026-01-01T00:00:00Z"}};
  fixture.list(api::Kind::kPod, {only_pod("a", leaving, {{"phase", "Running"}})});
  fixture.list(api::Kind::kTrainingJob,
               {JobsFixture::job("a", "1", "1", R"({"membershipEpoch": 1, "targetWorkers": 1,
                  "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})")});
  loop.step();
  const auto written = fixture.planned.actions_on<core::PatchStatus>("a");
  REQUIRE(written.size() == 1);
  CHECK(written[0]->status.restarts == 0);
  CHECK(written[0]->status.placement.empty());
}

TEST_CASE("a node that cannot be read any more takes no further worker, and is still there") {
  const char* before = "{}";
  SUBCASE("") {}
  SUBCASE("one that was cordoned before") { before = R"({"unschedulable": true})"; }
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  Json broken = *parse_json(ready_node("n", "{}"));
  broken["status"]["allocatable"]["cpu"] = "many";
  Json tolerant = *parse_json(JobsFixture::job("c", "1", "1", "{}"));
  tolerant["spec"]["worker"]["tolerations"] = Json::array({{{"operator", "Exists"}}});
  fixture.list(api::Kind::kPod, {only_pod("a", Json::object(), {{"phase", "Running"}})});
  fixture.list(api::Kind::kTrainingJob,
               {JobsFixture::job("a", "1", "1", R"({"membershipEpoch": 1, "targetWorkers": 1,
                  "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})"),
                JobsFixture::job("b", "1", "1", "{}"), dump_json(tolerant)});
  fixture.list(api::Kind::kNode, {ready_node("n", before)});
  fixture.list(api::Kind::kNode, {dump_json(broken)});
  loop.step();
  for (const auto* patch : fixture.planned.actions_on<core::PatchStatus>("a")) {
    CHECK(patch->status.placement.size() == 1);
  }
  // Whatever a job tolerates.
  for (const char* job : {"b", "c"}) {
    CAPTURE(job);
    const auto waits = fixture.planned.actions_on<core::PatchStatus>(job);
    REQUIRE(waits.size() == 1);
    CHECK(waits[0]->status.placement.empty());
    CHECK(waits[0]->status.condition("Admitted")->reason == "GangWaiting");
  }
}

TEST_CASE("a new leader goes on counting how long a pod does not start, and asks clocks once") {
  JobsFixture fixture;
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.pod_start_timeout = seconds(600);
  runtime::OperatorLoop loop(options);
  const auto pod_since = [&](const std::string& job, seconds ago) {
    const std::string since = format_time(fixture.clock.wall_now() - ago);
    const Json bound{{"type", "PodScheduled"}, {"status", "True"}, {"lastTransitionTime", since}};
    Json pod = *parse_json(only_pod(job, Json::object(),
                                    {{"phase", "Pending"}, {"conditions", Json::array({bound})}}));
    pod["metadata"]["uid"] = job + "-" + since;
    return dump_json(pod);
  };
  const auto placed = [](const std::string& job) {
    return JobsFixture::job(job, "1", "1", R"({"membershipEpoch": 1, "targetWorkers": 1,
        "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})");
  };
  fixture.list(api::Kind::kNode, {ready_node("n", "{}")});
  fixture.list(api::Kind::kPod, {pod_since("a", seconds(590))});
  fixture.list(api::Kind::kTrainingJob, {placed("a"), placed("b")});
  loop.step();
  const auto lets_go = [&](const std::string& job) {
    for (const auto* patch : fixture.planned.actions_on<core::PatchStatus>(job)) {
      const auto* admitted = patch->status.condition("Admitted");
      if (admitted != nullptr && admitted->reason == "NotStarted") return true;
    }
    return false;
  };
  CHECK_FALSE(lets_go("a"));
  // A pod that comes later is timed from when it is seen, whatever others' clocks say.
  fixture.list(api::Kind::kPod, {pod_since("a", seconds(590)), pod_since("b", seconds(100'000))});
  fixture.carry_out();
  fixture.clock.advance(seconds(10));
  loop.step();
  CHECK(lets_go("a"));
  CHECK_FALSE(lets_go("b"));
}

TEST_CASE("a node that turns is news to the jobs that have something there, and to no other") {
  JobsFixture fixture;
  runtime::Metrics metrics({&fixture.clock, "1"});
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.metrics = &metrics;
  runtime::OperatorLoop loop(options);
  const auto node = [](const std::string& name, const std::string& ready) {
    Json made = *parse_json(ready_node(name, "{}"));
    made["status"]["conditions"][0]["status"] = ready;
    return made;
  };
  const auto placed = [](const std::string& job, const std::string& on) {
    return JobsFixture::job(job, "1", "1",
                            R"({"membershipEpoch": 1, "targetWorkers": 1,
        "placement": [{"slot": 0, "attempt": 0, "node": ")" +
                                on + R"("}]})");
  };
  fixture.list(api::Kind::kNode, {ready_node("m", "{}"), ready_node("n", "{}")});
  fixture.list(api::Kind::kPod, {only_pod("a", Json::object(), {{"phase", "Running"}})});
  // One has a pod there, one a place, one both elsewhere.
  fixture.list(api::Kind::kTrainingJob, {placed("a", "m"), placed("b", "n"), placed("c", "m")});
  const auto settle = [&] {
    for (int i = 0; i < 5; ++i) {
      loop.step();
      fixture.carry_out();
    }
  };
  const auto looks = [&] {
    settle();
    return looks_by(metrics);
  };
  const auto turn = [&](const std::string& name, const std::string& ready) {
    runtime::WatchBatch batch{api::Kind::kNode, {}};
    batch.events.push_back({kube::WatchEvent::Type::kApply, node(name, ready)});
    const int before = looks();
    REQUIRE(fixture.mailbox.post(std::move(batch)));
    return looks() - before;
  };
  CHECK(turn("n", "False") == 2);
  // With the last one nobody's counts as not ready any more.
  CHECK(turn("m", "False") == 3);
  CHECK(turn("m", "True") == 3);
}

TEST_CASE("how far the training has come is looked at once a second, other news at once") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  fixture.list_node();
  Json job = *parse_json(JobsFixture::job("a", "1", "1", R"({"membershipEpoch": 1,
    "targetWorkers": 1, "startAttempt": 0, "replicas": 1, "conditions": [{"type": "Running",
      "status": "True", "reason": "GangRunning", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    "placement": [{"slot": 0, "attempt": 0, "node": "n", "member": true}]})"));
  job = test::trained(std::move(job));
  fixture.list(api::Kind::kPod, {only_pod("a", Json::object(), {{"phase", "Running"}})});
  fixture.list(api::Kind::kTrainingJob, {dump_json(job)});
  const auto writes_after = [&](std::int64_t step, const std::string& waiting) {
    ProgressReport report;
    report.job = "ns/a";
    report.step = step;
    report.total_steps = 100;
    report.membership_epoch = 1;
    report.members = {0};
    report.waiting = waiting;
    REQUIRE(fixture.mailbox.post(report));
    loop.step();
    return fixture.planned.works.size();
  };
  const auto settle = [&] {
    fixture.carry_out();
    loop.step();
  };
  loop.step();
  while (!fixture.planned.works.empty()) settle();
  // The stored status stays as old as it was: each look would write.
  CHECK(writes_after(1, "") == 1);
  while (!fixture.planned.works.empty()) {
    std::exchange(fixture.planned.works, {});
    runtime::ApplyDone done;
    done.key = {"ns", "a"};
    done.uid = "u-a";
    REQUIRE(fixture.mailbox.post(std::move(done)));
    break;
  }
  CHECK(writes_after(2, "") == 0);
  fixture.clock.advance(milliseconds(900));
  CHECK(writes_after(3, "") == 0);
  fixture.clock.advance(milliseconds(100));
  CHECK(writes_after(4, "") == 1);
  std::exchange(fixture.planned.works, {});
  runtime::ApplyDone done;
  done.key = {"ns", "a"};
  done.uid = "u-a";
  REQUIRE(fixture.mailbox.post(std::move(done)));
  CHECK(writes_after(4, "for the others") == 1);
}

TEST_CASE("a job whose progress waits for its turn is not looked at before that") {
  JobsFixture fixture;
  runtime::Metrics metrics({&fixture.clock, "1"});
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.metrics = &metrics;
  runtime::OperatorLoop loop(options);
  let_train(fixture, loop, Json::object());
  for (std::size_t i = 0; i < kTrain; ++i) REQUIRE(fixture.mailbox.post(first_step(i)));
  MonoTime next = loop.step();
  for (std::size_t written = 10; written < kTrain; written += 10) {
    CHECK(fixture.planned.works.size() == written);
    CHECK(next <= fixture.clock.mono_now() + seconds(1));
    const int before = looks_by(metrics);
    fixture.clock.advance(seconds(1));
    next = loop.step();
    CHECK(looks_by(metrics) - before ==
          static_cast<int>(std::min<std::size_t>(10, kTrain - written)));
  }
  CHECK(fixture.planned.works.size() == kTrain);
}

TEST_CASE("a resync looks at a hundred jobs a second, so that news of others waits for few") {
  constexpr int kJobs = 250;
  JobsFixture fixture;
  runtime::Metrics metrics({&fixture.clock, "1"});
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.metrics = &metrics;
  options.is_leader = false;
  runtime::OperatorLoop loop(options);
  // Of another controller, so that nothing is to be done for them.
  std::vector<std::string> jobs;
  for (int i = 0; i < kJobs; ++i) {
    Json job = *parse_json(JobsFixture::job("j" + std::to_string(i), "1", "1"));
    job["spec"]["managedBy"] = "example.com/other";
    jobs.push_back(dump_json(job));
  }
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob, jobs);
  loop.step();
  REQUIRE(fixture.mailbox.post(runtime::Lead{}));
  loop.step();
  CHECK(looks_by(metrics) == kJobs);  // nobody has looked at them yet
  for (int period = 0; period < 2; ++period) {
    CAPTURE(period);
    fixture.clock.advance(period == 0 ? options.resync : options.resync - seconds(4));
    std::vector<int> looks;
    for (int second = 0; second < 4; ++second) {
      const int before = looks_by(metrics);
      loop.step();
      looks.push_back(looks_by(metrics) - before);
      fixture.clock.advance(seconds(1));
    }
    CHECK(looks == std::vector<int>{100, 100, 50, 0});
  }
}

TEST_CASE("a worker that says what it said before costs no look, nor does what it leaves out") {
  JobsFixture fixture;
  runtime::Metrics metrics({&fixture.clock, "1"});
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.metrics = &metrics;
  runtime::OperatorLoop loop(options);
  let_train(fixture, loop, Json::object());
  ProgressReport report = first_step(0);
  report.waiting = "waiting for worker 0, which keeps the files";
  report.changes = {{1, 1, std::string(contract::change::kRespawned), 0, "", 5}};
  const auto looks_after = [&] {
    const int before = looks_by(metrics);
    REQUIRE(fixture.mailbox.post(report));
    for (int second = 0; second < 3; ++second) {
      loop.step();
      for (const runtime::Work& work : std::exchange(fixture.planned.works, {})) {
        REQUIRE(fixture.mailbox.post(JobsFixture::done_of(work)));
      }
      fixture.clock.advance(seconds(1));
    }
    return looks_by(metrics) - before;
  };
  CHECK(looks_after() > 0);
  CHECK(looks_after() == 0);
  // It was told long enough.
  report.changes.clear();
  CHECK(looks_after() == 0);
  report.waiting.clear();
  CHECK(looks_after() > 0);
}

TEST_CASE("a write that is to be tried later is not tried before, whatever workers report") {
  std::string waiting;
  SUBCASE("how far they have come") {}
  SUBCASE("what each time is news") { waiting = "for file "; }
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  let_train(fixture, loop, Json::object());
  const auto plans_in_second = [&](int second) {
    ProgressReport report = first_step(0);
    report.step = second + 1;
    if (!waiting.empty()) report.waiting = waiting + std::to_string(second);
    REQUIRE(fixture.mailbox.post(report));
    loop.step();
    fixture.clock.advance(seconds(1));
    return fixture.planned.works.size();
  };
  REQUIRE(plans_in_second(0) == 1);
  // While it is under way the time for another look comes.
  for (const int second : {1, 2, 3}) CHECK(plans_in_second(second) == 1);
  runtime::ApplyDone done = JobsFixture::done_of(fixture.planned.works[0]);
  done.status = Error(ErrorCode::kTooManyRequests, "later").with_retry_after(30);
  REQUIRE(fixture.mailbox.post(std::move(done)));
  fixture.planned.works.clear();
  for (int second = 4; second < 34; ++second) {
    CAPTURE(second);
    CHECK(plans_in_second(second) == 0);
  }
  CHECK(plans_in_second(34) == 1);
}

namespace {

/// Job a, of which one worker trains and the other has this place.
Json half_running(const Json& other) {
  Json job = *parse_json(JobsFixture::job("a", "1", "1", R"({"membershipEpoch": 2,
    "targetWorkers": 2, "startAttempt": 0, "replicas": 1, "conditions": [{"type": "Running",
      "status": "True", "reason": "GangRunning", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    "placement": [{"slot": 0, "attempt": 0, "node": "n", "member": true}]})"));
  job["status"]["placement"].push_back(other);
  job["spec"]["worker"]["count"] = 2;
  return test::trained(std::move(job));
}

/// Steps once a second while the first worker of job a reports; `carry_out` is given each plan.
void train_on(
    JobsFixture& fixture, runtime::OperatorLoop& loop, int seconds_long,
    const std::function<void(int, const runtime::Work&, runtime::ApplyDone&)>& carry_out) {
  for (int second = 0; second < seconds_long; ++second) {
    REQUIRE(fixture.mailbox.post(test::report_of("a", second, 1'000)));
    loop.step();
    fixture.clock.advance(seconds(1));
    for (const runtime::Work& work : std::exchange(fixture.planned.works, {})) {
      runtime::ApplyDone done = JobsFixture::done_of(work);
      carry_out(second, work, done);
      REQUIRE(fixture.mailbox.post(std::move(done)));
    }
  }
}

}  // namespace

TEST_CASE("a worker that may not join is tried more and more rarely while the others train") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  fixture.list(api::Kind::kNode, {ready_node("n", "{}")});
  fixture.list(api::Kind::kPod, {only_pod("a", Json::object(), {{"phase", "Running"}})});
  fixture.list(api::Kind::kTrainingJob,
               {dump_json(half_running({{"slot", 1}, {"attempt", 1}, {"node", "n"}}))});
  std::vector<int> tries;
  int progress_writes = 0;
  train_on(fixture, loop, 200, [&](int second, const auto& work, runtime::ApplyDone& done) {
    for (const auto& action : work.plan.actions) {
      progress_writes += std::holds_alternative<core::PatchStatus>(action) ? 1 : 0;
      if (!std::holds_alternative<core::CreatePod>(action)) continue;
      tries.push_back(second);
      done.status = Error(ErrorCode::kForbidden, "create Pod: exceeded quota: team");
      done.create_failure = {"QuotaExceeded", done.status.error().message()};
    }
  });
  REQUIRE(tries.size() >= 4);
  CHECK(progress_writes > 10);
  CHECK(tries[1] - tries[0] <= 16);
  CHECK(tries[3] - tries[2] >= 40);
}

TEST_CASE("who trains without one tells how far it is although nobody knows where nodes stand") {
  JobsFixture fixture;
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.sees_topologies = true;
  runtime::OperatorLoop loop(options);
  Json job =
      half_running({{"slot", 1}, {"attempt", 0}, {"node", "n"}, {"member", true}});  // and is gone
  job["spec"]["topology"] = {{"required", "rack"}};
  fixture.list(api::Kind::kNode, {ready_node("n", "{}")});
  fixture.list(api::Kind::kPod, {only_pod("a", Json::object(), {{"phase", "Running"}})});
  fixture.list(api::Kind::kTrainingJob, {dump_json(job)});
  std::int64_t step = 0;
  std::string said;
  train_on(fixture, loop, 60, [&](int, const auto& work, runtime::ApplyDone&) {
    for (const auto& action : work.plan.actions) {
      const auto* patch = std::get_if<core::PatchStatus>(&action);
      if (patch == nullptr || !patch->status.progress) continue;
      step = patch->status.progress->step;
      said = patch->status.condition("Running")->message;
    }
  });
  CHECK(step > 40);
  CHECK_MESSAGE(said.find("spec.topology: the operator could not list ") != std::string::npos,
                said);
}

TEST_CASE("a disruption budget and what workers tell do not wait for a turn to write progress") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  let_train(fixture, loop, {{"min", 1}, {"max", 2}});
  for (std::size_t i = 0; i < kTrain; ++i) {
    ProgressReport report = first_step(i);
    if (i % 2 == 1) report.changes = {{1, 1, std::string(contract::change::kRespawned), 0, "", 5}};
    REQUIRE(fixture.mailbox.post(report));
  }
  loop.step();
  std::map<std::string, int> done;
  for (const runtime::Work& work : fixture.planned.works) {
    for (const auto& action : work.plan.actions) {
      done["progress"] += std::holds_alternative<core::PatchStatus>(action) ? 1 : 0;
      done["budget"] += std::holds_alternative<core::SetDisruptionBudget>(action) ? 1 : 0;
      done["event"] += std::holds_alternative<core::EmitEvent>(action) ? 1 : 0;
    }
  }
  CHECK(done["progress"] == 10);
  CHECK(done["event"] == 22);
  CHECK(done["budget"] == 18);  // alone, where there is nothing else to tell
  // Each has its turn as well.
  for (int second = 0; second < 5; ++second) {
    for (const runtime::Work& work : std::exchange(fixture.planned.works, {})) {
      runtime::ApplyDone applied = JobsFixture::done_of(work);
      applied.budget = 1;
      REQUIRE(fixture.mailbox.post(std::move(applied)));
      for (const auto& action : work.plan.actions) {
        if (second > 0 && std::holds_alternative<core::PatchStatus>(action)) ++done["progress"];
      }
    }
    fixture.clock.advance(seconds(1));
    loop.step();
  }
  CHECK(done["progress"] == 45);
}

TEST_CASE("a job in back-off is not called to write its progress before that is over") {
  int fails_at = 0;
  SUBCASE("it has failed when its turn comes") {}
  SUBCASE("it is in hand when its turn comes") { fails_at = 6; }
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  let_train(fixture, loop, Json::object());
  for (std::size_t i = 0; i < kTrain; ++i) {
    ProgressReport report = first_step(i);
    report.changes = {{1, 1, std::string(contract::change::kRespawned), 0, "", 5}};
    REQUIRE(fixture.mailbox.post(report));
  }
  std::optional<runtime::ApplyDone> failed;  // of a plan that tells news alone
  std::vector<int> tried;                    // again, in which seconds
  for (int second = 0; second < 45; ++second) {
    loop.step();
    for (const runtime::Work& work : std::exchange(fixture.planned.works, {})) {
      runtime::ApplyDone done = JobsFixture::done_of(work);
      if (failed && work.key == failed->key) tried.push_back(second);
      if (failed || work.plan.pass == core::Pass::kProgress) {
        REQUIRE(fixture.mailbox.post(std::move(done)));
        continue;
      }
      done.status = Error(ErrorCode::kTooManyRequests, "later").with_retry_after(30);
      failed = std::move(done);
    }
    REQUIRE(failed.has_value());
    if (second == fails_at) REQUIRE(fixture.mailbox.post(runtime::ApplyDone(*failed)));
    fixture.clock.advance(seconds(1));
  }
  REQUIRE(tried.size() == 1);
  CHECK(tried[0] == fails_at + 31);
}

TEST_CASE("a write that is to be tried later is not tried because of other news") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  let_train(fixture, loop, Json::object());
  std::vector<int> tried;
  for (int second = 0; second < 40; ++second) {
    ProgressReport report = first_step(0);
    report.step = second + 1;
    REQUIRE(fixture.mailbox.post(std::move(report)));
    // What the cluster writes of its pod is news of the job.
    runtime::WatchBatch news{api::Kind::kPod, {}};
    const std::string pod = only_pod("j0", {{"uid", "u-pod-j0"}}, {{"phase", "Running"}});
    news.events.push_back({kube::WatchEvent::Type::kApply, *parse_json(pod)});
    REQUIRE(fixture.mailbox.post(std::move(news)));
    loop.step();
    fixture.clock.advance(seconds(1));
    for (const runtime::Work& work : std::exchange(fixture.planned.works, {})) {
      tried.push_back(second);
      runtime::ApplyDone done = JobsFixture::done_of(work);
      done.status = Error(ErrorCode::kTooManyRequests, "later").with_retry_after(30);
      REQUIRE(fixture.mailbox.post(std::move(done)));
    }
  }
  CHECK(tried == std::vector<int>{0, 31});
}

TEST_CASE("a node where a worker ended twice is blamed where the loop knows of others") {
  JobsFixture fixture;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, fixture.planned));
  fixture.list(api::Kind::kNode, {ready_node("m", "{}"), ready_node("n", "{}")});
  const Json ended{{"name", "worker"}, {"state", {{"terminated", {{"exitCode", 1}}}}}};
  const Json status{{"phase", "Failed"}, {"containerStatuses", Json::array({ended})}};
  fixture.list(api::Kind::kPod, {only_pod("a", Json::object(), status)});
  fixture.list(api::Kind::kTrainingJob,
               {JobsFixture::job("a", "1", "1", R"({"membershipEpoch": 1, "targetWorkers": 1,
                  "placement": [{"slot": 0, "attempt": 0, "node": "n"}],
                  "failure": {"slot": 0, "exitCode": 1, "node": "n"}})")});
  loop.step();
  REQUIRE(fixture.planned.works.size() == 1);
  CHECK(fixture.planned.works[0].plan.avoid == std::map<std::string, int>{{"n", 0}});
}

TEST_CASE("a pod that is made after the CAs were replaced trusts the new ones") {
  JobsFixture fixture;
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  std::string bundle = "old";
  options.trust = [&] { return runtime::WorkerTrust{bundle, {std::string(64, '7'), ""}}; };
  runtime::OperatorLoop loop(options);
  const std::string placed = R"({"membershipEpoch": 1, "targetWorkers": 1,
    "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})";
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "1", placed)});
  loop.step();
  CHECK(fixture.planned.trusted_by("a") == std::vector<std::string>{"old"});
  bundle = "new, old";
  fixture.list(api::Kind::kTrainingJob,
               {JobsFixture::job("a", "1", "1", placed), JobsFixture::job("b", "2", "1", placed)});
  loop.step();
  CHECK(fixture.planned.trusted_by("b") == std::vector<std::string>{"new, old"});
}

namespace {

/// Keeps what workers would be told.
class ToldGangs final : public runtime::WorkersEndpoint {
 public:
  std::string url() const override { return "http://127.0.0.1:1"; }
  void set_gang(runtime::GangInfo gang) override { gangs.push_back(std::move(gang)); }
  void remove_gang(const std::string&) override {}
  void stop() override {}

  std::vector<runtime::GangInfo> gangs;
};

}  // namespace

TEST_CASE("a gang's key is made of the master key that it started with while that is there") {
  const std::string before(64, '7'), now(64, '8'), gone(64, '9');
  const auto secret_of = [&](const std::string& started_with, const std::string& previous) {
    JobsFixture fixture;
    ToldGangs told;
    runtime::LoopOptions options =
        test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
    options.endpoint = &told;
    options.trust = [&] { return runtime::WorkerTrust{"ca", {now, previous}}; };
    runtime::OperatorLoop loop(options);
    Json status{{"membershipEpoch", 1},
                {"targetWorkers", 1},
                {"startAttempt", 0},
                {"placement", Json::array({{{"slot", 0}, {"attempt", 0}, {"node", "n"}}})}};
    if (!started_with.empty()) status["keyId"] = *runtime::key_id(started_with);
    fixture.list_node();
    fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "1", dump_json(status))});
    loop.step();
    REQUIRE(told.gangs.size() == 1);
    return told.gangs[0].job_key;
  };
  const auto made_of = [](const std::string& key) { return *runtime::job_key(key, "u-a"); };
  CHECK(secret_of(before, before) == made_of(before));
  CHECK(secret_of(now, before) == made_of(now));
  CHECK(secret_of(before, "") == made_of(now));
  CHECK(secret_of(gone, before) == made_of(now));
  // Started by an operator that did not tell.
  CHECK(secret_of("", before) == made_of(now));
}

TEST_CASE("a gang that a leader with an older Secret serves has its own key when that comes") {
  const std::string before(64, '7'), now(64, '8');
  JobsFixture fixture;
  ToldGangs told;
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.endpoint = &told;
  runtime::MasterKeys keys{before, ""};
  options.trust = [&] { return runtime::WorkerTrust{"ca", keys}; };
  runtime::OperatorLoop loop(options);
  const Json status{{"membershipEpoch", 1},
                    {"targetWorkers", 1},
                    {"startAttempt", 0},
                    {"keyId", *runtime::key_id(now)},
                    {"placement", Json::array({{{"slot", 0}, {"attempt", 0}, {"node", "n"}}})}};
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob, {JobsFixture::job("a", "1", "1", dump_json(status))});
  const auto step = [&] {
    fixture.carry_out();
    loop.step();
    return told.gangs.size();
  };
  REQUIRE(step() == 1);
  CHECK(told.gangs[0].job_key == *runtime::job_key(before, "u-a"));
  CHECK_FALSE(told.gangs[0].is_key_sure);
  CHECK(step() == 1);
  keys = {now, before};
  REQUIRE(step() == 2);
  CHECK(told.gangs[1].job_key == *runtime::job_key(now, "u-a"));
  CHECK(told.gangs[1].is_key_sure);
  // Another one after that is none of the gang's.
  keys = {std::string(64, '9'), now};
  CHECK(step() == 2);
}

TEST_CASE("a gang that starts after the master key was replaced says so") {
  JobsFixture fixture;
  ToldGangs told;
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.endpoint = &told;
  runtime::MasterKeys keys{std::string(64, '7'), ""};
  options.trust = [&] { return runtime::WorkerTrust{"ca", keys}; };
  runtime::OperatorLoop loop(options);
  const auto key_of_start = [&](const std::string& name) {
    fixture.list_node();
    fixture.list(api::Kind::kTrainingJob, {JobsFixture::job(name, "1", "1", "{}")});
    fixture.planned.works.clear();
    loop.step();
    for (const runtime::Work& work : fixture.planned.works) {
      if (work.key.name != name) continue;
      for (const auto& action : work.plan.actions) {
        if (const auto* write = std::get_if<core::PatchStatus>(&action)) {
          return write->status.key_id;
        }
      }
    }
    return std::string("no start");
  };
  CHECK(key_of_start("a") == *runtime::key_id(keys.current));
  keys = {std::string(64, '8'), keys.current};
  CHECK(key_of_start("b") == *runtime::key_id(keys.current));
}

TEST_CASE("a new leader that would not start a running job's spec serves its workers") {
  JobsFixture fixture;
  ToldGangs told;
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.endpoint = &told;
  runtime::OperatorLoop loop(options);
  Json job = *parse_json(JobsFixture::job("a", "1", "1", R"({"membershipEpoch": 1,
    "targetWorkers": 1, "startAttempt": 0, "conditions": [{"type": "Running", "status": "True",
      "reason": "x", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    "placement": [{"slot": 0, "attempt": 0, "node": "n", "member": true}]})"));
  job["spec"]["worker"].erase("command");
  job["spec"]["training"] = *parse_json(R"({"steps": 5, "model": {"mlp": {"hidden": [3]}},
    "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
    "optimizer": {"sgd": {"learningRate": "1"}, "schedule": {"cosine": {"warmupSteps": 9}}}})");
  Json read_only = job;
  read_only["spec"]["worker"]["threads"] = "many";  // of the wrong type
  read_only["metadata"]["name"] = "b";
  read_only["metadata"]["uid"] = "u-b";
  fixture.list(api::Kind::kNode, {ready_node("n", "{}")});
  const Json ended{{"name", "worker"}, {"state", {{"terminated", {{"exitCode", 0}}}}}};
  const Json done{{"phase", "Succeeded"}, {"containerStatuses", Json::array({ended})}};
  fixture.list(api::Kind::kPod, {only_pod("a", Json::object(), done)});
  fixture.list(api::Kind::kTrainingJob, {dump_json(job), dump_json(read_only)});
  loop.step();
  REQUIRE(told.gangs.size() == 2);
  for (const auto& gang : told.gangs) {
    const Json training = *parse_json(gang.training);
    CHECK(training["optimizer"]["schedule"]["cosine"]["warmupSteps"] == 9);
    CHECK(training["optimizer"]["sgd"]["momentum"] == "0");
  }
  // The end of the one is seen; of the other the worker is gone, and no pod is made of what is not
  // understood.
  const auto written = fixture.planned.actions_on<core::PatchStatus>("a");
  REQUIRE(written.size() == 1);
  CHECK(written[0]->status.is_true("Complete"));
  CHECK(fixture.planned.actions_on<core::CreatePod>("b").empty());
}

TEST_CASE("who does not lead keeps no work for later, and knows all that is there when it leads") {
  JobsFixture fixture;
  runtime::Metrics metrics({&fixture.clock, "1"});
  runtime::LoopOptions options =
      test::loop_options(fixture.clock, fixture.mailbox, fixture.planned);
  options.is_leader = false;
  options.metrics = &metrics;
  runtime::OperatorLoop loop(options);
  fixture.list_node();
  fixture.list(api::Kind::kTrainingJob,
               {JobsFixture::job("a", "1", "4", R"({"membershipEpoch": 1, "targetWorkers": 1,
                  "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})"),
                JobsFixture::job("gone", "1", "4")});
  loop.step();
  fixture.list(api::Kind::kTrainingJob,
               {JobsFixture::job("a", "1", "4", R"({"membershipEpoch": 1, "targetWorkers": 1,
                  "placement": [{"slot": 0, "attempt": 0, "node": "n"}]})"),
                JobsFixture::job("b", "1", "10"), JobsFixture::job("c", "1", "8")});
  loop.step();
  CHECK(fixture.planned.works.empty());
  const std::string page = metrics.render();
  CHECK_MESSAGE(page.find("workqueue_depth{name=\"trainingjob\"} 0") != std::string::npos,
                page.substr(page.find("workqueue_depth"), 200));
  REQUIRE(fixture.mailbox.post(runtime::Lead{}));
  loop.step();
  // The place of the one that has it counts: the other two do not fit both beside it.
  CHECK(fixture.planned.places_of("b") != std::vector<std::string>{"n"});
  CHECK(fixture.planned.places_of("c") == std::vector<std::string>{"n"});
  CHECK(fixture.planned.places_of("gone").empty());
}

namespace {

/// At one job's plan it throws, as a library does; of the others it remembers whose it was given.
class Poisoned final : public runtime::Executor {
 public:
  void execute(runtime::Work work) override {
    if (work.key.name == "j7") {
      ++thrown;
      throw std::out_of_range("map::at");
    }
    planned.insert(work.key.name);
  }
  void stop() override {}

  int thrown = 0;
  std::set<std::string> planned;
};

}  // namespace

TEST_CASE("one job of ten thousand at which a library throws keeps none of the others waiting") {
  constexpr int kJobs = test::tries(10'000);
  JobsFixture fixture;
  Poisoned poisoned;
  runtime::OperatorLoop loop(test::loop_options(fixture.clock, fixture.mailbox, poisoned));
  fixture.list_node();
  Json job = *parse_json(JobsFixture::job("j", "1", "1"));
  std::vector<Json> jobs;
  for (int i = 0; i < kJobs; ++i) {
    job["metadata"]["name"] = "j" + std::to_string(i);
    job["metadata"]["uid"] = "u-" + std::to_string(i);
    jobs.push_back(job);
  }
  REQUIRE(fixture.mailbox.post(test::listed(api::Kind::kTrainingJob, std::move(jobs))));
  loop.step();
  CHECK(poisoned.thrown > 0);
  // A few have a place now, and the others are told what they wait for.
  CHECK(std::ssize(poisoned.planned) == kJobs - 1);
}
