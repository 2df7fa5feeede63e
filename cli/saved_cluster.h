// A cluster as `kubectl get -o json` has saved it.
#pragma once

#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"

namespace muster::cli {

/// The objects of its lists. JSON or YAML, at most 256 MiB: 10,000 nodes with 20,000 pods are about
/// half of this. Errors: kInvalid or kIo naming the file, with exit code kUsage.
Result<std::vector<Json>> read_saved_cluster(const std::string& file);

}  // namespace muster::cli
