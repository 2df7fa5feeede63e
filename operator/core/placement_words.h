// The sentences of place_gang: why here, and what would help where nothing fits.
#pragma once

#include <string>

#include "operator/core/placement.h"

namespace muster::core {

std::string why_here(const Topology& topology, const Room& room, const PlacementWish& wish,
                     const Placement& placement);
/// What others' traffic has to do with it; empty: nothing.
std::string why_beside(const Topology& topology, const PlacementWish& wish, const Traffic& traffic,
                       const Placement& placement);
/// "ns/a", "ns/a and ns/b", "ns/a, ns/b, ns/c and 4 more": three at most are named, in the order
/// given; after them `others`, if that is anything.
std::string jobs_text(const std::vector<api::ObjectKey>& jobs, const std::string& others = "");
/// The first object or label that could not be used for the tree, and why; empty: all could.
std::string passed_over_text(const Topology& topology);
/// No node says that it stands in a domain of this level.
std::string why_unknown_level(const Topology& topology, const std::string& field,
                              const std::string& level);
/// No domain of wish.required has room for all; empty: the cluster has none.
std::string why_not_here(const Topology& topology, const Room& room, const PlacementWish& wish);
/// Nor in whole groups, in which there is room for `most`.
std::string why_not_in_groups(const Topology& topology, const Room& room, const PlacementWish& wish,
                              int most);

}  // namespace muster::core
