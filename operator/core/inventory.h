// What is free where: amounts of every resource in one array each, nodes along the topology's tree,
// and for each shape of pod that was asked for how many fit on each node and in each domain. An
// event (a pod comes or goes, a node changes) costs the depth of the tree for every such shape,
// never a recount. Nothing here chooses.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "operator/api/pod.h"
#include "operator/core/topology.h"

namespace muster::core {

/// More pods of one gang than this are not counted on a node.
inline constexpr int kMaxPodsCounted = 4096;
inline constexpr std::size_t kMaxShapes = 64;

/// Amounts by resource: cpu in thousandths, memory in bytes, everything else counted. A pod's has
/// {"pods", 1}.
using ResourceAmounts = std::map<std::string, std::int64_t>;

struct NodeToleration {
  std::string key, op = "Equal", value, effect;
  auto operator<=>(const NodeToleration&) const = default;
};
/// Kubernetes' rule: without an effect every effect, `Exists` without a key every taint.
bool tolerates_taint(const std::vector<NodeToleration>& tolerations, const api::Node::Taint& taint);

/// What a pod asks for, and where it may stand.
struct PodShape {
  ResourceAmounts requests;
  std::map<std::string, std::string> node_selector;
  std::vector<NodeToleration> tolerations;
  std::optional<std::set<std::string>> only_nodes;  ///< e.g. those that reach its volumes
  std::set<std::string> avoid_nodes;
  auto operator<=>(const PodShape&) const = default;
};

/// Why nodes do not count.
enum class NodeRefusal { kNone, kNotReady, kCordoned, kTainted, kSelector, kLimited, kAvoided };
inline constexpr std::size_t kNodeRefusals = 7;

/// How many pods of one shape fit: by node and by domain, in the topology's numbering. `refused` is
/// by NodeRefusal.
struct Room {
  std::vector<int> on_node, in_domain;
  std::array<int, kNodeRefusals> refused{};
  bool operator==(const Room&) const = default;
};

class Inventory {
 public:
  /// `nodes` in any order are those of the topology. The topology's levels are read once, so a node
  /// that comes, goes or moves takes a new inventory.
  Inventory(std::shared_ptr<const Topology> topology, const std::vector<const api::Node*>& nodes);

  const Topology& topology() const { return *topology_; }
  /// -1: no such node.
  int index_of(const std::string& node) const;

  /// A pod's amounts are taken from a node, or given back. What a node does not have is not
  /// counted.
  void take(int node, const ResourceAmounts& amounts) { change(node, amounts, -1); }
  void give_back(int node, const ResourceAmounts& amounts) { change(node, amounts, 1); }

  /// The node's allocatable amounts, readiness, taints or other labels are as in `node` now.
  /// False, and nothing is changed: it is not in this inventory, stands elsewhere now, or so much
  /// has changed that a new inventory is due.
  bool update(const api::Node& node);

  /// Kept up to date until kMaxShapes others were asked for. The reference holds until then.
  const Room& room(const PodShape& shape);
  /// The same, counted from nothing: what `room` must always be equal to.
  Room count(const PodShape& shape) const;

  /// Free amounts of a node; not under 0.
  ResourceAmounts free_on(int node) const;

 private:
  /// Nodes alike in everything that decides whether a pod may come.
  struct NodeClass {
    bool ready = false, unschedulable = false;
    std::vector<std::array<std::string, 3>> taints;
    std::map<std::string, std::string> labels;  ///< without a node's own
    auto operator<=>(const NodeClass&) const = default;
  };
  struct Column {
    std::vector<std::int64_t> capacity, free;  ///< by node; capacity kAbsent where there is none
  };
  struct Tracked {
    PodShape shape;
    Room room;
    std::vector<std::pair<const Column*, std::int64_t>> needs;
    std::vector<NodeRefusal> by_class;
  };

  Column& column(const std::string& resource);
  void find_own_keys(const std::vector<const api::Node*>& nodes);
  bool is_own(const std::string& label) const { return own_keys_.contains(label); }
  void set_node(std::size_t index, const api::Node& node);
  void change(int node, const ResourceAmounts& amounts, int sign);
  void recount(int node);
  void prepare(Tracked& tracked) const;
  NodeRefusal refusal_of(const NodeClass& one, const PodShape& shape) const;
  NodeRefusal refusal_of(const Tracked& tracked, int node) const;
  int fits(const Tracked& tracked, int node) const;
  void fill(Tracked& tracked) const;

  std::shared_ptr<const Topology> topology_;
  std::set<std::string> place_keys_;  ///< labels that say where a node stands
  std::set<std::string> own_keys_;    ///< these, and labels that differ from node to node
  std::map<std::string, Column> columns_;
  std::map<NodeClass, int> class_index_;
  std::vector<const NodeClass*> classes_;
  std::vector<int> class_of_node_;
  std::vector<std::map<std::string, std::string>> own_labels_;
  std::map<std::string, int, std::less<>> index_;
  std::list<Tracked> tracked_;  ///< asked for last first
};

}  // namespace muster::core
