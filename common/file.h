// Descriptors with an owner, and whole files into memory with errors that carry the path and the
// system's words.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "common/result.h"

namespace muster {

/// Owns a descriptor; closes it at the end.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();
  /// Gives the descriptor up to the caller.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// "PATH: cannot DOING: strerror" of `number`: kNotFound when the path leads nowhere, else kIo;
/// with exit code kDisk when the disk is full.
Error os_error(const std::string& path, std::string_view doing, int number);

/// The whole file, or what a pipe gives until its end. Errors: kNotFound, kIo, kTooLarge (over
/// `max_bytes`). Blocks: on the disk, or on the pipe's writer.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes);
/// The same of what is open already; `name` stands in front of errors.
Result<std::string> read_descriptor(int fd, const std::string& name, std::size_t max_bytes);

/// Makes names that were made, changed or removed in a directory durable. 0, or errno. A file
/// system that does not know how to (vboxsf, 9p of older kernels) keeps them as it can: no error.
/// Blocks: on the disk.
int flush_directory(const std::string& path);

}  // namespace muster
