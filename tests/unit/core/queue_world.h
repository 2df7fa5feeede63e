// A cluster with queues for tests of operator/core: jobs come, get places, run and end; what must
// always hold is checked after every pass.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/rng.h"
#include "operator/core/queue_quota.h"
#include "operator/core/rooms.h"
#include "operator/core/schedule.h"

namespace muster::test {

inline constexpr const char* kGpu = "nvidia.com/gpu";

inline core::Queue make_queue(const std::string& name, std::int64_t gpus,
                              const std::string& cohort = "") {
  core::Queue queue;
  queue.name = name;
  queue.cohort = cohort;
  queue.quota = {{kGpu, gpus, {}, {}}};
  return queue;
}

struct QueueJob {
  core::WaitingGang gang;
  std::vector<core::HeldSlot> slots;  ///< empty: it waits
  bool has_ended = false;
  std::vector<core::HeldSlot> leaving{};  ///< while there are any it waits for no place of its own
  bool is_elastic = false;                ///< it can be asked to shrink
  seconds unsaved{0}, spared{0};
  bool has_started = true;  ///< false: others than the operator have not let it go yet
  WallTime started{};
  int shrinks = 0, preemptions = 0;
  int deadline = 0;  ///< seconds after its start; 0: it has none
  int beyond = 0;    ///< of its workers, the last: more than it wishes for
};

class QueueWorld {
 public:
  std::vector<core::Queue> queues;
  std::vector<api::Node> nodes;
  std::vector<QueueJob> jobs;
  std::vector<api::Pod> others;  ///< pods of no job
  int jobs_made = 0;             ///< jobs so far
  int clock = 0;                 ///< seconds

  void add_node(const std::string& name, std::int64_t gpus, std::int64_t cpus = 64) {
    api::Node made;
    made.meta.name = name;
    made.ready = true;
    made.allocatable = {
        {"cpu", cpus * 1000}, {"memory", std::int64_t{1} << 40}, {kGpu, gpus}, {"pods", 100}};
    nodes.push_back(std::move(made));
  }

  /// A job of `min` to `count` workers of so many GPUs and one processor each; it is younger than
  /// all before it.
  QueueJob& add_job(const std::string& name, const std::string& queue, int count,
                    std::int64_t gpus = 1) {
    QueueJob job;
    job.gang.job = {"team", name};
    job.gang.uid = name;
    job.gang.count = job.gang.min = count;
    job.gang.per_worker.cpu_millis = 1000;
    job.gang.per_worker.memory_bytes = 1 << 20;
    job.gang.per_worker.gpus = gpus;
    job.gang.turn = {queue, 0, WallTime(seconds(1000 + jobs_made++))};
    jobs.push_back(std::move(job));
    return jobs.back();
  }

  core::ClusterSnapshot snapshot() const {
    core::ClusterSnapshot cluster;
    for (const auto& node : nodes) cluster.nodes.push_back(&node);
    for (const auto& pod : others) cluster.pods.push_back(&pod);
    for (const auto& job : jobs) {
      if (job.has_ended) continue;
      if (job.slots.empty() && (job.leaving.empty() || job.gang.wish.not_yet)) {
        cluster.gangs.push_back(job.gang);
        if (job.deadline > 0) cluster.gangs.back().ends_within = seconds(job.deadline);
        if (job.leaving.empty()) continue;
      }
      core::QueueHolder holder{job.gang.job, job.gang.turn, job.gang.per_worker,
                               job.gang.min, job.slots,     job.leaving};
      holder.uid = job.gang.uid;
      holder.together = job.gang.together;
      holder.count = job.gang.count;
      holder.shrinks_to = job.is_elastic && !job.slots.empty() ? job.gang.min : 0;
      holder.beyond = job.beyond;
      holder.unsaved = job.unsaved;
      holder.spared = job.spared;
      holder.started = job.started;
      const auto ran = std::chrono::duration_cast<seconds>(WallTime(seconds(clock)) - job.started);
      if (job.has_started) holder.ran = ran;
      if (job.deadline > 0) {
        holder.ends_within = std::max(seconds(0), seconds(job.deadline) - ran);
      }
      for (const auto* slots : {&job.slots, &job.leaving}) {
        for (const auto& slot : *slots) {
          cluster.assumed.push_back({slot.node, job.gang.per_worker});
        }
      }
      if (!job.gang.turn.queue.empty()) {
        cluster.holders.push_back(std::move(holder));
        continue;
      }
      for (const auto& slot : job.leaving) {
        cluster.leaving.push_back({slot.node, job.gang.per_worker});
      }
    }
    cluster.queues = queues;
    return cluster;
  }

  std::map<api::ObjectKey, core::GangVerdict> verdicts() const {
    return core::schedule(snapshot()).verdicts;
  }

  std::map<api::ObjectKey, core::TakeBack> taken() const {
    return core::schedule(snapshot()).taken;
  }

  /// One pass: whoever has a place takes it. How many did.
  int pass() {
    int started = 0;
    const auto all = verdicts();
    for (auto& job : jobs) {
      const auto found = all.find(job.gang.job);
      if (found == all.end() || !found->second.placement) continue;
      const auto& nodes_of = found->second.placement->node_of_slot;
      CHECK(static_cast<int>(nodes_of.size()) >= job.gang.min);
      CHECK(static_cast<int>(nodes_of.size()) <= job.gang.count);
      for (const auto& node : nodes_of) {
        job.slots.push_back({static_cast<int>(job.slots.size()), node});
      }
      job.started = WallTime(seconds(clock));
      ++started;
    }
    check();
    return started;
  }

  /// Whoever is asked to give something back begins to leave. Who was asked.
  std::map<api::ObjectKey, core::TakeBack> give_back() {
    auto all = taken();
    for (auto& job : jobs) {
      const auto found = all.find(job.gang.job);
      if (found == all.end()) continue;
      const core::TakeBack& one = found->second;
      CHECK(!job.has_ended);
      CHECK(one.workers < static_cast<int>(job.slots.size()));
      if (one.workers > 0) CHECK((job.is_elastic && one.workers >= job.gang.min));
      if (one.workers == 0) {
        CHECK(job.spared.count() == 0);
        for (const auto& queue : queues) {
          if (queue.name != job.gang.turn.queue) continue;
          CHECK(WallTime(seconds(clock)) - job.started >= queue.least_run);
        }
      }
      std::vector<core::HeldSlot> stay;
      for (const auto& slot : job.slots) {
        (slot.slot < one.slots_below ? stay : job.leaving).push_back(slot);
      }
      CHECK(static_cast<int>(stay.size()) == one.workers);
      job.slots = stay;
      (one.workers == 0 ? job.preemptions : job.shrinks) += 1;
      if (one.workers == 0) job.gang.preempted_for_uid = one.job_uid;
    }
    return all;
  }
  /// Whoever was to leave is gone.
  void leave() {
    for (auto& job : jobs) job.leaving.clear();
  }
  QueueJob& job(const std::string& name) {
    for (auto& job : jobs) {
      if (job.gang.job.name == name && !job.has_ended) return job;
    }
    return jobs.front();
  }

  bool runs(const std::string& name) const {
    for (const auto& job : jobs) {
      if (job.gang.job.name == name && !job.has_ended) return !job.slots.empty();
    }
    return false;
  }
  std::string why(const std::string& name) const { return verdicts().at({"team", name}).why_not; }
  void end(const std::string& name) {
    for (auto& job : jobs) job.has_ended = job.has_ended || job.gang.job.name == name;
  }
  /// Workers of a queue that run.
  std::int64_t held(const std::string& queue, const std::string& resource) const {
    std::int64_t held = 0;
    for (const auto& job : jobs) {
      if (job.has_ended || job.gang.turn.queue != queue) continue;
      const auto amounts = core::amounts_of(job.gang.per_worker);
      const auto found = amounts.find(resource);
      if (found == amounts.end()) continue;
      held += found->second * static_cast<std::int64_t>(job.slots.size() + job.leaving.size());
    }
    return held;
  }

  /// No node and no quota is exceeded, and nothing is borrowed that is not lent.
  void check() const {
    std::map<std::string, core::ResourceAmounts> used;
    for (const auto& job : jobs) {
      if (job.has_ended) continue;
      for (const auto* slots : {&job.slots, &job.leaving}) {
        for (const auto& slot : *slots) {
          for (const auto& [name, amount] : core::amounts_of(job.gang.per_worker)) {
            used[slot.node][name] += amount;
          }
        }
      }
    }
    for (const auto& node : nodes) {
      for (const auto& [name, amount] : used[node.meta.name]) {
        CHECK(amount <= node.allocatable.at(name));
      }
    }
    std::map<std::string, std::map<std::string, std::int64_t>> borrowed, lent;
    for (const auto& queue : queues) {
      for (const auto& one : queue.quota) {
        const std::int64_t has = held(queue.name, one.name);
        const std::int64_t over = std::max<std::int64_t>(0, has - one.nominal);
        CHECK(over <= (queue.cohort.empty() ? 0 : one.borrowing_limit.value_or(over)));
        const std::int64_t idle = std::max<std::int64_t>(0, one.nominal - has);
        borrowed[queue.cohort][one.name] += over;
        lent[queue.cohort][one.name] += std::min(idle, one.lending_limit.value_or(idle));
        if (queue.cohort.empty()) CHECK(over == 0);
      }
    }
    for (const auto& [cohort, resources] : borrowed) {
      for (const auto& [name, amount] : resources) {
        if (!cohort.empty()) CHECK(amount <= lent[cohort][name]);
      }
    }
  }
};

}  // namespace muster::test
