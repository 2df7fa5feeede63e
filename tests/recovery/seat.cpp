#include "tests/recovery/seat.h"

#include <utility>

#include "common/contract.h"

namespace muster::sim {
namespace {

constexpr seconds kConnectMost{60};

Error peer_lost(const std::string& message) {
  return Error(ErrorCode::kAborted, message).with_exit_code(contract::exit_code::kPeerLost);
}

}  // namespace

void Seat::take(sentinel::ViewMessage view) {
  worker::ViewBook::GivenUp given_up;
  if (views_.take(std::move(view), given_up)) made_.reset();
}

void Seat::connected(std::int64_t epoch, std::unique_ptr<comm::Communicator> communicator) {
  if (newest_epoch() == epoch) made_ = std::move(communicator);
}

Result<engine::View> Seat::next(std::int64_t after, std::optional<MonoTime>) {
  views_.leave_present();
  if (!stage_.wait([&] { return newest_epoch() > after; }, MonoTime::max())) {
    return peer_lost("the run is over");
  }
  views_.give_up_old();
  return worker::to_view(*views_.newest(), 1);
}

Result<std::int64_t> Seat::prepared_epoch() {
  if (!views_.has_newer_than_present()) return 0;
  views_.give_up_old();
  if (!views_.is_prepared()) {
    if (views_.newest()->rank >= 0 && !made_) return 0;
    views_.prepare(std::exchange(made_, nullptr));
  }
  world_.on_prepared(trainer_, newest_epoch());
  return newest_epoch();
}

std::optional<engine::View> Seat::prepared(std::int64_t epoch) {
  const sentinel::ViewMessage* view = views_.prepared(epoch);
  if (view == nullptr) return std::nullopt;
  views_.leave_present();
  return worker::to_view(*view, 1);
}

Result<std::unique_ptr<comm::Communicator>> Seat::connect(const engine::View& view) {
  if (auto entered = views_.enter_prepared(view.epoch)) {
    world_.on_connected(trainer_, view.epoch);
    return entered;
  }
  const bool is_due = stage_.wait([&] { return made_ || newest_epoch() != view.epoch; },
                                  stage_.now() + kConnectMost);
  if (!is_due) return Error(ErrorCode::kDeadlineExceeded, "not connected in time");
  if (newest_epoch() != view.epoch) return peer_lost("a newer membership came");
  world_.on_connected(trainer_, view.epoch);
  return views_.enter_newest(std::exchange(made_, nullptr));
}

}  // namespace muster::sim
