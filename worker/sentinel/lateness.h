// How late another worker is heard at times, by which its silence is judged: one whose processor or
// network is short speaks at longer intervals than it should, and is not gone for that. As in
// detectors of failures that follow what they observe (Chen, Toueg and Aguilera 2002), but by the
// longest interval instead of a distribution: what throttling makes has no usual shape. Pure.
#pragma once

#include <algorithm>
#include <utility>

#include "common/clock.h"

namespace muster::sentinel {

class Lateness {
 public:
  /// An interval counts for so long, and twice that at most.
  static constexpr milliseconds kKept{30'000};

  /// It was heard at `now`, `interval` after the last time.
  void note(MonoTime now, milliseconds interval) {
    if (now - since_ >= kKept) {
      older_ = std::exchange(newer_, milliseconds(0));
      since_ = now;
    }
    newer_ = std::max(newer_, interval);
  }
  /// The longest interval that still counts; zero: none.
  milliseconds longest() const { return std::max(newer_, older_); }

 private:
  MonoTime since_{};  ///< of newer_
  milliseconds newer_{}, older_{};
};

}  // namespace muster::sentinel
