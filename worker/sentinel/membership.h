// Agreement of a job's sentinels on who trains together. Pure: no IO, threads, clock or randomness;
// what happens is told to it, what is to be done is taken from it. One instance a worker.
//
// Each view is followed by exactly one other. Who follows is decided by ballots as in Lamport's
// Paxos among the seats of the view: a promise by one of these sets, then acceptance by one of
// them:
//   - more than half of the seats;
//   - every seat but those that are certainly dead, if the one who decides heard each of these
//     until it died (else it may have decided with others before, without us);
//   - exactly half of the seats, if the witness lets them, once for each view;
//   - fewer, if the witness lets them, which it does only when it knows that the others are gone.
// Any two of them have a living seat in common, or the witness. So a certain death (the peer's
// kernel refuses) needs nobody's leave, silence needs a majority or the witness, and whoever was
// left out hears of a newer epoch and starts anew as a newcomer. Newcomers never count.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "worker/sentinel/lateness.h"
#include "worker/sentinel/membership_message.h"
#include "worker/sentinel/view.h"

namespace muster::sentinel {

struct MembershipOptions {
  /// So many trainers, next to each other by slot and then by local rank, have one copy of the
  /// model together.
  int copy_processes = 1;
  /// Each trainer keeps a part of the state, which is copied before it leaves.
  bool is_sharded = false;
  /// The trainers compare what the worker with the files is to save, from when it is asked to
  /// leave.
  bool compares_files = false;
  milliseconds beat{50};
  milliseconds silence{300};  ///< not heard for longer = suspected
  /// Who was heard late before has kLateTimes its longest interval instead, and whose trainers take
  /// part in steps has as long as they do; both at most this. Of the second in which training is to
  /// go on, the rest is for those who are left to agree.
  milliseconds silence_most{900};
  milliseconds one_observer{1'000};  ///< how long one pair may not hear each other
  milliseconds gather_leaves{1'000};
  /// The same, if one is among them that has its copy together with the files; and so long a stop
  /// waits for such a one to start a trainer again.
  milliseconds gather_files{3'000};
  milliseconds gather_joins{100};
  milliseconds gather_start{30'000};  ///< for the others once the first trainer is ready
  milliseconds reform{100};           ///< a broken communicator may be explained by a death so long
  /// A leaver waits so long for another holder of the state: one that was let in and has entered.
  /// Longer while a stop would save nothing; then only its own end bounds that. And for so long
  /// after a loss nobody leaves between two steps.
  milliseconds holder{10'000};
  /// A leaver waits so long until what it keeps of sharded state is copied, or what it is to save
  /// is compared, which takes one or two steps. What is not by then it hands over, or saves, at the
  /// end of the step after which it leaves.
  milliseconds relief{5'000};
  milliseconds ballot{150};           ///< a ballot that is not through by then is tried anew
  milliseconds ask_again{500};        ///< the witness
  milliseconds probation{1'000};      ///< clean links before one who was cut off is let in, doubled
  milliseconds forgiveness{600'000};  ///< who stays in so long after that begins anew
  milliseconds lost{60'000};          ///< a newcomer that hears nobody for so long gives up
  milliseconds other_key{5'000};      ///< or so long only that its key is another one
  /// Who has a seat and other data than those who train ends after so long: by then these have told
  /// the operator that they do, and that one has to end stops nobody.
  milliseconds misfit{30'000};
};

/// The first so many slots have the copy of the model that can be saved, with slot 0.
constexpr int file_workers(const MembershipOptions& options, int processes) {
  return (options.copy_processes + processes - 1) / processes;
}

inline constexpr const char* kOtherJob = "its spec or data are not those that the job trains with";
inline constexpr const char* kOtherPictures =
    "its pictures are not those that the job trains with: files of the same names and sizes have "
    "other bytes";

/// One who was met outside of a view: from the endpoint's answer to join.
struct Contact {
  WorkerId id;
  std::string host;
  int sentinel_port = 0;
};

// What is to be done, in order.
struct Send {
  WorkerId to;
  std::string host;
  int port = 0;
  Message message;
};
/// A view that this worker has a seat in, has left on its own wish, or that follows one that it has
/// left so.
struct Decided {
  View view;
};
/// Whether those of view `epoch` who hear each other may go on without the rest, as `next_epoch`.
struct AskWitness {
  std::int64_t epoch = 0, next_epoch = 0;
  std::vector<int> members;         ///< their slots, ascending
  std::vector<int> from_members{};  ///< of the seats of view `epoch`
};
/// The others went on without this worker: its trainers must end, new ones may ask to be let in.
struct Fenced {};
/// Nobody is left who could let this worker in.
struct PeersLost {
  std::string reason;
};
/// The others do not let this worker in; asking again will not help.
struct Refused {
  std::string reason;
};
/// The others have finished the job, and this worker, which they had let in, has not made a step.
struct LeftBehind {};
/// Those who train say that this worker has another key: nothing can be said to them.
struct OtherKey {};
/// This worker, leading, refused another, or has a seat itself and other data than those who train.
struct RefusedNewcomer {
  WorkerId id;
  std::string reason;
};
using Output = std::variant<Send, Decided, AskWitness, Fenced, PeersLost, Refused, LeftBehind,
                            OtherKey, RefusedNewcomer>;

class Membership {
 public:
  /// One of the first seats: `first` was given to all of them alike, without trainers, and `self`
  /// as it stands in it.
  Membership(const MembershipOptions& options, Seat self, View first, MonoTime now);
  /// A newcomer that knows where some members are. It tells its domain once it knows a view
  /// with domains: members of an older build know of none, and could not read what it says.
  Membership(const MembershipOptions& options, Seat self, std::vector<Contact> contacts,
             std::int64_t epoch_seen, MonoTime now);

  // What happened. Each may leave outputs.
  void tick(MonoTime now);
  void receive(MonoTime now, const Message& message) { receive(now, std::span(&message, 1)); }
  /// What has come since the last call. It is looked at as a whole: of many workers, many speak in
  /// the time that this takes.
  void receive(MonoTime now, std::span<const Message> messages);
  /// There was more than could be received at once: what comes next has waited.
  void note_backlog() { is_backlog_ = true; }
  /// The kernel of `id`'s machine says that nobody listens there any more.
  void refused(MonoTime now, WorkerId id);
  /// `id` cannot open what this worker says. Nothing proves that it is `id`, or one of this job:
  /// it counts only while nobody who trains is heard.
  void unauthorized(MonoTime now, WorkerId id);
  /// The trainers of this worker that are ready now, and what they are about.
  void set_trainers(MonoTime now, std::vector<TrainerPlace> ready, std::uint64_t digest);
  /// This worker's trainers train in the view of `epoch`: all of its members are connected.
  void entered(std::int64_t epoch);
  /// This worker's trainers, which train in the view of `epoch`, know that of the workers in
  /// `slots` nobody takes anything along who leaves. It counts until they enter another.
  void spares(MonoTime now, std::int64_t epoch, std::vector<int> slots);
  /// This worker's trainers have made a step in the view of `epoch` that began at `began`: none of
  /// its trainers was gone by then, because no step is made without all of them.
  void stepped(MonoTime began, std::int64_t epoch);
  /// The communicator of `epoch` broke at this worker's trainers.
  void broken(MonoTime now, std::int64_t epoch);
  /// How fast this worker's trainers are; told with the next beats.
  void set_paces(std::vector<Pace> paces) { paces_ = std::move(paces); }
  void leave(MonoTime now);
  /// This worker's trainers have finished the job: no change is needed on its account any more.
  void done(MonoTime now);
  /// The last thing before the process ends.
  void goodbye(MonoTime now);
  struct WitnessAnswer {
    bool granted = false;
    std::int64_t epoch = 0;
    std::vector<int> members;
  };
  void witness(MonoTime now, const WitnessAnswer& answer);

  std::vector<Output> take_outputs();
  /// When tick() is due at the latest.
  MonoTime next_tick() const { return next_beat_; }

  const View& view() const { return view_; }
  WorkerId self() const { return self_.id; }
  bool is_member() const { return is_member_; }
  bool is_leading(MonoTime now) const;
  /// What the workers wait for, for people; empty = nothing.
  const std::string& waiting() const { return waiting_; }
  /// What the trainers of the present view were told to be like last, this worker's included.
  std::vector<Pace> paces() const;

 private:
  struct Peer {
    Seat seat;  ///< as it described itself last
    bool has_beat = false;
    Beat beat;
    std::uint64_t beat_sequence = 0;
    std::int64_t epoch = 0;   ///< of its newest view
    MonoTime heard{};         ///< own sleep forgiven
    MonoTime heard_really{};  ///< not forgiven, nor of a message that had waited here
    Lateness lateness;
    bool is_heard_once = false;
    bool is_dead = false;
    bool is_fresh = false;          ///< it was heard until it died
    const char* refused = nullptr;  ///< why; it is not let in
    MonoTime told{};                ///< the newest view
    MonoTime clean_since{};
    std::optional<MonoTime> evictable_since;
  };
  struct Acceptor {
    Ballot promised, accepted_ballot;
    View accepted;
  };
  struct Proposal {
    Ballot ballot;
    MonoTime began{};
    bool is_accepting = false;
    std::map<int, Promise> promises;  ///< by slot
    std::set<int> accepted;
    std::size_t next_seat = 0;  ///< in the view, which is to be asked next to accept
    View value;                 ///< while accepting, or while the witness is asked
    bool has_value = false;
    bool is_granted = false;
    std::vector<int> voters;  ///< for whom the witness was asked
    std::int64_t asked_epoch = 0;
    std::optional<MonoTime> asked;
  };
  /// What a leader would have, and since when it waits for the rest of it.
  struct Wish {
    View view;
    bool is_change = false;
  };

  // membership.cpp
  void take(MonoTime now, const Message& message);
  void handle(MonoTime now, const Message& message, const Beat& beat);
  void handle(MonoTime now, const Message& message, const Bye& bye);
  void handle(MonoTime now, const Message& message, const Refusal& refusal);
  void handle(MonoTime now, const Message& message, const Commit& commit);
  void adopt(MonoTime now, const View& view);
  bool may_have_left(const View& before) const;
  void follow(const View& view);
  void note_arrivals(const View& before);
  void note_leavers(const View& before);
  void count_evictions(MonoTime now);
  void become_newcomer(MonoTime now);
  void evaluate(MonoTime now);
  void evaluate_newcomer(MonoTime now);
  bool is_left_behind() const;
  bool is_misfit() const;
  /// Why one about `digest` is not let in by those about `right`.
  static const char* why_misfit(std::uint64_t digest, std::uint64_t right);
  void give_up_misfit(MonoTime now);
  bool has_other_key(MonoTime now) const;
  void describe_waiting(MonoTime now);
  void mark_dead(MonoTime now, WorkerId id);
  void send(WorkerId to, MessageBody body);
  void send_beats();
  Beat make_beat(MonoTime now) const;
  void tell_view(MonoTime now, WorkerId id);
  bool may_be_told(WorkerId id) const;
  void forgive_own_sleep(MonoTime now);
  Peer& peer(WorkerId id, MonoTime now);
  const Peer* known(WorkerId id) const;

  // membership_links.cpp
  bool is_silent(const Peer& peer, MonoTime now) const;
  /// Hears and is heard.
  bool is_linked(const Seat& seat, MonoTime now) const;
  /// Linked, and with the view, so that it could lead.
  bool is_abreast(const Seat& seat, MonoTime now) const;
  /// Slots that another says it does not hear, where its word counts; else none.
  const std::vector<int>& unheard_by(const Seat& who, MonoTime now) const;
  std::map<int, int> count_observers(MonoTime now) const;
  /// Slots of the view that should go because not all of the rest hear them.
  std::set<int> find_cut_off(MonoTime now) const;
  std::set<int> find_evictable(MonoTime now);
  bool is_awaited(WorkerId id) const;
  bool is_leaver_lost(MonoTime now) const;

  // membership_wish.cpp
  Wish make_wish(MonoTime now);
  /// Processes of a copy of the model: those of workers that stay, those that are ready, and of
  /// these those that may have trained.
  struct CopyState {
    int staying = 0, there = 0, in = 0;
  };
  std::map<int, CopyState> copies_of(const View& next) const;
  bool is_held_without_leavers(const View& next) const;
  bool has_files(WorkerId id) const;
  bool lacks_files(const View& next) const;
  bool can_save(const View& next) const;
  bool has_trained() const;
  bool is_between_steps(const View& next) const;
  bool would_leave_unsaved(const View& next) const;
  bool takes_state_along(const View& next) const;
  void drop_leavers(MonoTime now, View& next);
  void add_newcomers(MonoTime now, View& next);
  bool fits(MonoTime now, const View& next, WorkerId id, Peer& peer);
  void set_trainers_of(MonoTime now, View& next);
  std::uint64_t digest_of_most(const View& next) const;
  bool should_wait_for_start(MonoTime now, const View& next);
  bool is_broken_long(MonoTime now);
  bool is_anybody_lost(const View& next) const;
  bool is_in(WorkerId id, const TrainerPlace& one) const;
  void put_off_joiners(View& next) const;
  void finish_wish(MonoTime now, Wish& wish);
  bool is_leaving(WorkerId id) const;
  bool is_done(WorkerId id) const;
  std::vector<TrainerPlace> ready_of(const Seat& seat) const;
  std::uint64_t digest_of(WorkerId id) const;

  // membership_ballots.cpp
  void handle(MonoTime now, const Message& message, const Prepare& prepare);
  void handle(MonoTime now, const Message& message, const Promise& promise);
  void handle(MonoTime now, const Message& message, const Nack& nack);
  void handle(MonoTime now, const Message& message, const Accept& accept);
  void handle(MonoTime now, const Message& message, const Accepted& accepted);
  bool is_about_this(const Message& message) const;
  milliseconds time_to_tell_all() const;
  bool may_send_view(MonoTime now);
  bool has_better_leader(MonoTime now, int slot);
  void propose(MonoTime now);
  void drive(MonoTime now);
  void send_prepares();
  void send_accepts(MonoTime now);
  void try_accepting(MonoTime now, const View& wish);
  bool may_ask(MonoTime now, const std::set<int>& promised) const;
  void start_accepting(MonoTime now);
  void try_deciding(MonoTime now);
  /// Whether these seats may decide alone.
  bool is_enough(const std::set<int>& slots) const;
  const Promise* newest_accepted() const;

  MembershipOptions options_;
  Seat self_;
  Domain own_domain_ = kUnknownDomain;  ///< to be told once the others tell theirs
  std::uint64_t digest_ = 0;
  std::vector<Pace> paces_;
  bool is_member_ = false, is_leaving_ = false, is_done_ = false, is_out_ = false;
  std::int64_t followed_epoch_ = 0;  ///< once it is out: newest that its trainers were told of
  std::int64_t broken_epoch_ = 0;
  std::int64_t entered_epoch_ = 0;  ///< newest that this worker's trainers have told of
  std::vector<int> spared_;         ///< slots, ascending, as they have told since then
  MonoTime stepped_{};              ///< when the newest step that was made in view_ began
  View view_;
  /// Trainers of view_: the epoch that each came in with, of those whose coming was seen.
  std::map<std::pair<WorkerId, TrainerPlace>, std::int64_t> came_;
  /// Who trained before the view of that epoch, and has left with it.
  std::map<WorkerId, std::int64_t> left_;
  std::int64_t epoch_max_ = 0;  ///< newest number seen anywhere
  std::map<WorkerId, Peer> peers_;
  /// Of one who was cut off: how often, and since when it is in again.
  struct Eviction {
    int count = 0;
    std::optional<MonoTime> in_since;
  };
  std::map<WorkerId, Eviction> evictions_;
  Acceptor acceptor_;
  std::optional<Proposal> proposal_;
  std::int64_t round_max_ = 0;
  MonoTime not_before_{};  ///< own next ballot
  std::map<int, MonoTime>
      held_off_since_;  ///< slots whose ballots are not taken, as one better leads
  std::optional<MonoTime> leaves_since_, joins_since_, start_since_, broken_since_,
      overtaken_since_, misfit_since_;
  /// Since when those who leave could but for is_between_steps().
  std::optional<MonoTime> between_since_;
  std::string waiting_;
  /// When somebody said first, without a pause since, and last that this worker has another key.
  struct Unauthorized {
    MonoTime first{}, newest{};
  };
  std::optional<Unauthorized> unauthorized_;
  MonoTime views_since_{};      ///< a time of one beat, in which
  std::size_t views_sent_ = 0;  ///< so many messages with a view went out
  bool is_beat_due_ = false;
  /// This worker slept, or was slow: what it finds may be older than it seems.
  bool is_backlog_ = false;
  MonoTime woke_{};
  bool is_news_ = false;  ///< something was received that may change what is to be done
  bool is_lost_told_ = false;
  std::uint64_t sequence_ = kTakesPieces;
  MonoTime next_beat_{}, last_evaluated_{}, newcomer_since_{}, adopted_{};
  std::vector<Output> outputs_;
};

}  // namespace muster::sentinel
