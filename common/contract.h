// Every name that crosses the border between operator, worker, command line and the user's tools:
// API group, labels, environment variables, exit codes, paths of the workers' endpoint, metrics.
// docs/reference lists them; tests/tidy fails when the list and this file differ.
#pragma once

#include <string_view>

namespace muster::contract {

// ---- API
// -------------------------------------------------------------------------------------------
inline constexpr std::string_view kGroup = "muster.dev";
inline constexpr std::string_view kVersion = "v1alpha1";
inline constexpr std::string_view kApiVersion = "muster.dev/v1alpha1";
inline constexpr std::string_view kKindTrainingJob = "TrainingJob";
inline constexpr std::string_view kManagedBy = "muster.dev/operator";
inline constexpr std::string_view kNumericsContract = "fp32-chain/1";

// ---- Labels and annotations
// ------------------------------------------------------------------------
inline constexpr std::string_view kLabelJobName = "muster.dev/job-name";
inline constexpr std::string_view kLabelJobUid = "muster.dev/job-uid";
inline constexpr std::string_view kLabelSlot = "muster.dev/slot";
inline constexpr std::string_view kLabelAttempt = "muster.dev/attempt";
inline constexpr std::string_view kAnnotationDefaultContainer =
    "kubectl.kubernetes.io/default-container";
inline constexpr std::string_view kContainerName = "worker";

// ---- Environment of every worker
// -------------------------------------------------------------------
inline constexpr std::string_view kEnvJob = "MUSTER_JOB";    ///< "<namespace>/<name>"
inline constexpr std::string_view kEnvSlot = "MUSTER_SLOT";  ///< stable index of the pod
inline constexpr std::string_view kEnvAttempt =
    "MUSTER_ATTEMPT";  ///< how often this slot was replaced
inline constexpr std::string_view kEnvWorkers = "MUSTER_WORKERS";  ///< pods in this gang
inline constexpr std::string_view kEnvProcesses =
    "MUSTER_PROCESSES";  ///< trainer processes of this worker (default 1)
inline constexpr std::string_view kEnvEndpoint =
    "MUSTER_ENDPOINT";  ///< URL of the workers' endpoint
inline constexpr std::string_view kEnvCaCert =
    "MUSTER_CA_CERT";  ///< PEM; absent for http://127.0.0.1
inline constexpr std::string_view kEnvTokenFile =
    "MUSTER_TOKEN_FILE";  ///< bearer token for the endpoint
// Set by `muster run` in place of mounts of the worker image.
inline constexpr std::string_view kEnvDataRoot =
    "MUSTER_DATA_ROOT";  ///< relative data paths start here
inline constexpr std::string_view kEnvCheckpointPath =
    "MUSTER_CHECKPOINT_PATH";  ///< replaces checkpoint.path
inline constexpr std::string_view kEnvForceTarget =
    "MUSTER_FORCE_TARGET";  ///< scalar, avx2, avx512 or neon (tests)
inline constexpr std::string_view kEnvHashEvery =
    "MUSTER_HASH_EVERY";  ///< steps between parameter hashes in the record; 0 = the last only
inline constexpr std::string_view kEnvBind =
    "MUSTER_BIND";  ///< address[:port] trainers listen on (default 0.0.0.0; local runs 127.0.0.1);
                    ///< process i takes port + i, without a port any free one
/// File the worker leaves its last word in, at most 4,096 bytes: on success its final
/// ProgressReport as JSON, else one sentence. Default /dev/termination-log, as Kubernetes mounts
/// it.
inline constexpr std::string_view kEnvTerminationLog = "MUSTER_TERMINATION_LOG";
inline constexpr std::string_view kEnvMetricsPort =
    "MUSTER_METRICS_PORT";  ///< /metrics and /healthz of the worker; 0 or absent = none
inline constexpr std::string_view kEnvLogLevel =
    "MUSTER_LOG_LEVEL";  ///< debug, info, warning or error

// ---- Workers' endpoint
// -----------------------------------------------------------------------------
inline constexpr std::string_view kPathJoin = "/v1/join";
inline constexpr std::string_view kPathProgress = "/v1/progress";
inline constexpr int kEndpointMaxBodyBytes = 16 * 1024;

// ---- Worker's files below the checkpoint path
// ------------------------------------------------------
inline constexpr std::string_view kRecordFile =
    "record.jsonl";  ///< a line a step, kept across resumes
inline constexpr std::string_view kModelFile =
    "model.safetensors";  ///< final model, copied by `muster run`

// ---- Exit codes of muster-worker and muster run
// ---------------------------------------------------- Typed only where spec.training is set; of
// own programs 0 is success and the rest goes by restart policy.
namespace exit_code {
inline constexpr int kComplete = 0;
inline constexpr int kInternal = 1;
inline constexpr int kUsage = 2;
inline constexpr int kFailedJob = 3;
inline constexpr int kInvalidSpec = 20;
inline constexpr int kData = 21;
inline constexpr int kCheckpoint = 22;
inline constexpr int kNoCheckpoint = 23;
inline constexpr int kNumerics = 24;
inline constexpr int kPeerLost = 25;
inline constexpr int kOutOfMemory = 26;
inline constexpr int kDevice = 27;
inline constexpr int kPort = 28;
inline constexpr int kDisk = 29;
inline constexpr int kDeadline = 30;
inline constexpr int kPlannedLeave = 31;
inline constexpr int kHung = 32;
inline constexpr int kCpuOrContract = 33;
inline constexpr int kInterrupted = 130;
}  // namespace exit_code

/// CamelCase reason of an exit code for conditions and events ("PeerLost"); "Error" where there is
/// none.
std::string_view reason_of_exit_code(int code);
/// Whether starting again can help: false for the codes that describe a wrong spec, data or
/// machine.
bool is_retryable_exit_code(int code);

// ---- Event reasons
// ---------------------------------------------------------------------------------
namespace reason {
inline constexpr std::string_view kGangScheduled = "GangScheduled";
inline constexpr std::string_view kGangWaiting = "GangWaiting";
inline constexpr std::string_view kSuspended = "Suspended";
inline constexpr std::string_view kResumed = "Resumed";
inline constexpr std::string_view kWorkerJoined = "WorkerJoined";
inline constexpr std::string_view kWorkerLost = "WorkerLost";
inline constexpr std::string_view kWorkerRespawned = "WorkerRespawned";
inline constexpr std::string_view kResized = "Resized";
inline constexpr std::string_view kCheckpointSaved = "CheckpointSaved";
inline constexpr std::string_view kCheckpointRestored = "CheckpointRestored";
inline constexpr std::string_view kRestarting = "Restarting";
inline constexpr std::string_view kPreempted = "Preempted";
inline constexpr std::string_view kShrunk = "Shrunk";
inline constexpr std::string_view kCompleted = "Completed";
inline constexpr std::string_view kFailed = "Failed";
inline constexpr std::string_view kInvalidSpec = "InvalidSpec";
}  // namespace reason

// ---- Worker's metrics (labels: namespace, training_job, slot, process)
// -----------------------------
namespace metric {
inline constexpr std::string_view kWorkerSteps = "muster_worker_steps_total";
inline constexpr std::string_view kWorkerSamples = "muster_worker_samples_total";
inline constexpr std::string_view kWorkerLoss = "muster_worker_loss";
inline constexpr std::string_view kWorkerStepSeconds =
    "muster_worker_step_seconds";  ///< label phase
inline constexpr std::string_view kWorkerSamplesPerSecond = "muster_worker_samples_per_second";
inline constexpr std::string_view kWorkerSentBytes = "muster_worker_sent_bytes_total";
inline constexpr std::string_view kWorkerLogicalRankComputations =
    "muster_worker_logical_rank_computations_total";
inline constexpr std::string_view kWorkerCpuSeconds = "muster_worker_cpu_seconds_total";
inline constexpr std::string_view kWorkerMemoryBytes = "muster_worker_resident_memory_bytes";
inline constexpr std::string_view kWorkerCheckpointStep = "muster_worker_checkpoint_step";
}  // namespace metric

}  // namespace muster::contract
