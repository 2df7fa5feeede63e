// Who computes how much where not all are equally fast: in every step all wait for the slowest, and
// whoever computes a logical rank, the sum has the same bits. Pure: no IO, threads or clock.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "worker/engine/assignment.h"

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
};

/// The newest steps of one process. Threads: one.
class SpeedBook {
 public:
  /// A step with so much work (Work::of); without any it says nothing.
  void add(double compute_seconds, double exchange_seconds, double work);
  /// Medians; zeros before there are so many steps.
  Speed usual() const;

 private:
  std::deque<Speed> steps_;
};

/// Steps from one comparison to the next: `least`, or up to 16 times as many, where all have told
/// their speed and a step takes less than an eighth of a second. `speeds`: by process, at least
/// one.
int steps_to_look(const Assignment& present, Work work, std::span<const Speed> speeds, int least);

/// A division with which a step should be a tenth shorter, and 2 ms, than with `present`: each
/// process as many logical ranks as it does in the time of the others, 1 at least; of such
/// divisions the one with which computing and exchange take least together, where more nodes of the
/// sum make the exchange longer. Nothing where there is none, where a process computes nothing or
/// has told no speed, or with more than 1,024 logical ranks.
std::optional<Assignment> faster_division(const Assignment& present, Work work,
                                          std::span<const Speed> speeds);

}  // namespace muster::engine
