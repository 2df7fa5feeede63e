// The key that the workers of one job prove to each other.
#pragma once

#include <string>

#include "common/result.h"

namespace muster::runtime {

/// HMAC-SHA256(master key, job uid) in lower-case hexadecimal. `master_key`: 64 hexadecimal digits;
/// anything else is kInvalid.
Result<std::string> job_key(const std::string& master_key, const std::string& job_uid);

}  // namespace muster::runtime
