// The decision about one TrainingJob: from what is known to what is done next.
//
// Decisions first, observations last: whatever cannot be taken back (placement, attempt, epoch,
// restart count, the end) is a status write of its own, and pods follow only from stored status. So
// an operator that starts with nothing but the API server's objects arrives at the same plan.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/messages.h"
#include "common/result.h"
#include "operator/api/pod.h"
#include "operator/api/training_job.h"
#include "operator/core/claim_uses.h"
#include "operator/core/cost.h"
#include "operator/core/plan.h"
#include "operator/core/schedule.h"
#include "operator/core/words.h"

namespace muster::core {

/// Why pods or the Service could not be created, other than for want of an API server.
struct CreateFailure {
  std::string reason;  ///< NameConflict, QuotaExceeded, CreateFailed or Refused
  std::string message;
};

/// Equals nothing that a budget says.
inline constexpr int kBudgetUnsure = -1;

struct JobSnapshot {
  api::TrainingJob job;
  Status spec_verdict;  ///< of read_training_job
  /// Pods whose controller claims to be this job, or that carry its uid label; any order.
  std::vector<api::Pod> pods;
  /// What schedule says about this job's gang; absent: it was not asked yet.
  std::optional<GangVerdict> gang;
  /// What schedule takes back from it for another job; absent: nothing.
  std::optional<TakeBack> take_back;
  /// Newest report by slot; hints only, bounded by the endpoint.
  std::map<int, ProgressReport> reports;
  /// What the workers said about their membership and was not told yet; bounded by the loop.
  std::vector<MembershipChange> changes;
  /// Beside them, so many that came too fast to be told one by one.
  std::size_t changes_untold = 0;
  /// Of the nodes that placement and pods name: those that no longer exist, and those that are
  /// there and not ready. When no node at all is ready, none is said not to be: the cluster is in
  /// trouble, and nothing would run elsewhere.
  std::set<std::string> gone_nodes, not_ready_nodes;
  /// Of those as well: nodes that take no pods, because somebody empties them; and who, where a
  /// taint tells (who_empties). The others are cordoned.
  std::set<std::string> unschedulable_nodes;
  std::map<std::string, std::string> emptied_by;
  /// How many nodes of the cluster are ready; 0: none is known.
  int ready_nodes = 0;
  /// What nodes cost; nullptr: nobody says. `priced_nodes`, where somebody does: those that
  /// placement, pods and verdict name. `sees_nodes` is false where no node is known.
  const api::PriceList* prices = nullptr;
  PricedNodes priced_nodes;
  bool sees_nodes = true;
  /// Where the nodes stand; nullptr: nothing is known, or nobody asks now. Says what a step should
  /// take, and no more.
  std::shared_ptr<const Topology> topology;
  /// Hint of the loop; a fresh operator tries again and learns it anew.
  std::optional<CreateFailure> create_failure;
  /// Why a pod that is to go may not be deleted, in the API server's words; empty: none was
  /// refused. A hint as well.
  std::string deletion_refused;
  /// pods_verdict() of this spec where it is known already: it costs as much as making a pod.
  std::optional<Status> pods_verdict;
  /// minAvailable of the job's PodDisruptionBudget as this operator has left it, 0 = there is none;
  /// kBudgetUnsure: a write of it failed, and may have been done, or others may have written it
  /// since; absent: not known.
  /// `budget_failed`: that could not be done a moment ago. Hints as well.
  std::optional<int> budget;
  bool budget_failed = false;
  /// Whether the gang's Service was not looked at for long: nobody watches Services, and others may
  /// delete it. A hint of the loop.
  bool service_is_doubted = false;
  /// How long each of lasting_facts() has been so, by a clock that never leaps; absent: it is new.
  /// Hints: a fresh operator counts anew, but for what objects tell.
  std::map<std::string, seconds> lasted;
  /// Whose the claim of its checkpoints is, if not the job's own; looked at while it has no places.
  std::optional<ClaimUse> claim_of;
  /// Why Kueue has not admitted the gang, as far as it says so. A hint, and others' words.
  std::string kueue_says;
  /// The TrainingQueue that it waits in; empty: none.
  std::string queue;
  /// The TrainingQueue that its workers would count in, and that is gone; empty: it is there, or
  /// it is in none; absent: nobody knows.
  std::optional<std::string> gone_queue;
  WallTime now;
  /// How long a pod may be on its node without having started.
  seconds start_timeout = words::kStartingMost;
  api::PodOptions pod_options;
  /// Of the master key that a gang is given that starts now.
  std::string key_id;
};

/// Total: any snapshot has a plan. Deterministic: the same snapshot, in whatever order, gives the
/// same bytes.
Plan reconcile(const JobSnapshot& snapshot);

/// Of a plan of the pass kProgress whose write has to wait for those of other jobs: what does not
/// wait, which are its pods, the workers' news and the disruption budget.
Plan without_progress(const JobSnapshot& snapshot, Plan plan);

/// Names of what is true now and matters by how long it has been, and how long it has been so as
/// far as objects tell, else 0. The names mean nothing outside.
std::map<std::string, seconds> lasting_facts(const JobSnapshot& snapshot);

/// Whether the job is served. One whose spec is refused is not let start: where it never started,
/// or was suspended, which is when a user can have changed it. One that this operator, or one
/// before it, let start goes on as far as its spec is understood.
bool is_served(const JobSnapshot& snapshot);

/// Why no pod of the job is made: one would not be restricted, or the spec of it is refused.
/// Follows from spec and options alone; requires is_served.
Status pods_verdict(const JobSnapshot& snapshot);

/// What schedule should be asked for this job now; absent: nothing.
std::optional<PlaceWish> wanted_places(const JobSnapshot& snapshot);

}  // namespace muster::core
