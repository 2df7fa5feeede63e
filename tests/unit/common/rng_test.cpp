#include "common/rng.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "tests/seeds.h"

using namespace muster;

TEST_CASE("Philox gives the known answers of its authors' test vectors") {
  CHECK(philox4x32(0, {0, 0, 0, 0}) ==
        std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32(~std::uint64_t{0}, {~0u, ~0u, ~0u, ~0u}) ==
        std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("streams do not meet and units stay in range") {
  CHECK(random_bits(7, RngStream::kInit, 0, 0) != random_bits(7, RngStream::kDropout, 0, 0));
  CHECK(random_bits(7, RngStream::kInit, 0, 0) != random_bits(7, RngStream::kInit, 1, 0));
  float least = 1, most = 0;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    const float unit = random_unit(7, RngStream::kInit, 0, i);
    least = std::min(least, unit);
    most = std::max(most, unit);
  }
  CHECK(least >= 0);
  CHECK(most < 1);
  CHECK(least < 0.001f);
  CHECK(most > 0.999f);
}

TEST_CASE("below() reaches every value of its range and no other") {
  Rng rng(1);
  std::array<int, 3> seen{};
  for (int i = 0; i < 300; ++i) ++seen.at(rng.below(3));
  CHECK(*std::min_element(seen.begin(), seen.end()) > 50);
}

TEST_CASE("a seed that failed is told with the command that runs it alone") {
  std::ostringstream said;
  std::streambuf* const before = std::cout.rdbuf(said.rdbuf());
  test::tell_failed("bin/sim_seeds", {{7, "a pod twice"}, {12, "a lost model"}});
  std::cout.rdbuf(before);
  CHECK(said.str() ==
        "FAILED seed 7: a pod twice\n  again with: bin/sim_seeds --seed 7\n"
        "FAILED seed 12: a lost model\n  again with: bin/sim_seeds --seed 12\n"
        "2 seeds failed\n");
  std::string program = "bin/sim_seeds", flag = "--seed", seed = "7";
  char* command[] = {program.data(), flag.data(), seed.data()};
  test::SeedOptions options;
  REQUIRE(test::read_seed_options(3, command, "sim_seeds", options));
  CHECK(options.is_alone);
  CHECK(options.first == 7);
  CHECK(options.seeds == 1);
}
