// What must hold of queues whatever comes: drawn from seeds, checked after every pass.
#include <doctest/doctest.h>

#include "tests/test_main.h"
#include "tests/unit/core/queue_world.h"

using namespace muster;
using namespace muster::core;
using namespace muster::test;

namespace {

std::optional<std::int64_t> limit_or_none(Rng& rng, std::uint64_t most) {
  if (rng.below(2) == 0) return std::nullopt;
  return static_cast<std::int64_t>(rng.below(most));
}

QueueWorld random_world(Rng& rng) {
  QueueWorld world;
  for (std::size_t i = 1 + rng.below(4); i > 0; --i) {
    Queue queue = make_queue("q" + std::to_string(i), static_cast<std::int64_t>(rng.below(9)));
    queue.cohort = rng.below(4) == 0 ? "" : rng.below(3) == 0 ? "other" : "lab";
    queue.weight = 1 + static_cast<int>(rng.below(3));
    if (!queue.cohort.empty()) {
      queue.quota[0].borrowing_limit = limit_or_none(rng, 6);
      queue.quota[0].lending_limit = limit_or_none(rng, 6);
    }
    if (rng.below(2) == 0) {
      queue.quota.push_back({"cpu", static_cast<std::int64_t>(rng.below(16)) * 1000, {}, {}});
    }
    world.queues.push_back(std::move(queue));
  }
  for (std::size_t i = 1 + rng.below(4); i > 0; --i) {
    world.add_node("n" + std::to_string(i), static_cast<std::int64_t>(rng.below(9)),
                   1 + static_cast<std::int64_t>(rng.below(8)));
  }
  return world;
}

void random_job(QueueWorld& world, Rng& rng, const std::string& queue) {
  const int min = 1 + static_cast<int>(rng.below(3));
  auto& job = world.add_job("j" + std::to_string(world.jobs_made), queue, min,
                            static_cast<std::int64_t>(rng.below(4)));
  job.gang.count = min + static_cast<int>(rng.below(3));
  job.gang.per_worker.cpu_millis = 500 * (1 + static_cast<std::int64_t>(rng.below(4)));
  job.gang.turn.priority = static_cast<int>(rng.below(3)) * 10;
}

std::string some_queue(const QueueWorld& world, Rng& rng) {
  return rng.below(8) == 0 ? "" : world.queues[rng.below(world.queues.size())].name;
}

template <typename T>
void shuffle(std::vector<T>& items, Rng& rng) {
  for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[rng.below(i)]);
}

}  // namespace

TEST_CASE(
    "quota and nodes hold whatever comes and goes, and the order of what is known is nothing") {
  int started = 0, waited = 0;
  for (int seed = 1; seed <= test::tries(400); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world = random_world(rng);
    for (int round = 0; round < 12; ++round) {
      for (std::size_t i = rng.below(4); i > 0; --i) random_job(world, rng, some_queue(world, rng));
      for (auto& job : world.jobs) {
        if (!job.slots.empty() && rng.below(5) == 0) job.has_ended = true;
      }
      const auto verdicts = world.verdicts();
      auto turned = world.snapshot();
      shuffle(turned.queues, rng);
      shuffle(turned.holders, rng);
      shuffle(turned.nodes, rng);
      // Those in no queue are first come, first served; all others may stand anywhere.
      std::vector<WaitingGang> free, queued;
      for (auto& gang : turned.gangs) (gang.turn.queue.empty() ? free : queued).push_back(gang);
      if (free.empty()) shuffle(turned.gangs, rng);
      CHECK(schedule(turned).verdicts == verdicts);
      for (const auto& [key, verdict] : verdicts) {
        CHECK(verdict.placement.has_value() == verdict.why_not.empty());
      }
      const int now = world.pass();
      started += now;
      waited += static_cast<int>(verdicts.size()) - now;
    }
  }
  CHECK(started > test::tries(2000));
  CHECK(waited > test::tries(3000));
}

namespace {

/// After how many of `running` have ended (in that order) the job starts; those that started after
/// it never end. -1: not even then.
int starts_after(QueueWorld world, const std::vector<std::string>& running,
                 const std::string& name) {
  for (int ended = 0;; ++ended) {
    world.pass();
    if (world.runs(name)) return ended;
    if (ended == static_cast<int>(running.size())) return -1;
    world.end(running[static_cast<std::size_t>(ended)]);
  }
}

/// A world in which some run and the next job waits; the names of those that run.
std::vector<std::string> fill(QueueWorld& world, Rng& rng) {
  for (int i = 0; i < 6; ++i) random_job(world, rng, "q");
  world.pass();
  std::vector<std::string> running;
  std::erase_if(world.jobs, [](const QueueJob& job) { return job.slots.empty(); });
  for (const auto& job : world.jobs) running.push_back(job.gang.job.name);
  shuffle(running, rng);
  return running;
}

}  // namespace

TEST_CASE("nobody behind the first in the line ever delays it, though it never ends") {
  int later = 0, backfilled = 0;
  for (int seed = 1; seed <= test::tries(1500); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world;
    world.queues = {make_queue("q", 4 + static_cast<std::int64_t>(rng.below(6)))};
    world.queues[0].quota.push_back(
        {"cpu", 4000 + static_cast<std::int64_t>(rng.below(4)) * 1000, {}, {}});
    for (int i = 0; i < 3; ++i) {
      world.add_node("n" + std::to_string(i), static_cast<std::int64_t>(rng.below(6)),
                     1 + static_cast<std::int64_t>(rng.below(6)));
    }
    const auto running = fill(world, rng);
    random_job(world, rng, "q");
    const std::string first = world.jobs.back().gang.job.name;
    world.jobs.back().gang.turn.priority = 50;
    const int alone = starts_after(world, running, first);
    for (int i = 0; i < 5; ++i) random_job(world, rng, "q");
    QueueWorld after = world;
    if (!after.runs(first)) {
      after.pass();
      for (std::size_t i = world.jobs.size() - 5; i < world.jobs.size(); ++i) {
        backfilled += !after.runs(first) && !after.jobs[i].slots.empty() ? 1 : 0;
      }
    }
    CHECK(starts_after(world, running, first) == alone);
    later += alone > 0 ? 1 : 0;
  }
  CHECK(later > test::tries(300));
  CHECK(backfilled > test::tries(100));
}

TEST_CASE("no borrower delays the first of another queue of its cohort") {
  int later = 0;
  for (int seed = 1; seed <= test::tries(600); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world;
    world.queues = {make_queue("q", 4, "lab"), make_queue("idle", 3, "lab"),
                    make_queue("poor", 0, "lab")};
    for (int i = 0; i < 2; ++i) world.add_node("n" + std::to_string(i), 64, 64);
    const auto running = fill(world, rng);
    random_job(world, rng, "q");
    const std::string first = world.jobs.back().gang.job.name;
    world.jobs.back().gang.turn.priority = 50;
    const int alone = starts_after(world, running, first);
    for (int i = 0; i < 4; ++i) random_job(world, rng, "poor");
    CHECK(starts_after(world, running, first) == alone);
    later += alone > 0 ? 1 : 0;
  }
  CHECK(later > test::tries(50));
}

TEST_CASE("where jobs end, every job that can start does in the end") {
  int jobs = 0;
  for (int seed = 1; seed <= test::tries(200); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world = random_world(rng);
    for (auto& queue : world.queues) queue.quota[0].nominal += 9;
    for (auto& queue : world.queues) {
      for (auto& one : queue.quota) one.nominal += one.name == "cpu" ? 10'000 : 0;
    }
    world.add_node("roomy", 9, 16);
    for (int i = 0; i < 20; ++i) random_job(world, rng, some_queue(world, rng));
    for (auto& job : world.jobs) job.gang.min = 1;
    for (int round = 0; round < 200; ++round) {
      world.pass();
      for (auto& job : world.jobs) {
        if (!job.slots.empty() && rng.below(2) == 0) job.has_ended = true;
      }
    }
    for (const auto& job : world.jobs) {
      ++jobs;
      CHECK_MESSAGE(!job.slots.empty(), job.gang.job.name << ": " << job.gang.turn.queue);
    }
  }
  CHECK(jobs == test::tries(4000));
}

namespace {

constexpr int kLongest = 12;  ///< rounds that a job lasts at most

/// A queue of eight GPUs to which jobs of up to as many go on coming, about two thirds of what it
/// could run. Another queue has nothing of its own and always more jobs, which take whatever is
/// lent and are not preempted.
class BusyWorld {
 public:
  explicit BusyWorld(std::uint64_t seed) : rng_(seed) {
    world_.queues = {make_queue("q", 8, "lab"), make_queue("idle", 4, "lab"),
                     make_queue("poor", 0, "lab")};
    world_.queues[2].least_run = seconds(1'000'000);
    for (const char* node : {"n0", "n1", "n2"}) world_.add_node(node, 4);
  }

  void round() {
    const int now = ++world_.clock;
    std::erase_if(world_.jobs, [&](const QueueJob& job) {
      const auto end = ends_.find(job.gang.job.name);
      return end != ends_.end() && end->second <= now;
    });
    if (rng_.below(5) == 0) add("q", 1 + rng_.below(4), 1 + rng_.below(2));
    while (waiting("poor") < 3) add("poor", 1 + rng_.below(2), 1);
    world_.pass();
    for (const QueueJob& job : world_.jobs) {
      if (job.slots.empty() || ends_.contains(job.gang.job.name)) continue;
      ends_[job.gang.job.name] = now + 1 + static_cast<int>(rng_.below(kLongest));
    }
    const auto found = std::find_if(world_.jobs.begin(), world_.jobs.end(), [](const auto& job) {
      return job.gang.turn.queue == "q" && job.slots.empty();
    });
    const std::string first = found == world_.jobs.end() ? "" : found->gang.job.name;
    if (first != first_) first_since_ = now;
    if (first != first_ && !first.empty()) ++firsts;
    first_ = first;
  }
  /// Rounds that the first of the line has been that.
  int first_for() const { return first_.empty() ? 0 : world_.clock - first_since_; }

  int firsts = 0;  ///< jobs that have waited as the first of the line

 private:
  void add(const std::string& queue, std::uint64_t workers, std::uint64_t gpus) {
    world_.add_job("j" + std::to_string(world_.jobs_made), queue, static_cast<int>(workers),
                   static_cast<std::int64_t>(gpus));
  }
  int waiting(const std::string& queue) const {
    return static_cast<int>(std::count_if(
        world_.jobs.begin(), world_.jobs.end(),
        [&](const QueueJob& job) { return job.gang.turn.queue == queue && job.slots.empty(); }));
  }

  Rng rng_;
  QueueWorld world_;
  std::map<std::string, int> ends_;  ///< of all that have started
  std::string first_;
  int first_since_ = 0;
};

}  // namespace

TEST_CASE("while jobs go on coming, the first of a line waits for three jobs' time at most") {
  int firsts = 0, longest = 0;
  for (int seed = 1; seed <= test::tries(4); ++seed) {
    CAPTURE(seed);
    BusyWorld world(static_cast<std::uint64_t>(seed));
    for (int round = 0; round < 500; ++round) {
      CAPTURE(round);
      world.round();
      // For what its own queue holds beyond what leaves it its nominal quota; then for those who
      // have borrowed of it until now; and then for the last that have come to its nodes.
      CHECK(world.first_for() <= 3 * kLongest);
      longest = std::max(longest, world.first_for());
    }
    firsts += world.firsts;
  }
  MESSAGE(firsts << " waited as the first, " << longest << " rounds at most");
  CHECK(firsts > test::tries(40));
}

namespace {

/// Of whatever a queue holds most of beyond its nominal quota, as a part of the cohort's, by
/// weight.
double share_of(const QueueWorld& world, const Queue& queue, std::int64_t workers) {
  double most = 0;
  for (const auto& one : queue.quota) {
    std::int64_t whole = 0;
    for (const auto& other : world.queues) {
      for (const auto& its : other.quota) whole += its.name == one.name ? its.nominal : 0;
    }
    const std::int64_t beyond = workers * (one.name == kGpu ? 1 : 1000) - one.nominal;
    if (beyond <= 0 || whole == 0) continue;
    most = std::max(most, static_cast<double>(beyond) / static_cast<double>(whole));
  }
  return most / queue.weight;
}

/// Queues of one cohort, each with its own part of two resources, of which workers take one each.
QueueWorld cohort_with_jobs(Rng& rng) {
  QueueWorld world;
  std::vector<std::string> asking;
  for (std::size_t i = 2 + rng.below(3); i > 0; --i) {
    Queue queue =
        make_queue("q" + std::to_string(i), static_cast<std::int64_t>(rng.below(9)), "lab");
    queue.quota.push_back({"cpu", static_cast<std::int64_t>(rng.below(9)) * 1000, {}, {}});
    queue.weight = 1 + static_cast<int>(rng.below(3));
    asking.insert(asking.end(), rng.below(13), queue.name);
    world.queues.push_back(std::move(queue));
  }
  shuffle(asking, rng);
  for (const auto& queue : asking) world.add_job("j" + std::to_string(world.jobs_made), queue, 1);
  for (const char* node : {"a", "b"}) world.add_node(node, 32);
  return world;
}

}  // namespace

TEST_CASE("of two that borrow nobody has more than the other would have with one worker more") {
  int compared = 0;
  for (int seed = 1; seed <= test::tries(400); ++seed) {
    CAPTURE(seed);
    Rng rng(static_cast<std::uint64_t>(seed));
    QueueWorld world = cohort_with_jobs(rng);
    world.pass();
    std::int64_t gpus = 0, cpus = 0, all_held = 0;
    for (const auto& queue : world.queues) {
      gpus += queue.quota[0].nominal;
      cpus += queue.quota[1].nominal / 1000;
      all_held += world.held(queue.name, kGpu);
    }
    for (const auto& poor : world.queues) {
      const bool waits = std::any_of(world.jobs.begin(), world.jobs.end(), [&](const auto& job) {
        return job.gang.turn.queue == poor.name && job.slots.empty();
      });
      if (!waits) continue;
      CHECK(all_held == std::min(gpus, cpus));
      const double with_one_more = share_of(world, poor, world.held(poor.name, kGpu) + 1);
      for (const auto& rich : world.queues) {
        const double share = share_of(world, rich, world.held(rich.name, kGpu));
        if (rich.name == poor.name || share == 0) continue;
        CAPTURE(poor.name);
        CAPTURE(rich.name);
        CHECK(with_one_more >= share - 1e-9);
        ++compared;
      }
    }
  }
  CHECK(compared > test::tries(100));
}
