// `--set spec.worker.count=3`: one value of a manifest replaced before it is read.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/json.h"
#include "common/result.h"

namespace muster::cli {

/// Puts the value of "path=value" into `manifest`. The value is YAML ("3", "[64, 32]", "\"0.1\"");
/// the path's parts are separated by dots, "\." is a dot inside a name, and lists take an index
/// ("env[0].value" or "env.0.value"; the index one past the end appends). Maps on the way are made,
/// and lists where "[0]" stands; an empty value removes an item, and is null in a map, which counts
/// as absent. Whether the field exists is for validation to say. Errors: kInvalid naming --set,
/// with exit code kUsage.
Status apply_override(const std::string& assignment, Json& manifest);

}  // namespace muster::cli
