// Whose turn it is. Within a queue: the higher priority, then the older job. Of the queues of a
// cohort: who stays within its nominal quota before who would borrow, because that quota is the
// queue's whatever priority others give their jobs; then the higher priority; then the smaller
// share of what is lent; then the older job. Cohorts share nothing but nodes: the higher priority,
// then the older job. A gang that would borrow and can never start is passed over at once: those
// behind it have turns of their own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "operator/core/queue_quota.h"

namespace muster::core {

/// A gang that waits in a queue.
struct LineTurn {
  std::size_t gang = 0;  ///< whatever number the caller knows it by
  int queue = 0;         ///< the ledger's
  int priority = 0;
  WallTime created;
  api::ObjectKey job;
  ResourceAmounts per_worker;
  std::int64_t min = 1;  ///< fewest workers that may start
  /// Of its old pods, which its queue's quota counts still: it starts again when they are gone.
  std::int64_t held = 0;

  /// What it will hold more of than now.
  std::int64_t adds() const { return min > held ? min - held : 0; }
};

/// Where a turn stands among those of other queues of its cohort, by what the ledger says now.
struct LineRank {
  bool borrows = false;
  double share = 0;
};
LineRank line_rank(const LineTurn& turn, const QuotaLedger& ledger);
/// Of two queues of a cohort.
bool comes_before(const LineTurn& a, const LineRank& of_a, const LineTurn& b, const LineRank& of_b);

class QueueLine {
 public:
  /// Whether a gang could start were everything empty; asked once for each at most.
  using CanStart = std::function<bool(const LineTurn&)>;

  /// `turns` in any order; the ledger outlives it.
  QueueLine(std::vector<LineTurn> turns, const QuotaLedger& ledger, CanStart can_start);

  /// The next gang, which then has had its turn; nullptr when all have. What the ledger says now
  /// counts.
  const LineTurn* next();
  /// The ledger says something else of this queue's cohort now.
  void ledger_changed(int queue) {
    is_old_[static_cast<std::size_t>(ledger_.cohort_of(queue))] = true;
  }
  /// Whether another queue of its cohort has gangs whose turn is still to come.
  bool others_wait(int queue) const;

 private:
  const LineTurn& head(int queue) const;
  bool waits(int queue) const;
  bool is_before(int a, int b) const;
  void advance(int queue);
  void rank(int queue);
  void find_first(int cohort);
  void pass_over(int queue);

  const QuotaLedger& ledger_;
  CanStart can_start_;
  std::vector<const LineTurn*> passed_over_;  ///< whose turn is still to come
  std::vector<std::vector<LineTurn>> by_queue_;
  std::vector<std::size_t> done_;  ///< by queue
  std::vector<bool> is_judged_;    ///< by queue: can_start_ has said yes of its head
  std::vector<LineRank> ranks_;    ///< of each queue's head
  std::vector<bool> is_old_;       ///< by cohort: all of its ranks
  int moved_ = -1;                 ///< the queue whose rank alone is old; -1: none
  std::vector<int> first_;         ///< queue whose head is next, by cohort; -1: none waits
};

}  // namespace muster::core
