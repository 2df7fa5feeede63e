// A table as text: records of fields with commas between, the first of them the names of the
// columns, plain or as one gzip member. One column is the label, a number or the name of a class;
// all others are features.
// Source: RFC 4180.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/result.h"
#include "worker/data/dataset.h"
#include "worker/data/file.h"

namespace muster::data {

/// Most bytes of the name of a class.
inline constexpr std::size_t kMaxClassNameBytes = 256;

/// Most bytes of what words become, where all of it is held.
inline constexpr std::uint64_t kMaxEncodedBytes = std::uint64_t{4} << 30;

struct CsvSource {
  std::string path;
  std::string label;  ///< name of the column
  TableRules rules;   ///< of a training set; its test set's are the same
  /// Bytes of numbers that may be held. If the rows have more, they stay in their file, unless it
  /// is a gzip member, which can be read from its beginning alone.
  std::uint64_t most_held = std::uint64_t{4} << 30;
  int threads = 1;  ///< that read rows which are not held
  /// As TableFile::Options::on_read.
  std::function<void(std::string_view path)> on_read = {};
  /// Bytes of memory that it may take in all, also where its rows stay in their file.
  std::uint64_t most_memory = kAnyMemory;
};

/// Numbers are decimal and become the nearest float, as they are where the rules say nothing else.
/// Labels are whole numbers from 0 to 255 in every row, or names in every row: those are numbered
/// from 0 in their order, byte by byte, as the classes of image folders are. None may be missing.
/// The path stands in front of every error.
/// `train`: the training set, whose columns and classes they then are; null: this is it.
/// Errors: kInvalid, kTooLarge; one sentence with the line, the column and what would be right,
/// exit code kData; those of check_memory_for().
Result<Dataset> parse_csv(std::string_view text, const CsvSource& source,
                          const Dataset* train = nullptr);

/// parse_csv of a file on disk, which is read piece by piece; once, and where the rules say
/// something once more before, or twice where words come behind numbers.  Errors: also kNotFound,
/// kIo, kCorrupt.  Blocks: on the disk.
Result<Dataset> load_csv(const CsvSource& source);
/// The test set that belongs to `train`: the same columns, no label that `train` lacks.
Result<Dataset> load_test_csv(const CsvSource& source, const Dataset& train);

}  // namespace muster::data
