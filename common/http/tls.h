// What either side of a TLS connection is told: texts in PEM. TLS 1.2 is the least spoken here, and
// a client never talks without a certificate it can check.
#pragma once

#include <string>

namespace muster::http {

/// What a server shows: its certificate, followed by those that lead to the CA, and its key.
struct TlsIdentity {
  std::string certificate;
  std::string key;
  bool operator==(const TlsIdentity&) const = default;
};

}  // namespace muster::http
