// The inner part of place_gang: pods of one gang dealt to leaf domains and hosts so that no link is
// busy for longer than a bound. All within one domain whose branches have been chosen.
#pragma once

#include <optional>
#include <vector>

#include "operator/core/inventory.h"
#include "operator/core/placement.h"
#include "operator/core/step_time.h"
#include "operator/core/traffic.h"

namespace muster::core {

/// A leaf domain that may be used.
struct LeafRoom {
  int domain = 0;
  int branch = 0;  ///< index in FillProblem::branches
  int first_node = 0, nodes = 0;
  int room = 0;
  double uplink = 0;       ///< bytes a second; 0 = it is the whole domain, so nothing leaves it
  int most = 0;            ///< of `room` on one of its nodes
  bool is_shared = false;  ///< others use the card of one of these
};

/// One between the domain and its leaves.
struct BranchLink {
  int domain = 0;
  double uplink = 0;  ///< bytes a second; 0 = the branch is a leaf itself
};

struct FillProblem {
  int domain = 0;
  int pods = 0;
  int leaves_wanted = 1;  ///< that many leaves hold all pods, and fewer do not
  std::vector<BranchLink> branches;
  std::vector<LeafRoom> leaves;  ///< by domain
};

/// What is let off the bound: the one place that holds more than half of the pods, from which less
/// goes out the fuller it is. -1 = none.
struct BigPlace {
  int branch = -1, leaf = -1, node = -1;
};

struct Filling {
  std::vector<HostShare> hosts;  ///< ascending
  StepTime time;
  double cost = 0;    ///< see place_gang
  double lost = 0;    ///< room, in pods, that gangs of the usual sizes cannot use then
  int room_left = 0;  ///< of its leaves
};

/// Fills in the cost of its hosts and time, and tells what of it is the others'. `traffic` is what
/// the model's others are from; nullptr: nobody else sends.
Slowdown judge_cost(Filling& filling, const StepModel& model, const PlacementWish& wish,
                    const Traffic* traffic);

class Filler {
 public:
  /// `traffic` is what the model's others are from; nullptr: nobody else sends. The wish outlives
  /// this.
  Filler(const StepModel& model, const Room& room, const Traffic* traffic,
         const PlacementWish& wish)
      : model_(model), room_(room), traffic_(traffic), wish_(wish) {}

  /// The filling with the fewest hosts that the bound on the seconds of one exchange leaves room
  /// for, on links that others use less where that is all the same; nothing when it leaves none. A
  /// big place may bring it over the bound: see its time.
  std::optional<Filling> fill(const FillProblem& problem, double bound_seconds,
                              const BigPlace& big);
  /// Room of a leaf, in pods, that gangs of the usual sizes cannot use when so many stand there,
  /// and could before; below 0: they can use more of what is left.
  double lost_by(const LeafRoom& leaf, int pods) const;

 private:
  struct Pick {
    int leaf = 0;
    int pods = 0;     ///< that the bound allows it
    double busy = 0;  ///< what others use of its links
  };
  int host_cap(const FillProblem& problem, int link, int pods) const;
  int local_cap(const FillProblem& problem, double bound) const;
  int leaf_cap(const FillProblem& problem, double bound, int leaf, const BigPlace& big) const;
  bool choose_leaves(const FillProblem& problem, double bound, const BigPlace& big);
  bool is_beside(const FillProblem& problem, int leaf, int other) const;
  double busy(const LeafRoom& leaf) const;
  void prefer_quiet(const FillProblem& problem);
  void tighten_last(const FillProblem& problem);
  void fill_leaf(const FillProblem& problem, const LeafRoom& leaf, int pods, int big_node,
                 std::vector<HostShare>& out);
  bool minds_switches() const;
  int allowed_on(const FillProblem& problem, int node, int big_node) const;
  int with_own_switch(int node, std::size_t index, int pods) const;

  const StepModel& model_;
  const Room& room_;
  const Traffic* traffic_;
  const PlacementWish& wish_;
  double bound_ = 0;
  int host_cap_ = 0;     ///< of a host whose card nobody else uses
  int first_card_ = -1;  ///< link of node 0; -1: hosts have links of their own to each other
  double card_rate_ = 0;
  int local_cap_ = 0;
  std::vector<Pick> picks_, spare_;
  std::vector<HostShare> order_;
};

}  // namespace muster::core
