// A table of numbers as text: records of fields with commas between, the first of them the names of
// the columns, plain or as one gzip member. One column is the label, all others are features.
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
/// Most columns.
inline constexpr std::size_t kMaxCsvColumns = std::size_t{1} << 20;

struct CsvSource {
  std::string path;
  std::string label;  ///< name of the column
};

/// Numbers are decimal and become the nearest float, as they are; labels are whole numbers from 0
/// to 255. `name` stands in front of every error.
/// Errors: kInvalid, kTooLarge; one sentence with the line, the column and what would be right,
/// exit code kData.
Result<Dataset> parse_csv(std::string_view text, const std::string& label, const std::string& name);

/// parse_csv of a file on disk.  Errors: also kNotFound, kIo, kCorrupt.  Blocks: on the disk.
Result<Dataset> load_csv(const CsvSource& source);
/// The test set that belongs to `train`: the same columns, no label that `train` lacks.
Result<Dataset> load_test_csv(const CsvSource& source, const Dataset& train);

}  // namespace muster::data
