// The key that the workers of one job prove to each other.
#pragma once

#include <string>

#include "common/result.h"

namespace muster::runtime {

/// Of one of them a job's key is made: the one that its gang started with.
struct MasterKeys {
  std::string current;   ///< 64 hexadecimal digits; gangs start with this one
  std::string previous;  ///< as well; empty: there is none
  bool operator==(const MasterKeys&) const = default;
};

/// What workers are given of the operator's master Secret.
struct WorkerTrust {
  std::string ca_bundle;  ///< PEM of the CAs that they trust
  MasterKeys master_keys;
};

/// 32 random bytes as 64 hexadecimal digits, such as a master key. Errors: kIo.
Result<std::string> random_key();

/// HMAC-SHA256(master key, job uid) in lower-case hexadecimal. `master_key`: 64 hexadecimal digits;
/// anything else is kInvalid.
Result<std::string> job_key(const std::string& master_key, const std::string& job_uid);

/// Tells master keys apart without telling them: 16 hexadecimal digits. `master_key` as above.
Result<std::string> key_id(const std::string& master_key);

/// The one with this id, or the current one where there is none.
const std::string& key_of(const MasterKeys& keys, const std::string& id);

}  // namespace muster::runtime
