// Whole files in and out, with errors that carry the path and the system's words.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/result.h"

namespace muster::cli {

/// The whole file. Errors: kNotFound, kIo, kTooLarge (over `max_bytes`). Blocks: on the disk.
Result<std::string> read_file(const std::string& path, std::size_t max_bytes);

/// Replaces `path` by `content`, whole or not at all: a temporary file beside it is written, synced
/// and renamed, and the directory synced. Errors: kIo; with exit code kDisk when the disk is full.
Status write_file_atomically(const std::string& path, std::string_view content, int mode = 0644);

/// Indented JSON with a newline at its end; bytes that are not UTF-8 become U+FFFD.
std::string dump_pretty(const nlohmann::json& value);

/// "PATH: DOING: strerror" of `error_number`; exit code kDisk when the disk is full, else
/// kInternal.
Error io_error(const std::string& path, std::string_view doing, int error_number);

}  // namespace muster::cli
