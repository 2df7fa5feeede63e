// Gangs that change while they train, through the whole operator but without threads.
#include <doctest/doctest.h>

#include <set>

#include "common/contract.h"
#include "operator/core/words.h"
#include "tests/sim/engine_spec.h"
#include "tests/sim/world.h"
#include "tests/test_main.h"

using namespace muster;
using sim::World;

namespace {

void make_engine(Json& job) {
  job["spec"]["worker"].erase("command");
  job["spec"]["worker"]["min"] = 1;
  job["spec"]["worker"]["max"] = 4;
  job["spec"]["training"] = sim::engine_spec();
}

/// Every running worker says that all of them train together.
void all_train(World& world, std::int64_t epoch) {
  std::vector<int> members;
  for (const auto& pod : world.pods()) {
    if (pod.phase == api::PodPhase::kRunning) members.push_back(pod.slot());
  }
  std::sort(members.begin(), members.end());
  for (const auto& pod : world.pods()) {
    if (pod.phase != api::PodPhase::kRunning) continue;
    ProgressReport report;
    report.job = "default/digits";
    report.slot = pod.slot();
    report.attempt = pod.attempt();
    report.membership_epoch = epoch;
    report.members = members;
    report.changes = {{epoch, 5, "Joined", members.back(), "", 7}};
    REQUIRE(world.op->mailbox.post(report));
  }
  world.settle();
}

void train(World& world, int count) {
  world.add_node("local", 4);
  world.create_job("digits", count, make_engine);
  world.settle();
  world.run_all_pods();
  world.settle();
  all_train(world, 1);
  REQUIRE(world.job("digits").status.workers ==
          std::to_string(count) + "/" + std::to_string(count));
}

void set_count(World& world, int count) {
  const Json patch{{"spec", {{"worker", {{"count", count}}}}}};
  REQUIRE(world.user->merge_patch(api::Kind::kTrainingJob, {"default", "digits"}, "", patch));
  world.settle();
}

std::string name_of(const World& world, int slot) {
  for (const auto& pod : world.pods()) {
    if (pod.slot() == slot && !pod.ended() && !pod.meta.deletion_time) return pod.meta.name;
  }
  return "";
}

std::map<std::string, int> events(const World& world) {
  std::map<std::string, int> found;
  const auto page = world.user->list(api::Kind::kEvent, {"default", "", 0, ""});
  REQUIRE(page);
  for (const auto& event : page->items) ++found[event["reason"].get<std::string>()];
  return found;
}

}  // namespace

TEST_CASE(
    "a killed worker is replaced on its own, with two status writes, and no other pod moves") {
  World world(test::seed());
  train(world, 3);
  const std::string others = name_of(world, 0) + name_of(world, 2);
  const std::int64_t before = world.status_writes();
  world.end_pod(name_of(world, 1), 137);
  world.settle();
  CHECK(world.job("digits").status.workers == "2/3");
  const std::string joiner = name_of(world, 1);
  REQUIRE_FALSE(joiner.empty());
  const runtime::GangInfo gang = world.op->endpoint.gangs.at("default/digits");
  CHECK(gang.start_attempt == 0);
  CHECK(gang.attempt_of_slot == std::map<int, int>{{0, 0}, {1, 1}, {2, 0}});
  CHECK(gang.pod_of_slot.at(1).name == joiner);
  world.run_pod(joiner);
  world.settle();
  all_train(world, 3);
  const auto status = world.job("digits").status;
  CHECK(status.workers == "3/3");
  CHECK(status.restarts == 0);
  CHECK(status.replacements == 1);
  CHECK(status.is_true("Running"));
  CHECK(name_of(world, 0) + name_of(world, 2) == others);
  CHECK(world.status_writes() - before == 2);
  MESSAGE("status writes of a replacement: " << world.status_writes() - before);
  CHECK(events(world)["WorkerLost"] == 1);
  // Three workers told of each of two changes.
  CHECK(events(world)["WorkerJoined"] == 2);
}

TEST_CASE("the scale subresource grows and shrinks a gang that trains, with two writes each") {
  World world(test::seed());
  train(world, 2);
  const std::string first = name_of(world, 0);
  std::int64_t before = world.status_writes();
  set_count(world, 4);
  CHECK(world.pods().size() == 4);
  world.run_all_pods();
  world.settle();
  all_train(world, 4);
  auto status = world.job("digits").status;
  CHECK(status.workers == "4/4");
  CHECK(status.replicas == 4);
  CHECK(status.target_workers == 4);
  CHECK(world.status_writes() - before == 2);
  MESSAGE("status writes of a resize: " << world.status_writes() - before);
  before = world.status_writes();
  set_count(world, 1);
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  all_train(world, 5);
  status = world.job("digits").status;
  CHECK(status.workers == "1/1");
  CHECK(status.replicas == 1);
  CHECK(status.restarts == 0);
  CHECK(status.replacements == 0);
  CHECK_FALSE(status.failure.has_value());
  CHECK(world.status_writes() - before <= 2);
  CHECK(world.pods().size() == 1);
  CHECK(name_of(world, 0) == first);
  world.end_pod(first, 0);
  world.settle();
  CHECK(world.job("digits").status.is_true("Complete"));
}

TEST_CASE("what does not fit waits, and joins when there is room") {
  World world(test::seed());
  train(world, 2);
  world.create_job("other", 2);
  world.settle();
  set_count(world, 3);
  auto status = world.job("digits").status;
  CHECK(status.target_workers == 3);
  CHECK(status.condition("Running")->message.find("1 worker waits for a place") !=
        std::string::npos);
  CHECK(status.is_true("Running"));
  REQUIRE(world.user->remove(api::Kind::kTrainingJob, {"default", "other"}, {}));
  for (const auto& pod : world.pods()) {
    if (pod.meta.name.starts_with("other")) {
      (void)world.user->remove(api::Kind::kPod, pod.meta.key(), {"", 0});
    }
  }
  world.settle();
  // Room for a moment is none; and who waits to start comes before who only grows.
  CHECK(world.job("digits").status.placement.size() == 2);
  world.create_job("third", 2);
  world.settle();
  CHECK(world.job("third").status.placement.size() == 2);
  world.pass(core::words::kGrowAfter + seconds(1));
  CHECK(world.job("digits").status.placement.size() == 2);
  REQUIRE(world.user->remove(api::Kind::kTrainingJob, {"default", "third"}, {}));
  for (const auto& pod : world.pods()) {
    if (pod.meta.name.starts_with("third")) {
      (void)world.user->remove(api::Kind::kPod, pod.meta.key(), {"", 0});
    }
  }
  world.settle();
  world.pass(core::words::kGrowAfter - seconds(1));
  CHECK(world.job("digits").status.placement.size() == 2);
  world.pass(seconds(2));
  CHECK(world.job("digits").status.placement.size() == 3);
  CHECK_FALSE(name_of(world, 2).empty());
}

TEST_CASE("an elastic job has a disruption budget that follows min, and a rigid one has none") {
  World world(test::seed());
  train(world, 2);
  world.create_job("rigid", 1);
  world.settle();
  const auto budgets = [&] {
    const auto page = world.user->list(api::Kind::kPodDisruptionBudget, {"default", "", 0, ""});
    REQUIRE(page);
    return page->items;
  };
  REQUIRE(budgets().size() == 1);
  const Json budget = budgets().front();
  const api::TrainingJob job = world.job("digits");
  CHECK(budget["spec"]["minAvailable"] == 1);
  CHECK(budget["spec"]["selector"]["matchLabels"][std::string(contract::kLabelJobUid)] ==
        job.meta.uid);
  CHECK(budget["metadata"]["ownerReferences"][0]["uid"] == job.meta.uid);
  const auto set_min = [&](int min) {
    const Json patch{{"spec", {{"worker", {{"min", min}}}}}};
    REQUIRE(world.user->merge_patch(api::Kind::kTrainingJob, job.meta.key(), "", patch));
    world.settle();
  };
  const std::int64_t before = world.status_writes();
  set_min(2);
  CHECK(budgets().front()["spec"]["minAvailable"] == 2);
  // A fresh operator finds it as it should be, and changes it when asked to.
  const std::string version = budgets().front()["metadata"]["resourceVersion"];
  world.restart_operator();
  world.settle();
  CHECK(budgets().front()["metadata"]["resourceVersion"] == version);
  set_min(1);
  CHECK(budgets().front()["spec"]["minAvailable"] == 1);
  CHECK(world.status_writes() - before <= 2);  // that the generation was seen
  const Json rigid{{"spec", {{"worker", {{"min", 2}, {"max", 2}}}}}};
  REQUIRE(world.user->merge_patch(api::Kind::kTrainingJob, job.meta.key(), "", rigid));
  world.settle();
  CHECK(budgets().empty());
}

TEST_CASE("a budget that others have changed or taken away is set right again") {
  World world(test::seed());
  train(world, 2);
  constexpr auto kKind = api::Kind::kPodDisruptionBudget;
  const api::ObjectKey key{"default", api::service_name(world.job("digits"))};
  const auto left = [&] {
    const auto there = world.user->get(kKind, key);
    return there ? (*there)["spec"]["minAvailable"].get<int>() : 0;
  };
  REQUIRE(left() == 1);
  // As a leader before this one does whose write comes late.
  REQUIRE(world.user->merge_patch(kKind, key, "", Json{{"spec", {{"minAvailable", 7}}}}));
  world.pass(seconds(600));
  CHECK(left() == 1);
  REQUIRE(world.user->remove(kKind, key, {}));
  world.pass(seconds(600));
  CHECK(left() == 1);
  // It is not asked for at each look.
  const auto asked = [&] { return world.server.request_counts()["get poddisruptionbudgets"]; };
  const std::int64_t before = asked();
  REQUIRE(before > 0);
  for (int epoch = 2; epoch < 6; ++epoch) all_train(world, epoch);
  CHECK(asked() == before);
}

TEST_CASE("a budget that cannot be made holds nothing up, and is tried again later") {
  World world(test::seed());
  world.add_node("local", 4);
  const api::TrainingJob made = world.create_job("digits", 2, make_engine);
  const Json stranger{{"apiVersion", "policy/v1"},
                      {"kind", "PodDisruptionBudget"},
                      {"metadata", {{"name", api::service_name(made)}}},
                      {"spec", {{"minAvailable", 7}}}};
  REQUIRE(world.user->create(api::Kind::kPodDisruptionBudget, "default", stranger));
  world.settle();
  world.run_all_pods();
  world.settle();
  all_train(world, 1);
  CHECK(world.job("digits").status.workers == "2/2");
  const auto left = [&] {
    const auto there =
        world.user->get(api::Kind::kPodDisruptionBudget, {"default", api::service_name(made)});
    REQUIRE(there);
    return (*there)["spec"]["minAvailable"].get<int>();
  };
  CHECK(left() == 7);
  REQUIRE(world.user->remove(api::Kind::kPodDisruptionBudget, {"default", api::service_name(made)},
                             {}));
  world.pass(seconds(600));
  CHECK(left() == 1);
}

TEST_CASE("a fresh operator replaces what was lost while none was there, without a restart") {
  World world(test::seed());
  train(world, 3);
  const std::string lost = name_of(world, 2);
  REQUIRE(world.user->remove(api::Kind::kPod, {"default", lost}, {"", 0}));
  world.restart_operator();
  world.settle();
  const auto status = world.job("digits").status;
  CHECK(status.restarts == 0);
  CHECK(status.replacements == 1);
  CHECK_FALSE(name_of(world, 2).empty());
  CHECK(name_of(world, 2) != lost);
  CHECK(world.op->endpoint.gangs.at("default/digits").start_attempt == 0);
}

TEST_CASE(
    "two nodes of one gang are lost together: the others train on, and both places are filled") {
  World world(test::seed());
  for (const char* name : {"a", "b", "c", "d", "e", "f"}) world.add_node(name, 1);
  world.create_job("digits", 4, make_engine);
  world.settle();
  world.run_all_pods();
  world.settle();
  all_train(world, 1);
  REQUIRE(world.job("digits").status.workers == "4/4");
  const std::string others = name_of(world, 0) + name_of(world, 1);
  const auto before = world.job("digits").status.placement;
  const Json silent{{"type", "Ready"}, {"status", "Unknown"}};
  for (const int slot : {2, 3}) {
    REQUIRE(world.user->merge_patch(api::Kind::kNode,
                                    {"", before[static_cast<std::size_t>(slot)].node}, "status",
                                    Json{{"status", {{"conditions", Json::array({silent})}}}}));
  }
  world.pass(seconds(60));
  const auto status = world.job("digits").status;
  CHECK(status.restarts == 0);
  CHECK(status.replacements == 2);
  REQUIRE(status.placement.size() == 4);
  std::set<std::string> nodes;
  for (const auto& place : status.placement) nodes.insert(place.node);
  CHECK(nodes.size() == 4);
  CHECK_FALSE(nodes.contains(before[2].node));
  CHECK_FALSE(nodes.contains(before[3].node));
  CHECK(name_of(world, 0) + name_of(world, 1) == others);
}

TEST_CASE("a node is drained under a gang of its least size: a spare comes first, and goes again") {
  bool by_taint = false;
  SUBCASE("by a cordon") {}
  SUBCASE("by a taint alone") { by_taint = true; }
  World world(test::seed());
  for (const char* name : {"a", "b", "c"}) world.add_node(name, 1);
  const api::TrainingJob made = world.create_job("digits", 2, [](Json& job) {
    make_engine(job);
    job["spec"]["worker"]["min"] = 2;
  });
  world.settle();
  world.run_all_pods();
  world.settle();
  all_train(world, 1);
  const auto left_by_drains = [&] {
    const auto budget =
        world.user->get(api::Kind::kPodDisruptionBudget, {"default", api::service_name(made)});
    REQUIRE(budget);
    return (*budget)["spec"]["minAvailable"].get<int>();
  };
  const auto close_node = [&](const std::string& node, bool on) {
    const Json taint{{"key", "ToBeDeletedByClusterAutoscaler"}, {"effect", "NoSchedule"}};
    Json spec{{"unschedulable", on}};
    if (by_taint) spec = Json{{"taints", on ? Json::array({taint}) : Json::array()}};
    REQUIRE(world.user->merge_patch(api::Kind::kNode, {"", node}, "", Json{{"spec", spec}}));
    world.settle();
  };
  const std::string drained = world.job("digits").status.placement[1].node;
  const std::int64_t before = world.status_writes();
  close_node(drained, true);
  if (!by_taint) {
    world.pass(core::words::kCordonedFor - seconds(1));
    CHECK(world.pods().size() == 2);
    world.pass(seconds(2));
  }
  REQUIRE(world.pods().size() == 3);
  CHECK(left_by_drains() == 3);
  world.run_all_pods();
  world.settle();
  CHECK(left_by_drains() == 3);
  all_train(world, 3);
  CHECK(left_by_drains() == 2);
  CHECK(world.job("digits").status.workers == "3/2");
  CHECK(world.status_writes() - before == 2);
  // The eviction; there is no other room, so the spare stands in until the node is back.
  REQUIRE(world.user->remove(api::Kind::kPod, {"default", name_of(world, 1)}, {"", -1}));
  world.settle();
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  all_train(world, 4);
  world.pass(seconds(120));
  CHECK(world.pods().size() == 2);
  CHECK(world.job("digits").status.workers == "2/2");
  world.restart_operator();
  close_node(drained, false);
  world.settle();
  REQUIRE(world.pods().size() == 3);
  world.run_all_pods();
  world.settle();
  all_train(world, 5);
  world.pass(core::words::kSpareFor - seconds(1));
  CHECK(name_of(world, 2) != "");
  world.pass(seconds(2));
  CHECK(name_of(world, 2) == "");
  world.reap(contract::exit_code::kPlannedLeave);
  world.settle();
  all_train(world, 6);
  const auto status = world.job("digits").status;
  CHECK(status.workers == "2/2");
  CHECK(status.placement.size() == 2);
  CHECK(status.restarts == 0);
  CHECK(left_by_drains() == 2);
  const std::int64_t at_rest = world.status_writes();
  world.pass(seconds(300));
  CHECK(world.status_writes() == at_rest);
}

TEST_CASE("the witness answers when its yes is stored, and the other side hears no") {
  World world(test::seed());
  train(world, 2);
  std::vector<std::string> said;
  const auto ask = [&](int slot) {
    WitnessRequest request{"default/digits", slot, 0, 1, 2, {slot}};
    REQUIRE(world.op->mailbox.post(runtime::WitnessPost{
        request, [&](const Result<WitnessResponse>& answer) {
          said.push_back(!answer ? answer.error().message() : answer->granted ? "yes" : "no");
        }}));
  };
  ask(1);
  ask(0);
  world.settle();
  CHECK(said == std::vector<std::string>{"yes", "no"});
  CHECK(world.job("digits").status.witness->members == std::vector<int>{0});
  world.restart_operator();
  world.settle();
  ask(0);
  world.settle();
  CHECK(said.back() == "yes");
  // Of a job that is gone nobody is left without an answer.
  ask(1);
  REQUIRE(world.user->remove(api::Kind::kTrainingJob, {"default", "digits"}, {}));
  world.settle();
  CHECK(said.size() == 4);
}
