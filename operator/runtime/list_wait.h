// How long lists are awaited in silence that not every job needs: after that, those that do hear
// why they wait.
#pragma once

#include <optional>
#include <utility>

#include "common/clock.h"
#include "operator/core/words.h"

namespace muster::runtime {

/// Threads: one.
class ListWait {
 public:
  explicit ListWait(MonoTime began) : until_(began + core::words::kUnlistedMost) {}

  bool is_over(MonoTime now) const { return now >= until_; }
  /// Once: whether it is over.
  bool turned_over(MonoTime now) { return is_over(now) && !std::exchange(was_over_, true); }
  /// When turned_over() is to be asked; absent: it was.
  std::optional<MonoTime> due() const { return was_over_ ? std::nullopt : std::optional(until_); }

 private:
  MonoTime until_;
  bool was_over_ = false;
};

}  // namespace muster::runtime
