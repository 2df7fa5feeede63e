// A manifest's file as JSON.
#pragma once

#include <cstddef>
#include <string>

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
/// All of standard input: it can be read once, and is kept for whoever asks again. Blocks until its
/// writer is done: signals that are to interrupt that must not be blocked. Errors: kIo, kTooLarge.
const Result<std::string>& standard_input();

/// Reads a file, or standard input. Errors: kInvalid "FILE:LINE: what is wrong"; kNotFound and kIo
/// with the path and the system's words. All carry an exit code: kInvalidSpec, or kUsage for a file
/// that cannot be read.
Result<Json> read_yaml_file(const std::string& path);

}  // namespace muster::cli
