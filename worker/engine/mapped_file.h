// A file's content in the pages of the file: the kernel takes their memory back as it likes. The
// file is one that nobody makes shorter while it is open; if somebody does, or a disk or a server
// of files fails to give a page, the process ends with SIGBUS and its sentinel starts another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "common/result.h"

namespace muster::engine {

class MappedFile {
 public:
  /// The first `bytes` of a regular file that is open as `fd`, which may be closed then.
  /// Errors: kIo with `path` and exit code kDisk.
  static Result<MappedFile> map(int fd, std::size_t bytes, const std::string& path);
  MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}
  std::span<const std::uint8_t> bytes_;
};

}  // namespace muster::engine
