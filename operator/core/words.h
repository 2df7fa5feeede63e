// Condition types, reasons, phases and fixed sentences that core writes into objects. What crosses
// the border to users' tools as an event reason stands in common/contract.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

namespace muster::core::words {

// ---- Condition types
inline constexpr std::string_view kAdmitted = "Admitted";
inline constexpr std::string_view kRunning = "Running";
inline constexpr std::string_view kRestarting = "Restarting";
inline constexpr std::string_view kSuspended = "Suspended";
inline constexpr std::string_view kComplete = "Complete";
inline constexpr std::string_view kFailed = "Failed";

/// Of queues.
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
inline constexpr std::string_view kGangRunning = "GangRunning";
inline constexpr std::string_view kWaitingForPods = "WaitingForPods";
inline constexpr std::string_view kWaitingForKueue = "WaitingForKueue";
inline constexpr std::string_view kKueueDeactivated = "KueueDeactivated";
inline constexpr std::string_view kSuspending = "Suspending";
inline constexpr std::string_view kNameConflict = "NameConflict";
inline constexpr std::string_view kCreateFailed = "CreateFailed";
inline constexpr std::string_view kRefused = "Refused";
inline constexpr std::string_view kDeadlineExceeded = "DeadlineExceeded";
inline constexpr std::string_view kRestartLimitReached = "RestartLimitReached";
inline constexpr std::string_view kWorkerFailed = "WorkerFailed";
inline constexpr std::string_view kRepaired = "Repaired";
inline constexpr std::string_view kQuotaExceeded = "QuotaExceeded";
inline constexpr std::string_view kStatusLost = "StatusLost";
inline constexpr std::string_view kResizing = "Resizing";
inline constexpr std::string_view kClosed = "Closed";

// ---- Reasons of a worker's end that are no exit codes
inline constexpr std::string_view kWorkerLost = "WorkerLost";
inline constexpr std::string_view kNodeLost = "NodeLost";
inline constexpr std::string_view kSignaled = "Signaled";
inline constexpr std::string_view kError = "Error";
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
/// A node that has not been ready for so long is taken for dead.
inline constexpr std::chrono::seconds kNodeLostAfter{40};
/// So long the cluster's scheduler may refuse a pod before another place is looked for, and so long
/// the node is left out then.
inline constexpr std::chrono::seconds kUnboundMost{30};
inline constexpr std::chrono::seconds kAvoidFor{120};
/// So long a node may take to get a pod ready before the job says who is waited for.
inline constexpr std::chrono::seconds kPreparingMost{60};
/// A worker that ran so long before it failed has failed for the first time again.
inline constexpr std::chrono::seconds kForgivenAfter{600};
/// Room that opens while a gang trains in a smaller size than it wishes must last so long before it
/// grows into it: what others let go for a moment is not worth a change of membership.
inline constexpr std::chrono::seconds kGrowAfter{30};
/// Pods of a later attempt than the job says: its status is late, or was lost.
inline constexpr std::chrono::seconds kOldMost{15};
/// A job that was preempted and runs again is not preempted for so long.
inline constexpr std::chrono::seconds kSparedFor{300};
/// A queue's status is written so often at most.
inline constexpr std::chrono::seconds kQueueInterval{5};
/// So long the list of queues is awaited in silence, before jobs that name one hear of it.
inline constexpr std::chrono::seconds kQueuesUnknownMost{30};
/// What a gang waits for is said anew so often at most, when only the words changed.
inline constexpr std::chrono::seconds kWordsInterval{60};
inline constexpr std::size_t kMaxLogTailBytes = 2048;
inline constexpr std::size_t kMaxMessageBytes = 1024;
inline constexpr std::size_t kMaxTerminationBytes = 4096;
inline constexpr std::size_t kMaxPathBytes = 512;

}  // namespace muster::core::words
