#include "worker/view_book.h"

#include <utility>

#include "worker/comm/shared_communicator.h"

namespace muster::worker {

bool ViewBook::take(sentinel::ViewMessage view, GivenUp& given_up) {
  if (newest_ && view.epoch <= newest_->epoch) return false;
  if (view.urgent) {
    given_up.swap(ahead_);
    const bool is_hit =
        present_ && present_->communicator && sentinel::concerns(view, present_->view, *newest_);
    if (is_hit) present_->communicator->abort();
  }
  newest_ = std::move(view);
  return true;
}

std::shared_ptr<comm::Communicator> ViewBook::leave_present() {
  if (!present_) return nullptr;
  return std::exchange(present_, std::nullopt)->communicator;
}

ViewBook::GivenUp ViewBook::give_up_old() {
  if (!ahead_ || ahead_->view.epoch >= newest_epoch()) return std::nullopt;
  return std::exchange(ahead_, std::nullopt);
}

void ViewBook::prepare(std::shared_ptr<comm::Communicator> communicator) {
  ahead_.emplace(Entered{*newest_, std::move(communicator)});
}

const sentinel::ViewMessage* ViewBook::prepared(std::int64_t epoch) const {
  return ahead_ && ahead_->view.epoch == epoch ? &ahead_->view : nullptr;
}

bool ViewBook::is_staying() const {
  if (ahead_) return ahead_->view.rank >= 0;
  return !newest_ || newest_->rank >= 0;
}

std::unique_ptr<comm::Communicator> ViewBook::enter_prepared(std::int64_t epoch) {
  if (prepared(epoch) == nullptr) return nullptr;
  return lend(*std::exchange(ahead_, std::nullopt));
}

std::unique_ptr<comm::Communicator> ViewBook::enter_newest(
    std::shared_ptr<comm::Communicator> communicator) {
  return lend({*newest_, std::move(communicator)});
}

std::unique_ptr<comm::Communicator> ViewBook::lend(Entered entered) {
  present_epoch_ = entered.view.epoch;
  present_.emplace(std::move(entered));
  return std::make_unique<comm::LentCommunicator>(present_->communicator);
}

engine::View to_view(const sentinel::ViewMessage& message, int processes) {
  engine::View view;
  view.epoch = message.epoch;
  view.rank = message.rank;
  view.stop = message.stop;
  for (const sentinel::ViewPeer& peer : message.peers) {
    view.slots.push_back(peer.slot);
    view.numbers.push_back(peer.slot * processes + peer.local_rank);
    view.domains.push_back(peer.domain);
  }
  return view;
}

}  // namespace muster::worker
