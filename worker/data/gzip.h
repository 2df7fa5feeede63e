// One gzip member in memory, read piece by piece. Source: RFC 1951, RFC 1952.
#pragma once

#define ZLIB_CONST
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "common/result.h"

namespace muster::data {

/// Whether a file begins as a gzip member does.
inline bool is_gzip(std::span<const std::uint8_t> file) {
  return file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b;
}

/// Threads: one. File and name outlive it. Errors: kCorrupt, kInvalid; one sentence that begins
/// with the name, exit code kData.
class GzipStream {
 public:
  GzipStream(std::span<const std::uint8_t> file, const std::string& name);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  /// Decoded bytes that there can be at most.
  std::uint64_t bytes_max() const;
  /// Fills `out` as far as bytes are left; fewer only at the end.
  Result<std::size_t> read(std::span<std::uint8_t> out);
  /// After all that was expected: nothing may follow.
  Status finish();

 private:
  std::span<const std::uint8_t> file_;
  const std::string& name_;
  z_stream zlib_ = {};
  std::size_t used_ = 0;
  bool ready_ = false;
  bool ended_ = false;
};

}  // namespace muster::data
