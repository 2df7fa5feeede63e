#include "worker/comm/background_connector.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

#include "common/caught.h"
#include "common/log.h"
#include "worker/comm/handshake.h"
#include "worker/comm/socket.h"

namespace muster::comm {
namespace {

constexpr milliseconds kWaitPause{250};
static_assert(BackgroundConnector::kLookPause > kUnprovenFor, "a peer would be closed");

Error overtaken() { return Error(ErrorCode::kAborted, "a newer membership came"); }

/// What the system refuses by an exception, a thread or memory, is told as what it refuses
/// otherwise.
BackgroundConnector::Connected connect_once(TcpOptions options, int cancel_fd) try {
  // The socket is for all epochs; a communicator closes what it is given.
  options.listen_fd = fcntl(options.listen_fd, F_DUPFD_CLOEXEC, 0);
  if (options.listen_fd < 0) return Error(ErrorCode::kIo, errno_text("dup", errno));
  options.cancel_fd = cancel_fd;
  options.refused = nullptr;
  const auto is_connected = std::make_shared<std::atomic<bool>>(false);
  if (options.on_wait) {
    options.on_wait = [is_connected, tell = std::move(options.on_wait)] {
      if (*is_connected) tell();
    };
  }
  auto made = make_tcp_communicator(options);
  *is_connected = true;
  return made;
} catch (...) {
  return caught_error();
}

}  // namespace

BackgroundConnector::BackgroundConnector(const Clock& clock, milliseconds look_pause)
    : clock_(clock), look_pause_(look_pause), cancel_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK_MSG(static_cast<bool>(cancel_), "no descriptor is left at the start");
  thread_ = std::thread([this] { run(); });
}

BackgroundConnector::~BackgroundConnector() {
  {
    const Lock lock(mutex_);
    is_stopping_ = true;
    (void)eventfd_write(cancel_.get(), 1);
  }
  changed_.notify_all();
  thread_.join();
}

void BackgroundConnector::want(TcpOptions options) { begin(std::move(options)); }
void BackgroundConnector::want_none() { begin(std::nullopt); }

void BackgroundConnector::begin(std::optional<TcpOptions> options) {
  std::optional<Connected> given_up;  // it closes its connections once the lock is free
  {
    const Lock lock(mutex_);
    epoch_ = options ? options->epoch : -1;
    if (options) listen_fd_ = options->listen_fd;
    begun_ = std::move(options);
    given_up.swap(made_);
    (void)eventfd_write(cancel_.get(), 1);
  }
  changed_.notify_all();
}

void BackgroundConnector::end(std::shared_ptr<Communicator> over) {
  if (!over) return;
  {
    const Lock lock(mutex_);
    over_.push_back(std::move(over));
  }
  changed_.notify_all();
}

void BackgroundConnector::run() {
  Lock lock(mutex_);
  while (!is_stopping_) {
    // First, because its descriptors may be what the next one lacks.
    if (!over_.empty()) {
      auto over = std::exchange(over_, {});
      lock.unlock();
      over.clear();
      lock.lock();
      continue;
    }
    if (!begun_) {
      if (changed_.wait_for(lock, look_pause_) == std::cv_status::no_timeout) continue;
      const int listen_fd = listen_fd_;
      lock.unlock();
      close_strangers(listen_fd);
      lock.lock();
      continue;
    }
    TcpOptions options = *std::exchange(begun_, std::nullopt);
    const std::int64_t epoch = options.epoch;
    eventfd_t calls = 0;
    (void)eventfd_read(cancel_.get(), &calls);  // they were meant for earlier ones
    lock.unlock();
    std::optional<Connected> made = connect_once(std::move(options), cancel_.get());
    waiting_ = 0;  // who waited may have been accepted
    lock.lock();
    // One that was given up meanwhile may be wanted anew, under the same number.
    if (epoch == epoch_ && !begun_) made_.swap(made);
    changed_.notify_all();
    lock.unlock();
    made.reset();
    lock.lock();
  }
}

void BackgroundConnector::close_strangers(int listen_fd) {
  const std::size_t closed = close_waiting(listen_fd, waiting_);
  waiting_ = count_waiting(listen_fd);
  strangers_ += closed;
  if (closed == 0 || strangers_ < told_at_) return;
  told_at_ = 2 * strangers_;  // of one who comes all day the log is not full
  log_warning("refused connections while no ranks meet", {{"silent", strangers_}});
}

std::optional<BackgroundConnector::Connected> BackgroundConnector::take(std::int64_t epoch) {
  if (epoch != epoch_) return overtaken();
  if (!made_) return std::nullopt;
  epoch_ = -1;
  return std::exchange(made_, std::nullopt);
}

std::optional<BackgroundConnector::Connected> BackgroundConnector::poll(std::int64_t epoch) {
  const Lock lock(mutex_);
  return take(epoch);
}

BackgroundConnector::Connected BackgroundConnector::wait(std::int64_t epoch, MonoTime deadline,
                                                         const std::function<void()>& on_wait) {
  for (;;) {
    if (on_wait) on_wait();
    Lock lock(mutex_);
    if (auto taken = take(epoch)) return *std::move(taken);
    const auto left = deadline - clock_.mono_now();
    if (left <= nanoseconds{0}) {
      return Error(ErrorCode::kDeadlineExceeded, "not connected by the deadline");
    }
    changed_.wait_for(lock, std::min<nanoseconds>(left, kWaitPause));
  }
}

}  // namespace muster::comm
