// A small HTTP/1.1 server for the workers' endpoint, metrics and health. It bounds what a client
// can make it hold: header, body, connections and time. It knows no routes; one handler gets all.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/http/message.h"
#include "common/http/tls.h"
#include "common/result.h"

namespace muster::http {

/// Answers one request, at once or later (a long poll), exactly once; later calls do nothing, as do
/// calls after the client or the server has gone. Threads: any. Blocks: no.
using Responder = std::function<void(Response)>;

/// Runs on an IO thread of the server and must return soon. An exception is answered with 500.
using Handler = std::function<void(const Request&, Responder)>;

struct ServerOptions {
  std::string address = "127.0.0.1";  ///< numeric
  int port = 0;                       ///< 0 = any free one
  int threads = 1;
  std::size_t header_bytes_max = std::size_t{8} * 1024;  ///< over it: 431
  std::size_t body_bytes_max = std::size_t{16} * 1024;   ///< over it: 413
  /// Over it the oldest one is closed that has no whole request, else the new one.
  std::size_t connections_max = 256;
  milliseconds request_timeout{5'000};  ///< from first to last byte; then the connection is closed
  milliseconds idle_timeout{30'000};    ///< between two requests of a connection
  /// Nothing: plain HTTP. Else TLS alone, whose handshake has the request's time to end; plain HTTP
  /// is then answered with 400 and a sentence.
  std::optional<TlsIdentity> tls;
};

class Server {
 public:
  /// Binds and serves. Errors: kIo naming address and port, with exit code kPort; kInvalid (tls).
  static Result<std::unique_ptr<Server>> start(ServerOptions options, Handler handler);
  virtual ~Server() = default;

  virtual int port() const = 0;
  /// "http://127.0.0.1:40123", with https where TLS is spoken.
  virtual std::string url() const = 0;
  /// Shows `identity` to connections from now on. Errors: kInvalid (the earlier one stays),
  /// kUnsupported without TLS.
  virtual Status replace_identity(const TlsIdentity& identity) = 0;
  /// Runs `task` on an IO thread after `delay`, unless the server stops before.
  virtual void run_after(milliseconds delay, std::function<void()> task) = 0;
  /// Closes every connection and ends the threads; nothing of the handler runs after it returned.
  /// Idempotent. Blocks: until running handlers have returned. Not from a handler.
  virtual void stop() = 0;
};

}  // namespace muster::http
