#include "worker/engine/copies.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstdint>
#include <vector>

#include "worker/engine/in_pieces.h"

using namespace muster;
using namespace muster::engine;

namespace {

std::vector<float> counted(std::size_t size) {
  std::vector<float> values;
  for (std::size_t i = 0; i < size; ++i) values.push_back(0.25f * static_cast<float>(i) - 3);
  return values;
}

std::uint64_t bit_sum(const std::vector<float>& values) {
  BitSum sum;
  sum.add(values);
  return sum.value();
}

/// Sums of what all keep alone.
std::vector<CopySums> shared(const std::vector<std::uint64_t>& sums) {
  std::vector<CopySums> all;
  for (const std::uint64_t sum : sums) all.push_back({sum});
  return all;
}

CopyVerdict judge(const std::vector<std::uint64_t>& sums) { return judge_copies(shared(sums), {}); }

}  // namespace

TEST_CASE("any one flipped bit changes the sum, wherever it is") {
  for (const std::size_t size : {1u, 31u, 32u, 33u, 100u}) {
    std::vector<float> values = counted(size);
    const std::uint64_t right = bit_sum(values);
    for (float& value : values) {
      for (int bit = 0; bit < 32; ++bit) {
        const float kept = value;
        value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ (1u << bit));
        CHECK(bit_sum(values) != right);
        value = kept;
      }
    }
    CHECK(bit_sum(values) == right);
  }
}

TEST_CASE("a NaN is a NaN, whatever bits a processor gives it") {
  std::vector<float> x86 = counted(100), arm = x86;
  x86[40] = std::bit_cast<float>(0xffc00000u);
  arm[40] = std::bit_cast<float>(0x7fc00000u);
  CHECK(bit_sum(x86) == bit_sum(arm));
  CHECK(bit_sum(x86) != bit_sum(counted(100)));
}

TEST_CASE("who sums up much is seen to live, and the sum is the same") {
  const std::vector<float> values = counted(3 * kPieceValues + 1);
  int told = 0;
  BitSum sum;
  sum.add(values, [&] { ++told; });
  CHECK(told == 2);
  CHECK(sum.value() == bit_sum(values));
}

TEST_CASE("the sum knows order, length, and which part a value is in") {
  std::vector<float> values = counted(200);
  const std::uint64_t right = bit_sum(values);
  std::swap(values[3], values[35]);  // the same lane
  CHECK(bit_sum(values) != right);
  std::swap(values[3], values[35]);
  std::swap(values[3], values[4]);
  CHECK(bit_sum(values) != right);
  CHECK(bit_sum({}) != bit_sum({0.0f}));
  CHECK(bit_sum({0.0f}) != bit_sum({0.0f, 0.0f}));
  CHECK(bit_sum({0.0f}) != bit_sum({-0.0f}));
  BitSum a, b, c;
  a.add(counted(2));
  a.add(counted(5));
  b.add(counted(5));
  b.add(counted(2));
  CHECK(a.value() != b.value());
  c.add(counted(2));
  c.add(counted(5));
  CHECK(a.value() == c.value());
  c.add(0.5);
  CHECK(a.value() != c.value());
}

TEST_CASE("copies that are alike are nobody's fault") {
  CHECK(judge({7, 7, 7}).are_alike);
  CHECK(judge({7}).are_alike);
  CHECK(judge({7, 7}).wrong.empty());
}

TEST_CASE("whose copy is not that of more than half of all is wrong") {
  CHECK_FALSE(judge({7, 8, 7}).are_alike);
  CHECK(judge({7, 8, 7}).wrong == std::vector<int>{1});
  CHECK(judge({8, 7, 7}).wrong == std::vector<int>{0});
  CHECK(judge({7, 7, 8}).wrong == std::vector<int>{2});
  CHECK(judge({7, 8, 7, 9, 7}).wrong == std::vector<int>{1, 3});
}

TEST_CASE("where no copy is that of more than half of all, nobody can tell") {
  for (const auto& sums : {std::vector<std::uint64_t>{7, 8}, {7, 8, 9}, {7, 7, 8, 8}}) {
    CHECK_FALSE(judge(sums).are_alike);
    CHECK(judge(sums).wrong.empty());
  }
}

TEST_CASE("a shard has two copies, and what others say of it does not count") {
  const Shards shards = make_shards({0, 1, 2}, {Ownership(Buckets(3 * 4096), 3), 3 * 4096});
  REQUIRE(shards.buddies == std::vector<std::vector<int>>{{1}, {2}, {0}});
  const auto stretches = stretches_of(3 * 4096, shards.held());
  REQUIRE(stretches.size() == 3);
  // By rank: what all keep, then the shards of 0, 1 and 2; each keeps its own and its ward's.
  const std::vector<CopySums> right{{7, 10, 0, 12}, {7, 10, 11, 0}, {7, 0, 11, 12}};
  CHECK(judge_copies(right, stretches).are_alike);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    auto sums = right;
    sums[rank][0] ^= 1;
    CHECK(judge_copies(sums, stretches).wrong == std::vector<int>{static_cast<int>(rank)});
    for (std::size_t owner = 0; owner < 3; ++owner) {
      sums = right;
      sums[rank][1 + owner] ^= 1;
      const bool is_kept = right[rank][1 + owner] != 0;
      CHECK(judge_copies(sums, stretches).are_alike != is_kept);
      sums[rank][0] ^= 1;  // it may be the shard's owner or buddy that is wrong
      if (is_kept) CHECK(judge_copies(sums, stretches).wrong.empty());
    }
  }
}
