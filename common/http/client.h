// A blocking HTTP/1.1 client for one exchange at a time, each under one deadline.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/http/message.h"
#include "common/result.h"

namespace muster::http {

struct Call {
  std::string method = "GET";
  std::string url{};
  std::string body{};           ///< sent as application/json
  std::string bearer_token{};   ///< empty = none
  milliseconds timeout{5'000};  ///< of the whole exchange, from connect to last byte
  std::size_t body_bytes_max = std::size_t{1024} * 1024;  ///< of the answer
};

/// Threads: exchange() from one at a time, abort() from any.
class Client {
 public:
  Client();
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Sends `call` and reads the answer, whatever its status. Errors: kInvalid (URL), kUnsupported
  /// (https), kUnavailable (no connection, or cut), kDeadlineExceeded, kTooLarge, kCorrupt (not
  /// HTTP), kAborted. Blocks: up to the timeout; a host given by name adds the system resolver's
  /// time, which cannot be interrupted.
  Result<Response> exchange(const Call& call);

  /// Ends the exchange under way and all later ones with kAborted. Blocks: no.
  void abort();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::http
