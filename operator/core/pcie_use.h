// Whether pods of different jobs must meet below one PCIe switch of a node, and whether those of
// one gang must send between its NUMA nodes. Which GPUs a pod has only the kubelet knows, so this
// counts: it says what no choice of GPUs can avoid, and nothing of what happens by chance.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "operator/api/object_meta.h"
#include "operator/core/inventory.h"
#include "operator/core/step_time.h"

namespace muster::core {

/// GPUs by the jobs that hold them.
using GpusByJob = std::map<api::ObjectKey, std::int64_t>;
/// On a node, by its number. What it leaves out is held by nobody who can be named.
using HoldersOn = std::function<GpusByJob(int node)>;

/// For pods that ask for these resources. Holds for as long as the inventory, and follows it.
class PcieUse {
 public:
  PcieUse(const Inventory& inventory, const api::Resources& per_worker)
      : inventory_(inventory),
        per_worker_(per_worker),
        number_(inventory.resource_index(per_worker.gpu_resource)) {}

  /// Whether so many pods more on this node leave no way for them to have switches of their own.
  /// Not where nothing is known of the node's switches, or of all GPUs that it offers.
  bool must_share(int node, int pods) const;
  /// Whether so many pods of one gang, several, have more GPUs than any NUMA node of this node, and
  /// no other links between these. Not where nothing is known of them.
  bool must_cross(int node, int pods) const;
  /// The less of this, the better: 0, if neither must be. Sharing is the worse, for it takes two.
  int burden(int node, int pods) const {
    return (must_share(node, pods) ? 2 : 0) + (must_cross(node, pods) ? 1 : 0);
  }

  /// The hosts where they must share, each with a sentence that names whom these pods meet: three
  /// hosts, and three jobs on each, at most. Then in one sentence those where they must cross.
  /// Empty: it is so nowhere.
  std::string why(const std::vector<HostShare>& hosts, const HoldersOn& holders) const;

 private:
  std::string why_crossed(const std::vector<HostShare>& hosts) const;

  const Inventory& inventory_;
  const api::Resources& per_worker_;
  const int number_;  ///< of the GPUs, in the inventory
};

}  // namespace muster::core
