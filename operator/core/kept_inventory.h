// The inventory from event to event. Nodes, pods and promises are told one by one, and change it
// where they are; where that cannot be (a node came or went, the tree is another), it is made anew
// when it is asked for next. Either way it is what inventory_of() makes of the same cluster.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "operator/core/rooms.h"

namespace muster::core {

/// Why an inventory was made anew.
enum class Remade {
  kFirst,
  kNodes,     ///< some came or went
  kTopology,  ///< the tree is another
  kChanges    ///< of a node's labels or resources, beyond what can be followed
};

/// Threads: one.
class KeptInventory {
 public:
  /// What a node says that it did not say before.
  enum class News {
    kNothing,
    kRoom,   ///< who may stand there, or how many
    kPlaces  ///< its labels, or that it is there at all: where nodes stand may be another matter
  };
  /// The node as it is now, at this address until the next call for it; nullptr: it is gone.
  News take_node(const std::string& name, const api::Node* node);
  /// nullptr: it is gone.
  void take_pod(const api::ObjectKey& key, const api::Pod* pod);
  /// All that is promised to the pods of a job that are not there yet.
  void promise(const api::ObjectKey& job, std::vector<Assumed> promised);

  /// By name.
  std::vector<const api::Node*> nodes() const;

  struct Asked {
    Inventory& inventory;  ///< until the next event
    std::optional<Remade> remade;
  };
  /// `topology` is of these nodes; nullptr: nothing is known of where they stand.
  Asked inventory(std::shared_ptr<const Topology> topology);

 private:
  struct Held {
    Assumed taken;
    bool is_of_node = false;  ///< Pod::is_of_node()
  };
  void charge(const std::string& node, const api::PodRequests& requests, std::int64_t pods);
  void charge(const Held& held, std::int64_t pods);
  void remake(std::shared_ptr<const Topology> topology);

  std::map<std::string, const api::Node*> nodes_;
  std::map<api::ObjectKey, Held> held_;  ///< by pods that are there
  std::map<api::ObjectKey, std::vector<Assumed>> promised_;
  std::optional<Inventory> inventory_;
  std::optional<Remade> why_old_ = Remade::kFirst;
  std::shared_ptr<const Topology> alone_;  ///< these nodes when nothing is known of them
};

}  // namespace muster::core
