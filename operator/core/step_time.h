// How long a training step takes on given hosts, predicted: latency and bandwidth of every level of
// the network (the alpha-beta model), for our own exchange: reduce-scatter by all-to-all, then
// all-gather; with what others send over the same links, where that is told. Who the others are:
// traffic.h.
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

/// What others send over a link, on the average of their steps.
struct LinkUse {
  double bytes_per_second = 0;
  double flows = 0;  ///< pairs of pods, each by the part of its step in which it sends
};

/// A link between hosts that a gang sends over.
struct Crossing {
  int link = -1;     ///< StepModel::link_of; -1: nobody else can be on it
  double flows = 0;  ///< pairs of pods that send over it, each way
  double bytes_per_second = 0;
};

/// With n pods and S bytes of gradients every pod sends S/n to every other, twice. A domain with x
/// of them sends x(n-x)S/n through its uplink each time, a host the same through its card, and
/// x(x-1)S/n within itself; the slowest of these bounds both exchanges, each after the latency of
/// the lowest domain that holds all. On a link that others use a gang gets what they leave, and no
/// less than its share by the number of flows, which is what TCP and fair switches give.
/// Threads: one at a time.
class StepModel {
 public:
  /// `others` by link; nullptr: nobody else sends. What is given outlives the model.
  StepModel(const Topology& topology, const StepWork& work,
            const std::vector<LinkUse>* others = nullptr);

  /// `hosts` ascending by node, each with at least one pod.
  StepTime predict(const std::vector<HostShare>& hosts) const;

  /// The links that these cross: hosts' first. None: all are on one host. Holds until the next call
  /// of this or predict.
  const std::vector<Crossing>& crossings(const std::vector<HostShare>& hosts) const;

  const Topology& topology() const { return topology_; }
  const StepWork& work() const { return work_; }
  /// Bytes a second out of a domain.
  double uplink(int domain) const { return uplink_[static_cast<std::size_t>(domain)]; }
  /// Bytes a second out of a host, to others within `domain`.
  double host_rate(int domain) const;
  /// One way between the hosts of `domain`.
  double latency(int domain) const;
  /// Links are numbered: uplinks by their domain, then the hosts' cards. -1: within `domain` hosts
  /// send from GPU to GPU over links of their own.
  int link_of(int node, int domain) const;
  std::size_t links() const { return topology_.domains.size() + topology_.nodes.size(); }
  /// What others send there.
  LinkUse use(int link) const;
  /// Seconds that x of n pods need to send to the others at a rate.
  double load_seconds(int x, int n, double rate) const {
    return static_cast<double>(x) * (n - x) * work_.gradient_bytes / n / rate;
  }
  /// The most flows that a gang of n gets through a link in so many seconds.
  double flows_within(double seconds, int n, int link, double bytes_per_second) const;
  /// A step whose exchanges last `load` each after `latency`.
  StepTime step_of(double latency, double load) const;
  /// How long an exchange may load the links for a step of so many seconds.
  double load_of(double latency, double step_seconds) const {
    return (step_seconds - work_.compute_seconds + work_.overlap_seconds) / 2 - latency;
  }

 private:
  bool is_fast(int domain) const;
  int cross(const std::vector<HostShare>& hosts, int pods) const;

  const Topology& topology_;
  StepWork work_;
  const std::vector<LinkUse>* others_;
  std::vector<double> uplink_;
  mutable std::vector<int> pods_in_;  ///< by domain; zero between calls
  mutable std::vector<Crossing> crossings_;
};

/// Bytes a second that `flows` of a gang get of a link which others use.
double rate_beside(const LinkUse& others, double flows, double bytes_per_second);

}  // namespace muster::core
