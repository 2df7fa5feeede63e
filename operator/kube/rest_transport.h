// The transport to a real API server, over cpprestsdk: the one file that names that library.
//
// Source of its traps: the library's own code and measurements (ARCHITECTURE.md, Libraries). Here:
// no redirect is followed and no token leaves for another host; body and lines are capped, over TLS
// heads and chunks too (inflow.h), and a server that sends faster than we read waits; deadlines are
// our own, because the library's timer is re-armed by every chunk; TLS 1.2 or later with exactly
// the given CA, and one handshake for a connection.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/result.h"
#include "operator/kube/http_transport.h"

namespace muster::kube {

/// PEM text as it is, or a file that is read anew on every new connection; at most one of the two.
struct PemSource {
  std::string text;
  std::string file;
  bool empty() const { return text.empty() && file.empty(); }
};

/// More than what an API server sends of one object. It takes requests of 3 MiB, and may write each
/// byte of them as six ("\u003c").
inline constexpr std::size_t kObjectBytesMax = std::size_t{24} << 20;

struct RestTransportOptions {
  std::string url;               ///< "https://10.0.0.1:443"; http only for a loopback address
  PemSource ca;                  ///< required with https
  std::string token;             ///< bearer token; empty = that of the file, or none
  std::string token_file;        ///< re-read at least once a minute and after a 401; empty = none.
                                 ///< With a token, too: that one only until the file has one
  PemSource client_certificate;  ///< with client_key; empty = none
  PemSource client_key;
  std::string user_agent;  ///< empty = the library's
  std::size_t body_bytes_max = kObjectBytesMax;
  std::size_t line_bytes_max = kObjectBytesMax;
  int threads = 4;  ///< of the library's pool; the first transport of the process decides
  const Clock* clock = nullptr;  ///< outlives the transport
};

/// Errors: kInvalid naming the option (URL; a CA, certificate or key that cannot be read
/// or used; a client certificate that has expired). They never quote a secret.
Result<std::unique_ptr<HttpTransport>> make_rest_transport(RestTransportOptions options);

}  // namespace muster::kube
