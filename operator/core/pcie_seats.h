// Below which PCIe switches and on which NUMA nodes the GPUs of gangs lie, foretold, because only
// the kubelet decides it: as a device plugin chooses that knows of both, leaves each gang a switch
// of its own where it can, and keeps it on one NUMA node where it can then. By node, for one pass.
// What must be shared whatever it chooses: pcie_use.h.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/inventory.h"

namespace muster::core {

/// GPUs of a gang that share one link of a node: the uplink of a switch, or what joins one of its
/// NUMA nodes to the others.
struct PcieSeat {
  int gpus = 0;
  double bytes_per_second = 0;  ///< of the link, one way
  int number = -1;              ///< PcieSeats::Place
  /// As Traffic numbers links; -1: nobody else that is known has GPUs on the node.
  int link = -1;
  bool is_numa = false;
};

/// Threads: one at a time.
class PcieSeats {
 public:
  /// The inventory outlives it. Links of switches and NUMA nodes are numbered from `first_link` on.
  PcieSeats(const Inventory& inventory, int first_link);
  PcieSeats(const PcieSeats&) = delete;
  PcieSeats& operator=(const PcieSeats&) = delete;
  /// Called when a node is asked for the first time: those that stand there take their seats then,
  /// so that nodes which nobody asks for cost nothing.
  void when_asked(std::function<void(int node)> listener) { listener_ = std::move(listener); }
  bool is_asked(int node) const { return host_of_node_[as_index(node)] >= 0; }
  void ask(int node, const std::string& gpu_resource) const { (void)host(node, gpu_resource); }
  /// Whether gangs are known to have GPUs there.
  bool is_shared(int node) const { return known_[as_index(node)] > 0; }
  double slowest() const { return inventory_.slowest_in_host(); }

  /// GPUs that a gang holds on a node, of the one kind that nodes are taken to have. All are to be
  /// told before anything is asked: what is held beyond them is some stranger's, who sends nothing.
  void know(int node, std::int64_t gpus) { known_[as_index(node)] += gpus; }
  /// The gang's seats, which are its own from now on. Only switches whose uplink's bandwidth is
  /// known are told, and NUMA nodes where the host has several; none where not all GPUs of the node
  /// are known. Holds until the next call.
  const std::vector<PcieSeat>& take(int node, const std::string& gpu_resource, std::int64_t gpus);
  /// Those that a gang would get.
  const std::vector<PcieSeat>& seats(int node, const std::string& gpu_resource,
                                     std::int64_t gpus) const;

  /// One more than the highest number of a link.
  int links() const { return next_link_; }
  /// The node of a link, and what it belongs to: its switches are numbered as in api::PcieNode, and
  /// after them its NUMA nodes as api::numa_nodes_of_gpus has them.
  struct Place {
    int node = 0, number = 0;
  };
  Place place_of(int link) const { return places_[as_index(link - first_link_)]; }
  /// -1: nobody else that is known has GPUs on the node.
  int link_of(int node, int number) const;
  bool is_switch(const Place& place) const;
  /// "PCIe switch 0000:10:00.0 of host n1", "NUMA node 1 of host n1".
  std::string text(const Place& place) const;

 private:
  struct Group {
    int gpus = 0, free = 0;
    double bytes_per_second = 0;
    int number = -1;  ///< -1: GPUs straight below root ports, who share no switch
    int numa = -1;    ///< which of its host's NUMA nodes; -1: nothing is known of these
    bool is_empty() const { return number < 0 || free == gpus; }
  };
  struct Host {
    std::vector<Group> groups;  ///< those of one NUMA node beside each other
    int first_link = -1;
    int switches = 0;
    int numa_nodes = 0;  ///< 0: there is nothing between them, or nothing is known
    int links() const { return switches + numa_nodes; }
    int link(int number) const { return first_link < 0 ? -1 : first_link + number; }
  };
  struct Choice;

  const Host& host(int node, const std::string& gpu_resource) const;
  Host described(int node, const std::string& gpu_resource) const;
  static int next_group(const std::vector<Group>& groups, std::int64_t gpus,
                        std::optional<int> near);
  /// Fills seats_; the groups are left as they are then.
  void seat(const Host& host, std::int64_t gpus) const;

  std::function<void(int)> listener_;
  const Inventory& inventory_;
  int first_link_, next_link_;
  std::vector<Place> places_;              ///< by link
  std::vector<std::int64_t> known_;        ///< GPUs, by node
  mutable std::vector<int> host_of_node_;  ///< -1: not asked for yet
  mutable std::vector<Host> hosts_;
  mutable std::vector<Group> groups_;  ///< after seat()
  mutable std::vector<int> on_numa_;   ///< of seat(): GPUs, by NUMA node
  mutable std::vector<PcieSeat> seats_;
};

}  // namespace muster::core
