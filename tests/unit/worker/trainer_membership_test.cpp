// How long a trainer waits for the others, by a clock that runs away.
#include "worker/trainer_membership.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <optional>
#include <utility>

#include "common/contract.h"

using namespace muster;
using muster::worker::TrainerMembership;

namespace {

/// 100 s pass between two looks at it. At one of them something happens.
class RunawayClock final : public Clock {
 public:
  RunawayClock(int look, std::function<void()> happens)
      : look_(look), happens_(std::move(happens)) {}
  MonoTime mono_now() const override {
    const int looks = ++looks_;
    if (looks == look_) happens_();
    return MonoTime(seconds(100) * looks);
  }
  WallTime wall_now() const override { return WallTime(); }

 private:
  int look_;
  std::function<void()> happens_;
  mutable std::atomic<int> looks_ = 0;
};

/// The descriptors that a trainer is started with, in place of what this process has there.
class ChannelOfTrainer {
 public:
  ChannelOfTrainer() : before_(dup(sentinel::kChannelFd)) {
    const auto pair = sentinel::make_channel();
    REQUIRE(pair);
    // Out of the way of the number that the trainer's end is given.
    sentinel_ = UniqueFd(fcntl(pair->reader, F_DUPFD_CLOEXEC, sentinel::kChannelFd + 1));
    close(pair->reader);
    REQUIRE(dup2(pair->writer, sentinel::kChannelFd) == sentinel::kChannelFd);
    if (pair->writer != sentinel::kChannelFd) close(pair->writer);
  }
  ~ChannelOfTrainer() {
    if (before_) (void)dup2(before_.get(), sentinel::kChannelFd);
  }
  int sentinel_fd() const { return sentinel_.get(); }

 private:
  UniqueFd before_, sentinel_;
};

}  // namespace

namespace {

/// What comes of waiting for a view, by such a clock, while the sentinel tells it.
Result<engine::View> wait_for_view(const Clock& clock, std::optional<MonoTime> deadline) {
  auto monitor = sentinel::PulseMonitor::make();
  REQUIRE(monitor);
  auto pulse = sentinel::Pulse::open(dup((*monitor)->fd()));
  REQUIRE(pulse);
  sentinel::TrainerLaunch launch;
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  TrainerMembership membership(launch, channel, *pulse, clock);
  return membership.next(2, deadline);
}

}  // namespace

TEST_CASE("a trainer waits for a membership as long as its sentinel lives") {
  const ChannelOfTrainer descriptors;
  sentinel::ViewSender sentinel(descriptors.sentinel_fd());
  sentinel::ViewMessage view;
  view.epoch = 3;
  view.rank = 0;
  view.peers = {{"127.0.0.1", 1, 0, 0, 1}};
  const RunawayClock clock(12, [&] { sentinel.set(view); });  // after 20 minutes
  const auto next = wait_for_view(clock, std::nullopt);
  REQUIRE(next);
  CHECK(next->epoch == 3);
}

TEST_CASE("a trainer knows that all are to stop before it has entered the view that says so") {
  const ChannelOfTrainer descriptors;
  sentinel::ViewSender sentinel(descriptors.sentinel_fd());
  auto monitor = sentinel::PulseMonitor::make();
  REQUIRE(monitor);
  auto pulse = sentinel::Pulse::open(dup((*monitor)->fd()));
  REQUIRE(pulse);
  const SystemClock clock;
  sentinel::TrainerLaunch launch;
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  TrainerMembership membership(launch, channel, *pulse, clock);
  CHECK_FALSE(membership.is_stop_near());
  sentinel::ViewMessage view;
  for (view.epoch = 3; view.epoch <= 4; ++view.epoch) {
    view.stop = view.epoch == 4;
    sentinel.set(view);
    const auto next = membership.next(view.epoch - 1, std::nullopt);
    REQUIRE(next);
    CHECK(next->epoch == view.epoch);
    CHECK(membership.is_stop_near() == view.stop);
  }
}

TEST_CASE("a trainer hears that it is to leave with a view that it knows, and tells who may go") {
  const ChannelOfTrainer descriptors;
  sentinel::ViewSender sentinel(descriptors.sentinel_fd());
  auto monitor = sentinel::PulseMonitor::make();
  REQUIRE(monitor);
  auto pulse = sentinel::Pulse::open(dup((*monitor)->fd()));
  REQUIRE(pulse);
  const SystemClock clock;
  sentinel::TrainerLaunch launch;
  sentinel::ChannelWriter channel(sentinel::kChannelFd);
  TrainerMembership membership(launch, channel, *pulse, clock);
  CHECK_FALSE(membership.is_leaving());
  sentinel::ViewMessage view;
  view.epoch = 3;
  sentinel.set(view);
  REQUIRE(membership.next(2, std::nullopt));
  CHECK_FALSE(membership.is_leaving());
  sentinel::ViewMessage same = view;
  same.leaves = true;
  sentinel.set(same);
  view.epoch = 4;  // by when that has been read
  sentinel.set(view);
  REQUIRE(membership.next(3, std::nullopt));
  CHECK(membership.is_leaving());
  membership.spares(4, {1, 4});
  const auto told = sentinel::receive(descriptors.sentinel_fd());
  REQUIRE((told && *told));
  CHECK(std::get<sentinel::SparedMessage>(**told).epoch == 4);
  CHECK(std::get<sentinel::SparedMessage>(**told).slots == std::vector<int>{1, 4});
}

TEST_CASE("who belongs to the view that it is prepared for, and not to a newer one, will leave") {
  worker::ViewBook views;
  worker::ViewBook::GivenUp given_up;
  CHECK(views.will_stay());
  sentinel::ViewMessage view;
  view.epoch = 3;
  view.rank = 0;
  view.peers = {{"127.0.0.1", 1, 0, 0, 1}};
  REQUIRE(views.take(view, given_up));
  views.prepare(nullptr);
  CHECK(views.is_staying());
  CHECK(views.will_stay());
  view.epoch = 4;
  view.rank = -1;
  REQUIRE(views.take(view, given_up));
  CHECK(views.prepared(3) != nullptr);
  CHECK(views.is_staying());
  CHECK_FALSE(views.will_stay());
  CHECK(views.give_up_old().has_value());
  CHECK_FALSE(views.is_staying());
  CHECK_FALSE(views.will_stay());
}

TEST_CASE("a trainer without a state waits until its deadline") {
  const ChannelOfTrainer descriptors;
  const RunawayClock clock(1000, [] {});
  const auto next = wait_for_view(clock, MonoTime(seconds(400)));
  REQUIRE_FALSE(next);
  CHECK(next.error().exit_code() == contract::exit_code::kPeerLost);
}
