// Whole files out, or not at all; text for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/result.h"

namespace muster::cli {

/// Replaces `path` by `content`, whole or not at all: a temporary file beside it is written, synced
/// and renamed, and the directory synced. Errors: kIo; with exit code kDisk when the disk is full.
Status write_file_atomically(const std::string& path, std::string_view content, int mode = 0644);

/// Renames a file, onto another that may be there. To another file system it is copied, whole or
/// not at all, and removed at its old place last. Errors: as write_file_atomically. Blocks: on both
/// disks.
Status move_file(const std::string& from, const std::string& to);

/// As os_error, of a place that the user has named: with exit code kUsage where it can be none.
Error place_error(const std::string& path, std::string_view doing, int number);

/// Indented JSON with a newline at its end; bytes that are not UTF-8 become U+FFFD.
std::string dump_pretty(const nlohmann::json& value);

}  // namespace muster::cli
