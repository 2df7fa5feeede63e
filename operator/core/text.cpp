#include "operator/core/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "common/utf8.h"

namespace muster::core {
namespace {

bool is_alnum(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

std::string cpu_text(std::int64_t millis) {
  if (millis % 1000 == 0) return std::to_string(millis / 1000);
  return std::to_string(millis) + "m";
}

std::string bytes_text(std::int64_t bytes) {
  constexpr std::array<const char*, 4> kUnits{"Gi", "Mi", "Ki", ""};
  std::int64_t unit = std::int64_t{1} << 30;
  for (const char* name : kUnits) {
    if (bytes % unit == 0 || unit == 1) return std::to_string(bytes / unit) + name;
    unit >>= 10;
  }
  return std::to_string(bytes);
}

}  // namespace

bool differs_in_numbers_alone(std::string_view a, std::string_view b) {
  const auto without_numbers = [](std::string_view text) {
    std::string rest;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find_first_not_of("0123456789", at), text.size());
      const std::string_view suffix = text.substr(end, 2);
      const bool is_ordinal = suffix == "st" || suffix == "nd" || suffix == "rd" || suffix == "th";
      rest += end == at ? text.substr(at, 1) : is_ordinal ? text.substr(at, end - at) : "0";
      at = std::max(end, at + 1);
    }
    return rest;
  };
  return a != b && without_numbers(a) == without_numbers(b);
}

std::string amount_text(const std::string& resource, std::int64_t amount) {
  if (resource == "cpu") return cpu_text(amount);
  const bool counts_bytes =
      resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-");
  return counts_bytes ? bytes_text(amount) : std::to_string(amount);
}

std::string clean_text(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text[0]);
    const bool control = first == 0x7F || (first < 0x20 && first != '\n' && first != '\t');
    if (length == 0 || control) {
      clean += '?';
      text.remove_prefix(1);
    } else {
      clean.append(text.substr(0, length));
      text.remove_prefix(length);
    }
  }
  return clean;
}

std::string head_of(std::string_view text, std::size_t most) {
  std::string clean = clean_text(text.substr(0, most));
  // A character cut in two at the end has become '?', which says so well enough.
  return clean;
}

std::string tail_of(std::string_view text, std::size_t most) {
  if (text.size() > most) text.remove_prefix(text.size() - most);
  return clean_text(text);
}

std::string first_line(std::string_view text, std::size_t most) {
  while (!text.empty() && (text.front() == '\n' || text.front() == ' ')) text.remove_prefix(1);
  return head_of(text.substr(0, text.find('\n')), most);
}

std::string last_line(std::string_view text, std::size_t most) {
  constexpr std::string_view kBlank = " \t\n";
  const auto says = [](char c) {
    return is_alnum(c) || (static_cast<unsigned char>(c) & 0x80) != 0;
  };
  const auto last = std::find_if(text.rbegin(), text.rend(), says);
  const auto size = static_cast<std::size_t>(text.rend() - last);
  text = text.substr(0, std::min(text.find('\n', size), text.size()));
  text.remove_prefix(text.rfind('\n') + 1);  // without one, npos + 1 is 0
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  return head_of(text, most);
}

bool is_reason(std::string_view text) {
  if (text.empty() || text.size() > 128) return false;
  const bool letter_first = is_alnum(text[0]) && !(text[0] >= '0' && text[0] <= '9');
  return letter_first && std::all_of(text.begin(), text.end(), is_alnum);
}

bool is_decimal(std::string_view text) {
  if (text == "nan" || text == "inf" || text == "-inf") return true;
  if (text.empty() || text.size() > 32) return false;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string decimal(double value, int digits) {
  if (!(std::fabs(value) < 1e15)) return "0";
  std::array<char, 64> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                          std::chars_format::fixed, digits);
  return error == std::errc() ? std::string(buffer.data(), end) : "0";
}

std::uint64_t hash_text(std::string_view text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

std::string hex_text(std::uint64_t value) {
  std::string text(16, '0');
  for (std::size_t i = 0; i < 16; ++i) text[15 - i] = "0123456789abcdef"[(value >> (4 * i)) & 15];
  return text;
}

}  // namespace muster::core
