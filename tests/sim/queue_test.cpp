// Queues through the whole operator: what jobs and queues say, and what it costs in writes.
#include <doctest/doctest.h>

#include "common/contract.h"
#include "tests/sim/engine_spec.h"
#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

std::function<void(Json&)> in_queue(const std::string& queue, const std::string& priority = "") {
  return [=](Json& job) {
    job["spec"]["queueName"] = queue;
    if (!priority.empty()) job["spec"]["priorityClassName"] = priority;
  };
}

std::string admitted(const World& world, const std::string& job) {
  const auto status = world.job(job).status;
  const auto* condition = status.condition("Admitted");
  return condition == nullptr ? "" : condition->status + ": " + condition->message;
}

void end_job(World& world, const std::string& job) {
  world.run_all_pods();
  world.settle();
  for (const auto& pod : world.pods()) {
    if (pod.meta.controller()->name == job && !pod.ended()) world.end_pod(pod.meta.name, 0);
  }
  world.settle();
}

int events_of(const World& world, std::string_view reason) {
  const auto page = world.user->list(api::Kind::kEvent, {"default", "", 0, ""});
  REQUIRE(page);
  return static_cast<int>(std::count_if(page->items.begin(), page->items.end(),
                                        [&](const Json& one) { return one["reason"] == reason; }));
}

std::int64_t queue_writes(const World& world) {
  const auto counts = world.server.request_counts();
  const auto found = counts.find("patch trainingqueues/status");
  return found == counts.end() ? 0 : found->second;
}

/// An API server that for a while does not say which objects it has of one kind.
struct KindAway final : kube::HttpTransport {
  KindAway(kube::HttpTransport& server, const std::string& plural)
      : real(server), path("/" + plural) {}
  bool refuses(const kube::HttpRequest& request) const {
    return are_away && request.path.find(path) != std::string::npos;
  }
  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    if (refuses(request)) return kube::HttpResponse{503, "", std::nullopt};
    return real.send(request);
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    if (refuses(request)) return Error(ErrorCode::kUnavailable, path + " is away");
    return real.open_stream(request);
  }
  kube::HttpTransport& real;
  std::string path;
  bool are_away = true;
};

void make_elastic(Json& job) {
  job["spec"]["worker"].erase("command");
  job["spec"]["worker"]["min"] = 1;
  job["spec"]["training"] = sim::engine_spec();
}

/// Every running worker of a job says that all of its workers train together.
void train_together(World& world, const std::string& job) {
  std::vector<api::Pod> running = world.pods();
  std::erase_if(running, [&](const api::Pod& pod) {
    return pod.meta.controller()->name != job || pod.phase != api::PodPhase::kRunning;
  });
  std::vector<int> members;
  for (const auto& pod : running) members.push_back(pod.slot());
  std::sort(members.begin(), members.end());
  for (const auto& pod : running) {
    ProgressReport report;
    report.job = "default/" + job;
    report.slot = pod.slot();
    report.attempt = pod.attempt();
    report.membership_epoch = 1;
    report.members = members;
    REQUIRE(world.op->mailbox.post(report));
  }
  world.settle();
}

std::string pod_of(const World& world, const std::string& job, int slot, int attempt) {
  return api::pod_name(world.job(job), slot, attempt);
}

}  // namespace

TEST_CASE("jobs of a queue start as its quota lets them, and the queue says what it gives") {
  World world(test::seed());
  world.add_node("n", 32);
  world.create_queue("research", 3);
  world.create_job("a", 2, in_queue("research"));
  world.clock.advance(seconds(1));
  world.create_job("b", 2, in_queue("research"));
  world.create_job("free", 2);
  world.settle();
  CHECK(world.job("a").status.is_true("Admitted"));
  CHECK(world.job("free").status.is_true("Admitted"));
  CHECK(admitted(world, "b").starts_with("False: 1st in queue research: needs 2 cpu"));
  world.pass(seconds(6));
  auto status = world.queue("research").status;
  CHECK(status.admitted == 1);
  CHECK(status.waiting == 1);
  CHECK(status.use == "cpu 2/3");
  CHECK(status.phase == "Active");
  end_job(world, "a");
  CHECK(world.job("b").status.is_true("Admitted"));
  end_job(world, "b");
  world.pass(seconds(10));
  status = world.queue("research").status;
  CHECK(status.admitted == 0);
  CHECK(status.waiting == 0);
  CHECK(status.use == "cpu 0/3");
}

TEST_CASE("a job costs as many writes in a queue as without, and the queue one in five seconds") {
  World world(test::seed());
  world.add_node("n", 32);
  world.create_queue("research", 3);
  world.create_job("a", 2, in_queue("research"));
  world.settle();
  end_job(world, "a");
  CHECK(world.job("a").status.is_true("Complete"));
  CHECK(world.status_writes() == 3);
  world.pass(seconds(60));
  const std::int64_t before = queue_writes(world);
  CHECK(before >= 1);
  CHECK(before <= 3);
  for (int i = 0; i < 20; ++i) {
    world.create_job("j" + std::to_string(i), 1, in_queue("research"));
    world.pass(seconds(1));
  }
  CHECK(queue_writes(world) - before <= 6);
  world.pass(seconds(30));
  const std::int64_t writes = queue_writes(world) + world.status_writes();
  world.pass(seconds(1200));
  CHECK(queue_writes(world) + world.status_writes() == writes);
}

TEST_CASE("a line that moves costs its jobs few words") {
  World world(test::seed());
  world.add_node("n", 32);
  world.create_queue("research", 1);
  constexpr int kJobs = 110, kRounds = 8;
  const auto name = [](int number) { return "j" + std::to_string(100 + number); };
  for (int i = 0; i < kJobs; ++i) world.create_job(name(i), 1, in_queue("research"));
  world.settle();
  REQUIRE(world.job(name(0)).status.is_true("Admitted"));
  CHECK(admitted(world, name(kJobs - 1)) ==
        "False: beyond the 10th place in queue research: waits for its turn");
  const std::int64_t before = world.status_writes();
  for (int round = 0; round < kRounds; ++round) {
    world.pass(seconds(60));
    end_job(world, name(round));
  }
  REQUIRE(world.job(name(kRounds)).status.is_true("Admitted"));
  CHECK(admitted(world, name(kRounds + 1)).starts_with("False: 1st in queue research: "));
  CHECK(admitted(world, name(kRounds + 9)).find("th in queue research: ") != std::string::npos);
  // Three of each that starts or ends. Of the others those near the first say once in five minutes
  // what has become of it; told every minute that would be ten for each round, and one more for
  // each that comes near.
  CHECK(world.status_writes() - before <= 3 * kRounds + 4 * kRounds);
}

TEST_CASE("the priority class decides whose turn it is, and a fresh operator decides the same") {
  World world(test::seed());
  world.add_node("n", 32);
  world.create_priority("high", 100);
  world.create_queue("research", 2);
  world.create_job("runs", 2, in_queue("research"));
  world.settle();
  world.create_job("low", 2, in_queue("research"));
  world.clock.advance(seconds(5));
  world.create_job("late", 2, in_queue("research", "high"));
  world.settle();
  world.restart_operator();
  world.settle();
  end_job(world, "runs");
  CHECK(world.job("late").status.is_true("Admitted"));
  CHECK_FALSE(world.job("low").status.is_true("Admitted"));
}

TEST_CASE("what a job names that is not there holds it up, with a sentence, and nothing is lost") {
  World world(test::seed());
  world.add_node("n", 32);
  world.create_job("a", 1, in_queue("research"));
  world.settle();
  CHECK(admitted(world, "a") ==
        "False: spec.queueName: there is no TrainingQueue research; make it, or name none: there "
        "are no queues");
  world.create_queue("research", 4,
                     [](Json& queue) { queue["spec"]["namespaces"] = Json::array({"ops"}); });
  world.pass(seconds(61));
  CHECK(admitted(world, "a").find("takes no jobs of namespace default, only of ops") !=
        std::string::npos);
  const auto patch = [&](const Json& spec) {
    REQUIRE(world.user
                ->merge_patch(api::Kind::kTrainingQueue, {"", "research"}, "", Json{{"spec", spec}})
                .has_value());
    world.settle();
  };
  patch({{"namespaces", nullptr}, {"suspend", true}});
  world.pass(seconds(61));
  CHECK(admitted(world, "a").find("its spec.suspend is true") != std::string::npos);
  CHECK(world.queue("research").status.phase == "Closed");
  patch({{"suspend", false}});
  world.settle();
  CHECK(world.job("a").status.is_true("Admitted"));
  world.run_all_pods();
  world.settle();
  REQUIRE(world.user->remove(api::Kind::kTrainingQueue, {"", "research"}, {}).has_value());
  world.create_job("b", 1, in_queue("research"));
  world.pass(seconds(10));
  CHECK(world.job("a").status.is_true("Running"));
  const std::string is_gone = "; there is no TrainingQueue research any more: the job keeps its";
  CHECK(admitted(world, "a").find(is_gone) != std::string::npos);
  CHECK(admitted(world, "b").find("there is no TrainingQueue research") != std::string::npos);
  world.create_queue("research", 4);
  world.settle();
  CHECK(admitted(world, "a").find(is_gone) == std::string::npos);
  CHECK(world.job("b").status.is_true("Admitted"));
  world.pass(seconds(10));
  CHECK(world.queue("research").status.admitted == 2);
}

TEST_CASE("while queues cannot be read nobody hears that there is none") {
  std::unique_ptr<KindAway> queues;
  World world(test::seed(), [&](kube::HttpTransport& real) {
    queues = std::make_unique<KindAway>(real, "trainingqueues");
    return queues.get();
  });
  world.add_node("n", 32);
  world.create_queue("research", 4);
  world.create_job("a", 2, in_queue("research"));
  world.pass(seconds(5));
  CHECK(admitted(world, "a").empty());
  queues->are_away = false;
  world.pass(seconds(60));
  CHECK(world.job("a").status.is_true("Admitted"));
}

TEST_CASE(
    "a job that names no queue does not start before it is known whether one is called default") {
  std::unique_ptr<KindAway> queues;
  World world(test::seed(), [&](kube::HttpTransport& real) {
    queues = std::make_unique<KindAway>(real, "trainingqueues");
    return queues.get();
  });
  world.add_node("n", 32);
  world.create_queue("default", 1);
  world.create_job("a", 2);
  world.pass(seconds(5));
  CHECK(admitted(world, "a").empty());

  SUBCASE("it waits there once queues are known") {
    queues->are_away = false;
    world.pass(seconds(60));
    CHECK(admitted(world, "a").starts_with("False: 1st in queue default"));
  }
  SUBCASE("it starts as ever once they were awaited for long enough") {
    world.pass(seconds(30));
    CHECK(world.job("a").status.is_true("Admitted"));
  }
}

TEST_CASE("without priority classes jobs that name no queue run as ever, and the others are told") {
  bool are_away = false;
  std::unique_ptr<KindAway> priorities;
  World world(test::seed(), [&](kube::HttpTransport& real) {
    priorities = std::make_unique<KindAway>(real, "priorityclasses");
    priorities->are_away = are_away;
    return priorities.get();
  });
  world.add_node("n", 32);
  world.create_queue("default", 3);
  world.create_queue("research", 2);
  world.create_job("of-default", 3, make_elastic);
  world.create_job("of-none", 2, [](Json& job) {
    make_elastic(job);
    in_queue("research")(job);
  });
  world.settle();
  world.run_all_pods();
  world.settle();
  REQUIRE(world.user
              ->merge_patch(api::Kind::kTrainingJob, {"default", "of-none"}, "",
                            Json{{"spec", {{"queueName", nullptr}}}})
              .has_value());
  are_away = true;
  world.restart_operator();
  world.create_job("waits", 2);
  world.create_job("named", 2, in_queue("research"));
  world.settle();
  for (const char* job : {"of-default", "of-none"}) {
    train_together(world, job);
    REQUIRE(world.job(job).status.is_true("Running"));
    world.end_pod(pod_of(world, job, 1, 0), 137);
  }
  world.pass(seconds(5));
  CHECK(admitted(world, "waits").empty());
  world.pass(seconds(40));
  CHECK(world.job("waits").status.is_true("Admitted"));
  CHECK(admitted(world, "named").starts_with("False: spec.queueName: the operator could not list"));
  for (const char* job : {"of-default", "of-none"}) {
    CAPTURE(std::string(job));
    CHECK(world.has_pod(pod_of(world, job, 1, 1)));
  }
  // Once they are known, all count again where they belong.
  priorities->are_away = false;
  world.pass(seconds(60));
  CHECK(world.queue("default").status.use == "cpu 5/3");
  CHECK(admitted(world, "named").starts_with("False: 1st in queue research"));
}

TEST_CASE("a queue called default takes the jobs that name none") {
  World world(test::seed());
  world.add_node("n", 32);
  world.create_job("before", 2);
  world.settle();
  world.create_queue("default", 3);
  world.create_job("after", 2);
  world.pass(seconds(10));
  CHECK(world.job("before").status.is_true("Admitted"));
  CHECK(admitted(world, "after").starts_with("False: 1st in queue default"));
  CHECK(world.queue("default").status.use == "cpu 2/3");
}

TEST_CASE("a suspended job gives its quota back when its last pod is gone") {
  World world(test::seed());
  world.add_node("n", 32);
  world.create_queue("research", 2);
  world.create_job("a", 2, in_queue("research"));
  world.settle();
  world.run_all_pods();
  world.settle();
  world.create_job("b", 2, in_queue("research"));
  REQUIRE(world.user
              ->merge_patch(api::Kind::kTrainingJob, {"default", "a"}, "",
                            Json{{"spec", {{"suspend", true}}}})
              .has_value());
  world.pass(seconds(3));
  CHECK_FALSE(world.job("b").status.is_true("Admitted"));
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  CHECK(world.job("b").status.is_true("Admitted"));
}

namespace {

/// Job a had all of queue research; its pods still do.
void delete_while_it_runs(World& world) {
  world.add_node("n", 32);
  world.create_queue("research", 2);
  world.create_job("a", 2, in_queue("research"));
  world.settle();
  world.run_all_pods();
  world.settle();
  REQUIRE(world.user->remove(api::Kind::kTrainingJob, {"default", "a"}, {}));
}

}  // namespace

TEST_CASE("a job that is made anew waits for the quota of the pods that its name had before") {
  World world(test::seed());
  delete_while_it_runs(world);
  world.create_job("a", 2, in_queue("research"));
  for (int i = 0; i < 3; ++i) {
    world.pass(seconds(3));
    CHECK(admitted(world, "a").starts_with("False: 1st in queue research: needs 2 cpu"));
  }
  CHECK(world.queue("research").status.use == "cpu 2/2");
  const auto pods = world.pods();
  REQUIRE(pods.size() == 2);
  (void)world.user->remove(api::Kind::kPod, pods[0].meta.key(), {"", 0});
  world.pass(seconds(6));
  CHECK(world.queue("research").status.use == "cpu 1/2");
  CHECK_FALSE(world.job("a").status.is_true("Admitted"));
  (void)world.user->remove(api::Kind::kPod, pods[1].meta.key(), {"", 0});
  world.settle();
  CHECK(world.job("a").status.is_true("Admitted"));
}

TEST_CASE("a new leader counts the quota of pods that still leave of a job that was deleted") {
  World world(test::seed());
  delete_while_it_runs(world);
  world.pass(seconds(1));
  REQUIRE(world.pods().size() == 2);
  world.restart_operator();
  world.create_job("b", 2, in_queue("research"));
  for (int i = 0; i < 3; ++i) {
    world.pass(seconds(3));
    CHECK(admitted(world, "b").starts_with("False: 1st in queue research: needs 2 cpu"));
  }
  CHECK(world.queue("research").status.use == "cpu 2/2");
  for (const auto& pod : world.pods()) {
    (void)world.user->remove(api::Kind::kPod, pod.meta.key(), {"", 0});
  }
  world.settle();
  CHECK(world.job("b").status.is_true("Admitted"));
}

TEST_CASE("a queue's jobs stop when its budget is spent, and go on when it begins anew") {
  World world(test::seed());
  const Json list{
      {"currency", "EUR"},
      {"tiers", {{{"name", "all"}, {"prices", {{{"resource", "cpu"}, {"perHour", "1"}}}}}}}};
  auto prices = api::parse_price_list(list);
  REQUIRE_MESSAGE(prices, (prices ? "" : prices.error().message()));
  world.prices = std::move(*prices);
  world.restart_operator();
  world.add_node("n", 32);
  world.create_queue("research", 8, [](Json& queue) {
    queue["spec"]["budget"] = Json{{"currency", "EUR"}, {"amount", "3"}, {"period", "Day"}};
  });
  world.create_job("a", 2, in_queue("research"));
  world.create_job("free", 2);
  world.settle();
  world.run_all_pods();
  world.settle();
  const auto before = queue_writes(world);
  world.pass(std::chrono::minutes(80));
  CHECK(world.job("a").status.is_true("Running"));
  auto budget = world.queue("research").status.budget;
  REQUIRE(budget);
  CHECK(api::plain(budget->rate_per_hour) == doctest::Approx(2));
  CHECK(api::plain(budget->spent) > 2);
  // It begins at 22:13. Once in ten minutes, and what tells that the job was admitted.
  CHECK(queue_writes(world) - before <= 8 + 2);
  // An operator that starts anew counts from what was written.
  world.restart_operator();
  world.pass(std::chrono::minutes(12));
  world.reap(143);
  world.pass(seconds(10));
  CHECK(world.job("free").status.is_true("Running"));
  CHECK_FALSE(world.job("a").status.is_true("Running"));
  CHECK(world.job("a").status.taken_back == api::TakenBack{});
  CHECK(admitted(world, "a") ==
        "False: queue research starts no jobs: its budget of 3 EUR a day is spent; raise "
        "spec.budget.amount, or wait until 2023-11-15T00:00:00Z");
  CHECK(world.job("a").status.condition("Running")->reason == contract::reason::kBudgetSpent);
  CHECK(events_of(world, contract::reason::kBudgetSpent) == 1);
  const auto queue = world.queue("research").status;
  CHECK(queue.phase == "Closed");
  CHECK(api::plain(queue.budget->spent) == doctest::Approx(3).epsilon(0.03));
  CHECK(queue.budget->rate_per_hour == 0);
  world.pass(std::chrono::minutes(16));
  CHECK(format_time(world.clock.wall_now()) > "2023-11-15T00:00:00Z");
  CHECK(world.job("a").status.is_true("Admitted"));
  CHECK(world.queue("research").status.phase == "Active");
  CHECK(api::plain(world.queue("research").status.budget->spent) < 0.1);
}
