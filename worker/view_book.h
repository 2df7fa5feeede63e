// What a trainer knows of memberships: the newest view that its sentinel told, the one that it has
// said it is prepared for, and the one that it trains in. Decides which connections end when a view
// comes; knows neither how views come nor how connections are made.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "worker/comm/communicator.h"
#include "worker/engine/membership.h"
#include "worker/sentinel/channel.h"

namespace muster::worker {

/// Threads: the caller's lock. What is given back closes its connections when it is destroyed,
/// which is better done without that lock.
class ViewBook {
 public:
  /// A view to be entered, or entered.
  struct Entered {
    sentinel::ViewMessage view;
    std::shared_ptr<comm::Communicator> communicator;  ///< none for who is not a member of it
  };
  using GivenUp = std::optional<Entered>;

  /// An urgent view ends the connections of the present one, and of one that was about to be
  /// entered: whoever was lost may have been in either. Any other leaves both as they are; who
  /// passes one over closes its connections, and nobody waits for it. False: it is no news.
  bool take(sentinel::ViewMessage view, GivenUp& given_up);

  /// nullptr before the first.
  const sentinel::ViewMessage* newest() const { return newest_ ? &*newest_ : nullptr; }
  std::int64_t newest_epoch() const { return newest_ ? newest_->epoch : 0; }
  bool has_newer_than_present() const { return newest_epoch() > present_epoch_; }

  /// The present view is over. Gives back its connections, which its user has closed; that their
  /// thread and memory go takes a while, and nobody waits for it.
  std::shared_ptr<comm::Communicator> leave_present();
  /// What was prepared for an older view than the newest.
  GivenUp give_up_old();
  /// Whether the newest view can be entered without a wait.
  bool is_prepared() const { return ahead_.has_value(); }
  /// It can, over these connections; over none by who is not a member of it.
  void prepare(std::shared_ptr<comm::Communicator> communicator);
  /// What is_prepared() was said of, if it is of this epoch.
  const sentinel::ViewMessage* prepared(std::int64_t epoch) const;
  bool is_staying() const;
  /// And also of the newest view.
  bool will_stay() const { return is_staying() && (!newest_ || newest_->rank >= 0); }
  /// Whether a newer view than the present one stops all.
  bool is_stop_near() const { return has_newer_than_present() && newest_->stop; }

  /// Enters what is prepared for this epoch; nothing where nothing is. The communicator ends with
  /// its user, and with an urgent view.
  std::unique_ptr<comm::Communicator> enter_prepared(std::int64_t epoch);
  /// Enters the newest view over these connections.
  std::unique_ptr<comm::Communicator> enter_newest(
      std::shared_ptr<comm::Communicator> communicator);

 private:
  std::unique_ptr<comm::Communicator> lend(Entered entered);

  std::int64_t present_epoch_ = 0;
  std::optional<sentinel::ViewMessage> newest_;
  std::optional<Entered> ahead_, present_;
};

/// `processes`: of each worker.
engine::View to_view(const sentinel::ViewMessage& message, int processes);

}  // namespace muster::worker
