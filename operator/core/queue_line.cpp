#include "operator/core/queue_line.h"

#include <algorithm>
#include <tuple>

namespace muster::core {
namespace {

std::size_t place_of(int index) { return static_cast<std::size_t>(index); }

bool is_older(const LineTurn& a, const LineTurn& b) {
  return std::tie(a.created, a.job) < std::tie(b.created, b.job);
}

bool is_sooner(const LineTurn& a, const LineTurn& b) {
  return a.priority != b.priority ? a.priority > b.priority : is_older(a, b);
}

bool borrows(const LineTurn& turn, const QuotaLedger& ledger) {
  if (turn.adds() == 0) return ledger.borrows(turn.queue, turn.per_worker);
  return ledger.workers_within_nominal(turn.queue, turn.per_worker) < turn.adds();
}

}  // namespace

LineRank line_rank(const LineTurn& turn, const QuotaLedger& ledger) {
  return {borrows(turn, ledger), ledger.share_with(turn.queue, turn.per_worker, turn.adds())};
}

bool comes_before(const LineTurn& a, const LineRank& of_a, const LineTurn& b,
                  const LineRank& of_b) {
  if (of_a.borrows != of_b.borrows) return of_b.borrows;
  if (a.priority != b.priority) return a.priority > b.priority;
  if (of_a.share != of_b.share) return of_a.share < of_b.share;
  return is_older(a, b);
}

QueueLine::QueueLine(std::vector<LineTurn> turns, const QuotaLedger& ledger, CanStart can_start)
    : ledger_(ledger),
      can_start_(std::move(can_start)),
      by_queue_(place_of(ledger.queues())),
      done_(place_of(ledger.queues()), 0),
      is_judged_(place_of(ledger.queues()), false),
      ranks_(place_of(ledger.queues())) {
  int cohorts = 0;
  for (int queue = 0; queue < ledger.queues(); ++queue) {
    cohorts = std::max(cohorts, ledger.cohort_of(queue) + 1);
  }
  is_old_.assign(place_of(cohorts), true);
  first_.assign(place_of(cohorts), -1);
  for (LineTurn& turn : turns) by_queue_[place_of(turn.queue)].push_back(std::move(turn));
  for (auto& line : by_queue_) std::sort(line.begin(), line.end(), is_sooner);
}

const LineTurn& QueueLine::head(int queue) const {
  return by_queue_[place_of(queue)][done_[place_of(queue)]];
}

bool QueueLine::waits(int queue) const {
  return done_[place_of(queue)] < by_queue_[place_of(queue)].size();
}

bool QueueLine::is_before(int a, int b) const {
  return comes_before(head(a), ranks_[place_of(a)], head(b), ranks_[place_of(b)]);
}

void QueueLine::advance(int queue) {
  ++done_[place_of(queue)];
  is_judged_[place_of(queue)] = false;
}

void QueueLine::pass_over(int queue) {
  while (waits(queue) && borrows(head(queue), ledger_) && !is_judged_[place_of(queue)]) {
    const LineTurn& turn = head(queue);
    if (can_start_(turn)) {
      is_judged_[place_of(queue)] = true;
    } else {
      passed_over_.push_back(&turn);
      advance(queue);
    }
  }
}

void QueueLine::rank(int queue) {
  pass_over(queue);
  if (waits(queue)) ranks_[place_of(queue)] = line_rank(head(queue), ledger_);
}

void QueueLine::find_first(int cohort) {
  int& first = first_[place_of(cohort)];
  first = -1;
  for (const int queue : ledger_.members_of(cohort)) {
    if (waits(queue) && (first < 0 || is_before(queue, first))) first = queue;
  }
}

const LineTurn* QueueLine::next() {
  int best = -1;
  for (std::size_t cohort = 0; cohort < first_.size(); ++cohort) {
    if (is_old_[cohort]) {
      is_old_[cohort] = false;
      for (const int queue : ledger_.members_of(static_cast<int>(cohort))) rank(queue);
      find_first(static_cast<int>(cohort));
    } else if (moved_ >= 0 && ledger_.cohort_of(moved_) == static_cast<int>(cohort)) {
      rank(moved_);
      find_first(static_cast<int>(cohort));
    }
    const int queue = first_[cohort];
    if (queue >= 0 && (best < 0 || is_sooner(head(queue), head(best)))) best = queue;
  }
  moved_ = -1;
  if (!passed_over_.empty()) {
    const LineTurn* turn = passed_over_.back();
    passed_over_.pop_back();
    return turn;
  }
  if (best < 0) return nullptr;
  const LineTurn* turn = &head(best);
  advance(best);
  moved_ = best;
  return turn;
}

bool QueueLine::others_wait(int queue) const {
  const auto& members = ledger_.members_of(ledger_.cohort_of(queue));
  return std::any_of(members.begin(), members.end(),
                     [&](int other) { return other != queue && waits(other); });
}

}  // namespace muster::core
