// Groups of a gang's slots that stay together in the network (spec.topology.groups, slices by
// Kueue's annotations): which slots are one group, and which nodes are one place for it. Pure.
#pragma once

#include <string>
#include <vector>

#include "operator/api/training_job.h"
#include "operator/core/topology.h"

namespace muster::core {

/// All groups of one kind. Of several kinds a gang has, the smaller come first, and each of their
/// groups lies within one of every larger kind.
struct SlotGroups {
  std::string field;  ///< that asks for them: "spec.topology.groups[0].required"
  std::string of;     ///< in words: "Tensor group"
  std::string level;
  bool is_required = true;
  int each = 1;   ///< slots of a group that follow each other
  int apart = 0;  ///< so many slots on the next of the same group follow; 0: it has no others
  bool operator==(const SlotGroups&) const = default;

  int group_of(int slot) const { return (apart > 0 ? slot % apart : slot) / each; }
  /// Slots of a group, in a gang of so many.
  int size(int slots) const { return apart > 0 ? slots / apart * each : each; }
};

/// What the job asks for, without groups of one worker each. Of a spec that is refused: as far as
/// it tells.
std::vector<SlotGroups> slot_groups_of(const api::TrainingJob& job);

/// Slots of a gang of so many, each group beside each other.
std::vector<int> slots_by_group(const std::vector<SlotGroups>& groups, int slots);

/// Where nodes stand for groups of a level: in a domain of it, and each that is in none alone.
class LevelPlaces {
 public:
  /// `topology` outlives it.
  LevelPlaces(const Topology& topology, const std::string& level);
  /// The domain of the level that this one lies in, or is; -1: none.
  int of_domain(int domain) const { return of_domain_[as_index(domain)]; }
  /// The domain, or beyond all of their numbers the node's own place.
  int of(int node) const {
    const int domain = of_domain(topology_.leaf_of_node[as_index(node)]);
    return domain >= 0 ? domain : static_cast<int>(topology_.domains.size()) + node;
  }

 private:
  const Topology& topology_;
  std::vector<int> of_domain_;
};

struct WholeGroups {
  int all = 0;
  int whole = 0;  ///< those that stand in one place
};
/// By slot the node, by its number; -1: nowhere, which breaks no group.
WholeGroups whole_groups(const SlotGroups& groups, const Topology& topology,
                         const std::vector<int>& node_of_slot);

/// What Admitted says of them.
std::string groups_text(const std::vector<SlotGroups>& groups, const Topology& topology,
                        const std::vector<int>& node_of_slot);

}  // namespace muster::core
