// What is known of others' rules, without their code: gangs (or pods) in the order of submission,
// each on the tightest nodes that hold it, or along the network.
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "operator/core/rooms.h"
#include "operator/core/topology.h"
#include "operator/runtime/simulation.h"
#include "operator/runtime/what_if.h"

namespace muster::runtime {
namespace {

/// Of these, one after the other: the tightest that has room for the rest, else the one with most.
template <typename RoomOf>
std::vector<int> cover(std::vector<int> open, std::int64_t rest, const RoomOf& room_of) {
  std::vector<int> chosen;
  while (rest > 0 && !open.empty()) {
    const auto pick = std::min_element(open.begin(), open.end(), [&](int a, int b) {
      const std::int64_t of_a = room_of(a), of_b = room_of(b);
      if ((of_a >= rest) != (of_b >= rest)) return of_a >= rest;
      return of_a >= rest ? of_a < of_b : of_a > of_b;
    });
    rest -= room_of(*pick);
    chosen.push_back(*pick);
    open.erase(pick);
  }
  return chosen;
}

/// What is below these domains by one step; a leaf stays itself.
std::vector<int> one_step_down(const core::Topology& topology, const std::vector<int>& domains) {
  std::vector<int> below;
  for (const int domain : domains) {
    const core::Domain& one = topology.domains[core::as_index(domain)];
    if (one.height == 0) below.push_back(domain);
    for (int child = 0; child < one.children; ++child) below.push_back(one.first_child + child);
  }
  return below;
}

/// By node of the tree, how many of `count` pods stand there: in the lowest domain that holds all,
/// the tightest of several, and there on as few domains of each level as cover() takes. Empty: no
/// domain holds them.
std::vector<core::HostShare> best_fit(const core::Topology& topology,
                                      const std::vector<std::int64_t>& fits, std::int64_t count) {
  std::vector<std::int64_t> before(fits.size() + 1, 0);
  std::partial_sum(fits.begin(), fits.end(), before.begin() + 1);
  const auto room_in = [&](int domain) {
    const core::Domain& one = topology.domains[core::as_index(domain)];
    return before[core::as_index(one.first_node + one.nodes)] -
           before[core::as_index(one.first_node)];
  };
  const auto height = [&](int domain) { return topology.domains[core::as_index(domain)].height; };
  int lowest = -1;
  for (int domain = 0; domain < static_cast<int>(topology.domains.size()); ++domain) {
    if (room_in(domain) < count) continue;
    if (lowest < 0 ||
        std::pair(height(domain), room_in(domain)) < std::pair(height(lowest), room_in(lowest))) {
      lowest = domain;
    }
  }
  if (lowest < 0) return {};
  std::vector<int> chosen{lowest};
  for (int steps = height(lowest); steps > 0; --steps) {
    chosen = cover(one_step_down(topology, chosen), count, room_in);
  }
  std::vector<int> nodes;
  for (const int leaf : chosen) {
    const core::Domain& one = topology.domains[core::as_index(leaf)];
    for (int node = 0; node < one.nodes; ++node) nodes.push_back(one.first_node + node);
  }
  std::vector<core::HostShare> hosts;
  std::int64_t rest = count;
  for (const int node :
       cover(std::move(nodes), count, [&](int one) { return fits[core::as_index(one)]; })) {
    hosts.push_back({node, static_cast<int>(std::min(rest, fits[core::as_index(node)]))});
    rest -= hosts.back().pods;
  }
  return hosts;
}

class PeerScheduler final : public SimulatedScheduler {
 public:
  PeerScheduler(PeerRule rule, const std::vector<Json>& objects, const std::vector<TraceJob>& trace)
      : rule_(rule), trace_(trace), nodes_(nodes_among(objects)), places_(trace.size()) {
    core::ClusterSnapshot cluster;
    for (const api::Node& node : nodes_) {
      if (node.ready && !node.unschedulable) cluster.nodes.push_back(&node);
    }
    rooms_.emplace(cluster);
    for (const TraceJob& one : trace) {
      core::WaitingGang gang = core::gang_of(one.job);
      pods_.push_back({std::move(gang.per_worker), std::move(gang.tolerations)});
    }
  }

  void submit(std::size_t job) override {
    waiting_.push_back(job);
    has_news_ = true;
  }

  void end(std::size_t job) override {
    for (const std::string& node : places_[job]) rooms_->give_back(node, needs(job));
    places_[job].clear();
    has_news_ = true;
  }

  milliseconds run(milliseconds until) override {
    if (std::exchange(has_news_, false)) decide();
    return changes_.empty() ? now_ = until : now_;
  }
  std::vector<Change> take_changes() override { return std::exchange(changes_, {}); }

 private:
  /// A job's, as the operator's own rule has them: taints are not what rules differ in.
  struct PeerPod {
    api::Resources needs;
    std::vector<core::NodeToleration> tolerations;
    bool operator==(const PeerPod&) const = default;
  };

  const api::Resources& needs(std::size_t job) const { return pods_[job].needs; }
  std::size_t count(std::size_t job) const {
    return static_cast<std::size_t>(trace_[job].job.spec.worker.count);
  }

  bool is_open(int node, std::size_t job) const {
    return std::ranges::none_of(
        rooms_->inventory().node(node).taints, [&](const api::Node::Taint& taint) {
          return taint.is_hard() && !core::tolerates_taint(pods_[job].tolerations, taint);
        });
  }

  /// Of the nodes with room for a worker the one with room for the fewest.
  struct Offer {
    int node = -1;
    std::int64_t fit = 0;
  };
  Offer tightest(std::size_t job) const {
    Offer best;
    const std::vector<std::int64_t> fits = rooms_->fits(needs(job));
    for (const int node : rooms_->inventory().by_name()) {
      const std::int64_t fit = fits[core::as_index(node)];
      if (fit <= 0 || (best.node >= 0 && fit >= best.fit)) continue;
      if (is_open(node, job)) best = {node, fit};
    }
    return best;
  }

  void put(std::size_t job, const std::vector<core::HostShare>& hosts) {
    rooms_->take(hosts, needs(job));
    for (const core::HostShare& host : hosts) {
      places_[job].insert(places_[job].end(), static_cast<std::size_t>(host.pods),
                          rooms_->inventory().node(host.node).meta.name);
    }
  }

  std::vector<core::HostShare> along_the_network(std::size_t job) const {
    std::vector<std::int64_t> fits = rooms_->fits(needs(job));
    for (std::size_t node = 0; node < fits.size(); ++node) {
      if (!is_open(static_cast<int>(node), job)) fits[node] = 0;
    }
    return best_fit(rooms_->inventory().topology(), fits, static_cast<std::int64_t>(count(job)));
  }

  /// Places for what it lacks, as many as there are.
  void fill(std::size_t job) {
    if (rule_ == PeerRule::kBestFit) return put(job, along_the_network(job));
    while (places_[job].size() < count(job)) {
      const Offer offer = tightest(job);
      if (offer.node < 0) return;
      const auto here = std::min(offer.fit, static_cast<std::int64_t>(count(job)) -
                                                static_cast<std::int64_t>(places_[job].size()));
      put(job, {core::HostShare{offer.node, static_cast<int>(here)}});
    }
  }

  int leaves_of(std::size_t job) {
    if (!rooms_->knows_network()) return 0;
    const auto domains = rooms_->domains_of(places_[job]);
    return static_cast<int>(std::set<std::string>(domains.begin(), domains.end()).size());
  }

  bool start(std::size_t job) {
    fill(job);
    if (places_[job].size() == count(job)) {
      changes_.push_back({job, static_cast<int>(count(job)), leaves_of(job), places_[job]});
      return true;
    }
    if (rule_ == PeerRule::kPods) return false;
    for (const std::string& node : places_[job]) rooms_->give_back(node, needs(job));
    places_[job].clear();
    return false;
  }

  /// Where pods go one by one, the other has left no room for even one.
  bool asks_no_less(std::size_t job, std::size_t other) const {
    const bool is_less = rule_ != PeerRule::kPods && count(job) < count(other);
    return !is_less && pods_[job] == pods_[other];
  }

  /// Room only shrinks within one call: who asks for no less than one that has found none finds
  /// none either, and whoever looks passes over all nodes.
  void decide() {
    std::vector<std::size_t> still;
    std::vector<std::size_t> refused;
    for (const std::size_t job : waiting_) {
      const bool is_held_up = rule_ == PeerRule::kStrictFifo && !still.empty();
      const bool is_hopeless = is_held_up || std::ranges::any_of(refused, [&](std::size_t other) {
                                 return asks_no_less(job, other);
                               });
      if (!is_hopeless && start(job)) continue;
      still.push_back(job);
      if (!is_hopeless) refused.push_back(job);
    }
    waiting_ = std::move(still);
  }

  PeerRule rule_;
  const std::vector<TraceJob>& trace_;
  std::vector<api::Node> nodes_;
  std::optional<core::Rooms> rooms_;
  std::vector<PeerPod> pods_;  ///< by job
  std::vector<std::size_t> waiting_;
  std::vector<std::vector<std::string>> places_;
  std::vector<Change> changes_;
  milliseconds now_{};
  bool has_news_ = false;
};

}  // namespace

std::unique_ptr<SimulatedScheduler> make_peer(PeerRule rule, const std::vector<Json>& objects,
                                              const std::vector<TraceJob>& trace) {
  return std::make_unique<PeerScheduler>(rule, objects, trace);
}

}  // namespace muster::runtime
