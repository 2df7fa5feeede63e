#include "worker/comm/crc32c.h"

#include <doctest/doctest.h>

#include <string_view>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"

using muster::comm::crc32c;
using muster::comm::crc32c_table;

TEST_CASE("CRC32C has the values of RFC 3720") {
  const std::vector<unsigned char> zeros(32, 0);
  const std::vector<unsigned char> ones(32, 0xFF);
  std::vector<unsigned char> ascending(32);
  for (std::size_t i = 0; i < 32; ++i) ascending[i] = static_cast<unsigned char>(i);
  const std::string_view digits = "123456789";

  CHECK(crc32c(0, zeros.data(), 32) == 0x8A9136AAu);
  CHECK(crc32c(0, ones.data(), 32) == 0x62A8AB43u);
  CHECK(crc32c(0, ascending.data(), 32) == 0x46DD794Eu);
  CHECK(crc32c(0, digits.data(), digits.size()) == 0xE3069283u);
  CHECK(crc32c(0, nullptr, 0) == 0u);
}

TEST_CASE("the instruction and the tables give the same checksum for every length and start") {
  muster::Rng rng(muster::test::seed());
  std::vector<unsigned char> bytes(20000);
  for (unsigned char& b : bytes) b = static_cast<unsigned char>(rng());
  for (int i = 0; i < 2000; ++i) {
    const std::size_t start = rng.below(64);
    // Around the lengths where blocks of 3 x 1,024 bytes begin and end, and anything else.
    const std::size_t length =
        i % 2 == 0 ? 3072 * rng.below(6) + rng.below(20) : rng.below(bytes.size() - start);
    const auto previous = static_cast<std::uint32_t>(rng());
    REQUIRE(crc32c(previous, bytes.data() + start, length) ==
            crc32c_table(previous, bytes.data() + start, length));
  }
}

TEST_CASE("a checksum goes on where the last one stopped") {
  muster::Rng rng(muster::test::seed());
  std::vector<unsigned char> bytes(10000);
  for (unsigned char& b : bytes) b = static_cast<unsigned char>(rng());
  const std::uint32_t whole = crc32c(0, bytes.data(), bytes.size());
  for (int i = 0; i < 200; ++i) {
    const std::size_t cut = rng.below(bytes.size() + 1);
    REQUIRE(crc32c(crc32c(0, bytes.data(), cut), bytes.data() + cut, bytes.size() - cut) == whole);
  }
}
