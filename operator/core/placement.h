// Where a gang goes: all of its pods or none, within what the job requires, on as few leaf domains
// as possible, so that a step takes as short as predicted. Pure, deterministic, and bounded by a
// number of tries instead of a clock.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/core/fragments.h"
#include "operator/core/inventory.h"
#include "operator/core/pcie_use.h"
#include "operator/core/step_time.h"
#include "operator/core/topology.h"
#include "operator/core/traffic.h"

namespace muster::core {

/// Pods of a gang in groups of so many, each to stand within one domain of a level.
struct GroupWish {
  int size = 1;
  std::string level;
  bool is_required = true;
  std::string field;  ///< that asks for them
};

struct PlacementWish {
  int pods = 1;
  std::string required, preferred;  ///< names of levels, one of them at most; empty: the best
  StepWork work;
  /// What gangs want that come, and a pod of these in the same unit; nullptr: nothing is known. It
  /// outlives the call.
  const UsualSizes* usual = nullptr;
  std::int64_t pod_size = 1;
  /// Of the inventory that the room is of; nullptr: nothing is known. It outlives the call.
  const PcieUse* pcie = nullptr;
  GangGpus gpus{};  ///< where switches are known: their uplinks are part of the step
  /// Not empty: why all pods must stand on one host, which is required then, in words.
  std::string one_host_for{};
  /// The smaller ones first, whose sizes divide those of the larger ones. See place_groups.
  std::vector<GroupWish> groups{};
  // With groups alone:
  std::vector<bool> first{};  ///< nodes of which at least one is taken; empty: any
  /// All within this domain; beyond all domains' numbers: on a node.
  int place = 0;
  int near = -1;  ///< a node where others stand: near it comes before the lowest place; -1: none
  /// Fillings looked at before the best of them is taken; one of many leaves counts as several.
  int tries = 400;
};

struct Placement {
  std::vector<HostShare> hosts;    ///< ascending, so that slots follow the tree
  int domain = 0;                  ///< the lowest domain that holds all
  int branches = 0;                ///< of that domain
  int leaves = 0;                  ///< leaf domains; a leaf is its own
  StepTime time;                   ///< beside the others' traffic
  double undisturbed_seconds = 0;  ///< the exchange, if nobody else sent
  Slowdown slowdown;               ///< of the others
  /// The link, as StepModel numbers them, for whose users it stands elsewhere than it would without
  /// them; -1: nobody's traffic decided anything.
  int avoided_link = -1;
  bool spares_room = false;          ///< chosen of several, alike but for the room they break up
  bool is_wish_kept = true;          ///< false: no domain of the preferred level had room
  bool is_search_cut = false;        ///< there was more to try
  std::vector<bool> keeps_groups{};  ///< by PlacementWish::groups, those of which all are whole
  std::string why;

  /// Node of each pod, by the topology's numbers, ascending.
  std::vector<int> nodes() const;
};

/// A placement, or one sentence: what is missing and what would fit.
struct PlacementVerdict {
  std::optional<Placement> placement;
  std::string why_not;
};

/// Among placements within the required domain, in this order: the lowest domain that holds all;
/// the fewest of that domain's branches; the fewest leaf domains (these three exactly); the least
/// cost; the fewest hosts; the least room broken up, so that gangs of the usual sizes cannot use
/// it; the least room left over beside them. The cost is the predicted step
/// beside the others' traffic, longer by what it costs the others: the part by which their steps
/// grow, for each of their workers to one of ours. `room` is the inventory's for these pods;
/// `traffic`, of the same topology, that of everybody else; nullptr: nobody else sends.
PlacementVerdict place_gang(const Topology& topology, const Room& room, const PlacementWish& wish,
                            const Traffic* traffic = nullptr);

}  // namespace muster::core
