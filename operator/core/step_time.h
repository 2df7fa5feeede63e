// How long a training step takes on given hosts, predicted: latency and bandwidth of every level of
// the network (the alpha-beta model), for our own exchange: reduce-scatter by all-to-all, then
// all-gather; with what others send over the same links, where that is told. Who the others are:
// traffic.h.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "operator/core/pcie_seats.h"
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

/// Whether the processes of one pod, several, add up such gradients before these leave it, so that
/// they leave it, and come back to it, once.
bool adds_up_by_hosts(double gradient_bytes, int processes);

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
  int bound_switch = -1;  ///< within `bound_node`, PcieSeats::Place: not its card, but this link
};

/// GPUs of a gang's pods, where anything is known of the switches above them.
struct GangGpus {
  const PcieSeats* seats = nullptr;  ///< outlives what it is given to
  std::string resource;
  int per_pod = 0;
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
/// x(x-1)S/n within itself; a PCIe switch with the GPUs of y of them y(n-y)S/n through its uplink,
/// or y(n-x)S/n if a host's GPUs have links of their own; a NUMA node with those of y of a host's x
/// pods y(x-y)S/n to its others, or nothing if they have. The slowest of these bounds both
/// exchanges, each after the latency of the lowest domain that holds all. On a link that others use
/// a gang gets what they leave, and no less than its share by the number of flows, which is what
/// TCP and fair switches give. Threads: one at a time.
class StepModel {
 public:
  /// `others` by link; nullptr: nobody else sends. `gpus`: nullptr: the pods have none, or nothing
  /// is known of switches. What is given outlives the model.
  StepModel(const Topology& topology, const StepWork& work,
            const std::vector<LinkUse>* others = nullptr, const GangGpus* gpus = nullptr);

  /// `hosts` ascending by node, each with at least one pod.
  StepTime predict(const std::vector<HostShare>& hosts) const;

  /// The links that these cross: hosts' first, and last the uplinks of those PCIe switches where
  /// others may be. None but those: all are on one host. Holds until the next call of this or
  /// predict.
  const std::vector<Crossing>& crossings(const std::vector<HostShare>& hosts) const;

  const Topology& topology() const { return topology_; }
  const StepWork& work() const { return work_; }
  /// Bytes a second out of a domain.
  double uplink(int domain) const { return uplink_[static_cast<std::size_t>(domain)]; }
  /// Bytes a second out of a host, to others within `domain`.
  double host_rate(int domain) const {
    return is_fast(domain) ? topology_.host.fast_bytes_per_second : topology_.host.bytes_per_second;
  }
  /// One way between the hosts of `domain`.
  double latency(int domain) const;
  /// Links are numbered: uplinks by their domain, then the hosts' cards. -1: within `domain` hosts
  /// send from GPU to GPU over links of their own.
  int link_of(int node, int domain) const {
    return is_fast(domain) ? -1 : static_cast<int>(topology_.domains.size()) + node;
  }
  std::size_t links() const { return topology_.domains.size() + topology_.nodes.size(); }
  /// What others send there.
  LinkUse use(int link) const {
    return others_ == nullptr || link < 0 ? LinkUse{} : (*others_)[as_index(link)];
  }
  /// Seconds that x of n pods need to send to the others at a rate.
  double load_seconds(int x, int n, double rate) const {
    return static_cast<double>(x) * (n - x) * work_.gradient_bytes / n / rate;
  }
  /// The most flows that a gang of n gets through a link in so many seconds.
  double flows_within(double seconds, int n, int link, double bytes_per_second) const {
    const double per_flow = work_.gradient_bytes / n;
    const double alone = seconds * bytes_per_second / per_flow;
    const LinkUse others = use(link);
    if (others.flows <= 0) return alone;
    // rate_beside the other way round.
    const double left = bytes_per_second - others.bytes_per_second;
    const double of_left = left > 0 ? seconds * left / per_flow : 0;
    return std::max(alone - others.flows, of_left);
  }
  /// Whether so many of a gang of n on a node load no uplink of its PCIe switches for longer; what
  /// others do there is looked at only where these alone might.
  bool switches_allow(const HostShare& host, int n, double seconds) const;
  bool has_switches() const { return gpus_ != nullptr; }
  /// A step whose exchanges last `load` each after `latency`.
  StepTime step_of(double latency, double load) const;
  /// How long an exchange may load the links for a step of so many seconds.
  double load_of(double latency, double step_seconds) const {
    return (step_seconds - work_.compute_seconds + work_.overlap_seconds) / 2 - latency;
  }

 private:
  /// What bounds the exchange below one host.
  struct SwitchLoad {
    double seconds = 0;
    int number = -1;
  };
  bool is_fast(int domain) const {
    const int level = topology_.domains[as_index(domain)].level;
    return level >= 0 && topology_.levels[as_index(level)].is_fast;
  }
  SwitchLoad switch_load(const HostShare& host, int n, double at_least) const;
  int cross(const std::vector<HostShare>& hosts, int pods) const;

  const Topology& topology_;
  StepWork work_;
  const std::vector<LinkUse>* others_;
  const GangGpus* gpus_;
  std::vector<double> uplink_;
  mutable std::vector<int> pods_in_;  ///< by domain; zero between calls
  mutable std::vector<Crossing> crossings_;
};

/// Whether a host's GPUs have better ways to each other than PCIe, as NVLink.
bool have_own_links(const HostLink& host);

/// Pairs of a gang's n pods over the link of a switch or a NUMA node, with x pods on its host.
double flows_over(const PcieSeat& seat, int gpus_per_pod, int x, int n, const HostLink& host);

/// Bytes a second that `flows` of a gang get of a link which others use.
double rate_beside(const LinkUse& others, double flows, double bytes_per_second);

}  // namespace muster::core
