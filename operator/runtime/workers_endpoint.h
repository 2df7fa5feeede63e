// The workers' endpoint: rendezvous of a gang (join) and its reports (progress), over HTTP on
// loopback in local runs and over TLS in a cluster. It decides nothing about jobs: the loop tells
// it which gangs may join, and gets what workers say through the callbacks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/clock.h"
#include "common/messages.h"
#include "common/result.h"

namespace muster::runtime {

/// A gang whose workers may join, as stored in its job's status.
struct GangInfo {
  std::string job;  ///< "<namespace>/<name>"
  std::string job_uid;
  std::int64_t epoch = 0;              ///< membership epoch
  std::map<int, int> attempt_of_slot;  ///< every slot of the gang with its attempt
  int processes = 1;
  int threads = 1;
  Json training;        ///< null for own programs: they do not join
  std::string job_key;  ///< 64 hexadecimal digits
};

/// Who posted, proved by its bearer token.
struct Caller {
  std::string job_uid;  ///< empty = any job (the random token of a local run)
  std::string pod_uid;
};

class Authenticator {
 public:
  virtual ~Authenticator() = default;
  /// Errors: kUnauthorized, kForbidden, kUnavailable. Threads: any.
  virtual Result<Caller> authenticate(const std::string& bearer_token) = 0;
};

/// Accepts exactly one random token; compared in constant time.
std::unique_ptr<Authenticator> make_local_authenticator(std::string token);

struct WorkersEndpointOptions {
  std::string address = "127.0.0.1";
  int port = 0;  ///< 0 = any free one
  const Clock* clock = nullptr;
  Authenticator* authenticator = nullptr;
  /// Called on the endpoint's thread for each accepted report or completed join; must return at
  /// once.
  std::function<void(const ProgressReport&)> on_progress;
  std::function<void(const std::string& job, int slot)> on_join;
};

/// Threads: any for every method. Answers: 200; 400 bad body; 401, 403; 404 no such gang; 409 slot,
/// attempt or contract does not belong to it (the sentence says why); 413; 429 more than 10 posts a
/// second from one worker; 503 while stopping.
class WorkersEndpoint {
 public:
  virtual ~WorkersEndpoint() = default;
  virtual std::string url() const = 0;  ///< "http://127.0.0.1:40123"
  /// Replaces the job's earlier gang, and joins start anew; the same gang again changes nothing.
  virtual void set_gang(GangInfo gang) = 0;
  virtual void remove_gang(const std::string& job) = 0;
  virtual void stop() = 0;
};

Result<std::unique_ptr<WorkersEndpoint>> make_workers_endpoint(WorkersEndpointOptions options);

}  // namespace muster::runtime
