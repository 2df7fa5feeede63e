#include "cli/fetched_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "cli/files.h"
#include "common/contract.h"
#include "common/file.h"
#include "common/sha256.h"

namespace muster::cli {
namespace {

constexpr std::size_t kHashBlockBytes = 4096 * 4;
constexpr std::uint64_t kMostHeaderBytes = 100'000'000;

std::string part_of(const std::string& path) { return path + ".part"; }

/// Every directory in front of the last '/' of `path`.
Status make_parents(const std::string& path) {
  for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string directory = path.substr(0, slash);
    if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) {
      return place_error(directory, "make", errno);
    }
  }
  return {};
}

/// Reads until `size` bytes have come or the file ends.
Result<std::size_t> read_full(int fd, char* out, std::size_t size, const std::string& path) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t got = ::read(fd, out + done, size - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(path, "read", errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

}  // namespace

/// Where the file system knows no such locks, or the directory cannot be read, it goes without.
Status FetchedFiles::lock() {
  if (lock_) return {};
  UniqueFd place(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const bool is_taken =
      place && ::flock(place.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (!is_taken) {
    lock_ = std::move(place);
    return {};
  }
  return Error(ErrorCode::kInvalid,
               directory_ + ": another `muster fetch` writes here; give another --output")
      .with_exit_code(contract::exit_code::kUsage);
}

Status FetchedFiles::begin_file(const std::string& name, std::int64_t bytes) {
  if (!last_.empty() && name > last_) {
    has_enough_ = true;
    return Error(ErrorCode::kAborted, "no wanted file comes any more");
  }
  const std::string wanted = wants_(name);
  current_ = {wanted, bytes};
  if (wanted.empty()) return {};
  const std::string path = place_of(current_);
  MUSTER_RETURN_IF_ERROR(make_parents(path));
  MUSTER_RETURN_IF_ERROR(lock());
  file_ = UniqueFd(
      ::open(part_of(path).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644));
  return file_ ? Status() : place_error(part_of(path), "open", errno);
}

Status FetchedFiles::data(std::string_view piece) {
  if (current_.name.empty()) return {};
  while (!piece.empty()) {
    const ssize_t wrote = ::write(file_.get(), piece.data(), piece.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return os_error(path_of(current_), "write", errno);
    piece.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return {};
}

Status FetchedFiles::end_file() {
  if (current_.name.empty()) return {};
  if (::fsync(file_.get()) != 0) return os_error(path_of(current_), "sync", errno);
  file_.reset();
  files_.push_back(std::move(current_));
  current_ = {};
  return {};
}

std::string FetchedFiles::path_of(const File& file) const { return part_of(place_of(file)); }

Status FetchedFiles::keep() {
  for (const File& file : files_) {
    const std::string path = place_of(file);
    struct stat info{};
    const bool is_there = ::lstat(path.c_str(), &info) == 0;
    if (is_there && S_ISDIR(info.st_mode)) return place_error(path, "rename", EISDIR);
  }
  // A new model beside old files would be taken for all that there is.
  for (const bool takes_model : {false, true}) {
    for (const File& file : files_) {
      if (file.name.ends_with(contract::kModelFile) != takes_model) continue;
      const std::string path = place_of(file);
      if (::rename(path_of(file).c_str(), path.c_str()) != 0) {
        return place_error(path, "rename", errno);
      }
    }
  }
  is_kept_ = true;
  return {};
}

std::string FetchedFiles::set_aside(const File& file) {
  const std::string part = path_of(file), refused = place_of(file) + ".refused";
  if (::rename(part.c_str(), refused.c_str()) == 0) return refused;
  spared_ = part;
  return part;
}

void FetchedFiles::drop() {
  if (file_) ::unlink(path_of(current_).c_str());
  file_.reset();
  if (is_kept_) return;
  for (const File& file : files_) {
    if (path_of(file) != spared_) ::unlink(path_of(file).c_str());
  }
}

Result<std::string> hash_of_parameters(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return os_error(path, "open", errno);
  std::array<char, 8> length_bytes{};
  MUSTER_ASSIGN_OR_RETURN(std::size_t got,
                          read_full(file.get(), length_bytes.data(), length_bytes.size(), path));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes.size(); ++i) {
    length |= std::uint64_t{static_cast<unsigned char>(length_bytes[i])} << (8 * i);
  }
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return os_error(path, "look at", errno);
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (got != length_bytes.size() || length > kMostHeaderBytes || length > size - 8) {
    return Error(ErrorCode::kCorrupt, path + ": is no safetensors file");
  }
  ::lseek(file.get(), static_cast<off_t>(8 + length), SEEK_SET);
  Sha256 all;
  std::string block(kHashBlockBytes, '\0');
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(got, read_full(file.get(), block.data(), block.size(), path));
    if (got == 0) break;
    const Sha256Digest digest = sha256(std::string_view(block).substr(0, got));
    all.update(std::as_bytes(std::span(digest)));
    if (got < block.size()) break;
  }
  return to_hex(all.finish());
}

}  // namespace muster::cli
