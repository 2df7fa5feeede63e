#include "worker/data/picture_files.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/caught.h"
#include "common/check.h"
#include "common/contract.h"
#include "worker/data/file.h"
#include "worker/data/jpeg.h"
#include "worker/data/picture.h"
#include "worker/data/start_threads.h"

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

/// On `threads`, one of them the caller's; the system may give fewer. Errors: what has been thrown
/// on one of them, which leaves the work to the others.
template <typename Work>
Status on_threads(int threads, const Work& work) {
  std::mutex mutex;
  Status status;
  const auto work_or_tell = [&] {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex);
      status = caught_error();
    }
  };
  std::vector<std::jthread> others = start_threads(threads - 1, work_or_tell);
  work_or_tell();
  others.clear();  // which waits for them
  return status;
}

/// What a file takes while it is decoded, itself among it, but for where its values go.
std::size_t bytes_to_decode(std::span<const std::uint8_t> file, const Picture& size) {
  const bool is_kept = is_jpeg(file) && keeps_coefficients(file);
  return file.size() + size.height * size.width * kColors * (is_kept ? kBytesWithCoefficients : 1);
}

void add_number(Sha256& hash, std::uint64_t number) {
  hash.update(std::as_bytes(std::span(&number, 1)));
}

void add_text(Sha256& hash, const std::string& text) {
  add_number(hash, text.size());
  hash.update(std::as_bytes(std::span(text)));
}

/// Beside what others have taken.
bool has_room(std::uint64_t most, std::uint64_t others, std::uint64_t bytes) {
  return others == 0 || (others <= most && bytes <= most - others);
}

}  // namespace

DecodingRoom::Part::~Part() {
  {
    const std::lock_guard lock(room_.mutex_);
    room_.taken_ -= bytes_;
  }
  room_.is_less_.notify_all();
}

DecodingRoom::Part DecodingRoom::take(std::uint64_t bytes, std::uint64_t most) {
  std::unique_lock lock(mutex_);
  is_less_.wait(lock, [&] { return has_room(most, taken_, bytes); });
  taken_ += bytes;
  greatest_ = std::max(greatest_, taken_);
  return {*this, bytes};
}

bool DecodingRoom::Part::grow_to(std::uint64_t bytes, std::uint64_t most) {
  const std::lock_guard lock(room_.mutex_);
  const std::uint64_t others = room_.taken_ - bytes_;
  if (!has_room(most, others, bytes)) return false;
  room_.taken_ = others + bytes;
  room_.greatest_ = std::max(room_.greatest_, room_.taken_);
  bytes_ = bytes;
  return true;
}

std::uint64_t DecodingRoom::greatest() const {
  const std::lock_guard lock(mutex_);
  return greatest_;
}

Result<std::unique_ptr<PictureFiles>> PictureFiles::open(const ImageFolder& folder,
                                                         std::vector<std::string> classes,
                                                         std::vector<PictureFile> files) {
  MUSTER_CHECK(!files.empty());
  std::unique_ptr<PictureFiles> out(new PictureFiles(folder, std::move(classes), std::move(files)));
  MUSTER_RETURN_IF_ERROR(out->find_size());
  MUSTER_RETURN_IF_ERROR(out->find_outline());
  const std::size_t room = static_cast<std::size_t>(folder.most_held) / out->count();
  if (out->values() <= room) {
    // Not touched before there is something to be held.
    out->held_ = std::make_unique_for_overwrite<std::uint8_t[]>(out->count() * out->values());
    out->is_held_.resize(out->count());
  }
  return out;
}

/// Of all pictures.
Status PictureFiles::find_size() {
  height_ = folder_.height;
  width_ = folder_.width;
  if (height_ != 0) return {};
  const std::string path = this->path(0);
  MUSTER_ASSIGN_OR_RETURN(const auto file, read_file(path, kMaxPictureBytes));
  MUSTER_ASSIGN_OR_RETURN(const Picture size, size_of_picture(file, path));
  MUSTER_RETURN_IF_ERROR(check_memory_for(path, bytes_to_decode(file, size), folder_.most_memory));
  MUSTER_ASSIGN_OR_RETURN(const Picture first, decode_picture(file, path));
  if (first.height > kMaxImageSide || first.width > kMaxImageSide) {
    return bad_data(path, ErrorCode::kTooLarge,
                    "is " + std::to_string(first.height) + " x " + std::to_string(first.width) +
                        "; pictures of more than " + std::to_string(kMaxImageSide) +
                        " pixels a side need height and width, to be scaled to");
  }
  height_ = first.height;
  width_ = first.width;
  return {};
}

/// A file that cannot be looked at has a size that none has: what is wrong with it is told by who
/// reads it.
Status PictureFiles::find_outline() {
  std::vector<std::uint64_t> sizes(count());
  std::atomic<std::size_t> next = 0;
  MUSTER_RETURN_IF_ERROR(on_threads(folder_.threads, [&] {
    for (std::size_t i = next++; i < count(); i = next++) {
      std::error_code error;
      const std::uintmax_t bytes = std::filesystem::file_size(path(i), error);
      sizes[i] = error ? std::numeric_limits<std::uint64_t>::max() : bytes;
    }
  }));
  Sha256 hash;
  add_number(hash, height_);
  add_number(hash, width_);
  add_number(hash, folder_.is_gray ? 1 : 0);
  for (const std::string& name : classes_) add_text(hash, name);
  for (std::size_t i = 0; i < count(); ++i) {
    add_number(hash, files_[i].label);
    add_text(hash, files_[i].name);
    add_number(hash, sizes[i]);
  }
  outline_ = hash.finish();
  return {};
}

std::size_t PictureFiles::values() const {
  return height_ * width_ * (folder_.is_gray ? 1 : kColors);
}

std::string PictureFiles::path(std::uint64_t index) const {
  const PictureFile& file = files_[index];
  return folder_.directory + "/" + classes_[file.label] + "/" + file.name;
}

/// Shape: out (values()).
Status PictureFiles::decode(std::span<const std::uint8_t> file, const std::string& path,
                            std::span<std::uint8_t> out) const {
  MUSTER_ASSIGN_OR_RETURN(Picture picture, decode_picture(file, path));
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
  return {};
}

/// How many bytes it took. Several share half of the room, because there is more in a process than
/// what is counted here; one that does not fit there has it alone.
Result<std::size_t> PictureFiles::decode_in_room(std::uint64_t index,
                                                 std::span<std::uint8_t> out) const {
  const std::string path = this->path(index);
  const std::uint64_t most = room_ / 2;
  std::size_t took = 0;
  {
    std::error_code unknown;  // what is wrong with it is told by who reads it
    const std::uint64_t bytes = std::filesystem::file_size(path, unknown);
    DecodingRoom::Part part =
        decoding_.take(unknown ? 0 : std::min<std::uint64_t>(bytes, kMaxPictureBytes), most);
    MUSTER_ASSIGN_OR_RETURN(const auto file, read_file(path, kMaxPictureBytes, room_));
    MUSTER_ASSIGN_OR_RETURN(const Picture size, size_of_picture(file, path));
    took = bytes_to_decode(file, size) + out.size();
    MUSTER_RETURN_IF_ERROR(check_memory_for(path, took, room_));
    if (part.grow_to(took, most)) {
      MUSTER_RETURN_IF_ERROR(decode(file, path, out));
      return took;
    }
  }
  // The file is given up meanwhile: nobody waits with a part in hand, for which others might wait.
  const DecodingRoom::Part part = decoding_.take(took, most);
  MUSTER_ASSIGN_OR_RETURN(const auto file, read_file(path, kMaxPictureBytes, room_));
  MUSTER_RETURN_IF_ERROR(decode(file, path, out));
  return took;
}

/// Those from `first` on that have room in `out`, on all threads; `check` is told of them.
Status PictureFiles::decode_from(std::size_t first, std::span<std::uint8_t> out,
                                 PictureCheck& check) const {
  const std::size_t count = out.size() / values();
  std::atomic<std::size_t> next = 0;
  const auto caller = std::this_thread::get_id();
  std::mutex mutex;
  std::size_t wrong = count;
  Status status;
  const Status worked = on_threads(folder_.threads, [&] {
    // A file is taken before all behind it, so that none ahead of an error is left out.
    for (std::size_t i = next++; i < count; i = next++) {
      const auto values = out.subspan(i * this->values(), this->values());
      const auto took = decode_in_room(first + i, values);
      if (took) check.hashes[first + i] = hash_of_values(values);
      if (folder_.on_alive && std::this_thread::get_id() == caller) folder_.on_alive();
      const std::lock_guard lock(mutex);
      if (took) {
        check.largest = std::max<std::uint64_t>(check.largest, *took);
      } else if (i < wrong) {
        wrong = i;
        status = took.error();
        next = count;
      }
    }
  });
  return status ? worked : status;
}

Status PictureFiles::check_all(std::uint64_t most_memory) {
  const std::uint64_t pictures = held_ ? held_bytes() : pictures_at_once() * values();
  room_ = most_memory - std::min(most_memory, pictures);
  PictureCheck check;
  check.hashes.resize(count());
  Sha256 hash;
  std::vector<std::uint8_t> piece;
  const std::size_t at_once = pictures_at_once();
  for (std::size_t first = 0; first < count(); first += at_once) {
    const std::size_t bytes = std::min(at_once, count() - first) * values();
    if (!held_) piece.resize(bytes);
    const std::span<std::uint8_t> out(held_ ? held(first).data() : piece.data(), bytes);
    MUSTER_RETURN_IF_ERROR(decode_from(first, out, check));
    hash.update(std::as_bytes(out));
  }
  std::vector<std::uint8_t> labels;
  for (const PictureFile& file : files_) labels.push_back(file.label);
  hash.update(std::as_bytes(std::span(labels)));
  check.digest = hash.finish();
  check_ = std::move(check);
  std::ranges::fill(is_held_, 1);
  if (!held_) read_ahead();
  return {};
}

void PictureFiles::take_check(PictureCheck check) {
  MUSTER_CHECK(check.hashes.size() == count() && !check_);
  check_ = std::move(check);
  is_told_ = true;
  read_ahead();
}

void PictureFiles::read_ahead() {
  ahead_ =
      std::make_unique<ReadAhead>(ReadAhead::Options{folder_.threads, pictures_at_once(), values()},
                                  [this](std::uint64_t index, std::span<std::uint8_t> out) {
                                    return decode_again(index, out);
                                  });
}

std::span<std::uint8_t> PictureFiles::held(std::uint64_t index) const {
  return {held_.get() + index * values(), values()};
}

/// Each thread has one, whatever may be held: of training and test pictures together half of that.
std::size_t PictureFiles::pictures_at_once() const {
  return std::max(static_cast<std::size_t>(folder_.threads),
                  std::min(kMostBytesAtOnce, folder_.most_held / 4) / values());
}

std::size_t PictureFiles::memory_at_rest() const {
  std::size_t bytes = held_bytes() + count() * sizeof(std::uint64_t);
  for (const PictureFile& file : files_) bytes += sizeof file + file.name.capacity();
  return bytes;
}

std::size_t PictureFiles::memory() const {
  if (!ahead_) return memory_at_rest();
  return memory_at_rest() + pictures_at_once() * values() +
         (static_cast<std::size_t>(folder_.threads) + 1) * check_->largest;
}

/// What others have found right is wrong here alone: a copy of theirs that is damaged, or was
/// changed since, of which those who have checked it here will tell. So the job goes on without
/// this worker.
Status PictureFiles::decode_again(std::uint64_t index, std::span<std::uint8_t> out) const {
  const std::string path = this->path(index);
  const auto wrong = [this](const Error& error) {
    const bool is_others = is_told_ && error.exit_code() == contract::exit_code::kData;
    return is_others ? Error(error).with_exit_code(contract::exit_code::kDisk) : error;
  };
  const auto file = read_file(path, kMaxPictureBytes);
  if (!file) return wrong(file.error());
  if (const Status done = decode(*file, path, out); !done) return wrong(done.error());
  if (hash_of_values(out) == check_->hashes[index]) return {};
  return wrong(bad_data(path, ErrorCode::kCorrupt,
                        is_told_ ? "is not the picture that the job's other workers have read; all "
                                   "must have the same files, and nobody may change them"
                                 : "has changed since the worker began; leave it as it is while "
                                   "jobs train"));
}

Result<std::span<const std::uint8_t>> PictureFiles::read(std::uint64_t index,
                                                         std::vector<std::uint8_t>& buffer) {
  MUSTER_CHECK(check_ && index < count());
  if (held_ && is_held_[index] != 0) return std::span<const std::uint8_t>(held(index));
  if (!held_) buffer.resize(values());
  const std::span<std::uint8_t> out = held_ ? held(index) : std::span(buffer);
  if (folder_.on_read) folder_.on_read(path(index));
  const Status done = ahead_->take(index, out);
  if (folder_.on_read) folder_.on_read({});
  if (!done) return done.error();
  if (held_) is_held_[index] = 1;
  return std::span<const std::uint8_t>(out);
}

void PictureFiles::want(std::span<const std::uint64_t> indices) {
  if (!ahead_) return;
  if (!held_) return ahead_->want(indices);
  std::vector<std::uint64_t> missing;
  std::ranges::copy_if(indices, std::back_inserter(missing),
                       [this](std::uint64_t index) { return is_held_[index] == 0; });
  ahead_->want(missing);
}

}  // namespace muster::data
