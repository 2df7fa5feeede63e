#include "worker/trainer_membership.h"

#include <algorithm>
#include <utility>

#include "common/caught.h"
#include "common/contract.h"
#include "common/log.h"

namespace muster::worker {
namespace {

/// The trainers of a view start connecting within milliseconds of each other; half a minute is for
/// machines that are busy with something else.
constexpr seconds kConnectTimeout{30};
constexpr milliseconds kReadPause{250};
/// Who waits longer for the next view says so.
constexpr seconds kLongWait{10};

Error peer_lost(const std::string& message) {
  return Error(ErrorCode::kAborted, message).with_exit_code(contract::exit_code::kPeerLost);
}

/// What this process lacks the others cannot mend, and they would try in vain as long as it stays:
/// it ends, and its sentinel starts another.
Error own_fault(const Error& error) {
  if (error.exit_code() != 0) return error;
  return Error(error.code(), error.message()).with_exit_code(contract::exit_code::kInternal);
}

}  // namespace

TrainerMembership::TrainerMembership(const sentinel::TrainerLaunch& launch,
                                     sentinel::ChannelWriter& channel, sentinel::Pulse& pulse,
                                     const Clock& clock)
    : launch_(launch), channel_(channel), pulse_(pulse), clock_(clock), connector_(clock) {
  reader_ = std::thread([this] {
    try {
      read_views();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      fault_ = caught_error();
      is_news_ = true;
      changed_.notify_all();
    }
  });
}

TrainerMembership::~TrainerMembership() {
  is_stopping_ = true;
  reader_.join();
}

void TrainerMembership::read_views() {
  sentinel::ViewReader views(sentinel::kChannelFd);
  while (!is_stopping_) {
    if (files_.is_busy(FilesWatch::Thread::kTraining)) pulse_.beat();
    tell_files();
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

void TrainerMembership::tell_files() {
  const auto told = files_.take(clock_.mono_now());
  if (!told) return;
  channel_.send_files(*told);
  if (told->seconds == 0) return;
  log_warning(told->is_checkpoint ? "a checkpoint or the record takes long to be written"
                                  : "training stands while files take long",
              {{"path", told->path}, {"seconds", told->seconds}});
}

void TrainerMembership::take(sentinel::ViewMessage view) {
  if (view.leaves) is_leaving_ = true;
  ViewBook::GivenUp given_up;  // it closes its connections once the lock is free
  {
    const std::lock_guard lock(mutex_);
    if (!views_.take(std::move(view), given_up)) return;
    is_news_ = true;
    connect_ahead(*views_.newest());
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

void TrainerMembership::ready(const engine::Subject& subject) {
  channel_.send_ready(
      {to_hex(subject.outline), subject.contents ? to_hex(*subject.contents) : std::string()});
}

/// Without end as long as the sentinel lives: it knows who could still make a view, and ends this
/// process when nobody can.
Result<engine::View> TrainerMembership::next(std::int64_t after, std::optional<MonoTime> deadline) {
  ViewBook::GivenUp given_up;
  std::unique_lock lock(mutex_);
  connector_.end(std::exchange(over_, nullptr));
  connector_.end(views_.leave_present());
  const MonoTime began = clock_.mono_now();
  bool is_told = false;
  while (views_.newest_epoch() <= after) {
    if (fault_) return *fault_;
    if (is_alone_) return peer_lost("the sentinel is gone");
    if (deadline && clock_.mono_now() >= *deadline) {
      return peer_lost("no worker came in time that has the state or the files");
    }
    if (!is_told && clock_.mono_now() - began >= kLongWait) {
      is_told = true;
      log_info("waits for a membership to train in", {{"after_epoch", after}});
    }
    pulse_.beat();
    changed_.wait_for(lock, kReadPause);
  }
  given_up = views_.give_up_old();
  return to_view(*views_.newest(), launch_.processes);
}

Result<std::int64_t> TrainerMembership::prepared_epoch() {
  if (!is_news_) return 0;  // without a lock in every step
  ViewBook::GivenUp given_up;
  std::optional<Error> error;
  std::int64_t epoch = 0;
  {
    const std::lock_guard lock(mutex_);
    if (fault_) return *fault_;
    is_news_ = views_.has_newer_than_present();
    if (!is_news_) return 0;
    epoch = views_.newest_epoch();
    given_up = views_.give_up_old();
    if (views_.is_prepared()) return epoch;
    if (views_.newest()->rank < 0) {
      views_.prepare(nullptr);
      return epoch;
    }
    auto connected = connector_.poll(epoch);
    if (!connected) return 0;
    if (*connected) {
      views_.prepare(**std::move(connected));
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
  channel_.send_broken({epoch});
  return {};
}

std::optional<engine::View> TrainerMembership::prepared(std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  const sentinel::ViewMessage* view = views_.prepared(epoch);
  if (view == nullptr) return std::nullopt;
  // That they go takes a processor, which is better given to who enters.
  over_ = views_.leave_present();
  return to_view(*view, launch_.processes);
}

bool TrainerMembership::is_staying() const {
  const std::lock_guard lock(mutex_);
  return views_.is_staying();
}

bool TrainerMembership::will_stay() const {
  const std::lock_guard lock(mutex_);
  return views_.will_stay();
}

bool TrainerMembership::is_stop_near() const {
  if (!is_news_) return false;  // without a lock in every part of what takes long
  const std::lock_guard lock(mutex_);
  return views_.is_stop_near();
}

Result<std::unique_ptr<comm::Communicator>> TrainerMembership::connect(const engine::View& view) {
  {
    const std::lock_guard lock(mutex_);
    if (auto entered = views_.enter_prepared(view.epoch)) {
      log_info("was connected ahead", {{"epoch", view.epoch}});
      return entered;
    }
  }
  log_info("waits to be connected", {{"epoch", view.epoch}});
  auto made = connector_.wait(view.epoch, clock_.mono_now() + 2 * kConnectTimeout,
                              [this] { pulse_.beat(); });
  if (!made && made.error().code() == ErrorCode::kIo) return own_fault(made.error());
  if (!made) return made.error();
  const std::lock_guard lock(mutex_);
  if (views_.newest_epoch() != view.epoch) return peer_lost("a newer membership came");
  return views_.enter_newest(*std::move(made));
}

void TrainerMembership::broken(std::int64_t epoch, const Error& why) {
  log_warning("training stands still", {{"epoch", epoch}, {"error", why.message()}});
  channel_.send_broken({epoch});
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
  connector_.end(std::exchange(over_, nullptr));
}

void TrainerMembership::waits(std::int64_t epoch, Missing missing) {
  sentinel::EnteredMessage message;
  message.epoch = epoch;
  message.step = missing == Missing::kCopy    ? sentinel::kWaits
                 : missing == Missing::kFiles ? sentinel::kWaitsForFiles
                                              : sentinel::kWaitsForState;
  channel_.send_entered(message);
}

}  // namespace muster::worker
