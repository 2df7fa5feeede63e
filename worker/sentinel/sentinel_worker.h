// The sentinel's inside: sentinel.cpp has its life from join to end, sentinel_trainers.cpp its
// trainers, sentinel_members.cpp what it does with the other sentinels.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/contract.h"
#include "common/http/server.h"
#include "worker/sentinel/change_book.h"
#include "worker/sentinel/channel.h"
#include "worker/sentinel/membership.h"
#include "worker/sentinel/mesh.h"
#include "worker/sentinel/metrics.h"
#include "worker/sentinel/postman.h"
#include "worker/sentinel/progress.h"
#include "worker/sentinel/sentinel.h"
#include "worker/sentinel/strangers.h"
#include "worker/sentinel/trainer_process.h"

namespace muster::sentinel {

/// How a worker ends: the code and, unless it is 0, the sentence.
struct Outcome {
  int code = contract::exit_code::kComplete;
  std::string sentence;
};

Outcome outcome_of(const Error& error);
double seconds_between(MonoTime from, MonoTime to);

/// Threads: one.
class SentinelWorker {
 public:
  explicit SentinelWorker(const SentinelOptions& options);
  ~SentinelWorker();
  SentinelWorker(const SentinelWorker&) = delete;
  SentinelWorker& operator=(const SentinelWorker&) = delete;

  Outcome run();
  /// The last word goes to the log first: the endpoint may be gone.
  void leave(const Outcome& outcome);

 private:
  // sentinel.cpp
  Outcome live();
  Status prepare();
  Status open_listeners();
  Status serve_metrics();
  std::optional<Outcome> join();
  std::optional<Outcome> start_all(const Postman::Joined& joined);
  void watch();
  int poll_timeout() const;
  void take_signals();
  bool is_missed() const;
  void stop_untold();
  Outcome judge() const;
  void kill_leftovers();
  ProgressReport full_report() const;
  void report();
  MonoTime now() const { return options_.clock->mono_now(); }

  // sentinel_trainers.cpp
  Status start(TrainerProcess& process);
  void respawn_due();
  bool is_any_left() const;
  void take_messages(std::size_t index);
  void take(TrainerProcess& process, int local_rank, TrainerMessage& message);
  void finish();
  void take_entered(TrainerProcess& process, int local_rank, const EnteredMessage& entered);
  /// All trainers of its view lived when the step began.
  void take_sign_of_life(const StepRecord& step);
  void take_change_delay(int local_rank, const StepRecord& step);
  void take_pace(TrainerProcess& process, const Pace& pace);
  void judge_own_paces();
  void tell_slow(const TrainerProcess& process);
  void close_channel(TrainerProcess& process);
  void take_deaths();
  void reap();
  void on_end(std::size_t index, int status);
  bool is_finished() const;
  /// Whether another process takes its place.
  bool respawns(TrainerProcess& process, const Outcome& ended, bool is_signaled);
  Outcome explain(const TrainerProcess& process, int status);
  void kill_hung();
  void kill_running();

  // sentinel_members.cpp
  void begin_membership(const Postman::Joined& joined);
  void take_mesh();
  void note_stranger(const std::string& host);
  void act();
  void on_view(const View& view);
  void tell(TrainerProcess& process, const View& view);
  void on_fenced();
  void end_with(Outcome outcome);
  void update_ready();
  void say_goodbye();

  const SentinelOptions& options_;
  const WorkerConfig& config_;
  ProgressBook book_;
  ChangeBook changes_;
  Metrics metrics_;
  JoinRequest request_;
  std::string host_;  ///< as the others reach this worker
  int signal_fd_ = -1;
  UniqueFd death_fd_;               ///< written by the DeathWatch of each trainer
  std::int64_t memory_kills_ = -1;  ///< there were before, or have explained a death
  std::vector<int> listeners_;
  std::vector<TrainerProcess> processes_;  ///< by local rank
  std::vector<Outcome> ends_;              ///< of trainers that did not end with 0, in order
  std::optional<Mesh> mesh_;
  Strangers strangers_;
  std::optional<Membership> membership_;
  int file_workers_ = 1;  ///< the first slots, without which nobody saves
  /// The newest that was decided with a seat for this worker, or without one since it has left.
  View told_view_;
  std::uint64_t digest_ = 0;
  MonoTime began_at_{}, joined_at_{}, reported_at_{};
  MonoTime asked_at_{};   ///< to leave
  MonoTime judges_at_{};  ///< how fast its trainers are, not before
  std::optional<MonoTime> kill_at_;
  bool is_stopping_ = false;
  bool is_killed_ = false;      ///< what ends from now on was killed here
  bool spares_untold_ = false;  ///< it is to leave, and is_missed()
  bool is_left_behind_ = false;
  bool is_cut_off_ = false;   ///< the others went on without it while it was about to leave
  bool was_member_ = false;   ///< when act() looked last
  bool was_in_view_ = false;  ///< a trainer of this worker has been in a view
  std::string waiting_;
  std::unique_ptr<Postman> postman_;
  std::unique_ptr<http::Server> metrics_server_;
};

}  // namespace muster::sentinel
