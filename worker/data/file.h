// Regular files: opened, read in pieces, or whole into memory with a bound. The exit code of each
// error tells what is the user's to mend from what another try may mend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/result.h"

namespace muster::data {

/// What the system says of a file, and says otherwise once it was written to, unless whoever did
/// has set the time back. The time of a change of names and rights is none of it: where a claim is
/// mounted once more its files may be given to a group anew.
struct FileStamp {
  std::uint64_t bytes = 0;
  std::int64_t written_ns = 0;  ///< since 1970
  bool operator==(const FileStamp&) const = default;
};

struct RegularFile {
  UniqueFd fd;
  FileStamp stamp;
};

/// What a process ends with that the system refuses a file with that errno: kData where paths or
/// rights are wrong; else kDisk, because a disk or a server that fails is not wrong data.
int exit_code_of_unread(int number);

/// Opens for reading; never waits for the other end of a pipe.
/// Errors: kNotFound, kIo (with strerror), kInvalid for what is no regular file; each names the
/// path and has an exit code.  Blocks: on the disk.
Result<RegularFile> open_regular(const std::string& path);

/// What there is to be said of an open file now.  Errors: kIo with `path` and an
/// exit code.
Result<FileStamp> stamp_of(int fd, const std::string& path);

/// Fills `out` from byte `offset` on as far as the file goes; how many bytes that were.
/// Errors: kIo with `path` and an exit code.  Blocks: on the disk.
Result<std::size_t> read_at(int fd, std::uint64_t offset, std::span<std::uint8_t> out,
                            const std::string& path);

/// Memory that the content of a file may take, where nobody knows how much there is.
inline constexpr std::uint64_t kAnyMemory = UINT64_MAX;

/// Before a file's content takes `needs` bytes of memory, of which there are `most`.
/// Errors: kTooLarge with the path, exit code kInvalidSpec.
Status check_memory_for(const std::string& path, std::uint64_t needs, std::uint64_t most);

/// The bytes of a regular file of at most `max_bytes`, which may take `most_memory`.
/// Errors: kNotFound, kIo (with strerror), kInvalid, kTooLarge; each names the path and has an exit
/// code.  Blocks: on the disk.
Result<std::vector<std::uint8_t>> read_file(const std::string& path, std::size_t max_bytes,
                                            std::uint64_t most_memory = kAnyMemory);

/// What is wrong with the content of a file, or with the file: "<path>: <message>", exit code
/// kData.
Error bad_data(const std::string& path, ErrorCode code, const std::string& message);

}  // namespace muster::data
