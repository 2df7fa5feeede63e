#include "operator/embedded/pod_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "common/log.h"

namespace muster::embedded {

PodLog::PodLog(std::string path, std::size_t max_bytes)
    : path_(std::move(path)), max_bytes_(max_bytes) {
  open(false);
}

PodLog::~PodLog() {
  if (fd_ >= 0) ::close(fd_);
}

void PodLog::complain(const char* doing) {
  if (complained_) return;
  complained_ = true;
  log_error("pod log not written",
            {{"path", path_}, {"doing", doing}, {"error", std::generic_category().message(errno)}});
}

void PodLog::open(bool truncate) {
  const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_APPEND | (truncate ? O_TRUNC : 0);
  fd_ = ::open(path_.c_str(), flags, 0644);
  if (fd_ < 0) return complain("open");
  struct stat found{};
  size_ = ::fstat(fd_, &found) == 0 ? static_cast<std::size_t>(found.st_size) : 0;
}

void PodLog::append(std::string_view bytes) {
  tail_.append(bytes.size() > kTailBytes ? bytes.substr(bytes.size() - kTailBytes) : bytes);
  if (tail_.size() > kTailBytes) tail_.erase(0, tail_.size() - kTailBytes);
  if (fd_ < 0) return;
  if (size_ + bytes.size() > max_bytes_ && size_ > 0) {
    ::close(fd_);
    std::rename(path_.c_str(), (path_ + ".1").c_str());
    open(true);
  }
  while (fd_ >= 0 && !bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return complain("write");
    size_ += static_cast<std::size_t>(written);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace muster::embedded
