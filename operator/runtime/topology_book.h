// What the loop knows of objects that tell how the network is built: our own TopologyConfig, and
// those of Kueue, KAI and Volcano where the cluster has them. The rules are in
// operator/core/topology_sources.h.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "operator/core/kept_inventory.h"
#include "operator/core/topology_sources.h"
#include "operator/kube/store.h"

namespace muster::runtime {

/// An object as it was read: which of them can be used is decided with all nodes at hand.
struct TopologyRecord {
  api::ObjectMeta meta;
  Json object;
  bool operator==(const TopologyRecord&) const = default;
};

/// Threads: one.
class TopologyBook {
 public:
  static constexpr std::array kKinds{api::Kind::kTopologyConfig, api::Kind::kKueueTopology,
                                     api::Kind::kKaiTopology, api::Kind::kHyperNode};
  static bool knows(api::Kind kind);

  TopologyBook();

  /// Whether what was seen changes anything for jobs.
  bool take(const kube::WatchEvent& event, api::Kind kind);
  /// Whether all of them have been listed, or are known not to be there.
  bool synced() const;
  /// The nodes are others now, or say something else of themselves.
  void take_nodes() { is_old_ = true; }
  /// Where these nodes stand, by all that was taken; nullptr: there are too many of them. The same
  /// object for as long as nothing else comes of what they say.
  const std::shared_ptr<const core::Topology>& topology(const core::KeptInventory& nodes);

 private:
  kube::Store<TopologyRecord>& store_of(api::Kind kind);

  kube::Store<TopologyRecord> configs_, kueue_, kai_, hyper_nodes_;
  std::shared_ptr<const core::Topology> topology_;
  bool is_old_ = true;
};

}  // namespace muster::runtime
