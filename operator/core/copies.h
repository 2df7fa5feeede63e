// A model of which several processes have a copy together (parallelism.tensor x pipeline): which
// workers do. A job's processes are numbered slot x processes + their place in the worker; so many
// as have a copy, one after the other, are one. One that lacks a process makes no steps.
#pragma once

#include <vector>

#include "operator/api/training_job.h"

namespace muster::core {

/// Processes that have a copy together.
int processes_of_copy(const api::TrainingJob& job);

/// As api::workers_together.
int workers_together(const api::TrainingJob& job);

/// Whether none of the copies, or other groups of so many slots that follow each other, that these
/// have is in others, too; `slots` ascend.
bool are_whole_copies(const std::vector<int>& slots, int together);

/// Of the slots `running`, ascending, those with a process that has to wait because another of its
/// copy does not run.
std::vector<int> waiting_for_their_copy(const api::TrainingJob& job,
                                        const std::vector<int>& running);

}  // namespace muster::core
