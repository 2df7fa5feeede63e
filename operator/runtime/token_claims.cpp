#include "operator/runtime/token_claims.h"

#include <cstdint>
#include <optional>

#include "common/json.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kMaxPayloadBytes = std::size_t{8} * 1024;
constexpr std::size_t kMaxUidBytes = 128;

/// -1: no letter of base64url.
int sextet(char letter) {
  if (letter >= 'A' && letter <= 'Z') return letter - 'A';
  if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
  if (letter >= '0' && letter <= '9') return letter - '0' + 52;
  if (letter == '-') return 62;
  return letter == '_' ? 63 : -1;
}

/// RFC 4648, section 5, without padding.
std::optional<std::string> decoded(std::string_view text) {
  std::string bytes;
  std::uint32_t bits = 0;
  int held = 0;
  for (const char letter : text) {
    const int value = sextet(letter);
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<std::uint32_t>(value)) & 0xfff;
    held += 6;
    if (held < 8) continue;
    held -= 8;
    bytes.push_back(static_cast<char>(bits >> held & 0xff));
  }
  return bytes;
}

}  // namespace

std::string claimed_pod_uid(std::string_view token) {
  const std::size_t first = token.find('.');
  if (first == std::string_view::npos) return {};
  const std::size_t second = token.find('.', first + 1);
  if (second == std::string_view::npos || second - first > kMaxPayloadBytes) return {};
  const auto text = decoded(token.substr(first + 1, second - first - 1));
  if (!text) return {};
  const auto claims = parse_json(*text);
  if (!claims || !claims->is_object()) return {};
  const Json* at = &*claims;
  for (const char* name : {"kubernetes.io", "pod", "uid"}) {
    if (!at->is_object()) return {};
    const auto found = at->find(name);
    if (found == at->end()) return {};
    at = &*found;
  }
  const auto* uid = at->get_ptr<const std::string*>();
  return uid == nullptr || uid->size() > kMaxUidBytes ? std::string() : *uid;
}

}  // namespace muster::runtime
