#include "worker/engine/speeds.h"

#include <algorithm>
#include <cmath>
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

double longest_compute(const Assignment& assignment, Work work, std::span<const Speed> speeds) {
  double longest = 0;
  for (std::size_t p = 0; p < speeds.size(); ++p) {
    longest =
        std::max(longest, static_cast<double>(speeds[p].work_ns) * work.of(assignment.nodes[p]));
  }
  return longest;
}

/// What the process with most of it sends or is sent, in shares of the gradient: its own nodes to
/// the others or theirs to it, then what was added up.
double busiest_wire(const Assignment& assignment) {
  double all = 0, most = 0;
  for (const auto& nodes : assignment.nodes) all += static_cast<double>(nodes.size());
  const double others = assignment.processes() - 1;
  for (const auto& nodes : assignment.nodes) {
    const auto own = static_cast<double>(nodes.size());
    most = std::max({most, own * others, all - own});
  }
  return most + others;
}

/// Who comes late to the exchange waits least in it.
double shortest_exchange(std::span<const Speed> speeds) {
  return static_cast<double>(
      std::ranges::min_element(speeds, {}, &Speed::exchange_ns)->exchange_ns);
}

/// Logical ranks that each can compute in that time, 1 at least, and not too many more than now.
std::vector<int> most_within(double nanoseconds, const Assignment& present, Work work,
                             std::span<const Speed> speeds) {
  std::vector<int> most;
  for (std::size_t p = 0; p < speeds.size(); ++p) {
    const double ranks = work.ranks_within(nanoseconds / static_cast<double>(speeds[p].work_ns));
    const double more = kTimesMore * count_ranks(present.nodes[p]);
    const double limit = std::min<double>(present.logical_ranks, more);
    most.push_back(static_cast<int>(std::clamp(ranks, 1.0, limit)));
  }
  return most;
}

/// The shortest time in which they can compute all logical ranks, within a thousandth.
double shortest_compute(const Assignment& present, Work work, std::span<const Speed> speeds) {
  const auto is_enough = [&](double nanoseconds) {
    const auto most = most_within(nanoseconds, present, work, speeds);
    return std::accumulate(most.begin(), most.end(), std::int64_t{0}) >= present.logical_ranks;
  };
  double too_short = 0, enough = longest_compute(present, work, speeds);
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

void SpeedBook::add(double compute_seconds, double exchange_seconds, double work) {
  if (!(work > 0)) return;
  steps_.push_back({nanoseconds_of(compute_seconds / work), nanoseconds_of(exchange_seconds)});
  if (steps_.size() > kSpeedSteps) steps_.pop_front();
}

Speed SpeedBook::usual() const {
  if (steps_.size() < kSpeedSteps) return {};
  return {median(steps_, [](const Speed& one) { return one.work_ns; }),
          median(steps_, [](const Speed& one) { return one.exchange_ns; })};
}

int steps_to_look(const Assignment& present, Work work, std::span<const Speed> speeds, int least) {
  if (!std::ranges::all_of(speeds, has_told)) return least;
  const double step = (longest_compute(present, work, speeds) + shortest_exchange(speeds)) * 1e-9;
  const double steps = std::ceil(kLookSeconds * least / std::max(step, 1e-9));
  return static_cast<int>(std::clamp<double>(steps, least, kLookTimesMost * least));
}

std::optional<Assignment> faster_division(const Assignment& present, Work work,
                                          std::span<const Speed> speeds) {
  MUSTER_CHECK(std::ssize(speeds) == present.processes());
  if (!can_be_tried(present, speeds)) return std::nullopt;
  const double exchange = shortest_exchange(speeds), wire = busiest_wire(present);
  const auto whole = [&](const Assignment& one) {
    return longest_compute(one, work, speeds) + exchange * busiest_wire(one) / wire;
  };
  const double now = whole(present), longest = longest_compute(present, work, speeds);
  const double shortest = shortest_compute(present, work, speeds) * (1 + kNoise);
  double best = std::min(now * (1 - kShorterBy), now - kShorterByNs);
  std::optional<Assignment> found;
  for (int i = 0; i < kTries && shortest < longest; ++i) {
    const double within = shortest + (longest - shortest) * i / kTries;
    auto division =
        assign_within(present.logical_ranks, most_within(within, present, work, speeds));
    MUSTER_CHECK(division.has_value());
    const double takes = whole(*division);
    if (takes > best || (found && takes == best)) continue;
    best = takes;
    found = *std::move(division);
  }
  return found;
}

}  // namespace muster::engine
