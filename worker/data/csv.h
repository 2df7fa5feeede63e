// A table as text: records of fields with commas between, the first of them the names of the
// columns, plain or as one gzip member. One column is the label, a number or the name of a class;
// all others are features.
// Source: RFC 4180.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/result.h"
#include "worker/data/dataset.h"

namespace muster::data {

/// Most bytes of a file, and of its decoded content.
inline constexpr std::uint64_t kMaxCsvBytes = std::uint64_t{4} << 30;
/// Most columns, and most inputs that they become.
inline constexpr std::size_t kMaxCsvColumns = std::size_t{1} << 20;
/// Most bytes of the name of a class.
inline constexpr std::size_t kMaxClassNameBytes = 256;

/// Most bytes of what words become.
inline constexpr std::uint64_t kMaxEncodedBytes = std::uint64_t{4} << 30;

struct CsvSource {
  std::string path;
  std::string label;  ///< name of the column
  TableRules rules;   ///< of a training set; its test set's are the same
};

/// Numbers are decimal and become the nearest float, as they are where the rules say nothing else.
/// Labels are whole numbers from 0 to 255 in every row, or names in every row: those are numbered
/// from 0 in their order, byte by byte, as the classes of image folders are. None may be missing.
/// The path stands in front of every error.
/// `train`: the training set, whose columns and classes they then are; null: this is it.
/// Errors: kInvalid, kTooLarge; one sentence with the line, the column and what would be right,
/// exit code kData.
Result<Dataset> parse_csv(std::string_view text, const CsvSource& source,
                          const Dataset* train = nullptr);

/// parse_csv of a file on disk.  Errors: also kNotFound, kIo, kCorrupt.  Blocks: on the disk.
Result<Dataset> load_csv(const CsvSource& source);
/// The test set that belongs to `train`: the same columns, no label that `train` lacks.
Result<Dataset> load_test_csv(const CsvSource& source, const Dataset& train);

}  // namespace muster::data
