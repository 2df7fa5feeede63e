// Names in a sentence, as many as somebody reads.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace muster {

/// "a, b and 3 more": what `name_of` calls the first `most` of the list, and how many are left.
template <typename List, typename Name = std::identity>
std::string list_text(const List& list, std::size_t most, const Name& name_of = {}) {
  std::string text;
  std::size_t named = 0;
  for (const auto& one : list) {
    if (named == most) return text + " and " + std::to_string(list.size() - named) + " more";
    text += (named++ == 0 ? "" : ", ") + name_of(one);
  }
  return text;
}

}  // namespace muster
