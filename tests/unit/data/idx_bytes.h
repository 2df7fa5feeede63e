// Builders of IDX files and a directory that goes away with the test.
#pragma once

#include <stdlib.h>
#define ZLIB_CONST
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/check.h"

namespace muster::test {

using Bytes = std::vector<std::uint8_t>;

inline Bytes idx_bytes(const std::vector<std::uint32_t>& shape, const Bytes& values) {
  Bytes file{0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  for (const std::uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      file.push_back(static_cast<std::uint8_t>(size >> shift));
    }
  }
  file.insert(file.end(), values.begin(), values.end());
  return file;
}

inline Bytes gzip_bytes(const Bytes& content) {
  z_stream zlib = {};
  MUSTER_CHECK(deflateInit2(&zlib, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes packed(deflateBound(&zlib, content.size()) + 64);
  zlib.next_in = content.data();
  zlib.avail_in = static_cast<uInt>(content.size());
  zlib.next_out = packed.data();
  zlib.avail_out = static_cast<uInt>(packed.size());
  MUSTER_CHECK(deflate(&zlib, Z_FINISH) == Z_STREAM_END);
  packed.resize(zlib.total_out);
  deflateEnd(&zlib);
  return packed;
}

class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "muster-test-XXXXXX").string();
    MUSTER_CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_bytes(const std::string& path, const Bytes& bytes) {
  std::ofstream out(path, std::ios::binary);
  for (const std::uint8_t byte : bytes) out.put(static_cast<char>(byte));
  MUSTER_CHECK(out.good());
}

}  // namespace muster::test
