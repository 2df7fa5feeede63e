#include "operator/kube/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/file.h"

namespace muster::kube {
namespace {

Error refusal(const std::string& path, const std::string& what) {
  return {ErrorCode::kInvalid, path + ": " + what};
}

}  // namespace

Result<std::string> read_small_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) return refusal(path, std::strerror(errno));
  struct stat about{};
  if (::fstat(file.get(), &about) != 0) return refusal(path, std::strerror(errno));
  if (S_ISDIR(about.st_mode)) return refusal(path, "is a directory; a file is needed");
  if (!S_ISREG(about.st_mode)) return refusal(path, "is not a file");
  std::string text(kSmallFileBytesMax + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return refusal(path, std::strerror(errno));
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  if (size == 0) return refusal(path, "is empty");
  if (size > kSmallFileBytesMax) return refusal(path, "is larger than 1 MiB");
  text.resize(size);
  return text;
}

}  // namespace muster::kube
