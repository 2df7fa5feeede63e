#include "operator/api/decimal.h"

#include <algorithm>
#include <cmath>

#include "operator/api/fields.h"

namespace muster::api {
namespace {

constexpr std::size_t kDigitsAfterPoint = 9;

/// Takes one more digit; false when the number no longer fits.
bool add_digit(Billionths& value, char digit) {
  return !__builtin_mul_overflow(value, Billionths{10}, &value) &&
         !__builtin_add_overflow(value, Billionths{digit - '0'}, &value);
}

}  // namespace

std::optional<Billionths> parse_billionths(std::string_view text) {
  const bool is_negative = text.starts_with('-');
  if (is_negative) text.remove_prefix(1);
  const std::size_t point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  const std::string_view rest =
      point == std::string_view::npos ? std::string_view() : text.substr(point + 1);
  const bool has_rest = point == std::string_view::npos || !rest.empty();
  if (whole.empty() || !has_rest || rest.size() > kDigitsAfterPoint) return std::nullopt;
  Billionths value = 0;
  for (const char c : whole) {
    if (!is_digit(c) || !add_digit(value, c)) return std::nullopt;
  }
  for (std::size_t i = 0; i < kDigitsAfterPoint; ++i) {
    const char c = i < rest.size() ? rest[i] : '0';
    if (!is_digit(c) || !add_digit(value, c)) return std::nullopt;
  }
  return is_negative ? -value : value;
}

std::string billionths_text(Billionths value) {
  // Of the least number there is no positive counterpart.
  const auto size =
      value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
  std::string rest = std::to_string(size % kOne);
  rest.insert(0, kDigitsAfterPoint - rest.size(), '0');
  while (!rest.empty() && rest.back() == '0') rest.pop_back();
  return (value < 0 ? "-" : "") + std::to_string(size / kOne) + (rest.empty() ? "" : "." + rest);
}

double plain(Billionths value) { return static_cast<double>(value) / static_cast<double>(kOne); }

Billionths billionths(double value) {
  constexpr double kMost = 9.2e9;
  return std::llround(std::clamp(value, 0.0, kMost) * static_cast<double>(kOne));
}

Billionths sum_of(Billionths a, Billionths b) { return a > INT64_MAX - b ? INT64_MAX : a + b; }

}  // namespace muster::api
