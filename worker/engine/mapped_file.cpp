#include "worker/engine/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace muster::engine {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const auto failed = [&](const char* what) {
    return Error(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                 path + ": cannot " + what + ": " + std::strerror(errno));
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return failed("open");
  struct stat about{};
  if (::fstat(fd, &about) != 0) {
    const Error error = failed("read");
    ::close(fd);
    return error;
  }
  if (!S_ISREG(about.st_mode)) {
    ::close(fd);
    return Error(ErrorCode::kInvalid, path + ": must be a regular file");
  }
  const auto size = static_cast<std::size_t>(about.st_size);
  void* const pages = size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0) : nullptr;
  ::close(fd);
  if (pages == MAP_FAILED) return failed("read");
  return MappedFile({static_cast<const std::uint8_t*>(pages), size});
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());  // it takes no const pointer
}

}  // namespace muster::engine
