#include "operator/runtime/job_key.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <array>
#include <vector>

#include "common/sha256.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kIdDigits = 16;

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Result<std::string> random_key() {
  std::array<unsigned char, kKeyBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    return Error(ErrorCode::kIo, "the system gives no random bytes");
  }
  return to_hex(bytes);
}

Result<std::string> job_key(const std::string& master_key, const std::string& job_uid) {
  const Error wrong(ErrorCode::kInvalid, "master key: must be 64 hexadecimal digits");
  if (master_key.size() != 2 * kKeyBytes) return wrong;
  std::array<unsigned char, kKeyBytes> key{};
  for (std::size_t i = 0; i < kKeyBytes; ++i) {
    const int high = digit_of(master_key[2 * i]);
    const int low = digit_of(master_key[2 * i + 1]);
    if (high < 0 || low < 0) return wrong;
    key[i] = static_cast<unsigned char>(16 * high + low);
  }
  const std::vector<unsigned char> text(job_uid.begin(), job_uid.end());
  std::array<unsigned char, kKeyBytes> digest{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text.data(), text.size(),
           digest.data(), &size) == nullptr ||
      size != digest.size()) {
    return Error(ErrorCode::kInternal, "HMAC-SHA256 failed");
  }
  return to_hex(digest);
}

Result<std::string> key_id(const std::string& master_key) {
  // No object's uid reads so.
  MUSTER_ASSIGN_OR_RETURN(const std::string digits, job_key(master_key, "id of the master key"));
  return digits.substr(0, kIdDigits);
}

const std::string& key_of(const MasterKeys& keys, const std::string& id) {
  const auto is_it = [&](const std::string& key) {
    const auto found = key_id(key);
    return found && *found == id;
  };
  return !is_it(keys.current) && is_it(keys.previous) ? keys.previous : keys.current;
}

}  // namespace muster::runtime
