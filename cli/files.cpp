#include "cli/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "common/contract.h"
#include "common/json.h"

namespace muster::cli {
namespace {

/// A file descriptor with an owner.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status write_all(int fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return io_error(path, "write", errno);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(fd) != 0) return io_error(path, "fsync", errno);
  return {};
}

Status sync_directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd.get() < 0) return io_error(directory, "open", errno);
  if (::fsync(fd.get()) != 0) return io_error(directory, "fsync", errno);
  return {};
}

}  // namespace

Error io_error(const std::string& path, std::string_view doing, int error_number) {
  const ErrorCode code = error_number == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
  const bool full = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  return Error(code, path + ": " + std::string(doing) + ": " +
                         std::generic_category().message(error_number))
      .with_exit_code(full ? contract::exit_code::kDisk : contract::exit_code::kInternal);
}

std::string dump_pretty(const nlohmann::json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return io_error(path, "open", errno);
  std::string content;
  std::array<char, 16 * 1024> piece;
  for (;;) {
    const ssize_t got = ::read(fd.get(), piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return io_error(path, "read", errno);
    if (got == 0) return content;
    content.append(piece.data(), static_cast<std::size_t>(got));
    if (content.size() > max_bytes) {
      return Error(ErrorCode::kTooLarge,
                   path + ": is larger than " + std::to_string(max_bytes) + " bytes");
    }
  }
}

Status write_file_atomically(const std::string& path, std::string_view content, int mode) {
  const std::string temporary = path + ".tmp";
  Status written;
  {
    const Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                               static_cast<mode_t>(mode)));
    if (fd.get() < 0) return io_error(temporary, "create", errno);
    written = write_all(fd.get(), temporary, content);
  }
  if (written && std::rename(temporary.c_str(), path.c_str()) != 0) {
    written = io_error(path, "rename", errno);
  }
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_directory_of(path);
}

}  // namespace muster::cli
