// Threads that take turns in virtual time: one runs at a time, who is next is drawn, and time
// passes only while all wait. So what real, blocking code does is a function of the seed. Whose
// turn ends gives it to the next one, so that a turn is one change of threads.
#pragma once

#include <semaphore.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/rng.h"

namespace muster::sim {

/// Thrown out of an actor that was killed, where it waits: nothing that it was about to do happens.
struct Killed {};

/// Threads: the one that calls run(), and the actors, in turns.
class Stage {
 public:
  using Condition = std::function<bool()>;

  /// `rng` outlives it.
  explicit Stage(Rng& rng) : rng_(rng), clock_(*this) {}
  ~Stage() { end(); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  MonoTime now() const { return now_; }
  /// Of this stage's time.
  const Clock& clock() const { return clock_; }
  /// `event` happens between the actors' turns; it must not wait.
  void after(nanoseconds delay, std::function<void()> event);

  /// A new actor, who gets its first turn later. Returns its number.
  int add(std::function<void()> body);
  /// It gets no other turn but to end.
  void kill(int actor) { actors_[index(actor)]->is_killed = true; }
  /// It gets no turn before.
  void freeze(int actor, MonoTime until) { actors_[index(actor)]->frozen_until = until; }
  /// Kills who is left, and forgets what was to happen. What actors use must live until then.
  void end();

  /// Called by an actor: the others take their turns until `is_due`, or until `deadline`; whether
  /// it is due. Throws Killed.
  bool wait(const Condition& is_due, MonoTime deadline);
  /// Called by an actor: the others take their turns for so long. Throws Killed.
  void pass(nanoseconds time);

  enum class Ended { kOver, kTime, kStuck };
  /// Until `is_over`, which is looked at between turns. kTime: it was not by `until`. kStuck:
  /// nobody waits for anything that will come, or one takes turns without end and no time passes.
  Ended run(MonoTime until, const Condition& is_over);

 private:
  class StageClock final : public Clock {
   public:
    explicit StageClock(const Stage& stage) : stage_(stage) {}
    MonoTime mono_now() const override { return stage_.now_; }
    WallTime wall_now() const override {
      return WallTime(std::chrono::duration_cast<microseconds>(stage_.now_.time_since_epoch()));
    }

   private:
    const Stage& stage_;
  };
  /// One who gives and one who waits. The standard's spins before it sleeps, and here somebody else
  /// has something to do always.
  class Turn {
   public:
    Turn() { sem_init(&given_, 0, 0); }
    ~Turn() { sem_destroy(&given_); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    void give() { sem_post(&given_); }
    void take() {
      while (sem_wait(&given_) != 0) {
      }
    }

   private:
    sem_t given_{};
  };
  struct Actor {
    std::thread thread;
    Turn turn;
    const Condition* is_due = nullptr;  ///< nullptr: at its deadline
    MonoTime deadline{};                ///< at the start: at once
    MonoTime frozen_until{};
    bool is_killed = false;
    bool has_ended = false;
  };

  /// What run() was called for.
  struct Run {
    MonoTime until;
    const Condition* is_over;
    int turns = 0;  ///< in this moment
    Ended ended = Ended::kOver;
  };

  static std::size_t index(int actor) { return static_cast<std::size_t>(actor); }
  void give_turn(int actor);
  void pass_turn();
  int who_is_next();
  int end_run(Ended how);
  void wait_for_turn(Actor& self);
  bool wants_turn(const Actor& actor) const;
  std::optional<MonoTime> next_time() const;

  Rng& rng_;
  StageClock clock_;
  MonoTime now_{seconds(1)};
  std::multimap<MonoTime, std::function<void()>> events_;
  std::vector<std::unique_ptr<Actor>> actors_;
  Turn back_;  ///< the run has ended, or the actor that end() gave a turn
  int running_ = -1;
  std::optional<Run> run_;  ///< while run() is called
};

}  // namespace muster::sim
