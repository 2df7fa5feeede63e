// The first process of a worker: joins the gang, starts the trainer processes, watches them, and
// ends with one typed exit code and one sentence. It touches no tensors and opens no data.
#pragma once

#include <cstdint>
#include <string>

#include "common/clock.h"
#include "worker/sentinel/environment.h"
#include "worker/sentinel/launch.h"
#include "worker/sentinel/membership.h"

namespace muster::sentinel {

struct SentinelOptions {
  WorkerConfig config;
  TrainerCommand trainer;
  const Clock* clock = nullptr;
  std::uint64_t seed = 1;               ///< of back-off jitter
  milliseconds join_deadline{300'000};  ///< PostmanOptions
  /// How long this worker's other trainers may take to tell the cause once one has lost its peers.
  milliseconds peer_lost_grace{500};
  /// How long trainers may take to end after a stop request, or once the job is complete, before
  /// they are killed.
  milliseconds stop_grace{600'000};
  milliseconds final_report_timeout{3'000};
  /// Without news a report is made anew after so long: an endpoint that was not there for the last
  /// one has to learn who trains, or it lets nobody in.
  milliseconds report_again{15'000};
  MembershipOptions membership{};
  std::string system_root;  ///< count_memory_kills
};

/// Runs one worker to its end. Blocks SIGTERM, SIGINT and SIGCHLD in the calling thread, which must
/// be the only one: the two former ask the trainers to stop with a checkpoint. No process started
/// here outlives this. Writes the termination log. Returns the process exit code
/// (contract::exit_code): 0 when all trainers ended with 0, else 31 when all that did not were
/// stopped on request, else that of the first failure; lost peers count only when no trainer of
/// this worker failed by itself. After a stop request the end of a trainer that was in no
/// membership counts for nothing. A trainer ended by signal n counts as 26 when the kernel did it
/// for want of memory, else as 1.
int run_sentinel(const SentinelOptions& options);

/// Leaves `text` (cut at 4,096 bytes) in the termination log of `config`.
void write_termination_log(const WorkerConfig& config, const std::string& text);

}  // namespace muster::sentinel
