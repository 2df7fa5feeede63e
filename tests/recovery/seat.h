// A trainer's place among the members, in the simulation: what worker/trainer_membership.h does
// with a sentinel's channel and TCP, done with views that the world tells and wires that it makes.
// Its rules are that file's; where the two differ, this one is wrong.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "tests/recovery/stage.h"
#include "worker/engine/membership.h"
#include "worker/view_book.h"

namespace muster::sim {

/// What a trainer tells its sentinel.
class SeatWorld {
 public:
  virtual ~SeatWorld() = default;
  virtual void on_ready(int trainer, const Sha256Digest& digest) = 0;
  virtual void on_broken(int trainer, std::int64_t epoch, const Error& why) = 0;
  /// It can enter a newer view, as it says in each step until it does.
  virtual void on_prepared(int trainer, std::int64_t epoch) = 0;
  /// It is about to greet the members of a view.
  virtual void on_connected(int trainer, std::int64_t epoch) = 0;
  virtual void on_entered(int trainer, const engine::Entry& entry) = 0;
  virtual void on_waits(int trainer, std::int64_t epoch) = 0;
  virtual void on_spared(int trainer, std::int64_t epoch, const std::vector<int>& slots) = 0;
};

/// Threads: as Stage says. `take` and `connected` are the world's.
class Seat final : public engine::Membership {
 public:
  Seat(Stage& stage, SeatWorld& world, int trainer)
      : stage_(stage), world_(world), trainer_(trainer) {}

  void take(sentinel::ViewMessage view);
  /// All members of the view `epoch` are connected.
  void connected(std::int64_t epoch, std::unique_ptr<comm::Communicator> communicator);
  std::int64_t newest_epoch() const { return views_.newest_epoch(); }
  void ask_to_leave() { is_asked_ = true; }

  void ready(const engine::Subject& subject) override {
    world_.on_ready(trainer_, subject.outline);
  }
  Result<engine::View> next(std::int64_t after, std::optional<MonoTime> deadline) override;
  Result<std::int64_t> prepared_epoch() override;
  std::optional<engine::View> prepared(std::int64_t epoch) override;
  bool is_staying() const override { return views_.is_staying(); }
  bool will_stay() const override { return views_.will_stay(); }
  bool is_leaving() const override { return is_asked_; }
  void spares(std::int64_t epoch, const std::vector<int>& slots) override {
    world_.on_spared(trainer_, epoch, slots);
  }
  bool is_stop_near() const override { return views_.is_stop_near(); }
  Result<std::unique_ptr<comm::Communicator>> connect(const engine::View& view) override;
  void broken(std::int64_t epoch, const Error& why) override {
    world_.on_broken(trainer_, epoch, why);
  }
  void waits(std::int64_t epoch, Missing missing) override {
    if (missing == Missing::kCopy) world_.on_waits(trainer_, epoch);
  }
  void entered(const engine::Entry& entry) override { world_.on_entered(trainer_, entry); }

 private:
  Stage& stage_;
  SeatWorld& world_;
  const int trainer_;
  worker::ViewBook views_;
  bool is_asked_ = false;
  std::shared_ptr<comm::Communicator> made_;  ///< of the newest view, not asked for yet
};

}  // namespace muster::sim
