// The workers' endpoint without its socket: which answer a request gets, and when. A join that
// finds its gang incomplete is parked for a moment, so that the last joiner releases all at once.
// Once a gang has started, later workers are told at once whom to ask to be let in.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "common/http/message.h"
#include "common/http/server.h"
#include "operator/runtime/workers_endpoint.h"

namespace muster::runtime {

/// Longest time a join waits in the endpoint for the rest of its gang.
inline constexpr milliseconds kJoinHold{250};
/// Joins a second that the workers of all gangs together are asked for while they wait: each is a
/// connection of its own with its handshake. Every gang has the same share, so that one of hundreds
/// does not make a small one wait. The last worker may come just after the others were told to come
/// again: the gang then begins so much later, and therefore nobody is asked to wait longer.
inline constexpr int kJoinsPerSecond = 200;
inline constexpr milliseconds kJoinPauseMost{4'000};
/// For the way of the last answer, where some who start were told to come again later.
inline constexpr milliseconds kBeginSlack{250};
/// Posts a worker may send at once, and that it gets back each second.
inline constexpr int kPostsPerSecond = 10;
/// Reports a second that the workers of all jobs together are asked for: each is a connection of
/// its own with its handshake, and a look at the job. Progress is written every 15 s, so that
/// nobody is asked to wait longer.
inline constexpr int kReportsPerSecond = 500;
inline constexpr milliseconds kReportPauseMost{15'000};

/// After how long a worker is to ask again that has waited for kJoinHold: of `waiting` workers of
/// one gang, where `gangs` (itself included) wait.
milliseconds join_pause(std::size_t waiting, std::size_t gangs);

/// Threads: any for every method. Callbacks and replies are called without the lock.
class EndpointHandler {
 public:
  /// Runs a task after a delay, or never; tests run it when they like.
  using RunAfter = std::function<void(milliseconds, std::function<void()>)>;

  /// Sends `request` to the replica at `address` and answers with what it said; nothing where
  /// there are no other replicas.
  using Forward = std::function<void(const http::Request& request, const std::string& address,
                                     const http::Responder& respond)>;

  EndpointHandler(WorkersEndpointOptions options, RunAfter run_after, Forward forward = nullptr);
  ~EndpointHandler() { close_gate(); }
  EndpointHandler(const EndpointHandler&) = delete;
  EndpointHandler& operator=(const EndpointHandler&) = delete;

  /// Answers `request` through `respond`, now or within kJoinHold.
  void handle(const http::Request& request, const http::Responder& respond);
  void set_gang(GangInfo gang);
  void remove_gang(const std::string& job);
  /// Answers all parked joins with 503; from now on everything is. Nothing that an authenticator
  /// still answers reaches this object afterwards. Blocks: until callbacks under way have returned.
  void stop();

 private:
  /// What the token is asked about with. The lock is not held.
  Credential credential_of(const std::string& token);
  void know_pods(const GangInfo& gang);
  void forget_pods(const GangInfo& gang);

  using Replies = std::vector<std::pair<http::Responder, http::Response>>;

  struct Parked {
    std::uint64_t id = 0;
    http::Responder respond;
  };

  struct Worker {
    std::optional<JoinPeer> address;  ///< by its newest accepted join or report
    bool trains = false;              ///< it says itself that it is a member
    bool was_told = false;            ///< on_join was called for it
    bool waits = false;               ///< it has asked, and was not told of a whole gang yet
    bool begins_together = false;     ///< by its newest join
    MonoTime away_until{};            ///< before that it does not ask again
    std::optional<Parked> parked;
    std::string pod_uid;
    double posts_left = kPostsPerSecond;
    MonoTime posts_at{};
  };

  struct Gang {
    GangInfo info;
    std::map<int, Worker> workers;  ///< by slot; exactly the slots of info
    /// The answer to those who start the gang, once all of them have joined here. All get the same,
    /// whatever happens later: it is the first membership. Empty where the gang started before this
    /// endpoint did.
    std::string start_body;
    bool has_started = false;
    /// When all who start the gang know that it is whole.
    MonoTime begins_at{};
  };
  /// Whom to tell about, outside the lock.
  using Told = std::vector<std::pair<std::string, int>>;
  enum class Post { kJoin, kProgress, kWitness };

  void close_gate();
  /// Hands the post on to the leader, or refuses it; whether it did.
  bool answer_elsewhere(const http::Request& request, const http::Responder& respond);
  static std::optional<Post> post_of(std::string_view path);
  void handle_post(Post post, const std::string& body, const Result<Caller>& caller,
                   const http::Responder& respond);
  /// Refuses a token of another pod than that of `slot`. The lock is held.
  static std::optional<http::Response> refuse_pod(const GangInfo& info, int slot, int attempt,
                                                  const Caller& caller);
  /// What a post is refused with; nothing when it may go on. The lock is held.
  std::optional<http::Response> refuse(const std::string& job, int slot, int attempt,
                                       const Caller& caller);
  void join(JoinRequest request, const Caller& caller, const http::Responder& respond);
  void progress(const ProgressReport& report, const Caller& caller, const http::Responder& respond);
  void witness(const WitnessRequest& request, const Caller& caller, const http::Responder& respond);
  std::optional<http::Response> refuse_join(const Gang& gang, const Worker& worker,
                                            const JoinRequest& request, const Caller& caller) const;
  void park(Gang& gang, int slot, const http::Responder& respond, Replies& replies);
  void end_hold(const std::string& job, int slot, std::uint64_t id);
  /// The gang starts when every worker that starts it has joined.
  void try_start(Gang& gang) const;
  /// The answer to those who start `gang`, now.
  http::Response start_answer(const Gang& gang) const;
  /// What a slot that has joined is answered now; nothing while it has to wait.
  std::optional<http::Response> answer_join(const Gang& gang, int slot) const;
  /// Answers all parked joins of `gang` that need not wait any more, and notes whether some do. The
  /// lock is held.
  void release(Gang& gang, Replies& replies, Told& told);
  /// After how long who has waited for the rest of `gang` is to ask again. The lock is held.
  milliseconds pause_of(const Gang& gang) const;
  /// The lock is held.
  void note_waiting(const Gang& gang);
  /// Answers all parked joins of `gang` with `response`.
  static void send_back(Gang& gang, const http::Response& response, Replies& replies);
  /// Takes over what a report says about where its sender is and whether it trains.
  static void take_address(Gang& gang, Worker& worker, const ProgressReport& report);
  static http::Response waiting(const Gang& gang, milliseconds pause = milliseconds(0));
  void tell(const Told& told) const;

  WorkersEndpointOptions options_;
  /// Held shared while the answer of an authenticator is used: it comes from another thread.
  struct Gate {
    std::shared_mutex mutex;
    bool is_closed = false;  ///< guarded by mutex
  };

  RunAfter run_after_;
  Forward forward_;
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  std::mutex mutex_;
  std::map<std::string, Gang> gangs_;  ///< by job; guarded by mutex_
  std::size_t workers_ = 0;            ///< of all gangs; guarded by mutex_
  std::set<std::string> pod_uids_;     ///< of all gangs' pods; guarded by mutex_
  std::set<std::string> waiting_;      ///< jobs of gangs with workers that wait; guarded by mutex_
  std::uint64_t next_id_ = 0;          ///< guarded by mutex_
  bool is_stopping_ = false;           ///< guarded by mutex_
};

}  // namespace muster::runtime
