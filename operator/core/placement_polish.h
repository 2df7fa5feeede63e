// The last part of place_gang: what a bound on all links at once does not see. Pods of a placement
// are moved, some from one host to another or those of a leaf domain to another one, as long as
// that makes it better. What better is, and for how long it is tried, the caller says.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "operator/core/inventory.h"
#include "operator/core/step_time.h"
#include "operator/core/topology.h"

namespace muster::core {

enum class Tried { kNoBetter, kBetter, kEnough };

/// Threads: one at a time.
class Polisher {
 public:
  /// Given hosts ascending; kBetter: they are what is changed next.
  using Try = std::function<Tried(const std::vector<HostShare>& hosts)>;

  /// Pods stay within `domain`, in as many of its branches and leaf domains as when it begins.
  Polisher(const Topology& topology, const Room& room, int domain);

  /// Ends when no change makes it better, or with kEnough.
  void improve(const std::vector<HostShare>& hosts, const Try& is_better);

 private:
  void look(std::vector<HostShare> hosts);
  void shift_pods();
  void shift_from(HostShare from);
  void swap_leaves();
  void swap_leaf(int leaf, int other, int pods);
  int leaf_of(const HostShare& host) const { return topology_.leaf_of_node[as_index(host.node)]; }
  int branch_of(int leaf) const;
  std::map<int, int> used() const;
  std::vector<HostShare> spare(const std::map<int, int>& used) const;

  const Topology& topology_;
  const Room& room_;
  int domain_;
  const Try* try_ = nullptr;
  Tried tried_ = Tried::kNoBetter;
  std::vector<HostShare> hosts_;  ///< the best so far
};

}  // namespace muster::core
