#include "worker/data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "common/contract.h"

namespace muster::data {
namespace {

FileStamp stamp_in(const struct stat& info) {
  return {static_cast<std::uint64_t>(info.st_size),
          std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

/// os_error() with the exit code.
Error unread(const std::string& path, std::string_view doing, int number) {
  return os_error(path, doing, number).with_exit_code(exit_code_of_unread(number));
}

}  // namespace

int exit_code_of_unread(int number) {
  switch (number) {
    case ENOENT:
    case ENOTDIR:
    case EACCES:
    case EPERM:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:
      return contract::exit_code::kData;
    default:
      return contract::exit_code::kDisk;
  }
}

Result<RegularFile> open_regular(const std::string& path) {
  // Without O_NONBLOCK the open of a named pipe would wait for its writer for ever.
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return unread(path, "open", errno);
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return unread(path, "stat", errno);
  if (!S_ISREG(info.st_mode)) {
    return bad_data(path, ErrorCode::kInvalid, "is not a regular file");
  }
  return RegularFile{std::move(file), stamp_in(info)};
}

Result<FileStamp> stamp_of(int fd, const std::string& path) {
  struct stat info = {};
  if (::fstat(fd, &info) != 0) return unread(path, "stat", errno);
  return stamp_in(info);
}

Result<std::size_t> read_at(int fd, std::uint64_t offset, std::span<std::uint8_t> out,
                            const std::string& path) {
  std::size_t filled = 0;
  while (filled < out.size()) {
    const ssize_t got =
        ::pread(fd, out.data() + filled, out.size() - filled, static_cast<off_t>(offset + filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unread(path, "read", errno);
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  return filled;
}

Status check_memory_for(const std::string& path, std::uint64_t needs, std::uint64_t most) {
  if (needs <= most) return {};
  return Error(ErrorCode::kTooLarge, path + ": takes at least " + std::to_string(needs) +
                                         " bytes of memory, of which this process has " +
                                         std::to_string(most) +
                                         " left; spec.worker.resources.memory must be more for "
                                         "each process")
      .with_exit_code(contract::exit_code::kInvalidSpec);
}

Result<std::vector<std::uint8_t>> read_file(const std::string& path, std::size_t max_bytes,
                                            std::uint64_t most_memory) {
  MUSTER_ASSIGN_OR_RETURN(const RegularFile file, open_regular(path));
  if (file.stamp.bytes > max_bytes) {
    return bad_data(path, ErrorCode::kTooLarge,
                    "has " + std::to_string(file.stamp.bytes) + " bytes; at most " +
                        std::to_string(max_bytes) + " are read");
  }
  MUSTER_RETURN_IF_ERROR(check_memory_for(path, file.stamp.bytes, most_memory));
  std::vector<std::uint8_t> bytes(file.stamp.bytes);
  MUSTER_ASSIGN_OR_RETURN(const std::size_t got, read_at(file.fd.get(), 0, bytes, path));
  bytes.resize(got);
  return bytes;
}

Error bad_data(const std::string& path, ErrorCode code, const std::string& message) {
  return Error(code, path + ": " + message).with_exit_code(contract::exit_code::kData);
}

}  // namespace muster::data
