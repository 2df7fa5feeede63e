// A manifest's file as JSON.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "common/json.h"
#include "common/result.h"
#include "common/yaml_reader.h"

namespace muster::cli {

using muster::parse_yaml;

inline constexpr std::size_t kMaxManifestBytes = YamlBounds{}.bytes_max;

/// As which file standard input is given.
inline constexpr const char* kStandardInput = "-";
/// How a file is called in sentences.
inline std::string name_of_file(const std::string& path) {
  return path == kStandardInput ? "standard input" : path;
}
/// Whether a file can be read once only, as standard input and pipes can.
bool is_read_once(const std::string& path);
/// Reads such a file now, for whoever asks later; others are left alone. Blocks until its writer is
/// done: signals that are to interrupt that must not be blocked.
void read_ahead(const std::string& path);

/// Of a text that is JSON or YAML, whether it may be JSON.
bool begins_as_json(std::string_view text);

/// Reads a file, JSON or YAML, or standard input; what can be read once only is kept for whoever
/// asks again. Errors: kInvalid "FILE:LINE: what is wrong"; kNotFound and kIo with the path and the
/// system's words. All carry an exit code: kInvalidSpec, or kUsage for a file that cannot be read.
/// Threads: one, because of what is kept. Blocks: as read_ahead, where that was not called.
Result<Json> read_yaml_file(const std::string& path);

}  // namespace muster::cli
