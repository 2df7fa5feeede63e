// Seeds of this simulation that once broke a rule (tests/seeds.h).
#pragma once

#include <array>

#include "tests/seeds.h"

namespace muster::sim {

inline constexpr std::array<test::KeptSeed, 8> kKeptRecoveries{{
    {200, "a4890b9", "the record had step 30 where 1 was due"},
    {1750, "a4890b9", "the record had step 14 where 1 was due"},
    {489, "a4890b9", "the record had step 30 where 8 was due"},
    {128, "a4890b9", "the record had step 7 where 1 was due"},
    {1536, "242615a", "the record has a line that is none: a death tore what another had written"},
    {995, "f1128b4", "the record had step 2 where 1 was due, of a split model"},
    {601, "dd2c5bb", "the record lacked a line: worker 0 had saved alone what nobody had compared"},
    {698, "dd2c5bb", "the record lacked a line, of another training"},
}};

}  // namespace muster::sim
