// Who goes ahead of the first of a line, and that the first is no later for it.
#include <doctest/doctest.h>

#include "operator/core/queue_backfill.h"
#include "operator/core/queue_pass.h"
#include "tests/unit/core/queue_world.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

/// Eight GPUs; six are held until 3,600 s from now, and the first in the line wants all.
QueueWorld waiting_for_all() {
  QueueWorld world;
  world.queues = {make_queue("research", 8)};
  world.add_node("n", 8);
  world.add_job("long", "research", 6).deadline = 3600;
  world.pass();
  world.add_job("all", "research", 8);
  return world;
}

/// What the pass knows of the first in the line; the pass itself starts nobody here.
std::optional<seconds> foretold(const QueueWorld& world, const std::string& name) {
  const ClusterSnapshot cluster = world.snapshot();
  QuotaLedger ledger(cluster.queues);
  for (const QueueHolder& holder : cluster.holders) {
    ledger.charge(ledger.index_of(holder.turn.queue), amounts_of(holder.per_worker),
                  holder.workers());
  }
  const Rooms rooms(cluster);
  for (const WaitingGang& gang : cluster.gangs) {
    if (gang.job.name != name) continue;
    const KnownEnds ends(cluster, ledger, rooms);
    const auto all = [](const Rooms&) { return std::optional<NodeCaps>(); };
    return ends.starts_within(ledger, rooms, ledger.index_of(gang.turn.queue), gang, all);
  }
  return std::nullopt;
}

/// The one that comes first of those that wait.
QueueJob* first_waiting(QueueWorld& world) {
  for (QueueJob& job : world.jobs) {
    if (!job.has_ended && job.slots.empty()) return &job;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("who is over before the first of the line has room goes ahead of it, and says so") {
  QueueWorld world = waiting_for_all();
  CHECK(foretold(world, "all") == seconds(3600));
  world.add_job("short", "research", 2).deadline = 3540;
  world.add_job("late", "research", 1).deadline = 3541;
  world.add_job("endless", "research", 1);
  const auto verdicts = world.verdicts();
  CHECK_FALSE(verdicts.at({"team", "all"}).placement);
  REQUIRE(verdicts.at({"team", "short"}).placement);
  CHECK(verdicts.at({"team", "short"}).placement->why ==
        "goes ahead of team/all, which has room in 3600 s at the latest, because it is over before "
        "(spec.activeDeadlineSeconds)");
  CHECK(verdicts.at({"team", "short"}).placement->went_ahead);
  CHECK(world.pass() == 1);
  world.end("short");
  CHECK(world.pass() == 0);
  CHECK_FALSE(world.runs("late"));
  CHECK_FALSE(world.runs("endless"));
}

TEST_CASE("time passes for those that run, and what runs ahead counts as well") {
  QueueWorld world = waiting_for_all();
  world.clock = 3000;
  CHECK(foretold(world, "all") == seconds(600));
  world.add_job("short", "research", 2).deadline = 700;
  CHECK(world.pass() == 0);
  world.job("short").deadline = 540;
  CHECK(world.pass() == 1);
  CHECK(foretold(world, "all") == seconds(600));
  world.end("long");
  CHECK(foretold(world, "all") == seconds(540));
}

TEST_CASE("nothing is foretold where one whose place is needed has no deadline") {
  QueueWorld world;
  world.queues = {make_queue("research", 8)};
  world.add_node("n", 8);
  world.add_job("endless", "research", 2);
  world.add_job("bounded", "research", 4).deadline = 100;
  world.pass();
  world.add_job("all", "research", 8);
  world.add_job("half", "research", 4);
  CHECK_FALSE(foretold(world, "all").has_value());
  CHECK(foretold(world, "half") == seconds(100));
  world.add_job("short", "research", 1).deadline = 1;
  CHECK(world.pass() == 0);
  // Of two that end, the second is the one that makes the room.
  world.job("endless").deadline = 50;
  CHECK(foretold(world, "all") == seconds(100));
  CHECK(foretold(world, "half") == seconds(50));
}

TEST_CASE("who starts again waits for others' ends, not for its own deadline") {
  QueueWorld world;
  world.queues = {make_queue("research", 8)};
  world.add_node("n", 8);
  world.add_job("long", "research", 2).deadline = 3600;
  world.pass();
  QueueJob& again = world.add_job("again", "research", 8);
  again.gang.wish.not_yet = true;
  again.deadline = 7200;
  for (int i = 0; i < 4; ++i) again.leaving.push_back({i, "n"});
  CHECK(foretold(world, "again") == seconds(3600));
  world.add_job("late", "research", 2).deadline = 3541;
  CHECK(world.pass() == 0);
  world.job("late").deadline = 3540;
  CHECK(world.pass() == 1);
  CHECK(world.runs("late"));
  // It needs no end but that of its own old pods.
  world.job("again").gang.count = world.job("again").gang.min = 4;
  CHECK_FALSE(foretold(world, "again").has_value());
}

TEST_CASE("nothing is foretold of one that waits for no end") {
  QueueWorld world = waiting_for_all();
  world.job("all").gang.count = world.job("all").gang.min = 2;
  CHECK_FALSE(foretold(world, "all").has_value());
  world.job("all").gang.count = world.job("all").gang.min = 3;
  CHECK(foretold(world, "all") == seconds(3600));
}

TEST_CASE("nothing is foretold of one whose workers should have left long ago") {
  QueueWorld world = waiting_for_all();
  world.job("long").slots[0].is_stuck = true;
  CHECK_FALSE(foretold(world, "all").has_value());
}

TEST_CASE("what others of the cohort wait for is not taken by going ahead") {
  QueueWorld world;
  world.queues = {make_queue("a", 4, "lab"), make_queue("b", 4, "lab")};
  world.add_node("n", 8);
  world.add_job("a0", "a", 2).deadline = 5000;
  world.add_job("b0", "b", 4).deadline = 5000;
  world.pass();
  world.add_job("a1", "a", 4);
  world.add_job("b1", "b", 4);
  world.add_job("b2", "b", 2).deadline = 10;
  world.add_job("a2", "a", 2).deadline = 10;
  world.pass();
  CHECK_FALSE(world.runs("b2"));  // two are free, and they are a's own
  CHECK(world.runs("a2"));
}

TEST_CASE("of those behind the first only whoever could start counts among the hundred looked at") {
  QueueWorld world = waiting_for_all();
  for (int i = 0; i < 2 * kTriedBehindHead; ++i) {
    world.add_job("two" + std::to_string(i), "research", 2);  // no quota is left for it
  }
  world.add_job("free", "research", 1, 0);
  CHECK(world.pass() == 1);
  CHECK(world.runs("free"));
}

TEST_CASE("who is not looked at because so many before it have started hears so") {
  QueueWorld world = waiting_for_all();
  world.add_node("m", 0, 200);
  world.nodes.back().allocatable["pods"] = 1000;
  world.nodes.back().meta.labels = {{"pool", "m"}};
  for (int i = 0; i <= kTriedBehindHead; ++i) {
    QueueJob& job = world.add_job("free" + std::to_string(i), "research", 1, 0);
    job.gang.node_selector = {{"pool", "m"}};
  }
  const auto verdicts = world.verdicts();
  CHECK(verdicts.at({"team", "free99"}).placement);
  CHECK(verdicts.at({"team", "free100"}).why_not ==
        "2nd in queue research: its quota has room; a place is looked for in a moment");
}

TEST_CASE("nobody goes ahead with nodes that are kept for the first of another queue") {
  QueueWorld world;
  world.queues = {make_queue("a", 16), make_queue("x", 16)};
  world.add_node("n", 8);
  world.add_job("a0", "a", 6).deadline = 5000;
  world.pass();
  world.add_job("x1", "x", 4);
  world.add_job("a1", "a", 8);
  world.add_job("a2", "a", 2).deadline = 10;
  CHECK(world.pass() == 0);
  world.end("x1");
  CHECK(world.pass() == 1);
  CHECK(world.runs("a2"));
}

TEST_CASE("the first of a line is not foretold nodes that are kept for the first of another") {
  QueueWorld world;
  world.queues = {make_queue("a", 64), make_queue("b", 64), make_queue("c", 64)};
  for (const char* name : {"p1", "p1b", "p2"}) {
    world.add_node(name, 8);
    world.nodes.back().meta.labels = {{"pool", std::string(name).substr(0, 2)}};
  }
  world.add_job("r", "a", 1, 8).slots = {{0, "p1b"}};
  world.add_job("s", "b", 1, 4).slots = {{0, "p2"}};
  QueueJob& other = world.add_job("e", "c", 1, 0);
  other.slots = {{0, "p2"}};
  other.deadline = 36'000;
  // Node p1 is kept for the first of queue a, so that the first of b waits for s.
  world.add_job("a1", "a", 2, 8).gang.node_selector = {{"pool", "p1"}};
  world.add_job("b1", "b", 1, 8);
  QueueJob& later = world.add_job("later", "b", 1, 4);
  later.gang.node_selector = {{"pool", "p2"}};
  later.deadline = 30'000;
  CHECK(world.pass() == 0);
  world.job("s").deadline = 600;
  CHECK(world.pass() == 0);
  world.job("later").deadline = 540;
  const auto verdicts = world.verdicts();
  const auto& placed = verdicts.at({"team", "later"}).placement;
  REQUIRE(placed);
  CHECK(placed->why.find("goes ahead of team/b1, which has room in 600 s") != std::string::npos);
}

namespace {

/// Those that have started ahead of the first of a line, and how long it may wait for them.
class Passers {
 public:
  /// Whoever is the first now; those ahead of another do not concern it.
  void follow(const std::string& first) {
    if (first == first_) return;
    first_ = first;
    over_by_.clear();
    at_latest_.reset();
  }
  void add(const QueueJob& job, int clock) {
    if (job.deadline > 0) over_by_[job.gang.job.name] = clock + job.deadline;
  }
  /// After a pass. Whether the first could have started now, and never before, were they not there.
  bool hold_up(const QueueWorld& world) {
    std::erase_if(over_by_, [&](const auto& one) { return !world.runs(one.first); });
    if (at_latest_ || over_by_.empty() || world.runs(first_)) return false;
    QueueWorld without = world;
    int latest = 0;
    for (const auto& [name, over_by] : over_by_) {
      without.end(name);
      latest = std::max(latest, over_by);
    }
    without.pass();
    if (!without.runs(first_)) return false;
    at_latest_ = latest;
    return true;
  }
  /// When the first has room at the latest; absent: nobody holds it up.
  const std::optional<int>& at_latest() const { return at_latest_; }

 private:
  std::string first_;
  std::map<std::string, int> over_by_;
  std::optional<int> at_latest_;
};

}  // namespace

TEST_CASE("over random lines the first waits for who went ahead no longer than was foretold") {
  int ahead = 0, foretold_starts = 0, held_up = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    CAPTURE(seed);
    Rng rng(seed);
    QueueWorld world;
    world.queues = {make_queue("q", 12)};
    for (const char* name : {"n0", "n1", "n2"}) world.add_node(name, 4);
    std::map<std::string, int> ends;      // when who runs ends
    std::map<std::string, int> promised;  // when who came first was to start
    Passers passers;
    for (int event = 0; event < 60; ++event) {
      if (rng.below(2) == 0 || ends.empty()) {
        QueueJob& job = world.add_job("j" + std::to_string(world.jobs_made), "q",
                                      1 + static_cast<int>(rng.below(3)),
                                      1 + static_cast<std::int64_t>(rng.below(4)));
        if (rng.below(10) != 0) job.deadline = 100 + static_cast<int>(rng.below(5000));
      } else {
        const auto next =
            std::min_element(ends.begin(), ends.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        world.clock = std::max(world.clock, next->second);
        world.end(next->first);
        ends.erase(next);
      }
      const QueueJob* first = first_waiting(world);
      const std::string first_name = first == nullptr ? "" : first->gang.job.name;
      passers.follow(first_name);
      world.pass();
      for (const QueueJob& job : world.jobs) {
        const std::string& name = job.gang.job.name;
        if (job.has_ended || job.slots.empty() || ends.contains(name)) continue;
        const int most = job.deadline > 0 ? job.deadline : 20'000;
        ends[name] =
            world.clock + 1 + static_cast<int>(rng.below(static_cast<std::uint64_t>(most)));
        if (name != first_name && !first_name.empty() && !world.runs(first_name)) {
          ++ahead;
          passers.add(job, world.clock);
        }
        // Had nobody gone ahead it might have started sooner, but they are over by then.
        if (name == first_name && passers.at_latest()) CHECK(world.clock <= *passers.at_latest());
        if (const auto by = promised.find(name); by != promised.end()) {
          CHECK(world.clock <= by->second);
          ++foretold_starts;
        }
      }
      held_up += passers.hold_up(world) ? 1 : 0;
      first = first_waiting(world);
      if (first == nullptr || promised.contains(first->gang.job.name)) continue;
      if (const auto within = foretold(world, first->gang.job.name)) {
        promised[first->gang.job.name] = world.clock + static_cast<int>(within->count());
      }
    }
  }
  MESSAGE(ahead << " went ahead, " << foretold_starts << " firsts started in time, " << held_up
                << " were held up");
  CHECK(ahead > 100);
  CHECK(held_up > 10);
  CHECK(foretold_starts > 100);
}
