// Placement by listing every one there is, and its goals counted by hand: gang by gang and link by
// link, without anything of placement.cpp, traffic.cpp and what step_time.cpp predicts. For
// clusters small enough. Used by tests and by tests/bench/optimality_bench.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "operator/core/inventory.h"
#include "operator/core/step_time.h"
#include "operator/core/traffic.h"

namespace muster::test {

/// What place_gang promises to be least first: height of the lowest domain that holds all, its
/// branches, leaf domains.
using Rank = std::tuple<int, int, int>;

struct Judged {
  Rank rank;
  int domain = 0;
};

/// Counted on the placement itself. The lowest domain is that which was free to hold all.
Judged judge(const core::Topology& topology, const std::vector<core::HostShare>& hosts);

/// The prediction once more, domain by domain, as if nobody else sent.
double seconds_by_hand(const core::Topology& topology, const core::StepModel& model, int common,
                       const std::vector<core::HostShare>& hosts);

/// Whether the domain is of one of these levels or lies in one that is. No levels: it does.
bool lies_within(const core::Topology& topology, int domain, const std::vector<int>& levels);

/// What a gang sends, by what is told of it.
struct SenderByHand {
  std::map<int, double> flows;  ///< pairs of pods by link, as StepModel numbers these
  int number = -1;              ///< -1: the one to be placed
  int pods = 0;
  double bytes = 0;  ///< a pair of pods, one way
  double local = 0, latency = 0, step = 0, duty = 0;
};

/// What place_gang promises to be least after the rank.
class CostByHand {
 public:
  struct Costs {
    double exchange_seconds = 0, others = 0, all = 0;
  };

  CostByHand(const core::Topology& topology, const core::StepModel& alone,
             std::vector<core::SendingGang> others);

  /// By the lowest domain that holds all.
  Costs of(int common, const std::vector<core::HostShare>& hosts) const;
  const std::vector<SenderByHand>& senders() const { return senders_; }
  double capacity(int link) const;

 private:
  double exchange(const SenderByHand& one, const std::vector<SenderByHand>& all) const;

  const core::Topology& topology_;
  const core::StepModel& alone_;
  std::vector<SenderByHand> senders_;
};

/// The room of which gangs of the usual sizes lose the use, and what is left in the leaf domains.
struct RoomByHand {
  double lost = 0;
  int left = 0;
};
RoomByHand room_by_hand(const core::Topology& topology, const core::Room& room,
                        const std::vector<core::HostShare>& hosts,
                        const std::vector<std::int64_t>& usual, std::int64_t pod_size);

/// All goals of place_gang, in its order.
struct Goals {
  Rank rank;
  double cost = 0;
  int hosts = 0;
  double lost = 0;  ///< pods
  int left = 0;
};

/// The first goal in which two differ; costs and room within rounding are equal.
enum class Goal { kNone, kRank, kCost, kHosts, kLost, kLeft };
struct Comparison {
  Goal first = Goal::kNone;
  bool is_better = false;  ///< the first of the two
};
Comparison compare_goals(const Goals& one, const Goals& other);

/// Every placement there is within the levels, and the best of them. Hosts of one leaf that are
/// alike in room and in what others have there are tried in one order only.
class EveryPlacement {
 public:
  using Listener = std::function<void(const Judged&, const std::vector<core::HostShare>&)>;
  EveryPlacement(const core::Topology& topology, const core::Room& room, std::vector<int> levels,
                 const std::vector<core::SendingGang>& others = {});

  void run(int pods, const Listener& listener);
  /// How many that would be, in any levels.
  double count(int pods) const;

 private:
  void deal(std::size_t node, int left, const Listener& listener);

  const core::Topology& topology_;
  const core::Room& room_;
  std::vector<int> levels_;
  std::vector<int> twin_;   ///< the last host before it that is alike, or -1
  std::vector<int> rest_;   ///< room on it and all after it
  std::vector<int> dealt_;  ///< by host
  std::vector<core::HostShare> hosts_;
};

}  // namespace muster::test
