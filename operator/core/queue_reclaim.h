// Taking back what was lent: whose workers leave so that the first of a line can start.
//
// Who may be taken from: in its own queue jobs of strictly lower priority; in other queues only
// what is borrowed, by a job that stays within its own nominal quota from its cohort whatever the
// priorities, else by a strictly higher priority. Jobs in no queue are left alone, and so is
// everybody where the first could not start all the same.
//
// How: what jobs have grown to beyond their wish goes first, whoever waits and in whichever queue;
// also to jobs in no queue, and to those that have fewer workers than they wish for.
// Then elastic jobs shrink, down to their least, which costs nothing; of them no worker leaves that
// could stay. Only where that is not enough are jobs preempted: of the lowest
// priorities that suffice those that lose least work together (processes times the time since the
// last checkpoint), then the fewest. Who would start again before the head, within its queue's
// nominal quota, leaves it only the rest. Who has not run for the least time of its queue, or was
// preempted a while ago, is spared; the head, whose quota is kept from further borrowers, waits for
// that at most. For a head whose pods were refused when it had room last nobody is preempted for a
// while.
//
// All of it is decided on the cluster as it will be: pods that leave are gone, jobs whose room is
// made have it. So what was taken is not taken twice, whoever asks again, and nothing is stored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "operator/core/queue_line.h"
#include "operator/core/queue_quota.h"
#include "operator/core/rooms.h"

namespace muster::core {

class Reclaim {
 public:
  /// The first of a line, which cannot start as things are; or another, for make_room_beyond.
  /// `caps`: how many of its pods each node may take for the sake of others, given what is free.
  struct Head {
    const WaitingGang& gang;
    int queue = 0;  ///< the ledger's; -1: it is in none
    std::function<std::optional<NodeCaps>(const Rooms&)> caps;
    QuotaLedger::Place place = QuotaLedger::Place::kFirst;
  };

  /// `cluster` outlives it; ledger and rooms are as the pass has left them so far.
  Reclaim(const ClusterSnapshot& cluster, const QuotaLedger& ledger, const Rooms& rooms);

  /// Where whom room is made for will stand.
  struct Promise {
    std::vector<std::string> nodes;  ///< one for each of its workers
    bool is_vague = false;  ///< or elsewhere: nobody knows where others come back before it
  };

  /// Whether the head will have room for its least once all are gone that leave now.
  std::optional<Promise> await_room(const Head& head);
  /// The same, and if need be who makes it.
  std::optional<Promise> make_room(const Head& head);
  /// Of a head that make_room has not helped: who could be preempted for it once they are spared no
  /// more, and after how long a run: those by whom it comes to its room first. Empty: nobody.
  std::vector<std::pair<api::ObjectKey, seconds>> spared_for_now(const Head& head);
  /// The same for one that is no first of a line: with what others have grown to beyond their wish
  /// alone. For so many of its workers as will have room then, from its least to `most`.
  std::optional<Promise> make_room_beyond(const Head& head, int most);
  /// For who is not promised anything: what make_room keeps back from others for it.
  void reserve(int queue, const WaitingGang& head);
  /// A gang, or some of its slots, are given places now; so many of them are charged.
  void start(int queue, const WaitingGang& gang, const GangPlacement& placement,
             std::int64_t charged);

  const std::map<api::ObjectKey, TakeBack>& taken() const { return taken_; }

 private:
  /// By what right something is taken. kBeyond: nobody has one to what is beyond its wish. kOwn:
  /// the head must stay within its nominal quota.
  enum class Right { kBeyond, kOwn, kPriority };
  /// A job that may give something back.
  struct Lender {
    const QueueHolder* holder = nullptr;
    int queue = 0;
    ResourceAmounts amounts;  ///< of a worker
    NumberedAmounts numbered;
    std::vector<int> nodes;  ///< of its places; -1: none, or one that is not there
    int kept = 0;            ///< of its places, the first ones; 0: it is preempted
    seconds spared{0};       ///< so long it is not preempted
    bool is_beyond() const;  ///< its wish, with what it has kept
    std::int64_t lost() const;
    /// Numbers of first places that leave no copy of a model without a part, from `least` to
    /// `most`, which are among them.
    std::vector<int> whole_numbers(int least, int most) const;
  };
  struct Claim {
    const Head& head;
    Right right = Right::kOwn;
    ResourceAmounts contested{};  ///< of what its worker takes: what it lacks, or all
    seconds spared_most{0};       ///< who is spared for longer is not preempted
  };
  struct Search;
  struct ComingBack;
  /// Who is preempted, by what right, and what it costs: the highest priority, then the work.
  struct Found {
    Right right = Right::kOwn;
    int most_priority = 0;
    std::int64_t lost = 0;
    std::vector<Lender*> victims;
  };

  bool starts(const Claim& claim);
  bool has_quota(const Claim& claim) const;
  bool has_place(const Claim& claim);
  int back_before(const Head& head, const Lender& lender) const;
  bool is_any_back_before(const Head& head) const;
  ResourceAmounts lacking(const Head& head) const;
  bool may_take(const Claim& claim, const Lender& from) const;
  bool may_shrink(const Claim& claim, const Lender& from) const;
  void set_workers(Lender& lender, int workers);
  std::vector<int> kept() const;
  void restore(const std::vector<int>& kept);

  std::vector<Lender*> shrinkable(const Claim& claim);
  bool shrink(Claim& claim);
  void shrink_all(const Claim& claim);
  void give_back(const Claim& claim, const std::vector<int>& before);

  std::vector<Lender*> victims(const Claim& claim);
  std::optional<Found> cheapest(const Claim& claim);
  bool preempt(Claim& claim);
  void take_in_order(Search& search);
  void search(Search& search, std::size_t next);
  bool starts_without_rest(const Search& search, std::size_t next);

  Promise promise(const Head& head);
  bool starts(const Claim& claim, int workers);
  void note(const Claim& claim, const std::vector<int>& before);
  std::string why(const Claim& claim, const Lender& lender, int workers) const;

  QuotaLedger ledger_;  ///< as it will be
  Rooms rooms_;         ///< likewise
  std::map<std::string, const Queue*> queues_;
  std::vector<Lender> lenders_;  ///< by job
  std::vector<Lender> leaving_;  ///< who holds nothing but what is still left of it
  std::map<api::ObjectKey, TakeBack> taken_;
};

}  // namespace muster::core
