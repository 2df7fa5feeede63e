// The price list as a file (operator/api/price_list.h).
#pragma once

#include <string>

#include "common/result.h"
#include "operator/api/price_list.h"

namespace muster::runtime {

/// YAML (or JSON) of at most 1 MiB. Errors: kIo, kNotFound, kTooLarge or kInvalid, naming the file
/// and the field, with exit code kUsage. Blocks: on the disk.
Result<api::PriceList> read_price_file(const std::string& path);

}  // namespace muster::runtime
