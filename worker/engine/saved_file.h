// A file of a checkpoint or a model. Its header is looked at in the file's pages; what it holds is
// read through its descriptor, because a page that a disk or a server of files fails to give ends
// the process with SIGBUS, and a read gives an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/result.h"
#include "common/sha256.h"
#include "worker/engine/mapped_file.h"

namespace muster::engine {

/// Errors of its reads: kIo with exit code kDisk, and kCorrupt where the file is shorter than it
/// was when it was opened; each names the path.  Blocks: all of it, on the disk.
class SavedFile {
 public:
  /// Errors: as data::open_regular.
  static Result<SavedFile> open(const std::string& path);

  /// What it holds, by its place. Whoever looks there, and not by read(), has the file read before.
  std::span<const std::uint8_t> bytes() const { return mapped_.bytes(); }
  /// SHA-256 of the whole file; `on_alive` is called between its pieces, unless it is empty.
  Result<Sha256Digest> sha256(const std::function<void()>& on_alive = nullptr) const;
  /// engine::block_digests() of values that lie in bytes().
  Result<std::vector<Sha256Digest>> block_digests(std::span<const float> values) const;
  /// The same values.  Shape: out (values.size()).
  Status read(std::span<const float> values, std::span<float> out) const;
  /// Bytes that lie in bytes().  Shape: out (bytes.size()).
  Status read(std::span<const std::uint8_t> bytes, std::span<std::uint8_t> out) const;
  /// Has its first `count` bytes read, as many as there are, for whoever looks there then.
  Status read_front(std::size_t count) const;

 private:
  SavedFile(std::string path, UniqueFd fd, MappedFile mapped)
      : path_(std::move(path)), fd_(std::move(fd)), mapped_(std::move(mapped)) {}

  std::string path_;
  UniqueFd fd_;
  MappedFile mapped_;
};

}  // namespace muster::engine
