// Where characters begin and end in text of unknown origin.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster {

/// Bytes of the valid UTF-8 character that `text` starts with; 0 when there is none.
std::size_t utf8_length(std::string_view text);

/// The longest start of `text` of at most `most` bytes that ends between two characters.
std::string_view utf8_head(std::string_view text, std::size_t most);

/// Whether all of it is valid UTF-8.
bool is_utf8(std::string_view text);

/// Of valid UTF-8: each byte that belongs to no character has become '?'.
std::string to_utf8(std::string_view text);

/// The code point of one valid UTF-8 character: text of utf8_length(text) bytes, at least 1.
char32_t utf8_code_point(std::string_view character);

}  // namespace muster
