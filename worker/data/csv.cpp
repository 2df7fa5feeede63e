#include "worker/data/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/contract.h"
#include "worker/data/file.h"
#include "worker/data/gzip.h"

namespace muster::data {
namespace {

constexpr std::size_t kShownBytes = 40;
constexpr std::size_t kShownColumns = 8;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// What stands in a file, fit to be read in an error.
std::string shown(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kShownBytes)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out + (text.size() > kShownBytes ? "...\"" : "\"");
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

template <typename T>
std::optional<T> number_of(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Decimal, and within what a float holds.
std::optional<float> float_of(std::string_view field) {
  std::string_view text = trimmed(field);
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) {
    return std::nullopt;
  }
  if (const auto value = number_of<float>(text)) return value;
  // Nearer to 0 than to any other float.
  const auto wide = number_of<double>(text);
  return wide && std::abs(*wide) < 1 ? std::optional(0.0F) : std::nullopt;
}

/// Splits a text into records, one after the other.
class Records {
 public:
  Records(std::string_view text, const std::string& name) : rest_(text), name_(name) {
    if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
  }

  /// The next record that is no empty line; false: there is none.
  Result<bool> next() {
    do {
      if (rest_.empty()) return false;
      line_ += std::exchange(lines_, 0);
      MUSTER_RETURN_IF_ERROR(read());
    } while (fields_.size() == 1 && fields_[0].empty());
    return true;
  }
  const std::vector<std::string>& fields() const { return fields_; }
  /// Where the record begins; the first line of the file is 1.
  std::size_t line() const { return line_; }

 private:
  Status read() {
    fields_.clear();
    for (;;) {
      std::string field;
      if (rest_.starts_with('"')) {
        MUSTER_RETURN_IF_ERROR(read_quoted(field));
      } else {
        const std::size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
        field = rest_.substr(0, end);
        rest_.remove_prefix(end);
        if (!rest_.starts_with(',') && field.ends_with('\r')) field.pop_back();
      }
      fields_.push_back(std::move(field));
      if (fields_.size() > kMaxCsvColumns) {
        return bad_data(name_, ErrorCode::kTooLarge,
                        "line " + std::to_string(line_) + " has more than " +
                            std::to_string(kMaxCsvColumns) + " columns");
      }
      if (!rest_.starts_with(',')) break;
      rest_.remove_prefix(1);
    }
    if (!rest_.empty()) {
      rest_.remove_prefix(1);  // the end of the line
      ++lines_;
    }
    return {};
  }

  Status read_quoted(std::string& field) {
    rest_.remove_prefix(1);
    for (;;) {
      const std::size_t end = rest_.find('"');
      if (end == std::string_view::npos) {
        return bad_data(name_, ErrorCode::kInvalid,
                        "line " + std::to_string(line_) + " begins a quoted field without an end");
      }
      field += rest_.substr(0, end);
      rest_.remove_prefix(end + 1);
      if (!rest_.starts_with('"')) break;
      field += '"';  // two of them stand for one
      rest_.remove_prefix(1);
    }
    lines_ += static_cast<std::size_t>(std::count(field.begin(), field.end(), '\n'));
    if (rest_.starts_with("\r\n") || rest_ == "\r") rest_.remove_prefix(1);
    if (!rest_.empty() && rest_[0] != ',' && rest_[0] != '\n') {
      return bad_data(name_, ErrorCode::kInvalid,
                      "line " + std::to_string(line_) +
                          " goes on behind a quoted field; must have a comma there");
    }
    return {};
  }

  std::string_view rest_;
  const std::string& name_;
  std::vector<std::string> fields_;
  std::size_t line_ = 1, lines_ = 0;  ///< lines: of the record that was read last
};

/// Which of the header's columns is the label.
Result<std::size_t> label_column(const std::vector<std::string>& header, const std::string& label,
                                 const std::string& name) {
  const auto bad = [&](const std::string& message) {
    return bad_data(name, ErrorCode::kInvalid, message);
  };
  const auto count = std::count(header.begin(), header.end(), label);
  if (count > 1) {
    return bad("has " + std::to_string(count) + " columns " + shown(label) + "; must have one");
  }
  if (count == 0) {
    std::string there;
    for (std::size_t i = 0; i < std::min(header.size(), kShownColumns); ++i) {
      there += (i == 0 ? "" : ", ") + shown(header[i]);
    }
    if (header.size() > kShownColumns) there += ", ...";
    return bad("its first line has no column " + shown(label) + ", which is to be the label, but " +
               there);
  }
  if (header.size() < 2) return bad("has no column besides the label " + shown(label));
  return static_cast<std::size_t>(std::find(header.begin(), header.end(), label) - header.begin());
}

/// The labels of a table's rows.
class Labels {
 public:
  /// `train`: whose classes they are; null: they have their own.
  explicit Labels(const Dataset* train) : train_(train) {
    if (!train_) return;
    kind_ = train_->class_names.empty() ? Kind::kNumbers : Kind::kNames;
    for (const std::string& known : train_->class_names) number_.emplace(known, number_.size());
  }

  /// Takes the next row's. Returns "", or what would be right.
  std::string add(std::string_view text) {
    if (kind_ == Kind::kUnknown && !text.empty()) {
      kind_ = float_of(text) ? Kind::kNumbers : Kind::kNames;
    }
    return kind_ == Kind::kNames ? add_name(text) : add_number(text);
  }

  void finish(Dataset& table) {
    if (kind_ == Kind::kNames) {
      std::vector<std::uint8_t> in_order(number_.size());
      for (const auto& [known, number] : number_) {
        in_order[number] = static_cast<std::uint8_t>(table.class_names.size());
        table.class_names.push_back(known);
      }
      for (std::uint8_t& label : labels_) label = in_order[label];
      classes_ = static_cast<int>(number_.size());
    }
    table.labels = std::move(labels_);
    table.classes = std::max(2, classes_);
  }

 private:
  enum class Kind { kUnknown, kNumbers, kNames };

  std::string add_number(std::string_view text) {
    const auto label = number_of<int>(text);
    if (!label || *label < 0 || *label >= kMaxClasses) {
      return train_ ? "a label must be a whole number from 0 to 255, as in the training set"
                    : "labels must be whole numbers from 0 to 255, or all of them names";
    }
    labels_.push_back(static_cast<std::uint8_t>(*label));
    classes_ = std::max(classes_, *label + 1);
    return "";
  }

  std::string add_name(std::string_view text) {
    auto found = number_.find(text);
    if (found == number_.end()) {
      if (train_) return "must be a class of the training set";
      if (text.empty() || float_of(text)) return "labels must be all names, or all whole numbers";
      if (text.size() > kMaxClassNameBytes) {
        return "the name of a class must have at most " + std::to_string(kMaxClassNameBytes) +
               " bytes";
      }
      if (number_.size() == std::size_t{kMaxClasses}) {
        return "is one more than the " + std::to_string(kMaxClasses) +
               " classes that there may be at most";
      }
      found = number_.emplace(text, number_.size()).first;
    }
    labels_.push_back(static_cast<std::uint8_t>(found->second));
    return "";
  }

  const Dataset* train_;
  Kind kind_ = Kind::kUnknown;
  std::vector<std::uint8_t> labels_;  ///< of names: by the number in which they were met
  std::map<std::string, std::size_t, std::less<>> number_;
  int classes_ = 0;  ///< of numbers
};

/// Appends what one row has.
Status read_row(const Records& row, const std::vector<std::string>& header, std::size_t label_at,
                Dataset& table, Labels& labels, const std::string& name) {
  const std::vector<std::string>& fields = row.fields();
  const auto bad = [&](const std::string& message) {
    return bad_data(name, ErrorCode::kInvalid, "line " + std::to_string(row.line()) + message);
  };
  const auto wrong = [&](std::size_t i, const std::string& right) {
    return bad(": column " + shown(header[i]) + " is " + shown(fields[i]) + "; " + right);
  };
  if (fields.size() != header.size()) {
    return bad(" has " + std::to_string(fields.size()) + " columns, the first line " +
               std::to_string(header.size()) + "; they must be equal");
  }
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (i == label_at) {
      const std::string right = labels.add(trimmed(fields[i]));
      if (!right.empty()) return wrong(i, right);
    } else {
      const auto value = float_of(fields[i]);
      if (!value) return wrong(i, "must be a decimal number");
      table.values.push_back(*value);
    }
  }
  return {};
}

Result<std::string> text_of(const std::string& path) {
  auto file = read_file(path, kMaxCsvBytes);
  if (!file) return file.error().with_exit_code(contract::exit_code::kData);
  if (!is_gzip(*file)) return std::string(file->begin(), file->end());
  GzipStream stream(*file, path);
  std::string text;
  for (std::size_t got = kPieceBytes; got == kPieceBytes;) {
    if (text.size() > kMaxCsvBytes) {
      return bad_data(path, ErrorCode::kTooLarge,
                      "decodes to more than " + std::to_string(kMaxCsvBytes) + " bytes");
    }
    const std::size_t before = text.size();
    text.resize(before + kPieceBytes);
    const std::span piece(reinterpret_cast<std::uint8_t*>(text.data()) + before, kPieceBytes);
    MUSTER_ASSIGN_OR_RETURN(got, stream.read(piece));
    text.resize(before + got);
  }
  MUSTER_RETURN_IF_ERROR(stream.finish());
  return text;
}

}  // namespace

Result<Dataset> parse_csv(std::string_view text, const std::string& label, const std::string& name,
                          const Dataset* train) {
  Records records(text, name);
  MUSTER_ASSIGN_OR_RETURN(const bool has_header, records.next());
  if (!has_header) {
    return bad_data(name, ErrorCode::kInvalid, "is empty; its first line must name its columns");
  }
  std::vector<std::string> header;
  for (const std::string& field : records.fields()) header.emplace_back(trimmed(field));
  MUSTER_ASSIGN_OR_RETURN(const std::size_t label_at, label_column(header, label, name));
  Dataset table;
  table.features = table.width = header.size() - 1;
  for (std::size_t i = 0; i < header.size(); ++i) {
    if (i != label_at) table.columns.push_back(header[i]);
  }
  Labels labels(train);
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const bool has_row, records.next());
    if (!has_row) break;
    MUSTER_RETURN_IF_ERROR(read_row(records, header, label_at, table, labels, name));
  }
  labels.finish(table);
  table.count = table.labels.size();
  if (table.count == 0) {
    return bad_data(name, ErrorCode::kInvalid, "has no row behind the names of its columns");
  }
  return table;
}

Result<Dataset> load_csv(const CsvSource& source) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, text_of(source.path));
  return parse_csv(text, source.label, source.path);
}

Result<Dataset> load_test_csv(const CsvSource& source, const Dataset& train) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, text_of(source.path));
  MUSTER_ASSIGN_OR_RETURN(Dataset test, parse_csv(text, source.label, source.path, &train));
  if (test.columns != train.columns) {
    return bad_data(source.path, ErrorCode::kInvalid,
                    "its columns, without the label, are not those of the training set; names and "
                    "order must be the same");
  }
  MUSTER_RETURN_IF_ERROR(fit_labels(test, train, source.path));
  return test;
}

}  // namespace muster::data
