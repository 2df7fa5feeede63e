// Sentinels of one job in one thread: their membership under a seeded network, crashes, freezes,
// partitions, an operator that replaces the lost, and a witness. Every rule is checked after every
// event.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/rng.h"
#include "worker/sentinel/membership.h"

namespace muster::sim {

inline constexpr std::array<const char*, 7> kNetworkFaults{
    "lost", "late", "twice", "cut", "sender dies", "receiver dies", "receiver frozen"};
using MessageCoverage = std::array<std::array<std::int64_t, 7>, sentinel::kMessageKinds>;

struct MembershipResult {
  std::string wrong;  ///< empty = every rule held
  MessageCoverage coverage{};
  std::map<std::string, std::int64_t> events;  ///< faults and outcomes by name
  std::int64_t messages = 0;
};

/// Bounds and rates of one run; all from the seed.
struct MembershipPlan {
  int workers = 3;
  int faults = 12;
  double loss = 0, late = 0, twice = 0, death = 0;
  /// Of what befalls one message: many workers send very many, and as few of these as of few go
  /// wrong.
  double rarity = 1;
  bool has_witness = true;
};

/// With `workers` at the start, some 1 to 5 where that is 0.
MembershipResult run_membership_seed(std::uint64_t seed, bool is_loud = false, int workers = 0);

}  // namespace muster::sim
