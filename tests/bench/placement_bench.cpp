// How long a placement takes: gangs of up to 1,024 pods on 10,000 nodes with 8 GPUs each (16 a
// rack, 64 racks a block), and the memory that all of it takes. Every decision begins with a shape
// of pod that was never asked for, so the whole cluster is counted (cold), and is made once more
// with what the inventory keeps (warm); then the gang's pods are taken, one event each. The same
// once more beside the traffic of the residents, who are gangs of 2 to 64 pods, with their sizes as
// the usual ones (beside), and making the ledger of that traffic from nothing (ledger). Residents
// are drawn anew for every row. Whole passes of the decision are in placement_pass.cpp. Times are
// the thread's processor time, which others on the machine cannot lengthen.
//
// With --switches 1 nodes tell of PCIe switches and NUMA nodes; with --anew 0 no pass makes the
// inventory anew, so that the others are measured as they are one after the other, and with --row N
// passes are made of the N-th row alone.
//
//   placement_bench [--nodes N] [--rounds N] [--seed N] [--passes N] [--switches 0|1] [--anew 0|1]
//                   [--row N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "common/rng.h"
#include "operator/core/inventory.h"
#include "operator/core/placement.h"
#include "operator/core/topology_sources.h"
#include "operator/core/traffic.h"
#include "tests/bench/placement_bench.h"

namespace {

using namespace muster;

using namespace muster::bench;

core::PodShape shape_of(int gpus, int round) {
  core::PodShape shape;
  shape.requests = {
      {"cpu", 8000 + round}, {"memory", 64 * kGi}, {"pods", 1}, {"nvidia.com/gpu", gpus}};
  return shape;
}

/// GPUs taken, by node.
std::vector<int> occupy(core::Inventory& inventory, const Row& row, Rng& rng, int sign) {
  const std::vector<int> taken =
      gpus_taken(row, static_cast<int>(inventory.topology().nodes.size()), rng);
  for (std::size_t node = 0; node < taken.size(); ++node) {
    const core::ResourceAmounts amounts{{"nvidia.com/gpu", taken[node]}};
    if (sign > 0) {
      inventory.take(static_cast<int>(node), amounts);
    } else {
      inventory.give_back(static_cast<int>(node), amounts);
    }
  }
  return taken;
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
  bench::Passes passes;
  bool with_switches = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--nodes") == 0) count = std::max(1, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--rounds") == 0) rounds = std::max(0, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--passes") == 0) passes.count = std::max(0, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--switches") == 0) with_switches = std::atoi(argv[i + 1]) > 0;
    if (std::strcmp(argv[i], "--row") == 0) passes.row = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--anew") == 0) passes.with_anew = std::atoi(argv[i + 1]) > 0;
    if (std::strcmp(argv[i], "--seed") == 0) passes.seed = std::strtoull(argv[i + 1], nullptr, 10);
  }
  std::vector<api::Node> nodes = cluster_of(count);
  if (with_switches) add_switches(nodes);
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
    if (rounds == 0) break;
    core::Topology changed = topology;
    for (core::TopologyLevel& level : changed.levels) {
      if (level.name == "subblock") level.oversubscription = row.oversubscription;
    }
    core::Inventory inventory(std::make_shared<const core::Topology>(std::move(changed)), pointers);
    measure(inventory, row, rounds, passes.seed);
    after = std::max(after, mebibytes());
  }
  std::printf("memory for topology, inventory and %zu shapes: %.1f MiB over the nodes' objects\n",
              core::kMaxShapes, after - before);
  if (passes.count > 0) bench::measure_passes(nodes, passes);
  return 0;
}
