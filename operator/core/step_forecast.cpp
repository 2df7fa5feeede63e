#include "operator/core/step_forecast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "operator/core/copies.h"

namespace muster::core {
namespace {

constexpr int kMostBuckets = 24;
constexpr int kMostRanksDivided = 256;
constexpr int kMostSums = std::numeric_limits<int>::max() / 2;

/// The fewest complete subtrees of which [first, last) consists.
int subtrees(int first, int last) {
  int count = 0;
  for (; first < last; ++count) {
    const auto room = std::bit_floor(static_cast<unsigned>(last - first));
    const auto at = static_cast<unsigned>(first);
    first += static_cast<int>(first == 0 ? room : std::min(room, at & (~at + 1)));
  }
  return count;
}

HeldSums evenly_held(int ranks, int members) {
  HeldSums held{0, kMostSums, 0};
  const auto start = [&](int member) {
    return static_cast<int>(std::int64_t{ranks} * member / members);
  };
  for (int member = 0; member < members; ++member) {
    const int count = subtrees(start(member), start(member + 1));
    held.most = std::max(held.most, count);
    held.least = std::min(held.least, count);
    held.mean += static_cast<double>(count) / members;
  }
  return held;
}

/// Layers with parameters, as spec.training.model tells; 1 where it does not.
int layers_of(const Json& model) {
  const auto size_of = [](const Json& of, const char* name) {
    return of.contains(name) && of[name].is_array() ? static_cast<int>(of[name].size()) : 0;
  };
  if (model.contains("mlp")) return size_of(model["mlp"], "hidden") + 1;
  if (model.contains("cnn")) {
    return size_of(model["cnn"], "channels") + size_of(model["cnn"], "hidden") + 1;
  }
  if (!model.contains("gpt")) return 1;
  const Json& gpt = model["gpt"];
  const auto layers = gpt.find("layers");
  constexpr int kOfBlock = 4, kOthers = 2;
  const int blocks = layers != gpt.end() && layers->is_number_integer()
                         ? static_cast<int>(std::clamp<std::int64_t>(*layers, 0, 1024))
                         : 0;
  return kOfBlock * blocks + kOthers;
}

/// Hosts of a placement in the topology, each with so many processes a slot; empty: some stand
/// where nothing is known.
std::vector<HostShare> hosts_of(const std::vector<api::SlotPlacement>& placement, int processes,
                                const Topology& topology) {
  std::map<std::string_view, int> members;
  for (const api::SlotPlacement& place : placement) {
    if (place.node.empty() || place.domain.empty()) return {};
    members[place.node] += processes;
  }
  std::vector<HostShare> hosts;
  for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
    const auto at = members.find(topology.nodes[node]);
    if (at != members.end()) hosts.push_back({static_cast<int>(node), at->second});
  }
  return hosts.size() == members.size() ? hosts : std::vector<HostShare>();
}

}  // namespace

HeldSums held_sums(int logical_ranks, int members) {
  if (logical_ranks < 1 || members < 1) return {};
  const int holders = std::min(logical_ranks, members);  // the others are spares
  if (logical_ranks > kMostRanksDivided) return evenly_held(logical_ranks, holders);
  const int longest = (logical_ranks + holders - 1) / holders;
  // By member and the first of its ranks: the fewest sums of it and all after it.
  const auto ranks = static_cast<std::size_t>(logical_ranks);
  std::vector<std::vector<int>> fewest(static_cast<std::size_t>(holders) + 1,
                                       std::vector<int>(ranks + 1, kMostSums));
  fewest.back().back() = 0;
  const auto with = [&](std::size_t member, int first, int length) {
    const int last = first + length;
    if (last > logical_ranks) return kMostSums;
    return subtrees(first, last) + fewest[member + 1][as_index(last)];
  };
  for (auto member = static_cast<std::size_t>(holders); member-- > 0;) {
    for (int first = 0; first <= logical_ranks; ++first) {
      int& least = fewest[member][as_index(first)];
      for (int length = 1; length <= longest; ++length) {
        least = std::min(least, with(member, first, length));
      }
    }
  }
  HeldSums held{0, kMostSums, static_cast<double>(fewest[0][0]) / holders};
  int first = 0;
  for (std::size_t member = 0; member < static_cast<std::size_t>(holders); ++member) {
    int length = 1;
    while (with(member, first, length) > fewest[member][as_index(first)]) ++length;
    const int count = subtrees(first, first + length);
    held.most = std::max(held.most, count);
    held.least = std::min(held.least, count);
    first += length;
  }
  return held;
}

double largest_share(double bytes, int members) {
  if (bytes <= 0 || members < 1) return 0;
  if (members == 1) return bytes;
  const double blocks = std::ceil(bytes / kBlockBytes);
  const double fewest = std::floor(blocks / members);
  const double with_one_more = blocks - fewest * members;
  // The last member is one of those with a block more, and has the end of the last block.
  const double last = (fewest + (with_one_more > 0 ? 1 : 0)) * kBlockBytes;
  const double cut = blocks * kBlockBytes - bytes;
  if (with_one_more != 1) return last;
  return std::max(last - cut, fewest * kBlockBytes);
}

StepTime forecast_step(const StepModel& model, const std::vector<HostShare>& hosts,
                       const ExchangeShape& shape) {
  StepTime time = model.predict(hosts);
  int n = 0;
  for (const HostShare& host : hosts) n += host.pods;
  if (n <= 1) return time;
  const Topology& topology = model.topology();
  const double bytes = model.work().gradient_bytes;
  const double even = bytes / n;
  const double more = std::max(0.0, largest_share(bytes, n) - even);
  const HeldSums sums = held_sums(shape.logical_ranks, n);
  // To the one that holds the fewest, from each of the others on the mean.
  const double received = (sums.mean * n - sums.least) / (n - 1);
  double latency = topology.host.local_latency_seconds;
  double scatter = 0, gather = 0;
  for (const HostShare& host : hosts) {
    const double local = (host.pods - 1) * even / topology.host.local_bytes_per_second;
    scatter = std::max(scatter, local * sums.mean);
    gather = std::max(gather, local);
  }
  if (hosts.size() > 1) {
    const auto leaf = [&](const HostShare& host) {
      return topology.leaf_of_node[as_index(host.node)];
    };
    latency = model.latency(topology.common_domain(leaf(hosts.front()), leaf(hosts.back())));
    const std::vector<Crossing>& crossings = model.crossings(hosts);
    for (std::size_t i = 0; i < crossings.size(); ++i) {
      const Crossing& one = crossings[i];
      const double rate = rate_beside(model.use(one.link), one.flows, one.bytes_per_second);
      const double through = one.flows * even;
      const bool is_card = i < hosts.size();
      // The member with the largest share is sent it by all others, and gives it to all others.
      const double share = is_card ? (n - hosts[i].pods) * more : 0;
      const double out = through * (is_card ? sums.most : sums.mean);
      const double in = (through + share) * (is_card ? received : sums.mean);
      scatter = std::max(scatter, std::max(out, in) / rate);
      gather = std::max(gather, (through + share) / rate);
    }
  }
  time.load_seconds = (scatter + gather) / 2;
  time.exchange_seconds = 2 * latency + scatter + gather;
  // The first bucket goes out when its part of the backward pass is done, and the last one when all
  // of it is.
  const double buckets = std::clamp(std::min<double>(std::ceil(bytes / kBucketBytes), shape.layers),
                                    1.0, static_cast<double>(kMostBuckets));
  const double beside = std::min(time.exchange_seconds, shape.backward_seconds);
  time.step_seconds = model.work().compute_seconds + time.exchange_seconds -
                      std::max(0.0, beside) * (1 - 1 / buckets);
  return time;
}

std::optional<double> forecast_seconds(const api::TrainingJob& job, const ProgressReport& report,
                                       const Topology& topology) {
  if (!job.spec.training || processes_of_copy(job) > 1) {
    return std::nullopt;
  }
  const bool is_told = report.step_seconds > 0 && std::isfinite(report.step_seconds) &&
                       std::isfinite(report.exchange_seconds) && report.model_parameters > 0;
  if (!is_told) return std::nullopt;
  const int processes = std::max(1, job.spec.worker.processes);
  const std::vector<HostShare> hosts = hosts_of(job.status.placement, processes, topology);
  if (hosts.empty()) return std::nullopt;
  StepWork work;
  work.gradient_bytes = 4.0 * static_cast<double>(report.model_parameters);
  work.compute_seconds =
      std::max(0.0, report.step_seconds - std::max(0.0, report.exchange_seconds));
  const ExchangeShape shape{job.spec.training->logical_ranks, layers_of(job.spec.training->model),
                            kBackwardShare * work.compute_seconds};
  return forecast_step(StepModel(topology, work), hosts, shape).step_seconds;
}

}  // namespace muster::core
