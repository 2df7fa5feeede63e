// The one place that decides. Everything it knows came through the mailbox; everything it wants
// done goes to the executor as plans. What it keeps in memory between steps are hints that a fresh
// operator learns anew.
//
// The rules of jobs are in operator/core; this file is about whose turn it is and what is known.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/clock.h"
#include "common/rng.h"
#include "operator/core/claim_uses.h"
#include "operator/core/kept_gangs.h"
#include "operator/core/kept_inventory.h"
#include "operator/core/reconcile.h"
#include "operator/core/work_queue.h"
#include "operator/kube/store.h"
#include "operator/runtime/applier.h"
#include "operator/runtime/avoided_nodes.h"
#include "operator/runtime/deciding_options.h"
#include "operator/runtime/job_key.h"
#include "operator/runtime/kueue_book.h"
#include "operator/runtime/mailbox.h"
#include "operator/runtime/metrics.h"
#include "operator/runtime/queue_book.h"
#include "operator/runtime/topology_book.h"

namespace muster::runtime {

/// An own write is believed to have reached the store by then, or to be lost to it.
inline constexpr seconds kUnseenMost{30};

struct LoopOptions : DecidingOptions {
  Mailbox* mailbox = nullptr;
  Executor* executor = nullptr;
  /// A full machine shows a new pod many seconds after it was made.
  seconds create_again_after{30};
  /// For tests: in each pass the inventory that is kept is held against one made anew, and a
  /// difference ends the process. Costs what the whole cluster costs.
  bool checks_inventory = false;
};

/// A job as the store keeps it: with the verdict on its spec.
struct JobRecord {
  api::ObjectMeta meta;
  api::TrainingJob job;
  Status verdict;
  bool operator==(const JobRecord& other) const;
};

/// Threads: one.
class OperatorLoop {
 public:
  explicit OperatorLoop(LoopOptions options);

  /// Takes what the mailbox holds and decides everything that can be decided now. Returns when to
  /// come back at the latest, if nothing arrives. Blocks: no.
  MonoTime step();
  /// Whether jobs, pods and nodes are all known; nothing is written before.
  bool synced() const;
  /// Where the nodes stand; nullptr: not all that tells of it is read yet.
  std::shared_ptr<const core::Topology> topology_of_forecast();

 private:
  /// An own status write that the store does not show yet. Until it does, any other plan would rest
  /// on the status before it.
  struct Unseen {
    std::string version_before;
    MonoTime since;
  };
  struct Refusal {
    std::string why;  ///< in the API server's words
    int times = 0;
  };
  /// Hints about one job; dropped when its uid changes.
  struct Memory {
    std::string uid;
    std::map<int, ProgressReport> reports;
    /// Changes of the membership that were not told yet, and the newest of those that were.
    std::vector<MembershipChange> changes;
    std::deque<std::string> told_changes;
    MonoTime changes_window{};  ///< their number is bounded by the minute
    int changes_in_window = 0;
    std::size_t changes_untold = 0;  ///< beyond that: told as a number
    MonoTime untold_due{};           ///< at the end of that minute
    /// Those in the plan that is being carried out: to be told again should it fail.
    std::vector<MembershipChange> telling;
    std::size_t telling_untold = 0;
    int shrinks_to = 0;  ///< core::shrinks_to when it was last looked at
    std::optional<core::CreateFailure> create_failure;
    MonoTime create_failure_until;
    int create_failures = 0;
    /// Nobody is preempted for it before: its pods were refused so often since it ran last. A
    /// leader that does not know so learns it from one more refusal, which costs one more victim.
    MonoTime preempts_from{};
    int refused_starts = 0;
    /// Of pods that may not be deleted, by uid.
    std::map<std::string, Refusal> refusals;
    /// Since when whatever was to be made was not; until all of a plan is.
    std::optional<MonoTime> create_delayed_since;
    MonoTime handed_over_at{};              ///< the last plan
    std::map<std::string, MonoTime> facts;  ///< core::lasting_facts, since when each is so
    bool has_timed = false;
    AvoidedNodes avoid;
    std::optional<int> budget;  ///< as JobSnapshot's
    MonoTime budget_seen_at{};
    /// As JobSnapshot's, of the spec of that generation.
    std::optional<Status> pods_verdict;
    std::int64_t pods_verdict_of = -1;
    MonoTime budget_retry_at{};  ///< not tried again before, after it failed
    MonoTime service_due{};      ///< the Service is looked after from then on
    std::optional<Unseen> unseen;
    /// Pods and services created and pods deleted a moment ago, which the store may not show yet,
    /// or that may not be deleted, and when it may be done again.
    std::map<std::string, MonoTime> acted;
    /// All places that the job will have when a decision has come into status.
    std::optional<std::vector<api::SlotPlacement>> decided_places;
    int decided_size = 1;  ///< of the workers in these: api::WorkerSpec::size
    /// Of the last that gave it places and failed, and may be stored for all that.
    std::optional<Unseen> doubted;
    std::optional<GangInfo> gang;  ///< as given to the endpoint
    /// Questions to the witness that wait for their turn, by slot, and the one whose yes is on its
    /// way into status.
    std::map<int, WitnessPost> questions;
    std::optional<std::pair<WitnessResponse, WitnessAnswer>> granting;
  };

  void take(const WatchBatch& batch);
  void take_events(const WatchBatch& batch);
  void take(ApplyDone done);
  void take(ProgressReport report);
  void take(Lead lead);
  void take(WitnessPost post);
  void take_jobs(const kube::WatchEvent& event);
  void take_pods(const kube::WatchEvent& event);
  void take_nodes(const kube::WatchEvent& event);
  void take_queues(const kube::WatchEvent& event, api::Kind kind);
  void look_at_turned();
  void reindex_pod(const api::ObjectKey& pod_key);
  void note_leaving(const api::ObjectKey& pod_key);
  void know_gone_jobs();
  void look_again_at(const api::ObjectKey& job);
  void resync();
  void outdate(const api::ObjectKey& job);

  void look_at(const api::ObjectKey& key);
  void look_apart_at(const api::ObjectKey& key);
  void forget(const api::ObjectKey& key);
  Memory& memory_of(const JobRecord& record);
  bool is_unseen(const JobRecord& record, Memory& memory);
  static bool has_placement(const api::TrainingJobStatus& status,
                            const api::SlotPlacement& placement);
  core::JobSnapshot snapshot_of(const JobRecord& record, const Memory& memory) const;
  void add_nodes(core::JobSnapshot& snapshot) const;
  void add_prices(core::JobSnapshot& snapshot) const;
  void time_facts(core::JobSnapshot& snapshot, Memory& memory) const;
  void add_pods_verdict(core::JobSnapshot& snapshot, Memory& memory) const;
  void note_avoided(const core::JobSnapshot& snapshot, const core::Plan& plan, Memory& memory);
  void note_refused_start(Memory& memory) const;
  void drop_wish_beside_places(const api::ObjectKey& key);
  void note_waiting(const api::ObjectKey& key, const core::JobSnapshot& snapshot, Memory& memory);
  void drop_repeats(core::Plan& plan, Memory& memory) const;
  void note_deeds(const ApplyDone& done, Memory& memory) const;
  static void add_refusals(core::JobSnapshot& snapshot, Memory& memory);
  /// Answers the questions to the witness; whether one of them needs a write first, which was
  /// handed over then.
  bool answer_witness(const JobRecord& record, const core::JobSnapshot& snapshot, Memory& memory);
  static void drop_questions(Memory& memory, const std::string& why);
  bool note_changes(const std::vector<MembershipChange>& changes, Memory& memory) const;
  static void settle_changes(bool told, Memory& memory);
  void call_progress_line();
  /// Whether the job's progress may be written now: so many jobs' a second, and who has waited
  /// longest comes first. One that may not keeps its place in the line, and is called.
  bool has_progress_turn(const api::ObjectKey& key);
  bool is_in_turn(const api::ObjectKey& key) const;
  void leave_progress_line(const api::ObjectKey& key);
  void tell_metrics(const JobRecord& record);
  void hand_over(const JobRecord& record, core::Plan plan, Memory& memory);
  void update_endpoint(const JobRecord& record, Memory& memory);
  void take_trust(WorkerTrust trust);
  void know_key();
  void run_schedule();
  std::vector<core::Assumed> assumed_of(const api::ObjectKey& key) const;
  bool may_hold(const api::ObjectKey& key) const;
  void update_assumed();
  bool may_still_write(const api::Pod& pod) const;
  void drop_decided_places(const ApplyDone& done, Memory& memory) const;
  bool has_places(const api::ObjectKey& key, const std::string& uid) const;
  bool has_writers(const api::ObjectKey& key, const std::string& uid,
                   const std::set<std::string>& but = {}) const;
  std::set<std::string> placed_pods(const api::ObjectKey& key, const std::string& uid) const;
  std::vector<core::ClaimUse> claim_uses_of(const api::ObjectKey& key) const;
  void update_claim_uses();
  void add_claim_of(core::JobSnapshot& snapshot);
  void check_inventory(core::Inventory& kept, const core::ClusterSnapshot& cluster) const;
  core::StorageSnapshot storage() const;
  core::WaitingGang waiting_gang(const api::TrainingJob& job, const core::PlaceWish& wish,
                                 std::optional<core::VolumeReach>& volumes) const;
  bool is_cut_off(const api::Pod& pod) const;
  std::vector<core::QueueHolder> queue_holders() const;
  static void note_who_stays(const JobRecord& record, const Memory& memory,
                             const std::vector<const api::Pod*>& pods, core::QueueHolder& holder);
  std::vector<core::HeldSlot> leaving_of(const core::QueueHolder& gone) const;
  bool keeps_place(const api::Pod& pod, const api::ObjectKey& job) const;
  std::vector<core::Assumed> leaving_but_of(const std::vector<core::QueueHolder>& holders) const;
  std::optional<core::RunningGang> running_gang(const api::ObjectKey& key) const;
  void add_topology_notes(std::map<api::ObjectKey, core::GangVerdict>& verdicts) const;
  void add_queue_notes(std::map<api::ObjectKey, core::GangVerdict>& verdicts) const;
  void write_queues();

  LoopOptions options_;
  kube::Store<JobRecord> jobs_;
  kube::Store<api::Pod> pods_;
  kube::Store<api::Node> nodes_;
  kube::Store<api::PersistentVolume> volumes_;
  kube::Store<api::PersistentVolumeClaim> claims_;
  std::map<api::ObjectKey, std::set<api::ObjectKey>> pods_of_job_;
  std::map<api::ObjectKey, api::ObjectKey> job_of_pod_;
  std::set<api::ObjectKey> leaving_;  ///< pods, of whomever
  core::WorkQueue queue_;
  Rng jitter_;  ///< of what is tried again by create_failure_until
  QueueBook queue_book_;
  TopologyBook topology_book_;
  KueueBook kueue_book_;
  std::map<api::ObjectKey, Memory> memory_;
  core::KeptInventory inventory_;
  core::KeptGangs gangs_;
  /// Jobs of which what they hold, or what is promised to pods that the store does not show yet,
  /// may have changed since it was last looked at.
  std::set<api::ObjectKey> assumed_is_old_;
  std::set<api::ObjectKey> may_hold_;  ///< as of then; the others hold nothing
  core::ClaimUses claim_uses_;
  std::set<api::ObjectKey> claim_uses_are_old_;  ///< of jobs of these names
  struct SeenNode {
    bool ready = false, unschedulable = false;
    std::string emptied_by{};
    bool operator==(const SeenNode&) const = default;
  };
  std::map<std::string, SeenNode> seen_nodes_;
  int ready_nodes_ = 0;
  /// Since the last look: nodes of which jobs there must hear, and whether all nodes are such.
  std::set<std::string> turned_nodes_;
  bool turned_all_ = false;
  std::map<api::ObjectKey, core::PlaceWish> waiting_;
  std::map<api::ObjectKey, core::GangVerdict> verdicts_;
  std::map<api::ObjectKey, core::TakeBack> taken_;
  /// Of queues, as they were found last: jobs are gone, and made anew, before their pods are gone.
  std::vector<core::QueueHolder> held_;
  bool knows_gone_jobs_ = false;
  std::optional<MonoTime> schedule_due_;  ///< what is decided may change then by time alone
  bool is_leader_ = true;
  bool schedule_is_old_ = false;
  MonoTime schedule_from_{};  ///< no pass before
  bool was_synced_ = false;
  MonoTime now_;
  std::string key_id_;  // of the master key that gangs start with now
  MonoTime next_resync_;
  MonoTime progress_window_;
  int progress_writes_ = 0;
  /// Jobs whose progress waits to be written, by ticket.
  std::map<std::uint64_t, api::ObjectKey> progress_line_;
  std::map<api::ObjectKey, std::uint64_t> progress_tickets_;
  std::uint64_t next_progress_ticket_ = 0;
};

}  // namespace muster::runtime
