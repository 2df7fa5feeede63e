#include "cli/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "common/contract.h"
#include "common/file.h"
#include "common/json.h"

namespace muster::cli {
namespace {

Status write_all(int fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return os_error(path, "write", errno);
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  if (::fsync(fd) != 0) return os_error(path, "fsync", errno);
  return {};
}

Status sync_directory_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int failed = flush_directory(directory);
  return failed == 0 ? Status() : os_error(directory, "sync", failed);
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
  const std::string temporary = path + ".tmp";
  Status written;
  {
    const UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
                             static_cast<mode_t>(mode)));
    if (!fd) return os_error(temporary, "create", errno);
    written = write_all(fd.get(), temporary, content);
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

}  // namespace muster::cli
