// Texts from anywhere come back from their tokens, and files from anywhere are a vocabulary or not:
// where the input has a zero byte, vocab.json is what stands before it and merges.txt the rest.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/bpe/vocabulary.h"
#include "common/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace muster::bpe;
  static const Vocabulary kVocabulary = [] {
    auto loaded = Vocabulary::load("tests/unit/bpe/vocabulary");
    MUSTER_CHECK(loaded.has_value());
    return *std::move(loaded);
  }();
  const std::string text(bytes, bytes + size);
  std::vector<std::int32_t> tokens;
  kVocabulary.encode(text, tokens);
  MUSTER_CHECK(kVocabulary.decode(tokens) == text);
  const std::size_t border = text.find('\0');
  if (border == text.npos) return 0;
  const std::string_view both(text);
  (void)Vocabulary::parse({both.substr(0, border), both.substr(border + 1)});
  return 0;
}
