// Taking back what was lent: one rule a case.
#include "operator/core/queue_reclaim.h"

#include <doctest/doctest.h>

#include "tests/unit/core/queue_world.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

/// Two queues of four GPUs each in one cohort, and room for eight.
QueueWorld lab() {
  QueueWorld world;
  world.queues = {make_queue("product", 4, "lab"), make_queue("research", 4, "lab")};
  world.add_node("n", 8);
  return world;
}

QueueJob& elastic(QueueWorld& world, const std::string& name, const std::string& queue, int min,
                  int count) {
  QueueJob& job = world.add_job(name, queue, count);
  job.gang.min = min;
  job.is_elastic = true;
  return job;
}

TakeBack taken_from(const QueueWorld& world, const std::string& name) {
  const auto all = world.taken();
  const auto found = all.find({"team", name});
  if (found != all.end()) return found->second;
  TakeBack nothing;
  nothing.workers = -1;
  return nothing;
}

}  // namespace

TEST_CASE("a borrower shrinks for a queue's own quota, by no worker more than needed") {
  QueueWorld world = lab();
  elastic(world, "wide", "research", 2, 8);
  world.pass();
  REQUIRE(world.held("research", kGpu) == 8);
  world.add_job("own", "product", 3);
  CHECK(world.pass() == 0);
  const TakeBack taken = taken_from(world, "wide");
  CHECK(taken.workers == 5);
  CHECK(taken.slots_below == 5);
  CHECK(taken.job.name == "own");
  CHECK(taken.lost_process_seconds == 0);
  CHECK(taken.why == "queue product takes back 3 nvidia.com/gpu of its nominal quota for team/own");
  CHECK(world.why("own").find("; room is made for it: team/wide shrinks to 5") !=
        std::string::npos);
  world.give_back();
  // While they leave nothing more is taken, and it is said.
  CHECK(world.taken().empty());
  CHECK(world.why("own").find("; it starts when those are gone that leave now") !=
        std::string::npos);
  world.leave();
  CHECK(world.pass() == 1);
  CHECK(world.runs("own"));
  CHECK(world.taken().empty());
}

TEST_CASE("a borrower whose workers belong together gives whole copies of its model back") {
  QueueWorld world = lab();
  elastic(world, "wide", "research", 2, 8).gang.together = 2;
  world.pass();
  REQUIRE(world.held("research", kGpu) == 8);
  world.add_job("own", "product", 3);
  CHECK(world.pass() == 0);
  CHECK(taken_from(world, "wide").workers == 4);
  CHECK(taken_from(world, "wide").slots_below == 4);
  // Slot 3 is being replaced: it stays with its copy.
  std::erase_if(world.job("wide").slots, [](const HeldSlot& one) { return one.slot == 3; });
  world.job("own").gang.count = world.job("own").gang.min = 4;
  CHECK(taken_from(world, "wide").workers == 3);
  CHECK(taken_from(world, "wide").slots_below == 4);
}

TEST_CASE("what is beyond a job's wish goes to whoever waits, and no more than that") {
  QueueWorld world = lab();
  world.queues.push_back(make_queue("alone", 8));
  elastic(world, "wide", "research", 1, 4).gang.turn.priority = 1000;
  elastic(world, "more", "research", 1, 4).gang.turn.priority = 1000;
  world.pass();
  REQUIRE(world.held("research", kGpu) == 8);
  world.add_job("low", "alone", 3);
  CHECK(world.taken().empty());
  world.job("wide").beyond = 2;
  CHECK(world.taken().empty());  // would not do
  world.job("more").beyond = 2;
  const TakeBack taken = taken_from(world, "more");
  CHECK(taken.workers == 2);
  CHECK(taken.slots_below == 2);
  CHECK(taken.why == "what is beyond worker.count goes to team/low, which waits in queue alone");
  CHECK(taken_from(world, "wide").workers == 3);
  // In its own queue, too.
  world.job("low").gang.turn.queue = "research";
  world.queues[1].quota[0].nominal = 8;
  CHECK(taken_from(world, "wide").workers + taken_from(world, "more").workers == 5);
  // By a higher priority no more is taken of one while another has what is beyond.
  world.job("low").gang.turn.priority = 2000;
  CHECK(taken_from(world, "wide").workers + taken_from(world, "more").workers == 5);
  CHECK(std::min(taken_from(world, "wide").workers, taken_from(world, "more").workers) == 2);
  // Where a queue's own quota is due, too, what is beyond goes first.
  world.job("low").gang.turn.queue = "product";
  world.queues[1].quota[0].nominal = 4;
  world.job("wide").beyond = 1;
  world.job("more").beyond = 0;
  CHECK(taken_from(world, "wide").workers == 1);
  CHECK(taken_from(world, "more").workers == -1);
}

TEST_CASE("what is beyond a job's wish goes to jobs in no queue, and no more than that") {
  QueueWorld world = lab();
  elastic(world, "wide", "research", 1, 6);
  world.pass();
  REQUIRE(world.held("research", kGpu) == 6);
  elastic(world, "free", "", 4, 8);
  CHECK(world.taken().empty());  // to its own wish it has a right
  world.job("wide").beyond = 1;
  CHECK(world.taken().empty());  // would not do
  world.job("wide").beyond = 3;
  const TakeBack taken = taken_from(world, "wide");
  CHECK(taken.workers == 4);
  CHECK(taken.job.name == "free");
  CHECK(taken.why == "what is beyond worker.count goes to team/free, which waits for room");
  CHECK(world.why("free").ends_with("; room is made for it: team/wide shrinks to 4"));
  // It is kept for it, and taken once.
  world.give_back();
  world.job("wide").beyond = 1;
  CHECK(world.taken().empty());
  world.job("wide").beyond = 0;
  world.add_job("late", "", 1);
  CHECK(world.taken().empty());
  CHECK(world.pass() == 0);
  CHECK(world.why("free").ends_with("; it starts when those are gone that leave now"));
  world.leave();
  CHECK(world.pass() == 1);
  CHECK(world.runs("free"));
}

TEST_CASE("the first of a line comes before jobs in no queue, for what is beyond a wish as well") {
  QueueWorld world = lab();
  elastic(world, "wide", "research", 1, 8);
  world.pass();
  world.job("wide").beyond = 4;
  world.add_job("free", "", 3);
  world.add_job("first", "research", 2);
  CHECK(taken_from(world, "wide").job.name == "first");
  CHECK(taken_from(world, "wide").workers == 6);
  world.end("first");
  CHECK(taken_from(world, "wide").job.name == "free");
  CHECK(taken_from(world, "wide").workers == 5);
}

TEST_CASE("what is beyond one job's wish goes to another that has less than it wishes for") {
  QueueWorld world = lab();
  elastic(world, "content", "research", 1, 5);
  elastic(world, "lacking", "research", 1, 3);
  world.pass();
  world.job("lacking").slots.resize(2);  // of four that it wishes for
  world.nodes.front().allocatable[kGpu] = 7;
  const auto taken_by = [&](std::vector<int> slots, const std::string& queue, bool is_beyond,
                            int together = 1) {
    ClusterSnapshot cluster = world.snapshot();
    WaitingGang gang = world.job("lacking").gang;
    gang.turn.queue = queue;
    gang.count = static_cast<int>(slots.size());
    gang.min = gang.together = together;
    gang.wish = {slots, {"n"}, true, is_beyond};
    cluster.gangs.push_back(gang);
    const auto taken = schedule(cluster).taken;
    const auto found = taken.find({"team", "content"});
    return found == taken.end() ? -1 : found->second.workers;
  };
  CHECK(taken_by({2, 3}, "research", false) == -1);
  world.job("content").beyond = 1;
  CHECK(taken_by({2, 3}, "research", false) == 4);
  world.job("content").beyond = 3;
  CHECK(taken_by({2, 3}, "research", false) == 3);
  CHECK(taken_by({2}, "research", false) == 4);
  CHECK(taken_by({2, 3, 4, 5}, "research", false) == 2);
  CHECK(taken_by({2, 3, 4, 5}, "research", false, 2) == 3);  // a whole copy of its model
  CHECK(taken_by({2, 3}, "", false) == 3);
  // Who has all that it wishes for takes nothing.
  CHECK(taken_by({2, 3}, "research", true) == -1);
  // The node has room, and the queue has no quota.
  world.nodes.front().allocatable[kGpu] = 16;
  world.queues = {make_queue("research", 7)};
  CHECK(taken_by({2, 3}, "research", false) == 3);
  CHECK(taken_by({2, 3}, "", false) == -1);
}

TEST_CASE("who has less than it wishes for grows before who has more") {
  QueueWorld world = lab();
  world.nodes.front().allocatable[kGpu] = 5;
  elastic(world, "content", "research", 1, 2);
  elastic(world, "lacking", "research", 1, 2);
  world.pass();
  ClusterSnapshot cluster = world.snapshot();
  for (const char* name : {"content", "lacking"}) {
    WaitingGang gang = world.job(name).gang;
    gang.wish = {{2}, {"n"}, true, std::string(name) == "content"};
    cluster.gangs.push_back(gang);
  }
  const auto verdicts = schedule(cluster).verdicts;
  CHECK(verdicts.at({"team", "lacking"}).placement);
  CHECK_FALSE(verdicts.at({"team", "content"}).placement);
}

TEST_CASE("a queue keeps its nominal quota, whatever the priority of others") {
  QueueWorld world = lab();
  elastic(world, "wide", "research", 1, 4);
  world.add_job("mine", "product", 4);
  world.pass();
  world.add_job("greedy", "product", 2).gang.turn.priority = 1000;
  world.job("mine").gang.turn.priority = 1000;
  CHECK(world.pass() == 0);
  CHECK(world.taken().empty());
  // What research borrows of a third is taken, but no more than that.
  world.queues.push_back(make_queue("idle", 2, "lab"));
  world.add_node("m", 2);
  world.add_job("more", "research", 2);
  REQUIRE(world.pass() == 1);
  REQUIRE(world.runs("greedy"));
}

TEST_CASE("what a borrower took is taken back by the higher priority, its own quota is not") {
  QueueWorld world = lab();
  world.queues.push_back(make_queue("idle", 4, "lab"));
  world.add_node("m", 4);
  world.add_job("first", "research", 4);
  world.add_job("second", "research", 4).unsaved = seconds(5);
  world.add_job("mine", "product", 4).gang.turn.priority = 10;
  world.pass();
  world.job("first").unsaved = seconds(9);
  QueueJob& high = world.add_job("high", "product", 4);
  high.gang.turn.priority = 10;
  CHECK(taken_from(world, "second").workers == 0);
  CHECK(taken_from(world, "first").workers == -1);
  CHECK(taken_from(world, "second").why ==
        "team/high in queue product has the higher priority (10, not 0), and queue research "
        "borrows; 4 processes, 5 s without a checkpoint");
  CHECK(taken_from(world, "second").lost_process_seconds == 20);
  // Twice as much would take what is research's own.
  world.job("high").gang.min = world.job("high").gang.count = 5;
  CHECK(world.taken().size() == 0);
  world.job("high").gang.turn.preempts = false;
  world.job("high").gang.min = world.job("high").gang.count = 4;
  CHECK(world.taken().empty());
}

namespace {

/// `lab` with four GPUs more, which product uses: research borrows four, of a third queue.
QueueWorld lab_that_borrows() {
  QueueWorld world = lab();
  world.queues.push_back(make_queue("idle", 4, "lab"));
  world.add_node("m", 4);
  world.add_job("mine", "product", 4).gang.turn.priority = 10;
  return world;
}

QueueJob& high_job(QueueWorld& world, int workers) {
  QueueJob& high = world.add_job("high", "product", workers);
  high.gang.turn.priority = 10;
  return high;
}

}  // namespace

TEST_CASE("nobody is preempted for what he has again, as his queue's own, before who borrows") {
  QueueWorld world = lab_that_borrows();
  world.add_job("wide", "research", 8).gang.min = 2;
  world.pass();
  REQUIRE(world.held("research", kGpu) == 8);
  high_job(world, 6);
  CHECK(world.taken().empty());
  // Four are borrowed.
  world.job("high").gang.min = world.job("high").gang.count = 4;
  CHECK(taken_from(world, "wide").workers == 0);
  world.give_back();
  world.leave();
  CHECK(world.pass() == 2);
  CHECK(world.job("wide").slots.size() == 4);
  CHECK(world.runs("high"));
  CHECK(world.taken().empty());
}

TEST_CASE("who does not come back, or comes after the head, leaves it all that he had") {
  QueueWorld world = lab_that_borrows();
  world.add_job("wide", "research", 8).gang.min = 2;
  bool is_closed = false;
  SUBCASE("as little does not do for him") { world.job("wide").gang.min = 5; }
  SUBCASE("others of his queue have its own") {
    world.job("wide").gang.count = 6;
    world.job("wide").gang.min = 3;
    world.add_job("other", "research", 2).gang.turn.priority = 10;
  }
  SUBCASE("his queue takes no jobs any more") { is_closed = true; }
  world.pass();
  REQUIRE(world.held("research", kGpu) == 8);
  if (is_closed) world.queues[1].closed = "it is being deleted";
  high_job(world, 6);
  CHECK(taken_from(world, "wide").workers == 0);
}

TEST_CASE("of several that would give way the first comes back, and the rest does not suffice") {
  QueueWorld world = lab_that_borrows();
  world.add_job("a", "research", 3);
  world.add_job("b", "research", 4);
  world.add_job("c", "research", 1).gang.turn.priority = 10;
  world.pass();
  REQUIRE(world.held("research", kGpu) == 8);
  high_job(world, 6);
  CHECK(world.taken().empty());
  world.job("high").gang.min = world.job("high").gang.count = 4;
  CHECK(taken_from(world, "b").workers == 0);
  CHECK(world.taken().size() == 1);
}

TEST_CASE("where nodes lack, too, nobody is preempted for what he has again before an owner") {
  QueueWorld world = lab();
  world.queues[0].quota[0].nominal = 6;  // and four of research's, on eight
  world.add_job("wide", "research", 8).gang.min = 2;
  world.pass();
  REQUIRE(world.held("research", kGpu) == 8);
  world.add_job("own", "product", 6);
  CHECK(world.taken().empty());
  SUBCASE("he leaves it enough") {
    world.job("own").gang.min = 4;
    CHECK(taken_from(world, "wide").workers == 0);
  }
  SUBCASE("it comes before him") {
    world.job("own").gang.turn.priority = 1;
    CHECK(taken_from(world, "wide").workers == 0);
  }
  world.give_back();
  world.leave();
  CHECK(world.pass() == 2);
  CHECK(world.runs("own"));
  CHECK(world.runs("wide"));
}

TEST_CASE("within a queue only a strictly higher priority preempts") {
  QueueWorld world;
  world.queues = {make_queue("research", 4)};
  world.add_node("n", 8);
  world.add_job("low", "research", 4).unsaved = seconds(12);
  world.pass();
  world.add_job("same", "research", 4);
  CHECK(world.taken().empty());
  world.add_job("high", "research", 4).gang.turn.priority = 1;
  CHECK(taken_from(world, "low").workers == 0);
  CHECK(taken_from(world, "low").why ==
        "team/high in queue research has the higher priority (1, not 0); 4 processes, 12 s without "
        "a checkpoint");
  world.give_back();
  world.leave();
  world.pass();
  CHECK(world.runs("high"));
  // Whoever gave way waits with its age.
  CHECK(world.why("low").starts_with("1st in queue research: "));
  CHECK(world.taken().empty());
}

TEST_CASE("nobody is preempted where shrinking is enough") {
  QueueWorld world = lab();
  elastic(world, "wide", "research", 1, 4).gang.turn.priority = 5;
  world.add_job("fixed", "research", 4);
  world.pass();
  world.add_job("own", "product", 3);
  CHECK(taken_from(world, "wide").workers == 1);
  CHECK(world.taken().size() == 1);
}

TEST_CASE("of elastic jobs the lowest priority shrinks first, then who started last") {
  QueueWorld world = lab();
  world.queues[1].quota[0].nominal = 0;
  world.queues[0].quota[0].nominal = 8;
  elastic(world, "high", "research", 1, 2).gang.turn.priority = 5;
  elastic(world, "old", "research", 1, 3);
  world.pass();
  world.clock = 100;
  elastic(world, "late", "research", 1, 3);
  world.pass();
  REQUIRE(world.held("research", kGpu) == 8);
  world.add_job("own", "product", 1);
  CHECK(taken_from(world, "late").workers == 2);
  world.job("own").gang.min = world.job("own").gang.count = 3;
  CHECK(taken_from(world, "late").workers == 1);
  CHECK(taken_from(world, "old").workers == 2);
  CHECK(taken_from(world, "high").workers == -1);
  world.job("own").gang.min = world.job("own").gang.count = 5;
  CHECK(taken_from(world, "high").workers == 1);
  world.job("own").gang.min = world.job("own").gang.count = 6;
  const auto all = world.taken();
  // Five workers that could be asked to leave are not enough, so one is preempted: of the lowest
  // priority, who loses nothing; the others shrink no further than they must.
  REQUIRE(all.contains({"team", "late"}));
  CHECK(all.at({"team", "late"}).workers == 0);
}

TEST_CASE("preempted is who loses least work together, of the lowest priorities that suffice") {
  QueueWorld world = lab();
  world.queues[0].quota[0].nominal = 8;
  world.queues[1].quota[0].nominal = 0;
  world.add_job("a", "research", 1);
  world.add_job("b", "research", 2);
  world.add_job("c", "research", 2);
  world.add_job("d", "research", 3);
  world.pass();
  world.job("a").unsaved = seconds(10);  // 10
  world.job("b").unsaved = seconds(30);  // 60
  world.job("c").unsaved = seconds(20);  // 40
  world.job("d").unsaved = seconds(15);  // 45
  world.add_job("own", "product", 3);
  CHECK(taken_from(world, "d").workers == 0);
  CHECK(world.taken().size() == 1);
  world.job("d").unsaved = seconds(17);  // 51: a and c lose 50
  CHECK(world.taken().size() == 2);
  CHECK(taken_from(world, "a").workers == 0);
  CHECK(taken_from(world, "c").workers == 0);
  // Of a higher priority they are spared where the lower one is enough, however much that loses.
  world.job("a").gang.turn.priority = 1;
  CHECK(taken_from(world, "d").workers == 0);
  CHECK(world.taken().size() == 1);
}

TEST_CASE("whoever cannot help is left alone") {
  QueueWorld world = lab();
  world.add_job("free", "", 1);
  world.pass();
  world.add_job("wide", "research", 6);
  world.pass();
  // Eight on one node, and one of them is nobody's to take.
  world.queues[0].quota[0].nominal = 8;
  world.add_job("huge", "product", 1, 8);
  CHECK(world.pass() == 0);
  CHECK(world.taken().empty());
  world.end("free");
  CHECK(taken_from(world, "wide").workers == 0);
}

TEST_CASE("where nodes are lacking, lower priorities of the queue give room") {
  QueueWorld world;
  world.queues = {make_queue("research", 64)};
  world.add_node("a", 4);
  world.add_node("b", 4);
  world.add_job("on-a", "research", 1, 4).unsaved = seconds(100);
  world.add_job("on-b", "research", 1, 4).unsaved = seconds(50);
  world.pass();
  world.add_job("high", "research", 1, 4).gang.turn.priority = 1;
  CHECK(taken_from(world, "on-b").workers == 0);
  CHECK(taken_from(world, "on-a").workers == -1);
  world.job("high").gang.node_selector["kubernetes.io/hostname"] = "a";
  world.nodes[0].meta.labels["kubernetes.io/hostname"] = "a";
  const std::string on_a = world.job("on-a").slots[0].node == "a" ? "on-a" : "on-b";
  CHECK(taken_from(world, on_a).workers == 0);
  CHECK(world.taken().size() == 1);
}

TEST_CASE("room is made within the level that a gang requires, though elsewhere less is lost") {
  QueueWorld world;
  world.queues = {make_queue("research", 64)};
  const std::map<std::string, seconds> unsaved{
      {"n0", seconds(10)}, {"n1", seconds(100)}, {"n2", seconds(30)}, {"n3", seconds(40)}};
  for (const auto& [name, lost] : unsaved) {
    world.add_node(name, 4);
    world.nodes.back().meta.labels = {
        {"oci.oraclecloud.com/host.network_block_id", "b"},
        {"oci.oraclecloud.com/host.rack_id", name < "n2" ? "r0" : "r1"}};
    world.add_job("on-" + name, "research", 1, 4);
  }
  world.pass();
  for (auto& job : world.jobs) job.unsaved = unsaved.at(job.slots[0].node);
  world.add_job("high", "research", 2, 4).gang.turn.priority = 1;
  const auto room = [&] {
    std::set<std::string> nodes;
    for (const auto& [job, taken] : world.taken()) nodes.insert(world.job(job.name).slots[0].node);
    return nodes;
  };
  CHECK(room() == std::set<std::string>{"n0", "n2"});
  world.job("high").gang.required_level = "rack";
  CHECK(room() == std::set<std::string>{"n2", "n3"});
  world.give_back();
  world.leave();
  world.pass();
  CHECK(world.runs("high"));
}

TEST_CASE("jobs in no queue are left alone, and do not take what is taken back for another") {
  QueueWorld world;
  world.queues = {make_queue("research", 64)};
  world.add_node("n", 8);
  world.add_job("free", "", 4);
  world.add_job("low", "research", 4);
  world.pass();
  world.add_job("high", "research", 6).gang.turn.priority = 1;
  CHECK(world.taken().empty());
  world.job("high").gang.min = world.job("high").gang.count = 4;
  world.add_job("next", "", 2);
  CHECK(taken_from(world, "low").workers == 0);
  world.give_back();
  world.job("low").leaving.resize(2);  // half of it is gone
  CHECK(world.pass() == 0);
  CHECK(world.why("next") == "the room that there is is kept for team/high, which comes first");
  // Who trains in a queue or in none, and would grow, hears the same.
  for (const char* queue : {"", "research"}) {
    auto cluster = world.snapshot();
    WaitingGang grows = world.job("free").gang;
    grows.min = grows.count = 1;
    grows.wish.slots = {4};
    grows.wish.only_grows = true;
    grows.turn.queue = queue;
    cluster.gangs.push_back(grows);
    CHECK(schedule(cluster).verdicts.at({"team", "free"}).why_not ==
          "the room that there is is kept for team/high, which comes first");
  }
  world.leave();
  world.pass();
  CHECK(world.runs("high"));
  CHECK_FALSE(world.runs("next"));
}

TEST_CASE("what is taken back is not given to others behind, nor grown into") {
  QueueWorld world = lab();
  elastic(world, "wide", "research", 2, 8);
  world.pass();
  world.add_job("own", "product", 4);
  world.give_back();
  world.job("wide").leaving.resize(2);
  world.add_job("other", "product", 2);
  world.add_job("more", "research", 2);
  auto cluster = world.snapshot();
  WaitingGang grows = world.job("wide").gang;
  grows.min = 1;
  grows.count = 4;
  grows.wish.slots = {4, 5, 6, 7};
  grows.wish.only_grows = true;
  cluster.gangs.push_back(grows);
  const auto all = schedule(cluster);
  for (const auto& [job, verdict] : all.verdicts) CHECK_FALSE(verdict.placement);
  CHECK(all.taken.empty());
  CHECK(all.look_again.has_value());
  world.leave();
  CHECK(world.pass() == 1);
  CHECK(world.runs("own"));
}

TEST_CASE("whoever was preempted is spared for a while, and never preempts whom it gave way to") {
  QueueWorld world = lab();
  world.add_job("low", "research", 8);
  world.pass();
  world.add_job("own", "product", 4);
  world.job("low").spared = seconds(7);
  CHECK(world.taken().empty());
  CHECK(schedule(world.snapshot()).look_again == seconds(7));
  world.job("low").spared = seconds(0);
  world.give_back();
  world.leave();
  world.pass();
  REQUIRE(world.runs("own"));
  // Even though it is what is due now.
  world.job("low").gang.min = world.job("low").gang.count = 4;
  world.queues[1].quota[0].nominal = 8;
  world.queues[0].quota[0].nominal = 0;
  world.add_job("fills", "research", 4).gang.turn.priority = 5;
  world.pass();
  REQUIRE(world.runs("fills"));
  world.job("low").gang.turn.priority = 1;
  CHECK(world.taken().empty());
  world.job("low").gang.preempted_for_uid = "another";
  CHECK(taken_from(world, "own").workers == 0);
}

TEST_CASE("nobody is preempted before it ran for its queue's least time, and its heir says so") {
  for (const bool is_for_priority : {false, true}) {
    CAPTURE(is_for_priority);
    QueueWorld world = lab();
    world.queues[1].least_run = seconds(600);
    world.clock = 1000;
    world.add_job("low", "research", 8);
    world.pass();
    REQUIRE(world.runs("low"));
    auto& late = world.add_job("late", is_for_priority ? "research" : "product", 4);
    late.gang.turn.priority = is_for_priority ? 1 : 0;
    world.clock += 599;
    const Schedule waits = schedule(world.snapshot());
    CHECK(waits.taken.empty());
    CHECK(waits.look_again == seconds(1));
    CHECK(waits.verdicts.at({"team", "late"})
              .why_not.ends_with(
                  "; room can be made for it once jobs have run for their least time: team/low "
                  "600 s (spec.preemption.minimumRunSeconds of their queue, or what follows a "
                  "preemption)"));
    world.clock += 1;
    CHECK(taken_from(world, "low").workers == 0);
  }
}

TEST_CASE(
    "for whose pods were refused nobody is preempted for a while, and others shrink as ever") {
  QueueWorld world = lab();
  world.add_job("low", "research", 8);
  world.pass();
  world.add_job("own", "product", 4);
  REQUIRE(taken_from(world, "low").workers == 0);
  world.job("own").gang.refused_for = seconds(120);
  const Schedule waits = schedule(world.snapshot());
  CHECK(waits.taken.empty());
  CHECK(waits.look_again == seconds(120));
  CHECK(waits.verdicts.at({"team", "own"})
            .why_not.ends_with("; nobody is preempted for it for a while, because its pods were "
                               "refused when it had room last"));
  world.job("low").is_elastic = true;
  world.job("low").gang.min = 4;
  CHECK(taken_from(world, "low").workers == 4);
}

TEST_CASE(
    "whose pods were refused keeps no nodes from other queues, for it lacks more than nodes") {
  QueueWorld world;
  world.queues = {make_queue("a", 16), make_queue("b", 16)};
  for (const char* name : {"n1", "n2"}) world.add_node(name, 8);
  world.add_job("runs", "b", 1, 8);
  world.pass();
  world.add_job("refused", "a", 2, 8);
  world.add_job("other", "b", 1, 8);
  CHECK(world.pass() == 0);
  world.job("refused").gang.refused_for = seconds(120);
  CHECK(world.pass() == 1);
  CHECK(world.runs("other"));
}

TEST_CASE("who waits for least times hears of those that are over first, whoever loses less") {
  QueueWorld world = lab();
  world.queues[1].least_run = seconds(600);
  world.clock = 1000;
  world.add_job("older", "research", 4).unsaved = seconds(9999);
  world.pass();
  world.clock += 100;
  world.add_job("newer", "research", 4);
  world.pass();
  REQUIRE(world.runs("older"));
  REQUIRE(world.runs("newer"));
  world.add_job("small", "product", 4);
  world.clock += 100;
  const auto why = [&] {
    return schedule(world.snapshot()).verdicts.at({"team", "small"}).why_not;
  };
  CHECK(why().find("least time: team/older 600 s (spec") != std::string::npos);
  // One of them alone is not enough for it.
  world.job("small").gang.count = world.job("small").gang.min = 8;
  world.queues[0].quota[0].nominal = 8;
  world.queues[1].quota[0].nominal = 0;
  CHECK(why().find("team/newer 600 s") != std::string::npos);
  CHECK(why().find("team/older 600 s") != std::string::npos);
}

TEST_CASE("the least time of a queue holds no shrinking up, and none of what has not started") {
  QueueWorld world = lab();
  world.queues[1].least_run = seconds(600);
  auto& wide = world.add_job("wide", "research", 8);
  wide.is_elastic = true;
  wide.gang.min = 4;
  world.pass();
  REQUIRE(world.job("wide").slots.size() == 8);
  world.add_job("own", "product", 4);
  CHECK(taken_from(world, "wide").workers == 4);
  world.job("wide").is_elastic = false;
  CHECK(world.taken().empty());
  world.job("wide").has_started = false;
  CHECK(taken_from(world, "wide").workers == 0);
}

TEST_CASE("who has places that its status does not show yet has just begun to run") {
  Queue queue = make_queue("research", 4);
  queue.least_run = seconds(600);
  const WallTime now{seconds(5000)};
  api::TrainingJob job;
  job.meta.name = "new";
  const auto holder = [&] {
    return *holder_of(job, {"research", 0, {}}, {{0, 0, "n", ""}}, {}, now);
  };
  CHECK(spared_for(holder(), &queue) == seconds(600));
  CHECK(holder().started == now);
  // Who gave way is spared from the decision on that lets it run again.
  job.status.taken_back.preemptions = 1;
  CHECK(spared_for(holder(), nullptr) == seconds(300));
  // Of a gang in Kueue its start counts, which others decide.
  job.status.kueue_queue = "team";
  job.status.placement = {{0, 0, "n", ""}};
  CHECK(spared_for(holder(), &queue) == seconds(0));
}

TEST_CASE("a start that a wrong clock has told hours ahead spares nobody") {
  Queue queue = make_queue("research", 4);
  queue.least_run = seconds(600);
  const WallTime now{seconds(50'000)};
  api::TrainingJob job;
  job.meta.name = "early";
  job.status.taken_back.preemptions = 1;
  job.status.placement = {{0, 0, "n", ""}};
  const auto spared = [&](seconds ahead) {
    job.status.start_time = now + ahead;
    return spared_for(*holder_of(job, {"research", 0, {}}, job.status.placement, {}, now), &queue);
  };
  CHECK(spared(seconds(-100)) == seconds(500));
  CHECK(spared(seconds(60)) == seconds(600));
  CHECK(spared(seconds(3601)) == seconds(0));
}

TEST_CASE("of two that could give way he does whose least time is over, though he loses more") {
  QueueWorld world = lab();
  world.queues.push_back(make_queue("patient", 0, "lab"));
  world.queues.back().least_run = seconds(600);
  world.add_job("young", "patient", 4);
  world.add_job("dear", "research", 4).unsaved = seconds(9999);
  world.pass();
  REQUIRE(world.runs("young"));
  REQUIRE(world.runs("dear"));
  world.queues[0].quota[0].nominal = 8;
  world.queues[1].quota[0].nominal = 0;
  world.add_job("own", "product", 4);
  CHECK(taken_from(world, "dear").workers == 0);
  CHECK(world.taken().size() == 1);
  world.clock += 600;
  CHECK(taken_from(world, "young").workers == 0);
}

TEST_CASE("who leaves and should have left long ago is not waited for") {
  QueueWorld world = lab();
  world.add_job("stuck", "research", 4);
  world.add_job("low", "research", 4);
  world.pass();
  world.add_job("own", "product", 4);
  QueueJob& stuck = world.job("stuck");
  stuck.leaving = std::exchange(stuck.slots, {});
  CHECK(world.taken().empty());
  for (auto& slot : stuck.leaving) slot.is_stuck = true;
  CHECK(taken_from(world, "low").workers == 0);
}

TEST_CASE("the pods of a job that is deleted and does not go are not waited for") {
  const WallTime now{seconds(5000)};
  api::TrainingJob job;
  job.meta.name = "kept";
  const auto is_stuck = [&](seconds deleted_ago) {
    job.meta.deletion_time = now - deleted_ago;
    const auto holder = holder_of(job, {"research", 0, {}}, {{0, 0, "n", ""}}, {}, now);
    REQUIRE(holder->leaving.size() == 1);
    return holder->leaving[0].is_stuck;
  };
  CHECK_FALSE(is_stuck(seconds(60)));
  CHECK(is_stuck(seconds(61)));
  job.spec.worker.pod_fields = {{"terminationGracePeriodSeconds", 600}};
  CHECK_FALSE(is_stuck(seconds(630)));
  CHECK(is_stuck(seconds(631)));
}

TEST_CASE("nobody is preempted for room that others leave, whoever they are") {
  QueueWorld world;
  world.queues = {make_queue("research", 64)};
  for (const char* name : {"a", "b"}) world.add_node(name, 8);
  world.add_job("free", "", 1, 8);
  world.add_job("low", "research", 1, 8);
  world.pass();
  world.add_job("high", "research", 1, 8).gang.turn.priority = 1;
  CHECK(taken_from(world, "low").workers == 0);
  auto cluster = world.snapshot();
  const QueueJob& free = world.job("free");
  cluster.leaving = {{free.slots[0].node, free.gang.per_worker}};
  const Schedule all = schedule(cluster);
  CHECK(all.taken.empty());
  CHECK(all.verdicts.at({"team", "high"})
            .why_not.ends_with("; it starts when those are gone that leave now"));
  CHECK(all.look_again.has_value());
}

TEST_CASE("while room is made for a head others start on nodes where it will not stand") {
  QueueWorld world;
  world.queues = {make_queue("a", 8), make_queue("b", 8)};
  for (const char* name : {"n1", "n2", "n3"}) world.add_node(name, 8);
  world.add_job("low", "a", 1, 8);
  world.pass();
  world.add_job("high", "a", 1, 8).gang.turn.priority = 1;
  world.give_back();
  REQUIRE_FALSE(world.job("low").leaving.empty());
  world.add_job("other", "b", 1, 8);
  CHECK(world.pass() == 1);
  CHECK(world.runs("other"));
  CHECK(world.taken().empty());
  world.leave();
  world.pass();
  CHECK(world.runs("high"));
}

TEST_CASE("while quota is freed for a head whose nodes others find no nodes are kept for it") {
  QueueWorld world;
  world.queues = {make_queue("a", 8), make_queue("b", 8)};
  for (const char* name : {"n1", "n2"}) world.add_node(name, 8);
  world.add_job("low", "a", 1, 8);
  world.pass();
  WaitingGang& high = world.add_job("high", "a", 1, 8).gang;
  high.turn.priority = 1;
  high.unplaced = true;
  CHECK(world.give_back().size() == 1);
  world.add_job("other", "b", 1, 8);
  CHECK(world.pass() == 1);
  CHECK(world.runs("other"));
  world.leave();
  world.pass();
  CHECK(world.runs("high"));
}

TEST_CASE(
    "while room is made for a head that lacks nodes alone it may still start elsewhere sooner") {
  for (const std::string queue : {"a", "b"}) {
    CAPTURE(queue);
    QueueWorld world;
    world.queues = {make_queue("a", 24), make_queue("b", 8)};
    for (const char* name : {"n1", "n2"}) world.add_node(name, 8);
    world.add_job("low", "a", 1, 8);
    world.pass();
    world.add_job("equal", "a", 1, 4).gang.turn.priority = 1;
    world.pass();
    world.add_job("high", "a", 2, 4).gang.turn.priority = 1;
    CHECK(world.give_back().size() == 1);
    world.add_job("later", queue, 1, 4);
    CHECK(world.pass() == 0);
    CHECK(world.why("later").find("the room that there is is kept for team/high") !=
          std::string::npos);
    world.end("equal");
    world.pass();
    CHECK(world.runs("high"));
  }
}

TEST_CASE("while room is made for a head that others come back before all its nodes are kept") {
  QueueWorld world = lab();
  world.queues.push_back(make_queue("alone", 8));
  world.add_job("wide", "research", 8).gang.min = 2;
  world.pass();
  world.add_node("idle", 8);
  world.add_job("own", "product", 4);
  CHECK(world.give_back().size() == 1);
  world.add_job("other", "alone", 8);
  CHECK(world.pass() == 0);
  CHECK(world.why("other").find("the room that there is is kept for team/own") !=
        std::string::npos);
  world.leave();
  CHECK(world.pass() == 3);
}

TEST_CASE("for a head that others leave room for good only its nodes are kept") {
  for (const bool comes_back : {true, false}) {
    CAPTURE(comes_back);
    QueueWorld world = lab();
    world.queues.push_back(make_queue("alone", 8));
    world.add_job("wide", "research", 8).gang.min = 2;
    world.pass();
    for (const char* name : {"o", "p"}) world.add_node(name, 8);
    world.add_job("own", "product", 4);
    QueueJob& wide = world.job("wide");
    wide.leaving = std::exchange(wide.slots, {});
    world.add_job("other", "alone", 1, 8);
    ClusterSnapshot cluster = world.snapshot();
    for (QueueHolder& holder : cluster.holders) holder.comes_back = comes_back;
    const auto verdicts = schedule(cluster).verdicts;
    CHECK_FALSE(verdicts.at({"team", "own"}).placement);
    CHECK(verdicts.at({"team", "other"}).placement.has_value() == !comes_back);
  }
}

TEST_CASE("who has ended, is suspended or is deleted does not come back") {
  api::TrainingJob job;
  job.meta.name = "a";
  api::Pod pod;
  pod.meta.name = "a-0";
  pod.node_name = "n";
  const auto comes_back = [&] {
    const auto holder = holder_of(job, {"research", 0, {}}, {}, {&pod}, WallTime(seconds(5000)));
    REQUIRE(holder);
    return holder->comes_back;
  };
  CHECK(comes_back());
  SUBCASE("ended") {
    job.status.conditions.emplace_back();
    job.status.conditions.back().type = "Complete";
    job.status.conditions.back().status = "True";
  }
  SUBCASE("suspended") { job.spec.suspend = true; }
  SUBCASE("deleted") { job.meta.deletion_time = WallTime(seconds(4990)); }
  CHECK_FALSE(comes_back());
}

TEST_CASE("two heads are not given the same") {
  QueueWorld world;
  world.queues = {make_queue("a", 4, "lab"), make_queue("b", 4, "lab"), make_queue("c", 0, "lab")};
  world.add_node("n", 8);
  for (int i = 0; i < 8; ++i) world.add_job("c" + std::to_string(i), "c", 1);
  world.pass();
  world.add_job("a", "a", 3);
  world.add_job("b", "b", 4);
  const auto all = world.give_back();
  CHECK(all.size() == 7);
  world.leave();
  CHECK(world.pass() == 2);
}
