// A trainer as the simulation's world sees it, what is in store for it, and the membership agreed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "common/clock.h"
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

enum class Life { kRuns, kDead, kEnded };
enum class TearAt { kNever, kBefore, kMiddle, kAfter };

struct Trainer {
  int slot = 0;
  std::int64_t incarnation = 0;
  int actor = -1;
  std::unique_ptr<Seat> seat;
  Life life = Life::kRuns;
  bool is_ready = false, is_leaving = false;
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
  bool has_made_step_in(std::int64_t epoch) const {
    return entered_epoch == epoch && last_step > entered_step;
  }
};

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
