// What a column of a table is to a model: a number, as it is or scaled, or a word, as one input for
// each word that there is. Means, deviations and words are those of the training set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"

namespace muster::data {

/// Most different words of a column: each is an input of its own.
inline constexpr std::size_t kMaxWords = 4096;
inline constexpr std::size_t kMaxWordBytes = 256;

/// What of a table is taken beside decimal numbers as they are.
struct TableRules {
  bool is_scaled = false;      ///< numbers less their column's mean, by its standard deviation
  bool takes_words = false;    ///< a column may be of words
  bool fills_missing = false;  ///< a field may be missing
  bool operator==(const TableRules&) const = default;
};

struct TableColumn {
  std::string name;
  std::vector<std::string> words{};  ///< in their order, byte by byte; empty: of numbers
  bool may_lack = false;             ///< a field may be missing: `mean` then, or none of the words
  bool is_scaled = false;
  double mean = 0, deviation = 1;  ///< of those that are there; the deviation is never 0

  std::size_t inputs() const { return words.empty() ? 1 : words.size(); }
};

/// The decimal number of a field, within what a float holds.
std::optional<float> float_of(std::string_view field);
std::optional<int> whole_number_of(std::string_view field);
std::string_view trimmed(std::string_view field);
/// Whether a field (trimmed) says that nothing is known: empty, or one of ?, NA, <NA>, N/A, #N/A,
/// n/a, NaN, nan, None, NULL and null, which is what spreadsheets, R and Python write.
bool is_missing(std::string_view field);

/// Writes what a field of the column is to the model.  Shape of `out`: (column.inputs()).
/// A word that the training set lacks is none of its words.
/// Returns "", or what would be right.
std::string encode(const TableColumn& column, std::string_view field, std::span<float> out);

/// "", or what would be right in place of a field that a training table with these rules cannot
/// have.
std::string what_is_wrong(std::string_view field, const TableRules& rules);

/// Learns what a column is from the fields of a training set, told in the order of the rows. Once
/// is enough, but where the first word comes behind numbers, which are words, too, then.
class ColumnSurvey {
 public:
  ColumnSurvey(std::string name, TableRules rules) : name_(std::move(name)), rules_(rules) {}

  /// A field that cannot be a word of the column, which may still be one of numbers.
  struct Wrong {
    std::size_t line = 0;
    std::string field, right;
  };

  /// Returns "", or what would be right.
  std::string add(std::string_view field, std::size_t line);
  /// Whether all fields have to be told once more, to add_again(), after begin_again().
  bool lacks_words() const { return has_words_ && has_unlisted_; }
  void begin_again();
  void add_again(std::string_view field, std::size_t line);

  /// Of the column's fields the first that is wrong.
  const std::optional<Wrong>& wrong() const { return wrong_; }
  /// nullopt: no field had a value.  Requires that no field is wrong.
  std::optional<TableColumn> finish() const;

 private:
  void add_word(std::string_view field, std::size_t line);

  std::string name_;
  TableRules rules_;
  bool has_words_ = false;
  bool has_unlisted_ = false;  ///< numbers that are not among words_
  std::set<std::string, std::less<>> words_;
  std::optional<Wrong> wrong_;
  std::uint64_t numbers_ = 0;
  double mean_ = 0, squares_ = 0;  ///< squares: of the distances from the mean, summed
};

/// What a model's inputs are, in their order: [{"column": NAME}, ...], with "word" where it is 1
/// for that one and 0 for others, "missing" for the number that stands for none, and "mean" and
/// "deviation" where an input is (number - mean) / deviation.
Json inputs_json(std::span<const TableColumn> columns);

}  // namespace muster::data
