#include "worker/data/csv.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/sha256.h"
#include "common/utf8.h"
#include "worker/data/csv_records.h"
#include "worker/data/file.h"
#include "worker/data/permutation.h"
#include "worker/data/table_file.h"

namespace muster::data {
namespace {

constexpr std::size_t kShownBytes = 40;
constexpr std::size_t kShownColumns = 8;
constexpr const char* kTooManyWords =
    "the table becomes more than 4 GiB, with an input for each word; leave out columns of many "
    "words";

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

  std::uint64_t bytes() const { return labels_.size(); }

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

/// What a table is read from.
struct TableBytes {
  std::string_view text = {};
  TableText* file = nullptr;  ///< in place of `text`
};

/// The rows of a table, as often as they are needed.
class Rows {
 public:
  static Result<Rows> of(const TableBytes& bytes, const CsvSource& source) {
    Rows rows(bytes, source);
    Records records = rows.records();
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
  std::size_t label_at() const { return label_at_; }
  const std::string& path() const { return source_.path; }

  /// of_feature(c, field, line) for each field of each row, c a column's number among features(),
  /// and of_label(field); both return "", or what would be right, which ends it. Then
  /// of_row(records), where the row is the newest; what is wrong there ends it, too.
  template <typename Feature, typename Label, typename Row>
  Status each(Feature&& of_feature, Label&& of_label, Row&& of_row) const {
    Records records = this->records();
    MUSTER_ASSIGN_OR_RETURN(bool has_row, records.next());  // the header
    for (;;) {
      MUSTER_ASSIGN_OR_RETURN(has_row, records.next());
      if (!has_row) return {};
      const std::vector<std::string>& fields = records.fields();
      if (fields.size() != header_.size()) {
        return bad_data(path(), ErrorCode::kInvalid,
                        "line " + std::to_string(records.line()) + " has " +
                            std::to_string(fields.size()) + " columns, the first line " +
                            std::to_string(header_.size()) + "; they must be equal");
      }
      for (std::size_t i = 0; i < fields.size(); ++i) {
        const std::string right = i == label_at_
                                      ? of_label(trimmed(fields[i]))
                                      : of_feature(i - (i > label_at_), fields[i], records.line());
        if (!right.empty()) return bad_field(header_[i], {records.line(), fields[i], right});
      }
      MUSTER_RETURN_IF_ERROR(of_row(records));
    }
  }

  Error bad_field(const std::string& column, const ColumnSurvey::Wrong& wrong) const {
    return bad_data(path(), ErrorCode::kInvalid,
                    "line " + std::to_string(wrong.line) + ": column " + shown(column) + " is " +
                        shown(wrong.field) + "; " + wrong.right);
  }

 private:
  Rows(const TableBytes& bytes, const CsvSource& source) : bytes_(bytes), source_(source) {}

  Records records() const {
    if (bytes_.file == nullptr) return {bytes_.text, source_.path};
    bytes_.file->rewind();
    return {*bytes_.file, source_.path};
  }

  TableBytes bytes_;
  const CsvSource& source_;
  std::vector<std::string> header_;
  std::size_t label_at_ = 0;
};

/// Of the fields that cannot be words of their columns the one that stands first.
Status first_wrong(const Rows& rows, const std::vector<std::string>& names,
                   const std::vector<ColumnSurvey>& surveys) {
  const ColumnSurvey::Wrong* first = nullptr;
  std::size_t column = 0;
  for (std::size_t c = 0; c < surveys.size(); ++c) {
    const auto& wrong = surveys[c].wrong();
    if (!wrong || (first != nullptr && first->line <= wrong->line)) continue;
    first = &*wrong;
    column = c;
  }
  return first == nullptr ? Status() : Status(rows.bad_field(names[column], *first));
}

/// Once through the table, or twice where words come behind numbers.
Status survey_all(const Rows& rows, const std::vector<std::string>& names,
                  std::vector<ColumnSurvey>& surveys, std::uint64_t& count) {
  const auto no_label = [](std::string_view) { return std::string(); };
  MUSTER_RETURN_IF_ERROR(rows.each([&](std::size_t c, std::string_view field,
                                       std::size_t line) { return surveys[c].add(field, line); },
                                   no_label,
                                   [&](const Records&) {
                                     ++count;
                                     return Status();
                                   }));
  std::vector<std::uint8_t> is_again;
  for (const ColumnSurvey& one : surveys) is_again.push_back(one.lacks_words() ? 1 : 0);
  if (std::ranges::count(is_again, 1) > 0) {
    for (std::size_t c = 0; c < surveys.size(); ++c) {
      if (is_again[c] != 0) surveys[c].begin_again();
    }
    MUSTER_RETURN_IF_ERROR(rows.each(
        [&](std::size_t c, std::string_view field, std::size_t line) {
          if (is_again[c] != 0) surveys[c].add_again(field, line);
          return std::string();
        },
        no_label, [](const Records&) { return Status(); }));
  }
  return first_wrong(rows, names, surveys);
}

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
  std::uint64_t count = 0;
  MUSTER_RETURN_IF_ERROR(survey_all(rows, names, surveys, count));
  if (count == 0) return columns;
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

/// Takes the values of rows, in their order: held as long as there is room, then hashed alone.
class Encoded {
 public:
  /// `most_held`: bytes; nothing where all are to be held.
  explicit Encoded(std::optional<std::uint64_t> most_held) : most_held_(most_held) {}

  bool is_held() const { return is_held_; }
  std::uint64_t bytes() const { return bytes_; }

  /// Gives up what need not be held any more. The bytes that all takes while one more row of so
  /// many values is added: what must grow for it is there twice for a moment.
  std::uint64_t make_room(std::size_t row) {
    bytes_ += row * sizeof(float);
    const bool was_held = std::exchange(is_held_, !most_held_ || bytes_ <= *most_held_);
    if (was_held != is_held_ || (!is_held_ && values_.size() >= kHashedAtOnce)) hash_values();
    const std::size_t values = values_.size() + row;
    const std::size_t moved = values > values_.capacity() ? values_.size() : 0;
    return (values + moved) * sizeof(float) +
           (places_.offsets.size() + (most_held_ ? 1 : 0)) * sizeof(std::uint64_t);
  }

  /// After make_room() for it.
  void add(std::span<const float> row, const Records& at) {
    values_.insert(values_.end(), row.begin(), row.end());
    if (!most_held_) return;
    places_.offsets.push_back(at.offset());
    places_.end = at.end();
    places_.longest = std::max(places_.longest, at.end() - at.offset());
  }

  std::vector<float> take_values() { return std::move(values_); }

  /// Of rows that are not held.
  TableRows take_places(std::span<const std::uint8_t> labels) {
    hash_values();
    hash_.update(std::as_bytes(labels));
    places_.digest = hash_.finish();
    return std::move(places_);
  }

 private:
  static constexpr std::size_t kHashedAtOnce = std::size_t{1} << 18;

  void hash_values() {
    hash_.update(std::as_bytes(std::span(values_)));
    values_.clear();
    if (values_.capacity() > 2 * kHashedAtOnce) values_.shrink_to_fit();
  }

  std::optional<std::uint64_t> most_held_;
  bool is_held_ = true;
  std::uint64_t bytes_ = 0;
  std::vector<float> values_;
  Sha256 hash_;
  TableRows places_;
};

Result<Dataset> read_table(const TableBytes& bytes, const CsvSource& source, const Dataset* train) {
  MUSTER_ASSIGN_OR_RETURN(const Rows rows, Rows::of(bytes, source));
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
  std::vector<std::size_t> at;  // of each column its first input
  for (const TableColumn& column : table.columns) {
    at.push_back(table.features);
    table.features += column.inputs();
  }
  table.width = table.features;
  Labels labels(train);
  const bool may_stay = bytes.file != nullptr && !bytes.file->is_packed();
  Encoded encoded(may_stay ? std::optional(source.most_held) : std::nullopt);
  const std::uint64_t packed = bytes.file == nullptr ? 0 : bytes.file->memory();
  std::vector<float> row(table.features);
  MUSTER_RETURN_IF_ERROR(rows.each(
      [&](std::size_t c, std::string_view field, std::size_t) -> std::string {
        const TableColumn& column = table.columns[c];
        if (!may_stay && !column.words.empty() && encoded.bytes() > kMaxEncodedBytes) {
          return kTooManyWords;
        }
        const std::string right =
            encode(column, field, std::span(row).subspan(at[c], column.inputs()));
        // Where all were to be numbers as they are, nobody has looked yet.
        return right.empty() || train != nullptr ? right : what_is_wrong(field, source.rules);
      },
      [&](std::string_view label) { return labels.add(label); },
      [&](const Records& records) -> Status {
        const std::uint64_t needs = packed + labels.bytes() + encoded.make_room(row.size());
        Status fits = check_memory_for(source.path, needs, source.most_memory);
        if (fits) encoded.add(row, records);
        return fits;
      }));
  labels.finish(table);
  table.count = table.labels.size();
  if (table.count == 0) {
    return bad_data(source.path, ErrorCode::kInvalid, "has no row behind the names of its columns");
  }
  if (table.count > Permutation::kMostSamples) {
    return bad_data(source.path, ErrorCode::kTooLarge,
                    "has " + std::to_string(table.count) + " rows; at most " +
                        std::to_string(Permutation::kMostSamples) + " are read, so leave rows out");
  }
  if (encoded.is_held()) {
    table.values = encoded.take_values();
  } else {
    table.rows = std::make_shared<TableFile>(
        TableFile::Options{source.path, source.threads, source.most_held, source.on_read},
        bytes.file->take_file(), table.columns, rows.label_at(), encoded.take_places(table.labels));
  }
  return table;
}

Result<Dataset> load_table(const CsvSource& source, const Dataset* train) {
  MUSTER_ASSIGN_OR_RETURN(const auto text, TableText::open(source.path, source.most_memory));
  return read_table({{}, text.get()}, source, train);
}

}  // namespace

Result<Dataset> parse_csv(std::string_view text, const CsvSource& source, const Dataset* train) {
  return read_table({text}, source, train);
}

Result<Dataset> load_csv(const CsvSource& source) { return load_table(source, nullptr); }

Result<Dataset> load_test_csv(const CsvSource& source, const Dataset& train) {
  return load_table(source, &train);
}

}  // namespace muster::data
