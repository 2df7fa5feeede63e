// What a worker and the workers' endpoint say to each other: JSON bodies of POST join and POST
// progress.
//
// Join is a rendezvous of one gang attempt: each worker posts its address and the ports its trainer
// processes listen on, and repeats the same post (idempotent) until the answer is complete.
// Everything received is hostile: every list and string is bounded here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "common/split.h"

namespace muster {

inline constexpr int kMaxWorkers = 4096;
inline constexpr int kMaxProcesses = 64;
inline constexpr int kMaxGpus = 64;                  ///< of a worker
inline constexpr std::size_t kMaxDomainBytes = 253;  ///< as of a node's name
inline constexpr std::size_t kMaxRackBytes = 64;

/// Workers of the built-in engine agree on who they are, and a list of all of them must fit one
/// message between two: so many bytes, of which a worker and each of its processes take so many at
/// most.
inline constexpr int kMaxViewBytes = 59'000, kViewBytesOfWorker = 88, kViewBytesOfProcess = 16;
constexpr int max_trained_workers(int processes) {
  return kMaxViewBytes / (kViewBytesOfWorker + kViewBytesOfProcess * processes);
}
static_assert(max_trained_workers(1) <= kMaxWorkers);

struct JoinRequest {
  std::string job;  ///< "<namespace>/<name>"
  int slot = 0;
  int attempt = 0;
  std::string host;        ///< address the other workers reach this one at
  std::vector<int> ports;  ///< one listening port per trainer process, in LOCAL_RANK order
  std::string contract;    ///< numerics contract of this build; another one is refused
  int sentinel_port = 0;   ///< UDP; where this worker's sentinel talks about membership
  /// Workers of one domain are lost together: the name of the node. Empty = not known.
  std::string domain{};
  /// Those whose nodes stand together have the same. Empty = not known.
  std::string rack{};
  /// It begins when the answer says so. Who does not may be told of a whole gang only at the moment
  /// at which all others are told.
  bool begins_together = false;
};

struct JoinPeer {
  int slot = 0;
  std::string host;
  std::vector<int> ports;
  int sentinel_port = 0;
  int attempt = 0;
  std::string domain{}, rack{};  ///< as in its join
};

struct JoinResponse {
  bool complete = false;  ///< false: the gang is not all here; post again after retry_after_ms
  int retry_after_ms = 0;
  /// Of a whole gang: when to begin, by when all others know of it. Who has not begun is silent,
  /// and those who train go on without the silent.
  int begin_after_ms = 0;
  int present = 0, expected = 0;  ///< workers that have joined, and that will
  std::int64_t epoch = 0;         ///< membership epoch
  std::vector<JoinPeer> peers;    ///< by slot, this worker included
  std::string job_uid;
  std::string job_key;  ///< 64 hexadecimal digits: workers prove it to each other
  Json training;        ///< spec.training of the job, defaulted
  int threads = 1;      ///< per process
  /// The job trains already: `peers` are those whom this worker asks to be let in, itself included.
  bool joining = false;
  /// This worker is not to be let in before it knows all its data: the attempt before it ended for
  /// what it read.
  bool checks_data = false;
};

/// The answer to a report that was taken.
struct ProgressResponse {
  int next_after_ms = 0;  ///< so much later the next one is wanted; 0: when the worker likes
};

/// One change of the workers' membership, as a worker saw it.
struct MembershipChange {
  std::int64_t epoch = 0;      ///< the membership that came out of it
  std::int64_t step = 0;       ///< the step that training went on from
  std::string kind;            ///< contract::change: Joined, Lost, Left, Respawned, Refused, ...
  int slot = 0;                ///< whom it is about
  std::string reason;          ///< at most 256 bytes
  std::int64_t stall_ms = 0;   ///< how long this worker's training stood still
  std::int64_t delay_ms = -1;  ///< how much longer that step took than a usual one; -1 = not known

  bool operator==(const MembershipChange&) const = default;
  /// Whether training stood still for it: not for who is slow, refused or a stranger.
  bool is_of_members() const;
};

/// A process with a part of a model that is split: its counts of a step, and what that takes it, of
/// late.
struct PartReport {
  PartCounts counts;
  double compute_seconds = 0;  ///< of its micro-batches, without waiting for others
  double turn_seconds = 0;     ///< of these, in its turns
  double update_seconds = 0;
  bool operator==(const PartReport&) const = default;
};

/// Sent by the sentinel of every slot, at most one a second, and once at the end.
struct ProgressReport {
  std::string job;
  int slot = 0;
  int attempt = 0;
  std::int64_t step = 0, total_steps = 0, epoch = 0;
  std::string loss;      ///< decimal text; empty = not known yet
  std::string accuracy;  ///< of the last evaluation; empty = none yet
  double samples_per_second = 0;
  double step_seconds = 0;      ///< of late; 0 = not known
  double exchange_seconds = 0;  ///< of these, waiting for the others' gradients and parameters
  double eta_seconds = -1;      ///< negative = not known
  std::int64_t checkpoint_step = -1;
  std::string checkpoint_path;
  bool checkpoint_durable = false;
  std::int64_t restored_step = -1;  ///< the step this attempt started from, -1 = from the start
  std::int64_t model_parameters = 0;
  std::string model_sha256;  ///< of the final parameters; empty until the end
  std::string data_sha256;
  std::uint64_t sent_bytes =
      0;  ///< payload and headers, all processes of this worker, this attempt
  std::uint64_t logical_rank_computations = 0;
  std::int64_t membership_epoch = 0;  ///< the workers' own count, 0 = not known yet
  std::vector<int> members;           ///< slots of that epoch, ascending
  /// The newest changes, oldest first; each is sent until some time after it has arrived, so again
  /// and again.
  std::vector<MembershipChange> changes;
  std::string waiting;  ///< what the workers wait for (the witness); empty = nothing
  /// For so many seconds, at least, the sender has been busy with files; 0 = with none for long.
  std::int64_t busy_seconds = 0;
  bool busy_checkpoint = false;  ///< with a checkpoint beside the steps; else training stands
  std::string busy_path;
  int slow_percent = 0;    ///< by how much the sender slows every step of the gang; 0 = it does not
  std::string slow_cause;  ///< contract::slow_cause; empty = it does not
  /// Which of several processes of the sender does, and that one's rank in its log; -1 = it has but
  /// one, or is an older worker, which does not tell.
  int slow_process = -1, slow_rank = -1;
  /// Where the sender is reached, as in its join: an endpoint that was not there when it joined
  /// learns the address from its reports. Empty = not said.
  std::string host;
  std::vector<int> ports;
  int sentinel_port = 0;
  /// Of a model that is split, by process of the sender; empty: it is not, or not all have told, or
  /// they are more than kMaxReportedParts.
  std::vector<PartReport> parts;

  /// False before its trainers have told of a training: then it only says what it waits for, or
  /// whom it has refused.
  bool has_progress() const { return total_steps > 0 || step > 0; }
  bool operator==(const ProgressReport&) const = default;
};

inline constexpr std::size_t kMaxReportedChanges = 32;
/// So that they leave room for the rest in a body that the operator takes.
inline constexpr std::size_t kMaxReportedParts = 16;

/// A sentinel that sees no majority of its epoch asks whether it may go on without the silent ones:
/// one compare-and-swap on status.membershipEpoch.
struct WitnessRequest {
  std::string job;
  int slot = 0;
  int attempt = 0;
  std::int64_t epoch = 0;       ///< the membership it comes from
  std::int64_t next_epoch = 0;  ///< the membership it wants to begin
  std::vector<int> members;     ///< slots of that one, ascending
  /// Slots of the one it comes from, ascending, `members` among them; empty = an older worker,
  /// which does not tell.
  std::vector<int> from_members{};
};

struct WitnessResponse {
  bool granted = false;
  std::int64_t epoch = 0;    ///< the newest one that was granted or seen
  std::vector<int> members;  ///< of that epoch; empty = not known
};

Json to_json(const JoinRequest& value);
Json to_json(const JoinResponse& value);
Json to_json(const ProgressReport& value);
Json to_json(const ProgressResponse& value);
Json to_json(const WitnessRequest& value);
Json to_json(const WitnessResponse& value);
Result<JoinRequest> parse_join_request(const Json& json);
Result<JoinResponse> parse_join_response(const Json& json);
Result<ProgressReport> parse_progress_report(const Json& json);
Result<ProgressResponse> parse_progress_response(const Json& json);
Result<WitnessRequest> parse_witness_request(const Json& json);
Result<WitnessResponse> parse_witness_response(const Json& json);

}  // namespace muster
