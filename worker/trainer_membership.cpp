#include "worker/trainer_membership.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "common/check.h"
#include "common/contract.h"
#include "common/log.h"
#include "worker/comm/shared_communicator.h"

namespace muster::worker {
namespace {

/// The trainers of a view start connecting within milliseconds of each other; half a minute is for
/// machines that are busy with something else.
constexpr seconds kConnectTimeout{30};
constexpr milliseconds kReadPause{250};

Error peer_lost(const std::string& message) {
  return Error(ErrorCode::kAborted, message).with_exit_code(contract::exit_code::kPeerLost);
}

/// What this process lacks the others cannot mend, and they would try in vain as long as it stays:
/// it ends, and its sentinel starts another.
Error own_fault(const Error& error) {
  return Error(error.code(), error.message()).with_exit_code(contract::exit_code::kInternal);
}

void drain(int event_fd) {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t got = read(event_fd, &count, sizeof count);
}

}  // namespace

TrainerMembership::TrainerMembership(const sentinel::TrainerLaunch& launch,
                                     sentinel::ChannelWriter& channel, sentinel::Pulse& pulse,
                                     const Clock& clock)
    : launch_(launch),
      channel_(channel),
      pulse_(pulse),
      clock_(clock),
      cancel_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK_MSG(static_cast<bool>(cancel_), "no descriptor is left at the start");
  reader_ = std::thread([this] { read_views(); });
}

TrainerMembership::~TrainerMembership() {
  is_stopping_ = true;
  reader_.join();
}

void TrainerMembership::read_views() {
  sentinel::ViewReader views(sentinel::kChannelFd);
  while (!is_stopping_) {
    if (is_on_files_) pulse_.beat();
    auto view = views.wait(kReadPause);
    if (view && *view) take(std::move(**view));
    if (view) continue;
    if (view.error().code() == ErrorCode::kCorrupt) {
      log_error("a view was dropped", {{"error", view.error().message()}});
      continue;
    }
    const std::lock_guard lock(mutex_);
    is_alone_ = true;
    changed_.notify_all();
    return;
  }
}

/// An urgent view ends the connections of the one before. So does any view for those who have not
/// entered theirs: the others may have passed it over and would never come.
void TrainerMembership::take(sentinel::ViewMessage view) {
  const std::lock_guard lock(mutex_);
  if (newest_ && view.epoch <= newest_->epoch) return;
  const bool is_waiting = connected_epoch_ > entered_epoch_;
  const bool is_urgent = view.urgent;
  newest_ = std::move(view);
  newest_epoch_ = newest_->epoch;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t wrote = write(cancel_.get(), &one, sizeof one);
  if (connected_ && (is_urgent || is_waiting)) connected_->abort();
  changed_.notify_all();
}

void TrainerMembership::ready(const Sha256Digest& digest) { channel_.send_ready({to_hex(digest)}); }

Result<engine::View> TrainerMembership::next(std::int64_t after, MonoTime deadline) {
  std::unique_lock lock(mutex_);
  connected_.reset();
  while (!newest_ || newest_->epoch <= after) {
    if (is_alone_) return peer_lost("the sentinel is gone");
    const auto left = deadline - clock_.mono_now();
    if (left <= nanoseconds{0}) {
      return broken_ ? *broken_ : peer_lost("no membership was agreed in time");
    }
    pulse_.beat();
    changed_.wait_for(lock, std::min<nanoseconds>(left, kReadPause));
  }
  engine::View view;
  view.epoch = newest_->epoch;
  view.rank = newest_->rank;
  view.stop = newest_->stop;
  for (const sentinel::ViewPeer& peer : newest_->peers) view.slots.push_back(peer.slot);
  return view;
}

bool TrainerMembership::is_staying() const {
  const std::lock_guard lock(mutex_);
  return !newest_ || newest_->rank >= 0;
}

Result<std::unique_ptr<comm::Communicator>> TrainerMembership::connect(const engine::View& view) {
  comm::TcpOptions options;
  {
    const std::lock_guard lock(mutex_);
    if (!newest_ || newest_->epoch != view.epoch) return peer_lost("a newer membership came");
    drain(cancel_.get());
    for (const auto& peer : newest_->peers) options.peers.push_back({peer.host, peer.port});
  }
  options.rank = view.rank;
  // The socket is for all memberships; a communicator closes what it is given.
  options.listen_fd = fcntl(sentinel::kListenFd, F_DUPFD_CLOEXEC, 0);
  if (options.listen_fd < 0) {
    return own_fault(Error(ErrorCode::kIo, "no descriptor is left for the listening socket"));
  }
  options.job_key = launch_.job_key;
  options.job_uid = launch_.job_uid;
  options.epoch = view.epoch;
  options.connect_deadline = clock_.mono_now() + kConnectTimeout;
  options.cancel_fd = cancel_.get();
  options.on_wait = [this] { pulse_.beat(); };
  options.clock = &clock_;
  auto made = comm::make_tcp_communicator(options);
  if (!made && made.error().code() == ErrorCode::kIo) return own_fault(made.error());
  if (!made) return made.error();
  std::shared_ptr<comm::Communicator> communicator = *std::move(made);
  const std::lock_guard lock(mutex_);
  if (newest_->epoch != view.epoch) return peer_lost("a newer membership came");
  connected_ = communicator;
  connected_epoch_ = view.epoch;
  return std::unique_ptr<comm::Communicator>(
      std::make_unique<comm::LentCommunicator>(std::move(communicator)));
}

void TrainerMembership::broken(std::int64_t epoch, const Error& why) {
  log_warning("training stands still", {{"epoch", epoch}, {"error", why.message()}});
  channel_.send_broken({epoch, {}});
  const std::lock_guard lock(mutex_);
  broken_ = why;
}

void TrainerMembership::entered(const engine::Entry& entry) {
  {
    const std::lock_guard lock(mutex_);
    entered_epoch_ = entry.epoch;
  }
  sentinel::EnteredMessage message;
  message.epoch = entry.epoch;
  message.step = entry.step + 1;
  message.recomputed_logical_ranks = entry.recomputed;
  message.state_bytes = entry.state_bytes;
  message.stall_seconds = entry.stall_seconds;
  channel_.send_entered(message);
}

}  // namespace muster::worker
