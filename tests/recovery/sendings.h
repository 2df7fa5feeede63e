// Where the simulation's trainers send messages that may meet a fault.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/rng.h"
#include "tests/recovery/trainer.h"
#include "worker/engine/training.h"

namespace muster::sim {

/// A place that messages are sent from, and how many of them at most go by before one meets a
/// fault. Those that are seldom stand here more than once.
struct Sending {
  std::string_view place;
  std::uint64_t passed_most = 1;
};
inline constexpr std::array kSendings{
    Sending{engine::point::kConnect, 12}, Sending{engine::point::kEnter, 8},
    Sending{engine::point::kTransfer, 8}, Sending{engine::point::kForward, 100},
    Sending{engine::point::kBucket, 60},  Sending{engine::point::kBucket, 60},
    Sending{engine::point::kCopy, 2},     Sending{engine::point::kReduced, 100},
    Sending{engine::point::kUpdate, 40},  Sending{engine::point::kUpdate, 40},
    Sending{engine::point::kLog, 100},    Sending{engine::point::kIdle, 1},
    Sending{engine::point::kIdle, 1},     Sending{engine::point::kCopy, 2},
    Sending{engine::point::kIdle, 1},     Sending{engine::point::kUpdated, 1},
    Sending{engine::point::kUpdated, 1},  Sending{engine::point::kUpdated, 1},
    Sending{engine::point::kUpdated, 1},  Sending{engine::point::kCompare, 8},
    Sending{engine::point::kEvaluate, 8}, Sending{engine::point::kCheckpoint, 4},
    Sending{engine::point::kFinish, 8}};

/// The last of a membership, and the first of the next one.
inline constexpr std::array kFlipSendings{
    Sending{engine::point::kReduced, 6},  Sending{engine::point::kReduced, 6},
    Sending{engine::point::kReduced, 6},  Sending{engine::point::kReduced, 6},
    Sending{engine::point::kGather, 6},   Sending{engine::point::kConnect, 20},
    Sending{engine::point::kConnect, 20}, Sending{engine::point::kEnter, 4},
    Sending{engine::point::kForward, 20}, Sending{engine::point::kBucket, 20}};

/// The same of a model that is split: nothing goes out before the backward pass is over, and who
/// has the gradients tells its group before the update.
inline constexpr std::array kSplitSendings{
    Sending{engine::point::kConnect, 12},  Sending{engine::point::kEnter, 12},
    Sending{engine::point::kTransfer, 8},  Sending{engine::point::kForward, 100},
    Sending{engine::point::kForward, 100}, Sending{engine::point::kBackward, 60},
    Sending{engine::point::kBackward, 60}, Sending{engine::point::kReduced, 60},
    Sending{engine::point::kGather, 4},    Sending{engine::point::kGather, 4},
    Sending{engine::point::kGather, 4},    Sending{engine::point::kGather, 4},
    Sending{engine::point::kLog, 100},     Sending{engine::point::kLog, 100},
    Sending{engine::point::kUpdated, 60},  Sending{engine::point::kCompare, 8},
    Sending{engine::point::kEvaluate, 8},  Sending{engine::point::kCheckpoint, 12},
    Sending{engine::point::kFinish, 12},   Sending{engine::point::kGather, 4},
    Sending{engine::point::kIdle, 1},      Sending{engine::point::kIdle, 1},
    Sending{engine::point::kBucket, 8}};

/// And with shards: all tell each other before the update, and give the parameters after it.
inline constexpr std::array kShardedSplitSendings{
    Sending{engine::point::kConnect, 12},    Sending{engine::point::kEnter, 12},
    Sending{engine::point::kTransfer, 8},    Sending{engine::point::kForward, 100},
    Sending{engine::point::kBackward, 60},   Sending{engine::point::kReduced, 60},
    Sending{engine::point::kLog, 100},       Sending{engine::point::kLog, 100},
    Sending{engine::point::kUpdate, 40},     Sending{engine::point::kUpdate, 40},
    Sending{engine::point::kUpdated, 60},    Sending{engine::point::kCopy, 2},
    Sending{engine::point::kCopy, 2},        Sending{engine::point::kCompare, 8},
    Sending{engine::point::kCheckpoint, 12}, Sending{engine::point::kFinish, 12},
    Sending{engine::point::kIdle, 1},        Sending{engine::point::kBucket, 60},
    Sending{engine::point::kBackward, 60}};

/// Messages that come twice: one of `sendings` that seeds have in turn, some more, and one of the
/// sums between hosts, where several trainers are on one.
inline std::vector<Trap> traps_of_twice(std::uint64_t seed, std::span<const Sending> sendings) {
  Rng rng(~seed);
  std::vector<Trap> traps{
      {place_number(engine::point::kScatter), MessageFault::kTwice, rng.below(30)}};
  std::uint64_t next = seed / 8 % sendings.size();
  for (std::uint64_t left = 1 + rng.below(5); left > 0; --left) {
    const Sending& from = sendings[next];
    traps.push_back({place_number(from.place), MessageFault::kTwice, rng.below(from.passed_most)});
    next = rng.below(sendings.size());
  }
  return traps;
}

/// Of a world of many workers one more each of what seeds have seldom: the state that somebody is
/// given, and what goes out between an update and the next step.
inline std::vector<Trap> traps_of_many(std::uint64_t seed) {
  const std::uint64_t turn = seed / 40;
  const auto fault = static_cast<MessageFault>(turn % kDrawnFaults);
  const std::uint64_t left = turn / kDrawnFaults % 8;
  return {{place_number(engine::point::kTransfer), fault, left},
          {place_number(engine::point::kUpdate), fault, left}};
}

}  // namespace muster::sim
