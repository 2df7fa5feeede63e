// The gangs that have their places, from event to event: each is told when its job changes. On
// which hosts they stand is looked up once, and again when nodes are numbered otherwise.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "operator/core/rooms.h"

namespace muster::core {

/// Threads: one.
class KeptGangs {
 public:
  /// The job's gang as it is now; nothing: it has no places.
  void take(const api::ObjectKey& job, std::optional<RunningGang> gang);
  /// All of them, by job, on the inventory's hosts: what sending_gang() says of each. They hold
  /// until the next call of this or take().
  std::vector<const SendingGang*> on(const Inventory& inventory);

 private:
  struct Kept {
    RunningGang gang;
    std::optional<SendingGang> sending;  ///< by the numbers of numbered_by_
  };
  std::map<api::ObjectKey, Kept> gangs_;
  std::shared_ptr<const Topology> numbered_by_;
};

}  // namespace muster::core
