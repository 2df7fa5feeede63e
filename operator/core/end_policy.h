// How a gang's run ends or starts anew: success, a failed worker and the restart policy, deadline.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "operator/core/gang_view.h"
#include "operator/core/reconcile.h"

namespace muster::core {

/// Why one worker failed, and whose doing it was.
struct Failure {
  api::FailureStatus facts;
  bool retryable = true;
  /// Those who train do not let it in, and will not while they train: at most a start of all helps.
  bool unfit = false;
  bool follower = false;     ///< ended because another one did
  bool planned = false;      ///< left as asked, with its work handed over
  bool pod_lost = false;     ///< deleted by somebody else
  bool node_lost = false;    ///< its node is gone or not ready
  bool disrupted = false;    ///< taken away by the cluster: drained, evicted, preempted
  bool turned_away = false;  ///< its node's kubelet did not let it in: no container was made
  /// It was to join those who train and does not fit them: they end for other reasons.
  bool kept_out = false;
  bool by_foreign = false;  ///< by a container before the worker that a webhook put there

  /// Whether starting again is one of the restarts that the user allows: what is not the program's
  /// doing is not.
  bool counts() const { return !planned && !node_lost && !disrupted && !turned_away; }
};

/// Nodes whose kubelets did not let in workers that are still members, and the newest attempt of
/// these.
std::map<std::string, int> nodes_that_turned_away(const JobSnapshot& snapshot,
                                                  const GangView& gang);

Failure read_failure(const Member& member, const JobSnapshot& snapshot);
/// Whether a worker that ended so is unfit (above) where it was no member.
bool is_unfit(const api::TrainingJob& job, const api::FailureStatus& facts);
/// "worker 1 (attempt 3) on node n ended with exit code 137 (Signaled)".
std::string sentence_of(const Failure& failure);

/// Whether this worker's failure ends the job, whoever else trains on: a member's typed exit code
/// says that nothing helps, or spec.restart.policy is Never and it did not come as a spare alone.
bool fails_job(const JobSnapshot& snapshot, const Member& member);

/// Whether slot 0 has ended with the job's model: all that is left is that the others end, too.
bool has_model(const GangView& gang);

/// Complete: every member ended with 0. Who is a member at the end is said by slot 0's last word,
/// where it says so: another that wanted to be let in does not matter any more. A decision of its
/// own; absent when it is not so.
std::optional<Plan> decide_success(const JobSnapshot& snapshot, const GangView& gang);

/// Failed: spec.activeDeadlineSeconds since the start have passed.
std::optional<Plan> decide_deadline(const JobSnapshot& snapshot, const GangView& gang);
/// Until the deadline; absent without one.
std::optional<seconds> until_deadline(const JobSnapshot& snapshot);

/// A member failed or was lost: the whole gang starts anew, or the job has failed.
std::optional<Plan> decide_failure(const JobSnapshot& snapshot, const GangView& gang);

/// Whether only followers of a lost peer have ended so far.
bool is_settling(const JobSnapshot& snapshot, const GangView& gang);

/// backoffSeconds, doubled per restart, at most kBackoffMost.
seconds restart_backoff(const api::RestartSpec& restart, int restarts_before);

}  // namespace muster::core
