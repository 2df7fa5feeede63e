#include "tests/unit/engine/elastic_world.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>

#include "common/check.h"
#include "common/contract.h"
#include "worker/comm/shared_communicator.h"

namespace muster::test {
namespace {

constexpr std::chrono::seconds kLongest{60};

}  // namespace

/// One view and what connects its members.
struct ElasticWorld::Round {
  std::int64_t epoch = 0;
  std::vector<int> members;  ///< by rank
  bool stop = false;
  std::vector<std::shared_ptr<comm::Communicator>> communicators;

  int rank_of(int trainer) const {
    const auto found = std::find(members.begin(), members.end(), trainer);
    return found == members.end() ? -1 : static_cast<int>(found - members.begin());
  }
};

struct ElasticWorld::Trainer {
  int slot = 0;
  bool is_ready = false;
  bool has_ended = false;
  bool was_member = false;
  std::string doom;     ///< the point where it dies; empty: it lives
  std::string held_at;  ///< the point where it stays, once it has made held_step steps
  std::int64_t held_step = -1;
  std::shared_ptr<comm::Communicator> connected;
  std::int64_t connected_epoch = 0, entered_epoch = 0;
  std::optional<Result<engine::TrainingSummary>> outcome;
  std::thread thread;
};

struct ElasticWorld::Shared {
  SystemClock clock;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<int, Trainer> trainers;
  Round round;
  int expected = 0;  ///< trainers that form the first view
  bool respawns_next = false;
  bool is_over = false;
  std::vector<engine::Entry> entries;
};

class ElasticWorld::Seat final : public engine::Membership {
 public:
  Seat(ElasticWorld& world, int trainer) : world_(world), trainer_(trainer) {}

  void ready(const Sha256Digest&) override {
    Shared& shared = *world_.shared_;
    const std::lock_guard lock(shared.mutex);
    shared.trainers[trainer_].is_ready = true;
    if (shared.round.epoch == 0) {
      std::vector<int> all;
      for (const auto& [number, trainer] : shared.trainers) {
        if (trainer.is_ready) all.push_back(number);
      }
      if (static_cast<int>(all.size()) == shared.expected) world_.publish(all, false);
      return;
    }
    if (shared.is_over) return;
    std::vector<int> members = shared.round.members;
    members.push_back(trainer_);
    world_.publish(members, false);
  }

  Result<engine::View> next(std::int64_t after, MonoTime) override {
    Shared& shared = *world_.shared_;
    std::unique_lock lock(shared.mutex);
    Trainer& self = shared.trainers[trainer_];
    const auto is_due = [&] {
      if (shared.is_over && self.entered_epoch == 0) return true;
      return shared.round.epoch > after && (self.was_member || shared.round.rank_of(trainer_) >= 0);
    };
    if (!shared.changed.wait_for(lock, kLongest, is_due)) {
      return Error(ErrorCode::kDeadlineExceeded, "no view came")
          .with_exit_code(contract::exit_code::kPeerLost);
    }
    if (shared.is_over && self.entered_epoch == 0) {
      return Error(ErrorCode::kAborted, kTooLate).with_exit_code(contract::exit_code::kPeerLost);
    }
    self.was_member = true;
    engine::View view;
    view.epoch = shared.round.epoch;
    view.rank = shared.round.rank_of(trainer_);
    view.stop = shared.round.stop;
    for (const int member : shared.round.members) {
      view.slots.push_back(shared.trainers[member].slot);
    }
    return view;
  }

  std::int64_t newest_epoch() const override {
    const std::lock_guard lock(world_.shared_->mutex);
    return world_.shared_->round.epoch;
  }

  bool is_staying() const override {
    const std::lock_guard lock(world_.shared_->mutex);
    return world_.shared_->round.rank_of(trainer_) >= 0;
  }

  Result<std::unique_ptr<comm::Communicator>> connect(const engine::View& view) override {
    Shared& shared = *world_.shared_;
    const std::lock_guard lock(shared.mutex);
    if (view.epoch != shared.round.epoch) return Error(ErrorCode::kAborted, "a newer view came");
    Trainer& self = shared.trainers[trainer_];
    self.connected = shared.round.communicators[static_cast<std::size_t>(view.rank)];
    self.connected_epoch = view.epoch;
    return std::unique_ptr<comm::Communicator>(
        std::make_unique<comm::LentCommunicator>(self.connected));
  }

  /// Nobody is known to have died: the same members try again under another number.
  void broken(std::int64_t epoch, const Error&) override {
    const std::lock_guard lock(world_.shared_->mutex);
    if (world_.shared_->round.epoch == epoch && !world_.shared_->is_over) {
      world_.publish(world_.shared_->round.members, true);
    }
  }

  void entered(const engine::Entry& entry) override {
    const std::lock_guard lock(world_.shared_->mutex);
    world_.shared_->trainers[trainer_].entered_epoch = entry.epoch;
    world_.shared_->entries.push_back(entry);
  }

 private:
  ElasticWorld& world_;
  int trainer_;
};

ElasticWorld::ElasticWorld(engine::TrainingConfig config, OnState on_state)
    : config_(std::move(config)),
      on_state_(std::move(on_state)),
      shared_(std::make_unique<Shared>()) {}

ElasticWorld::~ElasticWorld() {
  for (auto& [number, trainer] : shared_->trainers) {
    if (trainer.thread.joinable()) trainer.thread.join();
  }
}

/// The lock is held. An urgent view breaks the connections of the one before; any other lets those
/// who have entered it go on to their next step boundary.
void ElasticWorld::publish(std::vector<int> members, bool is_urgent, bool stop) {
  Shared& shared = *shared_;
  std::sort(members.begin(), members.end(), [&](int a, int b) {
    return std::pair(shared.trainers[a].slot, a) < std::pair(shared.trainers[b].slot, b);
  });
  Round next;
  next.epoch = shared.round.epoch + 1;
  next.members = std::move(members);
  next.stop = stop;
  for (auto& one :
       comm::make_local_communicators(static_cast<int>(next.members.size()), shared.clock)) {
    next.communicators.push_back(std::move(one));
  }
  shared.round = std::move(next);
  for (auto& [number, trainer] : shared.trainers) {
    const bool is_waiting = trainer.connected_epoch > trainer.entered_epoch;
    if (trainer.connected && (is_urgent || is_waiting)) trainer.connected->abort();
  }
  shared.changed.notify_all();
}

void ElasticWorld::start(int workers, std::string_view doom) {
  shared_->expected = workers;
  for (int slot = 0; slot < workers; ++slot) add(slot, slot == 0 ? doom : "");
}

void ElasticWorld::respawn_next() {
  const std::lock_guard lock(shared_->mutex);
  shared_->respawns_next = true;
}

int ElasticWorld::add(int slot, std::string_view doom) {
  const std::lock_guard lock(shared_->mutex);
  return add_locked(slot, doom);
}

int ElasticWorld::add_locked(int slot, std::string_view doom) {
  const int number = static_cast<int>(shared_->trainers.size());
  Trainer& trainer = shared_->trainers[number];
  trainer.slot = slot;
  trainer.doom = doom;
  trainer.thread = std::thread([this, number] { run(number); });
  return number;
}

void ElasticWorld::run(int number) {
  Seat seat(*this, number);
  engine::TrainingHooks hooks;
  hooks.on_state = [&](std::int64_t step, std::span<const float> parameters,
                       const engine::OptimizerState& optimizer) {
    on_state_(number, step, parameters, optimizer);
  };
  hooks.at = [&](std::string_view point, std::int64_t step) -> Status {
    if (at_point_) MUSTER_RETURN_IF_ERROR(at_point_(number, point, step));
    std::unique_lock lock(shared_->mutex);
    Trainer& self = shared_->trainers[number];
    const bool is_free = shared_->changed.wait_for(
        lock, kLongest, [&] { return self.held_at != point || self.held_step != step; });
    MUSTER_CHECK_MSG(is_free, "a trainer was never released");
    if (self.doom != point) return {};
    return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
  };
  auto outcome = engine::run_training(config_, seat, shared_->clock, hooks);
  const std::lock_guard lock(shared_->mutex);
  Trainer& self = shared_->trainers[number];
  self.has_ended = true;
  self.outcome = std::move(outcome);
  if (self.connected) self.connected->abort();
  std::vector<int> left = shared_->round.members;
  if (std::erase(left, number) > 0) {
    // Those who have the state go on; a joiner alone has none to go on from.
    std::erase_if(left, [&](int one) { return shared_->trainers[one].has_ended; });
    const bool is_respawned = !*self.outcome && std::exchange(shared_->respawns_next, false);
    if (is_respawned) add_locked(self.slot, "");
    const bool has_state = is_respawned || std::any_of(left.begin(), left.end(), [&](int one) {
                             return shared_->trainers[one].entered_epoch > 0;
                           });
    if (has_state) publish(left, true);
    shared_->is_over = shared_->is_over || !has_state;
    for (const int one : left) {
      const auto& connected = shared_->trainers[one].connected;
      if (!has_state && connected) connected->abort();
    }
  }
  shared_->changed.notify_all();
}

void ElasticWorld::wait_for(int trainer) {
  std::unique_lock lock(shared_->mutex);
  const bool is_in = shared_->changed.wait_for(
      lock, kLongest, [&] { return shared_->round.rank_of(trainer) >= 0; });
  MUSTER_CHECK_MSG(is_in, "a joiner never became ready");
}

void ElasticWorld::doom(int trainer, std::string_view point) {
  const std::lock_guard lock(shared_->mutex);
  shared_->trainers[trainer].doom = point;
}

void ElasticWorld::hold(int trainer, std::string_view point, std::int64_t step) {
  const std::lock_guard lock(shared_->mutex);
  shared_->trainers[trainer].held_at = point;
  shared_->trainers[trainer].held_step = step;
}

void ElasticWorld::release(int trainer) {
  const std::lock_guard lock(shared_->mutex);
  shared_->trainers[trainer].held_step = -1;
  shared_->changed.notify_all();
}

void ElasticWorld::leave(int trainer) {
  const std::lock_guard lock(shared_->mutex);
  std::vector<int> left = shared_->round.members;
  if (left.size() > 1 && std::erase(left, trainer) > 0) publish(left, false);
}

void ElasticWorld::cut(int trainer) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->trainers[trainer].connected) shared_->trainers[trainer].connected->abort();
}

void ElasticWorld::stop() {
  const std::lock_guard lock(shared_->mutex);
  publish(shared_->round.members, false, true);
}

void ElasticWorld::join() {
  std::unique_lock lock(shared_->mutex);
  const bool have_ended = shared_->changed.wait_for(lock, kLongest, [&] {
    return std::all_of(shared_->trainers.begin(), shared_->trainers.end(),
                       [](const auto& entry) { return entry.second.has_ended; });
  });
  MUSTER_CHECK_MSG(have_ended, "a trainer hangs");
}

std::vector<int> ElasticWorld::members() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->round.members;
}

int ElasticWorld::slot_of(int trainer) const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->trainers.at(trainer).slot;
}

const std::optional<Result<engine::TrainingSummary>>& ElasticWorld::outcome(int trainer) const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->trainers.at(trainer).outcome;
}

int ElasticWorld::trainers() const {
  const std::lock_guard lock(shared_->mutex);
  return static_cast<int>(shared_->trainers.size());
}

std::vector<engine::Entry> ElasticWorld::entries() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->entries;
}

}  // namespace muster::test
