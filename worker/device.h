// The GPU that a trainer's passes are computed on, in builds that have kernels for one
// (MUSTER_CUDA).
#pragma once

#include <memory>

#include "common/result.h"
#include "kernels/ops.h"
#include "worker/engine/training.h"

namespace muster::worker {

/// nullptr, and a line in the log that says why, where passes are computed on processors all the
/// same: a build without kernels, a model that is split. Processes of a machine take its devices in
/// turn, by their rank in the job, so that those of a pod have one each.
/// Threads: the caller's alone may use it.
/// Errors: kUnsupported with exit code kDevice where there is no device.
Result<std::unique_ptr<kernels::Context>> open_device(const engine::TrainingConfig& config,
                                                      int rank);

}  // namespace muster::worker
