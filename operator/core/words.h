// Condition types, reasons, phases and fixed sentences that core writes into objects. What crosses
// the border to users' tools as an event reason stands in common/contract.h.
// docs/reference/conditions.md is made from the types and reasons.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace muster::core::words {

// ---- Condition types
/// Whether the gang has its places. While it is False the message says what is missing.
inline constexpr std::string_view kAdmitted = "Admitted";
/// Whether all workers run or, of a gang that changes while it trains, whether any does.
inline constexpr std::string_view kRunning = "Running";
/// Whether the gang starts again after a failure or a change.
inline constexpr std::string_view kRestarting = "Restarting";
/// Whether it was stopped by spec.suspend and no worker is left.
inline constexpr std::string_view kSuspended = "Suspended";
/// True at the end of a job that has done its work.
inline constexpr std::string_view kComplete = "Complete";
/// True at the end of a job that failed for good.
inline constexpr std::string_view kFailed = "Failed";

/// Of a TrainingQueue, and its reason while it is True: jobs start from it.
inline constexpr std::string_view kActive = "Active";

// ---- Phases, for display only
inline constexpr std::string_view kPhasePending = "Pending";
inline constexpr std::string_view kPhaseWaiting = "Waiting";
inline constexpr std::string_view kPhaseRunning = "Running";
inline constexpr std::string_view kPhaseRestarting = "Restarting";
inline constexpr std::string_view kPhaseSuspended = "Suspended";
inline constexpr std::string_view kPhaseComplete = "Complete";
inline constexpr std::string_view kPhaseFailed = "Failed";

// ---- Reasons of conditions that are no event reasons
/// Running: the message says how many workers run, and what those do who do not.
inline constexpr std::string_view kGangRunning = "GangRunning";
/// Not Running: pods do not start; the message names a worker and what it waits for.
inline constexpr std::string_view kWaitingForPods = "WaitingForPods";
/// Not Running: the queue of Kueue has not admitted the gang.
inline constexpr std::string_view kWaitingForKueue = "WaitingForKueue";
/// Not Admitted: the cluster's scheduler bound a part of the gang alone, which let go of its nodes.
inline constexpr std::string_view kHalfBound = "HalfBound";
/// Not Admitted: a worker did not start on its node in time, and the gang let go of its nodes.
inline constexpr std::string_view kNotStarted = "NotStarted";
/// Not Admitted: Kueue has deactivated the gang; suspend and resume starts it again.
inline constexpr std::string_view kKueueDeactivated = "KueueDeactivated";
/// The workers are leaving, because spec.suspend is true.
inline constexpr std::string_view kSuspending = "Suspending";
/// Not Admitted: an object of another owner has a name that the job's pods or Service need.
inline constexpr std::string_view kNameConflict = "NameConflict";
/// Not Admitted: the API server did not make a pod; the message has its words.
inline constexpr std::string_view kCreateFailed = "CreateFailed";
/// Not Admitted: the claim of its checkpoints is another job's until that is over; the message
/// names the job.
inline constexpr std::string_view kCheckpointInUse = "CheckpointInUse";
/// Not Admitted: pods like these are not made; the message says what they would break.
inline constexpr std::string_view kRefused = "Refused";
/// Failed: spec.activeDeadlineSeconds have passed.
inline constexpr std::string_view kDeadlineExceeded = "DeadlineExceeded";
/// Failed: it was started again spec.restart.maxRestarts times.
inline constexpr std::string_view kRestartLimitReached = "RestartLimitReached";
/// Failed: a worker failed, and spec.restart.policy is Never.
inline constexpr std::string_view kWorkerFailed = "WorkerFailed";
/// No longer Failed or refused: the spec was repaired before the job had begun.
inline constexpr std::string_view kRepaired = "Repaired";
/// Not Admitted: a ResourceQuota of the namespace does not let a pod be made.
inline constexpr std::string_view kQuotaExceeded = "QuotaExceeded";
/// Pods of a later attempt are there than status tells of; a new one takes their place.
inline constexpr std::string_view kStatusLost = "StatusLost";
/// The gang starts again, because another spec.worker.count is wished for.
inline constexpr std::string_view kResizing = "Resizing";
/// Of a TrainingQueue, not Active: no job starts from it; the message says why.
inline constexpr std::string_view kClosed = "Closed";

// ---- Reasons of a worker's end that are no exit codes
/// Its pod was deleted, or is gone.
inline constexpr std::string_view kWorkerLost = "WorkerLost";
/// Its node is gone, or has not been ready for long.
inline constexpr std::string_view kNodeLost = "NodeLost";
/// It was ended by a signal.
inline constexpr std::string_view kSignaled = "Signaled";
/// It ended with a code that has no meaning of its own.
inline constexpr std::string_view kError = "Error";
/// The kernel ended it, because it used more memory than its limit.
inline constexpr std::string_view kOutOfMemory = "OutOfMemory";

// ---- Bounds and times
inline constexpr std::chrono::seconds kProgressInterval{15};
inline constexpr std::chrono::seconds kBackoffMost{300};
/// A job's checkpoints are news once in so much time.
inline constexpr std::chrono::seconds kSavedToldEach{600};
/// However far off the next thing to do is, a job is looked at again after so long.
inline constexpr std::chrono::seconds kLookAgainMost{std::chrono::hours(24)};
/// A worker that lost a peer ends before the peer's own end is known; so long the cause is awaited.
inline constexpr std::chrono::seconds kSettle{2};
/// What was applied together may be seen one after the other: a claim so long after its job.
inline constexpr std::chrono::seconds kAppliedTogether{2};
/// A pod that is still there so long after its grace period is on a dead node: it is superseded
/// (the epoch fences it), not waited for.
inline constexpr std::chrono::seconds kOverdue{30};
/// So long after slot 0 has ended with the model the others' ends are awaited.
inline constexpr std::chrono::seconds kLeftBehindMost{30};
/// So long after its job has ended a pod may run on whose worker has ended.
inline constexpr std::chrono::seconds kLingersMost{30};
/// A node that has not been ready for so long is taken for dead.
inline constexpr std::chrono::seconds kNodeLostAfter{40};
/// So long the cluster's scheduler may refuse a pod before another place is looked for, and so long
/// the node is left out then.
inline constexpr std::chrono::seconds kUnboundMost{30};
inline constexpr std::chrono::seconds kAvoidFor{120};
/// So long a part of a gang holds nodes while the cluster's scheduler refuses the rest, which may
/// wait for an autoscaler; and up to so much longer, no two gangs alike.
inline constexpr std::chrono::seconds kHalfBoundMost{600};
inline constexpr std::chrono::seconds kHalfBoundSpread{120};
/// So long the nodes of a gang that let go of them are others'. The scheduler looks at a pod that
/// it refused again within 10 s of a change, else within 5 min.
inline constexpr std::chrono::seconds kLetGoPause{120};
/// So long a node may take to get a pod ready before the job says who is waited for.
inline constexpr std::chrono::seconds kPreparingMost{60};
/// So long a worker holds its node that does not get its pod started, and the gang that cannot
/// begin without it, unless --pod-start-timeout says otherwise: an image of 20 GB comes over 100
/// Mbit/s in half an hour.
inline constexpr std::chrono::seconds kStartingMost{3600};
/// A worker that ran so long before it failed has failed for the first time again.
inline constexpr std::chrono::seconds kForgivenAfter{600};
/// Room that opens while a gang trains in a smaller size than it wishes must last so long before it
/// grows into it: what others let go for a moment is not worth a change of membership.
inline constexpr std::chrono::seconds kGrowAfter{30};
/// A cordon that has lasted so long is followed by a drain, as far as anybody can tell.
inline constexpr std::chrono::seconds kCordonedFor{10};
/// So long a worker that stood in for others while nodes were emptied stays after that: who empties
/// nodes one after the other cordons the next one meanwhile.
inline constexpr std::chrono::seconds kSpareFor{30};
/// Pods of a later attempt than the job says: its status is late, or was lost.
inline constexpr std::chrono::seconds kOldMost{15};
/// A job that was preempted and runs again is not preempted for so long.
inline constexpr std::chrono::seconds kSparedFor{300};
/// So long after its end it is stored that a worker of a user's own program has ended with 0: those
/// of most gangs end within moments of each other.
inline constexpr std::chrono::seconds kEndStoredAfter{30};
/// A queue's status is written so often at most.
inline constexpr std::chrono::seconds kQueueInterval{5};
/// Clocks of two operators differ by less. A time that lies further ahead is of one that was wrong.
inline constexpr std::chrono::seconds kClocksDiffer{3600};
/// So long lists that not every job needs are awaited in silence, before those that do hear of it.
inline constexpr std::chrono::seconds kUnlistedMost{30};
/// What a gang waits for is said anew so often at most, when only the words changed.
inline constexpr std::chrono::seconds kWordsInterval{60};
/// And so often, when they differ in numbers alone, or others of its queue come first: what is free
/// changes with every pod of every other job, and the place in a line and who is its first with
/// every job that leaves it. Each gang that waits would write that.
inline constexpr std::chrono::seconds kNumbersInterval{300};
inline constexpr std::size_t kMaxLogTailBytes = 2048;
inline constexpr std::size_t kMaxMessageBytes = 1024;
inline constexpr std::size_t kMaxTerminationBytes = 4096;
inline constexpr std::size_t kMaxPathBytes = 512;

}  // namespace muster::core::words
