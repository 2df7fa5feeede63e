// Seeds that once broke a rule, run before all others for ever. A seed means what it meant only
// while the simulation draws the same: whoever changes that looks for new ones that show the same.
#pragma once

#include <array>
#include <cstdint>

namespace muster::sim {

struct KeptSeed {
  std::uint64_t seed;
  const char* commit;  ///< that it was found upon
  const char* showed;
};

inline constexpr std::array<KeptSeed, 2> kKeptSeeds{{
    {169, "462d3b3", "a member that was left out and let in again had lost its domain"},
    {393, "462d3b3", "a newcomer was let in before it had told its domain"},
}};

}  // namespace muster::sim
