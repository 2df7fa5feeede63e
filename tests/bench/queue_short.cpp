// Many nodes, nearly all of them full, and many gangs that wait: of a few shapes, as teams send
// them, or each of its own. Or half of each node is free, and kept for the first of each line,
// which wants whole ones, while the others behind it would fit. Or gangs of a lower priority hold
// all nodes, and it is decided which of them give way for the first. Every pass tells each of them
// what is missing. With volumes each job has a claim of its own, bound to a volume of one of three
// zones; what these allow is found out anew in each pass, too, as the operator's loop does.
// Measured are processor time of the thread and what a pass adds to the memory of the process while
// it is at its largest.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/rooms.h"
#include "operator/core/schedule.h"
#include "operator/core/topology_sources.h"
#include "operator/core/volumes.h"
#include "tests/bench/placement_bench.h"
#include "tests/bench/queue_bench.h"

namespace muster::bench {
namespace {

constexpr int kQueues = 10, kZones = 3, kShapes = 8, kGpus = 8;
constexpr int kHalfFreeEach = 50;  ///< of so many nodes one has half of its GPUs free
constexpr int kOfFirst = 64;       ///< workers of the first of a line, where it wants whole nodes
constexpr int kHolders = 700;      ///< gangs that hold all nodes

struct Case {
  const char* name;
  bool has_queues, has_volumes, are_alike, are_half_free = false, are_held = false;
};
constexpr Case kCases[] = {
    {"no queues", false, false, true},
    {"no queues, all of different shapes", false, false, false},
    {"no queues, volumes", false, true, true},
    {"queues", true, false, true},
    {"queues, volumes", true, true, true},
    {"queues, half free behind the first", true, false, true, true},
    {"queues, half free behind the first, all of different shapes", true, false, false, true},
    {"one queue, 700 gangs of a lower priority", true, false, true, false, true}};

class ShortWorld {
 public:
  ShortWorld(int nodes, int gangs, const Case& which) : nodes_(cluster_of(nodes)), case_(which) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const auto zone = i * kZones / nodes_.size();
      nodes_[i].meta.labels["topology.kubernetes.io/zone"] = "r1-" + std::to_string(zone);
      core::Assumed& taken = assumed_.emplace_back();
      taken.node = nodes_[i].meta.name;
      taken.requests.cpu_millis = 8000;
      const bool is_one_free = !case_.are_held && i % kHalfFreeEach == 0;
      const bool is_half_free = case_.are_half_free || is_one_free;
      taken.requests.devices["nvidia.com/gpu"] = is_half_free ? kGpus / 2 : kGpus;
    }
    if (case_.are_held) add_holders();
    for (int i = 0; i < kQueues; ++i) {
      core::Queue& queue = queues_.emplace_back();
      queue.name = "queue-" + std::to_string(i);
      queue.quota = {{"nvidia.com/gpu", std::int64_t{kGpus} * nodes, {}, {}}};
    }
    for (int i = 0; i < gangs; ++i) add_job(i);
    for (const api::Node& node : nodes_) storage_.nodes.push_back(&node);
    for (const auto& one : claims_) storage_.claims.emplace(one.meta.key(), &one);
    for (const auto& one : volumes_) storage_.volumes.push_back(&one);
  }

  struct Pass {
    double milliseconds = 0, mebibytes = 0;
    std::size_t placed = 0, give_way = 0;
  };
  Pass pass() {
    core::ClusterSnapshot cluster = snapshot();
    if (!inventory_) inventory_.emplace(core::inventory_of(cluster));
    cluster.inventory = &*inventory_;
    Pass pass;
    const double before = mebibytes();
    core::Schedule decided;
    pass.milliseconds = microseconds_of([&] {
                          add_gangs(cluster);
                          decided = core::schedule(cluster);
                        }) /
                        1e3;
    pass.mebibytes = mebibytes() - before;
    for (const auto& [job, verdict] : decided.verdicts) pass.placed += verdict.placement ? 1 : 0;
    pass.give_way = decided.taken.size();
    return pass;
  }

 private:
  /// Of neighbouring nodes each, and each with another loss if it gives way.
  void add_holders() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const std::size_t gang = i * kHolders / nodes_.size();
      if (i == 0 || gang != (i - 1) * kHolders / nodes_.size()) {
        core::QueueHolder& made = holders_.emplace_back();
        made.job = {"ns", "runs-" + std::to_string(10'000 + gang)};
        made.uid = made.job.name;
        made.turn.queue = "queue-0";
        made.per_worker.cpu_millis = 8000;
        made.per_worker.memory_bytes = 0;
        made.per_worker.gpus = kGpus;
        made.ran = seconds(86'400);
        made.unsaved = seconds(static_cast<std::int64_t>(gang * 7919 % 3600));
      }
      core::QueueHolder& holder = holders_.back();
      holder.slots.push_back({static_cast<int>(holder.slots.size()), nodes_[i].meta.name});
      holder.min = holder.count = static_cast<int>(holder.slots.size());
    }
  }
  void add_job(int number) {
    const std::string name = "job-" + std::to_string(10'000 + number);
    api::TrainingJob& job = jobs_.emplace_back();
    job.meta.namespace_name = "ns";
    job.meta.name = job.meta.uid = name;
    // Queues take turns, so these come first in theirs.
    const bool is_first = number < kQueues;
    const bool wants_many = is_first && (case_.are_half_free || case_.are_held);
    const int count = wants_many ? kOfFirst : 2 + number % kShapes;
    job.spec.worker.count = job.spec.worker.min = job.spec.worker.max = count;
    job.spec.worker.resources.gpus = case_.are_half_free && !is_first ? 1 : kGpus;
    job.spec.worker.resources.cpu_millis = case_.are_alike ? 4000 : 4000 + number;
    job.spec.worker.resources.memory_bytes = 64 * kGi;
    if (!case_.has_volumes) return;
    job.spec.worker.pod_fields["volumes"] =
        Json::array({{{"name", "data"}, {"persistentVolumeClaim", {{"claimName", name}}}}});
    api::PersistentVolumeClaim& claim = claims_.emplace_back();
    claim.meta.namespace_name = "ns";
    claim.meta.name = claim.volume_name = name;
    claim.phase = "Bound";
    api::PersistentVolume& volume = volumes_.emplace_back();
    volume.meta.name = name;
    volume.phase = "Bound";
    volume.access_modes = {"ReadWriteMany"};
    volume.is_reachable_by_all = false;
    volume.nodes = {{{{"topology.kubernetes.io/zone", "In", {zone_of(number)}}}, {}}};
  }
  static std::string zone_of(int number) { return "r1-" + std::to_string(number % kZones); }

  core::ClusterSnapshot snapshot() const {
    core::ClusterSnapshot cluster;
    cluster.nodes = storage_.nodes;
    cluster.assumed = assumed_;
    if (case_.has_queues) cluster.queues = queues_;
    cluster.holders = holders_;
    return cluster;
  }
  void add_gangs(core::ClusterSnapshot& cluster) const {
    core::VolumeReach volumes(storage_);
    for (const api::TrainingJob& job : jobs_) {
      core::WaitingGang& gang = cluster.gangs.emplace_back(core::gang_of(job));
      gang.volumes = volumes.limits(job);
      if (!case_.has_queues) continue;
      const std::size_t number = cluster.gangs.size();
      gang.turn.queue = queues_[case_.are_held ? 0 : number % kQueues].name;
      gang.turn.priority = case_.are_held ? 1 : 0;
      gang.turn.created = WallTime(seconds(static_cast<std::int64_t>(number)));
    }
  }

  std::vector<api::Node> nodes_;
  const Case& case_;
  std::vector<core::Assumed> assumed_;
  std::vector<core::Queue> queues_;
  std::vector<core::QueueHolder> holders_;
  std::vector<api::TrainingJob> jobs_;
  std::vector<api::PersistentVolumeClaim> claims_;
  std::vector<api::PersistentVolume> volumes_;
  core::StorageSnapshot storage_;
  std::optional<core::Inventory> inventory_;
};

}  // namespace

void measure_short_nodes(int nodes, int gangs, int passes) {
  std::printf("%d nodes that are short, %d gangs wait\n", nodes, gangs);
  std::printf(
      "| case | placed | give way | p50 ms | worst ms | memory of a pass MiB |\n"
      "|---|---|---|---|---|---|\n");
  for (const Case& one : kCases) {
    ShortWorld world(nodes, gangs, one);
    std::vector<double> took;
    double most = 0;
    std::size_t placed = 0, give_way = 0;
    for (int i = 0; i < passes; ++i) {
      const ShortWorld::Pass pass = world.pass();
      took.push_back(pass.milliseconds);
      most = std::max(most, pass.mebibytes);
      placed += pass.placed;
      give_way += pass.give_way;
    }
    std::printf("| %s | %zu | %zu | %.1f | %.1f | %.0f |\n", one.name, placed, give_way,
                quantile(took, 0.5), quantile(took, 1), most);
    std::fflush(stdout);
  }
}

}  // namespace muster::bench
