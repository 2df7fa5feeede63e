// Files of tokens, as those who write them and those who read them must agree on: 256 little-endian
// integers of 4 bytes, the first of which are magic, version and the number of tokens, and then the
// tokens. Source: karpathy/llm.c, dev/data/data_common.py.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace muster::token_shard {

inline constexpr std::size_t kHeaderBytes = 1024;
inline constexpr std::uint64_t kMaxTokens = INT32_MAX;

struct Format {
  std::uint32_t magic, version;
  std::size_t token_bytes;
};
/// The narrowest first.
inline constexpr std::array kFormats{Format{20240520, 1, 2}, Format{20240801, 7, 4}};

}  // namespace muster::token_shard
