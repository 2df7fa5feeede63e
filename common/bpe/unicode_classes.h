// What kind of character a code point is, as far as tokens are cut by it.
#pragma once

#include <cstdint>

namespace muster::bpe {

enum class CharacterClass : std::uint8_t {
  kOther = 0,
  kLetter = 1,  ///< general category L
  kNumber = 2,  ///< general category N
  kSpace = 3,   ///< property White_Space
};

/// Of any value; what is no character of Unicode is kOther.
CharacterClass class_of(char32_t character);

}  // namespace muster::bpe
