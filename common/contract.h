// Every name that crosses the border between operator, worker, command line and the user's tools.
// docs/reference/contract.md and exit-codes.md are made from this file; each constant has its line
// there.
#pragma once

#include <string_view>

namespace muster::contract {

// ---- API

/// API group.
inline constexpr std::string_view kGroup = "muster.dev";
/// API version.
inline constexpr std::string_view kVersion = "v1alpha1";
/// Group and version as written in objects.
inline constexpr std::string_view kApiVersion = "muster.dev/v1alpha1";
/// The kind.
inline constexpr std::string_view kKindTrainingJob = "TrainingJob";
/// The kind of queues.
inline constexpr std::string_view kKindTrainingQueue = "TrainingQueue";
/// The kind that tells how the network is built.
inline constexpr std::string_view kKindTopologyConfig = "TopologyConfig";
/// Queue of jobs without spec.queueName, where there is one of this name.
inline constexpr std::string_view kDefaultQueue = "default";
/// spec.managedBy of jobs this operator takes care of; others are left alone.
inline constexpr std::string_view kManagedBy = "muster.dev/operator";
/// Numerics contract of this build; a joiner with another one is refused.
inline constexpr std::string_view kNumericsContract = "fp32-chain/1";
/// By what jobs with spec.training.precision: BFloat16 train.
inline constexpr std::string_view kBfloat16Contract = "bf16-chain/1";
/// Most of spec.training.logicalRanks.
inline constexpr int kMaxLogicalRanks = 4096;

// ---- Labels and annotations

/// Label of pods and Services: name of the job.
inline constexpr std::string_view kLabelJobName = "muster.dev/job-name";
/// Label of pods and Services: uid of the job.
inline constexpr std::string_view kLabelJobUid = "muster.dev/job-uid";
/// Label of pods: the worker's stable index.
inline constexpr std::string_view kLabelSlot = "muster.dev/slot";
/// Label of pods: how often this slot was replaced.
inline constexpr std::string_view kLabelAttempt = "muster.dev/attempt";
/// Label of pods: the TrainingQueue whose quota they hold; none where there are no queues.
inline constexpr std::string_view kLabelQueue = "muster.dev/queue";
/// Annotation of nodes, written by the node agent: how GPUs and network cards hang together on
/// PCIe, as JSON of at most 16 KiB. One that cannot be read counts as none.
inline constexpr std::string_view kAnnotationPcie = "muster.dev/pcie";
/// Annotation of pods: what `kubectl logs` and `exec` use.
inline constexpr std::string_view kAnnotationDefaultContainer =
    "kubectl.kubernetes.io/default-container";
/// Name of that container.
inline constexpr std::string_view kContainerName = "worker";
/// Name of the container port that serves the worker's metrics.
inline constexpr std::string_view kMetricsPortName = "metrics";

// ---- Environment of every worker

/// `<namespace>/<name>` of the job.
inline constexpr std::string_view kEnvJob = "MUSTER_JOB";
/// Stable index of the worker (pod).
inline constexpr std::string_view kEnvSlot = "MUSTER_SLOT";
/// How often this slot was replaced.
inline constexpr std::string_view kEnvAttempt = "MUSTER_ATTEMPT";
/// Workers (pods) of this gang.
inline constexpr std::string_view kEnvWorkers = "MUSTER_WORKERS";
/// Trainer processes of this worker (default 1).
inline constexpr std::string_view kEnvProcesses = "MUSTER_PROCESSES";
/// GPUs that this worker of the built-in engine holds (the one for CUDA trains on them); or absent.
inline constexpr std::string_view kEnvGpus = "MUSTER_GPUS";
/// URL of the workers' endpoint.
inline constexpr std::string_view kEnvEndpoint = "MUSTER_ENDPOINT";
/// PEM of the CA that signed the endpoint's certificate; absent for http on loopback.
inline constexpr std::string_view kEnvCaCert = "MUSTER_CA_CERT";
/// Address of the pod, which the other workers reach it at; absent outside a cluster.
inline constexpr std::string_view kEnvPodIp = "MUSTER_POD_IP";
/// Name of the node that the worker runs on: those of one node are lost together. Absent = not
/// known.
inline constexpr std::string_view kEnvNode = "MUSTER_NODE";
/// Where the node is in the network, of a worker that the operator placed there: nodes with the
/// same text (a rack, most often) are lost together now and then. Absent = not known.
inline constexpr std::string_view kEnvRack = "MUSTER_RACK";
/// File with the bearer token for the endpoint.
inline constexpr std::string_view kEnvTokenFile = "MUSTER_TOKEN_FILE";
/// File for the worker's last word, at most 4,096 bytes: on success its final progress report as
/// JSON, else one sentence. Default `/dev/termination-log`, as Kubernetes mounts it.
inline constexpr std::string_view kEnvTerminationLog = "MUSTER_TERMINATION_LOG";
/// Port of the worker's /metrics and /healthz; 0 or absent = none.
inline constexpr std::string_view kEnvMetricsPort = "MUSTER_METRICS_PORT";
/// debug, info (default), warning or error.
inline constexpr std::string_view kEnvLogLevel = "MUSTER_LOG_LEVEL";

// ---- Environment set by muster run in place of what the worker image mounts

/// Where relative data paths start (default `/usr/share/muster`).
inline constexpr std::string_view kEnvDataRoot = "MUSTER_DATA_ROOT";
/// Replaces spec.training.checkpoint.path.
inline constexpr std::string_view kEnvCheckpointPath = "MUSTER_CHECKPOINT_PATH";
/// Steps between parameter hashes in the record; 0 = none. The summary has the last step's always.
inline constexpr std::string_view kEnvHashEvery = "MUSTER_HASH_EVERY";
/// Least milliseconds of a step, for `muster prove` and tests: a step of a laptop's example is too
/// short to be disturbed. 0 (default) to 60000, or the absolute path of a file that holds the
/// number and may be rewritten while it trains.
inline constexpr std::string_view kEnvPaceMs = "MUSTER_PACE_MS";
/// `address[:port]` the trainers listen on (default 0.0.0.0, or :: where the pod's own address is
/// of IPv6; local runs 127.0.0.1); process i takes port + i, without a port any free one.
inline constexpr std::string_view kEnvBind = "MUSTER_BIND";
/// Instruction set of the kernels, for tests: scalar, avx2, avx512 or neon.
inline constexpr std::string_view kEnvForceTarget = "MUSTER_FORCE_TARGET";

// ---- Workers' endpoint

/// POST: rendezvous of a gang (common/messages.h, JoinRequest and JoinResponse).
inline constexpr std::string_view kPathJoin = "/v1/join";
/// POST: a worker's report (common/messages.h, ProgressReport).
inline constexpr std::string_view kPathProgress = "/v1/progress";
/// POST: a sentinel asks for leave to go on without a majority (common/messages.h,
/// WitnessRequest).
inline constexpr std::string_view kPathWitness = "/v1/witness";
/// Largest body accepted, in bytes; more gets 413.
inline constexpr int kEndpointMaxBodyBytes = 16384;
/// Header of posts that a replica hands on to the leading one; they are not handed on again.
inline constexpr std::string_view kHeaderForwarded = "x-muster-forwarded";
/// Audience of the tokens that workers are given, and that alone the endpoint accepts.
inline constexpr std::string_view kTokenAudience = "muster";
/// Service of the workers' endpoint, and a name in the serving certificate of every replica.
inline constexpr std::string_view kServiceEndpoint = "muster-endpoint";
/// Service of the operator's metrics, likewise.
inline constexpr std::string_view kServiceMetrics = "muster-metrics";

// ---- Files of the operator's master Secret

/// The CA's certificate in PEM.
inline constexpr std::string_view kMasterCaCertificate = "ca.crt";
/// Its key in PEM.
inline constexpr std::string_view kMasterCaKey = "ca.key";
/// 64 hexadecimal digits: the key of a job is HMAC-SHA256 of its uid under it.
inline constexpr std::string_view kMasterKey = "master-key";
/// Optional: the key before, of gangs that started with it; theirs until they start anew.
inline constexpr std::string_view kMasterPreviousKey = "previous-master-key";
/// Optional: the certificate of the CA before, so that running workers go on trusting replicas.
inline constexpr std::string_view kMasterPreviousCaCertificate = "previous-ca.crt";
/// Its key.
inline constexpr std::string_view kMasterPreviousCaKey = "previous-ca.key";

// ---- Worker's files below the checkpoint path

/// One line a step, kept across resumes; cut at the restored step.
inline constexpr std::string_view kRecordFile = "record.jsonl";
/// The final model, written when training is complete.
inline constexpr std::string_view kModelFile = "model.safetensors";

// ---- Flags of the worker image's program, for `muster fetch` and `helm test`

/// `muster-worker --archive DIR [NAME...]`: DIR's regular files, or NAMEs of it, as a ustar archive
/// to standard output; a failure ends with DataInvalid's code and an archive without its end.
inline constexpr std::string_view kWorkerFlagArchive = "--archive";
/// `muster-worker --wait SECONDS` (1 to 86400): idles until then or until SIGTERM, then ends with
/// 0.
inline constexpr std::string_view kWorkerFlagWait = "--wait";
/// `muster-worker --probe URL`: ends with 0 when URL answers with a status below 500, over https
/// under the authority in MUSTER_CA_CERT; else with PeerLost's code and a sentence.
inline constexpr std::string_view kWorkerFlagProbe = "--probe";

// ---- Exit codes of muster-worker, muster and muster-operator

namespace exit_code {
/// Complete.
inline constexpr int kComplete = 0;
/// Internal error: a bug, or a signal without a code of its own.
inline constexpr int kInternal = 1;
/// Usage: flags, environment or file arguments.
inline constexpr int kUsage = 2;
/// The job failed and no worker gave a typed code; `muster plan`: it would not start now.
inline constexpr int kFailedJob = 3;
/// The cluster refused, does not answer, or does not know the thing named; never a worker's.
inline constexpr int kCluster = 4;
/// The manifest cannot be right; the sentence names the field.
inline constexpr int kInvalidSpec = 20;
/// Data files missing, cut or wrong; the sentence names the file.
inline constexpr int kData = 21;
/// No checkpoint can be loaded: corrupt, or of another model, contract or data.
inline constexpr int kCheckpoint = 22;
/// A part of the training state was lost and the job keeps no checkpoints; `muster fetch`: nothing
/// was kept.
inline constexpr int kNoCheckpoint = 23;
/// Loss or state is NaN or infinite; nothing of that step was saved. With a checkpoint, and unless
/// spec.training.onNonFinite is Stop, it came again with the same bits.
inline constexpr int kNumerics = 24;
/// Another worker was lost, or did not answer or join in time.
inline constexpr int kPeerLost = 25;
/// Out of memory.
inline constexpr int kOutOfMemory = 26;
/// A device failed.
inline constexpr int kDevice = 27;
/// A port to listen on is taken.
inline constexpr int kPort = 28;
/// The disk is full or refuses reads or writes; the last complete checkpoint stays.
inline constexpr int kDisk = 29;
/// spec.activeDeadlineSeconds passed, or `muster` waited for as long as it was told to.
inline constexpr int kDeadline = 30;
/// Asked to leave (SIGTERM).
inline constexpr int kPlannedLeave = 31;
/// No progress within the deadline.
inline constexpr int kHung = 32;
/// The processor lacks x86-64-v3, or the numerics contract is another one.
inline constexpr int kCpuOrContract = 33;
/// muster-operator lost its leader's Lease; nothing was written afterwards.
inline constexpr int kLeaseLost = 34;
/// A bit of the training state has flipped in a worker's memory, or steps diverge that do not when
/// they are made again.
inline constexpr int kMemory = 35;
/// The workers that train have another key than this one, or are of another job.
inline constexpr int kKeyRefused = 36;
/// The whole model does not fit a process; the operator splits it (parallelism.mode: Auto).
inline constexpr int kNeedsSplit = 37;
/// Interrupted by Ctrl-C, after a checkpoint.
inline constexpr int kInterrupted = 130;
}  // namespace exit_code

/// CamelCase reason of an exit code for conditions and events ("PeerLost"); "Error" where there is
/// none. Codes are typed only where spec.training is set.
std::string_view reason_of_exit_code(int code);
/// Whether starting again can help: false for the codes that describe a wrong spec, data or
/// machine.
bool is_retryable_exit_code(int code);

// ---- Event reasons

namespace reason {
/// The gang has its placement.
inline constexpr std::string_view kGangScheduled = "GangScheduled";
/// The gang does not fit now; the note says what is missing.
inline constexpr std::string_view kGangWaiting = "GangWaiting";
/// Stopped by spec.suspend.
inline constexpr std::string_view kSuspended = "Suspended";
/// spec.suspend was taken back.
inline constexpr std::string_view kResumed = "Resumed";
/// A worker joined the gang.
inline constexpr std::string_view kWorkerJoined = "WorkerJoined";
/// A worker ended before its work was done.
inline constexpr std::string_view kWorkerLost = "WorkerLost";
/// A trainer was started again in its pod.
inline constexpr std::string_view kWorkerRespawned = "WorkerRespawned";
/// A worker holds the others up in every step; the note says by how much and why.
inline constexpr std::string_view kWorkerSlow = "WorkerSlow";
/// Running workers went back to a checkpoint by themselves; the note says why.
inline constexpr std::string_view kTrainingReturned = "TrainingReturned";
/// The number of workers changed.
inline constexpr std::string_view kResized = "Resized";
/// A node of the gang is being emptied, and its disruption budget lets no worker be evicted; the
/// note says why no other can come first, and what helps.
inline constexpr std::string_view kDrainWaits = "DrainWaits";
/// The gang starts again with each copy of the model split between processes, because its parts fit
/// their memory and all of it does not; the note says how.
inline constexpr std::string_view kModelSplit = "ModelSplit";
/// A checkpoint is complete.
inline constexpr std::string_view kCheckpointSaved = "CheckpointSaved";
/// Training went on from a checkpoint.
inline constexpr std::string_view kCheckpointRestored = "CheckpointRestored";
/// The gang starts again; the note says after which failure and when.
inline constexpr std::string_view kRestarting = "Restarting";
/// The gang gave way to another job, and starts again by itself; the note says to which and why.
inline constexpr std::string_view kPreempted = "Preempted";
/// The queue's budget is spent: the gang stopped as with spec.suspend, and starts again by itself.
inline constexpr std::string_view kBudgetSpent = "BudgetSpent";
/// Workers left for another job while the others train on; the note says for which and why.
inline constexpr std::string_view kShrunk = "Shrunk";
/// The job is complete.
inline constexpr std::string_view kCompleted = "Completed";
/// The job failed for good; the note says why.
inline constexpr std::string_view kFailed = "Failed";
/// The spec cannot be right; the note names the field.
inline constexpr std::string_view kInvalidSpec = "InvalidSpec";
}  // namespace reason

// ---- Kinds of a change of the workers' membership (ProgressReport.changes)

namespace change {
/// A worker became a member at a step boundary.
inline constexpr std::string_view kJoined = "Joined";
/// A member is gone; the others took its logical ranks within the step.
inline constexpr std::string_view kLost = "Lost";
/// A member handed its logical ranks over at a step boundary.
inline constexpr std::string_view kLeft = "Left";
/// A trainer died and its sentinel started another in the same pod.
inline constexpr std::string_view kRespawned = "Respawned";
/// A worker that does not fit the job was not let in.
inline constexpr std::string_view kRefused = "Refused";
/// Somebody without the job's key wants in and is refused; the reason begins with its address, the
/// slot is that of the worker that tells.
inline constexpr std::string_view kStranger = "Stranger";
/// A member has begun to hold the others up in every step.
inline constexpr std::string_view kSlow = "Slow";
/// The members went back to a checkpoint together: their state was lost, or was wrong.
inline constexpr std::string_view kReturned = "Returned";
}  // namespace change

// ---- Why a worker holds the others up (ProgressReport.slowCause)

namespace slow_cause {
/// Its computing takes longer than the others' for as many logical ranks.
inline constexpr std::string_view kCompute = "compute";
/// Its reading of samples takes longer.
inline constexpr std::string_view kData = "data";
/// Its record and checkpoints do.
inline constexpr std::string_view kFiles = "files";
/// What it does alone takes no longer: its messages come late.
inline constexpr std::string_view kNetwork = "network";
}  // namespace slow_cause

namespace metric {

// ---- Operator's metrics, names of every controller

/// Counter by controller, result: jobs looked at; result success, error, requeue or requeue_after.
inline constexpr std::string_view kReconcileTotal = "controller_runtime_reconcile_total";
/// Counter by controller: plans that were not carried out.
inline constexpr std::string_view kReconcileErrors = "controller_runtime_reconcile_errors_total";
/// Histogram by controller: from taking a job in hand until its plan is carried out.
inline constexpr std::string_view kReconcileSeconds = "controller_runtime_reconcile_time_seconds";
/// Gauge by controller: plans that may be carried out at a time.
inline constexpr std::string_view kReconcileMaxConcurrent =
    "controller_runtime_max_concurrent_reconciles";
/// Gauge by controller: jobs in hand now.
inline constexpr std::string_view kReconcileActive = "controller_runtime_active_workers";
/// Gauge by name: jobs that wait for a look.
inline constexpr std::string_view kQueueDepth = "workqueue_depth";
/// Counter by name: jobs that were put on the queue.
inline constexpr std::string_view kQueueAdds = "workqueue_adds_total";
/// Counter by name: jobs that were put back after a failure.
inline constexpr std::string_view kQueueRetries = "workqueue_retries_total";
/// Histogram by name: how long a job waits for its look.
inline constexpr std::string_view kQueueWaitSeconds = "workqueue_queue_duration_seconds";
/// Histogram by name: how long a job is in hand.
inline constexpr std::string_view kQueueWorkSeconds = "workqueue_work_duration_seconds";
/// Gauge by name: time that the jobs now in hand have been so, summed.
inline constexpr std::string_view kQueueUnfinishedSeconds = "workqueue_unfinished_work_seconds";
/// Gauge by name: how long the oldest job now in hand has been so.
inline constexpr std::string_view kQueueLongestSeconds =
    "workqueue_longest_running_processor_seconds";
/// Counter by code, method, host: exchanges with the API server; code `<error>` where none came.
inline constexpr std::string_view kRestRequests = "rest_client_requests_total";
/// Histogram by verb, host: until the answer, of a watch until its headers.
inline constexpr std::string_view kRestSeconds = "rest_client_request_duration_seconds";
/// Gauge by name: 1 while this replica leads, else 0.
inline constexpr std::string_view kLeader = "leader_election_master_status";
/// Gauge by guardrail: 1 while an admission policy that the chart made is gone or does not refuse.
inline constexpr std::string_view kGuardrailMissing = "muster_guardrail_missing";
/// Gauge: when the CA expires by which workers know the operator, since the epoch.
inline constexpr std::string_view kCaEnd = "muster_ca_expiry_timestamp_seconds";
/// Counter: processor time of the process.
inline constexpr std::string_view kProcessCpuSeconds = "process_cpu_seconds_total";
/// Gauge: resident memory of the process.
inline constexpr std::string_view kProcessResidentBytes = "process_resident_memory_bytes";
/// Gauge: virtual memory of the process.
inline constexpr std::string_view kProcessVirtualBytes = "process_virtual_memory_bytes";
/// Gauge: descriptors that are open.
inline constexpr std::string_view kProcessOpenFds = "process_open_fds";
/// Gauge: descriptors that may be open.
inline constexpr std::string_view kProcessMaxFds = "process_max_fds";
/// Gauge: when the process began, since the epoch.
inline constexpr std::string_view kProcessStartSeconds = "process_start_time_seconds";

// ---- Operator's own metrics

/// Gauge by version, contract: 1.
inline constexpr std::string_view kBuildInfo = "muster_build_info";
/// Gauge by phase: jobs that are there.
inline constexpr std::string_view kJobs = "muster_jobs";
/// Gauge by namespace, training_job, type, status: 1 for the status (true, false or unknown) that
/// the condition has, else 0.
inline constexpr std::string_view kJobCondition = "muster_job_condition";
/// Gauge by namespace, training_job: workers that run.
inline constexpr std::string_view kJobWorkers = "muster_job_workers";
/// Gauge by namespace, training_job: workers of the gang as decided; 0 before.
inline constexpr std::string_view kJobTargetWorkers = "muster_job_target_workers";
/// Counter by namespace, training_job: gang restarts that count against maxRestarts.
inline constexpr std::string_view kJobRestarts = "muster_job_restarts_total";
/// Counter by namespace, training_job: how often it was asked to shrink for another job.
inline constexpr std::string_view kJobShrinks = "muster_job_shrinks_total";
/// Counter by namespace, training_job: how often it was preempted for another job.
inline constexpr std::string_view kJobPreemptions = "muster_job_preemptions_total";
/// Counter by namespace, training_job: processes times the time since their last checkpoint, summed
/// over its preemptions: the most that these have cost.
inline constexpr std::string_view kJobLostSeconds = "muster_job_lost_process_seconds_total";
/// Gauge by namespace, training_job, currency: what it has cost by the operator's price list, as
/// far as that is known; absent without one.
inline constexpr std::string_view kJobCost = "muster_job_cost";
/// Gauge by namespace, training_job: newest step; absent before the first and of own programs.
inline constexpr std::string_view kJobStep = "muster_job_step";
/// Gauge by namespace, training_job: steps of the whole training.
inline constexpr std::string_view kJobTotalSteps = "muster_job_total_steps";
/// Gauge by namespace, training_job: step of the newest checkpoint; -1 before; absent if unwanted.
inline constexpr std::string_view kJobCheckpointStep = "muster_job_checkpoint_step";
/// Gauge by namespace, training_job: when that checkpoint was seen, since the epoch.
inline constexpr std::string_view kJobCheckpointTime = "muster_job_checkpoint_timestamp_seconds";
/// Gauge by namespace, training_job: when a step was last seen (or the gang began), of running
/// trainings, since the epoch.
inline constexpr std::string_view kJobProgressTime = "muster_job_progress_timestamp_seconds";
/// Gauge by namespace, training_job, awaits: how long it has waited for its workers; 0 when it does
/// not. Awaits: Turn (in a queue, Kueue's too, or a budget), Room or Workers; absent with 0.
inline constexpr std::string_view kJobPendingSeconds = "muster_job_pending_seconds";
/// Counter by namespace, training_job, phase: time spent in each phase since this operator sees the
/// job.
inline constexpr std::string_view kJobPhaseSeconds = "muster_job_phase_seconds_total";
/// Counter by namespace, training_job: time spent in steps that were made for the first time; over
/// the time that has passed it is the goodput.
inline constexpr std::string_view kJobProductiveSeconds = "muster_job_productive_seconds_total";
/// Counter by namespace, training_job: steps lost to restarts, that were made again since the last
/// checkpoint.
inline constexpr std::string_view kJobRepeatedSteps = "muster_job_repeated_steps_total";
/// Gauge by namespace, training_job, reason: 1 for the reason of the last failure; absent without
/// one.
inline constexpr std::string_view kJobFailure = "muster_job_failure";
/// Gauge by training_queue: jobs that wait for their turn.
inline constexpr std::string_view kTrainingQueueWaiting = "muster_queue_waiting_jobs";
/// Gauge by training_queue: jobs that hold some of it, also while their last workers leave.
inline constexpr std::string_view kTrainingQueueAdmitted = "muster_queue_admitted_jobs";
/// Gauge by training_queue, resource: its nominal quota; cpu in cores, memory in bytes, everything
/// else counted.
inline constexpr std::string_view kTrainingQueueQuota = "muster_queue_quota";
/// Gauge by training_queue, resource: what its jobs hold, in the same units.
inline constexpr std::string_view kTrainingQueueUsed = "muster_queue_used";
/// Gauge by training_queue, resource: what they hold beyond the nominal quota, in the same units.
inline constexpr std::string_view kTrainingQueueBorrowed = "muster_queue_borrowed";
/// Gauge by training_queue, currency: what its jobs may cost in a period; absent without a budget.
inline constexpr std::string_view kTrainingQueueBudget = "muster_queue_budget";
/// Gauge by training_queue, currency: what they have cost in this period until the queue's
/// status.budget.updatedAt; absent without a budget.
inline constexpr std::string_view kTrainingQueueSpent = "muster_queue_spent";
/// Histogram: from a job's creation (or resumption) until all its workers run.
inline constexpr std::string_view kGangStartSeconds = "muster_gang_start_seconds";
/// Histogram: one look at all waiting gangs and the nodes.
inline constexpr std::string_view kScheduleSeconds = "muster_schedule_seconds";
/// Counter by reason: times that what is free was added up anew; reason first, nodes (some came or
/// went), topology or changes (of a node, beyond what can be followed).
inline constexpr std::string_view kInventoryRemade = "muster_inventory_remade_total";
/// Counter by kind: lists after the first, because a watch had lost its place.
inline constexpr std::string_view kWatchRelists = "muster_watch_relists_total";
/// Counter by kind: lines of watches that were no event.
inline constexpr std::string_view kWatchBadLines = "muster_watch_bad_lines_total";
/// Counter by path, code: posts of workers; path join, progress, witness or other.
inline constexpr std::string_view kEndpointRequests = "muster_endpoint_requests_total";
/// Counter by pass: writes of job status; pass decision, observation or progress.
inline constexpr std::string_view kStatusWrites = "muster_status_writes_total";

// ---- Worker's metrics (labels: namespace, training_job, slot, process)

/// Counter: training steps done by this process.
inline constexpr std::string_view kWorkerSteps = "muster_worker_steps_total";
/// Counter: samples of the global batches of those steps.
inline constexpr std::string_view kWorkerSamples = "muster_worker_samples_total";
/// Gauge: the newest step.
inline constexpr std::string_view kWorkerStep = "muster_worker_step";
/// Gauge: mean loss of the last step over the global batch.
inline constexpr std::string_view kWorkerLoss = "muster_worker_loss";
/// Gauge: accuracy of the last evaluation; absent before the first.
inline constexpr std::string_view kWorkerAccuracy = "muster_worker_accuracy_ratio";
/// Histogram: one optimiser step: data, compute, communicate and update.
inline constexpr std::string_view kWorkerStepSeconds = "muster_worker_step_seconds";
/// Histogram by phase: parts of a step (data, compute, communicate, update) and what stands between
/// steps (record, evaluate, checkpoint) whenever there was any.
inline constexpr std::string_view kWorkerPhaseSeconds = "muster_worker_phase_seconds";
/// Gauge by stage: what came before the first step: join (until the gang was whole) and load (data,
/// checkpoint, connections); absent before its end.
inline constexpr std::string_view kWorkerStartSeconds = "muster_worker_start_seconds";
/// Gauge: samples a second, all workers together.
inline constexpr std::string_view kWorkerSamplesPerSecond = "muster_worker_samples_per_second";
/// Counter: bytes sent to the other workers, headers included.
inline constexpr std::string_view kWorkerSentBytes = "muster_worker_sent_bytes_total";
/// Counter: logical-rank gradients computed.
inline constexpr std::string_view kWorkerLogicalRankComputations =
    "muster_worker_logical_rank_computations_total";
/// Counter: processor seconds of the process.
inline constexpr std::string_view kWorkerCpuSeconds = "muster_worker_cpu_seconds_total";
/// Gauge: resident memory of the process.
inline constexpr std::string_view kWorkerMemoryBytes = "muster_worker_resident_memory_bytes";
/// Gauge: number of the membership that the worker is in; it only grows.
inline constexpr std::string_view kWorkerMembershipEpoch = "muster_worker_membership_epoch";
/// Gauge: workers in that membership.
inline constexpr std::string_view kWorkerMembers = "muster_worker_members";
/// Gauge: 1 while the process makes no steps because others that have one copy of the model with
/// it are not there, else 0.
inline constexpr std::string_view kWorkerWaitsForCopy = "muster_worker_waits_for_copy";
/// Counter: seconds that the process stood still for changes of membership.
inline constexpr std::string_view kWorkerStallSeconds = "muster_worker_stall_seconds_total";
/// Gauge: seconds that the newest change of membership took from this process; 0 before the first.
inline constexpr std::string_view kWorkerLastStallSeconds = "muster_worker_last_stall_seconds";
/// Gauge: how much longer than a usual step the one took in which the newest change of membership
/// came; 0 before the first.
inline constexpr std::string_view kWorkerChangeDelaySeconds = "muster_worker_change_delay_seconds";
/// Gauge: how much longer the others wait for this process in a usual step than for each other.
inline constexpr std::string_view kWorkerStepDelaySeconds = "muster_worker_step_delay_seconds";
/// Counter: trainers that died and were started again at this place.
inline constexpr std::string_view kWorkerRespawns = "muster_worker_respawns_total";
/// Counter: logical ranks that the process computed because their holder was lost.
inline constexpr std::string_view kWorkerRecomputedLogicalRanks =
    "muster_worker_recomputed_logical_ranks_total";
/// Counter: bytes of parameters and optimiser state received from other workers: to enter a
/// membership, and copies of shards beside the steps.
inline constexpr std::string_view kWorkerStateBytes = "muster_worker_state_bytes_total";
/// Gauge: blocks of the sharded optimiser state, of a split model those of the process's part, that
/// had too few copies before the newest step; all tell the same number, with replicated state 0.
inline constexpr std::string_view kWorkerStateBlocksShort = "muster_worker_state_blocks_short";
/// Gauge: step of the newest complete checkpoint; -1 without one.
inline constexpr std::string_view kWorkerCheckpointStep = "muster_worker_checkpoint_step";
}  // namespace metric

}  // namespace muster::contract
