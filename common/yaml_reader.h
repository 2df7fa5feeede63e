// YAML as JSON: one document, beside which others may stand that are empty, YAML 1.2 core schema,
// bounded in bytes, nodes and depth. A quoted scalar is a string; a plain one is null, a boolean, a
// number or a string by its form. yaml-cpp stays behind this file.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/result.h"

namespace muster {

struct YamlBounds {
  std::size_t bytes_max = std::size_t{256} * 1024;
  std::size_t nodes_max = 20'000;  ///< after aliases are written out
  int depth_max = 48;
  std::string_view what = "manifest";  ///< the file's kind, for sentences
};

/// Parses one document. An integer that begins with 0 is octal, as to kubectl, and refused if it
/// has an 8 or a 9. `name` stands in front of errors, as "NAME:LINE:". Errors: kInvalid with exit
/// code kInvalidSpec; they quote no value, except for keys, tags and plain numbers.
Result<nlohmann::json> parse_yaml(std::string_view text, const std::string& name,
                                  const YamlBounds& bounds = {});

}  // namespace muster
