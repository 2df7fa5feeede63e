// The key that the workers of one job prove to each other.
#pragma once

#include <string>

#include "common/result.h"

namespace muster::runtime {

/// What workers are given of the operator's master Secret.
struct WorkerTrust {
  std::string ca_bundle;   ///< PEM of the CAs that they trust
  std::string master_key;  ///< of which their job's key is made
};

/// 32 random bytes as 64 hexadecimal digits, such as a master key. Errors: kIo.
Result<std::string> random_key();

/// HMAC-SHA256(master key, job uid) in lower-case hexadecimal. `master_key`: 64 hexadecimal digits;
/// anything else is kInvalid.
Result<std::string> job_key(const std::string& master_key, const std::string& job_uid);

}  // namespace muster::runtime
