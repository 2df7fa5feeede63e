// What a whole pass of the operator's decision takes: a gang of residents has ended, its pods are
// gone, and a gang whose shape of pod was never asked for waits. Measured is all between the events
// and the decision: what is free where is learnt, the snapshot is made as the operator's loop makes
// it, and `schedule` decides. `alone`: nobody else sends; `all terms`: the residents' traffic and
// sizes count. `events`: the inventory that is kept hears of the pods that are gone. `anew`: all
// terms, and the inventory is made in the pass, as it was before it was kept. `kept`: what the kept
// inventory and gangs hold in memory, with what is counted for one shape of pod; neither the nodes'
// and pods' own objects nor the topology, which others have as well.
#include <malloc.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>

#include "operator/core/kept_gangs.h"
#include "operator/core/kept_inventory.h"
#include "operator/core/schedule.h"
#include "operator/core/topology_sources.h"
#include "tests/bench/placement_bench.h"

namespace muster::bench {
namespace {

using Nodes = std::map<api::ObjectKey, api::Node>;
using Pods = std::map<api::ObjectKey, api::Pod>;

api::Resources resources_of(int gpus, int round) {
  api::Resources resources;
  resources.cpu_millis = 8000 + round;
  resources.memory_bytes = 64 * kGi;
  resources.gpus = gpus;
  return resources;
}

/// Nodes, and residents as the operator has them: gangs with pods.
struct PassWorld {
  Nodes nodes;
  Pods pods;
  std::vector<core::RunningGang> running;
  std::shared_ptr<const core::Topology> topology;
  core::KeptInventory kept;
  core::KeptGangs gangs;

  PassWorld(const std::vector<api::Node>& all, const Row& row, std::uint64_t seed) {
    std::vector<const api::Node*> pointers;
    for (const api::Node& node : all) {
      pointers.push_back(&nodes.emplace(node.meta.key(), node).first->second);
    }
    auto read = core::read_topology(pointers);
    if (!read) std::exit(1);
    for (core::TopologyLevel& level : read->levels) {
      if (level.name == "subblock") level.oversubscription = row.oversubscription;
    }
    topology = std::make_shared<const core::Topology>(*std::move(read));
    Rng rng(seed);
    const std::vector<int> taken = gpus_taken(row, static_cast<int>(all.size()), rng);
    for (const core::SendingGang& gang : gangs_of(taken, row, rng)) {
      running.push_back({gang.job, {}, gang.step, resources_of(row.gpus, 0)});
      for (const core::HostShare& host : gang.hosts) {
        for (int pod = 0; pod < host.pods; ++pod) {
          running.back().nodes.push_back(topology->nodes[core::as_index(host.node)]);
        }
      }
    }
    for (const core::RunningGang& gang : running) start(gang);
    for (const auto& [key, node] : nodes) kept.take_node(key.name, &node);
    (void)kept.inventory(topology);
  }

  static api::ObjectKey pod_key(const core::RunningGang& gang, std::size_t slot) {
    return {"ns", gang.job.name + "-" + std::to_string(slot)};
  }
  void start(const core::RunningGang& gang) {
    gangs.take(gang.job, gang);
    for (std::size_t slot = 0; slot < gang.nodes.size(); ++slot) {
      api::Pod pod;
      pod.meta.namespace_name = "ns";
      pod.meta.name = pod_key(gang, slot).name;
      pod.node_name = gang.nodes[slot];
      pod.requests = gang.per_worker;
      pod.phase = api::PodPhase::kRunning;
      const api::ObjectKey key = pod.meta.key();
      kept.take_pod(key, &pods.insert_or_assign(key, std::move(pod)).first->second);
    }
  }
  /// What the inventory takes to hear of it.
  double end(const core::RunningGang& gang) {
    std::vector<api::ObjectKey> keys;
    for (std::size_t slot = 0; slot < gang.nodes.size(); ++slot) {
      keys.push_back(pod_key(gang, slot));
      pods.erase(keys.back());
    }
    return microseconds_of([&] {
      for (const api::ObjectKey& key : keys) kept.take_pod(key, nullptr);
      gangs.take(gang.job, std::nullopt);
    });
  }
};

core::WaitingGang waiting_gang(const Row& row, int round) {
  core::WaitingGang gang;
  gang.job = {"ns", "waiting"};
  gang.count = gang.min = row.pods;
  gang.per_worker = resources_of(row.gpus, 1 + round);
  gang.step.gradient_bytes = 2e9;
  return gang;
}

enum class Inventories { kKept, kAnew };

/// Microseconds; `placed` counts the gangs that got their places.
double decide(PassWorld& world, const core::WaitingGang& gang,
              const std::vector<core::RunningGang>& running, Inventories inventories, int& placed) {
  core::Schedule decided;
  const double took = microseconds_of([&] {
    core::ClusterSnapshot cluster;
    cluster.gangs = {gang};
    cluster.topology = world.topology;
    if (inventories == Inventories::kKept) {
      cluster.inventory = &world.kept.inventory(world.topology).inventory;
      if (!running.empty()) cluster.sending = world.gangs.on(*cluster.inventory);
    } else {
      cluster.running = running;
      for (const auto& [key, node] : world.nodes) cluster.nodes.push_back(&node);
      for (const auto& [key, pod] : world.pods) cluster.pods.push_back(&pod);
    }
    decided = core::schedule(cluster);
  });
  placed += decided.verdicts.at(gang.job).placement ? 1 : 0;
  return took;
}

double kept_mebibytes(const PassWorld& world, const Row& row) {
  const auto held = [] {
    const auto now = mallinfo2();
    return static_cast<double>(now.uordblks + now.hblkhd) / (1 << 20);
  };
  const double before = held();
  core::KeptInventory kept;
  core::KeptGangs gangs;
  for (const auto& [key, node] : world.nodes) kept.take_node(key.name, &node);
  for (const auto& [key, pod] : world.pods) kept.take_pod(key, &pod);
  for (const core::RunningGang& gang : world.running) gangs.take(gang.job, gang);
  core::ClusterSnapshot cluster;
  cluster.gangs = {waiting_gang(row, 0)};
  cluster.topology = world.topology;
  cluster.inventory = &kept.inventory(world.topology).inventory;
  cluster.sending = gangs.on(*cluster.inventory);
  (void)core::schedule(cluster);
  return held() - before;
}

void measure_row(const std::vector<api::Node>& nodes, const Row& row, const Passes& passes) {
  PassWorld world(nodes, row, passes.seed);
  Rng rng(passes.seed);
  std::vector<double> events, alone, all_terms, anew;
  int placed = 0;
  for (int round = 0; round < passes.count; ++round) {
    std::vector<core::RunningGang> others = world.running;
    std::optional<core::RunningGang> ended;
    events.push_back(0);
    if (!others.empty()) {
      const auto which = static_cast<std::ptrdiff_t>(rng.below(others.size()));
      ended = others[static_cast<std::size_t>(which)];
      others.erase(others.begin() + which);
      events.back() = world.end(*ended);
    }
    const auto pass = [&](int number, const auto& running, Inventories inventories) {
      return decide(world, waiting_gang(row, 3 * round + number), running, inventories, placed);
    };
    alone.push_back(pass(0, std::vector<core::RunningGang>(), Inventories::kKept));
    all_terms.push_back(pass(1, others, Inventories::kKept));
    if (passes.with_anew) anew.push_back(pass(2, others, Inventories::kAnew));
    if (ended) world.start(*ended);
  }
  const std::size_t all = alone.size() + all_terms.size() + anew.size();
  std::printf(
      "| %-46s | %5zu | %d/%zu | %5.1f | %5.0f | %5.0f | %5.0f | %5.0f | %7.0f | %7.0f | %5.1f |\n",
      row.name, world.pods.size(), placed, all, quantile(events, 0.5), quantile(alone, 0.5),
      quantile(alone, 0.99), quantile(all_terms, 0.5), quantile(all_terms, 0.99),
      quantile(anew, 0.5), quantile(anew, 0.99), kept_mebibytes(world, row));
  std::fflush(stdout);
}

}  // namespace

void measure_passes(const std::vector<api::Node>& nodes, const Passes& passes) {
  std::printf(
      "| gang | pods | placed | events us | alone p50 | p99 | all terms p50 | p99 | anew p50 | p99 "
      "| kept MiB |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|\n");
  int number = 0;
  for (const Row& row : kRows) {
    if (++number == passes.row || passes.row == 0) measure_row(nodes, row, passes);
  }
}

}  // namespace muster::bench
