// A trainer as the simulation's world sees it, what is in store for it, and the membership agreed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/rng.h"
#include "tests/recovery/files.h"
#include "tests/recovery/seat.h"
#include "tests/recovery/world.h"
#include "worker/engine/shard.h"

namespace muster::sim {

inline constexpr std::size_t kNowhere = kMessagePlaces.size();
constexpr std::size_t place_number(std::string_view place) {
  return static_cast<std::size_t>(std::ranges::find(kMessagePlaces, place) -
                                  kMessagePlaces.begin());
}

inline std::string place_of(std::size_t kind) {
  return kind < kNowhere ? std::string(kMessagePlaces[kind]) : "the start";
}

inline bool is_of_sender(MessageFault fault) {
  return fault != MessageFault::kReceiverDies && fault != MessageFault::kReceiverFreezes;
}

enum class Life { kRuns, kDead, kEnded };
enum class TearAt { kNever, kBefore, kMiddle, kAfter };

/// In which those who leave are relieved of the shards that they keep.
inline constexpr seconds kRelief{5};
/// By then all are connected in a membership, unless somebody is lost, after which another comes.
inline constexpr milliseconds kConnecting{2'000};
/// Whoever may leave has at most so many states after that: all may have stood still before them.
inline constexpr int kLastStates = 5;

/// How many workers a world begins with, and has at most.
struct WorldSize {
  int workers_least = 1, workers_most = 5, slots_most = 7;
  std::size_t trainers_most = 40;  ///< one after the other: beyond that nobody is replaced

  int draw_workers(Rng& rng) const {
    const int more = workers_most - workers_least;
    return workers_least + static_cast<int>(rng.below(static_cast<std::uint64_t>(more) + 1));
  }
  int draw_slot(Rng& rng) const {
    return static_cast<int>(rng.below(static_cast<std::uint64_t>(slots_most)));
  }
};
constexpr WorldSize size_of_world(std::uint64_t seed) {
  return is_about_many(seed) ? WorldSize{7, 8, 8, 120} : WorldSize{};
}

struct Trainer {
  int slot = 0;
  std::int64_t incarnation = 0;
  int actor = -1;
  std::unique_ptr<Seat> seat;
  Life life = Life::kRuns;
  bool is_ready = false, is_leaving = false;
  MonoTime asked_at{};         ///< to leave
  bool is_spared = false;      ///< others have told since then that it takes nothing along
  bool is_known_dead = false;  ///< to the sentinels
  bool is_cut_off = false;     ///< they have gone on without it
  bool was_member = false;
  bool is_put_off = false;      ///< it was to enter, and is to enter later now
  std::int64_t came_epoch = 0;  ///< of the first membership that it belongs to
  MonoTime ready_at{}, frozen_until{}, told{};
  std::int64_t prepared_epoch = 0, prepared_step = -1;  ///< what it has said last, and where
  std::int64_t connected_epoch = 0;  ///< of the newest members that it was to greet
  std::int64_t ahead_epoch = 0;      ///< that it entered before all who train were to greet it
  std::int64_t told_epoch = 0;
  std::size_t place = kNowhere;  ///< that it came to last
  std::int64_t last_step = -1;   ///< whose state it has had
  engine::Ranges held;           ///< what of the optimiser's state, then
  std::int64_t entered_epoch = 0, entered_step = 0, steps_in_epoch = 0;
  std::int64_t broken_epoch = 0;  ///< whose members it has given up last
  int last_states = 0;            ///< that it had when it could have been gone
  std::int64_t fell_from = -1;    ///< the step that it was at before it was given an older state
  int on_files = 0;
  TearAt tears = TearAt::kNever;
  FilesBefore files;

  bool lives() const { return life == Life::kRuns; }
  bool counts() const { return lives() && !is_cut_off; }
  bool is_relieved(MonoTime now) const { return is_spared || now - asked_at >= kRelief; }
  bool has_made_step_in(std::int64_t epoch) const {
    return entered_epoch == epoch && last_step > entered_step;
  }
};

inline bool is_saving(const Trainer& self) {
  if (self.place == kNowhere) return false;
  const std::string_view place = kMessagePlaces[self.place];
  return place == engine::point::kCheckpoint || place == engine::point::kFinish;
}

/// What it takes a trainer to compute a logical rank, to make its update, and to add up a bucket.
struct Taken {
  nanoseconds rank{}, update{}, sums{};
};
/// Of its step after `last_step`, where that changes from time to time. Of a stream of its own: how
/// fast somebody is draws nothing that others would have drawn.
inline Taken taken_at(std::uint64_t seed, int number, std::int64_t last_step) {
  Rng rng(seed << 16 ^ static_cast<std::uint64_t>(number) << 8 ^
          static_cast<std::uint64_t>(std::max<std::int64_t>(0, last_step) / 8));
  const std::uint64_t slower = rng.below(3) == 0 ? 8 : 1;
  return {microseconds((500 + rng.below(2'000)) * slower),
          microseconds((2'000 + rng.below(8'000)) * slower),
          microseconds((100 + rng.below(400)) * slower)};
}

/// A fault that waits for its message: the one behind `left` others from the same place.
struct Trap {
  std::size_t place = 0;
  MessageFault fault = MessageFault::kLate;
  std::uint64_t left = 0;
};

/// What the sentinels have agreed on.
struct Round {
  std::int64_t epoch = 0, urgent_epoch = 0;
  bool stop = false;
  std::vector<int> members;  ///< by rank
  MonoTime since{};
};

}  // namespace muster::sim
