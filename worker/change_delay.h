// How much longer a step took than a usual one, because the membership changed in it. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/clock.h"

namespace muster::worker {

/// Threads: one.
class ChangeDelay {
 public:
  struct Step {
    MonoTime end{};  ///< when it and what stands behind it was done
    std::int64_t step = 0;
    std::int64_t epoch = 0;      ///< membership that it was made in
    double between_seconds = 0;  ///< of record, evaluation and checkpoint behind it
  };

  /// To be told of every step of this process, in order. Of the first one in a new membership:
  /// seconds from the end of the last step to its own, less the median of the newest steps without
  /// a change, at least 0. Nothing of other steps, of one that was made before, and before kLeast
  /// undisturbed ones.
  std::optional<double> add(const Step& step);

  static constexpr std::size_t kLeast = 3;

 private:
  static constexpr std::size_t kKept = 31;

  double median() const;

  std::optional<Step> last_;
  std::array<double, kKept> usual_{};  ///< seconds of the newest undisturbed steps, in any order
  std::size_t count_ = 0;              ///< of all that were kept so far
};

}  // namespace muster::worker
