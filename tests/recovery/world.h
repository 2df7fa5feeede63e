// Trainers of one job in virtual time: the engine as it is, over connections, sentinels, an
// operator and a disk that a seed decides about. Every state and every sample is held against an
// undisturbed run; what must hold of memberships, files and the end, too.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/engine/reference_state.h"

namespace muster::sim {

/// What a message is for, by the last place that its sender has come to.
inline constexpr std::array<std::string_view, 19> kMessagePlaces{
    engine::point::kConnect,  engine::point::kEnter,    engine::point::kTransfer,
    engine::point::kIdle,     engine::point::kForward,  engine::point::kBucket,
    engine::point::kBackward, engine::point::kScatter,  engine::point::kReduced,
    engine::point::kGather,   engine::point::kUpdate,   engine::point::kUpdated,
    engine::point::kCopy,     engine::point::kLog,      engine::point::kLogged,
    engine::point::kCompare,  engine::point::kEvaluate, engine::point::kCheckpoint,
    engine::point::kFinish};

enum class MessageFault {
  kLate,
  kCut,
  kFlipped,
  kSenderDies,
  kSenderLosesPower,
  kReceiverDies,
  kReceiverFreezes,
  kTwice
};
/// Those before kTwice are drawn from a world's own stream: what a seed means stays the same. A
/// message that comes twice is of some seeds, and drawn from another.
inline constexpr auto kDrawnFaults = static_cast<std::uint64_t>(MessageFault::kTwice);
inline constexpr std::array kMessageFaultNames{"late",
                                               "cut",
                                               "flipped",
                                               "sender dies",
                                               "sender loses power",
                                               "receiver dies",
                                               "receiver freezes",
                                               "twice"};
using FaultCoverage =
    std::array<std::array<std::int64_t, kMessageFaultNames.size()>, kMessagePlaces.size()>;

/// A training that seeds disturb. `expected` outlives all worlds.
struct Lesson {
  engine::TrainingConfig config;
  const std::map<std::int64_t, test::ReferenceState>* expected = nullptr;
  std::shared_ptr<const test::StageReference> stages;  ///< where the model is split
};
/// One seed of ten is about processes of different speed: their updates take time, too, so that
/// with replicated state not all add up as much of the sum, and not the same for long.
constexpr bool is_about_speeds(std::uint64_t seed) { return seed % 10 == 4; }
/// And one is about processes that come and go all the time, and what meets those who go over into
/// the next membership: with replicated state they take it for granted that the others do, too.
constexpr bool is_about_flips(std::uint64_t seed) { return seed % 10 == 1; }
/// And one of forty, of a whole model and none of them kept, about as many workers as the product's
/// promise is tried with at most.
constexpr bool is_about_many(std::uint64_t seed) { return seed % 40 == 17; }
/// Of half of the others, of each kind of model, none of them kept, some messages come twice.
constexpr bool sends_twice(std::uint64_t seed) {
  const std::uint64_t kind = seed % 8;
  const bool is_of_those = kind == 2 || kind == 4 || kind == 5 || kind == 7;
  return is_of_those && !is_about_speeds(seed) && !is_about_flips(seed);
}
struct Lessons {
  std::vector<Lesson> whole, many, replicated, flips, split, sharded_split;
  /// Of every eight seeds two are about a model that is split, and one about one with shards, too.
  const std::vector<Lesson>& of(std::uint64_t seed) const {
    if (is_about_speeds(seed)) return replicated;
    if (is_about_flips(seed)) return flips;
    if (is_about_many(seed)) return many;
    if (seed % 8 == 5) return sharded_split;
    return seed % 4 == 3 ? split : whole;
  }
};
/// All there are; makes their references. Threads: before others start.
Lessons make_lessons();

struct RecoveryResult {
  std::string wrong;  ///< empty = every rule held
  FaultCoverage coverage{};
  std::array<std::int64_t, kMessagePlaces.size()> messages{};
  std::map<std::string, std::int64_t> events;  ///< faults and outcomes by name
};

/// `directory`: is made, and removed at the end.
RecoveryResult run_recovery_seed(std::uint64_t seed, const Lessons& lessons,
                                 const std::string& directory, bool is_loud = false);

}  // namespace muster::sim
