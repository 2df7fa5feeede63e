// The operator's /metrics behind TLS, TokenReview and SubjectAccessReview (non-resource URL
// /metrics, verb get), as controller-runtime serves it; or plain where that is asked for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/http/tls.h"
#include "common/result.h"

namespace muster::runtime {

class Reviewer;

struct MetricsServerOptions {
  std::string address = "0.0.0.0";
  int port = 8443;                       ///< 0 = any free one
  std::optional<http::TlsIdentity> tls;  ///< nothing: plain HTTP
  /// Who may read; nullptr: everybody. Outlives the server.
  Reviewer* reviewer = nullptr;
  /// The page in Prometheus' text format. Called on the server's thread.
  std::function<std::string()> render;
  std::string content_type = "text/plain; version=0.0.4; charset=utf-8";
};

/// Threads: any for every method. Answers to GET /metrics: 200; 401 without or with a wrong token;
/// 403 without the right; 503 while the API server cannot be asked. Everything else: 404, 405.
class MetricsServer {
 public:
  /// Errors: kIo naming address and port, kInvalid (identity).
  static Result<std::unique_ptr<MetricsServer>> start(MetricsServerOptions options);
  virtual ~MetricsServer() = default;

  virtual int port() const = 0;
  virtual std::string url() const = 0;
  /// For connections from now on. Errors: kInvalid; the earlier identity stays.
  virtual Status replace_identity(const http::TlsIdentity& identity) = 0;
  virtual void stop() = 0;
};

}  // namespace muster::runtime
