// Seeds that once broke a rule, run before all others for ever. A seed means what it meant only
// while the simulation draws the same: whoever changes that looks for new ones that show the same.
#pragma once

#include <array>
#include <cstdint>

namespace muster::sim {

struct KeptRecovery {
  std::uint64_t seed;
  const char* commit;  ///< that it was found upon
  const char* showed;
};

inline constexpr std::array<KeptRecovery, 4> kKeptRecoveries{{
    {200, "a4890b9", "the record had step 30 where 1 was due"},
    {1750, "a4890b9", "the record had step 14 where 1 was due"},
    {489, "a4890b9", "the record had step 30 where 8 was due"},
    {128, "a4890b9", "the record had step 7 where 1 was due"},
}};

}  // namespace muster::sim
