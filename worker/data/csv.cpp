#include "worker/data/csv.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/utf8.h"
#include "worker/data/file.h"
#include "worker/data/gzip.h"

namespace muster::data {
namespace {

constexpr std::size_t kShownBytes = 40;
constexpr std::size_t kShownColumns = 8;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr const char* kTooManyWords =
    "the table becomes more than 4 GiB, with an input for each word; leave out columns of many "
    "words";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

/// What stands in a file, fit to be read in an error.
std::string shown(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(text));
    if (out.size() + length > 1 + kShownBytes) return out + "...\"";
    const auto first = static_cast<unsigned char>(text[0]);
    const bool is_readable = first >= 0x20 && first != 0x7f && utf8_length(text) > 0;
    out += is_readable ? text.substr(0, length) : "?";
    text.remove_prefix(length);
  }
  return out + "\"";
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
    if (is_missing(text)) {
      return "a label must not be missing: leave the row out, or name the class otherwise";
    }
    if (kind_ == Kind::kUnknown) kind_ = float_of(text) ? Kind::kNumbers : Kind::kNames;
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
    table.classes = train_ ? train_->classes : std::max(2, classes_);
  }

 private:
  enum class Kind { kUnknown, kNumbers, kNames };

  std::string add_number(std::string_view text) {
    const auto label = whole_number_of(text);
    if (!label || *label < 0 || *label >= kMaxClasses) {
      return train_ ? "a label must be a whole number from 0 to 255, as in the training set"
                    : "labels must be whole numbers from 0 to 255, or all of them names";
    }
    if (train_ && *label >= train_->classes) {
      return "the labels of the training set are from 0 to " + std::to_string(train_->classes - 1);
    }
    labels_.push_back(static_cast<std::uint8_t>(*label));
    classes_ = std::max(classes_, *label + 1);
    return "";
  }

  std::string add_name(std::string_view text) {
    auto found = number_.find(text);
    if (found == number_.end()) {
      if (train_) return "must be a class of the training set";
      if (float_of(text)) return "labels must be all names, or all whole numbers";
      if (!is_utf8(text)) return "the name of a class must be UTF-8; save the table as UTF-8";
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

/// The rows of a table, as often as they are needed.
class Rows {
 public:
  static Result<Rows> of(std::string_view text, const CsvSource& source) {
    Rows rows(text, source);
    Records records(text, source.path);
    MUSTER_ASSIGN_OR_RETURN(const bool has_header, records.next());
    if (!has_header) {
      return bad_data(source.path, ErrorCode::kInvalid,
                      "is empty; its first line must name its columns");
    }
    for (const auto& field : records.fields()) {
      rows.header_.emplace_back(trimmed(field));
      if (is_utf8(rows.header_.back())) continue;
      return bad_data(source.path, ErrorCode::kInvalid,
                      "line " + std::to_string(records.line()) + ": the name of column " +
                          std::to_string(rows.header_.size()) + ", " + shown(rows.header_.back()) +
                          ", is not UTF-8; save the table as UTF-8");
    }
    MUSTER_ASSIGN_OR_RETURN(rows.label_at_, label_column(rows.header_, source.label, source.path));
    return rows;
  }

  /// Names of the columns that are features.
  std::vector<std::string> features() const {
    std::vector<std::string> names = header_;
    names.erase(names.begin() + static_cast<std::ptrdiff_t>(label_at_));
    return names;
  }
  const std::string& path() const { return source_.path; }

  /// of_feature(c, field) for each field of each row, c a column's number among features(), and
  /// of_label(field); both return "", or what would be right, which ends it.
  template <typename Feature, typename Label>
  Status each(Feature&& of_feature, Label&& of_label) const {
    Records records(text_, source_.path);
    MUSTER_ASSIGN_OR_RETURN(bool has_row, records.next());  // the header
    for (;;) {
      MUSTER_ASSIGN_OR_RETURN(has_row, records.next());
      if (!has_row) return {};
      const std::vector<std::string>& fields = records.fields();
      if (fields.size() != header_.size()) {
        return bad(records, " has " + std::to_string(fields.size()) + " columns, the first line " +
                                std::to_string(header_.size()) + "; they must be equal");
      }
      for (std::size_t i = 0; i < fields.size(); ++i) {
        const std::string right = i == label_at_ ? of_label(trimmed(fields[i]))
                                                 : of_feature(i - (i > label_at_), fields[i]);
        if (right.empty()) continue;
        return bad(records,
                   ": column " + shown(header_[i]) + " is " + shown(fields[i]) + "; " + right);
      }
    }
  }

 private:
  Rows(std::string_view text, const CsvSource& source) : text_(text), source_(source) {}

  Status bad(const Records& at, const std::string& message) const {
    return bad_data(source_.path, ErrorCode::kInvalid,
                    "line " + std::to_string(at.line()) + message);
  }

  std::string_view text_;
  const CsvSource& source_;
  std::vector<std::string> header_;
  std::size_t label_at_ = 0;
};

/// What the columns of a training set are.
Result<std::vector<TableColumn>> survey(const Rows& rows, TableRules rules) {
  std::vector<TableColumn> columns;
  const std::vector<std::string> names = rows.features();
  if (rules == TableRules{}) {
    for (const std::string& name : names) columns.push_back({.name = name});
    return columns;
  }
  std::vector<ColumnSurvey> surveys;
  for (const std::string& name : names) surveys.emplace_back(name, rules);
  const auto no_label = [](std::string_view) { return std::string(); };
  std::uint64_t count = 0;
  MUSTER_RETURN_IF_ERROR(
      rows.each([&](std::size_t c, std::string_view field) { return surveys[c].look(field); },
                [&](std::string_view) { return ++count, std::string(); }));
  if (count == 0) return columns;
  MUSTER_RETURN_IF_ERROR(rows.each(
      [&](std::size_t c, std::string_view field) { return surveys[c].count(field); }, no_label));
  std::size_t inputs = 0;
  for (std::size_t c = 0; c < names.size(); ++c) {
    auto column = surveys[c].finish();
    if (!column) {
      return bad_data(rows.path(), ErrorCode::kInvalid,
                      "column " + shown(names[c]) + " has no value in any row; leave it out");
    }
    inputs += column->inputs();
    columns.push_back(std::move(*column));
  }
  if (inputs > kMaxCsvColumns) {
    return bad_data(rows.path(), ErrorCode::kTooLarge,
                    "becomes " + std::to_string(inputs) +
                        " inputs, with one for each word; leave out columns of many words");
  }
  return columns;
}

bool are_columns_of(const Rows& rows, const Dataset& train) {
  const std::vector<std::string> names = rows.features();
  return std::equal(
      names.begin(), names.end(), train.columns.begin(), train.columns.end(),
      [](const auto& name, const TableColumn& column) { return name == column.name; });
}

Result<std::string> text_of(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(const auto file, read_file(path, kMaxCsvBytes));
  if (!is_gzip(file)) return std::string(file.begin(), file.end());
  GzipStream stream(file, path);
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

Result<Dataset> parse_csv(std::string_view text, const CsvSource& source, const Dataset* train) {
  MUSTER_ASSIGN_OR_RETURN(const Rows rows, Rows::of(text, source));
  Dataset table;
  if (train == nullptr) {
    MUSTER_ASSIGN_OR_RETURN(table.columns, survey(rows, source.rules));
  } else if (are_columns_of(rows, *train)) {
    table.columns = train->columns;
  } else {
    return bad_data(source.path, ErrorCode::kInvalid,
                    "its columns, without the label, are not those of the training set; names and "
                    "order must be the same");
  }
  for (const TableColumn& column : table.columns) table.features += column.inputs();
  table.width = table.features;
  Labels labels(train);
  MUSTER_RETURN_IF_ERROR(rows.each(
      [&](std::size_t c, std::string_view field) -> std::string {
        const TableColumn& column = table.columns[c];
        const std::size_t at = table.values.size();
        if (!column.words.empty() && at > kMaxEncodedBytes / sizeof(float)) return kTooManyWords;
        table.values.resize(at + column.inputs());
        const std::string right = encode(column, field, std::span(table.values).subspan(at));
        // Where all were to be numbers as they are, nobody has looked yet.
        return right.empty() || train != nullptr
                   ? right
                   : ColumnSurvey(column.name, source.rules).look(field);
      },
      [&](std::string_view label) { return labels.add(label); }));
  labels.finish(table);
  table.count = table.labels.size();
  if (table.count == 0) {
    return bad_data(source.path, ErrorCode::kInvalid, "has no row behind the names of its columns");
  }
  return table;
}

Result<Dataset> load_csv(const CsvSource& source) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, text_of(source.path));
  return parse_csv(text, source);
}

Result<Dataset> load_test_csv(const CsvSource& source, const Dataset& train) {
  MUSTER_ASSIGN_OR_RETURN(const std::string text, text_of(source.path));
  return parse_csv(text, source, &train);
}

}  // namespace muster::data
