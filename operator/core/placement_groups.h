// Where a gang goes whose pods are in groups that stay together: whole groups are what is counted
// and placed, from the lowest domain that holds the gang down to the nodes. Pure, deterministic,
// and of few tries.
#pragma once

#include "operator/core/placement.h"

namespace muster::core {

/// As place_gang for a wish with groups, of which every required one is kept, or no placement is
/// given. Of the preferred ones as many kinds as there is room for, the smaller ones before the
/// larger, and these before the gang's preferred level. Pods of a group follow each other in
/// Placement::nodes. Among placements that keep the same: the lowest domain that holds all so (this
/// exactly), the fewest of its branches, the fewest leaf domains, the least cost, of up to 32
/// domains, and of up to 8 nodes of PlacementWish::first in each. Below the domain each choice
/// takes the roomiest first, and for the rest the tightest.
PlacementVerdict place_groups(const Topology& topology, const Room& room, const PlacementWish& wish,
                              const Traffic* traffic);

}  // namespace muster::core
