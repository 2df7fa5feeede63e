// How large the workers of a gang become whose shape is free (spec.worker.shape): as many of one
// node as can be are one worker, with the processes and resources of all of them. Where the gang
// stands is decided before (large_workers), and quota and room are counted in workers as
// spec.worker says: what these take, what is taken together takes too, or less of it.
#pragma once

#include "operator/api/training_job.h"
#include "operator/core/schedule.h"

namespace muster::core {

/// So many of the gang's workers, at most, may become one.
int largest_worker(const WaitingGang& gang, const api::TrainingJob& job);

/// The placement with as few workers as its nodes allow, all of one size that is at most `largest`.
void enlarge_workers(GangPlacement& placement, int largest);

/// The job's workers as they are read once it has that status.
api::WorkerSpec sized_workers(const api::TrainingJob& job, const api::TrainingJobStatus& status);

/// The job in workers as spec.worker says, as it is when it is placed anew: who was one worker
/// stood on one node.
api::TrainingJob as_written(const api::TrainingJob& job);

}  // namespace muster::core
