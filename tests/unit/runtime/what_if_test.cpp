// The loop over a cluster that was read once: what it heeds of the objects there.
#include "operator/runtime/what_if.h"

#include <doctest/doctest.h>

#include "tests/unit/runtime/listed.h"

using namespace muster;

namespace {

const WallTime kReadAt{seconds(1'700'000'000)};

/// Four nodes whose only labels nobody knows by itself, and a gang that must stay within a rack.
struct UnknownLabels {
  UnknownLabels() {
    for (const auto& [name, rack] :
         {std::pair{"n1", "left"}, {"n2", "right"}, {"n3", "left"}, {"n4", "right"}}) {
      const Json ready{{"type", "Ready"}, {"status", "True"}};
      put("v1", "Node", name,
          {{"metadata", {{"labels", {{"example.com/place", rack}}}}},
           {"status",
            {{"allocatable", {{"cpu", "2"}, {"memory", "8Gi"}, {"pods", "9"}}},
             {"conditions", Json::array({ready})}}}});
    }
    put("muster.dev/v1alpha1", "TrainingJob", "gang",
        {{"metadata", {{"namespace", "lab"}}},
         {"spec",
          {{"topology", {{"required", "rack"}}},
           {"worker", {{"count", 4}, {"command", Json::array({"train"})}}}}}});
  }

  void put(const char* api_version, const char* kind, const char* name, Json rest) {
    Json object{{"apiVersion", api_version},
                {"kind", kind},
                {"metadata",
                 {{"name", name}, {"uid", std::string("uid-") + name}, {"resourceVersion", "1"}}}};
    object.merge_patch(rest);
    CHECK(what_if.put(std::move(object)));
  }

  std::string places() {
    what_if.run(seconds(20));
    std::string text;
    const auto job = what_if.job({"lab", "gang"});
    for (const auto& slot : job->status.placement) text += slot.node + " ";
    return text;
  }
  std::string why() {
    const auto job = what_if.job({"lab", "gang"});
    const api::Condition* admitted = job->status.condition("Admitted");
    return admitted == nullptr ? "" : admitted->message;
  }

  runtime::WhatIf what_if{kReadAt};
};

TEST_CASE("labels that nobody knows by itself say nothing") {
  UnknownLabels cluster;
  CHECK(cluster.places().empty());
  CHECK(cluster.why().find("no node says in which it stands") != std::string::npos);
}

TEST_CASE("a TopologyConfig, Kueue's or KAI's Topology or HyperNodes tell where nodes stand") {
  UnknownLabels cluster;
  std::string source;
  SUBCASE("TopologyConfig") {
    source = "TopologyConfig own";
    cluster.put("muster.dev/v1alpha1", "TopologyConfig", "own",
                {{"spec",
                  {{"levels",
                    Json::array({Json{{"name", "rack"}, {"nodeLabel", "example.com/place"}}})}}}});
  }
  SUBCASE("Kueue") {
    source = "Kueue Topology own";
    cluster.put("kueue.x-k8s.io/v1beta2", "Topology", "own",
                {{"spec", {{"levels", Json::array({Json{{"nodeLabel", "example.com/place"}}})}}}});
  }
  SUBCASE("KAI") {
    source = "KAI Topology own";
    cluster.put("kai.scheduler/v1alpha1", "Topology", "own",
                {{"spec", {{"levels", Json::array({Json{{"nodeLabel", "example.com/place"}}})}}}});
  }
  SUBCASE("Volcano") {
    source = "HyperNode";
    for (const auto& [name, first, second] :
         {std::tuple{"left", "n1", "n3"}, {"right", "n2", "n4"}}) {
      Json members = Json::array();
      for (const char* node : {first, second}) {
        members.push_back({{"type", "Node"}, {"selector", {{"exactMatch", {{"name", node}}}}}});
      }
      cluster.put("topology.volcano.sh/v1alpha1", "HyperNode", name,
                  {{"spec", {{"tier", 1}, {"members", members}}}});
    }
  }
  CHECK(cluster.places() == "n1 n1 n3 n3 ");
  CHECK_MESSAGE(cluster.why().find(source) != std::string::npos, cluster.why());
}

TEST_CASE("a gang that has its places is left alone while nothing happens") {
  runtime::WhatIf what_if{kReadAt};
  const auto put = [&](Json object) { CHECK(what_if.put(std::move(object))); };
  const auto put_node = [&](const char* name, int cpus) {
    const Json ready{{"type", "Ready"}, {"status", "True"}};
    put({{"apiVersion", "v1"},
         {"kind", "Node"},
         {"metadata", {{"name", name}}},
         {"status",
          {{"allocatable", {{"cpu", std::to_string(cpus)}, {"memory", "8Gi"}, {"pods", "9"}}},
           {"conditions", Json::array({ready})}}}});
  };
  // One of its three workers trains.
  Json job = *parse_json(R"({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob",
    "metadata": {"name": "gang", "namespace": "lab", "uid": "u", "resourceVersion": "1",
      "generation": 1},
    "spec": {"worker": {"count": 3, "min": 1},
      "training": {"steps": 5, "model": {"mlp": {"hidden": [3]}},
        "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
        "optimizer": {"sgd": {"learningRate": "1"}}}},
    "status": {"membershipEpoch": 1, "targetWorkers": 1, "startAttempt": 0, "replicas": 1,
      "conditions": [{"type": "Running", "status": "True", "reason": "GangRunning",
        "lastTransitionTime": "2023-01-01T00:00:00Z"}],
      "placement": [{"slot": 0, "attempt": 0, "node": "n1", "member": true}]}})");
  Json pod = api::to_json(api::make_pod(api::read_training_job(job).first, {0, 0, "n1", ""}, {}));
  pod["metadata"]["uid"] = "u-pod";
  pod["spec"]["nodeName"] = "n1";
  pod["status"] = {{"phase", "Running"}};
  put(std::move(job));
  put(std::move(pod));
  put_node("n1", 2);
  ProgressReport report;
  report.job = "lab/gang";
  report.step = 1;
  report.total_steps = 100;
  report.membership_epoch = 1;
  report.members = {0};
  what_if.run(seconds(1));
  what_if.report(report);
  // It is given the others one soon after the other.
  what_if.run(seconds(10));
  put_node("n2", 1);
  what_if.run(seconds(120));
  CHECK(what_if.job({"lab", "gang"})->status.placement.size() == 3);
  CHECK(what_if.run(seconds(24 * 3600)) < 20);
}

/// Hands that only remember.
struct Remembering final : runtime::Executor {
  std::vector<std::string> reasons;
  runtime::ApplyDone last;  ///< what was asked for last, carried out
  void execute(runtime::Work work) override {
    reasons.push_back(work.plan.reason);
    last = {};
    last.key = work.key;
    last.uid = work.uid;
    last.pass = work.plan.pass;
  }
  void stop() override {}
};

TEST_CASE("two jobs: the second one keeps off the uplinks that the first one uses") {
  runtime::WhatIf what_if{kReadAt};
  const auto put = [&](const char* api_version, const char* kind, const std::string& name,
                       Json rest) {
    Json object{{"apiVersion", api_version},
                {"kind", kind},
                {"metadata", {{"name", name}, {"uid", "uid-" + name}, {"resourceVersion", "1"}}}};
    object.merge_patch(rest);
    CHECK(what_if.put(std::move(object)));
  };
  for (int i = 10; i < 22; ++i) {
    const Json ready{{"type", "Ready"}, {"status", "True"}};
    put("v1", "Node", "n" + std::to_string(i),
        {{"metadata", {{"labels", {{"example.com/rack", "r" + std::to_string((i - 10) / 3)}}}}},
         {"status",
          {{"allocatable", {{"cpu", "2"}, {"memory", "8Gi"}, {"pods", "9"}}},
           {"conditions", Json::array({ready})}}}});
  }
  put("muster.dev/v1alpha1", "TopologyConfig", "own",
      {{"spec",
        {{"levels", Json::array({Json{{"name", "rack"},
                                      {"nodeLabel", "example.com/rack"},
                                      {"oversubscription", "4"}}})}}}});
  const auto submit = [&](const std::string& name) {
    put("muster.dev/v1alpha1", "TrainingJob", name,
        {{"metadata", {{"namespace", "lab"}}},
         {"spec",
          {{"worker",
            {{"count", 4},
             {"command", Json::array({"train"})},
             {"resources", {{"cpu", "1500m"}}}}}}}});
    what_if.run(seconds(20));
    std::string nodes;
    const auto job = what_if.job({"lab", name});
    for (const auto& slot : job->status.placement) nodes += slot.node;
    return nodes;
  };
  // Racks of three hosts, a worker on each: one rack and a host of another.
  CHECK(submit("first") == "n10n11n12n13");
  // The second rack would be the tightest for the last worker.
  CHECK(submit("second") == "n16n17n18n19");
  const auto job = what_if.job({"lab", "second"});
  const api::Condition* admitted = job->status.condition("Admitted");
  REQUIRE(admitted != nullptr);
  CHECK(admitted->message.find("lab/first uses") != std::string::npos);
}

TEST_CASE("who asks for topology waits until all that tells of it is known") {
  ManualClock clock;
  runtime::Mailbox mailbox(100);
  Remembering hands;
  runtime::LoopOptions options;
  options.clock = &clock;
  options.mailbox = &mailbox;
  options.executor = &hands;
  options.sees_topologies = true;
  runtime::OperatorLoop loop(options);
  const auto list = [&](api::Kind kind, const Json& object) {
    std::vector<Json> objects;
    if (!object.is_null()) objects.push_back(object);
    CHECK(mailbox.post(test::listed(kind, std::move(objects))));
  };
  const Json metadata{{"name", "gang"}, {"namespace", "lab"}, {"uid", "u"}};
  list(api::Kind::kTrainingJob, {{"apiVersion", "muster.dev/v1alpha1"},
                                 {"kind", "TrainingJob"},
                                 {"metadata", metadata},
                                 {"spec",
                                  {{"topology", {{"preferred", "rack"}}},
                                   {"worker", {{"command", Json::array({"train"})}}}}}});
  list(api::Kind::kPod, nullptr);
  list(api::Kind::kNode, nullptr);
  (void)loop.step();
  for (std::size_t i = 0; i + 1 < runtime::TopologyBook::kKinds.size(); ++i) {
    list(runtime::TopologyBook::kKinds[i], nullptr);
    (void)loop.step();
  }
  CHECK(hands.reasons.empty());
  SUBCASE("in silence") {
    list(runtime::TopologyBook::kKinds.back(), nullptr);
    (void)loop.step();
    CHECK(hands.reasons.size() == 1);
  }
  SUBCASE("and is told after a while of what is not") {
    clock.advance(seconds(29));
    CHECK(loop.step() == clock.mono_now() + seconds(1));
    CHECK(hands.reasons.empty());
    clock.advance(seconds(1));
    CHECK(loop.step() > clock.mono_now());
    REQUIRE(hands.reasons.size() == 1);
    CHECK(hands.reasons[0].starts_with(
        "spec.topology: the operator could not list hypernodes (topology.volcano.sh/v1alpha1) "));
    CHECK(mailbox.post(hands.last));
    list(runtime::TopologyBook::kKinds.back(), nullptr);
    (void)loop.step();
    REQUIRE(hands.reasons.size() == 2);
    CHECK(hands.reasons[1].find("could not list") == std::string::npos);
  }
}

TEST_CASE("what is not seen is not waited for") {
  ManualClock clock;
  runtime::Mailbox mailbox(100);
  Remembering hands;
  runtime::OperatorLoop loop(test::loop_options(clock, mailbox, hands));
  for (const auto kind : {api::Kind::kTrainingJob, api::Kind::kPod, api::Kind::kNode}) {
    CHECK(mailbox.post(test::listed(kind, std::vector<Json>{})));
  }
  clock.advance(seconds(31));
  CHECK(loop.step() > clock.mono_now());
}

TEST_CASE("a TopologyConfig that cannot be used is named to who asks for topology") {
  UnknownLabels cluster;
  // As an older schema may have let it in.
  cluster.put("muster.dev/v1alpha1", "TopologyConfig", "own", {{"spec", {{"levels", 7}}}});
  CHECK(cluster.places().empty());
  CHECK_MESSAGE(cluster.why().find("passed over: TopologyConfig own: spec.levels: must be") !=
                    std::string::npos,
                cluster.why());
}

TEST_CASE("a TopologyConfig that comes later is heeded") {
  UnknownLabels cluster;
  CHECK(cluster.places().empty());
  cluster.put(
      "muster.dev/v1alpha1", "TopologyConfig", "own",
      {{"spec",
        {{"levels", Json::array({Json{{"name", "rack"}, {"nodeLabel", "example.com/place"}}})}}}});
  CHECK(cluster.places() == "n1 n1 n3 n3 ");
}

}  // namespace
