#include "common/bpe/pieces.h"

#include <algorithm>
#include <array>

#include "common/bpe/unicode_classes.h"
#include "common/check.h"
#include "common/utf8.h"

namespace muster::bpe {
namespace {

constexpr std::array<std::string_view, 7> kContractions{"'s", "'t",  "'re", "'ve",
                                                        "'m", "'ll", "'d"};

struct Character {
  CharacterClass kind = CharacterClass::kOther;
  std::size_t length = 0;  ///< 0: the text is at its end
};

Character character_at(std::string_view text) {
  if (text.empty()) return {};
  const std::size_t length = utf8_length(text);
  if (length == 0) return {CharacterClass::kOther, 1};
  return {class_of(utf8_code_point(text.substr(0, length))), length};
}

/// Bytes of the characters of one class that `text` begins with, and of the last of them.
struct Run {
  std::size_t length = 0, last = 0;
};

Run run_of(std::string_view text, CharacterClass kind) {
  Run run;
  for (;;) {
    const Character next = character_at(text.substr(run.length));
    if (next.length == 0 || next.kind != kind) return run;
    run.length += next.length;
    run.last = next.length;
  }
}

}  // namespace

std::size_t first_piece(std::string_view text) {
  MUSTER_CHECK(!text.empty());
  for (const std::string_view contraction : kContractions) {
    if (text.starts_with(contraction)) return contraction.size();
  }
  const std::size_t space = text.front() == ' ' ? 1 : 0;
  const Character first = character_at(text.substr(space));
  if (first.length > 0 && first.kind != CharacterClass::kSpace) {
    return space + run_of(text.substr(space), first.kind).length;
  }
  const Run spaces = run_of(text, CharacterClass::kSpace);
  const bool is_last = spaces.length == text.size();
  return is_last || spaces.length == spaces.last ? spaces.length : spaces.length - spaces.last;
}

}  // namespace muster::bpe
