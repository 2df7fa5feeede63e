// Who may start with what is kept for the first of a line: whoever is over before that one could
// start. Ends are foretold by spec.activeDeadlineSeconds alone, since nobody outlives that; what
// workers say of their progress is a guess. The rule is that of EASY backfilling (Lifka, "The
// ANL/IBM SP scheduling system", 1995), with a deadline in place of a user's estimate.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "operator/core/queue_quota.h"
#include "operator/core/rooms.h"

namespace muster::core {

/// Between the end of one job and the start of the next: a grace period of 30 s, and the pass
/// itself.
inline constexpr seconds kHandOver{60};

/// The ends that are known of those that hold something, one after the other.
class KnownEnds {
 public:
  /// `cluster` outlives it; the numbers of queues and nodes are those of `ledger` and `rooms`.
  KnownEnds(const ClusterSnapshot& cluster, const QuotaLedger& ledger, const Rooms& rooms);

  /// How many of a gang's pods each node may take for the sake of others, given what is free then.
  using Caps = std::function<std::optional<NodeCaps>(const Rooms&)>;

  /// When `gang`, the first of its queue's line, has quota and room for its least at the latest:
  /// all others with a deadline end when that has passed, those without never, and nobody else
  /// starts. What still leaves of the gang itself, where it has a deadline, is gone before.
  /// Absent: it is not known, also where it is no end that the gang waits for.
  std::optional<seconds> starts_within(const QuotaLedger& ledger, const Rooms& rooms, int queue,
                                       const WaitingGang& gang, const Caps& caps) const;

 private:
  struct End {
    const QueueHolder* holder = nullptr;
    int queue = -1;  ///< -1: it is in none
    ResourceAmounts per_worker;
    NumberedAmounts numbered;
    std::vector<int> nodes;  ///< of its workers
  };
  enum class Direction { kForth, kBack };
  static void move(const End& end, Direction direction, QuotaLedger& ledger, Rooms& rooms);

  std::vector<End> ends_;  ///< the next first
};

}  // namespace muster::core
