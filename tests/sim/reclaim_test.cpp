// What was lent is taken back, through the whole operator: who leaves, who starts, who comes back.
#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "tests/sim/engine_spec.h"
#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

std::function<void(Json&)> trains_in(const std::string& queue, int min) {
  return [=](Json& job) {
    job["spec"]["queueName"] = queue;
    job["spec"]["worker"].erase("command");
    job["spec"]["worker"]["min"] = min;
    job["spec"]["worker"]["max"] = job["spec"]["worker"]["count"];
    job["spec"]["training"] = sim::engine_spec();
  };
}

std::function<void(Json&)> comes_first_in(const std::string& queue, const std::string& priority) {
  return [=](Json& job) {
    job["spec"]["queueName"] = queue;
    if (!priority.empty()) job["spec"]["priorityClassName"] = priority;
  };
}

void make_lab(World& world) {
  world.add_node("n", 4);
  for (const char* name : {"product", "research"}) {
    world.create_queue(name, 2, [](Json& queue) { queue["spec"]["cohort"] = "lab"; });
  }
}

std::vector<api::Pod> pods_of(const World& world, const std::string& job) {
  auto pods = world.pods();
  std::erase_if(
      pods, [&](const api::Pod& pod) { return pod.meta.controller()->name != job || pod.ended(); });
  return pods;
}

/// Every running worker of the job says that all of them train together.
void train_all(World& world, const std::string& job, std::int64_t checkpoint = -1) {
  world.run_all_pods();
  world.settle();
  std::vector<int> members;
  for (const auto& pod : pods_of(world, job)) members.push_back(pod.slot());
  std::sort(members.begin(), members.end());
  const std::int64_t epoch = world.job(job).status.membership_epoch;
  for (const auto& pod : pods_of(world, job)) {
    ProgressReport report;
    report.job = "default/" + job;
    report.slot = pod.slot();
    report.attempt = pod.attempt();
    report.step = std::max<std::int64_t>(checkpoint, 1);
    report.checkpoint_step = checkpoint;
    report.checkpoint_durable = checkpoint >= 0;
    report.membership_epoch = epoch;
    report.members = members;
    REQUIRE(world.op->mailbox.post(report));
  }
  world.settle();
}

int leaving(const World& world, const std::string& job) {
  int count = 0;
  for (const auto& pod : pods_of(world, job)) count += pod.meta.deletion_time ? 1 : 0;
  return count;
}

void finish_job(World& world, const std::string& job) {
  world.run_all_pods();
  world.settle();
  for (const auto& pod : pods_of(world, job)) world.end_pod(pod.meta.name, 0);
  world.settle();
}

std::vector<std::string> notes(const World& world, std::string_view reason) {
  std::vector<std::string> found;
  const auto page = world.user->list(api::Kind::kEvent, {"default", "", 0, ""});
  REQUIRE(page);
  for (const auto& event : page->items) {
    if (event["reason"] == reason) found.push_back(event["message"].get<std::string>());
  }
  return found;
}

/// An API server that refuses what somebody's policy is against.
struct Policed final : kube::HttpTransport {
  using Policy = std::function<bool(const kube::HttpRequest&)>;
  Policed(kube::HttpTransport& server, Policy policy)
      : real(server), is_refused(std::move(policy)) {}
  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    if (!is_refused(request)) return real.send(request);
    return kube::HttpResponse{403, R"({"message": "by policy", "reason": "Forbidden"})",
                              std::nullopt};
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return real.open_stream(request);
  }
  kube::HttpTransport& real;
  Policy is_refused;
};

/// Whoever is asked to leave does, and whoever has a place runs.
void go_on(World& world, seconds time) {
  constexpr seconds kStep{10};
  for (seconds passed{0}; passed < time; passed += kStep) {
    world.pass(kStep);
    world.reap(contract::exit_code::kPlannedLeave);
    world.settle();
    world.run_all_pods();
    world.settle();
  }
}

const api::Condition& admitted(const api::TrainingJob& job) {
  const auto* condition = job.status.condition("Admitted");
  REQUIRE(condition != nullptr);
  return *condition;
}

}  // namespace

TEST_CASE("an elastic borrower shrinks for the owner of the quota, and grows back afterwards") {
  World world(test::seed());
  make_lab(world);
  world.create_job("wide", 4, trains_in("research", 1));
  world.settle();
  train_all(world, "wide");
  REQUIRE(world.job("wide").status.workers == "4/4");
  const std::int64_t before = world.status_writes();
  world.create_job("own", 2, comes_first_in("product", ""));
  world.settle();
  CHECK(leaving(world, "wide") == 2);
  auto wide = world.job("wide");
  CHECK(wide.status.placement.size() == 2);
  CHECK(wide.status.taken_back.shrinks == 1);
  CHECK(wide.status.is_true("Running"));
  CHECK(world.status_writes() - before == 2);
  CHECK(notes(world, contract::reason::kShrunk) ==
        std::vector<std::string>{"workers 2, 3 to leave: queue product takes back 2 cpu of its "
                                 "nominal quota for default/own; the others train on"});
  CHECK(admitted(world.job("own")).message.find("room is made for it: default/wide shrinks to 2") !=
        std::string::npos);
  // Not before they have left, however long that takes; and nobody else is asked for more.
  world.pass(seconds(20));
  CHECK_FALSE(world.job("own").status.is_true("Admitted"));
  world.restart_operator();
  world.settle();
  CHECK(world.job("wide").status.taken_back.shrinks == 1);
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  CHECK(world.job("own").status.is_true("Admitted"));
  train_all(world, "wide");
  world.pass(seconds(60));
  CHECK(world.job("wide").status.placement.size() == 2);
  finish_job(world, "own");
  world.pass(seconds(60));
  wide = world.job("wide");
  CHECK(wide.status.placement.size() == 4);
  CHECK(wide.status.restarts == 0);
  CHECK(wide.status.taken_back.preemptions == 0);
}

TEST_CASE("room that nobody waits for is grown into beyond the count, and given to who comes") {
  World world(test::seed());
  make_lab(world);
  world.create_job("wide", 2, [](Json& job) {
    trains_in("research", 1)(job);
    job["spec"]["worker"]["max"] = 4;
    job["spec"]["worker"]["growsTo"] = "Max";
  });
  world.settle();
  train_all(world, "wide");
  CHECK(world.job("wide").status.workers == "2/2");
  world.pass(seconds(60));
  CHECK(world.job("wide").status.placement.size() == 4);
  train_all(world, "wide");
  CHECK(world.job("wide").status.workers == "4/4");
  const std::int64_t writes = world.status_writes();
  world.pass(seconds(120));
  CHECK(world.status_writes() == writes);
  // Of the same queue, with no higher priority and within what the cohort has.
  world.create_job("late", 1, comes_first_in("research", ""));
  world.settle();
  CHECK(leaving(world, "wide") == 1);
  world.restart_operator();
  world.settle();
  CHECK(world.job("wide").status.target_workers == 3);
  CHECK(
      notes(world, contract::reason::kShrunk) ==
      std::vector<std::string>{"worker 3 to leave: what is beyond worker.count goes to "
                               "default/late, which waits in queue research; the others train on"});
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  CHECK(world.job("late").status.is_true("Admitted"));
  // Nobody has a right to more than is beyond the count.
  world.create_job("more", 2, comes_first_in("research", ""));
  world.settle();
  world.pass(seconds(60));
  CHECK(leaving(world, "wide") == 0);
  CHECK_FALSE(world.job("more").status.is_true("Admitted"));
  finish_job(world, "late");
  world.reap(contract::exit_code::kPlannedLeave);
  world.pass(seconds(5));
  world.reap(contract::exit_code::kPlannedLeave);
  world.pass(seconds(5));
  CHECK(world.job("more").status.is_true("Admitted"));
  CHECK(world.job("wide").status.placement.size() == 2);
  CHECK(world.job("wide").status.restarts == 0);
}

TEST_CASE("nobody gives way for room that a job in no queue leaves") {
  World world(test::seed());
  world.create_priority("high", 100);
  world.create_queue("research", 8);
  world.add_node("a", 4);
  world.create_job("free", 4);
  world.settle();
  world.add_node("b", 4);
  world.create_job("low", 4, trains_in("research", 4));
  world.settle();
  train_all(world, "low");
  const Json suspended{{"spec", {{"suspend", true}}}};
  REQUIRE(world.user->merge_patch(api::Kind::kTrainingJob, {"default", "free"}, "", suspended));
  world.settle();
  REQUIRE(leaving(world, "free") == 4);
  world.create_job("late", 4, comes_first_in("research", "high"));
  world.settle();
  CHECK(leaving(world, "low") == 0);
  CHECK(admitted(world.job("late"))
            .message.ends_with("it starts when those are gone that leave now"));
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  CHECK(world.job("late").status.is_true("Admitted"));
  CHECK(world.job("low").status.taken_back.preemptions == 0);
}

TEST_CASE("a job gives way to a higher priority and comes back by itself, through a new operator") {
  World world(test::seed());
  make_lab(world);
  world.create_priority("high", 100);
  world.create_job("low", 4, trains_in("research", 4));
  world.settle();
  train_all(world, "low", 40);
  world.clock.advance(seconds(12));
  world.create_job("late", 4, comes_first_in("research", "high"));
  world.settle();
  auto low = world.job("low");
  CHECK(low.status.placement.empty());
  CHECK(low.status.phase == "Waiting");
  CHECK(admitted(low).reason == "Preempted");
  const std::string why =
      "default/late in queue research has the higher priority (100, not 0); 4 processes, 12 s "
      "since the last checkpoint";
  CHECK(admitted(low).message == why);
  CHECK(low.status.taken_back ==
        api::TakenBack{0, 1, 48, "default/late", world.job("late").meta.uid});
  CHECK(leaving(world, "low") == 4);
  world.restart_operator();
  world.settle();
  CHECK_FALSE(world.job("late").status.is_true("Admitted"));
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  CHECK(world.job("late").status.is_true("Admitted"));
  low = world.job("low");
  CHECK(admitted(low).reason == "GangWaiting");
  CHECK(admitted(low).message.starts_with("1st in queue research: "));
  CHECK(low.status.checkpoint->step == 40);
  CHECK(notes(world, contract::reason::kPreempted) ==
        std::vector<std::string>{why + "; it starts again by itself when there is room"});
  finish_job(world, "late");
  CHECK(world.job("low").status.is_true("Admitted"));
  train_all(world, "low", 40);
  low = world.job("low");
  CHECK(low.status.is_true("Running"));
  CHECK(low.status.restarts == 0);
  CHECK(low.status.start_attempt == 1);
  // For a while it is left alone, and then no more.
  world.create_job("again", 4, comes_first_in("research", "high"));
  world.pass(seconds(200));
  CHECK(leaving(world, "low") == 0);
  world.pass(seconds(120));
  CHECK(leaving(world, "low") == 4);
  CHECK(world.job("low").status.taken_back.preemptions == 2);
}

TEST_CASE("who has just started is left alone for its queue's least time, and then gives way") {
  World world(test::seed());
  world.add_node("n", 4);
  for (const char* name : {"product", "research"}) {
    world.create_queue(name, 2, [](Json& queue) {
      queue["spec"]["cohort"] = "lab";
      queue["spec"]["preemption"]["minimumRunSeconds"] = 600;
    });
  }
  world.create_job("low", 4, trains_in("research", 4));
  world.settle();
  train_all(world, "low");
  world.create_job("own", 2, comes_first_in("product", ""));
  world.settle();
  CHECK(leaving(world, "low") == 0);
  CHECK(admitted(world.job("own"))
            .message.ends_with(
                "; room can be made for it once jobs have run for their least time: default/low "
                "600 s (spec.preemption.minimumRunSeconds of their queue, or what follows a "
                "preemption)"));
  world.pass(seconds(300));
  world.restart_operator();
  world.settle();
  world.pass(seconds(200));
  CHECK(leaving(world, "low") == 0);
  world.pass(seconds(120));
  CHECK(leaving(world, "low") == 4);
}

TEST_CASE("a job whose pods are refused has not one gang after the other preempted for it") {
  std::unique_ptr<Policed> server;
  World world(test::seed(), [&](kube::HttpTransport& real) {
    server = std::make_unique<Policed>(real, [](const kube::HttpRequest& request) {
      return request.method == "POST" && request.path.ends_with("/pods") &&
             request.body.find("\"denied-") != std::string::npos;
    });
    return server.get();
  });
  world.add_node("n", 8);
  for (const char* name : {"product", "research"}) {
    world.create_queue(name, 4, [](Json& queue) { queue["spec"]["cohort"] = "lab"; });
  }
  const std::vector<std::string> borrowers{"v", "w", "x", "y"};
  for (const auto& name : borrowers) world.create_job(name, 2, comes_first_in("research", ""));
  go_on(world, seconds(10));
  for (const auto& name : borrowers) REQUIRE(world.job(name).status.is_true("Running"));
  world.create_job("denied", 2, comes_first_in("product", ""));
  const auto preempted = [&] {
    int times = 0;
    for (const auto& name : borrowers) times += world.job(name).status.taken_back.preemptions;
    return times;
  };
  go_on(world, seconds(280));
  CHECK(preempted() == 1);
  CHECK(admitted(world.job("denied")).message.find("nobody is preempted for it for a while") !=
        std::string::npos);
  // It may be the node's fault, or over by now.
  go_on(world, seconds(300));
  CHECK(preempted() == 2);
  go_on(world, seconds(300));
  CHECK(preempted() == 2);
  // Who gave way runs again.
  for (const auto& name : borrowers) CHECK(world.job(name).status.is_true("Running"));
}

TEST_CASE("who gives way and whose pods may not be deleted is not waited for") {
  std::unique_ptr<Policed> server;
  World world(test::seed(), [&](kube::HttpTransport& real) {
    server = std::make_unique<Policed>(real, [](const kube::HttpRequest& request) {
      return request.method == "DELETE" && request.path.find("/pods/stays-") != std::string::npos;
    });
    return server.get();
  });
  make_lab(world);
  world.create_job("goes", 2, comes_first_in("research", ""));
  go_on(world, seconds(20));
  // It loses less.
  world.create_job("stays", 2, comes_first_in("research", ""));
  go_on(world, seconds(20));
  world.create_job("own", 2, comes_first_in("product", ""));
  go_on(world, seconds(20));
  CHECK(world.job("stays").status.taken_back.preemptions == 1);
  CHECK(world.job("goes").status.taken_back.preemptions == 0);
  go_on(world, seconds(80));
  CHECK(world.job("goes").status.taken_back.preemptions == 1);
  CHECK(world.job("own").status.is_true("Running"));
  CHECK(pods_of(world, "stays").size() == 2);
}

TEST_CASE("whoever is to be preempted and ends first has ended") {
  World world(test::seed());
  make_lab(world);
  world.create_job("low", 4, comes_first_in("research", ""));
  world.settle();
  world.run_all_pods();
  world.settle();
  world.create_job("own", 2, comes_first_in("product", ""));
  for (const auto& pod : pods_of(world, "low")) world.end_pod(pod.meta.name, 0);
  world.settle();
  CHECK(world.job("low").status.is_true("Complete"));
  CHECK(world.job("low").status.taken_back.preemptions == 0);
  CHECK(world.job("own").status.is_true("Admitted"));
}
