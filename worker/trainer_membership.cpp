#include "worker/trainer_membership.h"

#include <algorithm>
#include <utility>

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

engine::View to_view(const sentinel::ViewMessage& message) {
  engine::View view;
  view.epoch = message.epoch;
  view.rank = message.rank;
  view.stop = message.stop;
  for (const sentinel::ViewPeer& peer : message.peers) {
    view.slots.push_back(peer.slot);
    view.domains.push_back(peer.domain);
  }
  return view;
}

}  // namespace

TrainerMembership::TrainerMembership(const sentinel::TrainerLaunch& launch,
                                     sentinel::ChannelWriter& channel, sentinel::Pulse& pulse,
                                     const Clock& clock)
    : launch_(launch), channel_(channel), pulse_(pulse), clock_(clock), connector_(clock) {
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

/// An urgent view ends the connections of the present one, and of one that was about to be entered:
/// whoever was lost may have been in either. Any other leaves both as they are; who passes one over
/// closes its connections, and nobody waits for it.
void TrainerMembership::take(sentinel::ViewMessage view) {
  std::optional<Ahead> given_up;  // it closes its connections once the lock is free
  {
    const std::lock_guard lock(mutex_);
    if (newest_ && view.epoch <= newest_->epoch) return;
    if (view.urgent) {
      given_up.swap(ahead_);
      const bool is_hit =
          present_ && present_->communicator && concerns(view, present_->view, *newest_);
      if (is_hit) present_->communicator->abort();
    }
    newest_ = std::move(view);
    newest_epoch_ = newest_->epoch;
    connect_ahead(*newest_);
  }
  changed_.notify_all();
}

/// The lock is held.
void TrainerMembership::connect_ahead(const sentinel::ViewMessage& view) {
  if (view.rank < 0) return connector_.want_none();
  comm::TcpOptions options;
  for (const auto& peer : view.peers) options.peers.push_back({peer.host, peer.port});
  options.rank = view.rank;
  options.listen_fd = sentinel::kListenFd;
  options.job_key = launch_.job_key;
  options.job_uid = launch_.job_uid;
  options.epoch = view.epoch;
  options.connect_deadline = clock_.mono_now() + kConnectTimeout;
  options.on_wait = [this] { pulse_.beat(); };
  options.clock = &clock_;
  connector_.want(std::move(options));
}

void TrainerMembership::ready(const Sha256Digest& digest) { channel_.send_ready({to_hex(digest)}); }

Result<engine::View> TrainerMembership::next(std::int64_t after, MonoTime deadline) {
  std::unique_lock lock(mutex_);
  present_.reset();
  while (!newest_ || newest_->epoch <= after) {
    if (is_alone_) return peer_lost("the sentinel is gone");
    const auto left = deadline - clock_.mono_now();
    if (left <= nanoseconds{0}) {
      return broken_ ? *broken_ : peer_lost("no membership was agreed in time");
    }
    pulse_.beat();
    changed_.wait_for(lock, std::min<nanoseconds>(left, kReadPause));
  }
  if (ahead_ && ahead_->view.epoch < newest_->epoch) ahead_.reset();
  return to_view(*newest_);
}

Result<std::int64_t> TrainerMembership::prepared_epoch() {
  if (newest_epoch_ <= present_epoch_) return 0;
  std::optional<Ahead> given_up;
  std::optional<Error> error;
  std::int64_t epoch = 0;
  {
    const std::lock_guard lock(mutex_);
    epoch = newest_->epoch;
    if (ahead_ && ahead_->view.epoch < epoch) given_up.swap(ahead_);
    if (ahead_) return epoch;
    if (newest_->rank < 0) {
      ahead_.emplace(Ahead{*newest_, nullptr});
      return epoch;
    }
    auto connected = connector_.poll(epoch);
    if (!connected) return 0;
    if (*connected) {
      ahead_.emplace(Ahead{*newest_, **std::move(connected)});
      return epoch;
    }
    error = connected->error();
  }
  MUSTER_RETURN_IF_ERROR(cannot_connect(epoch, *error));
  return 0;
}

/// The others train on meanwhile, and the sentinels try it under another number.
Status TrainerMembership::cannot_connect(std::int64_t epoch, const Error& error) {
  if (error.code() == ErrorCode::kIo) return own_fault(error);
  if (error.code() == ErrorCode::kAborted) return {};  // told before, or overtaken
  log_warning("the next membership cannot be connected",
              {{"epoch", epoch}, {"error", error.message()}});
  channel_.send_broken({epoch, {}});
  return {};
}

std::optional<engine::View> TrainerMembership::prepared(std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  if (!ahead_ || ahead_->view.epoch != epoch) return std::nullopt;
  present_.reset();
  return to_view(ahead_->view);
}

bool TrainerMembership::is_staying() const {
  const std::lock_guard lock(mutex_);
  if (ahead_) return ahead_->view.rank >= 0;
  return !newest_ || newest_->rank >= 0;
}

Result<std::unique_ptr<comm::Communicator>> TrainerMembership::connect(const engine::View& view) {
  {
    const std::lock_guard lock(mutex_);
    if (ahead_ && ahead_->view.epoch == view.epoch) {
      log_info("was connected ahead", {{"epoch", view.epoch}});
      return lend(*std::exchange(ahead_, {}));
    }
  }
  log_info("waits to be connected", {{"epoch", view.epoch}});
  auto made = connector_.wait(view.epoch, clock_.mono_now() + 2 * kConnectTimeout,
                              [this] { pulse_.beat(); });
  if (!made && made.error().code() == ErrorCode::kIo) return own_fault(made.error());
  if (!made) return made.error();
  const std::lock_guard lock(mutex_);
  if (newest_->epoch != view.epoch) return peer_lost("a newer membership came");
  return lend({*newest_, *std::move(made)});
}

/// The lock is held.
Result<std::unique_ptr<comm::Communicator>> TrainerMembership::lend(Ahead entered) {
  present_epoch_ = entered.view.epoch;
  present_.emplace(std::move(entered));
  return std::unique_ptr<comm::Communicator>(
      std::make_unique<comm::LentCommunicator>(present_->communicator));
}

void TrainerMembership::broken(std::int64_t epoch, const Error& why) {
  log_warning("training stands still", {{"epoch", epoch}, {"error", why.message()}});
  channel_.send_broken({epoch, {}});
  const std::lock_guard lock(mutex_);
  broken_ = why;
}

void TrainerMembership::entered(const engine::Entry& entry) {
  sentinel::EnteredMessage message;
  message.epoch = entry.epoch;
  message.step = entry.step + 1;
  message.recomputed_logical_ranks = entry.recomputed;
  message.state_bytes = entry.state_bytes;
  message.stall_seconds = entry.stall_seconds;
  if (!entry.returned.empty()) {
    message.returned = "from step " + std::to_string(entry.returned_from) + ": " + entry.returned;
  }
  channel_.send_entered(message);
}

}  // namespace muster::worker
