// How long a training step takes on given hosts, predicted: latency and bandwidth of every level of
// the network (the alpha-beta model), for our own exchange: reduce-scatter by all-to-all, then
// all-gather. Other jobs' traffic is not in it.
#pragma once

#include <string>
#include <vector>

#include "operator/core/topology.h"

namespace muster::core {

/// Of a job of which nothing is known: a model of 25 million parameters.
inline constexpr double kUsualGradientBytes = 100e6;

/// What a step does, the same on each of the gang's pods.
struct StepWork {
  double gradient_bytes = kUsualGradientBytes;
  double compute_seconds = 0;
  double overlap_seconds = 0;  ///< of the exchange, hidden behind computing
  bool operator==(const StepWork&) const = default;
};

/// Pods of a gang on a node, by the topology's number.
struct HostShare {
  int node = 0;
  int pods = 0;
  bool operator==(const HostShare&) const = default;
};

struct StepTime {
  double step_seconds = 0;
  double exchange_seconds = 0;
  double load_seconds = 0;  ///< of one of the two exchanges, without latency
  /// What bounds the exchange: the uplink of a domain, else the link of a node; -1: latency alone,
  /// or the pods' host.
  int bound_domain = -1, bound_node = -1;
};

/// With n pods and S bytes of gradients every pod sends S/n to every other, twice. A domain with x
/// of them sends x(n-x)S/n through its uplink each time, a host the same through its card, and
/// x(x-1)S/n within itself; the slowest of these bounds both exchanges, each after the latency of
/// the lowest domain that holds all. Threads: one at a time.
class StepModel {
 public:
  StepModel(const Topology& topology, const StepWork& work);

  /// `hosts` ascending by node, each with at least one pod.
  StepTime predict(const std::vector<HostShare>& hosts) const;

  const Topology& topology() const { return topology_; }
  const StepWork& work() const { return work_; }
  /// Bytes a second out of a domain.
  double uplink(int domain) const { return uplink_[static_cast<std::size_t>(domain)]; }
  /// Bytes a second out of a host, to others within `domain`.
  double host_rate(int domain) const;
  /// One way between the hosts of `domain`.
  double latency(int domain) const;
  /// Seconds that x of n pods need to send to the others at a rate.
  double load_seconds(int x, int n, double rate) const {
    return static_cast<double>(x) * (n - x) * work_.gradient_bytes / n / rate;
  }
  /// A step whose exchanges last `load` each after `latency`.
  StepTime step_of(double latency, double load) const;

 private:
  const Topology& topology_;
  StepWork work_;
  std::vector<double> uplink_;
  mutable std::vector<int> pods_in_;  ///< by domain; zero between calls
};

}  // namespace muster::core
