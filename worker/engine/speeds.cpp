#include "worker/engine/speeds.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/check.h"

namespace muster::engine {
namespace {

/// Of each of the fewest steps between two looks: 2 s of 16.
constexpr double kLookSeconds = 0.125;
constexpr int kLookTimesMost = 16;
/// Of each parameter 12 bytes go by (it is read for a product and for the gradient of what comes
/// in, its own gradient is written), and each product with it is 6 operations in the end: with some
/// five operations of a core to each byte that it reads, so many products take as long.
constexpr double kProductsOfParameter = 10;
/// For each parameter: what its update reads and writes, for SGD and AdamW 20 and 28; a gradient
/// that is copied to another process or from it; one that is added, or the sum.
constexpr double kBytesUpdated = 24, kBytesMoved = 8, kBytesAdded = 4;
/// Less is not worth a change.
constexpr double kShorterBy = 0.1, kShorterByNs = 2e6;
/// What is measured is no more exact than that, so that fewer nodes are worth as much.
constexpr double kNoise = 0.02;
/// What a few logical ranks take says little of what many would.
constexpr int kTimesMore = 4;
/// Divisions that are compared, the one with the shortest computing among them.
constexpr int kTries = 5;
/// The search for one of them takes some 2 L^2 steps.
constexpr int kMostLogicalRanks = 1024;

template <typename Of>
std::uint64_t median(const std::deque<Speed>& steps, Of of) {
  std::vector<std::uint64_t> values;
  for (const Speed& one : steps) values.push_back(of(one));
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::uint64_t nanoseconds_of(double seconds) {
  return static_cast<std::uint64_t>(std::clamp(seconds, 0.0, 1e6) * 1e9);
}

/// What one process does in the exchange, or what goes over one host's wire, in gradients of the
/// whole model.
struct Part {
  double nodes_sent = 0, nodes_received = 0;
  double sums_sent = 0, sums_received = 0;
  double added = 0;  ///< read and written
};

/// Of those who have so many nodes of the sum, and add up what their weights say.
std::vector<Part> parts_among(const std::vector<double>& nodes,
                              const std::vector<double>& weights) {
  const double all = std::accumulate(nodes.begin(), nodes.end(), 0.0);
  const double whole = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto others = static_cast<double>(nodes.size()) - 1;
  std::vector<Part> parts;
  for (std::size_t p = 0; p < nodes.size(); ++p) {
    const double share = weights[p] / whole;
    parts.push_back({nodes[p] * (1 - share), (all - nodes[p]) * share, others * share, 1 - share,
                     (all + 1) * share});
  }
  return parts;
}

/// By rank.
std::vector<Part> parts_of(const Division& division) {
  std::vector<double> nodes;
  for (const auto& own : division.assignment.nodes)
    nodes.push_back(static_cast<double>(own.size()));
  return parts_among(nodes, {division.weights.begin(), division.weights.end()});
}

/// Who sends over a wire together: by host how many nodes of the sum leave it, and who is on it. By
/// process where none share a host.
struct Senders {
  std::vector<double> nodes;
  std::vector<std::vector<int>> members;
};

Senders senders_of(const Assignment& assignment, const Hosts& hosts) {
  Senders senders;
  if (!hosts.is_any_shared()) {
    for (int p = 0; p < assignment.processes(); ++p) {
      const auto& own = assignment.nodes[static_cast<std::size_t>(p)];
      senders.nodes.push_back(static_cast<double>(own.size()));
      senders.members.push_back({p});
    }
    return senders;
  }
  senders.members = hosts.members();
  senders.nodes.assign(senders.members.size(), 0);
  std::vector<std::size_t> host_of(static_cast<std::size_t>(assignment.processes()));
  for (std::size_t host = 0; host < senders.members.size(); ++host) {
    for (const int one : senders.members[host]) host_of[static_cast<std::size_t>(one)] = host;
  }
  for (const HostNode& node : host_nodes(assignment, hosts)) {
    ++senders.nodes[host_of[static_cast<std::size_t>(node.holders[0])]];
  }
  return senders;
}

/// What a process does alone for the sums: bytes that it reads and writes, as those of its update.
double for_sums(const Part& part, const Speed& speed) {
  const double moved = part.nodes_sent + part.nodes_received + part.sums_sent + part.sums_received;
  const double bytes = kBytesMoved * moved + kBytesAdded * part.added;
  return static_cast<double>(speed.update_ns) * bytes / kBytesUpdated;
}

/// The same where it adds up nothing: its gradient goes, and the sum comes.
double least_for_sums(const Speed& speed) { return for_sums({1, 0, 0, 1, 0}, speed); }

double computing(const Assignment& assignment, Work work, std::span<const Speed> speeds,
                 std::size_t p) {
  return static_cast<double>(speeds[p].work_ns) * work.of(assignment.nodes[p]);
}

/// What each does alone in a step.
std::vector<double> alone(const Division& division, const std::vector<Part>& parts, Work work,
                          std::span<const Speed> speeds) {
  std::vector<double> times;
  for (std::size_t p = 0; p < speeds.size(); ++p) {
    times.push_back(computing(division.assignment, work, speeds, p) +
                    static_cast<double>(speeds[p].update_ns) + for_sums(parts[p], speeds[p]));
  }
  return times;
}

/// What the host with most of it sends or is sent, of nodes and then of what was added up.
double busiest_wire(const Senders& senders, std::span<const std::uint8_t> weights) {
  std::vector<double> together;
  for (const auto& members : senders.members) {
    double weight = 0;
    for (const int one : members) weight += weights[static_cast<std::size_t>(one)];
    together.push_back(weight);
  }
  double nodes = 0, sums = 0;
  for (const Part& part : parts_among(senders.nodes, together)) {
    nodes = std::max({nodes, part.nodes_sent, part.nodes_received});
    sums = std::max({sums, part.sums_sent, part.sums_received});
  }
  return nodes + sums;
}

/// Beside what each does alone. Who comes late to the exchange waits least in it.
double shortest_exchange(const std::vector<Part>& parts, std::span<const Speed> speeds) {
  double shortest = std::numeric_limits<double>::max();
  for (std::size_t p = 0; p < speeds.size(); ++p) {
    const double beside =
        static_cast<double>(speeds[p].exchange_ns) - for_sums(parts[p], speeds[p]);
    shortest = std::min(shortest, std::max(0.0, beside));
  }
  return shortest;
}

/// How long steps take, by what the processes have told of those with the present division.
class Forecast {
 public:
  Forecast(const Division& present, Work work, std::span<const Speed> speeds, const Hosts& hosts)
      : work_(work), speeds_(speeds), hosts_(hosts) {
    const double wire = busiest_wire(senders(present.assignment), present.weights);
    if (wire > 0) exchange_of_wire_ = shortest_exchange(parts_of(present), speeds) / wire;
  }

  Senders senders(const Assignment& assignment) const { return senders_of(assignment, hosts_); }

  struct Step {
    double whole = 0;
    std::size_t slowest = 0;  ///< who does most alone
  };
  Step of(const Division& division) const { return of(division, senders(division.assignment)); }
  /// `senders`: of its assignment.
  Step of(const Division& division, const Senders& senders) const {
    const std::vector<Part> parts = parts_of(division);
    const std::vector<double> times = alone(division, parts, work_, speeds_);
    const auto most = std::ranges::max_element(times);
    return {*most + exchange_of_wire_ * busiest_wire(senders, division.weights),
            static_cast<std::size_t>(most - times.begin())};
  }

 private:
  Work work_;
  std::span<const Speed> speeds_;
  const Hosts& hosts_;
  double exchange_of_wire_ = 0;
};

/// From even parts of the sum on, who does most adds up less, as long as steps become shorter.
Division with_sums_moved(Assignment assignment, const Forecast& forecast) {
  const auto processes = static_cast<std::size_t>(assignment.processes());
  Division best{std::move(assignment), std::vector<std::uint8_t>(processes, kWeightMost)};
  const Senders senders = forecast.senders(best.assignment);
  auto step = forecast.of(best, senders);
  while (best.weights[step.slowest] > 1) {
    --best.weights[step.slowest];
    const auto less = forecast.of(best, senders);
    if (less.whole >= step.whole) {
      ++best.weights[step.slowest];
      break;
    }
    step = less;
  }
  return best;
}

/// What a process does alone in each step, whatever is given to others.
double fixed_part(const Speed& speed) {
  return static_cast<double>(speed.update_ns) + least_for_sums(speed);
}

/// What of that and of logical ranks the slowest does.
double longest_least(const Assignment& assignment, Work work, std::span<const Speed> speeds) {
  double longest = 0;
  for (std::size_t p = 0; p < speeds.size(); ++p) {
    longest = std::max(longest, computing(assignment, work, speeds, p) + fixed_part(speeds[p]));
  }
  return longest;
}

/// Logical ranks that each can compute in that time, 1 at least, and not too many more than now.
std::vector<int> most_within(double nanoseconds, const Assignment& present, Work work,
                             std::span<const Speed> speeds) {
  std::vector<int> most;
  for (std::size_t p = 0; p < speeds.size(); ++p) {
    const double computes = nanoseconds - fixed_part(speeds[p]);
    const double ranks = work.ranks_within(computes / static_cast<double>(speeds[p].work_ns));
    const double more = kTimesMore * count_ranks(present.nodes[p]);
    const double limit = std::min<double>(present.logical_ranks, more);
    most.push_back(static_cast<int>(std::clamp(ranks, 1.0, limit)));
  }
  return most;
}

/// The shortest time in which they can do that, within a thousandth.
double shortest_least(const Assignment& present, Work work, std::span<const Speed> speeds) {
  const auto is_enough = [&](double nanoseconds) {
    const auto most = most_within(nanoseconds, present, work, speeds);
    return std::accumulate(most.begin(), most.end(), std::int64_t{0}) >= present.logical_ranks;
  };
  double too_short = 0, enough = longest_least(present, work, speeds);
  while (enough - too_short > enough / 1000) {
    const double middle = (too_short + enough) / 2;
    (is_enough(middle) ? enough : too_short) = middle;
  }
  return enough;
}

bool has_told(const Speed& one) { return one.work_ns > 0; }

bool can_be_tried(const Assignment& present, std::span<const Speed> speeds) {
  if (present.processes() < 2 || present.logical_ranks > kMostLogicalRanks) return false;
  return std::ranges::all_of(speeds, has_told) &&
         std::ranges::none_of(present.nodes, [](const auto& nodes) { return nodes.empty(); });
}

}  // namespace

Work::Work(double products) : fixed_(kProductsOfParameter / products) {}

double Work::of(const std::vector<RankRange>& nodes) const {
  if (nodes.empty()) return 0;
  return count_ranks(nodes) + fixed_ * static_cast<double>(1 + nodes.size()) / 2;
}

void SpeedBook::add(const StepSeconds& seconds, double work) {
  if (!(work > 0)) return;
  steps_.push_back({nanoseconds_of(seconds.compute / work), nanoseconds_of(seconds.exchange),
                    nanoseconds_of(seconds.update)});
  if (steps_.size() > kSpeedSteps) steps_.pop_front();
}

Speed SpeedBook::usual() const {
  if (steps_.size() < kSpeedSteps) return {};
  return {median(steps_, [](const Speed& one) { return one.work_ns; }),
          median(steps_, [](const Speed& one) { return one.exchange_ns; }),
          median(steps_, [](const Speed& one) { return one.update_ns; })};
}

int steps_to_look(const Division& present, Work work, std::span<const Speed> speeds, int least,
                  const Hosts& hosts) {
  if (!std::ranges::all_of(speeds, has_told)) return least;
  const double step = Forecast(present, work, speeds, hosts).of(present).whole * 1e-9;
  const double steps = std::ceil(kLookSeconds * least / std::max(step, 1e-9));
  return static_cast<int>(std::clamp<double>(steps, least, kLookTimesMost * least));
}

std::optional<Division> faster_division(const Division& present, Work work,
                                        std::span<const Speed> speeds, Movable movable,
                                        const Hosts& hosts) {
  MUSTER_CHECK(std::ssize(speeds) == present.assignment.processes());
  MUSTER_CHECK(speeds.size() == present.weights.size());
  if (!can_be_tried(present.assignment, speeds)) return std::nullopt;
  const Forecast forecast(present, work, speeds, hosts);
  const double now = forecast.of(present).whole;
  double best = std::min(now * (1 - kShorterBy), now - kShorterByNs);
  std::optional<Division> found;
  const auto try_out = [&](Assignment assignment) {
    Division division = movable == Movable::kRanksAndSums
                            ? with_sums_moved(std::move(assignment), forecast)
                            : Division{std::move(assignment), present.weights};
    const double takes = forecast.of(division).whole;
    if (takes > best || (found && takes == best)) return;
    best = takes;
    found = std::move(division);
  };
  const double longest = longest_least(present.assignment, work, speeds);
  const double shortest = shortest_least(present.assignment, work, speeds) * (1 + kNoise);
  for (int i = 0; i < kTries && shortest < longest; ++i) {
    const double within = shortest + (longest - shortest) * i / kTries;
    auto division = assign_within(present.assignment.logical_ranks,
                                  most_within(within, present.assignment, work, speeds));
    MUSTER_CHECK(division.has_value());
    try_out(*std::move(division));
  }
  if (movable == Movable::kRanksAndSums) try_out(present.assignment);
  return found;
}

}  // namespace muster::engine
