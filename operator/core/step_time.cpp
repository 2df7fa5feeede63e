#include "operator/core/step_time.h"

#include <algorithm>

#include "common/exchange_sizes.h"

namespace muster::core {
namespace {

// Per switch that is passed; NCCL counts a whole path as one hop.
constexpr double kLatencyPerHeight = 5e-6;
// More than the 16 lanes of any PCIe switch's uplink carry (121 GB/s in the sixth generation).
constexpr double kFasterThanPcie = 130e9;
constexpr double kAcrossUnknown = 50e-6;
constexpr double kAcrossRegions = 20e-3;

}  // namespace

bool adds_up_by_hosts(double gradient_bytes, int processes) {
  // A block that is begun counts as one.
  constexpr std::size_t kFewer = (exchange_sizes::kHostBlocks - 1) * exchange_sizes::kBlockElements;
  return processes > 1 && gradient_bytes > double{kFewer * sizeof(float)};
}

double rate_beside(const LinkUse& others, double flows, double bytes_per_second) {
  if (others.flows <= 0) return bytes_per_second;
  return std::max(bytes_per_second - others.bytes_per_second,
                  bytes_per_second * flows / (flows + others.flows));
}

bool have_own_links(const HostLink& host) { return host.local_bytes_per_second > kFasterThanPcie; }

double flows_over(const PcieSeat& seat, int gpus_per_pod, int x, int n, const HostLink& host) {
  const double here = static_cast<double>(seat.gpus) / gpus_per_pod;
  const bool has_own_links = have_own_links(host);
  // What leaves the host need not pass another NUMA node, and one pod alone sends nothing here.
  if (seat.is_numa) return has_own_links || x < 2 ? 0 : here * (x - here);
  return here * (has_own_links ? n - x : n - here);
}

StepModel::StepModel(const Topology& topology, const StepWork& work,
                     const std::vector<LinkUse>* others, const GangGpus* gpus)
    : topology_(topology),
      work_(work),
      others_(others),
      gpus_(gpus != nullptr && gpus->seats != nullptr && gpus->per_pod > 0 ? gpus : nullptr),
      pods_in_(topology.domains.size(), 0) {
  for (const Domain& domain : topology.domains) {
    const double over =
        domain.level < 0 ? 1 : topology.levels[as_index(domain.level)].oversubscription;
    uplink_.push_back(domain.nodes * topology.host.bytes_per_second / over);
  }
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

/// Fills crossings_; the lowest domain that holds all.
int StepModel::cross(const std::vector<HostShare>& hosts, int pods) const {
  const auto leaf = [&](const HostShare& host) {
    return topology_.leaf_of_node[as_index(host.node)];
  };
  const auto flows = [&](int inside) { return static_cast<double>(inside) * (pods - inside); };
  const int common = topology_.common_domain(leaf(hosts.front()), leaf(hosts.back()));
  const int first_card = link_of(0, common);
  const double card = host_rate(common);
  crossings_.resize(hosts.size());
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const HostShare& host = hosts[i];
    crossings_[i] = {first_card < 0 ? -1 : first_card + host.node, flows(host.pods), card};
    for (int d = leaf(host); d != common; d = topology_.domains[as_index(d)].parent) {
      pods_in_[as_index(d)] += host.pods;
    }
  }
  for (const HostShare& host : hosts) {
    for (int d = leaf(host); d != common; d = topology_.domains[as_index(d)].parent) {
      int& inside = pods_in_[as_index(d)];
      if (inside == 0) break;  // seen, and so is all above it
      crossings_.push_back({d, flows(inside), uplink(d)});
      inside = 0;
    }
  }
  return common;
}

/// Of the busiest switch; none that is known to stay under `at_least`.
StepModel::SwitchLoad StepModel::switch_load(const HostShare& host, int n, double at_least) const {
  SwitchLoad busiest;
  const double per_pair = work_.gradient_bytes / n;
  if (!gpus_->seats->is_shared(host.node)) {
    // Mostly a card is slower, and then nobody has to know how GPUs lie.
    const double here = host.pods;
    const double flows = 2 * here >= n ? 0.25 * n * n : here * (n - here);
    if (flows * per_pair / gpus_->seats->slowest() <= at_least) return busiest;
  }
  const std::int64_t gpus = std::int64_t{gpus_->per_pod} * host.pods;
  for (const PcieSeat& seat : gpus_->seats->seats(host.node, gpus_->resource, gpus)) {
    const double flows = flows_over(seat, gpus_->per_pod, host.pods, n, topology_.host);
    if (flows <= 0) continue;
    const double seconds =
        flows * per_pair / rate_beside(use(seat.link), flows, seat.bytes_per_second);
    if (seconds > busiest.seconds) busiest = {seconds, seat.number};
  }
  return busiest;
}

bool StepModel::switches_allow(const HostShare& host, int n, double seconds) const {
  if (gpus_ == nullptr) return true;
  const double here = host.pods;
  const double flows = 2 * here >= n ? 0.25 * n * n : here * (n - here);
  if (flows * work_.gradient_bytes / n / gpus_->seats->slowest() <= seconds) return true;
  return switch_load(host, n, seconds).seconds <= seconds;
}

const std::vector<Crossing>& StepModel::crossings(const std::vector<HostShare>& hosts) const {
  int n = 0;
  for (const HostShare& host : hosts) n += host.pods;
  crossings_.clear();
  if (hosts.empty()) return crossings_;
  int common = topology_.leaf_of_node[as_index(hosts.front().node)];
  if (hosts.size() > 1) common = cross(hosts, n);
  if (gpus_ == nullptr || is_fast(common)) return crossings_;
  for (const HostShare& host : hosts) {
    if (!gpus_->seats->is_shared(host.node)) continue;
    const std::int64_t gpus = std::int64_t{gpus_->per_pod} * host.pods;
    for (const PcieSeat& seat : gpus_->seats->seats(host.node, gpus_->resource, gpus)) {
      const double flows = flows_over(seat, gpus_->per_pod, host.pods, n, topology_.host);
      if (seat.link >= 0 && flows > 0)
        crossings_.push_back({seat.link, flows, seat.bytes_per_second});
    }
  }
  return crossings_;
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
  for (const HostShare& host : hosts) {
    load = std::max(load, (host.pods - 1) * per_pair / topology_.host.local_bytes_per_second);
  }
  int bound_domain = -1, bound_node = -1, bound_switch = -1;
  int common = topology_.leaf_of_node[as_index(hosts.front().node)];
  double latency_seconds = topology_.host.local_latency_seconds;
  if (hosts.size() > 1) {
    common = cross(hosts, n);
    latency_seconds = latency(common);
    for (std::size_t i = 0; i < crossings_.size(); ++i) {
      const Crossing& one = crossings_[i];
      const double rate = rate_beside(use(one.link), one.flows, one.bytes_per_second);
      const double seconds = one.flows * per_pair / rate;
      if (seconds <= load) continue;
      load = seconds;
      bound_domain = i < hosts.size() ? -1 : one.link;
      bound_node = i < hosts.size() ? hosts[i].node : -1;
    }
  }
  for (std::size_t i = 0; gpus_ != nullptr && !is_fast(common) && i < hosts.size(); ++i) {
    const SwitchLoad one = switch_load(hosts[i], n, load);
    if (one.seconds <= load) continue;
    load = one.seconds;
    bound_domain = -1;
    bound_node = hosts[i].node;
    bound_switch = one.number;
  }
  StepTime time = step_of(latency_seconds, load);
  time.bound_domain = bound_domain;
  time.bound_node = bound_node;
  time.bound_switch = bound_switch;
  return time;
}

}  // namespace muster::core
