// The rows of a table that stay in their file: where each begins is known, and those of the next
// step are read and encoded before they are wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/sha256.h"
#include "worker/data/file.h"
#include "worker/data/read_ahead.h"
#include "worker/data/table_column.h"

namespace muster::data {

/// What was found of a table's rows when all were read.
struct TableRows {
  /// Where each begins, in bytes of the file. No vector, of which there would be two when it grows.
  std::deque<std::uint64_t> offsets = {};
  std::uint64_t end = 0;      ///< of the last one
  std::uint64_t longest = 0;  ///< in bytes
  Sha256Digest digest{};      ///< over all values and then the labels
};

/// Threads: one, that on_read bears.
class TableFile {
 public:
  struct Options {
    std::string path;
    int threads = 1;  ///< that read ahead
    /// Bytes of tables that may be held; a part of that many wait to be taken.
    std::uint64_t most_held = 0;
    /// Around each read, which may take any time: the path of the file before, empty after.
    std::function<void(std::string_view path)> on_read = {};
  };

  /// `label_at`: the place of the label's column, which is none of `columns`, in the file.
  TableFile(Options options, RegularFile file, std::vector<TableColumn> columns,
            std::size_t label_at, TableRows rows);

  const Sha256Digest& digest() const { return rows_.digest; }
  /// Bytes that it takes as long as rows are read.
  std::size_t memory() const;

  /// The values of a row.  Shape: out (sum of the columns' inputs).  Errors: kIo, exit code kDisk;
  /// kCorrupt, exit code kData: the file is not what it was.  Blocks: on the disk.
  Status read(std::uint64_t index, std::span<float> out) const;

  /// Has the rows read that will be wanted next, in this order.
  void want(std::span<const std::uint64_t> indices) const { ahead_->want(indices); }

 private:
  std::size_t bytes() const { return inputs_ * sizeof(float); }
  std::size_t rows_at_once() const;
  Status encode_row(std::uint64_t index, std::span<float> out) const;

  Options options_;
  RegularFile file_;
  std::vector<TableColumn> columns_;
  std::size_t label_at_;
  std::size_t inputs_ = 0;
  TableRows rows_;
  std::unique_ptr<ReadAhead> ahead_;  ///< last: its threads use all else
};

}  // namespace muster::data
