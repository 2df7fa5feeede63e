// The GPU that a trainer's passes are computed on, in builds that have kernels for one
// (MUSTER_CUDA).
#pragma once

#include <memory>
#include <string>

#include "common/result.h"
#include "kernels/ops.h"
#include "worker/engine/training.h"

namespace muster::worker {

/// What a trainer is to know of the others that use GPUs beside it.
struct GpuWish {
  int rank = 0;       ///< own one, in the job
  int gpus = 0;       ///< that the worker holds
  int processes = 1;  ///< of the worker
  int together = 1;   ///< of the job, that share the devices
  int instances = 0;  ///< what take_instance() gave
};

/// Where `listed` names several MIG instances: from now on CUDA shows this process its own alone.
/// Returns how many there are, else 0. To be called before CUDA is, and before there are threads.
int take_instance(const std::string& listed, int rank);

/// nullptr, and a line in the log that says why, where passes are computed on processors all the
/// same: a build without kernels, a model that is split. Processes of a machine take its devices in
/// turn, by their rank in the job, so that those of a pod have one each.
/// Threads: the caller's alone may use it.
/// Errors: kUnsupported with exit code kDevice where there is no device, or fewer than the worker
/// holds, so that two of its processes would have one.
Result<std::unique_ptr<kernels::Context>> open_device(const engine::TrainingConfig& config,
                                                      const GpuWish& wish);

}  // namespace muster::worker
