// Builders of token shards.
#pragma once

#include <initializer_list>
#include <vector>

#include "tests/unit/data/idx_bytes.h"

namespace muster::test {

/// Little-endian integers of `width` bytes at the end of `file`.
inline void append_integers(Bytes& file, const std::vector<std::uint32_t>& values, int width) {
  for (const std::uint32_t value : values) {
    for (int byte = 0; byte < width; ++byte) {
      file.push_back(static_cast<std::uint8_t>(value >> (8 * byte)));
    }
  }
}

/// The shard of tokens of `width` bytes, 2 or 4.
inline Bytes shard_bytes(const std::vector<std::uint32_t>& tokens, int width = 2) {
  Bytes file;
  append_integers(file,
                  {width == 2 ? 20240520u : 20240801u, width == 2 ? 1u : 7u,
                   static_cast<std::uint32_t>(tokens.size())},
                  4);
  file.resize(1024);
  append_integers(file, tokens, width);
  return file;
}

}  // namespace muster::test
