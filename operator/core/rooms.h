// What is free on every node, and the cluster as a tree, during one pass. Changes as gangs are
// given places, or as if pods had left; whose turn it is, is decided elsewhere. Nothing of it
// stays: a kept inventory is as it was before, when the pass is over.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/fragments.h"
#include "operator/core/pcie_use.h"
#include "operator/core/schedule.h"

namespace muster::core {

/// What one pod takes, {"pods", 1} included.
ResourceAmounts amounts_of(const api::PodRequests& requests);
ResourceAmounts amounts_of(const api::Resources& resources);

/// Where a pod takes what it asks for: bound, or pinned by us. Empty: nowhere; it has ended, or is
/// placed by the cluster's scheduler and not bound yet.
const std::string& node_of(const api::Pod& pod);

/// The gang on the hosts that the inventory knows, by its numbers.
SendingGang sending_gang(const RunningGang& gang, const Inventory& inventory);

/// What is free, made anew from all that the cluster has. What it points to outlives it.
Inventory inventory_of(const ClusterSnapshot& cluster);

inline constexpr std::int64_t kManyWorkers = 1'000'000;

/// The most pods of one gang that a node may take, by its number in the inventory.
using NodeCaps = std::vector<std::int64_t>;

class Rooms {
 public:
  /// What its pods and promises leave free: of its inventory where it has one, else made anew. What
  /// `cluster` points to and its gangs outlive it.
  explicit Rooms(const ClusterSnapshot& cluster);
  /// Without the gangs that run: a copy is there to try what would fit.
  Rooms(const Rooms& other) : own_(std::in_place, *other.inventory_), inventory_(&*own_) {}
  Rooms& operator=(const Rooms&) = delete;
  /// A copy as if no pod were there, and nothing kept pods off a node for a while.
  Rooms at_best() const;

  Inventory& inventory() { return *inventory_; }
  const Inventory& inventory() const { return *inventory_; }
  /// By node: how many workers fit into what is free. A node that does not say how many pods it
  /// takes, takes any number.
  std::vector<std::int64_t> fits(const api::Resources& per_worker) const {
    return inventory_->pods_free(amounts_of(per_worker), kManyWorkers);
  }

  void take(const std::vector<HostShare>& hosts, const api::Resources& per_pod);
  void take(const std::string& node, const api::Resources& resources);
  void give_back(const std::string& node, const api::Resources& resources);
  /// All that a gang was given.
  void give_back(const GangPlacement& placement, const api::Resources& per_worker);

  /// Whether any node says in which domain of that level it stands.
  bool knows(const std::string& level) const;
  /// Whether it is known of any two nodes that they stand closer together than others.
  bool knows_network() const;
  /// What could not be used of what tells of the network.
  std::string passed_over() const;
  /// What the gangs send that run or have just been given places; nullptr: nobody meets anybody.
  const Traffic* traffic();
  /// GPUs of a gang's pods below PCIe switches, with what those hold that run; after traffic(). It
  /// holds for as long as this.
  GangGpus gpus_of(const api::Resources& per_worker) const;
  /// Sizes of the gangs that run or wait, in GPUs of those that take any, in thousandths of
  /// processors of the others, and a pod in that unit.
  std::pair<const UsualSizes*, std::int64_t> usual_sizes(const api::Resources& per_worker);
  /// What gangs that run or have just been given places hold of a kind of GPU on a node.
  GpusByJob gpus_by_job(int node, const std::string& gpu_resource);
  /// What a gang heard that asked for what this one asks for, beside the same `caps`, and got
  /// nothing, if nothing has changed since; nullptr: there was none.
  const GangVerdict* refusal_of(const WaitingGang& gang, const NodeCaps* caps) const;
  /// The gang has just been refused.
  void keep_refusal(const WaitingGang& gang, const NodeCaps* caps, const GangVerdict& verdict);
  /// All that was taken since the inventory had this version has been given back: what was refused
  /// then is still refused.
  void keep_refusals_since(std::uint64_t version) {
    if (refused_at_ == version) refused_at_ = inventory_->version();
  }
  /// A gang of this pass has its places. Both stay where they are for as long as anything is asked
  /// here, for names are looked up only then.
  void start(const WaitingGang& gang, const std::vector<std::string>& nodes);
  /// Nodes that stand in one domain of the level with one of these.
  std::set<std::string> beside(const std::set<std::string>& nodes, const std::string& level) const;
  /// By node, how far it stands from the nearest of these, as the height of the domain that they
  /// have in common; all alike where nothing is known.
  std::vector<int> distances_from(const std::set<std::string>& nodes) const;
  /// Domain paths of the nodes of slots.
  std::vector<std::string> domains_of(const std::vector<std::string>& nodes) const;
  std::vector<std::string> domains_of(const std::vector<int>& nodes) const;

 private:
  struct Started {
    const WaitingGang* gang = nullptr;
    const std::vector<std::string>* nodes = nullptr;
  };
  struct Refusal {
    WaitingGang gang;
    std::optional<NodeCaps> caps;
    GangVerdict verdict;
  };

  const std::vector<const SendingGang*>& sending();

  std::optional<Inventory> own_;
  Inventory* inventory_ = nullptr;
  std::optional<Inventory::Trial> trial_;  ///< on one that is kept
  std::span<const WaitingGang> waiting_;
  std::optional<UsualSizes> gpu_sizes_, cpu_sizes_;  ///< made when first asked for
  std::vector<Started> started_;                     ///< in this pass
  /// Those that run, then these, as far as somebody has asked for them.
  std::vector<const SendingGang*> sending_;
  std::deque<SendingGang> own_sending_;  ///< of these what the snapshot does not hold
  std::size_t running_ = 0;              ///< of sending_
  std::size_t in_traffic_ = 0;           ///< likewise
  std::vector<Refusal> refusals_;        ///< of refused_at_
  std::uint64_t refused_at_ = 0;         ///< the inventory's version
  std::optional<PcieSeats> seats_;       ///< made when first asked for
  std::optional<Traffic> traffic_;       ///< likewise
};

}  // namespace muster::core
