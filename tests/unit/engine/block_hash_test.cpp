#include "worker/engine/block_hash.h"

#include <doctest/doctest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

using namespace muster;
using namespace muster::engine;

TEST_CASE("the hash is SHA-256 over the SHA-256s of blocks of 4,096, the last unpadded") {
  std::vector<float> values(4096 + 3);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::string bytes(values.size() * 4, '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  std::string digests;
  for (const auto& block : {bytes.substr(0, 4096 * 4), bytes.substr(4096 * 4)}) {
    const auto digest = sha256(std::string_view(block));
    digests.append(reinterpret_cast<const char*>(digest.data()), digest.size());
  }
  CHECK(combine(block_digests(values)) == sha256(std::string_view(digests)));
}

TEST_CASE("any number of threads finds the same digests, and its caller is seen to live") {
  for (const std::size_t blocks : {0, 1, 4, 5, 45}) {
    CAPTURE(blocks);
    std::vector<float> values(blocks * 4096 + (blocks == 45 ? 3 : 0));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    if (blocks > 4) values[4 * 4096 + 5] = std::bit_cast<float>(0xffc12345u);  // a NaN
    const auto right = block_digests(values);
    CHECK(right.size() == blocks + (blocks == 45 ? 1 : 0));
    for (const int threads : {1, 2, 3, 5}) {
      CAPTURE(threads);
      kernels::cpu::Context context(threads);
      int signs = 0;
      context.set_on_alive([&] { ++signs; });
      CHECK(block_digests(values, context) == right);
      if (threads == 1) CHECK(static_cast<std::size_t>(signs) == (right.size() + 3) / 4);
    }
  }
}

TEST_CASE("every NaN hashes alike, and the two zeros do not") {
  std::vector<float> a(10, std::bit_cast<float>(0x7fc00000u));
  std::vector<float> b(10, std::bit_cast<float>(0xffc12345u));
  CHECK(block_digests(a) == block_digests(b));
  std::vector<float> zero{0.0f};
  std::vector<float> minus_zero{-0.0f};
  CHECK(block_digests(zero) != block_digests(minus_zero));
}
