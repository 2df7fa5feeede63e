// `muster describe`: all that is known about a job on one page. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/kube_objects.h"
#include "cli/kube_table.h"
#include "common/clock.h"
#include "operator/api/training_job.h"

namespace muster::cli {

struct Description {
  api::TrainingJob job;
  std::vector<PodView> pods;
  std::vector<EventView> events;   ///< by time
  bool has_events = true;          ///< false: they could not be read
  std::string expected_start;      ///< of a job that waits; may be empty
  std::vector<std::string> notes;  ///< what could not be asked for, and why
};

/// The page, with a newline at its end. Foreign text is cut and its control characters are spaces.
std::string describe_text(const Description& about, const Display& display, WallTime now);

}  // namespace muster::cli
