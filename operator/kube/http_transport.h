// One HTTP exchange with the API server. Everything above this seam is the same for a real cluster
// (cpprestsdk behind kube_rest), for local runs and tests (operator/embedded) and for scripted
// faults.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/result.h"

namespace muster::kube {

/// Whether this process may change anything in the cluster.
class WriteFence {
 public:
  virtual ~WriteFence() = default;
  /// Until when a write may be under way; nullopt: none may begin, and those under way end. It may
  /// move on meanwhile. Threads: any. Blocks: no.
  virtual std::optional<MonoTime> open_until() const = 0;
};

struct HttpRequest {
  std::string method = "GET";
  std::string path;          ///< with query: "/api/v1/pods?limit=100"
  std::string content_type;  ///< of the body; empty = none
  std::string body;
  milliseconds timeout{10'000};  ///< of the whole exchange; for a stream, until its headers
  /// Who waits for the answer asks it again every second, and ends the exchange when it has closed.
  /// Outlives the exchange; nullptr: only the timeout ends it.
  const WriteFence* fence = nullptr;
};

struct HttpResponse {
  int code = 0;
  std::string body;
  std::optional<seconds> retry_after;
};

/// An open watch: newline-delimited JSON.
class HttpStream {
 public:
  virtual ~HttpStream() = default;
  /// The next line without its end. Blocks: until a line, the end of the stream (nullopt), or
  /// for `idle` (kDeadlineExceeded: no whole line yet; it may be asked for again). Errors:
  /// kUnavailable (cut, or a line that stays a part), kTooLarge (line over the bound), kAborted
  /// (after close()).
  virtual Result<std::optional<std::string>> next_line(milliseconds idle) = 0;
  /// Ends next_line from another thread. Idempotent.
  virtual void close() = 0;
};

/// Threads: any; calls are independent.
class HttpTransport {
 public:
  virtual ~HttpTransport() = default;
  /// Any status code is a value. Errors: kUnavailable (no connection; nothing was sent),
  /// kDeadlineExceeded (whether it took effect is unknown), kTooLarge.
  virtual Result<HttpResponse> send(const HttpRequest& request) = 0;
  struct Stream {
    HttpResponse head;                   ///< code 200, or an error with its body and no stream
    std::unique_ptr<HttpStream> stream;  ///< nullptr unless code is 200
  };
  virtual Result<Stream> open_stream(const HttpRequest& request) = 0;
};

}  // namespace muster::kube
