// The ledger of shared links: what the gangs that run send over each uplink, each host's card and,
// where these are known, the uplinks of PCIe switches and the links of NUMA nodes that their GPUs
// share, how much longer a gang takes beside them, and how much longer they take beside it. A
// function of what is told of the gangs, in any order; nothing here chooses.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "operator/api/object_meta.h"
#include "operator/core/step_time.h"

namespace muster::core {

/// The part of its step in which a gang sends of which nobody has told.
inline constexpr double kUsualDuty = 0.5;

/// What is told of a gang's step.
struct StepFacts {
  double gradient_bytes = kUsualGradientBytes;
  /// As its workers measured them; 0: they told nothing of a step.
  double step_seconds = 0, exchange_seconds = 0;
  bool operator==(const StepFacts&) const = default;
};

/// What so many pods do in a step, as far as it was told. Where nothing was, half of it is
/// exchange, as fast as with a card for each pod.
StepWork work_of(const StepFacts& facts, int pods, const HostLink& host);

/// A gang that has its places.
struct SendingGang {
  api::ObjectKey job;
  std::vector<HostShare> hosts;  ///< ascending by node, each with at least one pod
  StepFacts step;
  int gpus_per_pod = 0;
  std::string gpu_resource{};
  std::int64_t cpu_millis_per_pod = 0;
  std::size_t places = 0;  ///< its pods, with those on nodes that are not known
  bool operator==(const SendingGang&) const = default;
};

/// What a gang does to those that it would share links with.
struct Slowdown {
  double workers = 0;  ///< sum over the others: their workers by the part that their step grows
  /// The one whose step grows most, by this part, and the link where; -1: nobody's does.
  double most = 0;
  int gang = -1, link = -1;
};

/// Threads: one at a time.
class Traffic {
 public:
  /// `topology` and `seats`, which it fills, outlive it. nullptr: nothing is known of PCIe
  /// switches.
  Traffic(const Topology& topology, std::vector<const SendingGang*> gangs,
          PcieSeats* seats = nullptr);
  Traffic(const Topology& topology, const std::vector<SendingGang>& gangs,
          PcieSeats* seats = nullptr);
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  void add(const SendingGang& gang);

  bool empty() const { return senders_.empty(); }
  /// By link, as StepModel numbers them; for its `others`. Holds for as long as this.
  const std::vector<LinkUse>& uses() const { return uses_; }
  bool is_used(int link) const { return link >= 0 && on_link_[as_index(link)].first >= 0; }
  /// Of a domain's uplink and, on the mean, of its hosts' cards and the uplinks inside it: how much
  /// is used already, as a part of what they carry.
  double busy(int domain) const;
  /// The same of a host's card.
  double busy_card(int node) const;

  /// `own`: what a gang with so many bytes a flow would cross, and `time`: its step beside these.
  Slowdown slowdown(const std::vector<Crossing>& own, double bytes_per_flow,
                    const StepTime& time) const;
  /// Jobs on a link, by name.
  std::vector<api::ObjectKey> jobs_on(int link) const;
  const api::ObjectKey& job(int gang) const { return senders_[as_index(gang)].job; }

 private:
  struct Sender {
    api::ObjectKey job;
    int pods = 0;
    double duty = 0, step_seconds = 0, bytes_per_flow = 0;
    double latency = 0, local_load = 0;
    bool is_below_switches = false;  ///< it may send over uplinks of PCIe switches
    int gpus_per_pod = 0;
    std::string gpu_resource;
    std::vector<HostShare> hosts;    ///< where it may
    mutable bool is_seated = false;  ///< all of these were asked for
    std::vector<Crossing> crossings;
    /// Of one of its exchanges beside all others; below 0: to be counted anew.
    mutable double load = -1;
  };
  /// GPUs of a gang that get their seats when somebody asks for the node.
  struct Unseated {
    int sender = -1;  ///< -1: it sends nothing
    int pods = 0, gpus = 0;
    const std::string* gpu_resource = nullptr;  ///< into gpu_resources_
    int next = -1;                              ///< of the same node, entered before it
  };
  struct OnLink {
    int gang = 0;
    std::size_t crossing = 0;
    int next = -1;  ///< of the same link, entered after it
  };
  /// The first and the last on a link, in entries_; -1: nobody.
  struct Users {
    int first = -1, last = -1;
  };

  /// One that is met on a link, and its exchange there with us.
  struct Meeting {
    double load = 0;
    int link = -1;
  };

  void know(const SendingGang& gang);
  void enter(const SendingGang& gang);
  bool take_facts(Sender& sender, const SendingGang& gang) const;
  void wait_for_seats(const SendingGang& gang, int sender);
  void take_seats(int node);
  static LinkUse use_of(const Sender& sender, const Crossing& one);
  double load_of(const Sender& sender) const;
  double load_on(const Sender& sender, const Crossing& one, const LinkUse& others) const;
  void add_to_links(int gang, std::size_t first_crossing);
  /// In the order in which they came.
  template <typename Function>
  void for_each_on(int link, const Function& function) const {
    for (int at = on_link_[as_index(link)].first; at >= 0; at = entries_[as_index(at)].next) {
      function(entries_[as_index(at)]);
    }
  }

  const Topology& topology_;
  PcieSeats* seats_;
  StepModel model_;
  std::vector<LinkUse> uses_;
  std::vector<double> busy_inside_;  ///< by domain: summed over the links inside it
  std::vector<Users> on_link_;
  std::vector<OnLink> entries_;
  std::vector<Sender> senders_;
  std::set<std::string> gpu_resources_;
  std::vector<Unseated> unseated_;
  std::vector<int> last_unseated_;         ///< by node; -1: nobody
  mutable std::vector<Meeting> meetings_;  ///< by sender; as they are made between calls
};

}  // namespace muster::core
