#include "worker/engine/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>

#include "common/contract.h"
#include "common/file.h"

namespace muster::engine {

Result<MappedFile> MappedFile::map(int fd, std::size_t bytes, const std::string& path) {
  void* const pages = bytes > 0 ? ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0) : nullptr;
  if (pages == MAP_FAILED) {
    return os_error(path, "read", errno).with_exit_code(contract::exit_code::kDisk);
  }
  return MappedFile({static_cast<const std::uint8_t*>(pages), bytes});
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  ::munmap(const_cast<std::uint8_t*>(bytes_.data()), bytes_.size());  // it takes no const pointer
}

}  // namespace muster::engine
