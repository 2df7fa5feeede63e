#include "tests/recovery/seat.h"

#include <utility>

#include "common/contract.h"
#include "worker/comm/shared_communicator.h"

namespace muster::sim {
namespace {

constexpr seconds kConnectMost{60};

Error peer_lost(const std::string& message) {
  return Error(ErrorCode::kAborted, message).with_exit_code(contract::exit_code::kPeerLost);
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

void Seat::take(sentinel::ViewMessage view) {
  if (newest_ && view.epoch <= newest_->epoch) return;
  if (view.urgent) {
    ahead_.reset();
    const bool is_hit =
        present_ && present_->communicator && sentinel::concerns(view, present_->view, *newest_);
    if (is_hit) present_->communicator->abort();
  }
  newest_ = std::move(view);
  made_.reset();
}

void Seat::connected(std::int64_t epoch, std::unique_ptr<comm::Communicator> communicator) {
  if (newest_epoch() == epoch) made_ = std::move(communicator);
}

Result<engine::View> Seat::next(std::int64_t after, MonoTime deadline) {
  present_.reset();
  if (!stage_.wait([&] { return newest_epoch() > after; }, deadline)) {
    return peer_lost("no membership was agreed in time");
  }
  if (ahead_ && ahead_->view.epoch < newest_->epoch) ahead_.reset();
  return to_view(*newest_);
}

Result<std::int64_t> Seat::prepared_epoch() {
  if (newest_epoch() <= present_epoch_) return 0;
  if (ahead_ && ahead_->view.epoch < newest_->epoch) ahead_.reset();
  if (ahead_) return newest_->epoch;
  if (newest_->rank >= 0 && !made_) return 0;
  ahead_.emplace(Ahead{*newest_, std::exchange(made_, nullptr)});
  return newest_->epoch;
}

std::optional<engine::View> Seat::prepared(std::int64_t epoch) {
  if (!ahead_ || ahead_->view.epoch != epoch) return std::nullopt;
  present_.reset();
  return to_view(ahead_->view);
}

bool Seat::is_staying() const {
  if (ahead_) return ahead_->view.rank >= 0;
  return !newest_ || newest_->rank >= 0;
}

Result<std::unique_ptr<comm::Communicator>> Seat::connect(const engine::View& view) {
  if (ahead_ && ahead_->view.epoch == view.epoch) return lend(*std::exchange(ahead_, {}));
  const bool is_due = stage_.wait([&] { return made_ || newest_epoch() != view.epoch; },
                                  stage_.now() + kConnectMost);
  if (!is_due) return Error(ErrorCode::kDeadlineExceeded, "not connected in time");
  if (newest_epoch() != view.epoch) return peer_lost("a newer membership came");
  return lend({*newest_, std::exchange(made_, nullptr)});
}

std::unique_ptr<comm::Communicator> Seat::lend(Ahead entered) {
  present_epoch_ = entered.view.epoch;
  present_.emplace(std::move(entered));
  return std::make_unique<comm::LentCommunicator>(present_->communicator);
}

}  // namespace muster::sim
