// Queues: what each job is told, whose turn it is, who may borrow.
#include "operator/core/queue.h"

#include <doctest/doctest.h>

#include "common/contract.h"
#include "operator/core/kept_room.h"
#include "operator/core/queue_pass.h"
#include "operator/core/queue_words.h"
#include "tests/unit/core/queue_world.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

TEST_CASE("a queue starts no more than its quota, the older job first") {
  QueueWorld world;
  world.queues = {make_queue("research", 8)};
  world.add_node("a", 32);
  world.add_job("a", "research", 5);
  world.add_job("b", "research", 3);
  world.add_job("c", "research", 1);
  CHECK(world.why("c").starts_with("1st in queue research: "));
  CHECK(world.pass() == 2);
  CHECK(world.runs("a"));
  CHECK(world.runs("b"));
  CHECK(world.why("c") ==
        "1st in queue research: needs 1 nvidia.com/gpu of the queue's quota, and 0 may be taken "
        "now; its jobs hold 8, nominal are 8");
  world.end("b");
  CHECK(world.pass() == 1);
  CHECK(world.runs("c"));
}

TEST_CASE("pods whose job is gone hold the quota of the queue that they name, where they may") {
  const auto make = [](const std::string& name, const std::string& uid, const std::string& queue) {
    api::Pod pod;
    pod.meta.name = name;
    pod.meta.namespace_name = "team";
    pod.meta.owner_references.push_back({std::string(contract::kApiVersion),
                                         std::string(contract::kKindTrainingJob), "a", uid, true});
    pod.meta.labels[std::string(contract::kLabelQueue)] = queue;
    pod.requests.cpu_millis = 500;
    pod.requests.devices[kGpu] = 2;
    return pod;
  };
  std::vector<Queue> queues{make_queue("research", 8), make_queue("others", 8)};
  queues[1].namespaces = {"elsewhere"};
  api::Pod larger = make("a-1", "u1", "research");
  larger.requests.cpu_millis = 700;  // a webhook has added to it
  const std::vector<api::Pod> pods{make("a-0", "u1", "research"),      larger,
                                   make("a-2", "u2", "research"),      make("a-3", "u3", "others"),
                                   make("a-4", "u4", "no such queue"), api::Pod{}};
  std::vector<const api::Pod*> all;
  for (const auto& pod : pods) all.push_back(&pod);
  const auto holders = holders_of_gone(all, queues);
  REQUIRE(holders.size() == 2);
  CHECK(holders[0].uid == "u1");
  CHECK(holders[1].uid == "u2");
  for (const QueueHolder& holder : holders) {
    CHECK(holder.job == api::ObjectKey{"team", "a"});
    CHECK(holder.turn.queue == "research");
    CHECK(amounts_of(holder.per_worker).at(kGpu) == 2);
    CHECK(holder.workers() == 0);
    CHECK_FALSE(holder.comes_back);
  }
  CHECK(amounts_of(holders[0].per_worker).at("cpu") == 700);
}

TEST_CASE("places beyond spec.worker.max hold nothing of a queue, unless they have a pod") {
  api::TrainingJob job;
  job.meta.name = "j";
  job.meta.uid = "u-j";
  job.spec.worker.count = job.spec.worker.max = 2;
  for (int slot = 0; slot < 9; ++slot) job.status.placement.push_back({slot, 0, "n", ""});
  api::Pod pod;
  pod.meta.name = api::pod_name(job, 8, 0);
  std::vector<const api::Pod*> pods;
  const auto slots = [&] {
    const auto holder = holder_of(job, {"research", 0, {}}, job.status.placement, pods, {});
    REQUIRE(holder);
    CHECK(holder->leaving.empty());
    return holder->slots.size();
  };
  CHECK(slots() == 2);
  pods.push_back(&pod);
  CHECK(slots() == 3);
}

TEST_CASE("the higher priority of a queue comes first, however young") {
  QueueWorld world;
  world.queues = {make_queue("research", 2)};
  world.add_node("a", 32);
  world.add_job("old", "research", 2);
  world.add_job("high", "research", 2).gang.turn.priority = 10;
  world.pass();
  CHECK(world.runs("high"));
  CHECK(world.why("old").starts_with("1st in queue research: needs 2 nvidia.com/gpu"));
}

TEST_CASE("a queue borrows what its cohort does not use, up to its limit") {
  QueueWorld world;
  world.queues = {make_queue("a", 4, "lab"), make_queue("b", 4, "lab")};
  world.queues[0].quota[0].borrowing_limit = 2;
  world.add_node("n", 32);
  for (int i = 0; i < 8; ++i) world.add_job("a" + std::to_string(i), "a", 1);
  CHECK(world.pass() == 6);
  CHECK(world.held("a", kGpu) == 6);
  CHECK(world.why("a6") ==
        "1st in queue a: needs 1 nvidia.com/gpu of the queue's quota, and 0 may be taken now; its "
        "jobs hold 6, nominal are 4 and at most 6");
  world.add_job("b0", "b", 3);
  CHECK(world.pass() == 0);
  CHECK(
      world.why("b0") ==
      "1st in queue b: needs 3 nvidia.com/gpu of the queue's quota, and 2 may be taken now; its "
      "jobs hold 0, nominal are 4 and at most 8; in cohort lab borrow: a 2; its quota would do for "
      "spec.worker.min 2; room is made for it: team/a0 is preempted");
}

TEST_CASE("what a queue does not lend is there for its own jobs") {
  QueueWorld world;
  world.queues = {make_queue("a", 4, "lab"), make_queue("b", 4, "lab")};
  world.queues[1].quota[0].lending_limit = 1;
  world.add_node("n", 32);
  for (int i = 0; i < 8; ++i) world.add_job("a" + std::to_string(i), "a", 1);
  CHECK(world.pass() == 5);
  world.add_job("b", "b", 3);
  CHECK(world.pass() == 1);
}

TEST_CASE("who stays within its quota comes before a borrower of higher priority") {
  QueueWorld world;
  world.queues = {make_queue("a", 2, "lab"), make_queue("b", 2, "lab")};
  world.add_node("n", 32);
  world.add_job("greedy", "a", 4).gang.turn.priority = 100;
  world.add_job("own", "b", 2);
  CHECK(world.pass() == 1);
  CHECK(world.runs("own"));
}

TEST_CASE("what is lent goes to borrowers by weight, not by who asked first") {
  QueueWorld world;
  world.queues = {make_queue("a", 0, "lab"), make_queue("b", 0, "lab"),
                  make_queue("idle", 12, "lab")};
  world.queues[1].weight = 2;
  world.add_node("n", 32);
  for (int i = 0; i < 12; ++i) world.add_job("a" + std::to_string(i), "a", 1);
  for (int i = 0; i < 12; ++i) world.add_job("b" + std::to_string(i), "b", 1);
  world.pass();
  CHECK(world.held("a", kGpu) == 4);
  CHECK(world.held("b", kGpu) == 8);
}

TEST_CASE("the share is that of the resource a queue takes most of") {
  QueueWorld world;
  world.queues = {make_queue("gpus", 0, "lab"), make_queue("cpus", 0, "lab"),
                  make_queue("idle", 10, "lab")};
  for (auto& queue : world.queues) {
    queue.quota.push_back({"cpu", queue.name == "idle" ? 100'000 : 0, {}, {}});
  }
  world.add_node("n", 32, 640);
  for (int i = 0; i < 20; ++i) {
    world.add_job("g" + std::to_string(i), "gpus", 1, 1);
    world.add_job("c" + std::to_string(i), "cpus", 1, 0).gang.per_worker.cpu_millis = 10'000;
  }
  world.pass();
  // A GPU is a tenth of what is lent, as ten processors are.
  CHECK(world.held("gpus", kGpu) == 10);
  CHECK(world.held("cpus", "cpu") == 90'000);
}

TEST_CASE(
    "a gang takes of its own quota what it wishes, and borrows but its least while others wait") {
  QueueWorld world;
  world.queues = {make_queue("a", 2, "lab"), make_queue("b", 2, "lab"),
                  make_queue("idle", 4, "lab")};
  world.add_node("n", 32);
  auto& wide = world.add_job("wide", "a", 8);
  wide.gang.min = 1;
  world.add_job("other", "b", 4);
  world.pass();
  CHECK(world.held("a", kGpu) == 2);
  CHECK(world.runs("other"));
  QueueWorld alone;
  alone.queues = world.queues;
  alone.add_node("n", 32);
  alone.add_job("wide", "a", 8).gang.min = 1;
  alone.pass();
  CHECK(alone.held("a", kGpu) == 8);
}

TEST_CASE("a job that could never start is told so, and holds nobody up") {
  QueueWorld world;
  world.queues = {make_queue("research", 4)};
  world.add_node("n", 32);
  world.add_job("huge", "research", 5);
  world.add_job("small", "research", 4);
  world.pass();
  CHECK(world.runs("small"));
  CHECK(world.why("huge") ==
        "1st in queue research: asks for 5 nvidia.com/gpu at least, and queue research may never "
        "hold more than 4; lower spec.worker.min or its resources, or raise the queue's quota. It "
        "holds nobody up");
  QueueWorld poor;
  poor.queues = {make_queue("research", 64)};
  poor.add_node("n", 2);
  poor.add_job("huge", "research", 1, 4);
  poor.add_job("small", "research", 1, 2);
  poor.pass();
  CHECK(poor.runs("small"));
}

TEST_CASE("who asks for no nodes and could never start for another reason holds nobody up") {
  for (const bool is_volume : {true, false}) {
    CAPTURE(is_volume);
    QueueWorld world;
    world.queues = {make_queue("a", 8), make_queue("b", 8)};
    for (const char* name : {"m", "n"}) world.add_node(name, 8);
    WaitingGang& never = world.add_job("never", "a", 2).gang;
    never.unplaced = true;
    if (is_volume) never.volumes.why_not = "there is no PersistentVolumeClaim x";
    if (!is_volume) never.required_level = "rack";
    world.add_job("next", "a", 1, 8);
    world.add_job("other", "b", 1, 8);
    CHECK(world.pass() == 2);
    CHECK_FALSE(world.runs("never"));
    CHECK(world.why("never").starts_with("1st in queue a: "));
  }
}

TEST_CASE("of several resources the one is named that a queue may never hold enough of") {
  QueueWorld world;
  world.queues = {make_queue("research", 4)};
  world.queues[0].quota.push_back({"cpu", 100'000, {}, {}});
  world.add_node("n", 32, 200);
  for (int i = 0; i < 10; ++i) {
    world.add_job("c" + std::to_string(i), "research", 1, 0).gang.per_worker.cpu_millis = 10'000;
  }
  world.pass();
  world.add_job("huge", "research", 1, 8).gang.per_worker.cpu_millis = 10'000;
  CHECK(world.why("huge").find("asks for 8 nvidia.com/gpu at least, and queue research may never "
                               "hold more than 4;") != std::string::npos);
}

TEST_CASE("who fits no node beside what belongs to the nodes holds nobody up") {
  for (const bool is_of_node : {true, false}) {
    QueueWorld world;
    world.queues = {make_queue("research", 8)};
    world.add_node("n", 8, 8);
    api::Pod& pod = world.others.emplace_back();
    pod.node_name = "n";
    pod.requests.cpu_millis = 100;
    pod.meta.owner_references = {
        {"apps/v1", is_of_node ? "DaemonSet" : "ReplicaSet", "proxy", "u", true}};
    world.add_job("whole", "research", 1, 0).gang.per_worker.cpu_millis = 8'000;
    world.add_job("small", "research", 1, 0);
    world.pass();
    CHECK_FALSE(world.runs("whole"));
    // Any other pod may end.
    CHECK(world.runs("small") == is_of_node);
  }
}

TEST_CASE("nothing is kept where the first may never stand: taints of a pool, a volume's nodes") {
  for (const bool is_volume : {true, false}) {
    QueueWorld world;
    world.queues = {make_queue("a", 64), make_queue("b", 64)};
    world.add_node("full", 8);
    world.add_node("idle", 8);
    world.add_job("runs", "a", 1, 8).gang.node_selector = {};
    world.nodes[1].ready = false;
    world.pass();
    REQUIRE(world.job("runs").slots[0].node == "full");
    world.nodes[1].ready = true;
    QueueJob& first = world.add_job("first", "a", 1, 8);
    if (is_volume) first.gang.volumes.every_slot = std::set<std::string>{"full"};
    if (!is_volume) world.nodes[1].taints = {{"team", "b", "NoSchedule"}};
    world.add_job("other", "b", 1, 8).gang.tolerations = {{"team", "Exists", "", ""}};
    world.pass();
    CHECK_FALSE(world.runs("first"));
    CHECK(world.runs("other"));
    // A node that is only away for now is kept, as before.
    if (is_volume) continue;
    world.end("other");
    world.nodes[1].taints = {{"node.kubernetes.io/not-ready", "", "NoSchedule"}};
    world.add_job("patient", "b", 1, 8).gang.tolerations = {{"", "Exists", "", ""}};
    world.pass();
    CHECK_FALSE(world.runs("patient"));
  }
}

TEST_CASE("the first keeps its room while a node that it needs is away, and nobody passes it by") {
  const auto closed = [](const auto& close) {
    QueueWorld world;
    world.queues = {make_queue("research", 64)};
    for (const char* name : {"a", "b"}) world.add_node(name, 8);
    world.add_job("first", "research", 2, 8);
    world.add_job("later", "research", 1, 8);
    close(world);
    CHECK(world.pass() == 0);
    CHECK(
        world.why("later") ==
        "2nd in queue research: the room that there is is kept for team/first, which comes first");
    return world;
  };
  QueueWorld late = closed([](QueueWorld& world) { world.nodes[0].ready = false; });
  late.nodes[0].ready = true;
  CHECK(late.pass() == 1);
  CHECK(late.runs("first"));
  closed([](QueueWorld& world) { world.nodes[0].unschedulable = true; });
  closed([](QueueWorld& world) {
    world.nodes[0].taints = {{"node.kubernetes.io/disk-pressure", "", "NoSchedule"}};
  });
  closed([](QueueWorld& world) { world.jobs[0].gang.avoid = {"a"}; });
  // Along the tree of the network as well.
  closed([](QueueWorld& world) {
    for (auto& node : world.nodes) node.meta.labels = {{"topology.kubernetes.io/zone", "z"}};
    world.nodes[0].ready = false;
    world.jobs[0].gang.required_level = "zone";
  });
}

TEST_CASE("of jobs that are alike but for where they may stand each is judged by itself") {
  QueueWorld world;
  world.queues = {make_queue("research", 1, "lab"), make_queue("teaching", 3, "lab")};
  world.add_node("n", 4);
  world.add_job("borrows", "research", 1, 2);
  world.add_job("never", "research", 1, 2).gang.node_selector = {{"example.com/gpu", "x"}};
  world.add_job("too", "research", 1, 2);
  world.pass();
  CHECK(world.runs("borrows"));
  CHECK_FALSE(world.runs("never"));
  CHECK(world.runs("too"));
}

TEST_CASE("of jobs that are alike but for who finds their nodes each is judged by itself") {
  QueueWorld world;
  world.queues = {make_queue("a", 64)};
  world.add_node("n", 8);
  world.add_job("runs", "a", 1, 4);
  REQUIRE(world.pass() == 1);
  // Nobody knows of its nodes that they stand in one rack; one node alone does.
  world.add_job("never", "a", 2, 4).gang.required_level = "rack";
  world.jobs.back().gang.unplaced = true;
  world.add_job("first", "a", 2, 4).gang.required_level = "rack";
  world.add_job("later", "a", 1, 4);
  CHECK(world.pass() == 0);
  CHECK(world.why("later").ends_with("kept for team/first, which comes first"));
}

TEST_CASE("a smaller job behind the first takes nothing that the first needs") {
  QueueWorld world;
  world.queues = {make_queue("research", 8)};
  world.add_node("n", 32);
  world.add_job("runs", "research", 6);
  world.pass();
  world.add_job("first", "research", 4);
  world.add_job("small", "research", 1);
  world.add_job("no-gpu", "research", 1, 0);
  CHECK(world.pass() == 1);
  CHECK(world.runs("no-gpu"));
  CHECK(world.why("small") ==
        "2nd in queue research: its quota is kept for team/first, which comes first");
  CHECK(world.verdicts().at({"team", "small"}).is_behind);
  CHECK_FALSE(world.verdicts().at({"team", "first"}).is_behind);
  CHECK(world.why("first").find("; its quota would do for spec.worker.min 2") != std::string::npos);
}

TEST_CASE("nodes are kept for the first that lacks nothing else, against all queues") {
  QueueWorld world;
  world.queues = {make_queue("a", 64), make_queue("b", 64)};
  world.add_node("big", 8, 64);
  world.add_node("small", 1, 64);
  world.add_job("runs", "a", 1, 4);
  world.pass();
  REQUIRE(world.jobs[0].slots[0].node == "big");
  world.add_job("first", "a", 1, 8);
  world.add_job("fits", "b", 1, 1);
  world.add_job("other", "b", 1, 1);
  CHECK(world.pass() == 1);
  REQUIRE(world.runs("fits"));
  CHECK(world.jobs[2].slots[0].node == "small");
  CHECK(world.why("other") ==
        "1st in queue b: the room that there is is kept for team/first, which comes first");
}

TEST_CASE("a level that is only preferred keeps no job off what is left beside the first's") {
  for (const std::string level : {"", "rack", "host"}) {
    QueueWorld world;
    world.queues = {make_queue("a", 99)};
    world.add_node("n1", 5);
    world.add_node("n2", 5);
    world.add_node("n3", 1);
    for (api::Node& node : world.nodes) {
      node.meta.labels["cloud.google.com/gce-topology-block"] = "one";
    }
    world.add_job("runs", "a", 1, 3);
    REQUIRE(world.pass() == 1);
    world.add_job("first", "a", 2, 4);
    world.add_job("small", "a", 2, 1).gang.preferred_level = level;
    CHECK(world.pass() == 1);
    CHECK(world.runs("small"));
    // It may have a part of one node, of which the tree knows nothing.
    world.add_job("strict", "a", 2, 1).gang.required_level = "host";
    CHECK(world.pass() == 0);
  }
}

TEST_CASE("along the network a gang takes nothing that is kept for the first of its line") {
  for (const bool is_of_each_node : {false, true}) {
    QueueWorld world;
    world.queues = {make_queue("a", 99)};
    for (const char* name : {"x1", "x2", "y1", "y2"}) {
      world.add_node(name, name[0] == 'x' ? 8 : 4);
      world.nodes.back().meta.labels = {
          {"cloud.google.com/gce-topology-block", std::string(1, name[0])}, {"pool", {name[0]}}};
    }
    world.add_job("runs", "a", 1, 8);
    REQUIRE(world.pass() == 1);
    REQUIRE(world.jobs[0].slots[0].node == "x1");
    world.add_job("first", "a", 2, 8).gang.node_selector = {{"pool", "x"}};
    // All of it would fit one node, but that is kept.
    WaitingGang& later = world.add_job("later", "a", 2, 4).gang;
    if (is_of_each_node) later.avoid = {"z"};
    CHECK(world.pass() == 1);
    std::set<std::string> nodes;
    for (const HeldSlot& slot : world.job("later").slots) nodes.insert(slot.node);
    CHECK(nodes == std::set<std::string>{"y1", "y2"});
    world.add_job("last", "a", 2, 4);
    CHECK(world.why("last") ==
          "2nd in queue a: the room that there is is kept for team/first, which comes first");
  }
}

TEST_CASE("what a gang was refused with is known when it has heard for whom room is kept") {
  QueueWorld world;
  world.queues = {make_queue("a", 99)};
  world.add_node("n", 8);
  world.add_job("runs", "a", 1, 4);
  REQUIRE(world.pass() == 1);
  world.add_job("first", "a", 1, 8);
  world.add_job("later", "a", 1, 4);
  const ClusterSnapshot cluster = world.snapshot();
  Rooms rooms(cluster);
  QueuePass pass(cluster, rooms);
  for (const WaitingGang& gang : cluster.gangs) pass.take_turn(gang);
  const KeptRoom kept(cluster.gangs[0].per_worker, {1});
  const auto caps = caps_beside({{&kept, 1}}, cluster.gangs[1], rooms.inventory());
  REQUIRE(caps);
  const GangVerdict* refusal = rooms.refusal_of(cluster.gangs[1], &*caps);
  REQUIRE(refusal != nullptr);
  CHECK(refusal->why_not.starts_with("needs 1 x {cpu 1, memory 1Mi, nvidia.com/gpu 4}"));
  CHECK(std::move(pass).decisions().verdicts.at(cluster.gangs[1].job).why_not ==
        "2nd in queue a: the room that there is is kept for team/first, which comes first");
}

TEST_CASE("what the first of several lines need is kept for all of them together") {
  QueueWorld world;
  world.queues = {make_queue("a", 99), make_queue("b", 99), make_queue("c", 99)};
  world.add_node("n1", 9);
  world.add_job("runs", "a", 1, 9);
  world.pass();
  world.add_node("n2", 10);
  world.add_job("first", "a", 2, 6);
  world.add_job("second", "b", 2, 3);
  world.add_job("third", "c", 1, 3);
  CHECK(world.pass() == 0);
  CHECK(world.why("third") ==
        "1st in queue c: the room that there is is kept for team/first, which comes first");
  world.end("runs");
  world.pass();
  CHECK(world.runs("first"));
  CHECK(world.runs("second"));
}

TEST_CASE("whoever may not borrow what another queue's first waits for hears whose it is") {
  QueueWorld world;
  world.queues = {make_queue("a", 8, "lab"), make_queue("b", 0, "lab"), make_queue("c", 0, "lab")};
  world.add_node("n", 32);
  world.add_job("runs", "a", 4);
  world.pass();
  world.add_job("b1", "b", 6).gang.turn.priority = 10;
  world.add_job("c1", "c", 2);
  CHECK(world.pass() == 0);
  CHECK(world.why("c1") ==
        "1st in queue c: what cohort lab lends is kept for team/b1, which comes first in queue b");
  // Where that is not all that it lacks, its quota is told.
  world.job("c1").gang.count = world.job("c1").gang.min = 5;
  CHECK(world.why("c1") ==
        "1st in queue c: needs 5 nvidia.com/gpu of the queue's quota, and 0 may be taken now; its "
        "jobs hold 0, nominal are 0 and at most 8");
}

TEST_CASE("closed, unknown and foreign queues start nothing, and say why") {
  QueueWorld world;
  world.queues = {make_queue("open", 8), make_queue("closed", 8), make_queue("others", 8)};
  world.queues[1].closed = "its spec.suspend is true";
  world.queues[2].namespaces = {"ops", "sales"};
  world.add_node("n", 32);
  world.add_job("lost", "nowhere", 1);
  world.add_job("shut", "closed", 1);
  world.add_job("foreign", "others", 1);
  CHECK(world.pass() == 0);
  CHECK(world.why("lost") ==
        "spec.queueName: there is no TrainingQueue nowhere; make it, or name one that there is "
        "(closed, open, others)");
  CHECK(world.why("shut") == "queue closed starts no jobs: its spec.suspend is true");
  CHECK(world.why("foreign") ==
        "spec.queueName: queue others takes no jobs of namespace team, only of ops, sales; name "
        "another queue, or have the namespace added to the queue's spec.namespaces");
}

TEST_CASE("jobs in no queue are placed as they come, whatever queues wait for") {
  QueueWorld world;
  world.queues = {make_queue("a", 64)};
  world.add_node("n", 8);
  world.add_job("runs", "a", 1, 4);
  world.pass();
  world.add_job("first", "a", 1, 8);
  world.add_job("free", "", 1, 4);
  world.pass();
  CHECK(world.runs("free"));
}

TEST_CASE("who trains grows within its quota, and not into what the first waits for") {
  QueueWorld world;
  world.queues = {make_queue("a", 6)};
  world.add_node("n", 32);
  world.add_job("grows", "a", 2);
  world.pass();
  auto cluster = world.snapshot();
  WaitingGang more = world.jobs[0].gang;
  more.min = 1;
  more.count = 4;
  more.wish.slots = {2, 3, 4, 5};
  more.wish.only_grows = true;
  cluster.gangs.push_back(more);
  CHECK(schedule(cluster).verdicts.at(more.job).placement->node_of_slot.size() == 4);
  world.add_job("first", "a", 5);
  auto waits = world.snapshot();
  waits.gangs.push_back(more);
  CHECK(schedule(waits).verdicts.at(more.job).why_not == "queue a has no quota left for more");
  // Whoever stands in for a lost worker holds its quota already.
  waits.gangs.back().wish = PlaceWish{{0, 1}, {}};
  waits.gangs.back().count = 2;
  const auto replaced = schedule(waits).verdicts.at(more.job);
  REQUIRE(replaced.placement);
  CHECK(replaced.placement->node_of_slot.size() == 2);
}

TEST_CASE("who trains does not grow from a queue whose spec is refused") {
  QueueWorld world;
  world.queues = {make_queue("a", 6)};
  world.add_node("n", 32);
  world.add_job("grows", "a", 2);
  world.pass();
  world.queues[0] = Queue{};
  world.queues[0].name = "a";
  world.queues[0].is_refused = true;
  world.queues[0].closed = "its spec is refused (spec.weight: must be from 1 to 1000)";
  auto cluster = world.snapshot();
  WaitingGang more = world.jobs[0].gang;
  more.min = 1;
  more.wish.slots = {2, 3};
  more.wish.only_grows = true;
  cluster.gangs.push_back(more);
  CHECK(schedule(cluster).verdicts.at(more.job).why_not ==
        "queue a starts no jobs: its spec is refused (spec.weight: must be from 1 to 1000)");
  // Whoever stands in for a lost worker holds its quota already.
  cluster.gangs.back().wish.only_grows = false;
  CHECK(schedule(cluster).verdicts.at(more.job).placement);
}

TEST_CASE("who takes a lost worker's place comes before all that wait to start") {
  QueueWorld world;
  world.queues = {make_queue("a", 4)};
  world.add_node("n", 2);
  world.add_job("older", "a", 1);
  world.add_job("free", "", 1);
  auto cluster = world.snapshot();
  WaitingGang replaces = world.add_job("trains", "a", 1).gang;
  replaces.wish.slots = {3};
  cluster.gangs.push_back(replaces);
  cluster.assumed.push_back({"n", replaces.per_worker});
  const auto all = schedule(cluster).verdicts;
  CHECK(all.at(replaces.job).placement);
  CHECK_FALSE(all.at({"team", "older"}).placement);
  CHECK_FALSE(all.at({"team", "free"}).placement);
}

TEST_CASE("a gang that starts again in a moment keeps its turn, its quota and its nodes") {
  for (const std::string queue : {"a", ""}) {
    CAPTURE(queue);
    QueueWorld world;
    world.queues = {make_queue("a", 8), make_queue("b", 8)};
    world.add_node("n", 8);
    world.add_job("again", queue, 8).gang.wish.not_yet = true;
    world.add_job("next", queue, 8);
    if (!queue.empty()) world.add_job("other", "b", 8);
    CHECK(world.pass() == 0);
    world.job("again").gang.wish.not_yet = false;
    CHECK(world.pass() == 1);
    CHECK(world.runs("again"));
  }
}

TEST_CASE("a gang whose old pods still leave keeps what it will have room with, and no more") {
  for (const std::string queue : {"a", ""}) {
    CAPTURE(queue);
    QueueWorld world;
    world.queues = {make_queue("a", 16), make_queue("b", 16)};
    for (const char* name : {"m", "n"}) world.add_node(name, 8);
    world.add_job("again", queue, 2, 8);
    REQUIRE(world.pass() == 1);
    // Node m is lost, and the pod on n is asked to leave.
    world.nodes[0].ready = false;
    std::erase_if(world.job("again").slots, [](const HeldSlot& one) { return one.node == "m"; });
    world.job("again").leaving = std::exchange(world.job("again").slots, {});
    world.job("again").gang.wish.not_yet = true;
    world.add_node("k", 8);
    world.add_job("next", queue, 1, 8);
    if (!queue.empty()) world.add_job("other", "b", 1, 8);
    CHECK(world.pass() == 0);
    CHECK(world.taken().empty());
    CHECK(world.why(queue.empty() ? "next" : "other")
              .ends_with("the room that there is is kept for team/again, which comes first"));
    world.add_node("spare", 8);
    // Where its old pod holds no quota it could start with what is free by now.
    CHECK(world.pass() == (queue.empty() ? 0 : 1));
    world.leave();
    CHECK(world.pass() == (queue.empty() ? 1 : 0));
    world.job("again").gang.wish.not_yet = false;
    world.pass();
    CHECK(world.runs("again"));
  }
}

TEST_CASE("a gang whose nodes others find keeps its quota when it starts again, and no nodes") {
  QueueWorld world;
  world.queues = {make_queue("a", 2), make_queue("b", 8)};
  world.add_node("n", 8);
  QueueJob& again = world.add_job("again", "a", 2);
  again.gang.unplaced = true;
  again.gang.wish.not_yet = true;
  again.leaving = {{0, ""}, {1, ""}};
  world.add_job("next", "a", 1);
  world.add_job("other", "b", 1, 8);
  CHECK(world.pass() == 1);
  CHECK(world.runs("other"));
  world.leave();
  world.job("again").gang.wish.not_yet = false;
  CHECK(world.pass() == 1);
  CHECK(world.runs("again"));
}

TEST_CASE("by its own old pods a gang that starts again borrows nothing, and keeps its turn") {
  QueueWorld world;
  world.queues = {make_queue("a", 8, "lab"), make_queue("b", 16, "lab")};
  world.add_node("n", 8);
  world.add_job("again", "a", 2, 4);
  REQUIRE(world.pass() == 1);
  // One of its pods is gone, the other still leaves.
  QueueJob& again = world.job("again");
  again.leaving = {again.slots.front()};
  again.slots.clear();
  again.gang.wish.not_yet = true;
  world.add_job("next", "b", 1, 4);
  CHECK(world.pass() == 0);
  world.leave();
  CHECK(world.pass() == 0);
  world.job("again").gang.wish.not_yet = false;
  world.pass();
  CHECK(world.runs("again"));
}

TEST_CASE("the quota of a gang that starts again counts once while its old pods leave") {
  const auto world_with = [](std::int64_t quota, int next) {
    QueueWorld world;
    world.queues = {make_queue("a", quota)};
    world.add_node("n", 32);
    QueueJob& again = world.add_job("again", "a", 8);
    for (int i = 0; i < 8; ++i) again.leaving.push_back({i, "n"});
    again.gang.wish.not_yet = true;
    world.add_job("next", "a", next);
    return world;
  };
  // It has its turn with what is free, or comes first in its line.
  const std::vector<std::pair<int, int>> cases{{16, 8}, {12, 4}, {8, 8}, {12, 5}, {8, 1}};
  for (const auto& one : cases) {
    const int quota = one.first, next = one.second;
    CAPTURE(quota);
    CAPTURE(next);
    QueueWorld world = world_with(quota, next);
    CHECK(world.pass() == (8 + next <= quota ? 1 : 0));
    world.leave();
    world.job("again").gang.wish.not_yet = false;
    CHECK(world.pass() == 1);
    CHECK(world.runs("again"));
  }
  // When they are gone it holds the same: there will be no room for whoever wants all.
  CHECK(world_with(16, 16).why("next").find("it starts when those are gone") == std::string::npos);
}

TEST_CASE("a gang that starts again in another queue has there nothing of its old pods") {
  // It had its places from queue b, and names a by now.
  const auto starts = [](int held, int next) {
    QueueWorld world;
    world.queues = {make_queue("a", 8), make_queue("b", 8), make_queue("c", 16)};
    world.add_node("n", 32);
    QueueJob& low = world.add_job("low", "a", std::max(1, held));
    for (int i = 0; i < held; ++i) low.slots.push_back({i, "n"});
    low.has_ended = held == 0;
    QueueJob& again = world.add_job("again", "a", 8);
    for (int i = 0; i < 8; ++i) again.leaving.push_back({i, "n"});
    again.gang.wish.not_yet = true;
    world.add_job("next", "a", next);
    world.add_job("other", "c", 16);
    ClusterSnapshot cluster = world.snapshot();
    for (QueueHolder& one : cluster.holders) {
      if (one.job.name == "again") one.turn.queue = "b";
    }
    const auto all = schedule(cluster).verdicts;
    const auto has_place = [&](const char* job) {
      return all.at({"team", job}).placement.has_value();
    };
    CHECK_FALSE(has_place("again"));
    return std::pair(has_place("next"), has_place("other"));
  };
  // What it will start with is all of the queue's quota, though its old pods hold as much.
  CHECK_FALSE(starts(0, 1).first);
  // It comes first in its line, and lacks quota: that is kept for it, and no nodes are.
  CHECK(starts(4, 4) == std::pair(false, true));
}

TEST_CASE("of jobs on one claim one starts in a pass, and the others hold up nobody") {
  for (const std::string queue : {"a", ""}) {
    CAPTURE(queue);
    QueueWorld world;
    world.queues = {make_queue("a", 8)};
    world.add_node("n", 8);
    // It waits for good: its queue is not there.
    world.add_job("older", "none", 2).gang.claim = "disk";
    world.add_job("first", queue, 2).gang.claim = "disk";
    world.add_job("second", queue, 6).gang.claim = "disk";
    QueueJob& foreign = world.add_job("foreign", queue, 2);
    foreign.gang.job.namespace_name = "other";
    foreign.gang.claim = "disk";
    world.add_job("free", queue, 4);
    const auto verdicts = world.verdicts();
    CHECK(verdicts.at({"team", "first"}).placement);
    CHECK_FALSE(verdicts.contains({"team", "second"}));
    CHECK(verdicts.at({"other", "foreign"}).placement);
    CHECK(verdicts.at({"team", "free"}).placement);
    CHECK_FALSE(verdicts.at({"team", "older"}).placement);
  }
}

TEST_CASE("nobody gives way to a gang before it may start again") {
  QueueWorld world;
  world.queues = {make_queue("a", 8)};
  world.add_node("n", 8);
  world.add_job("low", "a", 8);
  world.pass();
  QueueJob& again = world.add_job("again", "a", 8);
  again.gang.turn.priority = 1;
  again.gang.wish.not_yet = true;
  CHECK(world.taken().empty());
  again.gang.wish.not_yet = false;
  CHECK(world.taken().size() == 1);
}

TEST_CASE("a pod that still leaves holds its quota") {
  QueueWorld world;
  world.queues = {make_queue("a", 2)};
  world.add_node("n", 32);
  world.add_job("next", "a", 2);
  auto cluster = world.snapshot();
  cluster.holders.push_back(
      {{"team", "gone"}, {"a", 0, {}}, world.jobs[0].gang.per_worker, 1, {}, {{0, "n"}}});
  CHECK_FALSE(schedule(cluster).verdicts.at({"team", "next"}).placement);
  // The slot's next worker and the pod before it count once.
  cluster.holders.back().slots = {{0, "n"}};
  CHECK(cluster.holders.back().workers() == 1);
}

TEST_CASE("far from the first the place is said roughly") {
  CHECK(place_text(1, "q") == "1st in queue q");
  CHECK(place_text(2, "q") == "2nd in queue q");
  CHECK(place_text(10, "q") == "10th in queue q");
  CHECK(place_text(11, "q") == "beyond the 10th place in queue q");
  CHECK(place_text(100, "q") == "beyond the 10th place in queue q");
  CHECK(place_text(15'000, "q") == "beyond the 10th place in queue q");
}

TEST_CASE("a queue's status says what its jobs hold, and who waits") {
  api::TrainingQueue object;
  object.meta.name = "a";
  object.meta.generation = 3;
  object.spec.resources = {{"cpu", 8000, {}, {}}, {kGpu, 2, {}, {}}};
  const Queue queue = queue_of(object, Status());
  api::Resources worker;
  worker.cpu_millis = 1500;
  worker.gpus = 1;
  const std::vector<QueueHolder> holders{
      {{"n", "j"}, {"a", 0, {}}, worker, 1, {{0, "x"}, {1, "x"}, {2, "x"}}, {}},
      {{"n", "k"}, {"b", 0, {}}, worker, 1, {{0, "x"}}, {}}};
  const WallTime now{seconds(1000)};
  const auto status = queue_status(object, queue, holders, 4, now);
  CHECK(status.use == "cpu 4500m/8, nvidia.com/gpu 3/2");
  CHECK(status.resources[1] == api::QueueResourceStatus{kGpu, "3", "1"});
  CHECK(status.admitted == 1);
  CHECK(status.waiting == 4);
  CHECK(status.observed_generation == 3);
  REQUIRE(status.conditions.size() == 1);
  CHECK(status.conditions[0].status == "True");
  object.status = status;
  object.spec.suspend = true;
  const auto later =
      queue_status(object, queue_of(object, Status()), holders, 4, now + seconds(60));
  CHECK(later.phase == "Closed");
  CHECK(later.conditions[0].status == "False");
  CHECK(later.conditions[0].last_transition_time == now + seconds(60));
  CHECK(queue_status(object, queue, holders, 4, now + seconds(60)) == status);
  const Status wrong = Error(ErrorCode::kInvalid, "spec.weight: must be from 1 to 1000");
  CHECK(queue_of(object, wrong).closed ==
        "its spec is refused (spec.weight: must be from 1 to 1000)");
}
