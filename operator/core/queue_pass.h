// One pass over all gangs that wait: each queue's in its order, all others as they come.
//
// The first of a queue's line that cannot start is its *head*. What the head needs is kept for it:
// of the quota against everybody behind it and against borrowers of the cohort (queue_quota.h), and
// on the nodes against everybody behind it; where it lacks nothing but nodes, or room is made for
// it (queue_reclaim.h), against every queue's jobs that come later, and then also against jobs in
// no queue. It keeps all nodes where it may ever stand, since nobody knows which of them come free
// first; only from those that it would not hold up but for the room that is made, no more than the
// nodes where that will be. Later jobs may start with what the head cannot use: on nodes where it
// cannot stand, or with resources of which the head's share of the node stays free; and of the same
// queue with what is kept for it, if they are over before it can have it (queue_backfill.h).
//
// Of those behind a head so many are looked for a place in a pass; a line of any length costs no
// more.
//
// A gang that starts again in a moment has its turn like any other. What it could start with now,
// or will when its old pods are gone, is taken or kept for it, and it is given nothing yet.
//
// Of those that keep their checkpoints on one claim the first that has room starts; the others have
// no turn after it, and nothing is kept for them.
//
// A gang that could not start were everything empty is no head: it would hold others up for ever.
// A node that is not ready or cordoned counts as one that will be there again.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/gang_place.h"
#include "operator/core/kept_room.h"
#include "operator/core/queue_backfill.h"
#include "operator/core/queue_line.h"
#include "operator/core/queue_reclaim.h"
#include "operator/core/rooms.h"

namespace muster::core {

inline constexpr int kTriedBehindHead = 100;
/// Jobs in a pass, but the first of lines, that are looked for what is beyond others' wishes.
inline constexpr int kTriedForBeyond = 32;
/// Shapes of gangs of which a pass remembers whether they could stand were everything empty.
inline constexpr std::size_t kShapesJudged = 64;

class QueuePass {
 public:
  /// `cluster` and `rooms` outlive it.
  QueuePass(const ClusterSnapshot& cluster, Rooms& rooms);

  /// The turn of one gang. Gangs that wait to start in queues take each other's turns: the one that
  /// comes next gets it. To be called once for each gang, those that only grow last.
  void take_turn(const WaitingGang& gang);
  Schedule decisions() &&;

 private:
  struct Head {
    const WaitingGang* gang = nullptr;
    bool lacks_nodes = false;                    ///< and nothing else
    std::optional<Reclaim::Promise> promised{};  ///< room is made for it
    KeptRoom kept{};  ///< for it: where it will stand, if that is known; else where it ever may
    KeptRoom elsewhere{};  ///< from its line, where it may start sooner than by the promise
    int tried = 0;         ///< gangs behind it that were looked for a place
    /// KnownEnds::starts_within() of it, once somebody wanted to know.
    std::optional<std::optional<seconds>> starts_within{};
  };

  std::vector<LineTurn> take_turns();
  const Queue& queue(int number) const;
  void next_of_line();
  void join(const WaitingGang& gang);
  void decide(const WaitingGang& gang, GangVerdict verdict);
  bool is_claim_given(const WaitingGang& gang) const;
  /// How many workers the gang is given of what the quota allows.
  int granted(const LineTurn& turn, const WaitingGang& gang, std::int64_t within) const;
  bool is_too_far(int queue);
  static bool is_ahead_of(const Head& head, int of_queue, int queue);
  static bool holds_off(const Head& head, int of_queue, int queue);
  static bool holds_off_from(int node, const Head& head, int of_queue, int queue);
  KeptRooms kept_from(int queue) const;
  KeptRooms kept_from_head(int queue) const;
  GangVerdict place_beside_heads(const WaitingGang& gang, int queue);
  std::string why_held_off(const WaitingGang& gang, int queue);
  KeptRooms kept_beside(const Head& head) const;
  bool is_over_before(Head& head, int queue, const WaitingGang& gang);
  GangVerdict start(const LineTurn& turn, const WaitingGang& gang, std::int64_t within,
                    const KeptRooms& kept);
  std::optional<GangVerdict> start_ahead(const LineTurn& turn, const WaitingGang& gang);
  void place_freely(const WaitingGang& gang);
  Reclaim::Head as_head(const WaitingGang& gang, int queue, QuotaLedger::Place place);
  std::optional<Reclaim::Promise> await_room(const WaitingGang& gang, int queue);
  std::optional<Reclaim::Promise> take_beyond(const WaitingGang& gang, int queue, int most);
  void grow_into_beyond(const WaitingGang& gang, int queue, int placed);
  std::optional<Reclaim::Promise> make_room(const LineTurn& turn, const WaitingGang& gang,
                                            std::string& why);
  NodeCaps workers_kept_for(const WaitingGang& gang);
  Rooms& at_best();
  bool could_ever_start(const LineTurn& turn, const WaitingGang& gang);
  bool could_ever_stand(const WaitingGang& gang);
  void add_head(int queue, Head head);
  void take_back(Schedule& all) const;
  std::string why_behind(const LineTurn& turn, const WaitingGang& gang, std::int64_t within,
                         const std::string& why_no_place);

  const ClusterSnapshot& cluster_;
  Rooms& rooms_;
  QuotaLedger ledger_;
  const std::map<std::string, const Queue*> queues_;
  std::set<api::ObjectKey> refused_;  ///< no turn: their queue is not there, or not theirs
  std::map<api::ObjectKey, GangVerdict> verdicts_;
  /// Of those that start in this pass, by namespace and name.
  std::set<std::pair<std::string, std::string>> given_claims_;
  QueueLine line_;
  /// By queue; below 0 jobs in none for which others give back what is beyond their wish.
  std::map<int, Head> heads_;
  /// Sums over heads: of those to whom room is promised, and of the others that lack nodes alone.
  KeptRoom promised_, lacking_;
  KeptRoom elsewhere_;  ///< of those with a promise that lack nodes alone, beside that
  /// Some job has grown beyond its wish, or workers leave.
  const bool is_any_beyond_;
  int beyond_tried_ = 0;          ///< jobs that looked for what is beyond others' wishes
  std::map<int, int> waiting_;    ///< gangs that did not start, by queue
  std::optional<Rooms> at_best_;  ///< made when first asked for
  /// Gangs of different shapes, and whether they could stand were everything empty.
  std::vector<std::pair<const WaitingGang*, bool>> judged_;
  /// Of those that start again while there is no reclaim_, what their old pods hold for that: its
  /// own ledger counts no pods that leave. The turns are line_'s.
  std::vector<std::pair<const LineTurn*, std::int64_t>> held_again_;
  std::optional<Reclaim> reclaim_;       ///< made when first asked for
  std::optional<KnownEnds> known_ends_;  ///< likewise
};

}  // namespace muster::core
