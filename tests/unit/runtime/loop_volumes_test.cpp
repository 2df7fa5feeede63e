#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "operator/core/words.h"
#include "operator/runtime/loop.h"
#include "tests/unit/runtime/listed.h"

using namespace muster;

namespace {

/// Remembers the plans it was given.
class Recorder final : public runtime::Executor {
 public:
  void execute(runtime::Work work) override { works.push_back(std::move(work)); }
  void stop() override {}
  std::vector<runtime::Work> works;
};

struct VolumeFixture {
  ManualClock clock;  ///< a pass takes no time, so none is waited for
  runtime::Mailbox mailbox{100};
  Recorder recorder;

  runtime::LoopOptions options() {
    runtime::LoopOptions made = test::loop_options(clock, mailbox, recorder);
    made.sees_volumes = true;
    return made;
  }

  void list(api::Kind kind, const std::vector<std::string>& objects) {
    REQUIRE(mailbox.post(test::listed(kind, objects)));
  }

  void list_cluster() {
    std::vector<std::string> nodes;
    for (const std::string name : {"n1", "n2"}) {
      // n1 is the roomier one: without its volume slot 0 would go there.
      const std::string cpus = name == "n1" ? "8" : "4";
      nodes.push_back(
          R"({"metadata": {"name": ")" + name + R"(", "uid": "u-)" + name +
          R"(", "labels": {"host": ")" + name + R"("}}, "status": {"allocatable": {"cpu": ")" +
          cpus + R"(", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}})");
    }
    list(api::Kind::kNode, nodes);
    list(api::Kind::kPod, {});
    list(
        api::Kind::kTrainingJob,
        {R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "j", "namespace": "ns", "uid": "u",
      "resourceVersion": "1", "generation": 1},
      "spec": {"worker": {"count": 2, "command": ["x"], "resources": {"cpu": "1", "memory": "1Gi"},
        "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
        "volumeMounts": [{"name": "d", "mountPath": "/data"}]}}})"});
  }

  void list_claim() {
    list(api::Kind::kPersistentVolumeClaim, {R"({"metadata": {"name": "data", "namespace": "ns"},
      "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}})"});
  }

  std::vector<std::string> placed() const {
    std::vector<std::string> nodes;
    for (const auto& work : recorder.works) {
      for (const auto& action : work.plan.actions) {
        const auto* patch = std::get_if<core::PatchStatus>(&action);
        if (patch == nullptr) continue;
        for (const auto& slot : patch->status.placement) nodes.push_back(slot.node);
      }
    }
    return nodes;
  }
};

constexpr const char* kVolume = R"({"metadata": {"name": "v"}, "status": {"phase": "Bound"},
  "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
    {"matchExpressions": [{"key": "host", "operator": "In", "values": ["n2"]}]}]}}}})";

void list_without_claim(VolumeFixture& fixture) {
  fixture.list_cluster();
  fixture.list(api::Kind::kPersistentVolume, {kVolume});
  fixture.list(api::Kind::kPersistentVolumeClaim, {});
}

}  // namespace

TEST_CASE("nothing is decided before volumes and claims are known") {
  VolumeFixture fixture;
  runtime::OperatorLoop loop(fixture.options());
  fixture.list_cluster();
  loop.step();
  CHECK_FALSE(loop.synced());
  CHECK(fixture.recorder.works.empty());
  fixture.list(api::Kind::kPersistentVolume, {kVolume});
  loop.step();
  CHECK_FALSE(loop.synced());
  fixture.list_claim();
  loop.step();
  CHECK(loop.synced());
  CHECK(fixture.placed() == std::vector<std::string>{"n2", "n2"});
}

TEST_CASE("a claim that is seen right after its job was never missed") {
  VolumeFixture fixture;
  runtime::OperatorLoop loop(fixture.options());
  list_without_claim(fixture);
  loop.step();
  fixture.list_claim();
  loop.step();
  REQUIRE(fixture.recorder.works.size() == 1);
  CHECK(fixture.placed() == std::vector<std::string>{"n2", "n2"});
}

TEST_CASE("nor was it missed by a job that waits in a queue") {
  VolumeFixture fixture;
  runtime::LoopOptions options = fixture.options();
  options.sees_queues = true;
  runtime::OperatorLoop loop(std::move(options));
  fixture.list(api::Kind::kPriorityClass, {});
  fixture.list(api::Kind::kTrainingQueue,
               {R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue",
      "metadata": {"name": "default", "uid": "u-q", "resourceVersion": "1"},
      "spec": {"resources": [{"name": "cpu", "nominal": "8"}]}})"});
  list_without_claim(fixture);
  loop.step();
  const auto& works = fixture.recorder.works;
  CHECK(std::none_of(works.begin(), works.end(),
                     [](const runtime::Work& work) { return work.key.name == "j"; }));
  fixture.list_claim();
  loop.step();
  CHECK(fixture.placed() == std::vector<std::string>{"n2", "n2"});
}

TEST_CASE("a gang whose claim is not there waits, and is placed when the claim appears") {
  VolumeFixture fixture;
  runtime::OperatorLoop loop(fixture.options());
  list_without_claim(fixture);
  loop.step();
  // It may have been applied with the job, and be seen in a moment.
  CHECK(fixture.recorder.works.empty());
  fixture.clock.advance(core::words::kAppliedTogether);
  loop.step();
  REQUIRE(fixture.recorder.works.size() == 1);
  CHECK(fixture.placed().empty());
  CHECK(fixture.recorder.works[0].plan.reason.find("there is no PersistentVolumeClaim data") !=
        std::string::npos);
  // The waiting status was refused; meanwhile somebody makes the claim.
  runtime::ApplyDone done;
  done.key = {"ns", "j"};
  done.uid = "u";
  REQUIRE(fixture.mailbox.post(std::move(done)));
  fixture.list_claim();
  loop.step();
  CHECK(fixture.placed() == std::vector<std::string>{"n2", "n2"});
}
