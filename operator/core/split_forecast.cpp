#include "operator/core/split_forecast.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "operator/core/pipeline_time.h"
#include "operator/core/step_forecast.h"
#include "operator/core/step_time.h"

namespace muster::core {
namespace {

/// Rounds in which the processes of a copy tell each other of the whole model, before the update:
/// what rides behind the gradients, and for the norm parts of blocks, and then their squares.
constexpr int kRounds = 1, kRoundsOfNorm = 2;

/// What is sent at the same time: each way of a link carries all of it that goes there.
class Sent {
 public:
  explicit Sent(const StepModel& model) : model_(model) {}

  void add(int from, int to, double bytes) {
    const Topology& topology = model_.topology();
    if (from == to) {
      within_ = std::max(within_, bytes / topology.host.local_bytes_per_second);
      latency_ = std::max(latency_, topology.host.local_latency_seconds);
      return;
    }
    is_wired_ = true;
    const int leaf = topology.leaf_of_node[as_index(from)];
    const int leaf_to = topology.leaf_of_node[as_index(to)];
    const int common = topology.common_domain(leaf, leaf_to);
    latency_ = std::max(latency_, model_.latency(common));
    const int domains = static_cast<int>(topology.domains.size());
    const auto over = [&](int link, bool is_out, double rate) {
      seconds_[{link, is_out}] += bytes / rate;
    };
    over(domains + from, true, model_.host_rate(common));
    over(domains + to, false, model_.host_rate(common));
    const auto up = [&](int domain, bool is_out) {
      for (; domain != common; domain = topology.domains[as_index(domain)].parent) {
        over(domain, is_out, model_.uplink(domain));
      }
    };
    up(leaf, true);
    up(leaf_to, false);
  }

  /// Of the busiest way of a link.
  double load_seconds() const {
    double most = within_;
    for (const auto& [way, seconds] : seconds_) most = std::max(most, seconds);
    return most;
  }
  double latency_seconds() const { return latency_; }
  bool is_wired() const { return is_wired_; }

 private:
  const StepModel& model_;
  std::map<std::pair<int, bool>, double> seconds_;  ///< by link, and whether out of it
  double within_ = 0, latency_ = 0;
  bool is_wired_ = false;
};

/// The processes of a job that stand somewhere, and what is known of their parts.
class SplitGang {
 public:
  SplitGang(const Topology& topology, const SplitWork& work, const std::vector<int>& nodes)
      : topology_(topology), work_(work), nodes_(nodes), model_(topology, {}) {}

  double step_seconds(int micro_batches) const {
    const std::vector<double> ends = stage_ends(micro_batches);
    const std::vector<double> exchanges = exchange_seconds();
    double summed = 0, update = 0;
    for (std::size_t place = 0; place < exchanges.size(); ++place) {
      const std::size_t stage = place / as_index(work_.split.tensor);
      summed = std::max(summed, ends[stage] + exchanges[place]);
      update = std::max(update, work_.parts[place].update_seconds);
    }
    return summed + group_seconds() + update;
  }

 private:
  int slices() const { return work_.split.tensor; }
  int stages() const { return work_.split.pipeline; }
  int places() const { return work_.split.processes(); }
  int copies() const { return static_cast<int>(nodes_.size()) * work_.processes / places(); }
  int node_of(int copy, int stage, int slice) const {
    const std::int64_t process = std::int64_t{copy} * places() + stage * slices() + slice;
    return nodes_[static_cast<std::size_t>(process / work_.processes)];
  }
  const PartReport& part(int stage, int slice) const {
    return work_.parts[as_index(stage * slices() + slice)];
  }
  bool is_tied() const { return stages() > 1 && part(stages() - 1, 0).counts.handed_on_bytes > 0; }

  /// What all copies hand on in a step from a stage to the next, or are given back for it.
  void hand_on(Sent& sent, int stage, bool is_back) const {
    if (stages() == 1) return;
    for (int copy = 0; copy < copies(); ++copy) {
      for (int slice = 0; slice < slices(); ++slice) {
        int from = node_of(copy, stage, slice);
        int to = node_of(copy, (stage + 1) % stages(), slice);
        if (is_back) std::swap(from, to);
        sent.add(from, to, static_cast<double>(part(stage, slice).counts.handed_on_bytes));
      }
    }
  }

  /// Of each pair of slices of a stage's copies what one gives the other.
  Sent between_slices(int stage, const std::function<double(int slice)>& bytes) const {
    Sent sent(model_);
    for (int copy = 0; copy < copies(); ++copy) {
      for (int from = 0; from < slices(); ++from) {
        for (int to = 0; to < slices(); ++to) {
          if (to == from) continue;
          sent.add(node_of(copy, stage, from), node_of(copy, stage, to), bytes(from));
        }
      }
    }
    return sent;
  }

  /// Of one process's micro-batches, all of them, with the sums that are made together: what was
  /// computed in one turn has come when the next but one begins.
  double computing(int stage, int slice, const Sent& sent) const {
    const PartReport& own = part(stage, slice);
    if (own.counts.turns == 0) return own.compute_seconds;
    const auto turns = static_cast<double>(own.counts.turns);
    const auto busy = static_cast<double>(std::max<std::int64_t>(1, own.counts.busy_turns));
    const double in_turn = own.turn_seconds / busy;
    const double load = sent.load_seconds() / busy, latency = sent.latency_seconds();
    const double others = std::max(0.0, own.compute_seconds - own.turn_seconds);
    // Between processes of one host moving bytes is their own work.
    if (!sent.is_wired()) return others + turns * (in_turn + load + latency);
    const double turn = std::max({in_turn, load, (in_turn + load + latency) / 2});
    return others + turns * turn + static_cast<double>(own.counts.sums) * (in_turn + latency);
  }

  std::vector<double> stage_ends(int micro_batches) const {
    PipelineWork pipeline{micro_batches, is_tied(), {}, {}, {}};
    Sent all(model_);
    for (int stage = 0; stage < stages(); ++stage) {
      const Sent turns = between_slices(stage, [&](int slice) {
        return static_cast<double>(part(stage, slice).counts.turn_bytes) / (slices() - 1);
      });
      double seconds = 0;
      for (int slice = 0; slice < slices(); ++slice) {
        seconds = std::max(seconds, computing(stage, slice, turns));
      }
      seconds /= micro_batches;
      pipeline.forward_seconds.push_back((1 - kBackwardShare) * seconds);
      pipeline.backward_seconds.push_back(kBackwardShare * seconds);
      Sent onwards(model_);
      hand_on(onwards, stage, false);
      hand_on(all, stage, false);
      hand_on(all, stage, true);
      pipeline.hops.push_back({onwards.latency_seconds(), onwards.load_seconds() / micro_batches});
    }
    std::vector<double> ends = pipeline_ends(pipeline);
    // Different stages' may go over one link.
    const double short_by = all.load_seconds() - *std::ranges::max_element(ends);
    for (double& end : ends) end += std::max(0.0, short_by);
    return ends;
  }

  /// Hosts of the workers with a part of one place, and how many of each worker's processes have
  /// it.
  std::vector<HostShare> hosts_of(int place, int& processes_each) const {
    processes_each = std::max(1, work_.processes / places());
    std::map<int, int> workers;
    for (int copy = 0; copy < copies(); copy += processes_each) {
      ++workers[node_of(copy, place / slices(), place % slices())];
    }
    std::vector<HostShare> hosts;
    for (const auto& [node, pods] : workers) hosts.push_back({node, pods});
    return hosts;
  }

  /// Of each place, between its copies. Parts of other places go over the same links meanwhile.
  std::vector<double> exchange_seconds() const {
    struct Exchange {
      std::vector<HostShare> hosts;
      int processes = 1;
      StepWork work;
      std::vector<Crossing> crossings;
    };
    std::vector<Exchange> exchanges;
    std::vector<LinkUse> use(model_.links());
    for (int place = 0; place < places(); ++place) {
      Exchange& one = exchanges.emplace_back();
      one.hosts = hosts_of(place, one.processes);
      one.work.gradient_bytes =
          sizeof(float) * static_cast<double>(work_.parts[as_index(place)].counts.parameters);
      std::vector<HostShare> senders = one.hosts;
      if (!adds_up_by_hosts(one.work.gradient_bytes, one.processes)) {
        for (HostShare& host : senders) host.pods *= one.processes;
      }
      one.crossings = model_.crossings(senders);
      for (const Crossing& crossing : one.crossings) {
        if (crossing.link >= 0) use[as_index(crossing.link)].flows += crossing.flows;
      }
    }
    std::vector<double> seconds;
    for (const Exchange& one : exchanges) {
      std::vector<LinkUse> others = use;
      for (const Crossing& crossing : one.crossings) {
        if (crossing.link < 0) continue;
        LinkUse& other = others[as_index(crossing.link)];
        other.flows = std::max(0.0, other.flows - crossing.flows);
        other.bytes_per_second = crossing.bytes_per_second;  // all of it: shared by flows
      }
      const StepModel model(topology_, one.work, &others);
      seconds.push_back(forecast_step(model, one.hosts, {work_.logical_ranks, 1, 0, one.processes})
                            .exchange_seconds);
    }
    return seconds;
  }

  /// What the processes of a copy tell each other when all gradients are summed. A layer that is
  /// divided by outputs has blocks of values of all slices, and each slice gives most of its
  /// gradient to those that make the squares of them.
  double group_seconds() const {
    double latency = 0;
    for (int copy = 0; copy < copies(); ++copy) {
      Sent sent(model_);
      for (int place = 1; place < places(); ++place) {
        sent.add(node_of(copy, 0, 0), node_of(copy, place / slices(), place % slices()), 0);
      }
      latency = std::max(latency, sent.latency_seconds());
    }
    if (!work_.is_clipped) return kRounds * latency;
    double blocks = 0;
    for (int stage = 0; stage < stages(); ++stage) {
      const Sent sent = between_slices(stage, [&](int slice) {
        return sizeof(float) * static_cast<double>(part(stage, slice).counts.parameters) / slices();
      });
      blocks = std::max(blocks, sent.load_seconds());
    }
    return (kRounds + kRoundsOfNorm) * latency + blocks;
  }

  const Topology& topology_;
  const SplitWork& work_;
  const std::vector<int>& nodes_;
  StepModel model_;
};

bool is_time(double seconds) {
  constexpr double kMost = 1e9;
  return seconds >= 0 && seconds < kMost;
}

}  // namespace

std::optional<double> split_step_seconds(const Topology& topology, const SplitWork& work,
                                         const std::vector<int>& nodes) {
  const int places = work.split.processes();
  const std::int64_t all = static_cast<std::int64_t>(nodes.size()) * work.processes;
  const bool is_even = work.processes % places == 0 || places % work.processes == 0;
  if (all == 0 || all % places != 0 || !is_even) return std::nullopt;
  if (work.parts.size() != as_index(places)) return std::nullopt;
  std::int64_t micro_batches = 0;
  for (const PartReport& part : work.parts) {
    if (part.counts.micro_batches < 1 || part.counts.parameters < 1) return std::nullopt;
    const bool is_told =
        is_time(part.compute_seconds) && is_time(part.turn_seconds) && is_time(part.update_seconds);
    if (!is_told) return std::nullopt;
    micro_batches = std::max(micro_batches, part.counts.micro_batches);
  }
  if (micro_batches > std::numeric_limits<int>::max()) return std::nullopt;
  return SplitGang(topology, work, nodes).step_seconds(static_cast<int>(micro_batches));
}

}  // namespace muster::core
