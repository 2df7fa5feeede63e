// Random clusters with gangs that run and one that waits, for measuring how good its place is: five
// kinds of network, of a size at which every placement can be listed and of one at which it cannot.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "common/rng.h"
#include "operator/core/placement.h"
#include "tests/unit/core/placement_exact.h"

namespace muster::test {

inline constexpr std::array kNetworks = {"Lingjun", "fat tree", "rail", "NVLink", "blocks"};
inline constexpr std::array kOccupancies = {0.5, 0.7, 0.85};
inline constexpr int kMostHostsListed = 14;

enum class NetworkSize { kListed, kLarge };  ///< at most 14 hosts; 40 to 64

/// A network of kNetworks[kind].
core::Topology random_network(std::size_t kind, NetworkSize size, Rng& rng);

/// What is left on hosts with 8 GPUs, each taken so often, for pods with `gpus` each.
core::Room occupied_room(const core::Topology& topology, double occupancy, int gpus, Rng& rng);

struct PlacementInstance {
  core::Topology topology;
  core::Room room;
  core::PlacementWish wish;  ///< without `usual`
  std::vector<core::SendingGang> others;
  std::vector<std::int64_t> usual;  ///< sizes of gangs, in GPUs

  /// The levels that count: what is required, or what is preferred and has room. Empty: any.
  std::vector<int> levels() const;
  core::PlacementVerdict placed() const;
};

/// Part of the GPUs are taken, one by one or by whole hosts, by gangs that stand along the tree or
/// across it. Of the gang that waits there may be no room.
PlacementInstance random_instance(std::size_t kind, double occupancy, NetworkSize size, Rng& rng);

/// What is best, of every placement there is.
struct BestOfAll {
  Goals goals;
  double least_cost = 0;  ///< of any rank
};

/// The goals of placements, counted by hand.
class InstanceGoals {
 public:
  /// `instance` outlives it.
  explicit InstanceGoals(const PlacementInstance& instance);

  Goals of(const std::vector<core::HostShare>& hosts) const;
  /// Nothing: there is no placement.
  std::optional<BestOfAll> best() const;
  const CostByHand& cost() const { return cost_; }
  const core::StepModel& model() const { return model_; }

 private:
  const PlacementInstance& instance_;
  core::StepModel model_;
  CostByHand cost_;
};

}  // namespace muster::test
