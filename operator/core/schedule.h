// Where waiting gangs go: every gang at once, all of its workers or none; where the network is
// short (placement.h) as far as anything is known of it, else on the fewest nodes. In which order
// and with how much of their queues' quota: queue_pass.h.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/core/inventory.h"
#include "operator/core/mesh_order.h"
#include "operator/core/queue.h"
#include "operator/core/slot_groups.h"
#include "operator/core/topology.h"
#include "operator/core/traffic.h"
#include "operator/core/volumes.h"

namespace muster::core {

/// What a job asks schedule for: its whole gang, or places for some slots of a gang that trains.
struct PlaceWish {
  std::vector<int> slots;        ///< ascending; empty = the whole gang
  std::set<std::string> beside;  ///< nodes of the slots that stay
  /// No worker of it holds any of them yet, so it trains as it is: whoever cannot comes first.
  /// False: each takes the place of a worker that was lost, and holds its quota.
  bool only_grows = false;
  bool is_beyond = false;  ///< it has all that it wishes for: whoever has not comes first
  /// Whose it is: a place for the job as it was may be none for what was edited, or came under its
  /// name.
  std::string uid{};
  std::int64_t generation = 0;
  /// It starts again, and has to wait for its back-off or for its old pods to go. Its turn comes as
  /// ever, and nobody who comes later gets what it will start with.
  bool not_yet = false;
  bool operator==(const PlaceWish&) const = default;
};

/// A gang that waits for its place.
struct WaitingGang {
  api::ObjectKey job;
  std::string uid;
  int count = 1;  ///< workers wished for
  int min = 1;    ///< fewest workers that may start
  /// It starts with a multiple of so many; count and min are such.
  int together = 1;
  /// So many, at most, may become one larger worker once their places are known.
  int largest = 1;
  api::Resources per_worker;
  std::map<std::string, std::string> node_selector;
  std::vector<api::NodeTerm> node_terms{};  ///< any of them; empty: any node
  std::vector<NodeToleration> tolerations;
  bool unplaced = false;  ///< spec.scheduling: Unplaced
  /// spec.topology. Where no node says in which domain of the required level it stands, one node
  /// alone is known to lie within one.
  std::string required_level, preferred_level;
  std::vector<SlotGroups> groups{};  ///< of its slots, that stay together
  /// Of one with groups, where those stand that only `wish.slots` join: nodes by slot.
  std::map<int, std::string> stands{};
  StepFacts step;  ///< of its runs until now
  /// Absent: every worker has whole copies of the model, or what it sends is not known.
  std::optional<MeshWork> mesh{};
  /// By slot, where it stood before it gave its places up to start again; empty: nowhere. Whoever
  /// can stays there.
  std::vector<std::string> stood{};
  /// Not empty: only these slots, each for itself. As many as fit are placed, the first of them
  /// first, on the nodes where the gang stands already if they have room.
  PlaceWish wish;
  QueueTurn turn{};  ///< not set by gang_of, nor are those below
  VolumeLimits volumes;
  std::set<std::string> avoid;      ///< nodes where its pods were refused, or failed, a moment ago
  bool nodes_may_come = true;       ///< others than those that are there
  std::string preempted_for_uid{};  ///< the job that it had to give way to last
  /// So long after it starts now it is over, whatever happens. Absent: it has no deadline.
  std::optional<seconds> ends_within{};
  /// The claim of its checkpoints, in its namespace: with its start it is this job's alone. Empty:
  /// it has none, or has its places.
  std::string claim{};
  bool starts_whole = false;  ///< with `count` alone, whatever its spec says is its least
  /// So long nobody is preempted for it: its pods were refused when it had room last, and who gives
  /// way for such a job loses its work for nothing.
  seconds refused_for{0};
  bool operator==(const WaitingGang&) const = default;
};

/// Capacity promised to pods that are not there yet.
struct Assumed {
  std::string node;
  api::PodRequests requests;
};

/// A gang that has its places: others share the network with it.
struct RunningGang {
  api::ObjectKey job;
  std::vector<std::string> nodes;  ///< of its pods, any order
  StepFacts step;
  api::Resources per_worker{};
};

struct ClusterSnapshot {
  std::vector<const api::Node*> nodes;  ///< any order
  std::vector<const api::Pod*> pods;    ///< any order
  std::vector<Assumed> assumed;
  /// First come, first served; those that only grow last. Those in queues in any order.
  std::vector<WaitingGang> gangs;
  std::vector<Queue> queues{};         ///< any order
  std::vector<QueueHolder> holders{};  ///< any order
  /// What pods hold that leave in time, but those of `holders`. It is still taken of the nodes.
  std::vector<Assumed> leaving{};
  std::vector<RunningGang> running{};  ///< any order; none of `gangs` that waits for all its slots
  /// All that is in `running`, on the hosts of `inventory` and by job, where that is kept; then
  /// `running` is not looked at. What they point to outlives the pass.
  std::optional<std::vector<const SendingGang*>> sending{};
  /// Where the nodes stand; nullptr: only what their labels say.
  std::shared_ptr<const Topology> topology{};
  /// What nodes, pods and promises leave free, where that is kept; they and the topology are not
  /// looked at then. After schedule it is as it was.
  Inventory* inventory = nullptr;
};

/// Slot i goes to node_of_slot[i] (empty = wherever the cluster's scheduler puts it).
struct GangPlacement {
  std::vector<std::string> node_of_slot;
  std::vector<std::string> domain_of_slot{};  ///< path in the topology; empty: nothing is known
  std::string why{};                          ///< why there, where something is known
  bool went_ahead = false;                    ///< of the first of its queue, by its deadline
  int worker_size = 1;                        ///< api::WorkerSpec::size; slots are of that size
  bool operator==(const GangPlacement&) const = default;
};

/// For status; empty where nothing is known.
inline std::string domain_of(const GangPlacement& placement, std::size_t index) {
  return index < placement.domain_of_slot.size() ? placement.domain_of_slot[index] : "";
}

/// A placement, or in words what is missing.
struct GangVerdict {
  std::optional<GangPlacement> placement;
  std::string why_not;
  std::vector<int>
      slots{};  ///< those asked for; node_of_slot is in their order, and may be shorter
  bool lacks_volumes = false;  ///< why_not is of claims or volumes
  bool is_behind = false;      ///< another of its queue is waited for: its place moves with others
  bool operator==(const GangVerdict&) const = default;
};

/// What a job that has places gives back, so that another one can start.
struct TakeBack {
  int workers = 0;      ///< that it keeps; 0: it is preempted
  int slots_below = 0;  ///< of its slots those that stay; 0: none
  api::ObjectKey job;   ///< for whom; no name: for nobody, its queue's budget is spent
  std::string job_uid;
  std::string why;  ///< in words
  std::int64_t lost_process_seconds = 0;
  bool operator==(const TakeBack&) const = default;
};

struct Schedule {
  /// One per waiting gang, but for those whose claim is another's by this pass: they hear of it as
  /// of any that is in use.
  std::map<api::ObjectKey, GangVerdict> verdicts;
  std::map<api::ObjectKey, TakeBack> taken;  ///< by who gives it back
  /// What is decided changes then by time alone.
  std::optional<seconds> look_again;
};

/// Never gives a node more than is free on it, never part of a gang.
Schedule schedule(const ClusterSnapshot& cluster);

/// Fewest workers that its gang starts with. In a queue of Kueue all of them: whoever is left out
/// of its group never joins.
int least_to_start(const api::TrainingJob& job);

/// How long its workers may take to leave.
seconds grace_of(const api::TrainingJob& job);

/// The gang of a job as schedule needs it. `job` has a valid spec.
WaitingGang gang_of(const api::TrainingJob& job, const PlaceWish& wish = {});

/// What the gang exchanges in a step: as its workers have said, else as spec.training tells.
std::optional<double> known_gradient_bytes_of(const api::TrainingJob& job);
/// The same, else kUsualGradientBytes.
double gradient_bytes_of(const api::TrainingJob& job);

/// What its processes send to each other where copies of the model are split between workers and
/// the sizes of activations are known: not those of a CNN, which go by the data.
std::optional<MeshWork> mesh_work_of(const api::TrainingJob& job);

/// The job as those meet it that share links with it. `places`: those in its status, or on their
/// way into it.
RunningGang running_gang(const api::TrainingJob& job,
                         const std::vector<api::SlotPlacement>& places);

/// "{cpu 1, memory 512Mi, nvidia.com/gpu 2}".
std::string resources_text(const api::Resources& resources);

}  // namespace muster::core
