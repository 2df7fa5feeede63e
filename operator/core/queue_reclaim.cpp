#include "operator/core/queue_reclaim.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "operator/core/gang_place.h"
#include "operator/core/queue_words.h"

namespace muster::core {
namespace {

using Place = QuotaLedger::Place;

/// Sets of victims that are looked at beyond the first one found; with so many, the cheapest of
/// seven jobs and more is found whatever they cost.
constexpr int kSetsTried = 256;
/// Victims of the first set that are tried to be spared, one by one.
constexpr int kSparedTried = 256;

std::size_t at(int index) { return static_cast<std::size_t>(index); }

}  // namespace

bool Reclaim::Lender::is_beyond() const {
  return kept > static_cast<int>(holder->slots.size()) - holder->beyond;
}

std::int64_t Reclaim::Lender::lost() const {
  return static_cast<std::int64_t>(holder->slots.size()) * holder->processes *
         holder->unsaved.count();
}

std::vector<int> Reclaim::Lender::whole_numbers(int least, int most) const {
  const auto& slots = holder->slots;
  const auto together_with = [&](int place) { return slots[at(place)].slot / holder->together; };
  std::vector<int> numbers;
  for (int number = least; number <= most; ++number) {
    const bool is_end = number == least || number == most;
    if (is_end || together_with(number - 1) != together_with(number)) numbers.push_back(number);
  }
  return numbers;
}

/// Victims in the order in which they would be taken, those taken now, and the best set so far.
struct Reclaim::Search {
  const Claim& claim;
  std::vector<Lender*> among;
  std::vector<Lender*> taken{};
  std::int64_t lost = 0;
  std::optional<std::vector<Lender*>> best{};
  std::int64_t best_lost = 0;
  int tries = kSetsTried;

  bool is_better() const {
    return !best || std::pair(lost, taken.size()) < std::pair(best_lost, best->size());
  }
  void keep() {
    best = taken;
    best_lost = lost;
  }
};

Reclaim::Reclaim(const ClusterSnapshot& cluster, const QuotaLedger& ledger, const Rooms& rooms)
    : ledger_(ledger), rooms_(rooms) {
  for (const Queue& one : cluster.queues) queues_.emplace(one.name, &one);
  for (const Assumed& one : cluster.leaving) {
    const int node = rooms_.inventory().index_of(one.node);
    if (node >= 0) rooms_.inventory().give_back(node, amounts_of(one.requests));
  }
  for (const QueueHolder& holder : cluster.holders) {
    for (const HeldSlot& one : holder.leaving) {
      if (!one.is_stuck) rooms_.give_back(one.node, holder.per_worker);
    }
    const int queue = ledger_.index_of(holder.turn.queue);
    if (queue < 0) continue;
    Lender lender{&holder, queue, amounts_of(holder.per_worker),
                  {},      {},    static_cast<int>(holder.slots.size())};
    const auto of = queues_.find(holder.turn.queue);
    lender.spared = spared_for(holder, of == queues_.end() ? nullptr : of->second);
    lender.numbered = rooms_.inventory().numbered(lender.amounts);
    for (const HeldSlot& slot : holder.slots) {
      lender.nodes.push_back(rooms_.inventory().index_of(slot.node));
    }
    ledger_.charge(queue, lender.amounts, holder.workers_that_stay() - holder.workers());
    (lender.kept > 0 ? lenders_ : leaving_).push_back(std::move(lender));
  }
  std::sort(lenders_.begin(), lenders_.end(),
            [](const Lender& a, const Lender& b) { return a.holder->job < b.holder->job; });
}

// ---- The cluster as it will be

void Reclaim::set_workers(Lender& lender, int workers) {
  if (workers == lender.kept) return;
  ledger_.charge(lender.queue, lender.amounts, workers - lender.kept);
  while (lender.kept != workers) {
    const bool leaves = lender.kept > workers;
    const std::size_t place = at(leaves ? --lender.kept : lender.kept++);
    // Who comes back may have more than it had, and nobody knows where.
    const int node = place < lender.nodes.size() ? lender.nodes[place] : -1;
    if (node >= 0) rooms_.inventory().take(node, lender.numbered, leaves ? -1 : 1);
  }
}

std::vector<int> Reclaim::kept() const {
  std::vector<int> kept;
  for (const Lender& one : lenders_) kept.push_back(one.kept);
  return kept;
}

void Reclaim::restore(const std::vector<int>& kept) {
  for (std::size_t i = 0; i < lenders_.size(); ++i) set_workers(lenders_[i], kept[i]);
}

void Reclaim::reserve(int queue, const WaitingGang& head) {
  ledger_.reserve(queue, amounts_of(head.per_worker), head.min);
}

void Reclaim::start(int queue, const WaitingGang& gang, const GangPlacement& placement,
                    std::int64_t charged) {
  if (queue >= 0) ledger_.charge(queue, amounts_of(gang.per_worker), charged);
  for (const auto& node : placement.node_of_slot) rooms_.take(node, gang.per_worker);
}

/// With how many workers a job that is preempted has started again when the head's turn comes: as
/// the pass would have it, which gives what is a queue's own to whoever comes first there.
int Reclaim::back_before(const Head& head, const Lender& lender) const {
  const QueueHolder& holder = *lender.holder;
  const bool is_behind = lender.queue == head.queue ||
                         ledger_.cohort_of(lender.queue) != ledger_.cohort_of(head.queue);
  const Queue& queue = *queues_.at(holder.turn.queue);
  if (is_behind || !why_not_taken(queue, holder.job.namespace_name).empty()) return 0;
  const LineTurn turn{0,
                      lender.queue,
                      holder.turn.priority,
                      holder.turn.created,
                      holder.job,
                      lender.amounts,
                      holder.min};
  const WaitingGang& gang = head.gang;
  const LineTurn of_head{0,
                         head.queue,
                         gang.turn.priority,
                         gang.turn.created,
                         gang.job,
                         amounts_of(gang.per_worker),
                         gang.min};
  const LineRank rank = line_rank(turn, ledger_);
  if (rank.borrows || !comes_before(turn, rank, of_head, line_rank(of_head, ledger_))) return 0;
  std::int64_t within = ledger_.workers_within(lender.queue, lender.amounts, Place::kFirst);
  within = std::min(within, ledger_.workers_within_nominal(lender.queue, lender.amounts));
  within = std::min<std::int64_t>(within, holder.count);
  return within < holder.min ? 0 : static_cast<int>(within - within % holder.together);
}

/// While it lives, those that are preempted and come back before the head have what they come back
/// with; where they stood, as they may again.
struct Reclaim::ComingBack {
  ComingBack(Reclaim& all, const Head& head) : reclaim(all) {
    if (head.queue < 0) return;
    for (Lender& one : all.lenders_) {
      if (one.kept == 0) back.push_back(&one);
    }
    std::stable_sort(back.begin(), back.end(), [](const Lender* a, const Lender* b) {
      const QueueTurn &of_a = a->holder->turn, &of_b = b->holder->turn;
      if (of_a.priority != of_b.priority) return of_a.priority > of_b.priority;
      return of_a.created < of_b.created;
    });
    for (Lender* one : back) all.set_workers(*one, all.back_before(head, *one));
  }
  ComingBack(const ComingBack&) = delete;
  ComingBack& operator=(const ComingBack&) = delete;
  ~ComingBack() {
    for (Lender* one : back) reclaim.set_workers(*one, 0);
  }

  Reclaim& reclaim;
  std::vector<Lender*> back{};
};

bool Reclaim::starts(const Claim& claim) {
  const ComingBack back(*this, claim.head);
  return has_quota(claim) && has_place(claim);
}

bool Reclaim::has_quota(const Claim& claim) const {
  const WaitingGang& gang = claim.head.gang;
  const ResourceAmounts amounts = amounts_of(gang.per_worker);
  const int queue = claim.head.queue;
  if (queue >= 0 && ledger_.workers_within(queue, amounts, claim.head.place) < gang.min) {
    return false;
  }
  const bool must_own = claim.right == Right::kOwn;
  return !must_own || ledger_.workers_within_nominal(queue, amounts) >= gang.min;
}

bool Reclaim::has_place(const Claim& claim) {
  const WaitingGang& gang = claim.head.gang;
  WaitingGang least = gang;
  least.count = gang.min;
  const auto caps = claim.head.caps(rooms_);
  const GangVerdict verdict = place(least, rooms_, caps ? &*caps : nullptr);
  if (!verdict.placement) return false;
  rooms_.give_back(*verdict.placement, gang.per_worker);
  return true;
}

/// The same, as if so many were its least.
bool Reclaim::starts(const Claim& claim, int workers) {
  WaitingGang gang = claim.head.gang;
  gang.min = workers;
  const Head head{gang, claim.head.queue, claim.head.caps, claim.head.place};
  return starts(Claim{head, claim.right, claim.contested});
}

/// Whether any that is preempted, or leaves by now and not for good, starts again before the head.
bool Reclaim::is_any_back_before(const Head& head) const {
  if (head.queue < 0) return false;
  const auto is_back = [&](const Lender& one) {
    return one.kept == 0 && one.holder->comes_back && back_before(head, one) > 0;
  };
  return std::any_of(lenders_.begin(), lenders_.end(), is_back) ||
         std::any_of(leaving_.begin(), leaving_.end(), is_back);
}

Reclaim::Promise Reclaim::promise(const Head& head) {
  Promise made;
  made.is_vague = head.gang.unplaced || is_any_back_before(head);
  const ComingBack back(*this, head);
  WaitingGang least = head.gang;
  least.count = head.gang.min;
  const auto caps = head.caps(rooms_);
  const GangVerdict verdict = place(least, rooms_, caps ? &*caps : nullptr);
  if (verdict.placement) made.nodes = verdict.placement->node_of_slot;
  made.is_vague = made.is_vague || made.nodes.empty();
  if (head.queue >= 0) {
    ledger_.charge(head.queue, amounts_of(head.gang.per_worker), head.gang.min);
  }
  return made;
}

// ---- Who may be taken from

ResourceAmounts Reclaim::lacking(const Head& head) const {
  const ResourceAmounts all = amounts_of(head.gang.per_worker);
  ResourceAmounts lacking;
  for (const auto& one : all) {
    const bool has_room = ledger_.workers_within(head.queue, {one}, Place::kFirst) >= head.gang.min;
    if (!has_room) lacking.insert(one);
  }
  return lacking.empty() ? all : lacking;
}

bool Reclaim::may_shrink(const Claim& claim, const Lender& from) const {
  return from.is_beyond() || may_take(claim, from);
}

bool Reclaim::may_take(const Claim& claim, const Lender& from) const {
  if (claim.right == Right::kBeyond) return false;
  const QueueTurn& turn = claim.head.gang.turn;
  const bool is_lower = turn.preempts && from.holder->turn.priority < turn.priority;
  if (from.queue == claim.head.queue) return is_lower;
  const bool is_due = claim.right == Right::kOwn &&
                      ledger_.cohort_of(from.queue) == ledger_.cohort_of(claim.head.queue);
  if (!is_due && !is_lower) return false;
  if (!ledger_.borrows(from.queue, claim.contested)) return false;
  ResourceAmounts both;
  for (const auto& [resource, amount] : claim.contested) {
    const auto found = from.amounts.find(resource);
    if (amount > 0 && found != from.amounts.end()) both.insert(*found);
  }
  return ledger_.borrows(from.queue, both);
}

// ---- Shrinking

/// Who has more than it wishes for first, then borrowers, then the lowest priority, then who
/// started last.
std::vector<Reclaim::Lender*> Reclaim::shrinkable(const Claim& claim) {
  std::vector<Lender*> found;
  for (Lender& one : lenders_) {
    const int least = one.holder->shrinks_to;
    if (least > 0 && one.kept > least && may_shrink(claim, one)) found.push_back(&one);
  }
  const auto rank = [&](const Lender* one) {
    return std::tuple(!one->is_beyond(), one->queue == claim.head.queue,
                      one->holder->turn.priority);
  };
  std::stable_sort(found.begin(), found.end(), [&](const Lender* a, const Lender* b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return a->holder->started > b->holder->started;
  });
  return found;
}

void Reclaim::shrink_all(const Claim& claim) {
  for (Lender* one : shrinkable(claim)) {
    std::vector<int> numbers = one->whole_numbers(one->holder->shrinks_to, one->kept);
    while (numbers.size() > 1 && may_shrink(claim, *one)) {
      numbers.pop_back();
      set_workers(*one, numbers.back());
    }
  }
}

/// Whoever was asked to shrink last keeps first what is not needed.
void Reclaim::give_back(const Claim& claim, const std::vector<int>& before) {
  std::vector<std::pair<Lender*, int>> shrunk;
  const std::vector<int> after = kept();
  restore(before);
  for (Lender* one : shrinkable(claim)) {
    const auto index = static_cast<std::size_t>(one - lenders_.data());
    if (after[index] > 0 && after[index] < before[index]) shrunk.emplace_back(one, before[index]);
  }
  restore(after);
  std::reverse(shrunk.begin(), shrunk.end());
  for (const auto& [lender, most] : shrunk) {
    const std::vector<int> numbers = lender->whole_numbers(lender->kept, most);
    for (std::size_t low = 0, high = numbers.size() - 1; low < high;) {
      const std::size_t middle = low + (high - low + 1) / 2;
      set_workers(*lender, numbers[middle]);
      if (starts(claim)) {
        low = middle;
      } else {
        high = middle - 1;
        set_workers(*lender, numbers[low]);
      }
    }
  }
}

bool Reclaim::shrink(Claim& claim) {
  const std::vector<int> before = kept();
  for (const Right right : {Right::kBeyond, Right::kOwn, Right::kPriority}) {
    claim.right = right;
    shrink_all(claim);
    // Without anybody's help it does not start: that is why others are asked.
    if (kept() != before && starts(claim)) {
      give_back(claim, before);
      return true;
    }
    restore(before);
  }
  return false;
}

// ---- Preempting

/// In the order in which they are taken: the lowest priority, the least work lost, who started
/// last.
std::vector<Reclaim::Lender*> Reclaim::victims(const Claim& claim) {
  std::vector<Lender*> found;
  for (Lender& one : lenders_) {
    // Whom it had to give way to it never sends away in turn.
    const bool is_kept =
        one.spared > claim.spared_most ||
        (!one.holder->uid.empty() && one.holder->uid == claim.head.gang.preempted_for_uid);
    if (one.kept > 0 && !is_kept && may_take(claim, one)) found.push_back(&one);
  }
  const auto rank = [](const Lender* one) {
    return std::tuple(one->holder->turn.priority, one->lost());
  };
  std::stable_sort(found.begin(), found.end(), [&](const Lender* a, const Lender* b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return a->holder->started > b->holder->started;
  });
  return found;
}

bool Reclaim::starts_without_rest(const Search& search, std::size_t next) {
  const std::vector<int> before = kept();
  for (std::size_t i = next; i < search.among.size(); ++i) set_workers(*search.among[i], 0);
  // Who comes back is left out: of all of them it may be another than of a few, and a larger one.
  const bool found = has_quota(search.claim) && has_place(search.claim);
  restore(before);
  return found;
}

/// A set to begin with: as many in order as it takes, without those that are not needed after all.
void Reclaim::take_in_order(Search& search) {
  const std::vector<int> before = kept();
  std::vector<Lender*> path;
  for (Lender* one : search.among) {
    if (!may_take(search.claim, *one)) continue;
    set_workers(*one, 0);
    path.push_back(one);
  }
  const auto was = [&](const Lender* one) {
    return before[static_cast<std::size_t>(one - lenders_.data())];
  };
  const auto keep_first = [&](std::size_t count) {
    for (std::size_t i = 0; i < path.size(); ++i)
      set_workers(*path[i], i < count ? 0 : was(path[i]));
  };
  if (starts(search.claim)) {
    std::size_t low = 0, high = path.size();
    while (low < high) {
      const std::size_t middle = low + (high - low) / 2;
      keep_first(middle);
      if (starts(search.claim)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    keep_first(high);
    path.resize(high);
    std::stable_sort(path.begin(), path.end(),
                     [](const Lender* a, const Lender* b) { return a->lost() > b->lost(); });
    int tries = kSparedTried;
    for (Lender* one : path) {
      if (tries-- > 0) set_workers(*one, was(one));
      if (one->kept > 0 && !starts(search.claim)) set_workers(*one, 0);
      if (one->kept > 0) continue;
      search.taken.push_back(one);
      search.lost += one->lost();
    }
    search.keep();
    search.taken.clear();
    search.lost = 0;
  }
  restore(before);
}

/// Sets that have what is taken, and any from `next` on. The head does not start with what is taken
/// alone, and would were all of them.
void Reclaim::search(Search& search, std::size_t next) {
  if (search.tries-- <= 0 || !search.is_better()) return;
  Lender& one = *search.among[next];
  if (may_take(search.claim, one)) {
    const int before = one.kept;
    set_workers(one, 0);
    search.taken.push_back(&one);
    search.lost += one.lost();
    if (search.is_better()) {
      if (starts(search.claim)) {
        search.keep();
      } else if (next + 1 < search.among.size()) {
        this->search(search, next + 1);
      }
    }
    search.lost -= one.lost();
    search.taken.pop_back();
    set_workers(one, before);
  }
  if (next + 1 < search.among.size() && starts_without_rest(search, next + 1)) {
    this->search(search, next + 1);
  }
}

/// Where all that can be asked to shrink has.
std::optional<Reclaim::Found> Reclaim::cheapest(const Claim& claim) {
  const std::vector<Lender*> all = victims(claim);
  std::set<int> priorities;
  for (const Lender* one : all) priorities.insert(one->holder->turn.priority);
  shrink_all(claim);
  for (const int most : priorities) {
    Search search{claim, {}};
    std::copy_if(all.begin(), all.end(), std::back_inserter(search.among),
                 [&](const Lender* one) { return one->holder->turn.priority <= most; });
    if (!starts_without_rest(search, 0)) continue;
    take_in_order(search);
    this->search(search, 0);
    if (search.best) return Found{claim.right, most, search.best_lost, *search.best};
  }
  return std::nullopt;
}

bool Reclaim::preempt(Claim& claim) {
  if (claim.head.gang.refused_for.count() > 0) return false;
  const std::vector<int> before = kept();
  std::optional<Found> best;
  const auto cost = [](const Found& one) {
    return std::tuple(one.most_priority, one.lost, one.victims.size());
  };
  for (const Right right : {Right::kOwn, Right::kPriority}) {
    claim.right = right;
    auto found = cheapest(claim);
    restore(before);
    if (found && (!best || cost(*found) < cost(*best))) best = std::move(found);
  }
  if (!best) return false;
  claim.right = best->right;
  shrink_all(claim);
  for (Lender* one : best->victims) set_workers(*one, 0);
  give_back(claim, before);
  return true;
}

// ---- What comes of it

std::optional<Reclaim::Promise> Reclaim::await_room(const Head& head) {
  if (!starts(Claim{head, Right::kPriority})) return std::nullopt;
  return promise(head);
}

std::optional<Reclaim::Promise> Reclaim::make_room(const Head& head) {
  const std::vector<int> before = kept();
  Claim claim{head, Right::kPriority, lacking(head)};
  if (!starts(claim) && !shrink(claim) && !preempt(claim)) return std::nullopt;
  note(claim, before);
  return promise(head);
}

std::vector<std::pair<api::ObjectKey, seconds>> Reclaim::spared_for_now(const Head& head) {
  std::vector<std::pair<api::ObjectKey, seconds>> found;
  std::set<seconds> ends;
  for (const Lender& one : lenders_) {
    if (one.kept > 0 && one.spared.count() > 0) ends.insert(one.spared);
  }
  const std::vector<seconds> times(ends.begin(), ends.end());
  const std::vector<int> before = kept();
  Claim claim{head, Right::kPriority, lacking(head)};
  const auto helps = [&](seconds most) {
    restore(before);
    claim.spared_most = most;
    return preempt(claim);
  };
  // Who is spared the longest is tried first: where that does not help, nothing does.
  std::size_t low = 0, high = times.empty() || !helps(times.back()) ? 0 : times.size();
  while (low + 1 < high) {
    const std::size_t middle = low + (high - low) / 2;
    (helps(times[middle - 1]) ? high : low) = middle;
  }
  if (high > 0 && helps(times[high - 1])) {
    for (std::size_t i = 0; i < lenders_.size(); ++i) {
      const Lender& one = lenders_[i];
      const bool would_go = one.kept == 0 && before[i] > 0 && one.spared.count() > 0;
      if (would_go) {
        found.emplace_back(one.holder->job, one.holder->ran.value_or(seconds(0)) + one.spared);
      }
    }
  }
  restore(before);
  return found;
}

std::optional<Reclaim::Promise> Reclaim::make_room_beyond(const Head& head, int most) {
  const std::vector<int> before = kept();
  WaitingGang gang = head.gang;
  const Head wanted{gang, head.queue, head.caps, head.place};
  Claim claim{wanted, Right::kBeyond, {}};
  shrink_all(claim);
  if (!starts(claim)) {
    restore(before);
    return std::nullopt;
  }
  // What has room falls with the number, of whole copies of its model.
  const int together = gang.together;
  for (int low = gang.min / together, high = most / together; low < high;) {
    const int middle = low + (high - low + 1) / 2;
    if (starts(claim, middle * together)) {
      low = middle;
    } else {
      high = middle - 1;
    }
    gang.min = low * together;
  }
  give_back(claim, before);
  note(claim, before);
  return promise(wanted);
}

void Reclaim::note(const Claim& claim, const std::vector<int>& before) {
  for (std::size_t i = 0; i < lenders_.size(); ++i) {
    const Lender& one = lenders_[i];
    if (one.kept == before[i]) continue;
    TakeBack taken;
    taken.workers = one.kept;
    taken.slots_below = one.kept == 0 ? 0 : one.holder->slots[at(one.kept - 1)].slot + 1;
    // One that is being replaced belongs to the copy of those that stay.
    const int together = one.holder->together;
    taken.slots_below = (taken.slots_below + together - 1) / together * together;
    taken.job = claim.head.gang.job;
    taken.job_uid = claim.head.gang.uid;
    taken.why = why(claim, one, before[i] - one.kept);
    if (one.kept == 0) {
      taken.lost_process_seconds = one.lost();
      taken.why += "; " + lost_text(*one.holder);
    }
    taken_.insert_or_assign(one.holder->job, std::move(taken));
  }
}

std::string Reclaim::why(const Claim& claim, const Lender& lender, int workers) const {
  const WaitingGang& gang = claim.head.gang;
  if (workers <= lender.holder->beyond) return why_beyond(gang);
  const bool is_lower = lender.holder->turn.priority < gang.turn.priority;
  if (lender.queue == claim.head.queue || claim.right == Right::kPriority) {
    return why_priority(gang, lender.holder->turn);
  }
  for (const api::QueueResource& one : queues_.at(gang.turn.queue)->quota) {
    const auto found = lender.amounts.find(one.name);
    const bool is_it = claim.contested.contains(one.name) && found != lender.amounts.end();
    if (!is_it || found->second <= 0) continue;
    // Of another cohort nothing is due: it is the priority there.
    if (ledger_.cohort_of(lender.queue) != ledger_.cohort_of(claim.head.queue)) break;
    return why_taken_back(gang, one.name, found->second * workers);
  }
  return is_lower ? why_priority(gang, lender.holder->turn)
                  : "queue " + gang.turn.queue + " takes back room for " + gang.job.text();
}

}  // namespace muster::core
