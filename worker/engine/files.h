// Files that are there whole or not at all: written under another name, flushed, then renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/result.h"
#include "common/sha256.h"

namespace muster::engine {

using Pieces = std::span<const std::span<const std::byte>>;

/// Writes `pieces` one after another to `path` (first to `path`.<16 digits>.tmp, then fsync and
/// rename) and returns their SHA-256. On an error neither file is left behind, an older `path`
/// stays as it was. Who writes the same file on shared storage, too, say from a node that was cut
/// off, disturbs nothing: whoever is first leaves no other half of it behind, and who is late finds
/// it written. The name is durable only after sync_directory.  Errors: kIo with path and strerror,
/// exit code kDisk.  Blocks: on the disk.
Result<Sha256Digest> write_file(const std::string& path, Pieces pieces);
Result<Sha256Digest> write_file(const std::string& path, std::string_view text);
/// The same with pieces that are made one after the other; an empty one ends them. When one is
/// asked for, all but the last 64 MiB before it are on the disk. An error of `next` is returned as
/// it is.
using NextPiece = std::function<Result<std::span<const std::byte>>()>;
Result<Sha256Digest> write_file(const std::string& path, const NextPiece& next);

/// Puts a file of this process's own into the place of `path`, with the first `bytes` of `from`,
/// which are on the disk by then; open for writing behind them. Who has an older one open, and is
/// late, writes to a file without a name.  Errors, Blocks: as write_file.
Result<UniqueFd> replace_file(const std::string& path, int from, std::int64_t bytes);

/// Makes names created, renamed or removed in `path` durable, where its file system knows how to.
/// Errors, Blocks: as write_file.
Status sync_directory(const std::string& path);

/// Removes `path`, where it is.  Errors: as write_file.
Status remove_file(const std::string& path);

/// Creates `path` and what is missing above it.  Errors: as write_file.
Status make_directories(const std::string& path);

/// An Error for a failed write: "path: cannot <what>: <strerror>", exit code kDisk.
Error disk_error(const std::string& path, const char* what, int number);

}  // namespace muster::engine
