#include "operator/core/step_time.h"

#include <algorithm>

namespace muster::core {
namespace {

// Per switch that is passed; NCCL counts a whole path as one hop.
constexpr double kLatencyPerHeight = 5e-6;
constexpr double kAcrossUnknown = 50e-6;
constexpr double kAcrossRegions = 20e-3;

}  // namespace

StepModel::StepModel(const Topology& topology, const StepWork& work)
    : topology_(topology), work_(work), pods_in_(topology.domains.size(), 0) {
  for (const Domain& domain : topology.domains) {
    const double over =
        domain.level < 0 ? 1 : topology.levels[as_index(domain.level)].oversubscription;
    uplink_.push_back(domain.nodes * topology.host.bytes_per_second / over);
  }
}

double StepModel::host_rate(int domain) const {
  const int level = topology_.domains[as_index(domain)].level;
  const bool is_fast = level >= 0 && topology_.levels[as_index(level)].is_fast;
  return is_fast ? topology_.host.fast_bytes_per_second : topology_.host.bytes_per_second;
}

double StepModel::latency(int domain) const {
  const Domain& one = topology_.domains[as_index(domain)];
  const double by_height = topology_.host.latency_seconds + one.height * kLatencyPerHeight;
  if (one.level >= 0) {
    const double told = topology_.levels[as_index(one.level)].latency_seconds;
    return told > 0 ? told : by_height;
  }
  // The root, or a node that stands alone, whose pods need no network.
  double most = by_height;
  for (int child = one.first_child; child < one.first_child + one.children; ++child) {
    const int level = topology_.domains[as_index(child)].level;
    const bool is_area = level >= 0 && topology_.levels[as_index(level)].is_area;
    most = std::max(most, is_area ? kAcrossRegions : level < 0 ? kAcrossUnknown : by_height);
  }
  return most;
}

StepTime StepModel::step_of(double latency, double load) const {
  StepTime time;
  time.load_seconds = load;
  time.exchange_seconds = 2 * (latency + load);
  time.step_seconds =
      work_.compute_seconds + std::max(0.0, time.exchange_seconds - work_.overlap_seconds);
  return time;
}

StepTime StepModel::predict(const std::vector<HostShare>& hosts) const {
  int n = 0;
  for (const HostShare& host : hosts) n += host.pods;
  if (n <= 1) {
    StepTime alone;
    alone.step_seconds = work_.compute_seconds;
    return alone;
  }
  const double per_pair = work_.gradient_bytes / n;
  double load = 0;
  int bound_domain = -1, bound_node = -1;
  for (const HostShare& host : hosts) {
    load = std::max(load, (host.pods - 1) * per_pair / topology_.host.local_bytes_per_second);
  }
  if (hosts.size() == 1) return step_of(topology_.host.local_latency_seconds, load);
  const auto leaf = [&](const HostShare& host) {
    return topology_.leaf_of_node[as_index(host.node)];
  };
  const int common = topology_.common_domain(leaf(hosts.front()), leaf(hosts.back()));
  for (const HostShare& host : hosts) {
    const double seconds = load_seconds(host.pods, n, host_rate(common));
    if (seconds > load) {
      load = seconds;
      bound_node = host.node;
    }
    for (int d = leaf(host); d != common; d = topology_.domains[as_index(d)].parent) {
      pods_in_[as_index(d)] += host.pods;
    }
  }
  for (const HostShare& host : hosts) {
    for (int d = leaf(host); d != common; d = topology_.domains[as_index(d)].parent) {
      int& pods = pods_in_[as_index(d)];
      if (pods == 0) break;  // seen, and so is all above it
      const double seconds = load_seconds(pods, n, uplink(d));
      if (seconds > load) {
        load = seconds;
        bound_domain = d;
        bound_node = -1;
      }
      pods = 0;
    }
  }
  StepTime time = step_of(latency(common), load);
  time.bound_domain = bound_domain;
  time.bound_node = bound_node;
  return time;
}

}  // namespace muster::core
