// What is free on every node, and the cluster as a tree where a gang asks for it. Changes as gangs
// are given places, or as if pods had left; whose turn it is, is decided elsewhere.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "operator/core/fragments.h"
#include "operator/core/schedule.h"

namespace muster::core {

struct NodeRoom {
  const api::Node* node = nullptr;
  ResourceAmounts free;  ///< below 0 where more was promised than there is
};

/// What one pod takes, {"pods", 1} included.
ResourceAmounts amounts_of(const api::Resources& resources);

/// How many workers fit into what is free. A node that does not say how many pods it takes, takes
/// any number.
std::int64_t workers_that_fit(const ResourceAmounts& free, const api::Resources& per_worker);
inline constexpr std::int64_t kManyWorkers = 1'000'000;

/// The most pods of one gang that a node may take, by its place in Rooms::all().
using NodeCaps = std::vector<std::int64_t>;

class Rooms {
 public:
  /// What its pods and promises leave free. What `cluster` points to and its gangs outlive it.
  explicit Rooms(const ClusterSnapshot& cluster);
  /// As if no pod were there.
  static Rooms without_pods(const ClusterSnapshot& cluster);
  /// Without the gangs that run: a copy is there to try what would fit.
  Rooms(const Rooms& other) : rooms_(other.rooms_), topology_(other.topology_) {}
  Rooms& operator=(const Rooms&) = delete;

  /// By the nodes' names; copies have the same order.
  std::vector<NodeRoom>& all() { return rooms_; }
  const std::vector<NodeRoom>& all() const { return rooms_; }

  void take(NodeRoom& room, const api::Resources& resources) { change(room, resources, -1); }
  void take(const std::string& node, const api::Resources& resources);
  void give_back(const std::string& node, const api::Resources& resources);

  /// Whether any node says in which domain of that level it stands.
  bool knows(const std::string& level);
  /// Whether it is known of any two nodes that they stand closer together than others.
  bool knows_network();
  /// What could not be used of what tells of the network; after knows().
  std::string passed_over() const;
  /// After knows() said yes.
  Inventory& inventory() { return *inventory_; }
  /// What the gangs send that run or have just been given places; nullptr: nobody meets anybody.
  /// After knows() said yes.
  const Traffic* traffic();
  /// Sizes of the gangs that run or wait, in GPUs of those that take any, in thousandths of
  /// processors of the others, and a pod in that unit.
  std::pair<const UsualSizes*, std::int64_t> usual_sizes(const api::Resources& per_worker);
  /// A gang of this pass has its places.
  void start(const WaitingGang& gang, const std::vector<std::string>& nodes);
  /// Nodes that stand in one domain of the level with one of these. After knows() said yes.
  std::set<std::string> beside(const std::set<std::string>& nodes, const std::string& level) const;
  /// By Rooms::all(), how far a node stands from the nearest of these, as the height of the domain
  /// that they have in common; all alike where nothing is known.
  std::vector<int> distances_from(const std::set<std::string>& nodes);
  /// Domain paths of the nodes of slots. After knows() said yes.
  std::vector<std::string> domains_of(const std::vector<std::string>& nodes) const;

 private:
  Rooms() = default;
  NodeRoom* find(const std::string& node);
  void add_nodes(const ClusterSnapshot& cluster);
  void change(NodeRoom& room, const api::Resources& resources, std::int64_t workers);
  std::vector<const api::Node*> nodes() const;
  void read_topology_once();
  void read_tree();
  SendingGang on_hosts(const RunningGang& gang) const;

  std::vector<NodeRoom> rooms_;
  std::shared_ptr<const Topology> topology_;
  bool was_read_ = false;
  std::optional<Inventory> inventory_;  ///< made when the first gang can make use of it
  std::span<const RunningGang> running_;
  std::span<const WaitingGang> waiting_;
  std::optional<UsualSizes> gpu_sizes_, cpu_sizes_;  ///< likewise
  std::vector<RunningGang> started_;                 ///< in this pass
  std::optional<Traffic> traffic_;                   ///< likewise
};

}  // namespace muster::core
