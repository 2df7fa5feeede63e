// The text of a table, cut into records of fields, piece by piece: a file need not be in memory.
// Source: RFC 4180.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/result.h"
#include "worker/data/file.h"
#include "worker/data/gzip.h"

namespace muster::data {

/// Most bytes of a file.
inline constexpr std::uint64_t kMaxCsvBytes = std::uint64_t{1} << 40;
/// Most bytes of one that is a gzip member, and of what it is decoded to: both are in memory.
inline constexpr std::uint64_t kMaxPackedCsvBytes = std::uint64_t{4} << 30;
/// Most columns, and most inputs that they become.
inline constexpr std::size_t kMaxCsvColumns = std::size_t{1} << 20;
/// Most bytes of a record.
inline constexpr std::size_t kMaxRecordBytes = std::size_t{64} << 20;

/// The bytes of a file, plain or a gzip member, as often as they are needed. Errors name its path
/// and have an exit code.  Threads: one.
class TableText {
 public:
  /// A gzip member may take `most_memory`.  Errors: also those of check_memory_for().
  static Result<std::unique_ptr<TableText>> open(const std::string& path,
                                                 std::uint64_t most_memory = kAnyMemory);

  /// From the first byte on, again.
  void rewind();
  /// Fills `out` as far as bytes are left; fewer only at the end.  Errors: also kCorrupt for a file
  /// that was written to since it was opened.  Blocks: on the disk.
  Result<std::size_t> read(std::span<std::uint8_t> out);

  bool is_packed() const { return !packed_.empty(); }
  /// Bytes of it that are in memory.
  std::uint64_t memory() const { return packed_.size(); }
  const RegularFile& file() const { return file_; }
  /// Whoever takes it reads on by itself.
  RegularFile take_file() { return std::move(file_); }

 private:
  explicit TableText(std::string path) : path_(std::move(path)) {}

  std::string path_;
  RegularFile file_;
  std::uint64_t at_ = 0;
  std::vector<std::uint8_t> packed_;  ///< the file, where it is a gzip member
  std::unique_ptr<GzipStream> gzip_;
};

/// Splits a text into records, one after the other.
class Records {
 public:
  /// What they are read from, and the name, outlive them. `is_of_begin`: the text is that of a
  /// file from its beginning on, where a byte order mark counts for nothing.
  Records(std::string_view text, const std::string& name, bool is_of_begin = true);
  Records(TableText& text, const std::string& name) : text_(&text), name_(name) {}

  /// The next record that is no empty line; false: there is none.
  Result<bool> next();
  const std::vector<std::string>& fields() const { return fields_; }
  /// Where the record begins; the first line of the file is 1.
  std::size_t line() const { return line_; }
  /// In bytes of the text: where the record begins, and where the next line does.
  std::uint64_t offset() const { return offset_; }
  std::uint64_t end() const { return offset_ + bytes_; }

 private:
  Status read();
  Status read_quoted(std::string& field);
  Result<bool> read_more();

  TableText* text_ = nullptr;
  const std::string& name_;
  std::vector<std::uint8_t> piece_;  ///< of `text_`
  std::string_view rest_;            ///< of the text as far as it is read
  bool is_begun_ = false;
  bool is_cut_ = false;  ///< what follows what is read may change what the record is
  std::vector<std::string> fields_;
  std::size_t line_ = 1, lines_ = 0;  ///< lines: of the record that was read last
  std::uint64_t offset_ = 0, bytes_ = 0;
};

}  // namespace muster::data
