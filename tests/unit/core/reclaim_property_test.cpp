// What must hold of taking back whatever comes: drawn from seeds, and against every set of victims
// that there is where few jobs run.
#include <doctest/doctest.h>

#include <tuple>

#include "tests/test_main.h"
#include "tests/unit/core/queue_world.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

QueueWorld reclaim_world(Rng& rng) {
  QueueWorld world;
  for (std::size_t i = 1 + rng.below(3); i > 0; --i) {
    const auto gpus = static_cast<std::int64_t>(rng.below(6));
    world.queues.push_back(make_queue("q" + std::to_string(i), gpus, "lab"));
  }
  for (std::size_t i = 1 + rng.below(3); i > 0; --i) {
    world.add_node("n" + std::to_string(i), 1 + static_cast<std::int64_t>(rng.below(5)));
  }
  return world;
}

QueueJob& reclaim_job(QueueWorld& world, Rng& rng) {
  const auto& queue = world.queues[rng.below(world.queues.size())].name;
  const int min = 1 + static_cast<int>(rng.below(3));
  auto& job = world.add_job("j" + std::to_string(world.jobs_made), queue, min,
                            1 + static_cast<std::int64_t>(rng.below(2)));
  job.gang.turn.priority = static_cast<int>(rng.below(3));
  job.unsaved = seconds(rng.below(40));
  return job;
}

/// A job that comes last, beside those that run alone: larger than they are, so that often no
/// single victim leaves room enough.
std::string add_head(QueueWorld& world, Rng& rng) {
  std::erase_if(world.jobs, [](const QueueJob& job) { return job.slots.empty(); });
  QueueJob& last = reclaim_job(world, rng);
  last.gang.count = last.gang.min += static_cast<int>(rng.below(3));
  last.gang.turn.priority = static_cast<int>(rng.below(4));
  return last.gang.job.name;
}

std::int64_t lost_of(const QueueJob& job) {
  return static_cast<std::int64_t>(job.slots.size()) * job.unsaved.count();
}

std::int64_t nominal_of(const QueueWorld& world, const std::string& queue) {
  for (const auto& one : world.queues) {
    if (one.name == queue) return one.quota[0].nominal;
  }
  return 0;
}

/// Highest priority of a victim, work lost, victims.
using Cost = std::tuple<int, std::int64_t, std::size_t>;

std::int64_t gpus_of(const WaitingGang& gang) { return gang.min * gang.per_worker.gpus; }

/// Those of them, oldest first, that have their places again before the head, which is younger: as
/// their queue's own.
void bring_back(QueueWorld& world, std::vector<QueueJob*> victims, const WaitingGang& head) {
  std::stable_sort(victims.begin(), victims.end(), [](const QueueJob* a, const QueueJob* b) {
    const QueueTurn &of_a = a->gang.turn, &of_b = b->gang.turn;
    if (of_a.priority != of_b.priority) return of_a.priority > of_b.priority;
    return of_a.created < of_b.created;
  });
  std::int64_t all = 0;
  for (const auto& queue : world.queues) all += queue.quota[0].nominal;
  for (QueueJob* job : victims) {
    const auto& queue = job->gang.turn.queue;
    std::int64_t held = gpus_of(job->gang);
    for (const auto& one : world.queues) held += world.held(one.name, kGpu);
    const bool is_own =
        held <= all && world.held(queue, kGpu) + gpus_of(job->gang) <= nominal_of(world, queue);
    const bool head_borrows =
        world.held(head.turn.queue, kGpu) + gpus_of(head) > nominal_of(world, head.turn.queue);
    const bool is_first = head_borrows || job->gang.turn.priority >= head.turn.priority;
    job->has_ended = queue == head.turn.queue || !is_own || !is_first;
  }
}

/// Whether these may be preempted for the head, one after the other, and it starts then, whoever of
/// them comes back before it.
std::optional<Cost> cost_of(QueueWorld world, const std::vector<std::string>& victims,
                            const std::string& head, bool as_owner) {
  Cost cost{INT32_MIN, 0, victims.size()};
  const WaitingGang gang = world.job(head).gang;
  std::vector<QueueJob*> sent;
  for (const auto& name : victims) {
    QueueJob& job = world.job(name);
    const auto& queue = job.gang.turn.queue;
    const bool is_lower = job.gang.turn.priority < gang.turn.priority;
    const bool borrows = world.held(queue, kGpu) > nominal_of(world, queue);
    const bool may = queue == gang.turn.queue ? is_lower : borrows && (is_lower || as_owner);
    if (!may) return std::nullopt;
    std::get<0>(cost) = std::max(std::get<0>(cost), job.gang.turn.priority);
    std::get<1>(cost) += lost_of(job);
    job.has_ended = true;
    sent.push_back(&job);
  }
  const auto& queue = gang.turn.queue;
  const bool borrows = world.held(queue, kGpu) + gpus_of(gang) > nominal_of(world, queue);
  if (as_owner && borrows) return std::nullopt;
  bring_back(world, sent, gang);
  world.pass();
  return world.runs(head) ? std::optional(cost) : std::nullopt;
}

/// The least over all sets, each in the order in which victims are taken.
std::optional<Cost> least_cost(const QueueWorld& world, const std::string& head) {
  std::vector<const QueueJob*> running;
  for (const auto& job : world.jobs) {
    if (!job.slots.empty()) running.push_back(&job);
  }
  const auto rank = [](const QueueJob* job) {
    return std::tuple(job->gang.turn.priority, lost_of(*job));
  };
  std::sort(running.begin(), running.end(), [&](const QueueJob* a, const QueueJob* b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    if (a->started != b->started) return a->started > b->started;
    return a->gang.job < b->gang.job;
  });
  std::optional<Cost> least;
  for (std::uint64_t set = 0; set < std::uint64_t{1} << running.size(); ++set) {
    std::vector<std::string> victims;
    for (std::size_t i = 0; i < running.size(); ++i) {
      if ((set >> i & 1) != 0) victims.push_back(running[i]->gang.job.name);
    }
    for (const bool as_owner : {false, true}) {
      const auto cost = cost_of(world, victims, head, as_owner);
      if (cost && (!least || *cost < *least)) least = cost;
    }
  }
  return least;
}

}  // namespace

TEST_CASE("preempted is the cheapest set of all that there are, and nobody where none helps") {
  int preempted = 0, several = 0, none = 0;
  for (int seed = 1; seed <= test::tries(2400); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world = reclaim_world(rng);
    for (int i = 0; i < 6; ++i) {
      reclaim_job(world, rng);
      ++world.clock;
      world.pass();
    }
    const std::string head = add_head(world, rng);
    if (world.verdicts().at({"team", head}).placement) continue;
    const auto taken = world.taken();
    const auto least = least_cost(world, head);
    REQUIRE(least.has_value() == !taken.empty());
    none += taken.empty() ? 1 : 0;
    if (taken.empty()) continue;
    Cost cost{INT32_MIN, 0, taken.size()};
    for (const auto& [job, one] : taken) {
      CHECK(one.workers == 0);
      const QueueJob& victim = world.job(job.name);
      CHECK(one.lost_process_seconds == lost_of(victim));
      std::get<0>(cost) = std::max(std::get<0>(cost), victim.gang.turn.priority);
      std::get<1>(cost) += lost_of(victim);
    }
    CHECK(cost == *least);
    ++preempted;
    several += taken.size() > 1 ? 1 : 0;
  }
  MESSAGE(preempted << " preemptions, " << several << " of several jobs, " << none << " of nobody");
  CHECK(preempted > test::tries(150));
  CHECK(several > test::tries(40));
  CHECK(none > test::tries(100));
}

TEST_CASE("whoever is preempted, and comes back with less, leaves the head its room") {
  int preempted = 0, back = 0;
  for (int seed = 1; seed <= test::tries(2400); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world = reclaim_world(rng);
    world.add_node("roomy", 40);  // nobody knows where he comes back
    for (int i = 0; i < 6; ++i) {
      auto& job = reclaim_job(world, rng);
      job.gang.count += static_cast<int>(rng.below(6));
      ++world.clock;
      world.pass();
    }
    const std::string head = add_head(world, rng);
    const auto taken = world.give_back();
    if (taken.empty()) continue;
    world.leave();
    world.pass();
    CHECK(world.runs(head));
    for (const auto& [job, one] : taken) {
      CHECK(one.workers == 0);
      ++preempted;
      back += world.runs(job.name) ? 1 : 0;
    }
  }
  MESSAGE(preempted << " preempted, " << back << " are back");
  CHECK(preempted > test::tries(100));
  CHECK(back > test::tries(20));
}

TEST_CASE("nobody shrinks below its least, nor by a worker that could stay, and the head starts") {
  int shrunk = 0, both = 0;
  for (int seed = 1; seed <= test::tries(2400); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world = reclaim_world(rng);
    for (int i = 0; i < 5; ++i) {
      auto& job = reclaim_job(world, rng);
      job.is_elastic = rng.below(2) == 0;
      if (job.is_elastic) job.gang.count += static_cast<int>(rng.below(4));
      ++world.clock;
      world.pass();
    }
    std::erase_if(world.jobs, [](const QueueJob& job) { return job.slots.empty(); });
    const std::string head = reclaim_job(world, rng).gang.job.name;
    world.job(head).gang.turn.priority = static_cast<int>(rng.below(4));
    if (world.verdicts().at({"team", head}).placement) continue;
    const QueueWorld before = world;
    const auto taken = world.give_back();
    if (taken.empty()) continue;
    bool shrinks = false, preempts = false;
    for (const auto& [job, one] : taken) (one.workers == 0 ? preempts : shrinks) = true;
    world.leave();
    world.pass();
    CHECK(world.runs(head));
    shrunk += shrinks ? 1 : 0;
    both += shrinks && preempts ? 1 : 0;
    // One worker that stays after all is one too many.
    for (const auto& [job, one] : taken) {
      if (one.workers == 0) continue;
      QueueWorld other = before;
      for (const auto& [name, take] : taken) {
        auto& slots = other.job(name.name).slots;
        slots.resize(static_cast<std::size_t>(take.workers) + (name == job ? 1 : 0));
      }
      for (auto& one_job : other.jobs) {
        if (one_job.slots.empty() && one_job.gang.job.name != head) one_job.has_ended = true;
      }
      const std::int64_t held = other.held(other.job(head).gang.turn.queue, kGpu);
      other.pass();
      const auto& gang = other.job(head).gang;
      const bool borrows =
          held + gang.min * gang.per_worker.gpus > nominal_of(other, gang.turn.queue);
      // It might start as a borrower, which is nothing that anybody is asked to shrink for.
      CHECK((!other.runs(head) || borrows));
    }
  }
  MESSAGE(shrunk << " shrinks, " << both << " with preemptions");
  CHECK(shrunk > test::tries(100));
  CHECK(both > test::tries(5));
}

namespace {

/// What one second brings: who leaves is gone, who has a place takes it, who is asked gives back.
void tick(QueueWorld& world, bool spares) {
  ++world.clock;
  world.leave();
  world.pass();
  for (auto& job : world.jobs) {
    job.unsaved = job.slots.empty() ? seconds(0) : seconds(world.clock % 7);
    const std::int64_t runs = world.clock - job.started.time_since_epoch() / seconds(1);
    const bool is_spared = spares && job.preemptions > 0 && !job.slots.empty();
    job.spared = is_spared ? std::max(seconds(0), seconds(20 - runs)) : seconds(0);
  }
}

}  // namespace

TEST_CASE(
    "where nobody comes or ends all comes to rest, and nobody sends away whom it gave way to") {
  int preemptions = 0, most = 0;
  for (int seed = 1; seed <= test::tries(600); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world = reclaim_world(rng);
    for (int i = 0; i < 10; ++i) {
      auto& job = reclaim_job(world, rng);
      job.is_elastic = rng.below(3) == 0;
      if (job.is_elastic) job.gang.count += static_cast<int>(rng.below(4));
      if (rng.below(2) == 0) tick(world, false);
    }
    std::set<std::pair<std::string, std::string>> sent;
    int rounds = 0, quiet = 0;
    for (; rounds < 100 && quiet < 3; ++rounds) {
      tick(world, false);
      const auto taken = world.give_back();
      quiet = taken.empty() ? quiet + 1 : 0;
      for (const auto& [job, one] : taken) {
        if (one.workers > 0) continue;
        ++preemptions;
        sent.emplace(one.job.name, job.name);
        CHECK_FALSE(sent.contains({job.name, one.job.name}));
      }
    }
    CHECK(quiet == 3);
    for (const auto& job : world.jobs) most = std::max(most, job.preemptions);
  }
  MESSAGE(preemptions << " preemptions, of one job at most " << most);
  CHECK(preemptions > test::tries(100));
  CHECK(most <= 3);
}

TEST_CASE("whoever room is made for has it, though others come meanwhile") {
  int made = 0;
  for (int seed = 1; seed <= test::tries(800); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world = reclaim_world(rng);
    for (int i = 0; i < 6; ++i) {
      auto& job = reclaim_job(world, rng);
      job.is_elastic = rng.below(2) == 0;
      if (job.is_elastic) job.gang.count += static_cast<int>(rng.below(4));
      world.pass();
    }
    std::erase_if(world.jobs, [](const QueueJob& job) { return job.slots.empty(); });
    auto& job = reclaim_job(world, rng);
    job.gang.turn.priority = 3;
    const std::string head = job.gang.job.name;
    if (world.give_back().empty()) continue;
    ++made;
    for (int i = 0; i < 4; ++i) {
      auto& later = reclaim_job(world, rng);
      // Who stays within its own quota comes first where the head would borrow.
      later.gang.turn.queue = rng.below(3) == 0 ? "" : world.job(head).gang.turn.queue;
    }
    for (int part = 0; part < 3; ++part) {
      for (auto& one : world.jobs) {
        if (!one.leaving.empty() && rng.below(2) == 0) one.leaving.pop_back();
      }
      world.pass();
      if (world.runs(head)) break;
      CHECK(world.give_back().empty());
    }
    world.leave();
    world.pass();
    CHECK(world.runs(head));
  }
  CHECK(made > test::tries(100));
}

TEST_CASE("where jobs end all that can start do, and none is preempted more often than bounded") {
  int admitted = 0, preemptions = 0;
  for (int seed = 1; seed <= test::tries(150); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world = reclaim_world(rng);
    for (auto& queue : world.queues) {
      queue.quota[0].nominal += 6;
      queue.least_run = seconds(rng.below(2) * rng.below(8));
    }
    world.add_node("roomy", 6);
    std::map<std::string, int> work;  // seconds to go, of which none is lost
    int last_end = 0;
    for (int second = 0; second < 400; ++second) {
      if (second < 100 && rng.below(3) == 0) {
        auto& job = reclaim_job(world, rng);
        job.is_elastic = rng.below(3) == 0;
        work[job.gang.job.name] = 1 + static_cast<int>(rng.below(12));
      }
      tick(world, true);
      world.give_back();
      for (auto& job : world.jobs) {
        if (job.slots.empty() || job.has_ended || --work[job.gang.job.name] > 0) continue;
        job.has_ended = true;
        last_end = second;
      }
    }
    for (const auto& job : world.jobs) {
      ++admitted;
      preemptions += job.preemptions;
      CHECK_MESSAGE(job.has_ended, job.gang.job.name);
      // It is spared for twenty seconds and has twelve to do: once, and once on its way.
      CHECK(job.preemptions <= 1);
    }
    CHECK(last_end < 399);
  }
  MESSAGE(preemptions << " preemptions of " << admitted << " jobs");
  CHECK(preemptions > test::tries(50));
  CHECK(preemptions < admitted);
}
