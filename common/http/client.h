// HTTP/1.1 clients: a blocking one for one exchange at a time, and one that runs many on a thread
// of its own. Every exchange has one deadline, redirects are answers like others, and https is
// spoken only with a server whose certificate leads to the given CA and names it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/http/message.h"
#include "common/result.h"

namespace muster::http {

struct Call {
  std::string method = "GET";
  std::string url{};
  std::string address{};         ///< numeric, to connect to; empty = the URL's host, looked up
  std::string body{};            ///< sent as application/json
  std::string bearer_token{};    ///< empty = none
  Headers headers{};             ///< besides those that the other fields make
  std::string ca_certificate{};  ///< PEM of what https trusts, and nothing else
  std::string server_name{};     ///< in the server's certificate; empty = the URL's host
  milliseconds timeout{5'000};   ///< of the whole exchange, from connect to last byte
  std::size_t body_bytes_max = std::size_t{1024} * 1024;  ///< of the answer
};

/// Threads: exchange() from one at a time, abort() from any.
class Client {
 public:
  Client();
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// Sends `call` and reads the answer, whatever its status. Errors: kInvalid (URL, CA),
  /// kUnavailable (no connection, cut, or a certificate that is not trusted: the sentence says
  /// why), kDeadlineExceeded, kTooLarge, kCorrupt (not HTTP), kAborted. Blocks: up to the timeout;
  /// a host given by name adds the system resolver's time, which cannot be interrupted.
  Result<Response> exchange(const Call& call);

  /// Ends the exchange under way and all later ones with kAborted. Blocks: no.
  void abort();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Threads: any for every method.
class AsyncClient {
 public:
  using Done = std::function<void(Result<Response>)>;

  explicit AsyncClient(std::size_t in_flight_max);
  ~AsyncClient();
  AsyncClient(const AsyncClient&) = delete;
  AsyncClient& operator=(const AsyncClient&) = delete;

  /// Calls `done` once with what Client::exchange would return, on the client's thread; or at once
  /// with kTooManyRequests over the bound, or kAborted after stop(). What stop() finds under way is
  /// dropped without a call. Names are looked up one after another, outside the timeout. Blocks:
  /// no.
  void exchange(Call call, Done done);
  /// Ends all exchanges and the thread. Not from a callback.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::http
