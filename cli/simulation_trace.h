// Traces for `muster simulate`.
#pragma once

#include <string>
#include <vector>

#include "common/result.h"
#include "operator/runtime/simulation.h"

namespace muster::cli {

using runtime::TraceJob;

inline constexpr std::size_t kMaxTraceJobs = 100'000;
inline constexpr std::size_t kMaxTraceBytes = std::size_t{64} << 20;

/// CSV with a header; columns in any order, those that are not known are passed over:
///   submit, duration   seconds, both required
///   workers            how many, 1 where there is no such column
///   name               of the job, else its row's number
///   queue, priority    spec.queueName, spec.priorityClassName
///   deadline           spec.activeDeadlineSeconds, no less than duration
///   cpu, memory, gpus  of each worker, as in spec.worker.resources
/// By time of submission. Errors: kInvalid with the row and the column.
Result<std::vector<TraceJob>> read_trace(const std::string& text);

/// The jobs of a recorded cluster, as far as they have ended: submitted when they were made, and as
/// long as they ran since they last started (what came before a preemption is not told). Objects
/// that are no TrainingJobs, or not ours to place, are passed over. Errors: kInvalid where none is
/// left, and kTooLarge.
Result<std::vector<TraceJob>> recorded_trace(const std::vector<Json>& objects);

}  // namespace muster::cli
