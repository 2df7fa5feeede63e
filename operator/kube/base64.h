// Base64 by OpenSSL, strictly: what it passes over is no base64 here.
#pragma once

#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

namespace muster::kube {

/// The bytes that `text` stands for (RFC 4648, section 4, with its padding); nothing when it is no
/// base64, or empty.
inline std::optional<std::string> decode_base64(const std::string& text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  // OpenSSL passes over white space and stops at '-'; neither belongs here.
  const auto good = [](unsigned char c) { return std::isalnum(c) != 0 || c == '+' || c == '/'; };
  if (!std::all_of(text.begin(), text.end() - static_cast<std::ptrdiff_t>(padding), good)) {
    return std::nullopt;
  }
  std::string bytes(text.size() / 4 * 3, '\0');
  const int size = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()),
                                   static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(size) - padding);
  return bytes;
}

}  // namespace muster::kube
