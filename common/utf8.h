// Where characters begin and end in text of unknown origin.
#pragma once

#include <cstddef>
#include <string_view>

namespace muster {

/// Bytes of the valid UTF-8 character that `text` starts with; 0 when there is none.
std::size_t utf8_length(std::string_view text);

}  // namespace muster
