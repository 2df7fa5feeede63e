// The engine's Membership in a worker: views come from the sentinel over the channel, connections
// are TCP between pods. As soon as a view is known its members connect, while they train in the one
// before.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "worker/comm/background_connector.h"
#include "worker/engine/membership.h"
#include "worker/files_watch.h"
#include "worker/sentinel/channel.h"
#include "worker/sentinel/launch.h"
#include "worker/sentinel/pulse.h"
#include "worker/view_book.h"

namespace muster::worker {

/// Owns a thread that reads views, and one that connects. Threads: as engine::Membership says.
class TrainerMembership final : public engine::Membership {
 public:
  /// All of them outlive it.
  TrainerMembership(const sentinel::TrainerLaunch& launch, sentinel::ChannelWriter& channel,
                    sentinel::Pulse& pulse, const Clock& clock);
  ~TrainerMembership() override;

  void ready(const engine::Subject& subject) override;
  Result<engine::View> next(std::int64_t after, std::optional<MonoTime> deadline) override;
  Result<std::int64_t> prepared_epoch() override;
  std::optional<engine::View> prepared(std::int64_t epoch) override;
  bool is_staying() const override;
  bool will_stay() const override;
  bool is_leaving() const override { return is_leaving_; }  // without a lock in every step
  void spares(std::int64_t epoch, const std::vector<int>& slots) override {
    channel_.send_spared({epoch, slots});
  }
  bool is_stop_near() const override;
  Result<std::unique_ptr<comm::Communicator>> connect(const engine::View& view) override;
  void broken(std::int64_t epoch, const Error& why) override;
  void entered(const engine::Entry& entry) override;
  void waits(std::int64_t epoch, Missing missing) override;

  /// While the training thread is busy with files, this thread's reader answers for it that it
  /// lives; of what takes long the sentinel is told.
  FilesWatch& files() { return files_; }

 private:
  using Connected = Result<std::unique_ptr<comm::Communicator>>;
  void read_views();
  void tell_files();
  void take(sentinel::ViewMessage view);
  void connect_ahead(const sentinel::ViewMessage& view);
  Status cannot_connect(std::int64_t epoch, const Error& error);

  const sentinel::TrainerLaunch& launch_;
  sentinel::ChannelWriter& channel_;
  sentinel::Pulse& pulse_;
  const Clock& clock_;
  comm::BackgroundConnector connector_;
  std::shared_ptr<comm::Communicator> over_;  ///< the training thread's: of the view before
  std::atomic<bool> is_news_ = false;         ///< the newest view may be newer than the present one
  std::atomic<bool> is_leaving_ = false;      ///< some view has said so, new or not
  FilesWatch files_;
  std::atomic<bool> is_stopping_ = false;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All below: under mutex_.
  ViewBook views_;
  bool is_alone_ = false;       ///< the sentinel is gone
  std::optional<Error> fault_;  ///< why no view is read any more

  std::thread reader_;
};

}  // namespace muster::worker
