#include "tests/recovery/stage.h"

#include <algorithm>
#include <utility>

#include "common/check.h"

namespace muster::sim {
namespace {
/// Turns in one moment after which somebody is taken to go round in circles.
constexpr int kTurnsMost = 100'000;
}  // namespace

void Stage::end() {
  for (std::size_t i = 0; i < actors_.size(); ++i) {
    actors_[i]->is_killed = true;
    while (!actors_[i]->has_ended) {
      give_turn(static_cast<int>(i));
      back_.take();
    }
    if (actors_[i]->thread.joinable()) actors_[i]->thread.join();
  }
  // What an event holds may make another one as it goes.
  while (!events_.empty()) std::exchange(events_, {}).clear();
}

void Stage::after(nanoseconds delay, std::function<void()> event) {
  events_.emplace(now_ + delay, std::move(event));
}

int Stage::add(std::function<void()> body) {
  actors_.push_back(std::make_unique<Actor>());
  Actor& self = *actors_.back();
  self.thread = std::thread([this, &self, body = std::move(body)] {
    self.turn.take();
    try {
      if (!self.is_killed) body();
    } catch (const Killed&) {
    }
    self.has_ended = true;
    pass_turn();
  });
  return static_cast<int>(actors_.size()) - 1;
}

void Stage::give_turn(int actor) {
  running_ = actor;
  actors_[index(actor)]->turn.give();
}

/// Whose turn it was ends: the next one is given it at once, or, where nobody is next, who called
/// run().
void Stage::pass_turn() {
  const int next = run_ ? who_is_next() : -1;
  if (next >= 0) {
    give_turn(next);
  } else {
    back_.give();
  }
}

void Stage::wait_for_turn(Actor& self) {
  pass_turn();
  self.turn.take();
  if (self.is_killed) throw Killed{};
}

bool Stage::wait(const Condition& is_due, MonoTime deadline) {
  MUSTER_CHECK_MSG(running_ >= 0, "only an actor can wait");
  Actor& self = *actors_[index(running_)];
  if (self.is_killed) throw Killed{};
  self.is_due = &is_due;
  self.deadline = deadline;
  wait_for_turn(self);
  return is_due();
}

void Stage::pass(nanoseconds time) {
  MUSTER_CHECK_MSG(running_ >= 0, "only an actor can wait");
  Actor& self = *actors_[index(running_)];
  if (self.is_killed) throw Killed{};
  self.is_due = nullptr;
  self.deadline = now_ + time;
  wait_for_turn(self);
}

bool Stage::wants_turn(const Actor& actor) const {
  if (actor.has_ended) return false;
  if (actor.is_killed) return true;
  if (actor.frozen_until > now_) return false;
  return actor.deadline <= now_ || (actor.is_due != nullptr && (*actor.is_due)());
}

/// When something happens next by itself.
std::optional<MonoTime> Stage::next_time() const {
  std::optional<MonoTime> next;
  const auto take = [&](MonoTime time) { next = next ? std::min(*next, time) : time; };
  if (!events_.empty()) take(events_.begin()->first);
  for (const auto& actor : actors_) {
    if (actor->has_ended) continue;
    if (actor->frozen_until > now_) take(actor->frozen_until);
    take(std::max(actor->deadline, actor->frozen_until));
  }
  return next;
}

/// The actor whose turn it is next, after all that happens before; -1 where the run has ended.
int Stage::who_is_next() {
  running_ = -1;
  while (!(*run_->is_over)()) {
    std::vector<int> ready;
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      if (wants_turn(*actors_[i])) ready.push_back(static_cast<int>(i));
    }
    if (!ready.empty()) {
      if (++run_->turns > kTurnsMost) return end_run(Ended::kStuck);
      return ready[rng_.below(ready.size())];
    }
    const auto next = next_time();
    if (!next) return end_run(Ended::kStuck);
    if (*next > run_->until) return end_run(Ended::kTime);
    if (*next > now_) run_->turns = 0;
    now_ = std::max(now_, *next);
    if (events_.empty() || events_.begin()->first > now_) continue;
    const auto event = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    event();
  }
  return end_run(Ended::kOver);
}

int Stage::end_run(Ended how) {
  run_->ended = how;
  return -1;
}

Stage::Ended Stage::run(MonoTime until, const Condition& is_over) {
  run_.emplace(Run{until, &is_over});
  const int first = who_is_next();
  if (first >= 0) {
    give_turn(first);
    back_.take();
  }
  const Ended ended = run_->ended;
  run_.reset();
  running_ = -1;
  return ended;
}

}  // namespace muster::sim
