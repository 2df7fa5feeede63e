// Seeds of this simulation that once broke a rule (tests/seeds.h). What was found before this list
// was begun was not noted by seed; the worlds draw otherwise since.
#pragma once

#include <array>

#include "tests/seeds.h"

namespace muster::sim {

/// The next one found is the first: {seed, "commit", "what it showed"}.
inline constexpr std::array<test::KeptSeed, 0> kKeptWorlds{};

}  // namespace muster::sim
