// The workers' endpoint: rendezvous of a gang (join) and its reports (progress), over HTTP on
// loopback in local runs and over TLS in a cluster. It decides nothing about jobs: the loop tells
// it which gangs may join, and gets what workers say through the callbacks.
//
// Every replica serves; one that does not lead hands posts on to the leader, unread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "common/clock.h"
#include "common/http/tls.h"
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
  /// JSON, as text, which takes a tenth of the memory; empty for own programs: they do not join.
  std::string training{};
  std::string job_key;  ///< 64 hexadecimal digits
  /// Whether it is made of the master key that the gang started with. Of one that is not there, or
  /// not yet, another one stands in for it.
  bool is_key_sure = true;
  /// The pods of the slots: a token bound to a pod must be that of the slot's pod. A slot without
  /// an entry: its pod is not known yet, and the worker is asked to come again.
  struct PodIdentity {
    std::string name, uid;
    bool operator==(const PodIdentity&) const = default;
  };
  std::map<int, PodIdentity> pod_of_slot{};
  /// The attempt that the gang last started with: slots of a later one join a gang that trains.
  /// Negative: no slot does.
  int start_attempt = -1;
  /// Of these the ones that are to know all their data before they ask to be let in.
  std::set<int> checking_slots{};
};

/// What the operator answers a witness's question with; called once. Errors: kUnavailable (ask
/// again), kInvalid. Threads: any.
using WitnessAnswer = std::function<void(const Result<WitnessResponse>&)>;

/// Who posted, proved by its bearer token.
struct Caller {
  std::string pod_namespace, pod_name;
  std::string pod_uid;  ///< empty = any worker of any job (the random token of a local run)
};

/// What somebody shows who posts.
struct Credential {
  std::string bearer_token;
  /// Of the pods of gangs that may join here that which the token claims to be of, unproved; empty:
  /// of none. Made-up tokens of one pod, or of nobody, must not keep others waiting.
  std::string known_pod_uid{};
};

class Authenticator {
 public:
  using Done = std::function<void(const Result<Caller>&)>;
  virtual ~Authenticator() = default;
  /// Calls `done` once, before it returns or later from another thread. Errors: kUnauthorized,
  /// kForbidden, kUnavailable. Threads: any. Blocks: no.
  virtual void authenticate(const Credential& credential, Done done) = 0;
};

/// Accepts exactly one random token; compared in constant time.
std::unique_ptr<Authenticator> make_local_authenticator(std::string token);

struct WorkersEndpointOptions {
  std::string address = "127.0.0.1";
  int port = 0;  ///< 0 = any free one
  const Clock* clock = nullptr;
  Authenticator* authenticator = nullptr;
  /// Called on the endpoint's thread for each accepted report or completed join; must return at
  /// once. False: there is no room for the report now, and the worker is to come again.
  std::function<bool(const ProgressReport&)> on_progress;
  std::function<void(const std::string& job, int slot)> on_join;
  /// Called likewise for each question that a worker of the gang may ask; whoever takes it decides
  /// and answers later. Not set: there is no witness.
  std::function<void(const WitnessRequest&, WitnessAnswer)> on_witness{};

  std::optional<http::TlsIdentity> tls{};  ///< nothing: plain HTTP, on loopback only
  /// "<ip>:<port>" of the replica that leads, when it is another one; empty when this one leads or
  /// nobody does: posts are then answered here. Not set in local runs. Threads: any.
  std::function<std::string()> leader_address{};
  /// PEM of the CAs whose replicas posts are handed on to; they are reached as
  /// contract::kServiceEndpoint. Needed with leader_address. Threads: any.
  std::function<std::string()> ca_bundle{};
  /// Called with every answer, for metrics: the path asked for and the code.
  std::function<void(std::string_view path, int code)> on_answer{};
};

/// Threads: any for every method. Answers: 200; 400 bad body; 401 token; 403 the token is of no
/// pod, or of another one than the slot's; 404 no such gang; 409 slot, attempt or contract does not
/// belong to it (the sentence says why); 413, 431; 429 more than 10 posts a second from one worker;
/// 503 while stopping, the API server or the leader cannot be asked, or the pod is not known yet.
class WorkersEndpoint {
 public:
  virtual ~WorkersEndpoint() = default;
  virtual std::string url() const = 0;  ///< "http://127.0.0.1:40123"
  /// For connections from now on. Errors: kInvalid (the earlier identity stays), kUnsupported.
  virtual Status replace_identity(const http::TlsIdentity&) { return {}; }
  /// Replaces the job's earlier gang, and joins start anew. A gang with the same start_attempt is
  /// the same one, in another size or with other workers in some slots: it keeps its key, but for
  /// one that was not sure and with which it did not start here, and what is known of the workers
  /// that stay.
  virtual void set_gang(GangInfo gang) = 0;
  virtual void remove_gang(const std::string& job) = 0;
  virtual void stop() = 0;
};

Result<std::unique_ptr<WorkersEndpoint>> make_workers_endpoint(WorkersEndpointOptions options);

}  // namespace muster::runtime
