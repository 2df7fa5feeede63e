// Kubernetes quantities, exactly: a decimal number with a binary, decimal or exponent suffix.
// Source: k8s.io/apimachinery pkg/api/resource, the grammar in the comment of type Quantity.
#include <algorithm>
#include <string_view>

#include "operator/api/fields.h"
#include "operator/api/training_job.h"

namespace muster::api {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr int kMaxDigits = 18;
constexpr int kMaxExponent = 40;

/// digits * 10^exponent10 * 2^exponent2
struct Number {
  Wide digits = 0;
  int exponent10 = 0;
  int exponent2 = 0;
};

/// Takes the number in front of `text`, leaving the suffix. False: no number, or too many digits.
bool take_digits(std::string_view& text, Number& out) {
  int significant = 0, any = 0;
  bool after_point = false;
  while (!text.empty() && (is_digit(text.front()) || (text.front() == '.' && !after_point))) {
    const char c = text.front();
    text.remove_prefix(1);
    if (c == '.') {
      after_point = true;
      continue;
    }
    ++any;
    if (out.digits > 0 || c != '0') ++significant;
    if (significant > kMaxDigits) return false;
    out.digits = out.digits * 10 + static_cast<unsigned>(c - '0');
    if (after_point) --out.exponent10;
  }
  return any > 0;
}

bool take_exponent(std::string_view text, int& out) {
  if (text.empty() || (text.front() != 'e' && text.front() != 'E')) return false;
  text.remove_prefix(1);
  int sign = 1;
  if (!text.empty() && (text.front() == '+' || text.front() == '-')) {
    sign = text.front() == '-' ? -1 : 1;
    text.remove_prefix(1);
  }
  if (text.empty() || text.size() > 2 || !std::all_of(text.begin(), text.end(), is_digit)) {
    return false;
  }
  int value = 0;
  for (const char c : text) value = value * 10 + (c - '0');
  out += sign * value;
  return true;
}

bool take_suffix(std::string_view text, Number& out) {
  if (text.empty()) return true;
  constexpr std::string_view kBinary = "KMGTPE";
  if (text.size() == 2 && text[1] == 'i') {
    const std::size_t place = kBinary.find(text[0]);
    if (place == std::string_view::npos) return false;
    out.exponent2 = 10 * (static_cast<int>(place) + 1);
    return true;
  }
  if (text.size() == 1) {
    constexpr std::string_view kDecimal = "num kMGTPE";
    const std::size_t place = kDecimal.find(text[0]);
    if (place == std::string_view::npos || text[0] == ' ') return false;
    out.exponent10 += 3 * (static_cast<int>(place) - 3);
    return true;
  }
  return take_exponent(text, out.exponent10);
}

/// The number times `unit`, rounded up. Empty when it does not fit.
std::optional<std::int64_t> round_up(Number number, Wide unit) {
  Wide value = number.digits;
  const auto times = [&value](Wide factor) {
    return !__builtin_mul_overflow(value, factor, &value);
  };
  if (value == 0) return 0;
  if (!times(unit) || !times(Wide{1} << number.exponent2)) return std::nullopt;
  for (int i = 0; i < number.exponent10; ++i) {
    if (!times(10)) return std::nullopt;
  }
  bool remainder = false;
  for (int i = number.exponent10; i < 0; ++i) {
    remainder = remainder || value % 10 != 0;
    value /= 10;
  }
  if (value >= Wide{INT64_MAX}) return std::nullopt;
  return static_cast<std::int64_t>(value) + (remainder ? 1 : 0);
}

Result<std::int64_t> parse_quantity(const std::string& text, Wide unit, const char* examples) {
  std::string_view rest = text;
  if (!rest.empty() && rest.front() == '-') {
    return Error(ErrorCode::kInvalid, in_quotes(text) + " is negative");
  }
  if (!rest.empty() && rest.front() == '+') rest.remove_prefix(1);
  Number number;
  if (text.size() > 64 || !take_digits(rest, number) || !take_suffix(rest, number)) {
    return Error(ErrorCode::kInvalid,
                 in_quotes(text) + " is not a quantity; write it like " + examples);
  }
  std::optional<std::int64_t> value;
  if (number.exponent10 <= kMaxExponent && number.exponent10 >= -2 * kMaxExponent) {
    value = round_up(number, unit);
  }
  if (!value) return Error(ErrorCode::kInvalid, in_quotes(text) + " is too large or too fine");
  return *value;
}

}  // namespace

Result<std::int64_t> parse_cpu_millis(const std::string& text) {
  return parse_quantity(text, 1000, "\"2\" or \"500m\"");
}

Result<std::int64_t> parse_bytes(const std::string& text) {
  return parse_quantity(text, 1, "\"512Mi\" or \"2Gi\"");
}

Result<std::int64_t> parse_count(const std::string& text) {
  return parse_quantity(text, 1, "\"4\"");
}

Result<std::int64_t> parse_amount(const std::string& resource, const std::string& text) {
  if (resource == "cpu") return parse_cpu_millis(text);
  const bool counts_bytes =
      resource == "memory" || resource == "ephemeral-storage" || resource.starts_with("hugepages-");
  return counts_bytes ? parse_bytes(text) : parse_count(text);
}

}  // namespace muster::api
