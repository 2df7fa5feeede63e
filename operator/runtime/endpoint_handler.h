// The workers' endpoint without its socket: which answer a request gets, and when. A join that
// finds its gang incomplete is parked for a moment, so that the last joiner releases all at once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/http/message.h"
#include "common/http/server.h"
#include "operator/runtime/workers_endpoint.h"

namespace muster::runtime {

/// Longest time a join waits in the endpoint for the rest of its gang.
inline constexpr milliseconds kJoinHold{250};
/// Posts a worker may send at once, and that it gets back each second.
inline constexpr int kPostsPerSecond = 10;

/// Threads: any for every method. Callbacks and replies are called without the lock.
class EndpointHandler {
 public:
  /// Runs a task after a delay, or never; tests run it when they like.
  using RunAfter = std::function<void(milliseconds, std::function<void()>)>;

  EndpointHandler(WorkersEndpointOptions options, RunAfter run_after);

  /// Answers `request` through `respond`, now or within kJoinHold.
  void handle(const http::Request& request, const http::Responder& respond);
  void set_gang(GangInfo gang);
  void remove_gang(const std::string& job);
  /// Answers all parked joins with 503; from now on everything is.
  void stop();

 private:
  using Replies = std::vector<std::pair<http::Responder, http::Response>>;

  struct Parked {
    std::uint64_t id = 0;
    http::Responder respond;
  };

  struct Worker {
    std::optional<JoinRequest> joined;  ///< its newest accepted post
    std::optional<Parked> parked;
    std::string pod_uid;
    double posts_left = kPostsPerSecond;
    MonoTime posts_at{};
  };

  struct Gang {
    GangInfo info;
    std::map<int, Worker> workers;  ///< by slot; exactly the slots of info
    std::string complete_body;      ///< the answer once all have joined; empty before
  };

  /// What a post is refused with; nothing when it may go on. The lock is held.
  std::optional<http::Response> refuse(const std::string& job, int slot, int attempt,
                                       const Caller& caller);
  void join(JoinRequest request, const Caller& caller, const http::Responder& respond);
  void progress(const ProgressReport& report, const Caller& caller, const http::Responder& respond);
  std::optional<http::Response> refuse_join(const Gang& gang, const Worker& worker,
                                            const JoinRequest& request, const Caller& caller) const;
  void park(const std::string& job, Worker& worker, int slot, const http::Responder& respond,
            Replies& replies);
  void end_hold(const std::string& job, int slot, std::uint64_t id);
  /// Answers all parked joins of `gang` with `response`, a copy each: it may live in `replies`.
  static void release(Gang& gang, http::Response response, Replies& replies);
  static http::Response waiting(const Gang& gang);

  WorkersEndpointOptions options_;
  RunAfter run_after_;
  std::mutex mutex_;
  std::map<std::string, Gang> gangs_;  ///< by job; guarded by mutex_
  std::uint64_t next_id_ = 0;          ///< guarded by mutex_
  bool is_stopping_ = false;           ///< guarded by mutex_
};

}  // namespace muster::runtime
