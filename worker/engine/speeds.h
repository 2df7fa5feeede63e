// Who computes and adds up how much where not all are equally fast: in every step all wait for the
// slowest, and whoever does it, the sum has the same bits. Pure: no IO, threads or clock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine/assignment.h"
#include "worker/engine/buckets.h"
#include "worker/engine/hosts.h"

namespace muster::engine {

/// What a process tells of itself are medians of so many steps.
inline constexpr int kSpeedSteps = 16;

/// What computing takes a process, in the time of one logical rank: the ranks themselves, reading
/// the parameters, and writing each node's gradient, which takes as long for one rank as for many.
class Work {
 public:
  /// `products`: multiplications of a logical rank's forward pass for each parameter of the model.
  explicit Work(double products);
  double of(const std::vector<RankRange>& nodes) const;
  /// Logical ranks of one node that can be computed in the time of so many.
  double ranks_within(double work) const { return work - fixed_; }

 private:
  double fixed_;
};

/// How long one process took over its usual step of late.
struct Speed {
  std::uint64_t work_ns = 0;      ///< to read and compute what takes as long as one logical rank
  std::uint64_t exchange_ns = 0;  ///< for the sums, and for others who came late to them
  std::uint64_t update_ns = 0;    ///< for the update
};

/// Of one step.
struct StepSeconds {
  double compute = 0, exchange = 0, update = 0;
};

/// The newest steps of one process. Threads: one.
class SpeedBook {
 public:
  /// A step with so much work (Work::of); without any it says nothing.
  void add(const StepSeconds& seconds, double work);
  /// Medians; zeros before there are so many steps.
  Speed usual() const;

 private:
  std::deque<Speed> steps_;
};

/// Who computes what, and who adds up how much of the sum.
struct Division {
  Assignment assignment;
  std::vector<std::uint8_t> weights;  ///< by rank, of Ownership: 1 to kWeightMost
};

/// What a division may change.
enum class Movable : std::uint8_t {
  kRanks,
  kRanksAndSums,  ///< where nobody has to keep what belongs to its part of the sum
};

/// Steps from one comparison to the next: `least`, or up to 16 times as many, where all have told
/// their speed and a step takes less than an eighth of a second. `speeds`: by process, at least
/// one; `hosts`: as the exchange knows them.
int steps_to_look(const Division& present, Work work, std::span<const Speed> speeds, int least,
                  const Hosts& hosts = {});

/// A division with which a step should be a tenth shorter, and 2 ms, than with `present`: each
/// process as many logical ranks as it does in the time of the others, 1 at least, beside what it
/// does whatever its share is: the update, and its own gradient's way to the others. Who does most
/// adds up less of the sum, as long as that helps. Of such divisions the one with which all of that
/// and the exchange take least together, where more nodes of the sum, and who adds up more of it,
/// make the exchange longer: what goes between hosts counts there. Nothing where there is none,
/// where a process computes nothing or has told no speed, or with more than 1,024 logical ranks.
std::optional<Division> faster_division(const Division& present, Work work,
                                        std::span<const Speed> speeds, Movable movable,
                                        const Hosts& hosts = {});

}  // namespace muster::engine
