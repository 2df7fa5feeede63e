// The pictures of a training in files of their own: decoded once to know that each is right, then
// held by whoever asked for that, or read again whenever a step wants them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/sha256.h"
#include "common/training_bounds.h"
#include "worker/data/read_ahead.h"

namespace muster::data {

/// Most bytes of pictures that are held, where nobody says how much memory there is.
inline constexpr std::uint64_t kMostHeldBytes = std::uint64_t{4} << 30;
using training_bounds::kMaxImageSide;

struct ImageFolder {
  std::string directory = {};
  std::size_t height = 0, width = 0;  ///< what pictures are scaled to; 0: all must have one size
  bool is_gray = false;               ///< one value for a pixel, or kColors
  int threads = 1;                    ///< that decode; the result is the same
  /// Bytes of pictures that may be held. If they have more, they stay in their files.
  std::uint64_t most_held = kMostHeldBytes;
  /// Around each read of a picture that is not held, which may take any time: the path of its file
  /// before, empty after.
  std::function<void(std::string_view path)> on_read = {};
};

/// A picture of a class, and how it is numbered.
struct PictureFile {
  std::string name;
  std::uint8_t label;
};

/// Threads: one, that on_read bears.
class PictureFiles {
 public:
  /// `files` is not empty; each is in the directory of its class. Takes the size of the first for
  /// all.  Errors: kInvalid, kCorrupt, kTooLarge, kNotFound, kIo; one sentence that names the file,
  /// exit code kData, or kDisk where the system could not read it.  Blocks: on the disk.
  static Result<std::unique_ptr<PictureFiles>> open(const ImageFolder& folder,
                                                    std::vector<std::string> classes,
                                                    std::vector<PictureFile> files);

  std::size_t count() const { return files_.size(); }
  std::size_t height() const { return height_; }
  std::size_t width() const { return width_; }
  /// Values of a picture, a byte each.
  std::size_t values() const;

  /// Decodes all.  Shape: out (count(), values()).  Errors: as open(); of several the one of the
  /// first file.  Blocks: on the disk.
  Status decode_all(std::span<std::uint8_t> out) const;

  /// The same, without holding them; read() and want() may be called from then on.
  Status check_all();

  /// SHA-256 over all values and then the labels.  Requires check_all().
  const Sha256Digest& digest() const { return digest_; }
  /// Bytes that reading takes at most.  Requires check_all().
  std::size_t memory() const;

  /// Shape: out (values()).  Errors: as open(), and that the picture is not any more what it was.
  /// Blocks: on the disk.
  Status read(std::uint64_t index, std::span<std::uint8_t> out) const;

  /// Has the pictures decoded that will be read next, in this order.
  void want(std::span<const std::uint64_t> indices) const { ahead_->want(indices); }

 private:
  PictureFiles(const ImageFolder& folder, std::vector<std::string> classes,
               std::vector<PictureFile> files)
      : folder_(folder), classes_(std::move(classes)), files_(std::move(files)) {}
  std::string path(std::uint64_t index) const;
  Result<std::size_t> decode(std::uint64_t index, std::span<std::uint8_t> out) const;
  Result<std::size_t> decode_from(std::size_t first, std::span<std::uint8_t> out) const;
  Status decode_again(std::uint64_t index, std::span<std::uint8_t> out) const;
  std::size_t pictures_at_once() const;

  ImageFolder folder_;
  std::vector<std::string> classes_;
  std::vector<PictureFile> files_;
  std::size_t height_ = 0, width_ = 0;
  // What check_all() has found:
  std::vector<std::uint64_t> hashes_;  ///< of each picture's values
  std::size_t largest_ = 0;            ///< bytes that decoding one picture took at most
  Sha256Digest digest_{};
  std::unique_ptr<ReadAhead> ahead_;  ///< last: its threads use all else
};

}  // namespace muster::data
