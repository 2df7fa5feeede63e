// The step of a small model, message by message: by hand, and as it was measured.
#include "operator/core/few_blocks.h"

#include <doctest/doctest.h>

#include "operator/core/step_forecast.h"

using namespace muster;
using namespace muster::core;

namespace {

/// A block takes a second on a card.
FewBlocks blocks_of_members(double blocks, int members, int sums = 1) {
  return {std::vector(static_cast<std::size_t>(members), sums), blocks * kBlockBytes, kBlockBytes,
          0, 0};
}

}  // namespace

TEST_CASE("one block comes from all to its owner, and goes to all, one after the other") {
  // Who is given it first sends its next sum at once, while the owner still gives it to others.
  CHECK(*few_blocks_seconds(blocks_of_members(1, 2)) == doctest::Approx(2));
  CHECK(*few_blocks_seconds(blocks_of_members(1, 5)) == doctest::Approx(4 + 1));
  FewBlocks slow = blocks_of_members(1, 5);
  slow.latency_seconds = 0.5;
  slow.compute_seconds = 10;
  CHECK(*few_blocks_seconds(slow) == doctest::Approx(4 + 1 + 2 * 0.5 + 10));
  // Two sums of each: eight come to the owner once the first one has been given the block.
  CHECK(*few_blocks_seconds(blocks_of_members(1, 5, 2)) == doctest::Approx(1 + 8));
}

TEST_CASE("steps of few blocks overlap, and take no longer than both halves of an exchange") {
  for (int members = 3; members <= 16; ++members) {
    for (double blocks = 1; blocks < members - 0.5; blocks += 0.5) {
      CAPTURE(members);
      CAPTURE(blocks);
      const auto seconds = few_blocks_seconds(blocks_of_members(blocks, members));
      REQUIRE(seconds);
      CHECK(*seconds <= 2 * (members - 1) + 1e-9);
      CHECK(*seconds >= members - 1 - 1e-9);
    }
  }
  // 9,610 parameters on 8 hosts; 81.1 ms measured at 20 Mbit/s, 6.6 ms a block.
  CHECK(*few_blocks_seconds(blocks_of_members(9610 / 4096.0, 8)) ==
        doctest::Approx(12.2).epsilon(0.02));
}

TEST_CASE("where all have blocks, or there is much to follow, steps are not followed") {
  CHECK_FALSE(few_blocks_seconds(blocks_of_members(5, 5)));
  CHECK_FALSE(few_blocks_seconds(blocks_of_members(0, 5)));
  CHECK_FALSE(few_blocks_seconds(blocks_of_members(1, 1)));
  CHECK_FALSE(few_blocks_seconds(blocks_of_members(1, 5, 0)));
  CHECK_FALSE(few_blocks_seconds(blocks_of_members(300, 400)));
}
