// What the sentinels of a job agree on: one view after the other, each decided once.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::sentinel {

/// One life of one pod. A slot's attempts never repeat.
struct WorkerId {
  int slot = 0;
  int attempt = 0;
  auto operator<=>(const WorkerId&) const = default;
};

/// One trainer process, where the others reach it.
struct TrainerPlace {
  int local_rank = 0;
  std::int64_t incarnation = 0;
  int port = 0;
  auto operator<=>(const TrainerPlace&) const = default;
};

/// What is lost together, as a number: equal ones are one node, whatever else they mean, and those
/// with the same upper half are in one rack.
using Domain = std::uint64_t;
inline constexpr Domain kUnknownDomain = 0;
/// Of a node's and a rack's name, the same everywhere; without a node kUnknownDomain, without a
/// rack one that the node has for itself.
Domain domain_of(std::string_view node, std::string_view rack = {});

/// One worker: its sentinel, and those of its trainers that may train (all, some or none).
struct Seat {
  WorkerId id;
  std::string host;
  int sentinel_port = 0;
  int processes = 1;  ///< trainers it has when all is well
  std::vector<TrainerPlace> trainers{};
  Domain domain = kUnknownDomain;  ///< where it runs
  bool operator==(const Seat&) const = default;
};

/// Why a worker is not in the next view any more.
enum class Fate : std::uint8_t {
  kLeft = 1,    ///< asked to leave
  kDied = 2,    ///< its machine's kernel says that its sentinel is gone, or it said so itself
  kSilent = 3,  ///< not heard, or cut off from some of the others
};

struct Departure {
  WorkerId id;
  Fate fate = Fate::kDied;
  bool operator==(const Departure&) const = default;
};

/// Of what a worker's trainers are about: in the upper half spec and data as far as they are known
/// before pictures are decoded, in the lower one all of the data, 0 while that is not known. As one
/// number, so that builds that know of one half alone read it, too. Never 0, which is none.
std::uint64_t make_digest(std::uint64_t outline, std::optional<std::uint64_t> contents);
/// Without its lower half.
constexpr std::uint64_t outline_of(std::uint64_t digest) { return digest >> 32 << 32; }
constexpr bool has_contents(std::uint64_t digest) { return digest != outline_of(digest); }
/// Whether two are about the same, as far as both know it.
bool is_same_training(std::uint64_t a, std::uint64_t b);

/// Who counts and who trains. The sentinels of `seats` decide together what comes after it.
struct View {
  std::int64_t epoch = 0;
  std::int64_t base = 0;  ///< epoch of the view that this one follows; 0 = given at the start
  /// Epoch of the newest view up to this one in which a training process was lost: who comes from
  /// an older one leaves the step under way, all others enter at a step boundary.
  std::int64_t urgent_epoch = 0;
  std::uint64_t digest = 0;  ///< of all trainers in it; 0 = none yet
  bool stop = false;
  std::vector<Seat> seats;          ///< by slot, at most one a slot
  std::vector<WorkerId> previous;   ///< of the view before, by slot: who is new is told last
  std::vector<Departure> departed;  ///< of the view before, by slot
  bool operator==(const View&) const = default;
};

/// nullptr when it has no seat in `view`.
const Seat* find_seat(const View& view, WorkerId id);
const Seat* find_slot(const View& view, int slot);
/// Whether any seat's is known.
bool has_domains(const View& view);
/// Whether any trainer is in it.
bool has_trainers(const View& view);
std::vector<int> slots_of(const View& view);

}  // namespace muster::sentinel
