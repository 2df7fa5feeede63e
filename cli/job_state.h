// What a local run makes of its job's status: what to say, whether it is over, with which exit
// code. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "operator/api/training_job.h"

namespace muster::cli {

/// The end of a run as a person and a script see it.
struct Ending {
  std::string outcome;  ///< Complete, Failed or Interrupted
  std::string message;  ///< one sentence
  int exit_code = 0;
};

/// Set once the job is over: it is complete, has failed, was suspended (which only an interrupt
/// does), or can never start on this machine.
std::optional<Ending> ending_of(const api::TrainingJob& job);

/// Sentences about what changed between two states: restarts and conditions.
std::vector<std::string> changes(const api::TrainingJobStatus& before,
                                 const api::TrainingJobStatus& now);

}  // namespace muster::cli
