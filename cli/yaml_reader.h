// A manifest's YAML as JSON: one document, YAML 1.2 core schema, bounded in bytes, nodes and depth.
// A quoted scalar is a string; a plain one is null, a boolean, a number or a string by its form.
// yaml-cpp stays behind this file.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/json.h"
#include "common/result.h"

namespace muster::cli {

inline constexpr std::size_t kMaxManifestBytes = 256 * 1024;
inline constexpr std::size_t kMaxYamlNodes = 20'000;  ///< after aliases are written out
inline constexpr int kMaxYamlDepth = 48;

/// Reads a file. Errors: kInvalid "FILE:LINE: what is wrong"; kNotFound and kIo with the path and
/// the system's words. All carry an exit code: kInvalidSpec, or kUsage for a file that cannot be
/// read.
Result<Json> read_yaml_file(const std::string& path);

/// Parses one document. `name` stands in front of errors, as "NAME:LINE:".
Result<Json> parse_yaml(std::string_view text, const std::string& name);

}  // namespace muster::cli
