// What the decision over many jobs in queues takes: the pass over all that wait and all that hold
// something, as the operator's loop asks for it. The jobs are those of Kueue's own measure (see
// queues.py): 30 queues in 5 cohorts, of each queue 350 small ones, 100 of middle size and 50 large
// ones, by rising priority. They come within 15 s and run in virtual time with a pass each quarter
// of a second; whoever is preempted waits again. Measured are passes while so many wait as the row
// says, in processor time of the thread.
//
// With --short-nodes: passes while so many nodes are short (queue_short.cpp) instead.
//
//   queue_bench [--seed N] [--passes N] [--short-nodes N [--gangs N]]
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "operator/core/rooms.h"
#include "operator/core/schedule.h"
#include "operator/core/topology_sources.h"
#include "tests/bench/placement_bench.h"
#include "tests/bench/queue_bench.h"

namespace muster::bench {
namespace {

constexpr int kCohorts = 5, kQueuesOfCohort = 6, kNodes = 100, kComeASecond = 1000;
constexpr auto kBetweenPasses = std::chrono::milliseconds(250);

struct Class {
  const char* name;
  int of_queue;  ///< jobs of each queue
  int cpus, priority;
  std::chrono::milliseconds runtime;
};
constexpr Class kClasses[] = {{"small", 350, 1, 50, std::chrono::milliseconds(200)},
                              {"medium", 100, 5, 100, std::chrono::milliseconds(500)},
                              {"large", 50, 20, 200, std::chrono::milliseconds(1000)}};

struct Job {
  core::WaitingGang gang;
  std::chrono::milliseconds runtime{};
  std::string node;  ///< empty: it waits
  WallTime started{};
};

class World {
 public:
  explicit World(std::uint64_t seed) {
    for (int i = 0; i < kNodes; ++i) {
      api::Node& node = nodes_.emplace_back();
      node.meta.name = "node-" + std::to_string(100 + i);
      node.ready = true;
      node.allocatable = {{"cpu", 64'000}, {"memory", 256 * kGi}, {"pods", 110}};
    }
    for (int i = 0; i < kCohorts * kQueuesOfCohort; ++i) {
      core::Queue queue;
      queue.name = "queue-" + std::to_string(i);
      queue.cohort = "cohort-" + std::to_string(i / kQueuesOfCohort);
      queue.quota = {{"cpu", 20'000, 100'000, {}}};
      queues_.push_back(queue);
      for (const Class& one : kClasses) add(queue.name, one);
    }
    Rng rng(seed);
    // As they come: the sets of all queues beside each other.
    for (std::size_t i = jobs_.size(); i > 1; --i) std::swap(jobs_[i - 1], jobs_[rng.below(i)]);
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      jobs_[i].gang.turn.created =
          now_ + seconds(1) * (static_cast<std::int64_t>(i) / kComeASecond);
    }
  }

  bool has_all_come() const {
    return std::all_of(jobs_.begin(), jobs_.end(),
                       [this](const Job& job) { return is_there(job); });
  }
  std::size_t waiting() const {
    return static_cast<std::size_t>(
        std::count_if(jobs_.begin(), jobs_.end(),
                      [this](const Job& job) { return is_there(job) && job.node.empty(); }));
  }

  /// A quarter of a second, and one pass; its processor time in microseconds.
  double pass() {
    now_ += kBetweenPasses;
    std::erase_if(jobs_, [this](const Job& job) {
      return !job.node.empty() && job.started + job.runtime <= now_;
    });
    core::ClusterSnapshot cluster = snapshot();
    core::Inventory inventory = core::inventory_of(cluster);
    cluster.inventory = &inventory;
    core::Schedule decided;
    const double took = microseconds_of([&] { decided = core::schedule(cluster); });
    for (Job& job : jobs_) {
      const auto verdict = decided.verdicts.find(job.gang.job);
      if (verdict != decided.verdicts.end() && verdict->second.placement) {
        job.node = verdict->second.placement->node_of_slot.front();
        job.started = now_;
      }
      if (!decided.taken.contains(job.gang.job)) continue;
      job.node.clear();
      ++preempted_;
    }
    return took;
  }
  int preempted() const { return preempted_; }

 private:
  bool is_there(const Job& job) const { return job.gang.turn.created <= now_; }

  void add(const std::string& queue, const Class& one) {
    for (int i = 0; i < one.of_queue; ++i) {
      Job& job = jobs_.emplace_back();
      job.gang.job = {queue, std::string(one.name) + "-" + std::to_string(i)};
      job.gang.uid = queue + job.gang.job.name;
      job.gang.per_worker.cpu_millis = 1000 * one.cpus;
      job.gang.per_worker.memory_bytes = kGi / 16;
      job.gang.turn.queue = queue;
      job.gang.turn.priority = one.priority;
      job.runtime = one.runtime;
    }
  }

  core::ClusterSnapshot snapshot() const {
    core::ClusterSnapshot cluster;
    for (const api::Node& node : nodes_) cluster.nodes.push_back(&node);
    cluster.queues = queues_;
    for (const Job& job : jobs_) {
      if (job.node.empty()) {
        if (is_there(job)) cluster.gangs.push_back(job.gang);
        continue;
      }
      cluster.assumed.push_back({job.node, job.gang.per_worker});
      core::QueueHolder& holder = cluster.holders.emplace_back();
      holder.job = job.gang.job;
      holder.turn = job.gang.turn;
      holder.per_worker = job.gang.per_worker;
      holder.slots = {{0, job.node}};
      holder.uid = job.gang.uid;
      holder.started = job.started;
    }
    return cluster;
  }

  std::vector<api::Node> nodes_;
  std::vector<core::Queue> queues_;
  std::vector<Job> jobs_;
  WallTime now_{seconds(1000)};
  int preempted_ = 0;
};

void run(std::uint64_t seed, int passes) {
  std::printf("| wait | p50 ms | p99 ms |\n|---|---|---|\n");
  World world(seed);
  while (!world.has_all_come()) (void)world.pass();
  for (const std::size_t least : {14'000, 10'000, 4'000}) {
    while (world.waiting() > least) (void)world.pass();
    std::vector<double> took;
    const std::size_t begin = world.waiting();
    for (int i = 0; i < passes; ++i) took.push_back(world.pass() / 1e3);
    std::printf("| %zu to %zu | %.2f | %.2f |\n", begin, world.waiting(), quantile(took, 0.5),
                quantile(took, 0.99));
    std::fflush(stdout);
  }
  std::printf("\nseed %llu, %d preempted\n", static_cast<unsigned long long>(seed),
              world.preempted());
}

}  // namespace
}  // namespace muster::bench

int main(int count, char** arguments) {
  std::uint64_t seed = 1;
  int passes = 10, short_nodes = 0, gangs = 1000;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string flag = arguments[i];
    if (flag == "--seed") seed = std::strtoull(arguments[i + 1], nullptr, 10);
    if (flag == "--passes") passes = std::max(1, std::atoi(arguments[i + 1]));
    if (flag == "--short-nodes") short_nodes = std::max(1, std::atoi(arguments[i + 1]));
    if (flag == "--gangs") gangs = std::max(1, std::atoi(arguments[i + 1]));
  }
  if (short_nodes > 0) {
    muster::bench::measure_short_nodes(short_nodes, gangs, passes);
  } else {
    muster::bench::run(seed, passes);
  }
}
