#include "operator/core/queue_pass.h"

#include <algorithm>
#include <tuple>

#include "operator/core/pod_shape.h"
#include "operator/core/queue_words.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

using Place = QuotaLedger::Place;

bool waits_to_start(const WaitingGang& gang) {
  return !gang.turn.queue.empty() && gang.wish.slots.empty();
}

int workers_in(const GangVerdict& verdict) {
  return verdict.placement ? static_cast<int>(verdict.placement->node_of_slot.size()) : 0;
}

/// Whether anybody has grown beyond its wish. While workers leave, too: what is made for a gang is
/// kept until then, as nobody stores for whom that was.
bool has_beyond(const ClusterSnapshot& cluster) {
  return std::any_of(cluster.holders.begin(), cluster.holders.end(), [](const QueueHolder& holder) {
    return !holder.leaving.empty() || (holder.beyond > 0 && holder.shrinks_to > 0);
  });
}

/// The ledger once all that is held is charged.
QuotaLedger charged_ledger(const ClusterSnapshot& cluster) {
  QuotaLedger ledger(cluster.queues);
  for (const QueueHolder& holder : cluster.holders) {
    const int queue = ledger.index_of(holder.turn.queue);
    if (queue >= 0) ledger.charge(queue, amounts_of(holder.per_worker), holder.workers());
  }
  return ledger;
}

std::map<std::string, const Queue*> by_name(const std::vector<Queue>& queues) {
  std::map<std::string, const Queue*> named;
  for (const Queue& one : queues) named.emplace(one.name, &one);
  return named;
}

/// Whether the same nodes can take as many workers of both at least.
bool is_alike(const WaitingGang& a, const WaitingGang& b) {
  const auto shape = [](const WaitingGang& one) {
    return std::tie(one.min, one.together, one.per_worker, one.node_selector, one.node_terms,
                    one.tolerations, one.unplaced, one.required_level, one.preferred_level,
                    one.groups, one.volumes);
  };
  return shape(a) == shape(b);
}

}  // namespace

/// Of all that wait in queues; who waits in one that is not there, or not for it, hears so now.
std::vector<LineTurn> QueuePass::take_turns() {
  std::vector<LineTurn> turns;
  std::map<api::ObjectKey, const QueueHolder*> holders;
  for (const QueueHolder& one : cluster_.holders) holders.emplace(one.job, &one);
  for (std::size_t i = 0; i < cluster_.gangs.size(); ++i) {
    const WaitingGang& gang = cluster_.gangs[i];
    if (!waits_to_start(gang)) continue;
    const auto found = queues_.find(gang.turn.queue);
    std::string why = found == queues_.end()
                          ? why_no_queue(gang.turn.queue, cluster_.queues)
                          : why_not_taken(*found->second, gang.job.namespace_name);
    if (!why.empty()) {
      refused_.insert(gang.job);
      decide(gang, {std::nullopt, std::move(why)});
      continue;
    }
    turns.push_back({i, ledger_.index_of(gang.turn.queue), gang.turn.priority, gang.turn.created,
                     gang.job, amounts_of(gang.per_worker), gang.min});
    const auto own = holders.find(gang.job);
    // They count where it started, which may be another queue than it names by now.
    const bool has_old = own != holders.end() && own->second->uid == gang.uid &&
                         own->second->turn.queue == gang.turn.queue;
    if (gang.wish.not_yet && has_old) turns.back().held = own->second->workers();
  }
  return turns;
}

QueuePass::QueuePass(const ClusterSnapshot& cluster, Rooms& rooms)
    : cluster_(cluster),
      rooms_(rooms),
      ledger_(charged_ledger(cluster)),
      queues_(by_name(cluster.queues)),
      line_(take_turns(), ledger_,
            [this](const LineTurn& turn) {
              return could_ever_start(turn, cluster_.gangs[turn.gang]);
            }),
      is_any_beyond_(has_beyond(cluster)) {}

const Queue& QueuePass::queue(int number) const { return *queues_.at(ledger_.name_of(number)); }

void QueuePass::decide(const WaitingGang& gang, GangVerdict verdict) {
  // What it would have been given is taken, so that nobody else gets it in this pass.
  if (gang.wish.not_yet) verdict = {};
  verdict.slots = gang.wish.slots;
  const auto& kept = verdicts_.insert_or_assign(gang.job, std::move(verdict)).first->second;
  if (!kept.placement || !gang.wish.slots.empty()) return;
  if (!gang.claim.empty()) given_claims_.emplace(gang.job.namespace_name, gang.claim);
  if (!gang.unplaced) rooms_.start(gang, kept.placement->node_of_slot);
}

bool QueuePass::is_claim_given(const WaitingGang& gang) const {
  return given_claims_.contains({gang.job.namespace_name, gang.claim});
}

void QueuePass::take_turn(const WaitingGang& gang) {
  if (gang.turn.queue.empty()) return place_freely(gang);
  if (!waits_to_start(gang)) return join(gang);
  if (!refused_.contains(gang.job)) next_of_line();
}

int QueuePass::granted(const LineTurn& turn, const WaitingGang& gang, std::int64_t within) const {
  // What others of the cohort wait for is not borrowed beyond the least; what is left when they
  // have started is grown into.
  if (line_.others_wait(turn.queue)) {
    const std::int64_t own = ledger_.workers_within_nominal(turn.queue, turn.per_worker);
    within = std::min(within, std::max<std::int64_t>(own, gang.min));
  }
  within = std::min<std::int64_t>(gang.count, within);
  return static_cast<int>(within - within % gang.together);
}

bool QueuePass::is_too_far(int queue) {
  const auto head = heads_.find(queue);
  return head != heads_.end() && ++head->second.tried > kTriedBehindHead;
}

/// Whether jobs of that queue, or below 0 of none, come after this head wherever it may stand.
bool QueuePass::is_ahead_of(const Head& head, int of_queue, int queue) {
  return queue >= 0 && (of_queue == queue || head.lacks_nodes);
}

/// Whether what is kept for this head is not for jobs of that queue, or below 0 of none.
bool QueuePass::holds_off(const Head& head, int of_queue, int queue) {
  return head.promised || is_ahead_of(head, of_queue, queue);
}

/// Whether anything on that node is.
bool QueuePass::holds_off_from(int node, const Head& head, int of_queue, int queue) {
  const bool is_ahead = is_ahead_of(head, of_queue, queue);
  return (head.kept.is_on(node) && (is_ahead || head.promised)) ||
         (head.elsewhere.is_on(node) && is_ahead);
}

/// What is kept from later jobs of a queue, or below 0 of none.
KeptRooms QueuePass::kept_from(int queue) const {
  KeptRooms kept = kept_from_head(queue);
  kept.emplace_back(&promised_, 1);
  if (queue < 0) return kept;
  kept.emplace_back(&elsewhere_, 1);
  const auto own = heads_.find(queue);
  const bool is_summed = own == heads_.end() || own->second.lacks_nodes;
  if (!is_summed) kept.emplace_back(&own->second.elsewhere, 1);
  return kept;
}

/// The same from a head, on the cluster as it will be: who is promised room has it there already.
KeptRooms QueuePass::kept_from_head(int queue) const {
  if (queue < 0) return {};
  KeptRooms kept{{&lacking_, 1}};
  const auto own = heads_.find(queue);
  const bool is_summed = own == heads_.end() || own->second.promised || own->second.lacks_nodes;
  if (!is_summed) kept.emplace_back(&own->second.kept, 1);
  return kept;
}

/// Beside what is kept for heads. Who would have room but for that hears so.
GangVerdict QueuePass::place_beside_heads(const WaitingGang& gang, int queue) {
  const auto caps = caps_beside(kept_from(queue), gang, rooms_.inventory());
  GangVerdict verdict = place(gang, rooms_, caps ? &*caps : nullptr);
  if (verdict.placement || !caps) return verdict;
  if (std::string why = why_held_off(gang, queue); !why.empty()) verdict.why_not = std::move(why);
  return verdict;
}

/// For whom is kept what this gang would start with; empty: that is not what it lacks.
std::string QueuePass::why_held_off(const WaitingGang& gang, int queue) {
  const auto holds = [&](const auto& head) { return holds_off(head.second, head.first, queue); };
  if (std::none_of(heads_.begin(), heads_.end(), holds)) return "";
  WaitingGang least = gang;
  least.count = gang.min;
  const std::uint64_t before = rooms_.inventory().version();
  const GangVerdict alone = place(least, rooms_);
  if (!alone.placement) return "";
  rooms_.give_back(*alone.placement, gang.per_worker);
  rooms_.keep_refusals_since(before);
  const Inventory& inventory = rooms_.inventory();
  const auto found = std::find_if(heads_.begin(), heads_.end(), [&](const auto& head) {
    const auto& nodes = alone.placement->node_of_slot;
    return std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
      return holds_off_from(inventory.index_of(node), head.second, head.first, queue);
    });
  });
  return found == heads_.end() ? "" : why_kept(found->second.gang->job, "the room that there is");
}

void QueuePass::place_freely(const WaitingGang& gang) {
  if (is_claim_given(gang)) return;
  const bool is_new = gang.wish.slots.empty() || gang.wish.only_grows;
  GangVerdict verdict = is_new ? place_beside_heads(gang, -1) : place(gang, rooms_);
  if (verdict.placement && reclaim_) reclaim_->start(-1, gang, *verdict.placement, 0);
  if (gang.wish.only_grows) {
    grow_into_beyond(gang, -1, workers_in(verdict));
  } else if (!verdict.placement && is_new) {
    if (auto promised =
            gang.wish.not_yet ? await_room(gang, -1) : take_beyond(gang, -1, gang.min)) {
      verdict.why_not += makes_room_text(gang.job, reclaim_->taken());
      add_head(-beyond_tried_, {&gang, false, std::move(promised)});
    }
  }
  decide(gang, std::move(verdict));
}

/// What others have grown to beyond their wish, for so many workers of this gang at most.
std::optional<Reclaim::Promise> QueuePass::take_beyond(const WaitingGang& gang, int queue,
                                                       int most) {
  if (gang.unplaced || !is_any_beyond_ || ++beyond_tried_ > kTriedForBeyond) return std::nullopt;
  const bool is_behind = queue >= 0 && heads_.contains(queue);
  const Reclaim::Head head = as_head(gang, queue, is_behind ? Place::kBehind : Place::kFirst);
  return reclaim_->make_room_beyond(head, most);
}

/// On the cluster as it will be, which is looked at from now on.
Reclaim::Head QueuePass::as_head(const WaitingGang& gang, int queue, Place place) {
  if (!reclaim_) {
    // There old pods are gone, and whose they were has started.
    QuotaLedger later = ledger_;
    for (const auto& [turn, held] : held_again_) later.charge(turn->queue, turn->per_worker, held);
    reclaim_.emplace(cluster_, later, rooms_);
  }
  const auto left_by_heads = [this, &gang, queue](const Rooms& rooms) {
    return caps_beside(kept_from_head(queue), gang, rooms.inventory());
  };
  return {gang, queue, left_by_heads, place};
}

/// Where a gang will have room that starts again in a moment, when its old pods are gone. Nobody is
/// asked to make it before its time.
std::optional<Reclaim::Promise> QueuePass::await_room(const WaitingGang& gang, int queue) {
  if (cluster_.holders.empty() && cluster_.leaving.empty()) return std::nullopt;
  if (queue < 0 && (gang.unplaced || ++beyond_tried_ > kTriedForBeyond)) return std::nullopt;
  const Reclaim::Head head = as_head(gang, queue, Place::kFirst);
  auto promised = reclaim_->await_room(head);
  if (!promised && queue >= 0) reclaim_->reserve(queue, gang);
  return promised;
}

/// For a gang that trains with fewer workers than it wishes for, and was placed so many more.
void QueuePass::grow_into_beyond(const WaitingGang& gang, int queue, int placed) {
  const int lacking = static_cast<int>(gang.wish.slots.size()) - placed;
  if (gang.wish.is_beyond || lacking <= 0) return;
  WaitingGang more = gang;
  more.count = lacking;
  more.wish.slots.erase(more.wish.slots.begin(), more.wish.slots.begin() + placed);
  (void)take_beyond(more, queue, lacking);
}

/// `why`: why the gang waits, to which is added who makes room for it, or could later.
std::optional<Reclaim::Promise> QueuePass::make_room(const LineTurn& turn, const WaitingGang& gang,
                                                     std::string& why) {
  if (cluster_.holders.empty() && cluster_.leaving.empty()) return std::nullopt;
  const Reclaim::Head head = as_head(gang, turn.queue, Place::kFirst);
  if (auto promised = reclaim_->make_room(head)) {
    why += makes_room_text(gang.job, reclaim_->taken());
    return promised;
  }
  why += gang.refused_for.count() > 0 ? std::string(kNotWhileRefused)
                                      : spared_text(reclaim_->spared_for_now(head));
  reclaim_->reserve(turn.queue, gang);
  return std::nullopt;
}

Rooms& QueuePass::at_best() {
  if (!at_best_) at_best_.emplace(rooms_.at_best());
  return *at_best_;
}

bool QueuePass::could_ever_start(const LineTurn& turn, const WaitingGang& gang) {
  return ledger_.workers_ever(turn.queue, turn.per_worker) >= gang.min && could_ever_stand(gang);
}

bool QueuePass::could_ever_stand(const WaitingGang& gang) {
  const auto known = std::find_if(judged_.begin(), judged_.end(),
                                  [&](const auto& one) { return is_alike(*one.first, gang); });
  if (known != judged_.end()) return known->second;
  WaitingGang least = gang;
  least.count = gang.min;
  least.avoid.clear();
  const GangVerdict verdict = place(least, at_best());
  if (verdict.placement) at_best().give_back(*verdict.placement, gang.per_worker);
  if (judged_.size() < kShapesJudged) judged_.emplace_back(&gang, verdict.placement.has_value());
  return verdict.placement.has_value();
}

void QueuePass::add_head(int queue, Head head) {
  const api::Resources& per_worker = head.gang->per_worker;
  NodeCaps pods = workers_kept_for(*head.gang);
  if (head.promised && !head.promised->is_vague) {
    NodeCaps promised(pods.size(), 0);
    for (const std::string& name : head.promised->nodes) {
      const int node = rooms_.inventory().index_of(name);
      if (node >= 0) ++promised[as_index(node)];
    }
    for (std::size_t i = 0; i < pods.size(); ++i) {
      pods[i] = std::max<std::int64_t>(0, pods[i] - promised[i]);
    }
    head.elsewhere = KeptRoom(per_worker, pods);
    pods = std::move(promised);
  }
  head.kept = KeptRoom(per_worker, pods);
  if (head.promised) {
    promised_.add(head.kept);
    if (head.lacks_nodes) elsewhere_.add(head.elsewhere);
  } else if (head.lacks_nodes) {
    lacking_.add(head.kept);
  }
  heads_.emplace(queue, std::move(head));
}

/// On each node as many of its least as may ever stand there; nowhere any of one whose nodes others
/// find.
NodeCaps QueuePass::workers_kept_for(const WaitingGang& gang) {
  if (gang.unplaced) return NodeCaps(rooms_.inventory().size(), 0);
  NodeCaps pods = at_best().fits(gang.per_worker);
  for (std::size_t i = 0; i < pods.size(); ++i) {
    const api::Node& node = rooms_.inventory().node(static_cast<int>(i));
    const bool is_reached = gang.volumes.every_slot.allows(node.meta.name);
    const bool may_stand = is_reached && !is_closed_to(gang, node);
    pods[i] = may_stand ? std::min<std::int64_t>(gang.min, pods[i]) : 0;
  }
  return pods;
}

std::string QueuePass::why_behind(const LineTurn& turn, const WaitingGang& gang,
                                  std::int64_t within, const std::string& why_no_place) {
  const auto head = heads_.find(turn.queue);
  const bool is_behind = head != heads_.end();
  if (within < gang.min) {
    if (ledger_.workers_ever(turn.queue, turn.per_worker) < gang.min) {
      return why_never(ledger_.lack_ever(turn.queue, turn.per_worker, gang.min),
                       ledger_.name_of(turn.queue), gang);
    }
    const QuotaLack lack = ledger_.lack(turn.queue, turn.per_worker, gang.min, Place::kFirst);
    if (lack.resource.empty() && is_behind) return why_kept(head->second.gang->job, "its quota");
    const QuotaLack alone = ledger_.lack(turn.queue, turn.per_worker, gang.min, Place::kAlone);
    const auto other = heads_.find(ledger_.reserved_by(turn.queue, lack.resource));
    if (alone.resource.empty() && other != heads_.end()) {
      return why_kept(other->second.gang->job, "what cohort " + queue(turn.queue).cohort + " lends",
                      ledger_.name_of(other->first));
    }
    return why_no_quota(lack, turn.queue, queue(turn.queue).cohort, ledger_, gang,
                        is_behind ? 0 : within);
  }
  const std::string why_held = why_held_off(gang, turn.queue);
  if (!why_held.empty()) return why_held;
  // So many behind the first are looked for a place in one pass.
  const std::string later = "a place is looked for in a moment";
  return "its quota has room; " + (why_no_place.empty() ? later : why_no_place);
}

/// The gang with places, its quota charged, where there is room; `within` is its least at least.
GangVerdict QueuePass::start(const LineTurn& turn, const WaitingGang& gang, std::int64_t within,
                             const KeptRooms& kept) {
  WaitingGang asked = gang;
  asked.count = granted(turn, gang, within);
  const auto caps = caps_beside(kept, gang, rooms_.inventory());
  GangVerdict verdict = place(asked, rooms_, caps ? &*caps : nullptr);
  if (!verdict.placement) return verdict;
  const auto workers = static_cast<std::int64_t>(verdict.placement->node_of_slot.size());
  // What its old pods hold it starts with, and no sooner than they are gone.
  const std::int64_t held = std::min(turn.held, workers);
  ledger_.charge(turn.queue, turn.per_worker, workers - held);
  if (reclaim_) {
    reclaim_->start(turn.queue, gang, *verdict.placement, workers);
  } else if (held > 0) {
    held_again_.emplace_back(&turn, held);
  }
  line_.ledger_changed(turn.queue);
  return verdict;
}

/// What is kept for others than this head, which has no promise.
KeptRooms QueuePass::kept_beside(const Head& head) const {
  KeptRooms others{{&promised_, 1}, {&lacking_, 1}, {&elsewhere_, 1}};
  if (head.lacks_nodes) others.emplace_back(&head.kept, -1);
  return others;
}

bool QueuePass::is_over_before(Head& head, int queue, const WaitingGang& gang) {
  // What is being made for a head it gets sooner than anybody could say.
  if (!gang.ends_within || head.promised) return false;
  if (!head.starts_within) {
    if (!known_ends_) known_ends_.emplace(cluster_, ledger_, rooms_);
    // Neither what is free now nor what ends leave is its own where it is kept for others.
    const auto left_by_others = [&](const Rooms& rooms) {
      return caps_beside(kept_beside(head), *head.gang, rooms.inventory());
    };
    head.starts_within =
        known_ends_->starts_within(ledger_, rooms_, queue, *head.gang, left_by_others);
  }
  const std::optional<seconds>& waits = *head.starts_within;
  return waits && *gang.ends_within + kHandOver <= *waits;
}

/// With what is kept for the first of its line, which it is over before.
std::optional<GangVerdict> QueuePass::start_ahead(const LineTurn& turn, const WaitingGang& gang) {
  const std::int64_t within = ledger_.workers_within(turn.queue, turn.per_worker, Place::kFirst);
  if (within < gang.min) return std::nullopt;
  const Head& head = heads_.at(turn.queue);
  GangVerdict started = start(turn, gang, within, kept_beside(head));
  if (!started.placement) return std::nullopt;
  started.placement->went_ahead = true;
  std::string& why = started.placement->why;
  why += (why.empty() ? "" : "; ") + why_ahead(head.gang->job, **head.starts_within);
  return started;
}

void QueuePass::next_of_line() {
  const LineTurn* next = line_.next();
  if (next == nullptr) return;
  const LineTurn& turn = *next;
  const WaitingGang& gang = cluster_.gangs[turn.gang];
  if (is_claim_given(gang)) return;
  const bool is_behind = heads_.contains(turn.queue);
  const std::int64_t within = ledger_.workers_within(turn.queue, turn.per_worker,
                                                     is_behind ? Place::kBehind : Place::kFirst);
  GangVerdict verdict;
  const bool may_go_ahead =
      is_behind && !gang.wish.not_yet && is_over_before(heads_.at(turn.queue), turn.queue, gang);
  if ((within >= gang.min || may_go_ahead) && !is_too_far(turn.queue)) {
    if (within >= gang.min) verdict = start(turn, gang, within, kept_from(turn.queue));
    if (!verdict.placement && may_go_ahead) {
      if (auto ahead = start_ahead(turn, gang)) verdict = *std::move(ahead);
    }
    if (verdict.placement) return decide(gang, std::move(verdict));
  }
  // Those who start in this pass are in the line no more.
  const int place_in_line = ++waiting_[turn.queue];
  std::string why = place_text(place_in_line, ledger_.name_of(turn.queue)) + ": ";
  why += place_in_line > kPlacesInWords ? "waits for its turn"
                                        : why_behind(turn, gang, within, verdict.why_not);
  if (!is_behind && could_ever_start(turn, gang)) {
    const bool is_due = !gang.wish.not_yet;
    const bool lacks_nodes = within + turn.held >= gang.min && gang.refused_for.count() == 0;
    Head head{&gang, lacks_nodes,
              is_due ? make_room(turn, gang, why) : await_room(gang, turn.queue)};
    // Before its old pods are gone it starts nowhere, and then where it is promised room.
    if (head.promised && !is_due) head.lacks_nodes = false;
    add_head(turn.queue, std::move(head));
    ledger_.reserve(turn.queue, turn.per_worker, turn.adds());
    line_.ledger_changed(turn.queue);
  }
  decide(gang, {std::nullopt, std::move(why), {}, verdict.lacks_volumes, is_behind});
}

Schedule QueuePass::decisions() && {
  Schedule all;
  all.verdicts = std::move(verdicts_);
  if (reclaim_) take_back(all);
  // Not before: until here quota and room are counted in workers as they were asked for.
  for (const WaitingGang& gang : cluster_.gangs) {
    const auto found = gang.largest > 1 ? all.verdicts.find(gang.job) : all.verdicts.end();
    if (found == all.verdicts.end() || !found->second.placement) continue;
    enlarge_workers(*found->second.placement, gang.largest);
  }
  for (const QueueHolder& holder : cluster_.holders) {
    const auto found = queues_.find(holder.turn.queue);
    if (holder.slots.empty() || found == queues_.end() || found->second->spent.empty()) continue;
    TakeBack stopped;
    stopped.why = "queue " + holder.turn.queue + ": " + found->second->spent;
    all.taken.insert_or_assign(holder.job, std::move(stopped));
  }
  return all;
}

/// What is taken back for the first of the lines.
void QueuePass::take_back(Schedule& all) const {
  all.taken = reclaim_->taken();
  const auto look_within = [&](seconds time) {
    if (time.count() > 0) all.look_again = std::min(all.look_again.value_or(time), time);
  };
  for (const auto& [queue, head] : heads_) {
    if (head.promised) look_within(words::kOverdue);
    look_within(head.gang->refused_for);
  }
  for (const QueueHolder& holder : cluster_.holders) {
    const auto queue = queues_.find(holder.turn.queue);
    const seconds spared = spared_for(holder, queue == queues_.end() ? nullptr : queue->second);
    if (!holder.slots.empty()) look_within(spared);
  }
}

void QueuePass::join(const WaitingGang& gang) {
  const int number = ledger_.index_of(gang.turn.queue);
  const ResourceAmounts per_worker = amounts_of(gang.per_worker);
  const bool is_behind = number >= 0 && heads_.contains(number);
  // Of a queue whose spec is refused no quota is known, which is no reason to take all.
  const bool is_known = number >= 0 && !queue(number).is_refused;
  const std::int64_t within =
      !is_known
          ? 0
          : ledger_.workers_within(number, per_worker, is_behind ? Place::kBehind : Place::kFirst);
  // Who takes the place of another holds its quota.
  std::int64_t slots =
      gang.wish.only_grows ? std::min<std::int64_t>(gang.count, within) : gang.count;
  slots -= slots % gang.together;
  const std::string name = gang.turn.queue;
  if (slots == 0) {
    if (is_known && gang.wish.only_grows) grow_into_beyond(gang, number, 0);
    std::string why = "queue " + name + " has no quota left for more";
    if (number < 0) why = why_no_queue(name, cluster_.queues);
    if (number >= 0 && !is_known) why = why_not_taken(queue(number), gang.job.namespace_name);
    return decide(gang, {std::nullopt, std::move(why)});
  }
  WaitingGang asked = gang;
  asked.count = static_cast<int>(slots);
  // A replacement stands where another stood; who only grows comes after those who wait to start.
  GangVerdict verdict =
      gang.wish.only_grows ? place_beside_heads(asked, number) : place(asked, rooms_);
  if (verdict.placement && number >= 0) {
    const std::int64_t taken = gang.wish.only_grows ? workers_in(verdict) : 0;
    ledger_.charge(number, per_worker, taken);
    if (reclaim_) reclaim_->start(number, gang, *verdict.placement, taken);
    line_.ledger_changed(number);
  }
  if (number >= 0 && gang.wish.only_grows) grow_into_beyond(gang, number, workers_in(verdict));
  decide(gang, std::move(verdict));
}

}  // namespace muster::core
