// What `muster fetch` needs of the worker image, which has neither shell nor tar: a directory as
// one stream, and a process that waits while files are read.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/result.h"

namespace muster::worker {

/// More than these is refused with a sentence rather than cut.
struct ArchiveLimits {
  int files_max = 10'000;
  int depth_max = 16;  ///< directories below the root
  /// Of one file; what `muster fetch` takes.
  std::int64_t file_bytes_max = std::int64_t{1} << 42;
};

inline constexpr std::size_t kArchiveBlock = 512;

/// What stands before the bytes of a regular file. A size of 8 GiB and more, for which ustar has no
/// digits, is written as GNU tar writes it: a byte 0x80, and the number in base 256.
/// Errors: kTooLarge (a name longer than ustar can hold).
Result<std::array<char, kArchiveBlock>> archive_header(std::string_view path, std::int64_t bytes,
                                                       std::int64_t modified_at);

/// Writes the regular files below `directory` to `out` (a descriptor that the caller keeps) as a
/// POSIX ustar archive: names relative to `directory`, sorted, mode 0644, owner 0, times of the
/// files. Symbolic links, sockets and devices are left out, none is followed. A file that goes away
/// meanwhile is left out; one that grows is cut at the length its header has. With `names`, only
/// what is called so in `directory` itself, as far as it is there: what else is there, and how
/// much, does not matter.
/// Errors: kNotFound (no such directory), kInvalid (no entry can have such a name), kTooLarge (over
/// the limits, or a name longer than ustar can hold), kIo; `out` then lacks the end of an archive.
/// Blocks: on disk and reader.
Status write_archive(const std::string& directory, int out, std::vector<std::string> names = {},
                     const ArchiveLimits& limits = {});

/// The longest that wait_for_signal may be asked for.
inline constexpr int kWaitSecondsMax = 86'400;

/// Returns after `duration`, or at once on SIGTERM or SIGINT; children that others leave behind are
/// reaped by the kernel meanwhile. Changes the process's signal mask: for a main alone.
void wait_for_signal(seconds duration, const Clock& clock);

}  // namespace muster::worker
