// How long a placement takes: gangs of up to 1,024 pods on 10,000 nodes with 8 GPUs each (16 a
// rack, 64 racks a block), and the memory that all of it takes. Every decision begins with a shape
// of pod that was never asked for, so the whole cluster is counted (cold), and is made once more
// with what the inventory keeps (warm); then the gang's pods are taken, one event each. The same
// once more beside the traffic of the residents, who are gangs of 2 to 64 pods, with their sizes as
// the usual ones (beside), and making the ledger of that traffic from nothing (ledger). Residents
// are drawn anew for every row. Times are the thread's processor time, which others on the machine
// cannot lengthen.
//
//   placement_bench [--nodes N] [--rounds N] [--seed N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "common/rng.h"
#include "operator/core/inventory.h"
#include "operator/core/placement.h"
#include "operator/core/topology_sources.h"
#include "operator/core/traffic.h"

namespace {

using namespace muster;

constexpr int kNodesPerRack = 16;
constexpr int kRacksPerBlock = 64;
constexpr std::int64_t kGi = std::int64_t{1} << 30;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <typename Function>
double microseconds_of(Function&& function) {
  const double begin = thread_seconds();
  function();
  return 1e6 * (thread_seconds() - begin);
}

/// Resident memory of this process.
double mebibytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096 / (1 << 20);
}

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

/// As a provider labels them, with a label of its own on each.
std::vector<api::Node> cluster_of(int count) {
  std::vector<api::Node> nodes;
  for (int i = 0; i < count; ++i) {
    api::Node& node = nodes.emplace_back();
    node.meta.name = "node-" + std::to_string(100'000 + i);
    const int rack = i / kNodesPerRack;
    node.meta.labels = {
        {"kubernetes.io/hostname", node.meta.name},
        {"kubernetes.io/os", "linux"},
        {"kubernetes.io/arch", "amd64"},
        {"node.kubernetes.io/instance-type", "a4-highgpu-8g"},
        {"topology.kubernetes.io/region", "r1"},
        {"topology.kubernetes.io/zone", "r1-b"},
        {"cloud.google.com/gce-topology-block", "b" + std::to_string(rack / kRacksPerBlock)},
        {"cloud.google.com/gce-topology-subblock", "s" + std::to_string(rack % kRacksPerBlock)},
        {"cloud.google.com/gce-topology-host", "h" + std::to_string(i)}};
    node.ready = true;
    node.allocatable = {{"cpu", 190'000},
                        {"memory", 2000 * kGi},
                        {"pods", 110},
                        {"nvidia.com/gpu", 8},
                        {"ephemeral-storage", 1000 * kGi}};
  }
  return nodes;
}

struct Row {
  const char* name;
  int pods, gpus;
  double occupancy;  ///< share of GPUs taken, by whole hosts or one by one
  bool whole_hosts;
  double oversubscription;
};

constexpr Row kRows[] = {
    {"1,024 x 8 GPUs, empty", 1024, 8, 0, true, 1},
    {"1,024 x 8 GPUs, half of the hosts taken", 1024, 8, 0.5, true, 1},
    {"1,024 x 8 GPUs, half taken, racks 4:1", 1024, 8, 0.5, true, 4},
    {"1,024 x 8 GPUs, 85 % of hosts taken, racks 4:1", 1024, 8, 0.85, true, 4},
    {"1,024 x 1 GPU, 70 % of GPUs taken", 1024, 1, 0.7, false, 1},
    {"1,024 x 1 GPU, 70 % of GPUs taken, racks 4:1", 1024, 1, 0.7, false, 4},
    {"256 x 8 GPUs, half of the hosts taken", 256, 8, 0.5, true, 1},
    {"16 x 8 GPUs, half of the hosts taken", 16, 8, 0.5, true, 1},
    {"64 x 2 GPUs, 70 % of GPUs taken, racks 4:1", 64, 2, 0.7, false, 4},
};

core::PodShape shape_of(int gpus, int round) {
  core::PodShape shape;
  shape.requests = {
      {"cpu", 8000 + round}, {"memory", 64 * kGi}, {"pods", 1}, {"nvidia.com/gpu", gpus}};
  return shape;
}

/// GPUs taken, by node.
std::vector<int> occupy(core::Inventory& inventory, const Row& row, Rng& rng, int sign) {
  const int nodes = static_cast<int>(inventory.topology().nodes.size());
  std::vector<int> taken;
  for (int node = 0; node < nodes; ++node) {
    std::int64_t gpus = 0;
    if (row.whole_hosts) {
      gpus = rng.unit() < row.occupancy ? 8 : 0;
    } else {
      for (int gpu = 0; gpu < 8; ++gpu) gpus += rng.unit() < row.occupancy ? 1 : 0;
    }
    const core::ResourceAmounts amounts{{"nvidia.com/gpu", gpus}};
    if (sign > 0) {
      inventory.take(node, amounts);
    } else {
      inventory.give_back(node, amounts);
    }
    taken.push_back(static_cast<int>(gpus));
  }
  return taken;
}

/// The residents as gangs of 2 to 64 pods like the row's, along the tree, a part of which has told
/// what its steps are.
std::vector<core::SendingGang> gangs_of(const std::vector<int>& taken, const Row& row, Rng& rng) {
  std::vector<core::SendingGang> gangs;
  int missing = 0;
  for (std::size_t node = 0; node < taken.size(); ++node) {
    for (int pods = taken[node] / row.gpus; pods > 0;) {
      if (missing == 0) {
        missing = 2 << rng.below(6);
        core::SendingGang& gang = gangs.emplace_back();
        gang.job = {"ns", "gang-" + std::to_string(gangs.size())};
        gang.step.gradient_bytes = 1e9 * static_cast<double>(1 + rng.below(8));
        gang.step.step_seconds = rng.below(4) == 0 ? 0 : 0.5 + rng.unit();
        gang.step.exchange_seconds = gang.step.step_seconds * rng.unit();
      }
      const int here = std::min(pods, missing);
      gangs.back().hosts.push_back({static_cast<int>(node), here});
      pods -= here;
      missing -= here;
    }
  }
  return gangs;
}

void measure(core::Inventory& inventory, const Row& row, int rounds, std::uint64_t seed) {
  std::vector<double> cold, warm, events, beside, ledger;
  int placed = 0, leaves = 0, cut = 0, moved = 0;
  for (int round = 0; round < rounds; ++round) {
    Rng residents(seed + static_cast<std::uint64_t>(round));
    const std::vector<int> taken = occupy(inventory, row, residents, 1);
    core::PlacementWish wish;
    wish.pods = row.pods;
    wish.work.gradient_bytes = 2e9;
    core::PlacementVerdict verdict;
    const core::PodShape shape = shape_of(row.gpus, round);
    const auto decide = [&] {
      verdict = core::place_gang(inventory.topology(), inventory.room(shape), wish);
    };
    cold.push_back(microseconds_of(decide));
    warm.push_back(microseconds_of(decide));
    const std::vector<core::SendingGang> gangs = gangs_of(taken, row, residents);
    std::optional<core::Traffic> traffic;
    ledger.push_back(microseconds_of([&] { traffic.emplace(inventory.topology(), gangs); }));
    std::vector<std::int64_t> sizes;
    for (const core::SendingGang& gang : gangs) {
      std::int64_t pods = 0;
      for (const core::HostShare& host : gang.hosts) pods += host.pods;
      sizes.push_back(pods * row.gpus);
    }
    const core::UsualSizes usual(std::move(sizes));
    wish.usual = &usual;
    wish.pod_size = row.gpus;
    beside.push_back(microseconds_of([&] {
      const auto best =
          core::place_gang(inventory.topology(), inventory.room(shape), wish, &*traffic);
      moved += best.placement && best.placement->avoided_link >= 0 ? 1 : 0;
    }));
    if (verdict.placement) {
      ++placed;
      leaves += verdict.placement->leaves;
      cut += verdict.placement->is_search_cut ? 1 : 0;
      const double time = microseconds_of([&] {
        for (const auto& host : verdict.placement->hosts) {
          for (int pod = 0; pod < host.pods; ++pod) inventory.take(host.node, shape.requests);
        }
      });
      events.push_back(time / row.pods);
      for (const auto& host : verdict.placement->hosts) {
        for (int pod = 0; pod < host.pods; ++pod) inventory.give_back(host.node, shape.requests);
      }
    } else {
      events.push_back(0);
    }
    Rng again(seed + static_cast<std::uint64_t>(round));
    occupy(inventory, row, again, -1);
  }
  std::printf(
      "| %-46s | %3d/%d | %6.1f | %5.0f | %5.0f | %5.0f | %5.0f | %6.2f | %d | %5.0f | %5.0f | %d "
      "| "
      "%5.0f |\n",
      row.name, placed, rounds, placed == 0 ? 0 : static_cast<double>(leaves) / placed,
      quantile(cold, 0.5), quantile(cold, 0.99), quantile(warm, 0.5), quantile(warm, 0.99),
      quantile(events, 0.5), cut, quantile(beside, 0.5), quantile(beside, 0.99), moved,
      quantile(ledger, 0.5));
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  int count = 10'000, rounds = 200;
  std::uint64_t seed = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--nodes") == 0) count = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  const std::vector<api::Node> nodes = cluster_of(count);
  std::vector<const api::Node*> pointers;
  for (const api::Node& node : nodes) pointers.push_back(&node);
  const double before = mebibytes();
  core::Topology topology;
  const double reading = microseconds_of([&] {
    auto read = core::read_topology(pointers);
    if (!read) std::exit(1);
    topology = std::move(read).value();
  });
  std::printf("%zu nodes, %zu domains, topology read in %.1f ms\n", topology.nodes.size(),
              topology.domains.size(), reading / 1e3);
  std::printf(
      "| gang | placed | leaves | cold p50 us | p99 | warm p50 | p99 | event us | cut | "
      "beside p50 | p99 | elsewhere | ledger |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  double after = 0;
  for (const Row& row : kRows) {
    core::Topology changed = topology;
    for (core::TopologyLevel& level : changed.levels) {
      if (level.name == "subblock") level.oversubscription = row.oversubscription;
    }
    core::Inventory inventory(std::make_shared<const core::Topology>(std::move(changed)), pointers);
    measure(inventory, row, rounds, seed);
    after = std::max(after, mebibytes());
  }
  std::printf("memory for topology, inventory and %zu shapes: %.1f MiB over the nodes' objects\n",
              core::kMaxShapes, after - before);
  return 0;
}
