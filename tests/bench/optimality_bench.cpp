// How far a gang's place is from the best there is. On clusters of up to 14 hosts every placement
// is listed, and all goals of place_gang are compared; larger ones (40 to 64 hosts) are written to
// a file with the place that was chosen, for an exact solver (optimality.py), and so are small ones
// with what is least, to check that one. Networks, residents and gangs are random, and the same for
// a seed.
//
//   optimality_bench [--instances N] [--seed N] [--large N | --listed N] [--out FILE]
// N instances for each network and occupancy in which the gang has a place.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/json.h"
#include "tests/bench/placement_bench.h"
#include "tests/unit/core/placement_instances.h"

namespace {

using namespace muster;
using namespace muster::core;
using namespace muster::test;

/// Of one network and occupancy, or of all.
struct GapsOfCell {
  std::vector<double> cost;      ///< over the least of the least rank, as a part of it
  std::vector<double> any_rank;  ///< over the least of any rank
  int best_rank = 0, best_cost = 0, best_hosts = 0, best_of_all = 0, refused = 0;

  void add(const Goals& ours, const BestOfAll& best) {
    cost.push_back(ours.cost / best.goals.cost - 1);
    any_rank.push_back(ours.cost / best.least_cost - 1);
    const Goal first = compare_goals(ours, best.goals).first;
    best_rank += first != Goal::kRank ? 1 : 0;
    best_cost += first != Goal::kRank && first != Goal::kCost ? 1 : 0;
    best_hosts += first == Goal::kNone || first == Goal::kLost || first == Goal::kLeft ? 1 : 0;
    best_of_all += first == Goal::kNone ? 1 : 0;
  }

  void add(const GapsOfCell& other) {
    cost.insert(cost.end(), other.cost.begin(), other.cost.end());
    any_rank.insert(any_rank.end(), other.any_rank.begin(), other.any_rank.end());
    best_rank += other.best_rank;
    best_cost += other.best_cost;
    best_hosts += other.best_hosts;
    best_of_all += other.best_of_all;
    refused += other.refused;
  }

  void print(const char* network, const std::string& occupancy) const {
    const auto part = [&](int count) { return 100.0 * count / static_cast<double>(cost.size()); };
    const auto percent = [](const std::vector<double>& gaps, double at) {
      return 100 * bench::quantile(gaps, at);
    };
    std::printf(
        "| %-8s | %-4s | %5zu | %4d | %5.1f | %5.1f | %5.1f | %5.1f | %.2f | %.2f | %.2f | %5.1f | "
        "%.2f | %.2f |\n",
        network, occupancy.c_str(), cost.size(), refused, part(best_rank), part(best_cost),
        part(best_hosts), part(best_of_all), percent(cost, 0.5), percent(cost, 0.95),
        percent(cost, 0.99), percent(cost, 1), percent(any_rank, 0.5), percent(any_rank, 0.95));
    std::fflush(stdout);
  }
};

GapsOfCell measure_cell(std::size_t kind, double occupancy, int instances, Rng& rng) {
  GapsOfCell cell;
  while (cell.cost.size() < static_cast<std::size_t>(instances)) {
    const PlacementInstance one = random_instance(kind, occupancy, NetworkSize::kListed, rng);
    const InstanceGoals goals(one);
    const auto best = goals.best();
    const auto verdict = one.placed();
    MUSTER_CHECK(verdict.placement.has_value() == best.has_value());
    if (best) {
      cell.add(goals.of(verdict.placement->hosts), *best);
    } else {
      ++cell.refused;
    }
  }
  return cell;
}

Json json_of(const std::vector<HostShare>& hosts) {
  Json list = Json::array();
  for (const HostShare& host : hosts) list.push_back({host.node, host.pods});
  return list;
}

Json json_of(const Rank& rank) { return {std::get<0>(rank), std::get<1>(rank), std::get<2>(rank)}; }

/// All that the cost is made of, and what was chosen.
Json json_of(const PlacementInstance& one, const InstanceGoals& goals, const Placement& placement) {
  const Topology& topology = one.topology;
  Json domains = Json::array(), senders = Json::array(), capacities = Json::array();
  for (std::size_t i = 0; i < topology.domains.size(); ++i) {
    const int domain = static_cast<int>(i);
    const bool is_fast = goals.model().link_of(topology.domains[i].first_node, domain) < 0;
    domains.push_back({{"parent", topology.domains[i].parent},
                       {"height", topology.domains[i].height},
                       {"allowed", lies_within(topology, domain, one.levels())},
                       {"fast", is_fast},
                       {"host_rate", goals.model().host_rate(domain)},
                       {"latency", goals.model().latency(domain)}});
  }
  for (std::size_t link = 0; link < goals.model().links(); ++link) {
    capacities.push_back(goals.cost().capacity(static_cast<int>(link)));
  }
  for (const SenderByHand& sender : goals.cost().senders()) {
    Json flows = Json::array();
    for (const auto& [link, pairs] : sender.flows) flows.push_back({link, pairs});
    senders.push_back({{"flows", flows},
                       {"pods", sender.pods},
                       {"bytes", sender.bytes},
                       {"local", sender.local},
                       {"latency", sender.latency},
                       {"step", sender.step},
                       {"duty", sender.duty}});
  }
  const Goals ours = goals.of(placement.hosts);
  return {{"domains", domains},
          {"leaf_of_node", topology.leaf_of_node},
          {"capacities", capacities},
          {"senders", senders},
          {"room", one.room.on_node},
          {"local_rate", topology.host.local_bytes_per_second},
          {"local_latency", topology.host.local_latency_seconds},
          {"pods", one.wish.pods},
          {"bytes", one.wish.work.gradient_bytes},
          {"compute", one.wish.work.compute_seconds},
          {"hosts", json_of(placement.hosts)},
          {"rank", json_of(ours.rank)},
          {"cost", ours.cost}};
}

/// One instance a line; those that can be listed with what is least.
void write_instances(const std::string& path, NetworkSize size, int instances, std::uint64_t seed) {
  std::ofstream file(path);
  for (std::size_t kind = 0; kind < kNetworks.size(); ++kind) {
    for (const double occupancy : kOccupancies) {
      Rng rng(seed + 1000 * kind + static_cast<std::uint64_t>(100 * occupancy));
      for (int written = 0; written < instances;) {
        const PlacementInstance one = random_instance(kind, occupancy, size, rng);
        const auto verdict = one.placed();
        if (!verdict.placement) continue;
        const InstanceGoals goals(one);
        Json line = json_of(one, goals, *verdict.placement);
        line["network"] = kNetworks[kind];
        line["occupancy"] = occupancy;
        line["seed"] = seed;
        line["number"] = written;
        if (size == NetworkSize::kListed) {
          const Goals least = goals.best().value().goals;
          line["least"] = {{"rank", json_of(least.rank)}, {"cost", least.cost}};
        }
        file << dump_json(line) << "\n";
        ++written;
      }
    }
  }
}

void measure_small(int instances, std::uint64_t seed) {
  std::printf(
      "| network | taken | gangs | no room | rank least %% | and cost | and hosts | all goals | "
      "gap p50 %% | p95 | p99 | max | of any rank p50 | p95 |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  GapsOfCell all;
  for (std::size_t kind = 0; kind < kNetworks.size(); ++kind) {
    for (const double occupancy : kOccupancies) {
      Rng rng(seed + 1000 * kind + static_cast<std::uint64_t>(100 * occupancy));
      const GapsOfCell cell = measure_cell(kind, occupancy, instances, rng);
      cell.print(kNetworks[kind], std::to_string(static_cast<int>(100 * occupancy)) + " %");
      all.add(cell);
    }
  }
  all.print("all", "");
}

}  // namespace

int main(int argc, char** argv) {
  int instances = 1000, large = 0, listed = 0;
  std::uint64_t seed = 1;
  std::string out;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--instances") == 0) instances = std::max(0, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--large") == 0) large = std::max(0, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--listed") == 0) listed = std::max(0, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--out") == 0) out = argv[i + 1];
  }
  if (instances > 0) measure_small(instances, seed);
  if (!out.empty() && large > 0) write_instances(out, NetworkSize::kLarge, large, seed);
  if (!out.empty() && listed > 0) write_instances(out, NetworkSize::kListed, listed, seed);
  return 0;
}
