// The cluster of the placement benchmark: nodes, residents and what is measured.
#pragma once

#include <algorithm>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

#include "common/rng.h"
#include "operator/api/pod.h"
#include "operator/core/inventory.h"
#include "operator/core/traffic.h"

namespace muster::bench {

inline constexpr int kNodesPerRack = 16;
inline constexpr int kRacksPerBlock = 64;
inline constexpr std::int64_t kGi = std::int64_t{1} << 30;

inline double thread_seconds() {
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
inline double mebibytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096 / (1 << 20);
}

/// 0 of none.
inline double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

/// As a provider labels them, with a label of its own on each.
inline std::vector<api::Node> cluster_of(int count) {
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

/// As a node agent tells of them: two switches with four GPUs each, on a NUMA node of its own each.
inline void add_switches(std::vector<api::Node>& nodes) {
  for (api::Node& node : nodes) {
    api::PcieNode& pcie = node.pcie.emplace();
    pcie.switches = {{"0000:10:00.0", 31'507'692'307}, {"0000:90:00.0", 31'507'692'307}};
    for (int i = 0; i < 8; ++i) pcie.gpus.push_back({"0000:1" + std::to_string(i), i / 4, i / 4});
  }
}

struct Row {
  const char* name;
  int pods, gpus;
  double occupancy;  ///< share of GPUs taken, by whole hosts or one by one
  bool whole_hosts;
  double oversubscription;
};

inline constexpr Row kRows[] = {
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

/// GPUs taken, by node.
inline std::vector<int> gpus_taken(const Row& row, int nodes, Rng& rng) {
  std::vector<int> taken;
  for (int node = 0; node < nodes; ++node) {
    int gpus = 0;
    if (row.whole_hosts) {
      gpus = rng.unit() < row.occupancy ? 8 : 0;
    } else {
      for (int gpu = 0; gpu < 8; ++gpu) gpus += rng.unit() < row.occupancy ? 1 : 0;
    }
    taken.push_back(gpus);
  }
  return taken;
}

/// The residents as gangs of 2 to 64 pods like the row's, along the tree, a part of which has told
/// what its steps are.
inline std::vector<core::SendingGang> gangs_of(const std::vector<int>& taken, const Row& row,
                                               Rng& rng) {
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

struct Passes {
  int count = 50;  ///< of each row, of each kind
  std::uint64_t seed = 1;
  int row = 0;            ///< of kRows, from 1 on; 0: all
  bool with_anew = true;  ///< those, too, that make all anew, and leave the caches cold for others
};

/// Whole passes of the operator's decision, over the same rows.
void measure_passes(const std::vector<api::Node>& nodes, const Passes& passes);

}  // namespace muster::bench
