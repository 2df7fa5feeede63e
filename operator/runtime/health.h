// Liveness and readiness over HTTP: GET /healthz and /readyz.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/result.h"

namespace muster::runtime {

struct HealthOptions {
  std::string address = "127.0.0.1";
  int port = 0;  ///< 0 = any free one
  /// Why not, or empty. Called on the server's thread; must return at once.
  std::function<std::string()> not_alive, not_ready;
};

class Health {
 public:
  /// Errors: kIo naming address and port.
  static Result<std::unique_ptr<Health>> start(const HealthOptions& options);
  virtual ~Health() = default;
  virtual int port() const = 0;
  virtual void stop() = 0;
};

}  // namespace muster::runtime
