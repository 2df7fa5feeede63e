// Seeds of this simulation that once broke a rule (tests/seeds.h).
#pragma once

#include <array>

#include "tests/seeds.h"

namespace muster::sim {

inline constexpr std::array<test::KeptSeed, 2> kKeptSeeds{{
    {169, "462d3b3", "a member that was left out and let in again had lost its domain"},
    {393, "462d3b3", "a newcomer was let in before it had told its domain"},
}};

}  // namespace muster::sim
