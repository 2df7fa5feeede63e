// What is free where: amounts of every resource in one array each, nodes along the topology's tree,
// and for each shape of pod that was asked for how many fit on each node and in each domain. An
// event (a pod comes or goes, a node changes) costs its amounts, and once the depth of the tree for
// each shape that is asked for again; never a recount of more than that. What would be if can be
// tried on it and undone, or on a copy. Nothing here chooses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "operator/api/pod.h"
#include "operator/core/node_limit.h"
#include "operator/core/topology.h"

namespace muster::core {

/// More pods of one gang than this are not counted on a node.
inline constexpr int kMaxPodsCounted = 4096;
inline constexpr std::size_t kMaxShapes = 64;

/// Amounts by resource: cpu in thousandths, memory in bytes, everything else counted. A pod's has
/// {"pods", 1}.
using ResourceAmounts = std::map<std::string, std::int64_t>;
/// Of which each node has one, whatever it says: its TCP port api::kMasterPort. Device plugins'
/// resources have a domain, so none is called so.
inline constexpr const char* kMasterPortResource = "host-port-29500";
/// The same by the resources' numbers in an inventory.
using NumberedAmounts = std::vector<std::pair<int, std::int64_t>>;

struct NodeToleration {
  std::string key, op = "Equal", value, effect;
  auto operator<=>(const NodeToleration&) const = default;
};
/// Kubernetes' rule: without an effect every effect, `Exists` without a key every taint.
bool tolerates_taint(const std::vector<NodeToleration>& tolerations, const api::Node::Taint& taint);
/// One that the cluster itself sets, for as long as something is the matter with the node.
bool is_for_a_while(const api::Node::Taint& taint);

/// What a pod asks for, and where it may stand.
struct PodShape {
  ResourceAmounts requests;
  std::map<std::string, std::string> node_selector;
  std::vector<api::NodeTerm> node_terms;  ///< any of them; empty: any node
  std::vector<NodeToleration> tolerations;
  NodeLimit only_nodes;  ///< e.g. those that reach its volumes
  std::set<std::string> avoid_nodes;
  /// The same by the nodes' numbers, where they may be nearly all; empty: none.
  std::vector<bool> closed_nodes{};
  auto operator<=>(const PodShape&) const = default;
};

/// Why nodes do not count.
enum class NodeRefusal : std::uint8_t {
  kNone,
  kNotReady,
  kCordoned,
  kTainted,
  kSelector,
  kLimited,
  kAvoided,
  kEmptied  ///< by a taint that says so, and that no job should bear
};
inline constexpr std::size_t kNodeRefusals = 8;

/// How many pods of one shape fit: by node and by domain, in the topology's numbering. `refused` is
/// by NodeRefusal, `refusal` by node.
struct Room {
  std::vector<int> on_node, in_domain;
  std::vector<NodeRefusal> refusal;
  std::array<int, kNodeRefusals> refused{};
  bool operator==(const Room&) const = default;
};

/// Threads: one. Copies share what is known of the nodes.
class Inventory {
 public:
  /// `nodes` in any order are those of the topology, and outlive it where they are. The topology's
  /// levels are read once, so a node that comes, goes or moves takes a new inventory.
  Inventory(std::shared_ptr<const Topology> topology, const std::vector<const api::Node*>& nodes);
  /// To try what would be if: costs what is free, since the shapes asked for are left behind. Ends
  /// before the next update().
  Inventory(const Inventory& other);
  Inventory(Inventory&&) = default;
  Inventory& operator=(const Inventory&) = delete;

  const Topology& topology() const { return *facts_->topology; }
  const std::shared_ptr<const Topology>& shared_topology() const { return facts_->topology; }
  std::size_t size() const { return facts_->nodes.size(); }
  /// -1: no such node.
  int index_of(const std::string& node) const;
  const api::Node& node(int index) const { return *facts_->nodes[as_index(index)]; }
  /// The nodes that were given, by name.
  const std::vector<int>& by_name() const { return facts_->by_name; }

  /// What so many pods take is taken from a node, or given back. What a node does not have is not
  /// counted.
  void take(int node, const ResourceAmounts& amounts, std::int64_t pods = 1) {
    change(node, numbered(amounts), -pods);
  }
  void give_back(int node, const ResourceAmounts& amounts, std::int64_t pods = 1) {
    change(node, numbered(amounts), pods);
  }
  /// Of many nodes: the names of resources are looked up once. Without what no node has.
  NumberedAmounts numbered(const ResourceAmounts& amounts) const;
  void take(int node, const NumberedAmounts& amounts, std::int64_t pods) {
    change(node, amounts, -pods);
  }
  void give_back(int node, const NumberedAmounts& amounts, std::int64_t pods) {
    change(node, amounts, pods);
  }
  /// Of what is taken: by pods that are there for as long as the node is.
  void set_aside(int node, const ResourceAmounts& amounts, std::int64_t pods = 1);
  /// As if no pod were there but those that what was set aside is of.
  void empty();
  /// What keeps pods off a node for a while refuses none from now on: that it is not ready, or
  /// cordoned, and the cluster's own taints. Before any shape is asked for, and not in a trial.
  void count_closed_for_a_while();

  enum class Update {
    kNothing,  ///< it was as it is
    kDone,
    kRefused,  ///< nothing is changed: it is not in this inventory, stands elsewhere now, or so
               ///< much has changed that a new inventory is due
  };
  /// The node's allocatable amounts, readiness, taints or other labels are as in `node` now, which
  /// outlives this.
  Update update(const api::Node& node);
  /// Whether it has the labels that it had.
  bool has_labels_of(const api::Node& node) const;

  /// Rises with everything that is taken, given back or otherwise changed on a node.
  std::uint64_t version() const { return version_; }

  /// While it lives, all that is taken and given back is tried; then it is undone. One at a time.
  class Trial {
   public:
    explicit Trial(Inventory& inventory) : inventory_(inventory) { inventory.begin_trial(); }
    ~Trial() { inventory_.undo_trial(); }
    Trial(const Trial&) = delete;
    Trial& operator=(const Trial&) = delete;

   private:
    Inventory& inventory_;
  };

  /// Kept up to date until kMaxShapes others were asked for. The reference holds until anything is
  /// changed or asked for.
  const Room& room(const PodShape& shape);
  /// The same, counted from nothing: what `room` must always be equal to.
  Room count(const PodShape& shape) const;

  /// Free amounts of a node; not under 0.
  ResourceAmounts free_on(int node) const;
  /// By node, how many pods with these amounts are free there, whoever may stand there; `most` at
  /// most.
  std::vector<std::int64_t> pods_free(const ResourceAmounts& amounts, std::int64_t most) const;
  /// The same of one node, with what needs() says of the amounts.
  std::int64_t pods_free_on(int node, const NumberedAmounts& needs, std::int64_t most) const;
  /// What a pod takes any of; -1: no node has it.
  NumberedAmounts needs(const ResourceAmounts& amounts) const;
  /// By node, of one resource; under 0 where more was promised than there is. nullptr: no node has
  /// it.
  const std::vector<std::int64_t>* free_of(const std::string& resource) const;
  /// What a node offers of a resource, and what of it is free as above; nothing offered where the
  /// node does not have it.
  struct Amount {
    std::int64_t offered = 0, free = 0;
  };
  /// By its number, which holds for as long as the inventory; -1: no node has it.
  int resource_index(const std::string& resource) const;
  Amount amount_on(int node, int number) const {
    if (number < 0) return {};
    const std::int64_t capacity = facts_->capacity[as_index(number)][as_index(node)];
    if (capacity < 0) return {};
    return {capacity, free_[as_index(number)][as_index(node)]};
  }
  bool has(int node, const std::string& resource) const;
  /// No uplink of a PCIe switch of these nodes has less bandwidth that is known, and no link
  /// between their NUMA nodes; infinite where none has any.
  double slowest_in_host() const { return facts_->slowest_in_host; }

  /// In words where this and another inventory of the same nodes differ; empty: nowhere. The shapes
  /// asked for here are counted there, too.
  std::string difference_from(const Inventory& other);

 private:
  /// Nodes alike in everything that decides whether a pod may come.
  struct NodeClass {
    bool ready = false, unschedulable = false;
    std::vector<std::array<std::string, 3>> taints;
    std::map<std::string, std::string> labels;  ///< without a node's own
    auto operator<=>(const NodeClass&) const = default;
  };
  /// What is known of the nodes, whatever stands on them.
  struct Facts {
    std::shared_ptr<const Topology> topology;
    std::set<std::string> place_keys;  ///< labels that say where a node stands
    std::set<std::string> own_keys;    ///< these, and labels that differ from node to node
    std::map<std::string, int> resources;
    std::vector<std::vector<std::int64_t>> capacity;  ///< by resource and node; kAbsent: none
    std::vector<std::vector<std::int64_t>> aside;     ///< likewise
    std::map<NodeClass, int> class_index;
    std::vector<const NodeClass*> classes;
    std::vector<int> class_of_node;
    std::vector<std::map<std::string, std::string>> own_labels;
    std::unordered_map<std::string, int> index;
    std::vector<const api::Node*> nodes;
    std::vector<int> by_name;
    double slowest_in_host = std::numeric_limits<double>::infinity();  ///< of all that ever were
  };
  struct Tracked {
    PodShape shape;
    Room room;
    NumberedAmounts needs;
    std::vector<NodeRefusal> by_class;
    std::uint64_t seen = 0;  ///< changes that are counted in `room`
  };
  /// A trial: the nodes that it changed, and what was free on them before.
  struct Undo {
    bool is_on = false;
    std::vector<int> nodes;
    std::vector<std::int64_t> free;  ///< by node and resource
    std::vector<bool> is_kept;       ///< by node of the inventory
  };

  void add_resource(const std::string& resource);
  void find_own_keys();
  bool is_own(const std::string& label) const { return facts_->own_keys.contains(label); }
  /// Whether nodes of one class may differ in what these ask for.
  bool are_of_node(const std::vector<api::NodeTerm>& terms) const;
  bool is_selected(const std::vector<api::NodeTerm>& terms, int node) const;
  NodeClass class_of(const api::Node& node) const;
  std::map<std::string, std::string> own_labels_of(const api::Node& node) const;
  std::int64_t capacity_of(const api::Node& node, const std::string& resource) const;
  bool may_update(int index, const api::Node& node) const;
  bool is_as_it_was(int index, const api::Node& node) const;
  void set_node(int index, const api::Node& node);
  void note_links_in(const api::Node& node);
  void change(int node, const NumberedAmounts& amounts, std::int64_t pods);
  void touch(int node);
  std::uint64_t changes() const { return changes_before_ + changed_.size(); }
  void begin_trial();
  void undo_trial();
  void catch_up(Tracked& tracked);
  void recount(Tracked& tracked, int node) const;
  void prepare(Tracked& tracked) const;
  NodeRefusal refusal_of(const NodeClass& one, const PodShape& shape) const;
  NodeRefusal refusal_of(const Tracked& tracked, int node) const;
  int fits(const Tracked& tracked, int node) const;
  void fill(Tracked& tracked) const;
  void refuse(Tracked& tracked) const;
  std::map<std::string, std::string> labels_of(int node) const;
  std::string difference_at(int node, const Inventory& other) const;

  std::shared_ptr<Facts> facts_;
  std::vector<std::vector<std::int64_t>> free_;  ///< by resource and node
  std::list<Tracked> tracked_;                   ///< asked for last first
  /// The nodes that changed, one for each change after the first so many; as many as there are
  /// nodes at most.
  std::vector<int> changed_;
  std::uint64_t changes_before_ = 0;
  std::uint64_t version_ = 0;
  std::uint64_t read_until_ = 0;  ///< no shape has seen a change beyond
  bool counts_closed_ = false;    ///< for a while
  Undo undo_;
};

}  // namespace muster::core
