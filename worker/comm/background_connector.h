// Connects the processes of one membership epoch after another on a thread of its own, so that who
// trains in one goes on while the next is being connected.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/file.h"
#include "common/result.h"
#include "worker/comm/communicator.h"

namespace muster::comm {

/// Only the epoch that was wanted last counts. Threads: any, all methods.
///
/// While nothing is being connected nobody accepts, and strangers could fill the system's queue, in
/// which the peers of the next epoch would find no room. So whoever waits there from one look to
/// the next is closed and counted. No peer does: it gives up earlier, and dials anew.
class BackgroundConnector {
 public:
  using Connected = Result<std::unique_ptr<Communicator>>;
  static constexpr milliseconds kLookPause{10'000};

  /// The clock outlives it.
  explicit BackgroundConnector(const Clock& clock, milliseconds look_pause = kLookPause);
  /// Calls off what is under way.
  ~BackgroundConnector();
  BackgroundConnector(const BackgroundConnector&) = delete;
  BackgroundConnector& operator=(const BackgroundConnector&) = delete;

  /// Begins to connect. What was wanted before, and not taken yet, is given up: its connections
  /// close, and the peers see it. `options.listen_fd` stays the caller's and outlives this; it
  /// must not block. `on_wait` is for the communicator's own waits alone, because who connects here
  /// is not who trains; `cancel_fd` and `refused` are not used. Blocks: no.
  void want(TcpOptions options);
  /// The same without anything to begin.
  void want_none();

  /// Ends what is over, nullptr too, on the thread that connects, before the next one is begun:
  /// that a thread and shared memory go takes longer than a small step. Blocks: no.
  void end(std::shared_ptr<Communicator> over);

  /// The communicator of `epoch`, for the one who asks first, or why there is none; nothing while
  /// it is being connected. Errors: as make_tcp_communicator; kAborted when `epoch` is not the one
  /// that is wanted, or was taken. Blocks: no.
  std::optional<Connected> poll(std::int64_t epoch);
  /// The same. Blocks: while it is being connected, or until `deadline` (kDeadlineExceeded);
  /// `on_wait` is called meanwhile, at least every quarter of a second.
  Connected wait(std::int64_t epoch, MonoTime deadline, const std::function<void()>& on_wait);

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run();
  void close_strangers(int listen_fd);
  void begin(std::optional<TcpOptions> options);
  std::optional<Connected> take(std::int64_t epoch);

  const Clock& clock_;
  const milliseconds look_pause_;
  UniqueFd cancel_;  ///< readable: what is under way has become pointless

  // The thread's own.
  std::size_t waiting_ = 0;  ///< to be accepted, at the last look
  std::uint64_t strangers_ = 0, told_at_ = 1;

  std::mutex mutex_;
  // All below: under mutex_.
  std::condition_variable changed_;
  std::int64_t epoch_ = -1;                          ///< that is wanted; -1: none
  std::optional<TcpOptions> begun_;                  ///< of it, until the thread takes them
  std::optional<Connected> made_;                    ///< of it
  int listen_fd_ = -1;                               ///< that was wanted last
  std::vector<std::shared_ptr<Communicator>> over_;  ///< each membership's, until it is ended
  bool is_stopping_ = false;

  std::thread thread_;
};

}  // namespace muster::comm
