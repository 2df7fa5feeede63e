#include "operator/runtime/token_claims.h"

#include <optional>

#include "common/json.h"
#include "operator/kube/base64.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kMaxPayloadBytes = std::size_t{8} * 1024;
constexpr std::size_t kMaxUidBytes = 128;

/// RFC 4648, section 5, without padding.
std::optional<std::string> decoded(std::string_view text) {
  std::string base64(text);
  for (char& letter : base64) {
    if (letter == '+' || letter == '/') return std::nullopt;
    if (letter == '-') letter = '+';
    if (letter == '_') letter = '/';
  }
  base64.append((4 - base64.size() % 4) % 4, '=');
  return kube::decode_base64(base64);
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
