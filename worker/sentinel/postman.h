// The sentinel's talk with the workers' endpoint, on a thread of its own: first the join, then
// progress at most once a second, or as rarely as the endpoint asks for. The sentinel never waits
// for the network.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/http/client.h"
#include "common/messages.h"
#include "common/result.h"

namespace muster::sentinel {

struct PostmanOptions {
  std::string endpoint;          ///< URL without a path
  std::string ca_certificate{};  ///< PEM, for an https endpoint
  std::string token_file;        ///< read anew for each post
  JoinRequest request;           ///< an empty host is replaced by own_address()
  const Clock* clock = nullptr;
  std::uint64_t seed = 1;               ///< of back-off jitter
  milliseconds join_deadline{300'000};  ///< for a word of who is there; it comes again and again
  milliseconds backoff_first{20};
  milliseconds backoff_most{2'000};
  milliseconds report_interval{1'000};
  milliseconds report_backoff_most{15'000};  ///< before what was not taken is sent again
  milliseconds post_timeout{5'000};
  /// As addresses_of(), which it is where it is empty. May block for as long as it likes.
  std::function<Result<std::vector<std::string>>(const std::string& host)> look_up{};
};

/// Threads: one owner.
class Postman {
 public:
  /// What the join came to, with the request as it was sent.
  struct Joined {
    JoinRequest request;
    JoinResponse response;
  };

  /// Starts joining at once.
  explicit Postman(PostmanOptions options);
  ~Postman();
  Postman(const Postman&) = delete;
  Postman& operator=(const Postman&) = delete;

  /// Readable once the join has ended, one way or the other (a whole gang's when it is to begin),
  /// and when the witness has answered.
  int event_fd() const { return event_fd_; }
  /// The join's outcome once event_fd() is readable. Errors carry the exit code: a refusal, or the
  /// endpoint told nothing of the gang for the deadline (kPeerLost).
  std::optional<Result<Joined>> take_joined();

  /// The newest report; an older one that was not taken yet is dropped. It is sent until it is
  /// taken, ever more rarely. `number` comes back through told() once it has arrived. The first one
  /// of a membership does not wait for the interval: before it is known that a gang trains, a death
  /// starts all of it anew.
  void set_report(const ProgressReport& report, std::uint64_t number = 0);
  /// The number of the newest report that has arrived, 0 before.
  std::uint64_t told() const;
  /// Asks before the next report; a question that was not sent yet is dropped for a newer one.
  void ask_witness(const WitnessRequest& request);
  /// What the witness said, once.
  std::optional<WitnessResponse> take_witness_answer();
  /// Sends the newest report once more if it is unsent, within `timeout`, and ends the thread.
  /// Blocks: up to `timeout`, and until an address that is being looked up is found: for the first
  /// join, or because the endpoint does not answer at the one it had.
  void finish(milliseconds timeout);

 private:
  void run();
  Result<Joined> join();
  /// One join post: the answer, nothing (wait and post again), or why it is over.
  Result<std::optional<JoinResponse>> post_join(const JoinRequest& request);
  Status find_endpoint();
  Result<http::Response> post(std::string_view path, const std::string& body);
  /// Until `time` has passed or the postman stops; whether it goes on.
  bool wait(milliseconds time);
  void report_until_finished();
  /// To be sent again unless there is a newer one.
  void put_back(const ProgressReport& report, std::uint64_t number);
  /// Returns how long the endpoint wants to hear nothing; nothing where it was not taken.
  std::optional<milliseconds> send_report(const ProgressReport& report, std::uint64_t number);
  void send_question(const WitnessRequest& request);

  PostmanOptions options_;
  http::Client client_;
  int event_fd_ = -1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;                    ///< guarded by mutex_
  bool is_finished_ = false;                    ///< guarded by mutex_: the thread has nothing to do
  std::optional<ProgressReport> unsent_;        ///< guarded by mutex_
  bool is_report_new_ = false;                  ///< guarded by mutex_: it was not looked at yet
  bool was_refused_ = false;                    ///< guarded by mutex_: unsent_ was not taken
  std::uint64_t unsent_number_ = 0, told_ = 0;  ///< guarded by mutex_
  std::optional<WitnessRequest> question_;      ///< guarded by mutex_
  std::optional<WitnessResponse> answer_;       ///< guarded by mutex_
  std::optional<Result<Joined>> joined_;        ///< guarded by mutex_
  std::vector<std::string> addresses_;          ///< of the thread: the endpoint's, best first
  std::string answered_;                        ///< of the thread: where the last answer came from
  std::string last_state_;                      ///< of the thread: log a state when it changes
  std::string last_report_state_;               ///< likewise
  std::thread thread_;
};

}  // namespace muster::sentinel
