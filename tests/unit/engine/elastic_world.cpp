#include "tests/unit/engine/elastic_world.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "common/check.h"
#include "common/contract.h"
#include "worker/comm/shared_communicator.h"

namespace muster::test {
namespace {

constexpr std::chrono::seconds kLongest{60};
/// Of one world: more than any test needs. Who breaks a view each time would come to no end.
constexpr std::int64_t kViewsMax = 300;

Error killed() {
  return Error(ErrorCode::kInternal, "killed").with_exit_code(contract::exit_code::kInternal);
}

/// One trainer's own.
class LaggingClock final : public Clock {
 public:
  MonoTime mono_now() const override { return system_.mono_now() - seconds(behind_.load()); }
  WallTime wall_now() const override { return system_.wall_now(); }
  void lag(seconds by) { behind_ = by.count(); }
  void go_on(seconds by) { behind_ -= by.count(); }

 private:
  SystemClock system_;
  std::atomic<std::int64_t> behind_ = 0;
};

class WatchedWork final : public comm::Work {
 public:
  WatchedWork(std::unique_ptr<comm::Work> real, std::function<Status()> on_done)
      : real_(std::move(real)), on_done_(std::move(on_done)) {}
  void proceed_alone() override { real_->proceed_alone(); }
  Status wait(MonoTime deadline) override {
    MUSTER_RETURN_IF_ERROR(real_->wait(deadline));
    return on_done_();
  }
  Status wait_for(std::span<const int> ranks, MonoTime deadline) override {
    return real_->wait_for(ranks, deadline);
  }

 private:
  std::unique_ptr<comm::Work> real_;
  std::function<Status()> on_done_;
};

/// One trainer's end of a round.
class WatchedCommunicator final : public comm::SharedCommunicator {
 public:
  WatchedCommunicator(std::shared_ptr<comm::Communicator> real,
                      const ElasticWorld::TransferWatch& watch, int trainer)
      : SharedCommunicator(std::move(real)), watch_(watch), trainer_(trainer) {}

  void abort() override {
    SharedCommunicator::abort();
    watch_.on_abort(trainer_);
  }
  Result<std::unique_ptr<comm::Work>> start_on(
      int channel, std::uint64_t step, comm::Memory memory, std::span<const comm::SendBuffer> sends,
      std::span<const comm::ReceiveBuffer> receives) override {
    MUSTER_ASSIGN_OR_RETURN(auto work,
                            SharedCommunicator::start_on(channel, step, memory, sends, receives));
    watch_.on_start(trainer_);
    return std::unique_ptr<comm::Work>(std::make_unique<WatchedWork>(std::move(work), [this] {
      const Status met = watch_.on_done(trainer_);
      if (!met) SharedCommunicator::abort();
      return met;
    }));
  }

 private:
  const ElasticWorld::TransferWatch& watch_;
  const int trainer_;
};

}  // namespace

/// One view and what connects its members.
struct ElasticWorld::Round {
  std::int64_t epoch = 0;
  std::vector<int> members;  ///< by rank
  bool stop = false;
  bool is_connected = false;
  std::vector<std::shared_ptr<comm::Communicator>> communicators;

  int rank_of(int trainer) const {
    const auto found = std::find(members.begin(), members.end(), trainer);
    return found == members.end() ? -1 : static_cast<int>(found - members.begin());
  }
};

struct ElasticWorld::Trainer {
  int slot = 0;
  int process = 0;  ///< of the worker in that slot
  bool is_ready = false;
  bool has_ended = false;
  bool was_member = false;
  std::string doom;     ///< the point where it dies; empty: it lives
  std::string held_at;  ///< the point where it stays, once it has made held_step steps
  std::int64_t held_step = -1;
  bool is_held = false;     ///< it is there
  bool is_slow = false;     ///< nobody comes to be connected with it
  bool is_asked = false;    ///< to leave
  std::vector<int> spared;  ///< slots, as it has told since it entered
  std::shared_ptr<Round> present;
  std::shared_ptr<Round> ahead;  ///< what it said last that it is prepared for
  std::int64_t entered_epoch = 0;
  std::optional<Result<engine::TrainingSummary>> outcome;
  LaggingClock clock;
  std::thread thread;
};

struct ElasticWorld::Shared {
  SystemClock clock;
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::map<int, Trainer> trainers;
  std::shared_ptr<Round> round = std::make_shared<Round>();
  int expected = 0;  ///< trainers that form the first view
  int respawns = 0;  ///< so many of those who die next are started again
  bool is_over = false;
  int stalls = 0, broken = 0;
  std::vector<engine::Entry> entries;
};

class ElasticWorld::Seat final : public engine::Membership {
 public:
  Seat(ElasticWorld& world, int trainer) : world_(world), trainer_(trainer) {}

  void ready(const engine::Subject&) override {
    Shared& shared = *world_.shared_;
    const std::lock_guard lock(shared.mutex);
    if (std::exchange(shared.trainers[trainer_].is_ready, true)) return;
    if (shared.round->epoch == 0) {
      std::vector<int> all;
      for (const auto& [number, trainer] : shared.trainers) {
        if (trainer.is_ready) all.push_back(number);
      }
      if (static_cast<int>(all.size()) == shared.expected) world_.publish(all, false);
      return;
    }
    if (shared.is_over) return;
    std::vector<int> members = shared.round->members;
    members.push_back(trainer_);
    world_.publish(members, false);
  }

  Result<engine::View> next(std::int64_t after, std::optional<MonoTime>) override {
    Shared& shared = *world_.shared_;
    std::unique_lock lock(shared.mutex);
    Trainer& self = shared.trainers[trainer_];
    const auto is_due = [&] {
      if (shared.is_over && self.entered_epoch == 0) return true;
      return shared.round->epoch > after &&
             (self.was_member || shared.round->rank_of(trainer_) >= 0);
    };
    if (!shared.changed.wait_for(lock, kLongest, is_due)) {
      return Error(ErrorCode::kDeadlineExceeded, "no view came")
          .with_exit_code(contract::exit_code::kPeerLost);
    }
    if (shared.is_over && self.entered_epoch == 0) {
      return Error(ErrorCode::kAborted, kTooLate).with_exit_code(contract::exit_code::kPeerLost);
    }
    self.was_member = true;
    self.present.reset();
    if (self.ahead != shared.round) world_.drop_ahead(trainer_);
    return world_.view_of(*shared.round, trainer_);
  }

  Result<std::int64_t> prepared_epoch() override {
    Shared& shared = *world_.shared_;
    const std::lock_guard lock(shared.mutex);
    Trainer& self = shared.trainers[trainer_];
    if (shared.round == self.present) return 0;
    if (self.ahead && self.ahead != shared.round) world_.drop_ahead(trainer_);
    const bool is_member = shared.round->rank_of(trainer_) >= 0;
    if (is_member && !world_.is_connected(*shared.round)) return 0;
    self.ahead = shared.round;
    return shared.round->epoch;
  }

  std::optional<engine::View> prepared(std::int64_t epoch) override {
    Shared& shared = *world_.shared_;
    const std::lock_guard lock(shared.mutex);
    Trainer& self = shared.trainers[trainer_];
    if (!self.ahead || self.ahead->epoch != epoch) return std::nullopt;
    self.present.reset();
    return world_.view_of(*self.ahead, trainer_);
  }

  bool is_staying() const override {
    const std::lock_guard lock(world_.shared_->mutex);
    const auto& ahead = world_.shared_->trainers[trainer_].ahead;
    return (ahead ? ahead : world_.shared_->round)->rank_of(trainer_) >= 0;
  }

  bool will_stay() const override {
    if (!is_staying()) return false;
    const std::lock_guard lock(world_.shared_->mutex);
    return world_.shared_->round->rank_of(trainer_) >= 0;
  }

  bool is_leaving() const override {
    const std::lock_guard lock(world_.shared_->mutex);
    return world_.shared_->trainers[trainer_].is_asked;
  }

  void spares(std::int64_t epoch, const std::vector<int>& slots) override {
    const std::lock_guard lock(world_.shared_->mutex);
    MUSTER_CHECK(epoch == world_.shared_->trainers[trainer_].entered_epoch);
    world_.shared_->trainers[trainer_].spared = slots;
  }

  bool is_stop_near() const override {
    const std::lock_guard lock(world_.shared_->mutex);
    return world_.shared_->round->stop &&
           world_.shared_->round != world_.shared_->trainers[trainer_].present;
  }

  Result<std::unique_ptr<comm::Communicator>> connect(const engine::View& view) override {
    Shared& shared = *world_.shared_;
    std::unique_lock lock(shared.mutex);
    Trainer& self = shared.trainers[trainer_];
    if (!self.ahead) {
      const std::shared_ptr<Round> wanted = shared.round;
      if (self.entered_epoch > 0) {
        ++shared.stalls;
        for (const int member : wanted->members) shared.trainers[member].is_slow = false;
        shared.changed.notify_all();
      }
      const auto is_killed = [&] { return self.is_slow && self.doom == engine::point::kConnect; };
      const auto is_overtaken = [&] {
        return wanted->epoch != view.epoch || wanted != shared.round;
      };
      const bool is_due = shared.changed.wait_for(lock, kLongest, [&] {
        return is_killed() || is_overtaken() || shared.is_over || world_.is_connected(*wanted);
      });
      MUSTER_CHECK_MSG(is_due, "a view was never connected");
      if (is_killed()) return killed();
      if (is_overtaken()) return Error(ErrorCode::kAborted, "a newer view came");
      if (!wanted->is_connected) return Error(ErrorCode::kAborted, "the others have ended");
      self.ahead = wanted;
    }
    self.present = std::exchange(self.ahead, nullptr);
    shared.changed.notify_all();
    std::shared_ptr<comm::Communicator> own =
        self.present->communicators[static_cast<std::size_t>(view.rank)];
    if (world_.transfer_watch_) {
      own = std::make_shared<WatchedCommunicator>(own, *world_.transfer_watch_, trainer_);
    }
    return std::unique_ptr<comm::Communicator>(std::make_unique<comm::LentCommunicator>(own));
  }

  /// Nobody is known to have died: the same members try again under another number.
  void broken(std::int64_t epoch, const Error&) override {
    const std::lock_guard lock(world_.shared_->mutex);
    ++world_.shared_->broken;
    if (world_.shared_->round->epoch == epoch && !world_.shared_->is_over) {
      world_.publish(world_.shared_->round->members, true);
    }
  }

  void waits(std::int64_t, Missing) override {}

  void entered(const engine::Entry& entry) override {
    const std::lock_guard lock(world_.shared_->mutex);
    world_.shared_->trainers[trainer_].entered_epoch = entry.epoch;
    world_.shared_->trainers[trainer_].spared.clear();
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

/// The lock is held. What somebody has of a round it will not enter closes.
void ElasticWorld::end_connections(int trainer, const Round& round) {
  const int rank = round.rank_of(trainer);
  if (rank >= 0) round.communicators[static_cast<std::size_t>(rank)]->abort();
}

/// The lock is held.
void ElasticWorld::drop_ahead(int trainer) {
  const std::shared_ptr<Round> ahead = std::exchange(shared_->trainers[trainer].ahead, nullptr);
  if (ahead) end_connections(trainer, *ahead);
}

/// The lock is held. All who live connect as soon as they hear of a view, the slow ones later.
bool ElasticWorld::is_connected(Round& round) {
  round.is_connected =
      round.is_connected || std::none_of(round.members.begin(), round.members.end(), [&](int one) {
        return shared_->trainers[one].is_slow || shared_->trainers[one].has_ended;
      });
  return round.is_connected;
}

engine::View ElasticWorld::view_of(const Round& round, int trainer) const {
  engine::View view;
  view.epoch = round.epoch;
  view.rank = round.rank_of(trainer);
  view.stop = round.stop;
  for (const int member : round.members) view.slots.push_back(shared_->trainers[member].slot);
  view.numbers = view.slots;  // a process each
  return view;
}

/// The lock is held. A view passes over the one before for all who have not entered it and have not
/// said that they are prepared for it. An urgent one breaks the connections of those who lose
/// somebody, or who were told of nothing since they entered theirs.
void ElasticWorld::publish(std::vector<int> members, bool is_urgent, bool stop) {
  Shared& shared = *shared_;
  std::erase_if(members, [&](int one) { return shared.trainers[one].has_ended; });
  std::sort(members.begin(), members.end(), [&](int a, int b) {
    const Trainer &one = shared.trainers[a], &other = shared.trainers[b];
    return std::tuple(one.slot, one.process, a) < std::tuple(other.slot, other.process, b);
  });
  const auto next = std::make_shared<Round>();
  next->epoch = shared.round->epoch + 1;
  MUSTER_CHECK_MSG(next->epoch <= kViewsMax, "view after view, and the training comes to no end");
  next->members = std::move(members);
  next->stop = stop;
  std::vector<int> hosts;
  for (const int member : next->members) {
    hosts.push_back(shared.trainers[member].slot / slots_of_host_);
  }
  for (auto& one : comm::make_local_communicators(static_cast<int>(next->members.size()),
                                                  shared.clock, std::move(hosts))) {
    next->communicators.push_back(std::move(one));
  }
  const std::shared_ptr<Round> before = std::exchange(shared.round, next);
  for (auto& [number, trainer] : shared.trainers) {
    if (is_urgent) drop_ahead(number);
    if (trainer.present != before && trainer.ahead != before) end_connections(number, *before);
    if (!is_urgent || !trainer.present) continue;
    const auto& present = trainer.present->members;
    const bool is_one_lost = std::any_of(present.begin(), present.end(),
                                         [&](int one) { return next->rank_of(one) < 0; });
    if (trainer.present == before || is_one_lost) end_connections(number, *trainer.present);
  }
  shared.changed.notify_all();
}

void ElasticWorld::start(int workers, std::string_view doom) {
  shared_->expected = workers;
  for (int slot = 0; slot < workers; ++slot) add(slot, slot == 0 ? doom : "");
}

void ElasticWorld::respawn_next(int trainers) {
  const std::lock_guard lock(shared_->mutex);
  shared_->respawns = trainers;
}

int ElasticWorld::add(int slot, std::string_view doom) {
  const std::lock_guard lock(shared_->mutex);
  return add_locked(slot, doom, false);
}

int ElasticWorld::add_process(int slot, int process) {
  const std::lock_guard lock(shared_->mutex);
  const int number = add_locked(slot, "", false);
  shared_->trainers[number].process = process;
  return number;
}

int ElasticWorld::add_slow(int slot) {
  const std::lock_guard lock(shared_->mutex);
  return add_locked(slot, "", true);
}

void ElasticWorld::let_connect(int trainer) {
  const std::lock_guard lock(shared_->mutex);
  shared_->trainers[trainer].is_slow = false;
  shared_->changed.notify_all();
}

int ElasticWorld::add_locked(int slot, std::string_view doom, bool is_slow) {
  const int number = static_cast<int>(shared_->trainers.size());
  Trainer& trainer = shared_->trainers[number];
  trainer.slot = slot;
  trainer.is_slow = is_slow;
  trainer.doom = doom;
  trainer.thread = std::thread([this, number] { run(number); });
  return number;
}

void ElasticWorld::run(int number) {
  Seat seat(*this, number);
  std::unique_lock lock(shared_->mutex);
  Trainer& self = shared_->trainers[number];
  const bool is_joining = !shared_->entries.empty();
  lock.unlock();
  engine::TrainingHooks hooks;
  hooks.saves_in_place = saves_in_place_;
  hooks.is_record_held = is_record_held_;
  hooks.on_state = [&](std::int64_t step, std::span<const float> parameters,
                       const engine::OptimizerState& optimizer) {
    on_state_(number, step, parameters, optimizer);
  };
  hooks.on_batch = [&](std::int64_t step, data::RankRange ranks,
                       std::span<const std::uint64_t> samples) {
    reads_ += static_cast<std::uint64_t>(ranks.size());
    if (time_of_rank_) self.clock.go_on(ranks.size() * time_of_rank_(number, step));
    if (on_batch_) on_batch_(step, ranks, samples);
  };
  hooks.on_division = [&](const engine::DivisionChange& change) {
    if (on_division_) on_division_(number, change);
  };
  hooks.on_step = [&](const engine::StepReport& report) {
    if (on_report_) on_report_(number, report);
  };
  hooks.at = [&](std::string_view point, std::int64_t step) -> Status {
    if (at_point_) MUSTER_RETURN_IF_ERROR(at_point_(number, point, step));
    if (time_of_update_ && point == engine::point::kUpdate) {
      self.clock.go_on(time_of_update_(number, step));
    }
    std::unique_lock point_lock(shared_->mutex);
    const auto is_held = [&] { return self.held_at == point && self.held_step == step; };
    self.is_held = is_held();
    if (self.is_held) shared_->changed.notify_all();
    const bool is_free =
        shared_->changed.wait_for(point_lock, kLongest, [&] { return !is_held(); });
    MUSTER_CHECK_MSG(is_free, "a trainer was never released");
    self.is_held = false;
    return self.doom == point ? Status(killed()) : Status();
  };
  engine::TrainingConfig config = config_;
  config.place = self.slot % config.group_size();
  config.is_joining = is_joining;
  auto outcome = engine::run_training(config, seat, self.clock, hooks);
  lock.lock();
  self.has_ended = true;
  self.outcome = std::move(outcome);
  drop_ahead(number);
  if (self.present) end_connections(number, *self.present);
  end_connections(number, *shared_->round);
  std::vector<int> left = shared_->round->members;
  if (std::erase(left, number) > 0) {
    // Those who have the state go on; a joiner alone has none to go on from.
    std::erase_if(left, [&](int one) { return shared_->trainers[one].has_ended; });
    const bool is_done = self.outcome->has_value();  // the others are about to be, and need nothing
    const bool is_respawned = !*self.outcome && shared_->respawns > 0;
    if (is_respawned) {
      --shared_->respawns;
      add_locked(self.slot, "", false);
    }
    const bool has_state = is_respawned || std::any_of(left.begin(), left.end(), [&](int one) {
                             return shared_->trainers[one].entered_epoch > 0;
                           });
    if (has_state && !is_done) publish(left, true);
    shared_->is_over = shared_->is_over || !has_state;
    for (const int one : left) {
      const auto& present = shared_->trainers[one].present;
      if (!has_state && present) end_connections(one, *present);
    }
  }
  shared_->changed.notify_all();
}

void ElasticWorld::wait_until(const char* what, const std::function<bool()>& condition) {
  std::unique_lock lock(shared_->mutex);
  MUSTER_CHECK_MSG(shared_->changed.wait_for(lock, kLongest, condition), what);
}

void ElasticWorld::wait_for(int trainer) {
  wait_until("a joiner never became ready", [&] { return shared_->round->rank_of(trainer) >= 0; });
}

void ElasticWorld::wait_held(int trainer) {
  wait_until("a trainer never came where it is held",
             [&] { return shared_->trainers[trainer].is_held; });
}

void ElasticWorld::wait_gone(int trainer) {
  wait_until("a trainer is never lost", [&] { return shared_->round->rank_of(trainer) < 0; });
}

void ElasticWorld::wait_connected(int trainer) {
  wait_until("a trainer is never connected",
             [&] { return shared_->trainers[trainer].present != nullptr; });
}

void ElasticWorld::wait_joiners() {
  wait_until("a joiner is never connected", [&] {
    return std::ranges::all_of(shared_->round->members, [&](int one) {
      const Trainer& member = shared_->trainers[one];
      return member.entered_epoch > 0 || member.has_ended || member.present == shared_->round;
    });
  });
}

void ElasticWorld::wait_ended(int trainer) {
  wait_until("a trainer does not die", [&] { return shared_->trainers[trainer].has_ended; });
}

void ElasticWorld::doom(int trainer, std::string_view point) {
  const std::lock_guard lock(shared_->mutex);
  shared_->trainers[trainer].doom = point;
  shared_->changed.notify_all();
}

void ElasticWorld::hold(int trainer, std::string_view point, std::int64_t step) {
  const std::lock_guard lock(shared_->mutex);
  Trainer& self = shared_->trainers[trainer];
  self.held_at = point;
  self.held_step = step;
  self.is_held = false;
  shared_->changed.notify_all();
}

void ElasticWorld::release(int trainer) {
  const std::lock_guard lock(shared_->mutex);
  shared_->trainers[trainer].held_step = -1;
  shared_->changed.notify_all();
}

void ElasticWorld::lag(int trainer, seconds by) {
  const std::lock_guard lock(shared_->mutex);
  shared_->trainers[trainer].clock.lag(by);
}

void ElasticWorld::ask_to_leave(int trainer) {
  const std::lock_guard lock(shared_->mutex);
  shared_->trainers[trainer].is_asked = true;
}

int ElasticWorld::spared_by(int trainer) const {
  const std::lock_guard lock(shared_->mutex);
  const int slot = shared_->trainers.at(trainer).slot;
  return static_cast<int>(std::ranges::count_if(shared_->round->members, [&](int one) {
    const std::vector<int>& spared = shared_->trainers.at(one).spared;
    return std::ranges::find(spared, slot) != spared.end();
  }));
}

void ElasticWorld::leave(int trainer) {
  const std::lock_guard lock(shared_->mutex);
  std::vector<int> left = shared_->round->members;
  if (left.size() > 1 && std::erase(left, trainer) > 0) publish(left, false);
}

void ElasticWorld::lose(int trainer) {
  const std::lock_guard lock(shared_->mutex);
  std::vector<int> left = shared_->round->members;
  if (left.size() > 1 && std::erase(left, trainer) > 0) publish(left, true);
}

void ElasticWorld::cut(int trainer) {
  const std::lock_guard lock(shared_->mutex);
  const auto& present = shared_->trainers[trainer].present;
  if (present) end_connections(trainer, *present);
}

void ElasticWorld::stop() {
  const std::lock_guard lock(shared_->mutex);
  std::vector<int> staying = shared_->round->members;
  std::erase_if(staying, [&](int one) { return shared_->trainers[one].entered_epoch == 0; });
  publish(staying.empty() ? shared_->round->members : staying, false, true);
}

void ElasticWorld::join() {
  std::unique_lock lock(shared_->mutex);
  const bool have_ended = shared_->changed.wait_for(lock, kLongest, [&] {
    return std::all_of(shared_->trainers.begin(), shared_->trainers.end(),
                       [](const auto& entry) { return entry.second.has_ended; });
  });
  std::string state = "a trainer hangs; newest epoch " + std::to_string(shared_->round->epoch);
  const auto epoch_of = [](const std::shared_ptr<Round>& round) {
    return round ? std::to_string(round->epoch) : std::string("none");
  };
  for (const auto& [number, trainer] : shared_->trainers) {
    if (trainer.has_ended) continue;
    state += "; " + std::to_string(number) + " is in " + epoch_of(trainer.present) +
             ", prepared for " + epoch_of(trainer.ahead) + ", entered " +
             std::to_string(trainer.entered_epoch) + (trainer.is_slow ? ", slow" : "") +
             (shared_->round->rank_of(number) < 0 ? ", out" : "");
  }
  MUSTER_CHECK_MSG(have_ended, state);
}

std::vector<int> ElasticWorld::members() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->round->members;
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

int ElasticWorld::stalls() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->stalls;
}

int ElasticWorld::broken() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->broken;
}

}  // namespace muster::test
