// How much may come over a connection before somebody takes it. The HTTP library reads a header,
// the size of a chunk, or a chunk to its end before it hands anything on, however long the server
// makes it: -5 bytes are 2^64. It has no bound to set; but it reads through OpenSSL, where each
// connection can have one. Plain HTTP has none: it is for loopback addresses alone.
#pragma once

#include <openssl/types.h>

#include <atomic>
#include <cstddef>
#include <memory>

namespace muster::kube {

/// Threads: any.
class Inflow {
 public:
  explicit Inflow(std::size_t bytes_most) : bytes_most_(bytes_most) {}
  /// So much more has come; whether that is still within the bound.
  bool take(std::size_t bytes) { return (bytes_ += bytes) <= bytes_most_; }
  /// What has come was taken, or belongs to an exchange that is over.
  void restart() { bytes_ = 0; }
  std::size_t bytes_most() const { return bytes_most_; }

 private:
  const std::size_t bytes_most_;
  std::atomic<std::size_t> bytes_{0};
};

/// A connection of `context` that brings more than `inflow` takes fails, as a broken one does, and
/// the log says why. The context keeps `inflow` alive.
void bound_inflow(SSL_CTX* context, std::shared_ptr<Inflow> inflow);

/// A further exchange begins on `connection`, whose context has an inflow.
void restart_inflow(SSL* connection);

}  // namespace muster::kube
