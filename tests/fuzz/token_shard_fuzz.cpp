// Shards of tokens from anywhere: they are answered or refused, and no token leaves the vocabulary.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/check.h"
#include "worker/data/tokens.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace muster::data;
  constexpr std::uint32_t kVocabulary = 50'257;
  const std::span file(bytes, size);
  const auto header =
      parse_shard_header(file.first(std::min(size, muster::token_shard::kHeaderBytes)), size, "x");
  if (!header) return 0;
  MUSTER_CHECK(muster::token_shard::kHeaderBytes + header->tokens * header->token_bytes == size);
  std::vector<std::int32_t> tokens(header->tokens);
  if (!decode_tokens(file.subspan(muster::token_shard::kHeaderBytes),
                     {header->token_bytes, kVocabulary, 0}, "x", tokens)) {
    return 0;
  }
  for (const std::int32_t token : tokens) {
    MUSTER_CHECK(token >= 0 && token < std::int32_t{kVocabulary});
  }
  return 0;
}
