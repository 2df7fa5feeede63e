// What has happened to a job, what it waits for and what would help, in words for a person. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/kube_objects.h"
#include "common/clock.h"
#include "operator/api/training_job.h"

namespace muster::cli {

struct JobStory {
  std::string headline;               ///< "Running for 3m12s"
  std::vector<std::string> happened;  ///< sentences; what it waits for is among them
  std::vector<std::string> help;      ///< what the reader can do; empty: nothing is wrong
};

/// `pods` are all of the job's.
JobStory tell_story(const api::TrainingJob& job, const std::vector<PodView>& pods, WallTime now);

/// How it stops when it is suspended, and what of its work stays: "stops with a checkpoint".
std::string stop_words(const api::TrainingJob& job);

/// What helps against a failure with this reason (contract::reason_of_exit_code, or one of the
/// operator's conditions); empty: nothing is known.
std::string help_for_failure(const std::string& reason);

/// Pods of the stored placement that keep the job waiting, as sentences; equal ones are told once
/// with the slots they hold for.
std::vector<std::string> pod_troubles(const std::vector<PodView>& pods);

}  // namespace muster::cli
