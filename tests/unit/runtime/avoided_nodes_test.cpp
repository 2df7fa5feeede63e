#include "operator/runtime/avoided_nodes.h"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/api/pod.h"
#include "operator/core/words.h"
#include "operator/runtime/loop.h"
#include "tests/unit/runtime/listed.h"

using namespace muster;
using runtime::AvoidedNodes;

namespace {

constexpr MonoTime kStart{std::chrono::hours(1)};

const auto kIsThere = [](const std::string&) { return true; };

/// For how long the node is avoided when it fails now; it is over then.
seconds avoided_for(AvoidedNodes& avoided, int attempt, MonoTime& now) {
  avoided.add({{"n", attempt}}, now);
  const MonoTime end = avoided.next_end().value();
  CHECK(avoided.at(end - seconds(1)) == std::set<std::string>{"n"});
  CHECK(avoided.at(end).empty());
  CHECK_FALSE(avoided.end_those_over(end - seconds(1)));
  CHECK(avoided.end_those_over(end));
  CHECK_FALSE(avoided.end_those_over(end));
  const auto span = std::chrono::floor<seconds>(end - now);
  now = end;
  return span;
}

}  // namespace

TEST_CASE("a node that fails again is avoided for twice as long, an hour at most") {
  AvoidedNodes avoided;
  MonoTime now = kStart;
  int attempt = 5;
  for (const int span : {120, 240, 480, 960, 1920, 3840, 3840}) {
    // The others of the gang run meanwhile, one beside it that was placed with it.
    CHECK(avoided_for(avoided, attempt, now) == seconds(span));
    avoided.forget({{"m", attempt + 1}, {"n", attempt}}, kIsThere, now);
    now += std::chrono::hours(1);
    ++attempt;
  }
}

TEST_CASE("a node is forgiven by a worker that came after the one that failed and runs there") {
  AvoidedNodes avoided;
  MonoTime now = kStart;
  avoided_for(avoided, 5, now);
  avoided.forget({{"n", 6}}, kIsThere, now);
  // Who failed has no other place yet, and is told of all the while.
  avoided.add({{"n", 5}}, now);
  CHECK(avoided.at(now).empty());
  CHECK(avoided_for(avoided, 7, now) == seconds(120));
  SUBCASE("is not there any more") {
    avoided.forget({}, [](const std::string&) { return false; }, now);
  }
  SUBCASE("a day ago") { avoided.forget({}, kIsThere, now + std::chrono::hours(24)); }
  CHECK(avoided.empty());
}

TEST_CASE("a plan that is made again tells of no other failure") {
  AvoidedNodes avoided;
  CHECK(avoided.add({{"n", 5}}, kStart));
  CHECK_FALSE(avoided.add({{"n", 5}}, kStart + seconds(1)));
  CHECK(avoided.next_end() == kStart + seconds(120));
  // Nobody is forgiven while it is avoided.
  avoided.forget({{"n", 6}}, kIsThere, kStart + seconds(1));
  CHECK(avoided.at(kStart + seconds(1)).size() == 1);
  avoided.add({{"n", 6}}, kStart + seconds(2));
  CHECK(avoided.next_end() == kStart + seconds(242));
  // Who waits for another place must come to this one in the end, where there is no other.
  CHECK(avoided.end_those_over(kStart + seconds(242)));
  avoided.add({{"n", 6}}, kStart + seconds(243));
  CHECK(avoided.at(kStart + seconds(243)).empty());
}

namespace {

/// Job a trains on node m; its second worker finds room on node n alone, which starts no pod, or
/// takes none. What the loop plans is carried out, and it sees that.
struct BrokenNode {
  class Plans final : public runtime::Executor {
   public:
    void execute(runtime::Work work) override { works.push_back(std::move(work)); }
    void stop() override {}
    std::vector<runtime::Work> works;
  };

  BrokenNode() {
    const auto node = [](const std::string& name) {
      return R"({"metadata": {"name": ")" + name + R"(", "uid": "u-)" + name + R"("}, "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi"},
        "conditions": [{"type": "Ready", "status": "True"}]}})";
    };
    job = *parse_json(R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": "a", "namespace": "ns", "uid": "u-a", "generation": 1},
      "spec": {"worker": {"count": 2, "min": 1, "resources": {"cpu": "3"}},
        "training": {"steps": 5, "model": {"mlp": {"hidden": [3]}}, "data": {"train": {
        "idx": {"images": "a", "labels": "b"}}}, "optimizer": {"sgd": {"learningRate": "1"}}}},
      "status": {"membershipEpoch": 2, "targetWorkers": 2, "startAttempt": 0,
        "conditions": [{"type": "Running", "status": "True", "reason": "x",
                        "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "placement": [{"slot": 0, "attempt": 0, "node": "m", "member": true},
                      {"slot": 1, "attempt": 1, "node": "n"}]}})");
    options = test::loop_options(clock, mailbox, plans);
    options.pod_start_timeout = seconds(600);
    loop.emplace(options);
    REQUIRE(mailbox.post(
        test::listed(api::Kind::kNode, std::vector<std::string>{node("m"), node("n")})));
  }

  /// Pods are there as status says that they are to be.
  void show() {
    job["metadata"]["resourceVersion"] = std::to_string(++version);
    const auto read = api::read_training_job(job).first;
    std::vector<Json> pods;
    for (const auto& placement : read.status.placement) {
      Json pod = api::to_json(api::make_pod(read, placement, {}));
      pod["metadata"]["uid"] = pod["metadata"]["name"];
      pod["spec"]["nodeName"] = placement.node;
      pod["status"]["phase"] = placement.slot == 0 ? "Running" : phase_on_n;
      pods.push_back(std::move(pod));
    }
    REQUIRE(mailbox.post(test::listed(api::Kind::kPod, std::move(pods))));
    REQUIRE(mailbox.post(test::listed(api::Kind::kTrainingJob, std::vector<Json>{job})));
  }

  /// All that comes of it that so much time is over.
  void pass(seconds time) {
    clock.advance(time);
    show();
    for (int turn = 0; turn < 20; ++turn) {
      loop->step();
      for (const runtime::Work& work : std::exchange(plans.works, {})) {
        runtime::ApplyDone done;
        done.key = work.key;
        done.uid = "u-a";
        done.pass = work.plan.pass;
        for (const auto& action : work.plan.actions) {
          const auto* patch = std::get_if<core::PatchStatus>(&action);
          if (patch == nullptr) continue;
          job["status"] = api::status_to_json(patch->status);
          done.version_before = std::to_string(version);
          done.version_after = std::to_string(version + 1);
          show();
        }
        REQUIRE(mailbox.post(std::move(done)));
      }
    }
  }

  /// Whether worker 1 has a place, so long after the last look.
  bool has_place_after(seconds time) {
    pass(time);
    return job["status"]["placement"].size() == 2;
  }

  ManualClock clock;
  runtime::Mailbox mailbox{100};
  Plans plans;
  runtime::LoopOptions options;
  std::optional<runtime::OperatorLoop> loop;
  Json job;
  const char* phase_on_n = "Pending";
  int version = 0;
};

}  // namespace

TEST_CASE("a node that starts no worker is left out longer each time while the others train on") {
  BrokenNode world;
  CHECK(world.has_place_after(seconds(0)));
  for (const int span : {120, 240, 480}) {
    CHECK(world.has_place_after(seconds(599)));
    CHECK_FALSE(world.has_place_after(seconds(1)));
    CHECK_FALSE(world.has_place_after(seconds(span - 1)));
    // The room has to last for a moment before it is grown into.
    world.has_place_after(seconds(1));
    CHECK(world.has_place_after(core::words::kGrowAfter));
  }
}

TEST_CASE("a node that turned a worker away is left out no longer for what the others do") {
  BrokenNode world;
  world.phase_on_n = "Failed";
  const auto attempt = [&] { return world.job["status"]["placement"][1]["attempt"].get<int>(); };
  world.pass(seconds(0));
  CHECK(attempt() == 1);
  // Members come and go meanwhile, each time with another epoch.
  for (const int epoch : {3, 4}) {
    world.job["status"]["membershipEpoch"] = epoch;
    world.pass(core::words::kAvoidFor / 2 - seconds(1));
    CHECK(attempt() == 1);
  }
  world.pass(seconds(2));
  CHECK(attempt() > 1);
}
