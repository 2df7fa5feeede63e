#include "cli/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <functional>

#include "common/contract.h"
#include "common/file.h"
#include "common/json.h"

namespace muster::cli {
namespace {

constexpr std::size_t kCopiedAtOnce = std::size_t{1} << 20;

struct OpenFile {
  int fd;
  const std::string& path;
};

Status write_all(const OpenFile& file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file.fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return os_error(file.path, "write", errno);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

Status copy_all(const OpenFile& from, const OpenFile& to) {
  std::string piece(kCopiedAtOnce, '\0');
  for (;;) {
    const ssize_t got = ::read(from.fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return os_error(from.path, "read", errno);
    if (got == 0) return {};
    MUSTER_RETURN_IF_ERROR(write_all(to, {piece.data(), static_cast<std::size_t>(got)}));
  }
}

Status sync_directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int failed = flush_directory(directory);
  return failed == 0 ? Status() : os_error(directory, "sync", failed);
}

/// Puts the file that `write` fills into the place of `path`.
Status replace_whole(const std::string& path, int mode,
                     const std::function<Status(const OpenFile&)>& write) {
  const std::string temporary = path + ".tmp";
  Status written;
  {
    const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                             static_cast<mode_t>(mode)));
    if (!fd) return os_error(temporary, "create", errno);
    written = write({fd.get(), temporary});
    if (written && ::fsync(fd.get()) != 0) written = os_error(temporary, "fsync", errno);
  }
  if (written && std::rename(temporary.c_str(), path.c_str()) != 0) {
    written = os_error(path, "rename", errno);
  }
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  return sync_directory_of(path);
}

}  // namespace

Error place_error(const std::string& path, std::string_view doing, int number) {
  // Below /proc the system says ENOENT; elsewhere a directory would have been made.
  constexpr std::array kMisplaced{EACCES, EPERM,  EROFS,        ENOTDIR, EEXIST,
                                  EISDIR, ENOENT, ENAMETOOLONG, ELOOP,   EINVAL};
  Error error = os_error(path, doing, number);
  const bool is_misplaced =
      std::find(kMisplaced.begin(), kMisplaced.end(), number) != kMisplaced.end();
  return is_misplaced ? std::move(error).with_exit_code(contract::exit_code::kUsage) : error;
}

std::string dump_pretty(const nlohmann::json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_file_atomically(const std::string& path, std::string_view content, int mode) {
  return replace_whole(path, mode,
                       [&](const OpenFile& temporary) { return write_all(temporary, content); });
}

Status move_file(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return sync_directory_of(to);
  if (errno != EXDEV) return os_error(from, "rename", errno);
  const UniqueFd source(::open(from.c_str(), O_RDONLY | O_CLOEXEC));
  if (!source) return os_error(from, "open", errno);
  MUSTER_RETURN_IF_ERROR(replace_whole(to, 0644, [&](const OpenFile& temporary) {
    return copy_all({source.get(), from}, temporary);
  }));
  return ::unlink(from.c_str()) == 0 ? Status() : os_error(from, "remove", errno);
}

}  // namespace muster::cli
