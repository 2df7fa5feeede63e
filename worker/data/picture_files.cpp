#include "worker/data/picture_files.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "common/check.h"
#include "worker/data/file.h"
#include "worker/data/picture.h"

namespace muster::data {
namespace {

/// Bytes of pictures that are checked at once, or decoded and wait to be read.
constexpr std::uint64_t kMostBytesAtOnce = std::uint64_t{64} << 20;

/// Enough to notice that a file was changed; nobody gains by forging it.
std::uint64_t hash_of_values(std::span<const std::uint8_t> values) {
  const Sha256Digest digest = sha256(std::as_bytes(values));
  std::uint64_t hash;
  std::memcpy(&hash, digest.data(), sizeof hash);
  return hash;
}

}  // namespace

Result<std::unique_ptr<PictureFiles>> PictureFiles::open(const ImageFolder& folder,
                                                         std::vector<std::string> classes,
                                                         std::vector<PictureFile> files) {
  MUSTER_CHECK(!files.empty());
  std::unique_ptr<PictureFiles> out(new PictureFiles(folder, std::move(classes), std::move(files)));
  out->height_ = folder.height;
  out->width_ = folder.width;
  if (folder.height != 0) return out;
  const std::string path = out->path(0);
  MUSTER_ASSIGN_OR_RETURN(const auto file, read_file(path, kMaxPictureBytes));
  MUSTER_ASSIGN_OR_RETURN(const Picture first, decode_picture(file, path));
  if (first.height > kMaxImageSide || first.width > kMaxImageSide) {
    return bad_data(path, ErrorCode::kTooLarge,
                    "is " + std::to_string(first.height) + " x " + std::to_string(first.width) +
                        "; pictures of more than " + std::to_string(kMaxImageSide) +
                        " pixels a side need height and width, to be scaled to");
  }
  out->height_ = first.height;
  out->width_ = first.width;
  return out;
}

std::size_t PictureFiles::values() const {
  return height_ * width_ * (folder_.is_gray ? 1 : kColors);
}

std::string PictureFiles::path(std::uint64_t index) const {
  const PictureFile& file = files_[index];
  return folder_.directory + "/" + classes_[file.label] + "/" + file.name;
}

/// How many bytes it took.
Result<std::size_t> PictureFiles::decode(std::uint64_t index, std::span<std::uint8_t> out) const {
  const std::string path = this->path(index);
  MUSTER_ASSIGN_OR_RETURN(const auto file, read_file(path, kMaxPictureBytes));
  MUSTER_ASSIGN_OR_RETURN(Picture picture, decode_picture(file, path));
  const std::size_t took = file.size() + picture.colors.size() + out.size();
  if (folder_.height != 0) picture = scaled(picture, height_, width_);
  if (picture.height != height_ || picture.width != width_) {
    return bad_data(path, ErrorCode::kInvalid,
                    "is " + std::to_string(picture.height) + " x " + std::to_string(picture.width) +
                        ", the first one " + std::to_string(height_) + " x " +
                        std::to_string(width_) +
                        "; with height and width they are scaled to one size");
  }
  if (folder_.is_gray) picture.colors = gray_of(picture);
  std::ranges::copy(picture.colors, out.begin());
  return took;
}

/// Those from `first` on that have room in `out`, on all threads; how many bytes one took at most.
Result<std::size_t> PictureFiles::decode_from(std::size_t first,
                                              std::span<std::uint8_t> out) const {
  const std::size_t count = out.size() / values();
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t wrong = count, largest = 0;
  Status status;
  const auto work = [&] {
    // A file is taken before all behind it, so that none ahead of an error is left out.
    for (std::size_t i = next++; i < count; i = next++) {
      const auto took = decode(first + i, out.subspan(i * values(), values()));
      const std::lock_guard lock(mutex);
      if (took) {
        largest = std::max(largest, *took);
      } else if (i < wrong) {
        wrong = i;
        status = took.error();
        next = count;
      }
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < folder_.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (!status) return status.error();
  return largest;
}

Status PictureFiles::decode_all(std::span<std::uint8_t> out) const {
  MUSTER_CHECK(out.size() == count() * values());
  const auto decoded = decode_from(0, out);
  return decoded ? Status() : Status(decoded.error());
}

Status PictureFiles::check_all() {
  const std::size_t at_once = pictures_at_once();
  std::vector<std::uint8_t> piece;
  Sha256 hash;
  for (std::size_t first = 0; first < count(); first += at_once) {
    piece.resize(std::min(at_once, count() - first) * values());
    MUSTER_ASSIGN_OR_RETURN(const std::size_t largest, decode_from(first, piece));
    largest_ = std::max(largest_, largest);
    hash.update(std::as_bytes(std::span(piece)));
    for (std::size_t at = 0; at < piece.size(); at += values()) {
      hashes_.push_back(hash_of_values(std::span(piece).subspan(at, values())));
    }
  }
  std::vector<std::uint8_t> labels;
  for (const PictureFile& file : files_) labels.push_back(file.label);
  hash.update(std::as_bytes(std::span(labels)));
  digest_ = hash.finish();
  ahead_ = std::make_unique<ReadAhead>(ReadAhead::Options{folder_.threads, at_once, values()},
                                       [this](std::uint64_t index, std::span<std::uint8_t> out) {
                                         return decode_again(index, out);
                                       });
  return {};
}

/// Each thread has one, whatever may be held: of training and test pictures together half of that.
std::size_t PictureFiles::pictures_at_once() const {
  return std::max(static_cast<std::size_t>(folder_.threads),
                  std::min(kMostBytesAtOnce, folder_.most_held / 4) / values());
}

std::size_t PictureFiles::memory() const {
  std::size_t bytes = pictures_at_once() * values() +
                      (static_cast<std::size_t>(folder_.threads) + 1) * largest_ +
                      hashes_.size() * sizeof(std::uint64_t);
  for (const PictureFile& file : files_) bytes += sizeof file + file.name.capacity();
  return bytes;
}

Status PictureFiles::decode_again(std::uint64_t index, std::span<std::uint8_t> out) const {
  const auto took = decode(index, out);
  if (!took) return took.error();
  if (hash_of_values(out) == hashes_[index]) return {};
  return bad_data(path(index), ErrorCode::kCorrupt,
                  "has changed since the worker began; leave it as it is while jobs train");
}

Status PictureFiles::read(std::uint64_t index, std::span<std::uint8_t> out) const {
  if (folder_.on_read) folder_.on_read(path(index));
  const Status done = ahead_->take(index, out);
  if (folder_.on_read) folder_.on_read({});
  return done;
}

}  // namespace muster::data
