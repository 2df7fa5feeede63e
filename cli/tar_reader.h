// A ustar archive as a stream from somebody who is not trusted: regular files with plain relative
// names, and nothing else. Bounded, no IO.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "common/result.h"

namespace muster::cli {

/// Takes what an archive holds. An error of any call ends the reading and is returned.
class TarSink {
 public:
  virtual ~TarSink() = default;
  /// `name` is relative, without empty, "." or ".." parts, without control characters, and has not
  /// been given before.
  virtual Status begin_file(const std::string& name, std::int64_t bytes) = 0;
  virtual Status data(std::string_view piece) = 0;
  virtual Status end_file() = 0;
};

class TarReader {
 public:
  static constexpr std::size_t kMostFiles = 20'000;

  /// `most_bytes`: of all files together.
  TarReader(TarSink& sink, std::int64_t most_bytes) : sink_(sink), bytes_left_(most_bytes) {}

  /// Errors: kCorrupt (no ustar archive, a checksum that does not fit, a link or device, a name
  /// that leaves its directory), kTooLarge. Not to be fed after an error.
  Status feed(std::string_view bytes);
  /// Errors: kCorrupt when the archive's end has not come.
  Status finish() const;
  /// Whether its end has come.
  bool is_whole() const { return zero_blocks_ >= 2; }

 private:
  static constexpr std::size_t kBlock = 512;
  Status take_header();
  Status take_entry();

  TarSink& sink_;
  std::int64_t bytes_left_;
  std::array<char, kBlock> header_{};
  std::size_t header_bytes_ = 0;
  std::int64_t file_left_ = 0;  ///< bytes of the present file still to come
  std::size_t padding_left_ = 0;
  bool is_in_file_ = false;
  int zero_blocks_ = 0;
  std::set<std::string> names_;
};

/// Whether a name may be written below a directory.
bool is_plain_relative_name(std::string_view name);

}  // namespace muster::cli
