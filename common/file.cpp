#include "common/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "common/contract.h"

namespace muster {

void UniqueFd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Error os_error(const std::string& path, std::string_view doing, int number) {
  const bool leads_nowhere = number == ENOENT || number == ENOTDIR;
  const bool is_full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  Error error(
      leads_nowhere ? ErrorCode::kNotFound : ErrorCode::kIo,
      path + ": cannot " + std::string(doing) + ": " + std::generic_category().message(number));
  return is_full ? std::move(error).with_exit_code(contract::exit_code::kDisk) : error;
}

Result<std::string> read_file(const std::string& path, std::size_t max_bytes) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return os_error(path, "open", errno);
  return read_descriptor(fd.get(), path, max_bytes);
}

Result<std::string> read_descriptor(int fd, const std::string& name, std::size_t max_bytes) {
  std::string content;
  std::array<char, 16 * 1024> piece;
  for (;;) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(name, "read", errno);
    if (got == 0) return content;
    content.append(piece.data(), static_cast<std::size_t>(got));
    if (content.size() > max_bytes) {
      return Error(ErrorCode::kTooLarge,
                   name + ": is larger than " + std::to_string(max_bytes) + " bytes");
    }
  }
}

int flush_directory(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno;
  if (::fsync(fd.get()) == 0 || errno == EINVAL || errno == ENOTSUP) return 0;
  return errno;
}

}  // namespace muster
