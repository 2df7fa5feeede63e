#include "worker/data/table_column.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "common/check.h"
#include "common/utf8.h"

namespace muster::data {
namespace {

constexpr std::array<std::string_view, 12> kMissing = {"",    "?",   "NA",  "<NA>", "N/A",  "#N/A",
                                                       "n/a", "NaN", "nan", "None", "NULL", "null"};

/// Of a field that is wrong: more than what is shown of it.
constexpr std::size_t kKeptBytes = 64;

template <typename T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What of a field from_chars is to read; "" where it is no decimal number.
std::string_view digits_of(std::string_view field) {
  std::string_view text = trimmed(field);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return "";  // which from_chars would take for the sign
  }
  return text.find_first_not_of("0123456789+-.eE") == std::string_view::npos ? text : "";
}

/// A number that is nearer to 0 than any double is 0: from_chars takes none that is out of range.
std::optional<double> double_of(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc()) return value;
  const bool is_tiny = error == std::errc::result_out_of_range &&
                       std::abs(std::strtod(std::string(text).c_str(), nullptr)) < 1;
  return is_tiny ? std::optional(0.0) : std::nullopt;
}

/// The number of a field that float_of() takes, before it is rounded to a float: those of dates and
/// keys differ in digits that a float does not have.
std::optional<double> exact_number_of(std::string_view field) {
  return float_of(field) ? double_of(digits_of(field)) : std::nullopt;
}

}  // namespace

std::string_view trimmed(std::string_view field) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!field.empty() && is_space(field.front())) field.remove_prefix(1);
  while (!field.empty() && is_space(field.back())) field.remove_suffix(1);
  return field;
}

std::optional<float> float_of(std::string_view field) {
  const std::string_view text = digits_of(field);
  if (const auto value = number_of<float>(text)) return value;
  // Nearer to 0 than to any other float.
  const auto wide = double_of(text);
  return wide && std::abs(*wide) < 1 ? std::optional(0.0F) : std::nullopt;
}

std::optional<int> whole_number_of(std::string_view field) {
  return number_of<int>(trimmed(field));
}

bool is_missing(std::string_view field) {
  return std::find(kMissing.begin(), kMissing.end(), field) != kMissing.end();
}

std::string encode(const TableColumn& column, std::string_view field, std::span<float> out) {
  MUSTER_CHECK(out.size() == column.inputs());
  const std::string_view text = trimmed(field);
  if (!column.words.empty()) {
    if (!column.may_lack && is_missing(text)) return "must be a word";
    const auto found = std::lower_bound(column.words.begin(), column.words.end(), text);
    std::fill(out.begin(), out.end(), 0.0F);
    if (found != column.words.end() && *found == text) {
      out[static_cast<std::size_t>(found - column.words.begin())] = 1;
    }
    return "";
  }
  std::optional<double> number = float_of(text);
  if (column.is_scaled) number = exact_number_of(text);
  if (!number && column.may_lack && is_missing(text)) number = column.mean;
  if (!number) return "must be a decimal number";
  if (column.is_scaled) number = (*number - column.mean) / column.deviation;
  if (std::abs(*number) > double{std::numeric_limits<float>::max()}) {
    return "is too far from the numbers of the training set";
  }
  out[0] = static_cast<float>(*number);
  return "";
}

std::string what_is_wrong(std::string_view field, const TableRules& rules) {
  const std::string_view text = trimmed(field);
  if (float_of(text)) return "";
  if (is_missing(text)) {
    if (rules.fills_missing) return "";
    return std::string("must be a decimal number") + (rules.takes_words ? " or a word" : "") +
           ", unless csv.missing is Mean";
  }
  return rules.takes_words ? "" : "must be a decimal number, unless csv.words is OneHot";
}

std::string ColumnSurvey::add(std::string_view field, std::size_t line) {
  const std::string_view text = trimmed(field);
  if (const auto number = exact_number_of(text)) {
    // Source: Welford, "Note on a method for calculating corrected sums of squares and products",
    // Technometrics 4 (1962). In the rows' order, so with the same bits everywhere.
    const double before = *number - mean_;
    mean_ += before / static_cast<double>(++numbers_);
    squares_ += before * (*number - mean_);
    if (has_words_) add_word(field, line);
    has_unlisted_ = has_unlisted_ || !has_words_;
    return "";
  }
  std::string right = what_is_wrong(text, rules_);
  if (!right.empty() || is_missing(text)) return right;
  has_words_ = true;
  add_word(field, line);
  return "";
}

void ColumnSurvey::begin_again() {
  words_.clear();
  wrong_.reset();
}

void ColumnSurvey::add_again(std::string_view field, std::size_t line) {
  if (!is_missing(trimmed(field))) add_word(field, line);
}

void ColumnSurvey::add_word(std::string_view field, std::size_t line) {
  const std::string_view text = trimmed(field);
  if (wrong_ || words_.contains(text)) return;
  std::string right;
  if (text.size() > kMaxWordBytes) {
    right = "a word must have at most " + std::to_string(kMaxWordBytes) + " bytes";
  } else if (!is_utf8(text)) {
    right = "a word must be UTF-8; save the table as UTF-8";
  } else if (words_.size() == kMaxWords) {
    right = "is one more than the " + std::to_string(kMaxWords) +
            " different words that a column may have";
  } else {
    words_.emplace(text);
    return;
  }
  wrong_ = {line, std::string(field.substr(0, kKeptBytes)), std::move(right)};
}

std::optional<TableColumn> ColumnSurvey::finish() const {
  TableColumn column{.name = name_, .words = {words_.begin(), words_.end()}};
  column.may_lack = rules_.fills_missing;
  if (!column.words.empty()) return column;
  if (numbers_ == 0) return std::nullopt;
  column.is_scaled = rules_.is_scaled;
  column.mean = mean_;
  const double deviation = std::sqrt(squares_ / static_cast<double>(numbers_));
  if (deviation > 0) column.deviation = deviation;
  return column;
}

Json inputs_json(std::span<const TableColumn> columns) {
  Json inputs = Json::array();
  for (const TableColumn& column : columns) {
    for (const std::string& word : column.words) {
      inputs.push_back({{"column", column.name}, {"word", word}});
    }
    if (!column.words.empty()) continue;
    Json input{{"column", column.name}};
    if (column.may_lack) input["missing"] = column.mean;
    if (column.is_scaled) {
      input["mean"] = column.mean;
      input["deviation"] = column.deviation;
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

}  // namespace muster::data
