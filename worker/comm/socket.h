// Descriptors and TCP sockets with the options that all connections share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/result.h"
#include "worker/comm/communicator.h"

namespace muster::comm {

/// Owns a descriptor; closes it at the end.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();
  /// Gives the descriptor up to the caller.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// "connect: Connection refused" for messages.
std::string errno_text(const char* call, int error);

/// Starts connecting to `address`; the socket is non-blocking and becomes writable when done.
/// Blocks: no for a numeric host; for a name, as long as the resolver's own timeouts.
/// Errors: kUnavailable.
Result<UniqueFd> start_connect(const PeerAddress& address);

/// Non-blocking, close-on-exec, without Nagle's delay. Errors: kIo.
Status set_connection_options(int fd);

}  // namespace muster::comm
