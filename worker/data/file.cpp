#include "worker/data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/file.h"

namespace muster::data {
Result<std::vector<std::uint8_t>> read_file(const std::string& path, std::size_t max_bytes) {
  // Without O_NONBLOCK the open of a named pipe would wait for its writer for ever.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return os_error(path, "open", errno);
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return os_error(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) {
    return Error(ErrorCode::kInvalid, path + ": is not a regular file");
  }
  const auto size = static_cast<std::uint64_t>(info.st_size);
  if (size > max_bytes) {
    return Error(ErrorCode::kTooLarge, path + ": has " + std::to_string(size) + " bytes; at most " +
                                           std::to_string(max_bytes) + " are read");
  }
  std::vector<std::uint8_t> bytes(size);
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t got = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(path, "read", errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace muster::data
