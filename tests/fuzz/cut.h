// Lines of a fuzzer's input, and words of these.
#pragma once

#include <cstddef>
#include <string_view>

namespace muster::fuzz {

/// Up to the next `end`, which is taken away with it.
inline std::string_view cut(std::string_view& rest, char end) {
  const std::size_t at = rest.find(end);
  const std::string_view part = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + 1);
  return part;
}

}  // namespace muster::fuzz
