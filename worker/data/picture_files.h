// The pictures of a training in files of their own: decoded once to know that each is right, by
// this process or by others that train on the same ones; then held where there is room for all, or
// read again whenever a step wants them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/result.h"
#include "common/sha256.h"
#include "common/training_bounds.h"
#include "worker/data/file.h"
#include "worker/data/picture.h"
#include "worker/data/read_ahead.h"

namespace muster::data {

/// Most bytes of pictures that are held, where nobody says how much memory there is.
inline constexpr std::uint64_t kMostHeldBytes = std::uint64_t{4} << 30;
using training_bounds::kMaxImageSide;
/// Bytes of a color of a pixel while a picture is decoded of which all coefficients are kept: those
/// and the color itself.
inline constexpr std::size_t kBytesWithCoefficients = 3;
/// Most bytes that decoding one picture takes: its file, its pixels, and what they are scaled to.
inline constexpr std::uint64_t kMostDecodingBytes =
    kMaxPictureBytes +
    (kBytesWithCoefficients * kMaxPicturePixels + std::uint64_t{kMaxImageSide} * kMaxImageSide) *
        kColors;

struct ImageFolder {
  std::string directory = {};
  std::size_t height = 0, width = 0;  ///< what pictures are scaled to; 0: all must have one size
  bool is_gray = false;               ///< one value for a pixel, or kColors
  int threads = 1;                    ///< that decode; the result is the same
  /// Bytes of pictures that may be held. If they have more, they stay in their files.
  std::uint64_t most_held = kMostHeldBytes;
  /// Bytes that they may take in all while they are decoded.
  std::uint64_t most_memory = kAnyMemory;
  /// Others have decoded all and will tell what they have found: none is decoded before it is
  /// wanted, but one that tells the size of all.
  bool is_checked_by_others = false;
  /// Around each read of a picture that is not held, which may take any time: the path of its file
  /// before, empty after.
  std::function<void(std::string_view path)> on_read = {};
  /// After each picture that the caller's thread decodes while all are decoded; empty: nobody asks.
  std::function<void()> on_alive = {};
};

/// A picture of a class, and how it is numbered.
struct PictureFile {
  std::string name;
  std::uint8_t label;
};

/// What is known of pictures once all of them are decoded.
struct PictureCheck {
  Sha256Digest digest{};                   ///< over all values and then the labels
  std::uint64_t largest = 0;               ///< bytes that decoding one picture took at most
  std::vector<std::uint64_t> hashes = {};  ///< of each picture's values
};

/// Bytes of memory that several threads take at a time for what they decode.  Threads: any.
class DecodingRoom {
 public:
  /// Gives back what it has taken.
  class Part {
   public:
    Part(DecodingRoom& room, std::uint64_t bytes) : room_(room), bytes_(bytes) {}
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

    /// Whether it has so many instead: not if others would have to give back some before.
    bool grow_to(std::uint64_t bytes, std::uint64_t most);

   private:
    DecodingRoom& room_;
    std::uint64_t bytes_;
  };

  /// All have `most` together, or one alone as many as it wants.  Requires that the caller has no
  /// part: who has one waits for nobody.  Blocks: until others have given back enough.
  Part take(std::uint64_t bytes, std::uint64_t most);

  /// Most bytes that were taken at a time.
  std::uint64_t greatest() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable is_less_;  ///< is taken
  std::uint64_t taken_ = 0, greatest_ = 0;
};

/// Threads: one, that on_read bears.
class PictureFiles {
 public:
  /// `files` is not empty; each is in the directory of its class. Takes the size of the first for
  /// all.  Errors: kInvalid, kCorrupt, kTooLarge, kNotFound, kIo; one sentence that names the file,
  /// exit code kData, or kDisk where the system could not read it; those of check_memory_for() for
  /// a picture that alone takes too much to decode.  Blocks: on the disk.
  static Result<std::unique_ptr<PictureFiles>> open(const ImageFolder& folder,
                                                    std::vector<std::string> classes,
                                                    std::vector<PictureFile> files);

  std::size_t count() const { return files_.size(); }
  std::size_t height() const { return height_; }
  std::size_t width() const { return width_; }
  /// Values of a picture, a byte each.
  std::size_t values() const;
  /// Of those that are held, or will be; of those that stay in their files 0.
  std::size_t held_bytes() const { return held_ ? count() * values() : 0; }

  /// SHA-256 over what is known without decoding them: names, sizes of the files, classes, and what
  /// the pictures are made to. Whose outlines differ have different pictures.
  const Sha256Digest& outline() const { return outline_; }

  /// Decodes all, as many at once as `most_memory` is enough for, those that are held among it, and
  /// holds them where there is room.  Errors: as open(), of several the one of the first file; kIo,
  /// exit code kOutOfMemory, where there is no memory.  Blocks: on the disk.
  Status check_all(std::uint64_t most_memory);
  /// What check_all() has found, here or elsewhere; null: nobody has told yet.
  const PictureCheck* check() const { return check_ ? &*check_ : nullptr; }
  /// In place of check_all(): what another process has found. A picture that is not what it was
  /// there is found when it is read.  Requires a hash for each picture, and no check() yet.
  void take_check(PictureCheck check);

  /// Bytes that it takes as long as pictures are read.
  std::size_t memory() const;
  /// Of these what it takes while nobody reads any.
  std::size_t memory_at_rest() const;
  /// Most bytes that check_all() has taken at a time for what it decoded.
  std::uint64_t most_decoded_at_once() const { return decoding_.greatest(); }

  /// The values of a picture, held or read into `buffer`.  Shape: (values()).  Requires check().
  /// Errors: as open(), and that the picture is not what was checked; exit code kDisk where others
  /// have checked it, because theirs are right.  Blocks: on the disk; none of what is held.
  Result<std::span<const std::uint8_t>> read(std::uint64_t index,
                                             std::vector<std::uint8_t>& buffer);

  /// Has the pictures decoded that will be read next, in this order.  Requires check().
  void want(std::span<const std::uint64_t> indices);

 private:
  PictureFiles(const ImageFolder& folder, std::vector<std::string> classes,
               std::vector<PictureFile> files)
      : folder_(folder), classes_(std::move(classes)), files_(std::move(files)) {}
  std::string path(std::uint64_t index) const;
  Status find_size();
  Status find_outline();
  Status decode(std::span<const std::uint8_t> file, const std::string& path,
                std::span<std::uint8_t> out) const;
  Result<std::size_t> decode_in_room(std::uint64_t index, std::span<std::uint8_t> out) const;
  Status decode_from(std::size_t first, std::span<std::uint8_t> out, PictureCheck& check) const;
  Status decode_again(std::uint64_t index, std::span<std::uint8_t> out) const;
  std::size_t pictures_at_once() const;
  std::span<std::uint8_t> held(std::uint64_t index) const;
  void read_ahead();

  ImageFolder folder_;
  std::vector<std::string> classes_;
  std::vector<PictureFile> files_;
  std::size_t height_ = 0, width_ = 0;
  Sha256Digest outline_{};
  std::optional<PictureCheck> check_;
  bool is_told_ = false;  ///< check_ is another process's
  /// Shape: (count(), values()), of which is_held_ says what is there; null: they stay in files.
  std::unique_ptr<std::uint8_t[]> held_;
  std::vector<std::uint8_t> is_held_;  ///< by picture
  /// While all are checked, beside what is held or waits to be hashed: behind that there is no
  /// bound, as room for each thread is foreseen then.
  mutable DecodingRoom decoding_;
  std::uint64_t room_ = 0;  ///< that decoding_ has
  /// Last: its threads use all else. Null before there is a check, and where all are held.
  std::unique_ptr<ReadAhead> ahead_;
};

}  // namespace muster::data
