// Once a resync each job is looked at, whether or not anybody has said anything of it: time alone
// may change what is to be done, and not all that a job owns is watched. To look at ten thousand
// takes seconds, and news of all others would wait for that; so they are dealt out.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "operator/runtime/loop.h"

namespace muster::runtime {
namespace {

/// So many are looked at one after the other, which takes some tens of milliseconds, and as many a
/// second later; more where these would not do for all within the period.
constexpr std::int64_t kResyncAtOnce = 100;

}  // namespace

/// In the order of their names. At the first time nobody has looked at any, and none waits.
void OperatorLoop::resync() {
  const bool is_first = !std::exchange(was_synced_, true);
  next_resync_ = now_ + options_.resync;
  const auto jobs = static_cast<std::int64_t>(jobs_.all().size());
  const std::int64_t period = std::max<std::int64_t>(1, options_.resync.count());
  const std::int64_t at_once = std::max(kResyncAtOnce, jobs / period + 1);
  std::int64_t number = 0;
  for (const auto& [key, record] : jobs_.all()) {
    const seconds later(is_first ? 0 : number++ / at_once);
    if (later.count() == 0) {
      queue_.add(key);
    } else {
      queue_.add_at(key, now_ + later);
    }
  }
}

}  // namespace muster::runtime
