// What the loop knows of objects that tell how the network is built: our own TopologyConfig, and
// those of Kueue, KAI and Volcano where the cluster has them. The rules are in
// operator/core/topology_sources.h.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/kept_inventory.h"
#include "operator/core/topology_sources.h"
#include "operator/kube/store.h"
#include "operator/runtime/list_wait.h"

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

  explicit TopologyBook(MonoTime now);

  /// Whether what was seen changes anything for jobs.
  bool take(const kube::WatchEvent& event, api::Kind kind);
  /// Whether all of them have been listed, or are known not to be there.
  bool synced() const;
  /// Why a job that asks for topology has no place although it may fit: what is not listed yet.
  /// Empty for a while, too, in which nothing need be said.
  std::string why_unknown(MonoTime now) const;
  /// Once: whether that has begun.
  bool turned_unknown(MonoTime now) { return !synced() && wait_.turned_over(now); }
  /// When that is to be asked; absent: not before something changes.
  std::optional<MonoTime> due() const { return synced() ? std::nullopt : wait_.due(); }
  /// The nodes are others now, or say something else of themselves.
  void take_nodes() { is_old_ = true; }
  /// Where these nodes stand, by all that was taken; nullptr: there are too many of them. The same
  /// object for as long as nothing else comes of what they say.
  const std::shared_ptr<const core::Topology>& topology(const core::KeptInventory& nodes);

 private:
  std::map<api::Kind, kube::Store<TopologyRecord>> stores_;  ///< one for each of kKinds
  ListWait wait_;
  std::optional<core::TopologyReader> reader_;  ///< of all that was taken; absent: it is old
  std::shared_ptr<const core::Topology> topology_;
  bool is_old_ = true;
};

}  // namespace muster::runtime
