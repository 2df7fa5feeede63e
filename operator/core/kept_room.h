// What is kept on the nodes for gangs that wait, by resource and node. It adds up: what is kept for
// several is there for all of them. For whom something is kept is not known here.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/rooms.h"

namespace muster::core {

class KeptRoom {
 public:
  KeptRoom() = default;
  /// For so many such workers on each node.
  KeptRoom(const api::Resources& per_worker, const NodeCaps& workers);

  void add(const KeptRoom& other);
  /// Whether anything is kept on the node; below 0 it is none.
  bool is_on(int node) const;
  /// nullptr: nothing is kept of it.
  const std::vector<std::int64_t>* of(const std::string& resource) const;

 private:
  std::map<std::string, std::vector<std::int64_t>> amounts_;
};

/// Parts of a sum, each so many times.
using KeptRooms = std::vector<std::pair<const KeptRoom*, int>>;

/// How many pods of the gang each node may take of what is free there beside all that is kept.
/// Absent: as many as there are.
std::optional<NodeCaps> caps_beside(const KeptRooms& kept, const WaitingGang& gang,
                                    const Inventory& inventory);

}  // namespace muster::core
