#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "common/contract.h"
#include "operator/core/words.h"
#include "tests/sim/cluster.h"
#include "tests/sim/engine_spec.h"
#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

std::vector<std::string> pod_names(const World& world) {
  std::vector<std::string> names;
  for (const auto& pod : world.pods()) names.push_back(pod.meta.name);
  return names;
}

void set_suspend(World& world, const std::string& name, bool value) {
  const Json patch{{"spec", {{"suspend", value}}}};
  REQUIRE(
      world.user->merge_patch(api::Kind::kTrainingJob, {"default", name}, "", patch).has_value());
}

void bind_to(World& world, const api::Pod& pod, const char* node) {
  const auto answer = world.server.send(sim::binding_request(pod, node));
  REQUIRE(answer.has_value());
  REQUIRE_MESSAGE(answer->code < 300, answer->body);
}

/// A scheduler that knows of no gangs, and the kubelet of a node with so many processors: pods of
/// all jobs come by turns, and whoever finds none free is refused.
void bind_by_turns(World& world, const char* node, int cpus) {
  auto pods = world.pods();
  std::sort(pods.begin(), pods.end(), [](const api::Pod& a, const api::Pod& b) {
    return std::pair(a.slot(), a.meta.name) < std::pair(b.slot(), b.meta.name);
  });
  for (const auto& pod : pods) cpus -= !pod.node_name.empty() && !pod.ended() ? 1 : 0;
  for (const auto& pod : pods) {
    if (!pod.node_name.empty() || pod.meta.deletion_time) continue;
    if (cpus > 0) {
      --cpus;
      bind_to(world, pod, node);
      world.run_pod(pod.meta.name);
    } else if (pod.reason.empty()) {
      const Json refused{{"type", "PodScheduled"},
                         {"status", "False"},
                         {"reason", "Unschedulable"},
                         {"message", "0/1 nodes are available: 1 Insufficient cpu."}};
      const Json status{{"status", {{"conditions", Json::array({refused})}}}};
      REQUIRE(
          world.user->merge_patch(api::Kind::kPod, pod.meta.key(), "status", status).has_value());
    }
  }
}

/// Pods of the job that stand on nodes and have not ended.
int on_nodes(const World& world, const std::string& job) {
  const auto pods = world.pods();
  return static_cast<int>(std::count_if(pods.begin(), pods.end(), [&](const api::Pod& pod) {
    return pod.meta.name.starts_with(job + "-") && !pod.node_name.empty() && !pod.ended();
  }));
}

/// The gang of job j has that size, and all of it runs.
bool runs_with(const World& world, int count) {
  const auto status = world.job("j").status;
  const auto pods = world.pods();
  const auto live = std::count_if(pods.begin(), pods.end(), [](const api::Pod& pod) {
    return pod.phase == api::PodPhase::kRunning && !pod.meta.deletion_time;
  });
  const std::string size = std::to_string(count);
  return status.is_true("Running") && status.workers == size + "/" + size &&
         std::ssize(status.placement) == count && live == count;
}

/// Whoever is asked to leave goes and whoever is made runs, until that is so; within a minute.
bool comes_to_run_with(World& world, int count) {
  for (int second = 0; second < 60 && !runs_with(world, count); ++second) {
    world.reap(143);
    world.run_all_pods();
    world.pass(seconds(1));
  }
  return runs_with(world, count);
}

}  // namespace

TEST_CASE("jobs of one worker, of the least and of the most are made, scaled to and restarted") {
  struct Row {
    int min, max, count;
  };
  const Row rows[] = {{1, 1, 1}, {1, 4, 1}, {1, 4, 4}, {2, 4, 2}, {2, 4, 4}, {4, 4, 4}};
  for (const bool is_engine : {false, true}) {
    for (const Row& row : rows) {
      const int min = row.min, max = row.max, count = row.count;
      CAPTURE(is_engine);
      CAPTURE(min);
      CAPTURE(max);
      CAPTURE(count);
      World world(test::seed());
      world.add_node("local", 8);
      const bool is_scaled = min < max && !is_engine;  // those who train join one by one
      const int first = !is_scaled ? count : count == max ? min : max;
      world.create_job("j", first, [&](Json& job) {
        job["spec"]["worker"]["min"] = min;
        job["spec"]["worker"]["max"] = max;
        if (!is_engine) return;
        job["spec"]["worker"].erase("command");
        job["spec"]["training"] = sim::engine_spec();
      });
      CHECK(comes_to_run_with(world, first));
      if (is_scaled) {
        const Json patch{{"spec", {{"worker", {{"count", count}}}}}};
        REQUIRE(world.user->merge_patch(api::Kind::kTrainingJob, {"default", "j"}, "", patch)
                    .has_value());
        world.settle();
        CHECK(comes_to_run_with(world, count));
      }
      const auto before = world.job("j").status;
      for (const auto& pod : world.pods()) {
        if (pod.slot() == count - 1 && !pod.ended()) world.end_pod(pod.meta.name, 137);
      }
      world.settle();
      CHECK_FALSE(world.job("j").status.is_true("Running"));
      CHECK(comes_to_run_with(world, count));
      const auto after = world.job("j").status;
      CHECK(after.restarts == before.restarts + 1);
      CHECK(after.membership_epoch > before.membership_epoch);
      world.pass(seconds(600));
      CHECK(runs_with(world, count));
    }
  }
}

TEST_CASE("an undisturbed job is placed, runs and completes with three status writes") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("digits", 2);
  world.settle();
  CHECK(world.job("digits").status.is_true("Admitted"));
  CHECK(world.job("digits").status.workers == "0/2");
  REQUIRE(world.pods().size() == 2);
  REQUIRE(world.op->endpoint.gangs.count("default/digits") == 1);
  // The endpoint knows whose token is good for which slot.
  const runtime::GangInfo gang = world.op->endpoint.gangs.at("default/digits");
  REQUIRE(gang.pod_of_slot.size() == 2);
  for (const auto& pod : world.pods()) {
    CHECK(gang.pod_of_slot.at(pod.slot()).name == pod.meta.name);
    CHECK(gang.pod_of_slot.at(pod.slot()).uid == pod.meta.uid);
  }

  world.run_all_pods();
  world.settle();
  CHECK(world.job("digits").status.phase == "Running");
  CHECK(world.job("digits").status.workers == "2/2");

  for (const auto& name : pod_names(world)) {
    world.end_pod(name, 0);
    world.settle();
  }
  const auto job = world.job("digits");
  CHECK(job.status.is_true("Complete"));
  CHECK_FALSE(job.status.is_true("Running"));
  CHECK(world.status_writes() == 3);
  CHECK(world.op->endpoint.gangs.empty());
  MESSAGE("status writes of an undisturbed life cycle: " << world.status_writes());

  const auto before = world.server.request_counts();
  world.pass(seconds(600));
  const auto after = world.server.request_counts();
  CHECK(before.at("create pods") == after.at("create pods"));
  CHECK(world.status_writes() == 3);
}

TEST_CASE("an undisturbed job of four costs ten writes, events included") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("digits", 4);
  world.settle();
  for (const auto& name : pod_names(world)) {
    world.run_pod(name);
    world.settle();
  }
  for (const auto& name : pod_names(world)) {
    world.end_pod(name, 0);
    world.settle();
  }
  world.pass(seconds(3600));
  CHECK(world.job("digits").status.is_true("Complete"));
  const auto counts = world.server.request_counts();
  const auto count = [&](const char* what) {
    const auto found = counts.find(what);
    return found == counts.end() ? 0 : found->second;
  };
  CHECK(count("create pods") == 4);
  CHECK(count("create services") == 1);
  CHECK(count("patch trainingjobs/status") == 3);
  CHECK(count("create events") == 2);
  CHECK(count("delete pods") == 0);
}

TEST_CASE("of many jobs' progress ten writes a second are made, and each job has its turn") {
  // More than could all be written every 15 s, which is as often as one job's may be.
  constexpr int kJobs = 200;
  World world(test::seed());
  world.add_node("a", kJobs / 2);
  world.add_node("b", kJobs / 2);
  std::vector<std::string> names;
  for (int i = 0; i < kJobs; ++i) {
    names.push_back("j" + std::to_string(i));
    world.create_job(names.back(), 1, [](Json& job) {
      job["spec"]["worker"].erase("command");
      job["spec"]["training"] = sim::engine_spec();
    });
  }
  world.settle();
  world.run_all_pods();
  world.settle();
  const auto report_all = [&](int step) {
    for (const auto& name : names) {
      ProgressReport report;
      report.job = "default/" + name;
      report.step = step;
      report.membership_epoch = 1;
      report.members = {0};
      REQUIRE(world.op->mailbox.post(report));
      world.op->loop->step();
    }
    world.settle();
  };
  report_all(1);  // Who is a member is a fact of its own, and written at once.
  constexpr int kSeconds = 60;
  for (int second = 1; second <= kSeconds; ++second) {
    const auto before = world.status_writes();
    world.pass(seconds(1));
    report_all(1 + second);
    CHECK(world.status_writes() - before <= 10);
  }
  // In a minute 600 writes are three for each.
  for (const auto& name : names) {
    const auto job = world.job(name);
    REQUIRE(job.status.progress);
    CHECK_MESSAGE(job.status.progress->step > kSeconds / 2, name);
  }
}

TEST_CASE("of a gang that quota halves nothing keeps running, and it starts once there is room") {
  int allowed = 1;
  struct Quota final : kube::HttpTransport {
    Quota(kube::HttpTransport& server, int& left) : real(server), allowed(left) {}
    Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
      const bool is_pod = request.method == "POST" && request.path.ends_with("/pods");
      if (is_pod && --allowed < 0) {
        return kube::HttpResponse{
            403, R"({"message": "exceeded quota: team-a, limited: pods=1", "reason": "Forbidden"})",
            std::nullopt};
      }
      return real.send(request);
    }
    Result<Stream> open_stream(const kube::HttpRequest& request) override {
      return real.open_stream(request);
    }
    kube::HttpTransport& real;
    int& allowed;
  };
  std::unique_ptr<Quota> quota;
  World world(test::seed(), [&](kube::HttpTransport& real) {
    quota = std::make_unique<Quota>(real, allowed);
    return quota.get();
  });
  world.add_node("local", 4);
  world.create_job("digits", 3);
  world.settle();
  const auto job = world.job("digits");
  REQUIRE(job.status.condition("Admitted") != nullptr);
  CHECK(job.status.condition("Admitted")->reason == "QuotaExceeded");
  CHECK(job.status.condition("Admitted")->message.find("exceeded quota: team-a") !=
        std::string::npos);
  CHECK(world.pods().empty());
  world.pass(seconds(600));
  CHECK(world.pods().empty());
  allowed = 1000;
  world.pass(seconds(61));  // no back-off is longer
  CHECK(world.pods().size() == 3);
}

TEST_CASE("of two gangs that hold half of the nodes each one lets go, and both run, one by one") {
  World world(test::seed());
  world.add_node("local", 4);
  const std::vector<std::string> names{"left", "right"};
  for (const auto& name : names) {
    world.create_job(name, 3, [](Json& job) { job["spec"]["scheduling"] = "Unplaced"; });
  }
  // Until its pods are bound, and until they are gone, takes each a moment.
  constexpr seconds kPartMost =
      core::words::kHalfBoundMost + core::words::kHalfBoundSpread + seconds(20);
  std::map<std::string, seconds> holds_part_for;
  const auto within = [&](seconds most, const std::function<bool()>& holds) {
    for (seconds passed{0}; passed < most && !holds(); passed += seconds(1)) {
      world.reap(143);
      bind_by_turns(world, "local", 4);
      world.pass(seconds(1));
      for (const auto& name : names) {
        const int held = on_nodes(world, name);
        seconds& part_for = holds_part_for[name];
        part_for = held == 0 || held == 3 ? seconds(0) : part_for + seconds(1);
        CHECK(part_for <= kPartMost);
      }
    }
    return holds();
  };
  const auto runs = [&](const std::string& name) {
    return on_nodes(world, name) == 3 && world.job(name).status.is_true("Running");
  };
  const auto has_let_go = [&](const std::string& name) {
    const auto status = world.job(name).status;
    const auto* admitted = status.condition("Admitted");
    return admitted != nullptr && admitted->reason == core::words::kHalfBound;
  };
  const auto any = [&](const auto& holds) {
    return std::any_of(names.begin(), names.end(), holds);
  };
  REQUIRE(within(seconds(10),
                 [&] { return on_nodes(world, "left") == 2 && on_nodes(world, "right") == 2; }));
  CHECK_FALSE(within(core::words::kHalfBoundMost - seconds(15), [&] { return any(has_let_go); }));
  CHECK(within(core::words::kHalfBoundSpread + seconds(20), [&] { return any(has_let_go); }));
  // Where both let go in the same moment, as one pair of a hundred does, they do it all over again.
  REQUIRE(within(std::chrono::hours(1), [&] { return any(runs); }));
  const bool left_first = runs("left");
  for (const auto& pod : world.pods()) {
    const bool is_first = pod.meta.name.starts_with(left_first ? "left-" : "right-");
    if (is_first && !pod.ended() && !pod.meta.deletion_time) world.end_pod(pod.meta.name, 0);
  }
  CHECK(within(core::words::kLetGoPause + seconds(20), [&] { return runs(names[left_first]); }));
  CHECK(world.job(names[!left_first]).status.is_true("Complete"));
  for (const auto& name : names) CHECK(world.job(name).status.restarts == 0);
}

TEST_CASE("a node that falls silent is left, and its gang goes on elsewhere") {
  World world(test::seed());
  world.add_node("a", 2);
  world.create_job("digits", 2);
  world.settle();
  world.run_all_pods();
  world.settle();
  world.add_node("b", 2);
  const Json silent{{"type", "Ready"}, {"status", "Unknown"}};
  REQUIRE(world.user
              ->merge_patch(api::Kind::kNode, {"", "a"}, "status",
                            Json{{"status", {{"conditions", Json::array({silent})}}}})
              .has_value());
  world.pass(seconds(38));
  CHECK(world.job("digits").status.membership_epoch == 1);
  world.pass(seconds(20));
  const auto job = world.job("digits");
  CHECK(job.status.restarts == 0);
  REQUIRE(job.status.placement.size() == 2);
  CHECK(job.status.placement[0].node == "b");
  int on_b = 0;
  for (const auto& pod : world.pods()) on_b += pod.required_node == "b" ? 1 : 0;
  CHECK(on_b == 2);
}

TEST_CASE("a refused gang is placed anew, though no operator lives as long as that takes") {
  World world(test::seed());
  world.add_node("a", 2);
  world.create_job("digits", 2);
  world.settle();
  world.add_node("b", 2);
  const Json refused{{"type", "PodScheduled"},
                     {"status", "False"},
                     {"reason", "Unschedulable"},
                     {"lastTransitionTime", format_time(world.clock.wall_now())}};
  const Json status{{"status", {{"conditions", Json::array({refused})}}}};
  for (const auto& pod : world.pods()) {
    REQUIRE(world.user->merge_patch(api::Kind::kPod, pod.meta.key(), "status", status));
  }
  constexpr seconds kLife = core::words::kUnboundMost / 3;
  for (int operators = 0; operators < 2; ++operators) {
    world.pass(kLife);
    world.restart_operator();
  }
  CHECK(world.job("digits").status.membership_epoch == 1);
  world.pass(kLife + seconds(1));
  world.reap(143);
  world.pass(kLife / 2);
  const auto job = world.job("digits");
  REQUIRE(job.status.placement.size() == 2);
  CHECK(job.status.placement[0].node == "b");
}

TEST_CASE("a gang that leaves a node starts again before a younger one that waits for its room") {
  World world(test::seed());
  world.add_node("a", 2);
  world.add_node("b", 2);
  world.create_job("digits", 4);
  world.settle();
  world.run_all_pods();
  world.pass(seconds(5));
  world.create_job("younger", 4);
  world.add_node("c", 2);
  world.settle();
  REQUIRE(world.job("digits").status.is_true("Running"));
  REQUIRE(
      world.user
          ->merge_patch(api::Kind::kNode, {"", "a"}, "", Json{{"spec", {{"unschedulable", true}}}})
          .has_value());
  world.settle();
  SUBCASE("while its pods leave") {
    for (const auto& pod : world.pods()) {
      if (pod.required_node == "a") world.end_pod(pod.meta.name, 143);
    }
  }
  SUBCASE("when all of them have ended") {
    for (const auto& pod : world.pods()) world.end_pod(pod.meta.name, 143);
  }
  world.settle();
  CHECK(world.job("digits").status.placement.empty());
  world.reap(143);
  world.settle();
  CHECK_FALSE(world.job("younger").status.is_true("Admitted"));
  world.restart_operator();
  world.pass(seconds(12));
  const auto job = world.job("digits");
  REQUIRE(job.status.placement.size() == 4);
  for (const auto& one : job.status.placement) CHECK(one.node != "a");
  CHECK_FALSE(world.job("younger").status.is_true("Admitted"));
}

TEST_CASE("two thousand jobs are known again without a write") {
  constexpr int kJobs = 2000;
  World world(test::seed());
  for (int i = 0; i < 100; ++i) world.add_node("n" + std::to_string(i), 80);
  for (int i = 0; i < kJobs; ++i) world.create_job("j" + std::to_string(i), 4);
  world.settle();
  world.run_all_pods();
  world.pass(seconds(5));  // more news at once than the server keeps: a list, after a back-off
  REQUIRE(world.job("j1999").status.phase == "Running");
  const auto before = world.server.resource_version();
  const auto lists_before = world.server.request_counts();
  world.restart_operator();
  world.settle();
  CHECK(world.op->loop->synced());
  CHECK(world.server.resource_version() == before);
  CHECK(world.op->endpoint.gangs.size() == kJobs);
  const auto lists = world.server.request_counts();
  // In pages: each object is listed once.
  CHECK(lists.at("list pods") - lists_before.at("list pods") <= 4 * kJobs / 100);
}

TEST_CASE("a failed worker restarts the whole gang after the back-off, with a new epoch") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("digits", 2);
  world.settle();
  world.run_all_pods();
  world.settle();
  const auto first = pod_names(world);
  world.end_pod(first[1], 137);
  world.settle();
  CHECK(world.job("digits").status.membership_epoch == 2);
  CHECK(world.job("digits").status.restarts == 1);
  CHECK(world.job("digits").status.is_true("Restarting"));
  REQUIRE(world.job("digits").status.failure.has_value());
  CHECK(world.job("digits").status.failure->slot == 1);
  world.reap(143);
  world.settle();
  CHECK(world.pods().empty());
  world.pass(seconds(12));
  const auto second = pod_names(world);
  REQUIRE(second.size() == 2);
  CHECK(second != first);
  world.run_all_pods();
  world.settle();
  CHECK(world.job("digits").status.phase == "Running");
  CHECK_FALSE(world.job("digits").status.is_true("Restarting"));
  CHECK(world.status_writes() == 4);  // placed, running, restarting, running
}

TEST_CASE("a suspended job gives its pods back and resumes with others") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("digits", 2);
  world.settle();
  world.run_all_pods();
  world.settle();
  const auto first = pod_names(world);
  set_suspend(world, "digits", true);
  world.settle();
  CHECK(world.op->endpoint.gangs.count("default/digits") == 1);  // they may still report
  for (const auto& pod : world.pods()) CHECK(pod.meta.deletion_time.has_value());
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  CHECK(world.job("digits").status.is_true("Suspended"));
  CHECK(world.job("digits").status.restarts == 0);
  CHECK(world.pods().empty());
  CHECK(world.op->endpoint.gangs.empty());
  set_suspend(world, "digits", false);
  world.settle();
  CHECK_FALSE(world.job("digits").status.is_true("Suspended"));
  REQUIRE(world.pods().size() == 2);
  CHECK(pod_names(world) != first);
}

TEST_CASE("a fresh operator takes over at any point and ends at the same state") {
  for (int kill_at = 0; kill_at < 4; ++kill_at) {
    CAPTURE(kill_at);
    World world(test::seed());
    const auto maybe = [&](int point) {
      if (kill_at == point) world.restart_operator();
      world.settle();
    };
    world.add_node("local", 4);
    world.create_job("digits", 3);
    maybe(0);
    world.settle();
    maybe(1);
    world.run_all_pods();
    maybe(2);
    for (const auto& name : pod_names(world)) world.end_pod(name, 0);
    maybe(3);
    CHECK(world.job("digits").status.is_true("Complete"));
    CHECK(world.status_writes() == 3);
    CHECK(world.pods().size() == 3);
  }
}

TEST_CASE("two gangs never share capacity that is there once") {
  World world(test::seed());
  world.add_node("local", 3);
  world.create_job("a", 2);
  world.create_job("b", 2);
  world.settle();
  CHECK(world.pods().size() == 2);
  CHECK(world.job("b").status.phase == "Waiting");
  REQUIRE(world.job("b").status.condition("Admitted") != nullptr);
  CHECK(world.job("b").status.condition("Admitted")->reason == "GangWaiting");
  MESSAGE(world.job("b").status.condition("Admitted")->message);
  world.run_all_pods();
  for (const auto& name : pod_names(world)) world.end_pod(name, 0);
  world.settle();
  CHECK(world.job("a").status.is_true("Complete"));
  CHECK(world.job("b").status.is_true("Admitted"));
}

TEST_CASE("a pod deleted by hand comes back as a restart of the gang") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("digits", 2);
  world.settle();
  world.run_all_pods();
  world.settle();
  const auto victim = world.pods()[0].meta;
  REQUIRE(world.user->remove(api::Kind::kPod, victim.key(), {victim.uid, 0}).has_value());
  world.settle();
  CHECK(world.job("digits").status.restarts == 1);
  world.reap(143);
  world.pass(seconds(12));
  CHECK(world.pods().size() == 2);
  CHECK_FALSE(world.has_pod(victim.name));
}

TEST_CASE("a name taken by a stranger is told, and the job starts once it is free") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("digits", 2, [](Json& job) { job["spec"]["suspend"] = true; });
  world.settle();
  const auto job = world.job("digits");
  api::Pod stranger = api::make_pod(job, {1, 0, "local", ""}, {});
  stranger.meta.owner_references.clear();
  REQUIRE(world.user->create(api::Kind::kPod, "default", api::to_json(stranger)).has_value());
  world.bind_pod(stranger.meta.name);
  set_suspend(world, "digits", false);
  world.settle();
  const auto conflicted = world.job("digits");
  REQUIRE(conflicted.status.condition("Admitted") != nullptr);
  CHECK(conflicted.status.condition("Admitted")->reason == "NameConflict");
  CHECK(conflicted.status.condition("Admitted")->message.find(stranger.meta.name) !=
        std::string::npos);
  world.reap(143);
  world.settle();
  CHECK(world.has_pod(stranger.meta.name));
  CHECK(world.pods().size() == 1);  // no part of the gang holds capacity
  world.pass(seconds(16));
  // Attempts are never used twice, so the next one has names of its own.
  CHECK(world.pods().size() == 3);
  CHECK(world.job("digits").status.is_true("Admitted"));
}

TEST_CASE("a peer's loss does not hide the exit code that caused it") {
  World world(test::seed());
  world.add_node("local", 4);
  world.create_job("digits", 2, [](Json& job) {
    job["spec"]["worker"].erase("command");
    job["spec"]["training"] = sim::engine_spec();
  });
  world.settle();
  world.run_all_pods();
  world.settle();
  const auto names = pod_names(world);
  world.end_pod(names[0], contract::exit_code::kPeerLost, "peer 1 closed the connection");
  world.pass(seconds(1));
  CHECK(world.job("digits").status.restarts == 0);
  world.end_pod(names[1], contract::exit_code::kNumerics, "loss is NaN at step 7");
  world.settle();
  const auto job = world.job("digits");
  REQUIRE(job.status.is_true("Failed"));
  CHECK(job.status.condition("Failed")->reason == "Numerics");
  CHECK(job.status.failure->slot == 1);
  CHECK(job.status.failure->log_tail == "loss is NaN at step 7");
  CHECK(job.status.restarts == 0);
}

namespace {

/// A training job whose checkpoints are on the claim disk, at this path of its workers.
std::function<void(Json&)> on_disk(const std::string& path) {
  return [path](Json& job) {
    job["spec"]["worker"].erase("command");
    job["spec"]["training"] = sim::engine_spec();
    job["spec"]["training"]["checkpoint"] = Json{{"path", path}, {"volumeClaimName", "disk"}};
  };
}

void add_claim(World& world, const std::string& name) {
  const Json claim{{"apiVersion", "v1"},
                   {"kind", "PersistentVolumeClaim"},
                   {"metadata", {{"name", name}, {"namespace", "default"}}},
                   {"spec", {{"accessModes", Json::array({"ReadWriteMany"})}}}};
  REQUIRE(world.user->create(api::Kind::kPersistentVolumeClaim, "default", claim).has_value());
}

/// There is room for everybody.
void add_room_and_disk(World& world) {
  world.add_node("local", 8);
  add_claim(world, "disk");
}

/// Job a trains on the disk, and b would as well.
void let_two_share(World& world) {
  add_room_and_disk(world);
  world.create_job("a", 1, on_disk("/one"));
  world.clock.advance(seconds(1));
  world.create_job("b", 1, on_disk("/two"));
  world.settle();
  world.run_all_pods();
  world.settle();
}

/// Why it waits; empty: it does not.
std::string waits(const World& world, const std::string& job) {
  const auto status = world.job(job).status;
  const auto* admitted = status.condition("Admitted");
  if (admitted == nullptr || admitted->status == "True") return "";
  return admitted->reason + ": " + admitted->message;
}

bool is_told(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

/// Of job a, which is suspended, or has never started.
void name_claim(World& world, const std::string& claim) {
  const Json training{{"checkpoint", {{"volumeClaimName", claim}}}};
  const Json patch{{"spec", {{"training", training}}}};
  REQUIRE(
      world.user->merge_patch(api::Kind::kTrainingJob, {"default", "a"}, "", patch).has_value());
}

void name_other_claim(World& world) { name_claim(world, "other"); }

/// Its only worker says how far it has come.
void tell_progress(World& world, const std::string& job) {
  ProgressReport report;
  report.job = "default/" + job;
  report.step = 1;
  report.membership_epoch = 1;
  report.members = {0};
  REQUIRE(world.op->mailbox.post(report));
  world.settle();
}

void remove_pods(World& world) {
  for (const auto& pod : world.pods()) {
    (void)world.user->remove(api::Kind::kPod, pod.meta.key(), {"", 0});
  }
}

}  // namespace

TEST_CASE("of two jobs on one claim the second starts at once when the first is over") {
  World world(test::seed());
  let_two_share(world);
  CHECK(world.job("a").status.is_true("Running"));
  CHECK(is_told(waits(world, "b"),
                "CheckpointInUse: claim disk is for the checkpoints of job a, which is not over"));
  CHECK(world.job("b").status.phase == "Waiting");
  REQUIRE(world.pods().size() == 1);
  // A fresh operator decides the same, and writes nothing.
  const auto writes = world.status_writes();
  world.restart_operator();
  world.pass(seconds(400));
  CHECK(world.status_writes() == writes);
  world.end_pod(pod_names(world)[0], 0);
  world.settle();
  CHECK(world.job("a").status.is_true("Complete"));
  CHECK(world.job("b").status.is_true("Admitted"));
}

TEST_CASE("jobs on one claim that come together start one after the other, the older first") {
  World world(test::seed());
  add_room_and_disk(world);
  world.create_job("z", 1, on_disk("/ckpt"));
  world.clock.advance(seconds(1));
  world.create_job("y", 1, on_disk("/ckpt"));
  world.create_job("free", 1);
  world.settle();
  CHECK(world.job("z").status.is_true("Admitted"));
  CHECK(world.job("free").status.is_true("Admitted"));
  CHECK(is_told(waits(world, "y"), "job z"));
}

TEST_CASE(
    "of two jobs on one claim that could start at once one does, and nobody leaves for both") {
  World world(test::seed());
  add_room_and_disk(world);
  world.create_queue("research", 3);
  world.create_priority("high", 10);
  world.create_job("low", 1, [](Json& job) { job["spec"]["queueName"] = "research"; });
  world.settle();
  world.run_all_pods();
  world.settle();
  const auto high_on_disk = [](Json& job) {
    on_disk("/ckpt")(job);
    job["spec"]["queueName"] = "research";
    job["spec"]["priorityClassName"] = "high";
  };
  world.create_job("z", 2, high_on_disk);
  world.clock.advance(seconds(1));
  world.create_job("y", 2, high_on_disk);
  world.settle();
  CHECK(world.job("z").status.placement.size() == 2);
  CHECK(is_told(waits(world, "y"),
                "CheckpointInUse: claim disk is for the checkpoints of job z, which is not over"));
  CHECK(world.job("low").status.taken_back.preemptions == 0);
  CHECK(world.job("low").status.is_true("Running"));
  world.run_all_pods();
  world.settle();
  for (const auto& pod : world.pods()) {
    if (pod.meta.controller()->name == "z") world.end_pod(pod.meta.name, 0);
  }
  world.settle();
  CHECK(world.job("z").status.is_true("Complete"));
  CHECK(world.job("y").status.is_true("Admitted"));
}

TEST_CASE("a suspended job that never ran keeps no claim, and waits when it is resumed") {
  World world(test::seed());
  add_room_and_disk(world);
  world.create_job("a", 1, [](Json& job) {
    on_disk("/one")(job);
    job["spec"]["suspend"] = true;
  });
  world.clock.advance(seconds(1));
  world.create_job("b", 1, on_disk("/two"));
  world.settle();
  CHECK(world.job("b").status.is_true("Admitted"));
  set_suspend(world, "a", false);
  world.settle();
  CHECK(is_told(waits(world, "a"), "job b, which is not over"));
  world.run_all_pods();
  world.settle();
  world.end_pod(pod_names(world)[0], 0);
  world.settle();
  CHECK(world.job("a").status.is_true("Admitted"));
}

TEST_CASE("a suspended job that ran keeps its claim, until it is deleted or names another one") {
  World world(test::seed());
  let_two_share(world);
  tell_progress(world, "a");
  set_suspend(world, "a", true);
  world.settle();
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  REQUIRE(world.job("a").status.is_true("Suspended"));
  world.pass(seconds(70));
  CHECK(is_told(waits(world, "b"), "job a, which is suspended"));
  CHECK(world.pods().empty());
  SUBCASE("it is deleted") {
    REQUIRE(world.user->remove(api::Kind::kTrainingJob, {"default", "a"}, {}));
  }
  SUBCASE("it names another one") { name_other_claim(world); }
  world.settle();
  CHECK(world.job("b").status.is_true("Admitted"));
  CHECK(world.pods().size() == 1);
}

TEST_CASE("a job whose checkpoints are to be on a claim that is not there goes on with another") {
  constexpr const char* kNone = "there is no PersistentVolumeClaim other";
  World world(test::seed());
  add_room_and_disk(world);
  SUBCASE("before it has ever started") {
    world.create_job("a", 1, [](Json& job) {
      on_disk("/one")(job);
      job["spec"]["training"]["checkpoint"]["volumeClaimName"] = "other";
    });
    world.pass(seconds(5));
    CHECK(is_told(waits(world, "a"), kNone));
    name_claim(world, "disk");
  }
  SUBCASE("when it has trained with the right one") {
    world.create_job("a", 1, on_disk("/one"));
    world.settle();
    world.run_all_pods();
    world.settle();
    tell_progress(world, "a");
    set_suspend(world, "a", true);
    world.settle();
    world.reap(contract::exit_code::kPlannedLeave);
    world.settle();
    name_claim(world, "other");
    set_suspend(world, "a", false);
    world.pass(seconds(5));
    CHECK(is_told(waits(world, "a"), kNone));
    set_suspend(world, "a", true);
    world.settle();
    name_claim(world, "disk");
    set_suspend(world, "a", false);
  }
  CHECK(world.pods().empty());
  world.pass(seconds(5));
  CHECK(world.job("a").status.is_true("Admitted"));
  world.run_all_pods();
  world.settle();
  CHECK(world.job("a").status.is_true("Running"));
}

TEST_CASE("a claim is in use while workers of a deleted job leave, as long as they may") {
  World world(test::seed());
  let_two_share(world);
  world.pass(seconds(70));  // words alone are said anew once a minute
  REQUIRE(world.user->remove(api::Kind::kTrainingJob, {"default", "a"}, {}));
  world.settle();
  REQUIRE(world.pods().size() == 1);
  CHECK(is_told(waits(world, "b"), "claim disk is still in use by workers of job a"));
  SUBCASE("they are gone") { remove_pods(world); }
  SUBCASE("their node does not say so, long after they should have gone") {
    world.pass(seconds(120));
  }
  world.settle();
  CHECK(world.job("b").status.is_true("Admitted"));
}

TEST_CASE("workers that leave have the claim that they began with, whatever their job names now") {
  World world(test::seed());
  let_two_share(world);
  set_suspend(world, "a", true);
  world.settle();
  name_other_claim(world);
  world.settle();
  REQUIRE(world.pods().size() == 1);
  CHECK(waits(world, "b").starts_with("CheckpointInUse"));
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  CHECK(world.job("b").status.is_true("Admitted"));
}

TEST_CASE("a job that goes on with another claim has the old one until its lost workers are over") {
  World world(test::seed());
  let_two_share(world);
  world.add_node("spare", 8);
  add_claim(world, "other");
  set_suspend(world, "a", true);
  world.settle();
  name_other_claim(world);
  // Nobody waits for the pod of a node that is gone, but who would write the same files.
  REQUIRE(world.user->remove(api::Kind::kNode, {"", "local"}, {}));
  set_suspend(world, "a", false);
  world.settle();
  REQUIRE(world.job("a").status.placement.size() == 1);
  CHECK(world.job("a").status.placement[0].node == "spare");
  world.create_job("c", 1, [](Json& job) {
    on_disk("/one")(job);
    job["spec"]["training"]["checkpoint"]["volumeClaimName"] = "other";
  });
  world.settle();
  world.run_all_pods();
  world.settle();
  CHECK(waits(world, "b").starts_with("CheckpointInUse"));
  world.pass(seconds(150));
  CHECK(world.job("b").status.is_true("Admitted"));
  CHECK(world.job("a").status.is_true("Running"));
  CHECK(
      is_told(waits(world, "c"), "claim other is for the checkpoints of job a, which is not over"));
}

TEST_CASE("who waits for a claim holds up nobody in its queue") {
  World world(test::seed());
  add_room_and_disk(world);
  world.create_queue("research", 2);
  const auto in_queue = [](Json& job) { job["spec"]["queueName"] = "research"; };
  const auto on_disk_in_queue = [&](Json& job) {
    on_disk("/ckpt")(job);
    in_queue(job);
  };
  world.create_job("a", 1, on_disk_in_queue);
  world.clock.advance(seconds(1));
  world.create_job("b", 1, on_disk_in_queue);
  world.clock.advance(seconds(1));
  world.create_job("c", 1, in_queue);
  world.settle();
  CHECK(world.job("a").status.is_true("Admitted"));
  CHECK(waits(world, "b").starts_with("CheckpointInUse"));
  CHECK(world.job("c").status.is_true("Admitted"));
}
