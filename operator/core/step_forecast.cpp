#include "operator/core/step_forecast.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <string_view>

#include "operator/core/copies.h"
#include "operator/core/few_blocks.h"
#include "operator/core/split_forecast.h"

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

/// Each member's first rank, and behind the last of them the number of ranks.
std::vector<int> divided_evenly(int ranks, int members) {
  std::vector<int> starts;
  for (int member = 0; member <= members; ++member) {
    starts.push_back(static_cast<int>(std::int64_t{ranks} * member / members));
  }
  return starts;
}

/// The same as engine::assign divides them: the longest range as short as can be, then the fewest
/// sums, then the shortest ranges first.
std::vector<int> divided_as_trainers_do(int ranks, int members) {
  const int longest = (ranks + members - 1) / members;
  // By member and the first of its ranks: the fewest sums of it and all after it.
  std::vector<std::vector<int>> fewest(as_index(members) + 1,
                                       std::vector<int>(as_index(ranks) + 1, kMostSums));
  fewest.back().back() = 0;
  const auto with = [&](std::size_t member, int first, int length) {
    const int last = first + length;
    if (last > ranks) return kMostSums;
    return subtrees(first, last) + fewest[member + 1][as_index(last)];
  };
  for (std::size_t member = as_index(members); member-- > 0;) {
    for (int first = 0; first <= ranks; ++first) {
      int& least = fewest[member][as_index(first)];
      for (int length = 1; length <= longest; ++length) {
        least = std::min(least, with(member, first, length));
      }
    }
  }
  std::vector<int> starts{0};
  for (std::size_t member = 0; member < as_index(members); ++member) {
    const int first = starts.back();
    int length = 1;
    while (with(member, first, length) > fewest[member][as_index(first)]) ++length;
    starts.push_back(first + length);
  }
  return starts;
}

/// Each holder's first rank, and behind the last of them the number of ranks; empty: nobody is
/// known to hold more than one sum. Members beyond the ranks are spares.
std::vector<int> divided(int ranks, int members) {
  if (ranks < 1 || members < 1) return {};
  const int holders = std::min(ranks, members);
  return ranks > kMostRanksDivided ? divided_evenly(ranks, holders)
                                   : divided_as_trainers_do(ranks, holders);
}

HeldSums sums_of(const std::vector<int>& starts, int team) {
  if (starts.empty() || team < 1) return {};
  const int holders = static_cast<int>(starts.size()) - 1;
  HeldSums held{0, kMostSums, 0};
  int teams = 0, all = 0;
  for (int first = 0; first < holders; first += std::min(team, holders - first), ++teams) {
    const int last = first + std::min(team, holders - first);
    const int count = subtrees(starts[as_index(first)], starts[as_index(last)]);
    held.most = std::max(held.most, count);
    held.least = std::min(held.least, count);
    all += count;
  }
  held.mean = static_cast<double>(all) / teams;
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

/// Hosts of a placement in the topology; empty: some stand where nothing is known.
std::vector<HostShare> hosts_of(const std::vector<api::SlotPlacement>& placement,
                                const Topology& topology) {
  std::map<std::string_view, int> members;
  for (const api::SlotPlacement& place : placement) {
    if (place.node.empty() || place.domain.empty()) return {};
    ++members[place.node];
  }
  std::vector<HostShare> hosts;
  for (std::size_t node = 0; node < topology.nodes.size(); ++node) {
    const auto at = members.find(topology.nodes[node]);
    if (at != members.end()) hosts.push_back({static_cast<int>(node), at->second});
  }
  return hosts.size() == members.size() ? hosts : std::vector<HostShare>();
}

}  // namespace

HeldSums held_sums(int logical_ranks, int members, int team) {
  return sums_of(divided(logical_ranks, members), team);
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

namespace {

/// Of buckets that all go two ways one after the other.
double in_turn(double one, double other, double buckets) {
  return std::max(one, other) + std::min(one, other) / buckets;
}

/// The two halves of an exchange, without what the first byte of each takes.
struct Halves {
  double scatter = 0, gather = 0;

  void at_least(const Halves& other) {
    scatter = std::max(scatter, other.scatter);
    gather = std::max(gather, other.gather);
  }
};

/// Who sends for itself, of a gang: its pods, or all their processes.
struct Senders {
  std::vector<HostShare> hosts;
  int count = 0;
  HeldSums sums;
  double even = 0;  ///< bytes that one adds up on the mean
  double more = 0;  ///< and so many more the one with the largest share
};

Senders senders_of(std::vector<HostShare> hosts, double bytes, const HeldSums& sums) {
  Senders senders{std::move(hosts), 0, sums};
  for (const HostShare& host : senders.hosts) senders.count += host.pods;
  senders.even = bytes / senders.count;
  senders.more = std::max(0.0, largest_share(bytes, senders.count) - senders.even);
  return senders;
}

/// Over the links between hosts.
Halves over_links(const StepModel& model, const Senders& senders) {
  Halves halves;
  const int n = senders.count;
  const HeldSums& sums = senders.sums;
  // To the one that holds the fewest, from each of the others on the mean.
  const double received = (sums.mean * n - sums.least) / (n - 1);
  const std::vector<Crossing>& crossings = model.crossings(senders.hosts);
  for (std::size_t i = 0; i < crossings.size(); ++i) {
    const Crossing& one = crossings[i];
    const double rate = rate_beside(model.use(one.link), one.flows, one.bytes_per_second);
    const double through = one.flows * senders.even;
    const bool is_card = i < senders.hosts.size();
    // The member with the largest share is sent it by all others, and gives it to all others.
    const double share = is_card ? (n - senders.hosts[i].pods) * senders.more : 0;
    const double out = through * (is_card ? sums.most : sums.mean);
    const double in = (through + share) * (is_card ? received : sums.mean);
    halves.at_least({std::max(out, in) / rate, (through + share) / rate});
  }
  return halves;
}

/// Of gradients with fewer blocks than members, each of which is on a host of its own. Absent: all
/// have blocks, or share hosts.
std::optional<double> of_few_blocks(const StepModel& model, const Senders& senders,
                                    const std::vector<int>& starts, double latency) {
  if (senders.hosts.size() != as_index(senders.count)) return std::nullopt;
  FewBlocks work{{}, model.work().gradient_bytes, 0, latency, model.work().compute_seconds};
  for (std::size_t member = 0; member < as_index(senders.count); ++member) {
    const bool is_holder = member + 1 < starts.size();
    work.sums.push_back(is_holder        ? subtrees(starts[member], starts[member + 1])
                        : starts.empty() ? 1
                                         : 0);
  }
  const std::vector<Crossing>& crossings = model.crossings(senders.hosts);
  double uplinks = 0;
  for (std::size_t i = 0; i < crossings.size(); ++i) {
    const Crossing& one = crossings[i];
    const double rate = rate_beside(model.use(one.link), one.flows, one.bytes_per_second);
    if (i >= senders.hosts.size()) {
      uplinks = std::max(uplinks, (1 + senders.sums.mean) * one.flows * senders.even / rate);
    } else if (i == 0 || rate < work.bytes_per_second) {
      work.bytes_per_second = rate;
    }
  }
  const auto step = few_blocks_seconds(work);
  if (!step) return std::nullopt;
  return std::max(2 * latency + uplinks, *step - work.compute_seconds);
}

/// Between those on one host who send for themselves, of so many processes each.
Halves beside_each_other(const Senders& senders, int processes, double local_rate) {
  Halves halves;
  for (const HostShare& host : senders.hosts) {
    const double local = (host.pods - 1) * senders.even / processes / local_rate;
    halves.at_least({local * senders.sums.mean, local});
  }
  return halves;
}

}  // namespace

StepTime forecast_step(const StepModel& model, const std::vector<HostShare>& hosts,
                       const ExchangeShape& shape) {
  const Topology& topology = model.topology();
  const double bytes = model.work().gradient_bytes;
  const double local_rate = topology.host.local_bytes_per_second;
  const int processes = std::max(1, shape.processes);
  int pods = 0;
  for (const HostShare& host : hosts) pods += host.pods;
  const bool is_by_hosts = pods > 1 && adds_up_by_hosts(bytes, processes);
  std::vector<HostShare> members = hosts;
  for (HostShare& host : members) host.pods *= is_by_hosts ? 1 : processes;
  StepTime time = model.predict(members);
  if (pods * processes <= 1) return time;
  const std::vector<int> starts = divided(shape.logical_ranks, pods * processes);
  const Senders senders =
      senders_of(std::move(members), bytes, sums_of(starts, is_by_hosts ? processes : 1));
  Halves halves = beside_each_other(senders, is_by_hosts ? processes : 1, local_rate);
  double latency = topology.host.local_latency_seconds;
  if (hosts.size() > 1) {
    const int first = topology.leaf_of_node[as_index(hosts.front().node)];
    const int last = topology.leaf_of_node[as_index(hosts.back().node)];
    latency = model.latency(topology.common_domain(first, last));
    halves.at_least(over_links(model, senders));
  }
  const double buckets = std::clamp(std::min<double>(std::ceil(bytes / kBucketBytes), shape.layers),
                                    1.0, static_cast<double>(kMostBuckets));
  if (is_by_hosts) {
    // A process sends all but the part that it adds up, or has been given, to the others of its
    // pod: before the wire's turn, and after it. While one bucket is on the wire another is here.
    const double within = bytes * (processes - 1) / processes / local_rate;
    const double sums = sums_of(starts, 1).mean;
    halves.scatter = in_turn(within * sums, halves.scatter, buckets);
    halves.gather = in_turn(within, halves.gather, buckets);
    latency += topology.host.local_latency_seconds;
  }
  time.load_seconds = (halves.scatter + halves.gather) / 2;
  time.exchange_seconds = 2 * latency + halves.scatter + halves.gather;
  if (hosts.size() > 1) {
    const auto overlapped = of_few_blocks(model, senders, starts, latency);
    time.exchange_seconds =
        std::min(time.exchange_seconds, overlapped.value_or(time.exchange_seconds));
  }
  // The first bucket goes out when its part of the backward pass is done, and the last one when all
  // of it is.
  const double beside = std::min(time.exchange_seconds, shape.backward_seconds);
  time.step_seconds = model.work().compute_seconds + time.exchange_seconds -
                      std::max(0.0, beside) * (1 - 1 / buckets);
  return time;
}

namespace {

/// By place in a copy, of the copy that takes longest, as far as they are told by who has a place
/// now. Who came while the others trained has another attempt than they.
std::vector<PartReport> parts_of(const api::TrainingJob& job, const ProgressReport& newest,
                                 const std::map<int, ProgressReport>& reports) {
  const int places = processes_of_copy(job), processes = std::max(1, job.spec.worker.processes);
  std::vector<PartReport> parts(as_index(places));
  const auto take = [&](const ProgressReport& report) {
    const bool is_told = report.slot >= 0 && report.parts.size() == as_index(processes);
    for (int process = 0; is_told && process < processes; ++process) {
      const std::int64_t number = std::int64_t{report.slot} * processes + process;
      const PartReport& told = report.parts[as_index(process)];
      PartReport& part = parts[static_cast<std::size_t>(number % places)];
      if (told.compute_seconds >= part.compute_seconds) part = told;
    }
  };
  for (const api::SlotPlacement& place : job.status.placement) {
    const auto at = reports.find(place.slot);
    if (at != reports.end() && at->second.attempt == place.attempt) take(at->second);
  }
  take(newest);
  return parts;
}

/// Their nodes by slot; empty: of some nothing is known, or copies are not whole.
std::vector<int> nodes_of_copies(const api::TrainingJob& job, const Topology& topology) {
  std::map<std::string_view, int> numbers;
  for (const HostShare& host : hosts_of(job.status.placement, topology)) {
    numbers[topology.nodes[as_index(host.node)]] = host.node;
  }
  std::map<int, int> by_slot;
  for (const api::SlotPlacement& place : job.status.placement) {
    const auto at = numbers.find(place.node);
    if (at == numbers.end()) return {};
    by_slot[place.slot] = at->second;
  }
  std::vector<int> slots, nodes;
  for (const auto& [slot, node] : by_slot) {
    slots.push_back(slot);
    nodes.push_back(node);
  }
  return waiting_for_their_copy(job, slots).empty() ? nodes : std::vector<int>();
}

std::optional<double> forecast_split(const api::TrainingJob& job, const ProgressReport& report,
                                     const std::map<int, ProgressReport>& reports,
                                     const Topology& topology) {
  SplitWork work{api::split_of(job), std::max(1, job.spec.worker.processes),
                 job.spec.training->logical_ranks, !job.spec.training->gradient_clipping.is_null(),
                 parts_of(job, report, reports)};
  return split_step_seconds(topology, work, nodes_of_copies(job, topology));
}

}  // namespace

std::optional<double> forecast_seconds(const api::TrainingJob& job, const ProgressReport& report,
                                       const std::map<int, ProgressReport>& reports,
                                       const Topology& topology) {
  if (!job.spec.training) return std::nullopt;
  if (processes_of_copy(job) > 1) return forecast_split(job, report, reports, topology);
  const bool is_told = report.step_seconds > 0 && std::isfinite(report.step_seconds) &&
                       std::isfinite(report.exchange_seconds) && report.model_parameters > 0;
  if (!is_told) return std::nullopt;
  const std::vector<HostShare> hosts = hosts_of(job.status.placement, topology);
  if (hosts.empty()) return std::nullopt;
  StepWork work;
  work.gradient_bytes = 4.0 * static_cast<double>(report.model_parameters);
  work.compute_seconds =
      std::max(0.0, report.step_seconds - std::max(0.0, report.exchange_seconds));
  const ExchangeShape shape{job.spec.training->logical_ranks, layers_of(job.spec.training->model),
                            kBackwardShare * work.compute_seconds,
                            std::max(1, job.spec.worker.processes)};
  return forecast_step(StepModel(topology, work), hosts, shape).step_seconds;
}

}  // namespace muster::core
