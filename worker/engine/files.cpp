#include "worker/engine/files.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

#include "common/check.h"
#include "common/contract.h"

namespace muster::engine {
namespace {

/// Bytes of one write call.
constexpr std::size_t kMaxWrite = std::size_t{64} << 20;
/// Bytes that a file has on the disk before more are asked for: else memory takes all of it at
/// once, and the last flush any time, in which nobody could say whether the disk gets on.
constexpr std::size_t kFlushedAtOnce = std::size_t{64} << 20;
constexpr std::size_t kCopiedAtOnce = std::size_t{1} << 20;

/// Writes everything, or returns errno.
int write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(fd, bytes.data(), std::min(bytes.size(), kMaxWrite));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
  }
  return 0;
}

constexpr std::string_view kTemporary = ".tmp";
constexpr std::size_t kNonceBytes = 8;

/// A name beside `path` that no other process writes to.
std::string temporary_of(const std::string& path) {
  std::array<std::uint8_t, kNonceBytes> nonce{};
  MUSTER_CHECK(::getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()));
  return path + "." + to_hex(nonce) + std::string(kTemporary);
}

/// What others have begun of `path`, which is whole: those who died with it, and those who are
/// late.
void remove_temporaries(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string front = fs::path(path).filename().string() + ".";
  std::error_code error;
  for (fs::directory_iterator it(fs::path(path).parent_path(), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.size() != front.size() + 2 * kNonceBytes + kTemporary.size() ||
        !name.starts_with(front) || !name.ends_with(kTemporary)) {
      continue;
    }
    std::error_code ignored;
    fs::remove(it->path(), ignored);
  }
}

/// The first `bytes` of one file to the end of another, or errno.
int copy_bytes(int from, std::int64_t bytes, int to) {
  std::vector<std::byte> piece(kCopiedAtOnce);
  for (std::int64_t at = 0; at < bytes;) {
    const auto most = std::min<std::int64_t>(bytes - at, std::ssize(piece));
    const ssize_t got = ::pread(from, piece.data(), static_cast<std::size_t>(most), at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return got < 0 ? errno : EIO;
    const int failed = write_all(to, std::span(piece).first(static_cast<std::size_t>(got)));
    if (failed != 0) return failed;
    at += got;
  }
  return 0;
}

/// Gives what was written its name. It has it where another process has written it meanwhile.
int name_file(const std::string& temporary, const std::string& path) {
  if (::rename(temporary.c_str(), path.c_str()) == 0) return 0;
  const int failed = errno;
  return failed == ENOENT && ::access(path.c_str(), F_OK) == 0 ? 0 : failed;
}

}  // namespace

Error disk_error(const std::string& path, const char* what, int number) {
  return Error(ErrorCode::kIo, path + ": cannot " + what + ": " + std::strerror(number))
      .with_exit_code(contract::exit_code::kDisk);
}

Result<Sha256Digest> write_file(const std::string& path, Pieces pieces) {
  std::size_t given = 0;
  return write_file(path, [&]() -> Result<std::span<const std::byte>> {
    while (given < pieces.size() && pieces[given].empty()) ++given;
    return given < pieces.size() ? pieces[given++] : std::span<const std::byte>();
  });
}

Result<Sha256Digest> write_file(const std::string& path, const NextPiece& next) {
  const std::string temporary = temporary_of(path);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return disk_error(temporary, "create", errno);
  Sha256 hash;
  int failed = 0;
  const char* what = "write";
  std::size_t unflushed = 0;
  for (;;) {
    if (unflushed >= kFlushedAtOnce) {
      unflushed = 0;
      failed = ::fdatasync(fd) != 0 ? errno : 0;
      what = failed != 0 ? "flush" : what;
      if (failed != 0) break;
    }
    const auto piece = next();
    if (!piece) {
      ::close(fd);
      ::unlink(temporary.c_str());
      return piece.error();
    }
    if (piece->empty()) break;
    hash.update(*piece);
    failed = write_all(fd, *piece);
    if (failed != 0) break;
    unflushed += piece->size();
  }
  if (failed == 0 && ::fsync(fd) != 0) {
    failed = errno;
    what = "flush";
  }
  // A full disk may show itself only here (network file systems).
  if (::close(fd) != 0 && failed == 0) failed = errno;
  if (failed == 0) {
    failed = name_file(temporary, path);
    if (failed != 0) what = "rename";
  }
  if (failed != 0) {
    ::unlink(temporary.c_str());
    return disk_error(path, what, failed);
  }
  remove_temporaries(path);
  return hash.finish();
}

Result<Sha256Digest> write_file(const std::string& path, std::string_view text) {
  const std::span<const std::byte> pieces[] = {std::as_bytes(std::span(text))};
  return write_file(path, pieces);
}

Result<UniqueFd> replace_file(const std::string& path, int from, std::int64_t bytes) {
  const std::string temporary = temporary_of(path);
  UniqueFd own(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!own) return disk_error(temporary, "create", errno);
  int failed = copy_bytes(from, bytes, own.get());
  if (failed == 0 && bytes > 0 && ::fsync(own.get()) != 0) failed = errno;
  if (failed == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) failed = errno;
  if (failed != 0) {
    ::unlink(temporary.c_str());
    return disk_error(path, "copy", failed);
  }
  remove_temporaries(path);
  return own;
}

Status sync_directory(const std::string& path) {
  const int failed = flush_directory(path);
  return failed == 0 ? Status() : disk_error(path, "flush", failed);
}

Status remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return disk_error(path, "remove", errno);
  return {};
}

Status make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return disk_error(path, "create the directory", error.value());
  return {};
}

}  // namespace muster::engine
