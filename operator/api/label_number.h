// Labels that are numbers, as Gt and Lt of a node selector compare them.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace muster::api {

/// Nothing where the text is no whole number, or one of more than 64 bits.
inline std::optional<std::int64_t> label_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace muster::api
